/* Cross entropy over many classes (50257 for GPT-2): the exponentials are the
 * library's softmax, a few rows at a time so that they are still in the cache when
 * the loss is read off them. */
#include "base/variants.h"
#include "comm/runtime/typed.h"
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

#include <math.h>
#include <string.h>

#define CACHE_BYTES (256 << 10) /* for one thread's rows; a fraction of the second level */

/* The library's exponential is a polynomial in single precision whose error has one
 * sign: 2e-7 of the loss. With fewer classes than this the plain C kernel's doubles
 * cost nothing that could be measured. */
#define N_CLASSES_WORTH_IT 8192

typedef struct table {
    int64_t n_rows, n; /* n classes */
    int64_t n_at_once; /* divides n_rows */
} table;

static table table_of(const wfi_kernel *kernel) {
    wfi_md rows = wfi_operand_rows(kernel, 0);
    table t = {rows.dim[0], rows.dim[1], 0};
    int64_t most = wfi_onednn_of(kernel)->n_threads * CACHE_BYTES / (int64_t)sizeof(float) / t.n;
    t.n_at_once = wfi_min_i64(wfi_max_i64(most, 1), t.n_rows);
    while (t.n_rows % t.n_at_once) t.n_at_once--;
    return t;
}

typedef struct comparison {
    const float *x; /* [n] */
    int64_t n, label;
    bool *is_hit;
} comparison;

WFI_LOOP void compare_loop(const comparison *c) {
    const float *x = c->x, bound = x[c->label];
    int is_beaten = 0;
    for (int64_t i = 0; i < c->label; i++) is_beaten |= !(x[i] < bound);
    for (int64_t i = c->label + 1, n = c->n; i < n; i++) is_beaten |= x[i] > bound;
    *c->is_hit = !is_beaten;
}

WFI_VARIANTS(compare, comparison, compare_loop)

static size_t rows_bytes(const table *t) {
    return wfi_round_up((size_t)(t->n_at_once * t->n) * sizeof(float), WFI_ALIGN_BYTES);
}

/* Rows from `first` on of the logits, as F32: BF16 is widened into `room`. */
static float *rows_at(const wfi_kernel *kernel, void *logits, const table *t, int64_t first,
                      float *room) {
    if (!wfi_is_narrow(kernel, 0)) return (float *)logits + first * t->n;
    wfi_combine(wfi_best_variant(), &(wfi_arithmetic){.dtype = WF_BF16},
                (uint16_t *)logits + first * t->n, NULL, t->n_at_once * t->n, room);
    return room;
}

/* Their gradient comes where the library puts it: into its place, or, before it is rounded, `room`.
 */
static float *gradient_at(const wfi_kernel *kernel, void *dlogits, const table *t, int64_t first,
                          float *room) {
    return wfi_is_narrow(kernel, 0) ? room : (float *)dlogits + first * t->n;
}

static void finish_rows(const wfi_kernel *kernel, void *dlogits, const table *t, int64_t first,
                        const float *room) {
    if (wfi_is_narrow(kernel, 0))
        wfi_combine(wfi_best_variant(), &(wfi_arithmetic){.dtype = WF_F32}, room, NULL,
                    t->n_at_once * t->n, (uint16_t *)dlogits + first * t->n);
}

/* Whether the label is the first of the largest. */
static bool is_hit(const float *x, int64_t n, int32_t label) {
    bool hit = label >= 0 && label < n;
    if (hit) compare(wfi_best_variant(), &(comparison){x, n, label, &hit});
    return hit;
}

typedef struct scaling {
    float *x; /* [n] */
    int64_t n;
    float factor;
} scaling;

WFI_LOOP void scale_loop(const scaling *s) {
    float *x = s->x, factor = s->factor;
    for (int64_t i = 0, n = s->n; i < n; i++) x[i] *= factor;
}

WFI_VARIANTS(scale, scaling, scale_loop)

static void scale_row(float *x, int64_t n, float factor) {
    scale(wfi_best_variant(), &(scaling){x, n, factor});
}

