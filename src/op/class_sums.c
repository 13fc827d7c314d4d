/* Cross entropy in two steps, so that the first can be done for some of the classes. These are cut
 * into blocks; of each block and row there are four numbers, and a fifth where labels are smoothed:
 *
 *     the largest logit; the logarithm of the sum of exp(logit - largest);
 *     the label's logit - largest; whether the label is here (1), and the first of the largest (2);
 *     the sum of largest - logit
 *
 * class_sums(logits [rows.., n], labels I32 [rows..]) -> sums [blocks, rows, 4 or 5]
 *     attr.classes: of which blocks the logits are; the numbers of others are zero
 * class_sums_backward(logits, labels, dsums) -> dlogits
 * cross_entropy_of_sums(sums, labels) -> loss [rows], hits I32 [rows], as cross_entropy's, or as
 *     smoothed_cross_entropy's; attr.classes
 * cross_entropy_of_sums_backward(sums, labels, dloss [rows]) -> dsums
 *
 * The largest only keeps numbers small, so no gradient passes to it: dsums has that of the
 * logarithm, which is that of the largest, too, of the label's logit, and of the last sum. */
#include "op/check.h"

#include <math.h>
#include <string.h>

enum { LARGEST, LOGARITHM, LABEL, HIT, GAPS };

static int64_t n_sums_of(const wfi_attr *a) {
    return a->classes.smoothing > 0 ? GAPS + 1 : GAPS;
}

/* ---- of blocks ---- */

static wf_status check_logits(const wf_graph *g, const wfi_node *node, wf_shape *sums_out) {
    wf_shape logits = wfi_in_shape(g, node, 0), labels = wfi_in_shape(g, node, 1), rows = logits;
    const wfi_attr *a = &node->attr;
    int64_t n_classes = a->classes.n_classes, n_blocks = a->classes.n_blocks;
    bool fits = logits.n_dims >= 1 && n_blocks >= 1 && n_blocks <= n_classes &&
                a->classes.begin >= 0 && a->classes.begin < a->classes.end &&
                a->classes.end <= n_blocks;
    rows.n_dims--;
    if (!fits || wfi_last_dim(&logits) != wfi_part_begin(n_classes, a->classes.end, n_blocks) -
                                              wfi_part_begin(n_classes, a->classes.begin, n_blocks))
        return wfi_op_fail(g, node, WF_SHAPE,
                           "%s are not the logits of blocks %lld to %lld of %lld",
                           wfi_show(&logits).text, (long long)a->classes.begin,
                           (long long)a->classes.end, (long long)n_blocks);
    if (!wfi_shape_equal(&rows, &labels))
        return wfi_op_fail(g, node, WF_SHAPE, "logits %s take labels %s, not %s",
                           wfi_show(&logits).text, wfi_show(&rows).text, wfi_show(&labels).text);
    *sums_out = WF_SHAPE(n_blocks, wfi_n_rows(&logits), n_sums_of(a));
    return WF_OK;
}

static wf_status class_sums_check(wf_graph *g, wfi_node *node) {
    wf_shape sums;
    WF_TRY(wfi_check_inputs(g, node, "fi"));
    WF_TRY(check_logits(g, node, &sums));
    return wfi_node_output(g, node, WF_F32, &sums);
}

static wf_status class_sums_backward_check(wf_graph *g, wfi_node *node) {
    wf_shape sums, logits;
    WF_TRY(wfi_check_inputs(g, node, "fif"));
    WF_TRY(check_logits(g, node, &sums));
    logits = wfi_in_shape(g, node, 2);
    if (!wfi_shape_equal(&sums, &logits))
        return wfi_op_fail(g, node, WF_SHAPE, "dsums are %s, but the sums %s",
                           wfi_show(&logits).text, wfi_show(&sums).text);
    logits = wfi_in_shape(g, node, 0);
    return wfi_node_output(g, node, WF_F32, &logits);
}

/* A block of the logits, and its numbers. */
typedef struct block {
    int64_t first, n; /* classes */
    int64_t column;   /* of the logits */
    int64_t number;
} block;

