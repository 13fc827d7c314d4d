/* Cross entropy over many classes (50257 for GPT-2): a row of logits after the other, while the
 * first caches hold it. A row is one thread's work, so the bits do not depend on how many there
 * are. */
#include "base/variants.h"
#include "comm/runtime/typed.h"
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/threads.h"
#include "kernel/vector/rows.h"
#include "op/op_table.h"

#include <math.h>
#include <string.h>

/* With fewer classes than this the plain C kernel's doubles cost nothing that could be measured. */
#define N_CLASSES_WORTH_IT 8192

typedef struct table {
    const wfi_kernel *kernel;
    void *const *operands;
    int64_t n_rows, n; /* n classes */
    int64_t first;     /* of a block of classes: the first of all */
    bool is_narrow;
    float *room; /* for a row of each thread, if it is narrow */
} table;

static table table_of(const wfi_kernel *kernel, void *const *operands, void *scratch) {
    wfi_md rows = wfi_operand_rows(kernel, 0);
    table t = {kernel, operands, rows.dim[0], rows.dim[1], 0, wfi_is_narrow(kernel, 0), scratch};
    const wfi_attr *a = &kernel->node->attr;
    const wfi_op *op = kernel->node->op;
    if (op == &wfi_op_class_sums || op == &wfi_op_class_sums_backward)
        t.first = wfi_part_begin(a->classes.n_classes, a->classes.begin, a->classes.n_blocks);
    return t;
}

/* A row of logits as F32: BF16 is widened. */
static float *row_at(const table *t, void *logits, int64_t r, int thread) {
    if (!t->is_narrow) return (float *)logits + r * t->n;
    float *room = t->room + thread * t->n;
    wfi_combine(wfi_best_variant(), &(wfi_arithmetic){.dtype = WF_BF16},
                (uint16_t *)logits + r * t->n, NULL, t->n, room);
    return room;
}

/* A copy of the row, which becomes its gradient: in the output, or in scratch memory before it is
 * rounded.
 */
static float *gradient_at(const table *t, int64_t r, int thread) {
    float *row = row_at(t, t->operands[0], r, thread), *own = row;
    if (!t->is_narrow) own = (float *)t->operands[3] + r * t->n;
    if (own != row) memcpy(own, row, (size_t)t->n * sizeof *own);
    return own;
}

static void finish_gradient(const table *t, int64_t r, const float *row) {
    if (t->is_narrow)
        wfi_combine(wfi_best_variant(), &(wfi_arithmetic){.dtype = WF_F32}, row, NULL, t->n,
                    (uint16_t *)t->operands[3] + r * t->n);
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

/* Whether the label is the first of the largest. */
static bool is_hit(const wfi_class_row *row, int64_t label) {
    bool hit = label >= 0 && label < row->n && !(row->x[label] < row->max);
    if (hit) compare(wfi_best_variant(), &(comparison){row->x, row->n, label, &hit});
    return hit;
}

/* logits, labels -> loss, hits */
static wf_status forward_row(const void *argument, int64_t r, int thread) {
    const table *t = argument;
    int64_t label = ((const int32_t *)t->operands[1])[r];
    wfi_class_row row = {.x = row_at(t, t->operands[0], r, thread), .n = t->n};
    wfi_class_row_sum(wfi_best_variant(), &row);
    double loss = label < 0 ? 0 : (double)NAN;
    if (label >= 0 && label < t->n) loss = log(row.sum) - ((double)row.x[label] - row.max);
    ((float *)t->operands[2])[r] = (float)loss;
    ((int32_t *)t->operands[3])[r] = is_hit(&row, label);
    return WF_OK;
}

/* logits, labels, dloss -> dlogits = dloss (softmax(logits) - one at the label) */
static wf_status backward_row(const void *argument, int64_t r, int thread) {
    const table *t = argument;
    int64_t label = ((const int32_t *)t->operands[1])[r];
    wfi_class_row row = {.x = gradient_at(t, r, thread), .n = t->n};
    row.factor = label < 0 ? 0 : label < t->n ? ((const float *)t->operands[2])[r] : NAN;
    wfi_class_row_softmax(wfi_best_variant(), &row);
    if (label >= 0 && label < t->n) row.x[label] -= row.factor;
    finish_gradient(t, r, row.x);
    return WF_OK;
}

/* ---- in blocks of classes: one of them ---- */

static wf_status sums_row(const void *argument, int64_t r, int thread) {
    const table *t = argument;
    int64_t own = ((const int32_t *)t->operands[1])[r] - t->first;
    int64_t number = t->kernel->node->attr.classes.begin;
    float *sums = (float *)t->operands[2] + (number * t->n_rows + r) * 4;
    wfi_class_row row = {.x = row_at(t, t->operands[0], r, thread), .n = t->n};
    wfi_class_row_sum(wfi_best_variant(), &row);
    bool is_here = own >= 0 && own < t->n;
    sums[0] = row.max;
    sums[1] = (float)log(row.sum);
    sums[2] = is_here ? row.x[own] - row.max : 0;
    sums[3] = is_here ? is_hit(&row, own) ? 2 : 1 : 0;
    return WF_OK;
}

static wf_status sums_backward_row(const void *argument, int64_t r, int thread) {
    const table *t = argument;
    int64_t own = ((const int32_t *)t->operands[1])[r] - t->first;
    int64_t number = t->kernel->node->attr.classes.begin;
    const float *dsums = (const float *)t->operands[2] + (number * t->n_rows + r) * 4;
    wfi_class_row row = {.x = gradient_at(t, r, thread), .n = t->n, .factor = dsums[1]};
    wfi_class_row_softmax(wfi_best_variant(), &row);
    if (own >= 0 && own < t->n) row.x[own] += dsums[2];
    finish_gradient(t, r, row.x);
    return WF_OK;
}

static wf_status run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                     void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    table t = table_of(kernel, operands, scratch);
    const wfi_op *op = kernel->node->op;
    if (op == &wfi_op_class_sums)
        memset(operands[2], 0,
               (size_t)(kernel->node->attr.classes.n_blocks * t.n_rows * 4) * sizeof(float));
    wfi_each_function each = op == &wfi_op_cross_entropy            ? forward_row
                             : op == &wfi_op_cross_entropy_backward ? backward_row
                             : op == &wfi_op_class_sums             ? sums_row
                                                                    : sums_backward_row;
    return wfi_library_each(kernel->options.n_threads, t.n_rows, each, &t);
}

wf_status wfi_describe_cross_entropy(wfi_kernel *kernel, const char **reason_out) {
    const wfi_op *op = kernel->node->op;
    const wfi_attr *a = &kernel->node->attr;
    wfi_onednn *state = wfi_onednn_of(kernel);
    bool is_sums = op == &wfi_op_class_sums || op == &wfi_op_class_sums_backward;
    table t = table_of(kernel, NULL, NULL);
    if ((is_sums ? a->classes.n_classes : t.n) < N_CLASSES_WORTH_IT)
        return wfi_decline(reason_out, "few classes: plain C is as fast, and exact");
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    if (is_sums && (a->classes.end > a->classes.begin + 1 || a->classes.smoothing > 0))
        return wfi_decline(reason_out, "several blocks of classes, or smoothed labels");
    state->run = run;
    if (t.is_narrow)
        state->own_scratch_bytes = (size_t)(kernel->options.n_threads * t.n) * sizeof(float);
    kernel->scratch_bytes = state->own_scratch_bytes;
    kernel->detail = "rows";
    wfi_use_whole_values(kernel);
    return WF_OK;
}