static wf_status run_forward(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                             void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    table t = table_of(kernel);
    const float *log_p = scratch;
    float *room = (float *)scratch + rows_bytes(&t) / sizeof(float);
    const int32_t *label = operands[1];
    float *loss = operands[2];
    int32_t *hit = operands[3];
    for (int64_t first = 0; first < t.n_rows; first += t.n_at_once) {
        float *x = rows_at(kernel, operands[0], &t, first, room);
        WF_TRY(wfi_run_primitive(kernel, 0, (void *[]){x}, scratch));
        for (int64_t i = 0; i < t.n_at_once; i++) {
            int64_t r = first + i;
            hit[r] = is_hit(x + i * t.n, t.n, label[r]);
            if (label[r] < 0)
                loss[r] = 0;
            else
                loss[r] = label[r] < t.n ? -log_p[i * t.n + label[r]] : NAN;
        }
    }
    return WF_OK;
}

/* logits, labels -> loss, hits */
static wf_status describe_forward(wfi_kernel *kernel, const char **reason_out) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    table t = table_of(kernel);
    wfi_md data = wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){t.n_at_once, t.n});
    bool is_narrow = wfi_is_narrow(kernel, 0);
    state->own_scratch_bytes = rows_bytes(&t) * (is_narrow ? 2 : 1);
    state->run = run_forward;
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_softmax(&state->lib, dnnl_forward_training, true, &data, NULL, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_SRC, is_narrow ? WFI_SCRATCH : 0,
                       is_narrow ? rows_bytes(&t) : 0));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_DST, WFI_SCRATCH, 0));
    wfi_use_whole_values(kernel);
    return WF_OK;
}

/* dx holds the softmax of one row. */
static void finish_gradient(float *dx, int64_t n, int32_t label, float dloss) {
    float factor = label < 0 ? 0 : label < n ? dloss : NAN;
    if (label >= 0 && label < n) dx[label] -= 1;
    scale_row(dx, n, factor);
}

static wf_status run_backward(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                              void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    table t = table_of(kernel);
    const int32_t *label = operands[1];
    const float *dloss = operands[2];
    for (int64_t first = 0; first < t.n_rows; first += t.n_at_once) {
        float *x = rows_at(kernel, operands[0], &t, first, scratch);
        float *dx = gradient_at(kernel, operands[3], &t, first, scratch);
        WF_TRY(wfi_run_primitive(kernel, 0, (void *[]){x, NULL, NULL, dx}, scratch));
        for (int64_t i = 0; i < t.n_at_once; i++)
            finish_gradient(dx + i * t.n, t.n, label[first + i], dloss[first + i]);
        finish_rows(kernel, operands[3], &t, first, scratch);
    }
    return WF_OK;
}

/* logits, labels, dloss -> dlogits = dloss (softmax(logits) - one at the label) */
static wf_status describe_backward(wfi_kernel *kernel, const char **reason_out) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    table t = table_of(kernel);
    wfi_md data = wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){t.n_at_once, t.n});
    bool is_narrow = wfi_is_narrow(kernel, 0);
    state->own_scratch_bytes = is_narrow ? rows_bytes(&t) : 0;
    state->run = run_backward;
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_softmax(&state->lib, dnnl_forward_training, false, &data, NULL, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_SRC, is_narrow ? WFI_SCRATCH : 0, 0));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_DST, is_narrow ? WFI_SCRATCH : 3, 0));
    wfi_use_whole_values(kernel);
    return WF_OK;
}

/* ---- in blocks of classes: one of them ---- */