static block block_of(const wfi_attr *a, int64_t number) {
    int64_t n_classes = a->classes.n_classes, n_blocks = a->classes.n_blocks;
    int64_t first = wfi_part_begin(n_classes, number, n_blocks);
    return (block){first, wfi_part_begin(n_classes, number + 1, n_blocks) - first,
                   first - wfi_part_begin(n_classes, a->classes.begin, n_blocks), number};
}

static int64_t find_largest(const float *x, int64_t n) {
    int64_t largest = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[largest]) largest = i;
    return largest;
}

static double sum_exponentials(const float *x, int64_t n, double largest) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - largest);
    return sum;
}

static double sum_gaps(const float *x, int64_t n, double largest) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += largest - x[i];
    return sum;
}

static void class_sums_reference(const wfi_call *call) {
    const wfi_attr *a = call->attr;
    const int32_t *label = call->in[1].data;
    float *sums = call->out[0].data;
    int64_t n = wfi_last_dim(&call->in[0].shape), n_rows = wfi_n_rows(&call->in[0].shape);
    int64_t n_sums = n_sums_of(a);
    memset(sums, 0, (size_t)(a->classes.n_blocks * n_rows * n_sums) * sizeof *sums);
    for (int64_t k = a->classes.begin; k < a->classes.end; k++) {
        block b = block_of(a, k);
        for (int64_t r = 0; r < n_rows; r++) {
            const float *x = (const float *)call->in[0].data + r * n + b.column;
            float *sum = sums + (k * n_rows + r) * n_sums;
            int64_t largest = find_largest(x, b.n), own = label[r] - b.first;
            sum[LARGEST] = x[largest];
            sum[LOGARITHM] = (float)log(sum_exponentials(x, b.n, x[largest]));
            if (n_sums > GAPS) sum[GAPS] = (float)sum_gaps(x, b.n, x[largest]);
            if (own < 0 || own >= b.n) continue;
            sum[LABEL] = x[own] - x[largest];
            sum[HIT] = own == largest ? 2 : 1;
        }
    }
}

static void class_sums_backward_reference(const wfi_call *call) {
    const wfi_attr *a = call->attr;
    const int32_t *label = call->in[1].data;
    const float *dsums = call->in[2].data;
    int64_t n = wfi_last_dim(&call->in[0].shape), n_rows = wfi_n_rows(&call->in[0].shape);
    int64_t n_sums = n_sums_of(a);
    for (int64_t k = a->classes.begin; k < a->classes.end; k++) {
        block b = block_of(a, k);
        for (int64_t r = 0; r < n_rows; r++) {
            const float *x = (const float *)call->in[0].data + r * n + b.column;
            const float *dsum = dsums + (k * n_rows + r) * n_sums;
            float *dx = (float *)call->out[0].data + r * n + b.column;
            double largest = x[find_largest(x, b.n)], sum = sum_exponentials(x, b.n, largest);
            for (int64_t i = 0; i < b.n; i++)
                dx[i] = (float)(dsum[LOGARITHM] * (exp(x[i] - largest) / sum) -
                                (n_sums > GAPS ? dsum[GAPS] : 0.0) +
                                (i == label[r] - b.first ? dsum[LABEL] : 0.0));
        }
    }
}

/* ---- of all blocks ---- */

static wf_status check_sums(const wf_graph *g, const wfi_node *node, wf_shape *rows_out) {
    wf_shape sums = wfi_in_shape(g, node, 0), labels = wfi_in_shape(g, node, 1);
    const wfi_attr *a = &node->attr;
    if (sums.n_dims != 3 || sums.dim[0] != a->classes.n_blocks || sums.dim[2] != n_sums_of(a) ||
        sums.dim[1] != wf_shape_n_elem(&labels))
        return wfi_op_fail(g, node, WF_SHAPE, "%s are not the sums of labels %s",
                           wfi_show(&sums).text, wfi_show(&labels).text);
    *rows_out = WF_SHAPE(sums.dim[1]);
    return WF_OK;
}

