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
#include "op/plain.h"

#include "op/class_sums.cl"

static int64_t n_sums_of(const wfi_attr *a) {
    return a->classes.smoothing > 0 ? GAPS + 1 : GAPS;
}

/* ---- of blocks ---- */

static wf_status class_sums_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fi"));
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
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(n_blocks, wfi_n_rows(&logits), n_sums_of(a)));
}

static wfi_numbers class_sums_numbers(const wfi_call *call) {
    const wf_shape *logits = &call->in[0].shape;
    const wfi_attr *a = call->attr;
    int64_t n_rows = wfi_n_rows(logits), n_blocks = a->classes.end - a->classes.begin;
    return (wfi_numbers){.n_groups = n_blocks * n_rows,
                         .n = {n_rows, wfi_last_dim(logits), a->classes.n_classes,
                               a->classes.n_blocks, a->classes.begin, n_sums_of(a)}};
}

PLAIN_REFERENCE(sum_classes, class_sums, class_sums_numbers)
PLAIN_REFERENCE(class_sums_backward_reference, class_sums_backward, class_sums_numbers)

static void class_sums_reference(const wfi_call *call) {
    plain_clear(call);
    sum_classes(call);
}

/* ---- of all blocks ---- */

static wf_status of_sums_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fi"));
    wf_shape sums = wfi_in_shape(g, node, 0), labels = wfi_in_shape(g, node, 1);
    const wfi_attr *a = &node->attr;
    if (sums.n_dims != 3 || sums.dim[0] != a->classes.n_blocks || sums.dim[2] != n_sums_of(a) ||
        sums.dim[1] != wf_shape_n_elem(&labels))
        return wfi_op_fail(g, node, WF_SHAPE, "%s are not the sums of labels %s",
                           wfi_show(&sums).text, wfi_show(&labels).text);
    WF_TRY(wfi_node_output(g, node, WF_F32, &WF_SHAPE(sums.dim[1])));
    return wfi_node_output(g, node, WF_I32, &WF_SHAPE(sums.dim[1]));
}

static wfi_numbers of_sums_numbers(const wfi_call *call) {
    const int64_t *dim = call->in[0].shape.dim;
    return (wfi_numbers){.n_threads = dim[1],
                         .n = {dim[1], 0, call->attr->classes.n_classes, dim[0], 0, dim[2]},
                         .f = {call->attr->classes.smoothing}};
}

static int64_t n_classes_of(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return node->attr.classes.n_classes;
}

PLAIN_REFERENCE(of_sums_reference, cross_entropy_of_sums, of_sums_numbers)
PLAIN_REFERENCE(of_sums_backward_reference, cross_entropy_of_sums_backward, of_sums_numbers)

/* ---- descriptors ---- */

#define SAMPLE(n, n_blocks, smoothing)                                                             \
    {                                                                                              \
        .n_in = 2, .in = {WFI_DIMS(6, n), WFI_DIMS(6)}, .ids = 1 << 1, .id_limit = n, .attr = {    \
            .classes = {n, n_blocks, 0, n_blocks, smoothing}                                       \
        }                                                                                          \
    }

static const wfi_op_sample class_sums_samples[] = {SAMPLE(29, 12, 0), SAMPLE(12, 12, 0.1), {0}};

/* Divides the blocks of classes; their number is a multiple of the number of parts. */
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
    .numbers = class_sums_numbers,
    .samples = class_sums_samples,
    .place = class_sums_place,
};

const wfi_op wfi_op_class_sums_backward = {
    .name = "class_sums_backward",
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .makes = {WFI_X},
    .work = {10, WFI_X},
    .reference = class_sums_backward_reference,
    .numbers = class_sums_numbers,
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
    .n_ids = n_classes_of,
    .tolerance = 5e-6f,
    .check = of_sums_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_cross_entropy_of_sums_backward, .in = {WFI_X, WFI_X + 1, WFI_DY}}, {0}},
    .work = {10, WFI_X},
    .reference = of_sums_reference,
    .numbers = of_sums_numbers,
    .samples = of_sums_samples,
};

const wfi_op wfi_op_cross_entropy_of_sums_backward = {
    .name = "cross_entropy_of_sums_backward",
    .roles = {.wide_out = 1 << 0},
    .tolerance = 5e-6f,
    .makes = {WFI_X},
    .work = {10, WFI_X},
    .reference = of_sums_backward_reference,
    .numbers = of_sums_numbers,
};