/* The first of the largest. */
static int64_t find_largest(const float *x, int64_t n) {
    enum { N_AT_ONCE = 16 };
    float most[N_AT_ONCE], largest = x[0];
    int64_t i = 0;
    for (int k = 0; k < N_AT_ONCE; k++) most[k] = x[0];
    for (; i + N_AT_ONCE <= n; i += N_AT_ONCE)
        for (int k = 0; k < N_AT_ONCE; k++) most[k] = x[i + k] > most[k] ? x[i + k] : most[k];
    for (int k = 0; k < N_AT_ONCE; k++) largest = most[k] > largest ? most[k] : largest;
    for (; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    for (i = 0; i < n && x[i] != largest;) i++;
    return i < n ? i : 0;
}

static void put_sums(const float *x, const float *log_p, int64_t n, int64_t own,
                     float sums_out[4]) {
    int64_t largest = find_largest(x, n);
    bool is_here = own >= 0 && own < n;
    sums_out[0] = x[largest];
    sums_out[1] = -log_p[largest];
    sums_out[2] = is_here ? x[own] - x[largest] : 0;
    sums_out[3] = is_here ? own == largest ? 2 : 1 : 0;
}

static wf_status run_sums(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                          void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    table t = table_of(kernel);
    const wfi_attr *a = &kernel->node->attr;
    int64_t number = a->classes.begin, n_blocks = a->classes.n_blocks;
    int64_t first_class = wfi_part_begin(a->classes.n_classes, number, n_blocks);
    const float *log_p = scratch;
    float *room = (float *)scratch + rows_bytes(&t) / sizeof(float);
    const int32_t *label = operands[1];
    float *sums = operands[2];
    memset(sums, 0, (size_t)(n_blocks * t.n_rows * 4) * sizeof *sums);
    sums += number * t.n_rows * 4;
    for (int64_t first = 0; first < t.n_rows; first += t.n_at_once) {
        float *x = rows_at(kernel, operands[0], &t, first, room);
        WF_TRY(wfi_run_primitive(kernel, 0, (void *[]){x}, scratch));
        for (int64_t i = 0; i < t.n_at_once; i++)
            put_sums(x + i * t.n, log_p + i * t.n, t.n, label[first + i] - first_class,
                     sums + (first + i) * 4);
    }
    return WF_OK;
}

static wf_status run_sums_backward(wfi_kernel *kernel, wfi_stream_queue *stream,
                                   void *const operands[], void *scratch,
                                   const wfi_step_args *step) {
    (void)stream, (void)step;
    table t = table_of(kernel);
    const wfi_attr *a = &kernel->node->attr;
    int64_t first_class =
        wfi_part_begin(a->classes.n_classes, a->classes.begin, a->classes.n_blocks);
    const int32_t *label = operands[1];
    const float *dsums = (const float *)operands[2] + a->classes.begin * t.n_rows * 4;
    for (int64_t first = 0; first < t.n_rows; first += t.n_at_once) {
        float *x = rows_at(kernel, operands[0], &t, first, scratch);
        float *dx = gradient_at(kernel, operands[3], &t, first, scratch);
        WF_TRY(wfi_run_primitive(kernel, 0, (void *[]){x, NULL, NULL, dx}, scratch));
        for (int64_t r = first; r < first + t.n_at_once; r++, dx += t.n) {
            int64_t own = label[r] - first_class;
            scale_row(dx, t.n, dsums[r * 4 + 1]);
            if (own >= 0 && own < t.n) dx[own] += dsums[r * 4 + 2];
        }
        finish_rows(kernel, operands[3], &t, first, scratch);
    }
    return WF_OK;
}

wf_status wfi_describe_cross_entropy(wfi_kernel *kernel, const char **reason_out) {
    const wfi_op *op = kernel->node->op;
    const wfi_attr *a = &kernel->node->attr;
    bool is_sums = op == &wfi_op_class_sums || op == &wfi_op_class_sums_backward;
    bool is_forward = op == &wfi_op_cross_entropy || op == &wfi_op_class_sums;
    if ((is_sums ? a->classes.n_classes : table_of(kernel).n) < N_CLASSES_WORTH_IT)
        return wfi_decline(reason_out, "few classes: plain C is as fast, and exact");
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    if (is_sums && (a->classes.end > a->classes.begin + 1 || a->classes.smoothing > 0))
        return wfi_decline(reason_out, "several blocks of classes, or smoothed labels");
    WF_TRY(is_forward ? describe_forward(kernel, reason_out)
                      : describe_backward(kernel, reason_out));
    if (is_sums) wfi_onednn_of(kernel)->run = is_forward ? run_sums : run_sums_backward;
    return WF_OK;
}