static wf_status of_sums_check(wf_graph *g, wfi_node *node) {
    wf_shape rows;
    WF_TRY(wfi_check_inputs(g, node, "fi"));
    WF_TRY(check_sums(g, node, &rows));
    WF_TRY(wfi_node_output(g, node, WF_F32, &rows));
    return wfi_node_output(g, node, WF_I32, &rows);
}

static wf_status of_sums_backward_check(wf_graph *g, wfi_node *node) {
    wf_shape rows, sums, dloss;
    WF_TRY(wfi_check_inputs(g, node, "fif"));
    WF_TRY(check_sums(g, node, &rows));
    sums = wfi_in_shape(g, node, 0);
    dloss = wfi_in_shape(g, node, 2);
    if (!wfi_shape_equal(&rows, &dloss))
        return wfi_op_fail(g, node, WF_SHAPE, "dloss is %s, but the loss %s", wfi_show(&dloss).text,
                           wfi_show(&rows).text);
    return wfi_node_output(g, node, WF_F32, &sums);
}

/* A row of the sums of all blocks. */
typedef struct row {
    const float *sums;
    int64_t n_blocks, stride;
} row;

static row row_of(const wfi_call *call, int64_t r) {
    const int64_t *dim = call->in[0].shape.dim;
    return (row){(const float *)call->in[0].data + r * dim[2], dim[0], dim[1] * dim[2]};
}

static float number_of(row x, int64_t k, int which) {
    return x.sums[k * x.stride + which];
}

static float largest_of(row x) {
    float largest = number_of(x, 0, LARGEST);
    for (int64_t k = 1; k < x.n_blocks; k++)
        if (number_of(x, k, LARGEST) > largest) largest = number_of(x, k, LARGEST);
    return largest;
}

/* Of exp(logit - largest) over the block's classes. */
static double sum_of(row x, int64_t k, double largest) {
    return exp(number_of(x, k, LARGEST) - largest + number_of(x, k, LOGARITHM));
}

static double sum_blocks(row x, double largest) {
    double sum = 0;
    for (int64_t k = 0; k < x.n_blocks; k++) sum += sum_of(x, k, largest);
    return sum;
}

/* Which block has the label; -1: none. */
static int64_t find_label(row x) {
    for (int64_t k = 0; k < x.n_blocks; k++)
        if (number_of(x, k, HIT) > 0) return k;
    return -1;
}

/* Whether the label is the first of the largest. */
static bool is_hit(row x, int64_t own) {
    bool is = own >= 0 && number_of(x, own, HIT) > 1;
    for (int64_t k = 0; k < x.n_blocks && is; k++)
        is = k < own ? number_of(x, k, LARGEST) < number_of(x, own, LARGEST)
                     : !(number_of(x, k, LARGEST) > number_of(x, own, LARGEST));
    return is;
}

/* largest - logit on average over all classes. */
static double mean_gap(row x, const wfi_attr *a, double largest) {
    double sum = 0;
    for (int64_t k = 0; k < x.n_blocks; k++)
        sum +=
            number_of(x, k, GAPS) + (double)block_of(a, k).n * (largest - number_of(x, k, LARGEST));
    return sum / (double)a->classes.n_classes;
}

/* The loader refuses labels that are too large; one that comes here all the same makes the loss
 * NaN. */
static void of_sums_reference(const wfi_call *call) {
    const int32_t *label = call->in[1].data;
    float *loss = call->out[0].data;
    int32_t *hit = call->out[1].data;
    for (int64_t r = 0; r < call->in[0].shape.dim[1]; r++) {
        row x = row_of(call, r);
        int64_t own = find_label(x);
        hit[r] = is_hit(x, own);
        if (label[r] < 0) {
            loss[r] = 0;
        } else if (own < 0) {
            loss[r] = NAN;
        } else {
            double largest = largest_of(x), s = call->attr->classes.smoothing;
            double gap = largest - number_of(x, own, LARGEST) - number_of(x, own, LABEL);
            if (s > 0) gap += s * (mean_gap(x, call->attr, largest) - gap);
            loss[r] = (float)(log(sum_blocks(x, largest)) + gap);
        }
    }
}

static void of_sums_backward_reference(const wfi_call *call) {
    const int32_t *label = call->in[1].data;
    const float *dloss = call->in[2].data;
    float *dsums = call->out[0].data;
    int64_t n_sums = call->in[0].shape.dim[2];
    double s = call->attr->classes.smoothing, n_classes = (double)call->attr->classes.n_classes;
    for (int64_t r = 0; r < call->in[0].shape.dim[1]; r++) {
        row x = row_of(call, r);
        double largest = largest_of(x), sum = sum_blocks(x, largest);
        int64_t own = find_label(x);
        float factor = label[r] < 0 ? 0 : own < 0 ? NAN : dloss[r];
        for (int64_t k = 0; k < x.n_blocks; k++) {
            float *dsum = dsums + k * x.stride + r * n_sums;
            memset(dsum, 0, (size_t)n_sums * sizeof *dsum);
            dsum[LOGARITHM] = (float)(factor * (sum_of(x, k, largest) / sum));
            if (k == own) dsum[LABEL] = (float)(-factor * (1 - s));
            if (s > 0) dsum[GAPS] = (float)(factor * s / n_classes);
        }
    }
}

/* ---- descriptors ---- */

#define SAMPLE(n, n_blocks, smoothing)                                                             \
    {                                                                                              \
        .n_in = 2, .in = {WFI_DIMS(6, n), WFI_DIMS(6)}, .ids = 1 << 1, .id_limit = n, .attr = {    \
            .classes = {n, n_blocks, 0, n_blocks, smoothing}                                       \
        }                                                                                          \
    }

static const wfi_op_sample class_sums_samples[] = {SAMPLE(29, 12, 0), SAMPLE(12, 12, 0.1), {0}};

/* Of as many blocks as there are parts, or of a multiple. */
static bool divide_blocks(wfi_attr *attr, const wfi_op_part *part) {
    attr->classes.begin = wfi_part_begin(attr->classes.n_blocks, part->number, part->n);
    attr->classes.end = wfi_part_begin(attr->classes.n_blocks, part->number + 1, part->n);
    return true;
}

static const wfi_op_cut class_sums_place[] = {
    {.name = "classes", .in = {-1}, .out = {WFI_SUMMED}, .divide = divide_blocks}, {0}};

const wfi_op wfi_op_class_sums = {
    .name = "class_sums",
    .roles = {.wide_out = 1 << 0},
    .tolerance = 5e-6f,
    .check = class_sums_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_class_sums_backward, .in = {WFI_X, WFI_X + 1, WFI_DY}}, {0}},
    .work = {10, WFI_X},
    .reference = class_sums_reference,
    .samples = class_sums_samples,
    .place = class_sums_place,
};

const wfi_op wfi_op_class_sums_backward = {
    .name = "class_sums_backward",
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = class_sums_backward_check,
    .work = {10, WFI_X},
    .reference = class_sums_backward_reference,
};

static const wfi_op_sample of_sums_samples[] = {{.n_in = 2,
                                                 .in = {WFI_DIMS(3, 6, GAPS), WFI_DIMS(6)},
                                                 .ids = 1 << 1,
                                                 .id_limit = 5,
                                                 .attr = {.classes = {5, 3, 0, 3, 0}}},
                                                {0}};

const wfi_op wfi_op_cross_entropy_of_sums = {
    .name = "cross_entropy_of_sums",
    .roles = {.label_in = 1 << 1, .hit_out = 1 << 1},
    .tolerance = 5e-6f,
    .check = of_sums_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_cross_entropy_of_sums_backward, .in = {WFI_X, WFI_X + 1, WFI_DY}}, {0}},
    .work = {10, WFI_X},
    .reference = of_sums_reference,
    .samples = of_sums_samples,
};

const wfi_op wfi_op_cross_entropy_of_sums_backward = {
    .name = "cross_entropy_of_sums_backward",
    .roles = {.wide_out = 1 << 0},
    .tolerance = 5e-6f,
    .check = of_sums_backward_check,
    .work = {10, WFI_X},
    .reference = of_sums_backward_reference,
};
