/* Self attention head by head, and in a head some rows at a time: their scores are made, used and
 * forgotten in memory that a cache holds, so nothing of t squared values is ever stored. Queries,
 * keys and values are read where they lie in qkv, and their gradients written there. Scores in the
 * future of all rows of the block are not computed.
 *
 *   S = q k^T / sqrt(d)    L = log sum exp S    P = exp(S - L)    y = P v
 *   dP = dy v^T    dS = P (dP - sum dy y)
 *   dq = dS k / sqrt(d)    dk = dS^T q / sqrt(d)    dv = P^T dy
 *
 * Shapes: n samples, h heads of queries and g of keys and values of size d, t tokens; c = h d. q
 * and y are [n, h, t, d], k and v [n, g, t, d], in rows of (h + 2 g) d or c elements; L is [n, h,
 * t]. A head, or backward the heads that share one of keys, is one thread's work, so the bits do
 * not depend on how many there are. */
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/threads.h"
#include "kernel/vector/rows.h"
#include "op/op_table.h"

#include <math.h>

typedef struct attention {
    int64_t n, t, c, h, g, d;
    int64_t wide;   /* elements of a token in qkv */
    int64_t n_rows; /* at a time */
    int64_t step;   /* from one row of scores to the next */
    int64_t causal; /* above 1: keys that a query sees at most */
    float factor;
    const float *qkv, *dy;
    float *y, *log_sum, *dqkv; /* backward only reads y and L */
    float *scratch;
    size_t thread_elements;
} attention;

/* Fewer rows skip more of the future, more make better products. Their scores are half a MiB at
 * most, unless rows are very long: 32 are worth a product. */
#define TILE_ELEMENTS (1 << 17)
#define LEAST_ROWS    32
static int64_t rows_at_once(int64_t t, int64_t step) {
    int64_t n = wfi_min_i64(wfi_max_i64(t / 8, 64), 128);
    return wfi_min_i64(wfi_min_i64(n, wfi_max_i64(TILE_ELEMENTS / step, LEAST_ROWS)), t);
}

static attention attention_of(const wfi_kernel *kernel, int qkv, int n_tiles) {
    const int64_t *dim = wfi_operand_value(kernel, qkv)->shape.dim;
    attention a = {.n = dim[0], .t = dim[1], .wide = dim[2]};
    a.h = kernel->node->attr.attention.n_heads;
    a.g = kernel->node->attr.attention.n_keys;
    a.d = a.wide / (a.h + 2 * a.g);
    a.c = a.h * a.d;
    a.causal = kernel->node->attr.attention.causal;
    a.factor = (float)(1 / sqrt((double)a.d));
    a.step = (int64_t)wfi_round_up((size_t)a.t, WFI_ROW_LANES);
    a.n_rows = rows_at_once(a.t, a.step);
    a.thread_elements = (size_t)(n_tiles * a.n_rows * a.step + a.n_rows);
    return a;
}

/* z [m, n] = factor x y + old z, row-major; x is [m, k], or, turned, [k, m]. */
typedef struct matrix {
    const float *data;
    int64_t step;
    char turned; /* 'N', 'T' */
} matrix;

static wf_status multiply(int64_t m, int64_t n, int64_t k, float factor, matrix x, matrix y,
                          float old, float *z, int64_t z_step) {
    dnnl_status_t status = dnnl_sgemm(x.turned, y.turned, m, n, k, factor, x.data, x.step, y.data,
                                      y.step, old, z, z_step);
    return status == dnnl_success ? WF_OK : WF_DEVICE;
}

/* The rows of scores from `first`: rows of queries by the keys that the last of them sees. */
static wfi_rows rows_from(const attention *a, int64_t first, float *s) {
    int64_t n = wfi_min_i64(a->n_rows, a->t - first);
    return (wfi_rows){.n = n,
                      .step = a->step,
                      .n_columns = a->causal ? first + n : a->t,
                      .n_seen = a->causal ? first + 1 : a->t,
                      .more = a->causal != 0,
                      .window = a->causal > 1 ? a->causal : a->t,
                      .s = s,
                      .d = a->d,
                      .y_step = a->c};
}

/* Where in a row of qkv the head's keys are. */
static int64_t keys_of(const attention *a, int64_t head) {
    return a->c + head / (a->h / a->g) * a->d;
}

static wf_status forward_head(const void *argument, int64_t head, int thread) {
    const attention *a = argument;
    int64_t sample = head / a->h, column = head % a->h * a->d, wide = a->wide;
    const float *qkv = a->qkv + sample * a->t * wide, *q = qkv + column;
    const float *k = qkv + keys_of(a, head % a->h), *v = k + a->g * a->d;
    float *y = a->y + sample * a->t * a->c + column, *log_sum = a->log_sum + head * a->t;
    float *s = a->scratch + (size_t)thread * a->thread_elements;
    for (int64_t first = 0; first < a->t; first += a->n_rows) {
        wfi_rows rows = rows_from(a, first, s);
        rows.log_sum = log_sum + first;
        rows.y = y + first * a->c;
        WF_TRY(multiply(rows.n, rows.n_columns, a->d, a->factor,
                        (matrix){q + first * wide, wide, 'N'}, (matrix){k, wide, 'T'}, 0, s,
                        a->step));
        wfi_rows_attend(wfi_best_variant(), &rows);
        WF_TRY(multiply(rows.n, a->d, rows.n_columns, 1, (matrix){s, a->step, 'N'},
                        (matrix){v, wide, 'N'}, 0, rows.y, a->c));
        wfi_rows_divide(wfi_best_variant(), &rows);
    }
    return WF_OK;
}

/* From the last rows to the first: with causal attention the last rows see all keys. In the first
 * head of its keys they initialize dk and dv; the other rows and heads are added. */
static wf_status backward_head(const attention *a, int64_t sample, int64_t head, float *s) {
    int64_t column = head * a->d, keys = keys_of(a, head), wide = a->wide;
    const float *qkv = a->qkv + sample * a->t * wide, *q = qkv + column;
    const float *k = qkv + keys, *v = k + a->g * a->d;
    float *dqkv = a->dqkv + sample * a->t * wide, *dq = dqkv + column;
    float *dk = dqkv + keys, *dv = dk + a->g * a->d, *ds = s + a->n_rows * a->step;
    for (int64_t first = (a->t - 1) / a->n_rows * a->n_rows, old = head % (a->h / a->g) > 0;
         first >= 0; first -= a->n_rows, old = 1) {
        wfi_rows rows = rows_from(a, first, s);
        const float *dy = a->dy + (sample * a->t + first) * a->c + column;
        matrix dy_rows = {dy, a->c, 'N'}, q_rows = {q + first * wide, wide, 'N'};
        rows.log_sum = a->log_sum + (sample * a->h + head) * a->t + first;
        rows.y = a->y + (sample * a->t + first) * a->c + column;
        rows.dy = dy;
        rows.ds = ds;
        WF_TRY(multiply(rows.n, rows.n_columns, a->d, a->factor, q_rows, (matrix){k, wide, 'T'}, 0,
                        s, a->step));
        WF_TRY(multiply(rows.n, rows.n_columns, a->d, 1, dy_rows, (matrix){v, wide, 'T'}, 0, ds,
                        a->step));
        wfi_rows_attend_backward(wfi_best_variant(), &rows);
        matrix ds_turned = {ds, a->step, 'T'}, p_turned = {s, a->step, 'T'};
        WF_TRY(multiply(rows.n, a->d, rows.n_columns, a->factor, (matrix){ds, a->step, 'N'},
                        (matrix){k, wide, 'N'}, 0, dq + first * wide, wide));
        WF_TRY(multiply(rows.n_columns, a->d, rows.n, a->factor, ds_turned, q_rows, (float)old, dk,
                        wide));
        WF_TRY(multiply(rows.n_columns, a->d, rows.n, 1, p_turned, dy_rows, (float)old, dv, wide));
    }
    return WF_OK;
}

/* `key`: a head of keys of a sample. */
static wf_status backward_heads(const void *argument, int64_t key, int thread) {
    const attention *a = argument;
    int64_t n_shared = a->h / a->g, first = key % a->g * n_shared;
    float *s = a->scratch + (size_t)thread * a->thread_elements;
    for (int64_t k = 0; k < n_shared; k++) WF_TRY(backward_head(a, key / a->g, first + k, s));
    return WF_OK;
}

static wf_status run_heads(wfi_kernel *kernel, attention *a, int64_t n, wfi_each_function each,
                           void *scratch) {
    a->scratch = scratch;
    if (wfi_library_each(kernel->options.n_threads, n, each, a) == WF_OK) return WF_OK;
    return wfi_fail(kernel->ctx, WF_DEVICE, "oneDNN could not run %s", kernel->label);
}

static wf_status run_forward(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                             void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    attention a = attention_of(kernel, 0, 1);
    a.qkv = operands[0];
    a.y = operands[1];
    a.log_sum = operands[2];
    return run_heads(kernel, &a, a.n * a.h, forward_head, scratch);
}

static wf_status run_backward(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                              void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    attention a = attention_of(kernel, 1, 2);
    a.dy = operands[0];
    a.qkv = operands[1];
    a.y = operands[2];
    a.log_sum = operands[3];
    a.dqkv = operands[4];
    return run_heads(kernel, &a, a.n * a.g, backward_heads, scratch);
}

/* qkv -> y, L; dy, qkv, y, L -> dqkv */
wf_status wfi_describe_attention(wfi_kernel *kernel, const char **reason_out) {
    (void)reason_out;
    bool is_forward = kernel->node->op == &wfi_op_self_attention;
    wfi_onednn *state = wfi_onednn_of(kernel);
    attention a = attention_of(kernel, !is_forward, is_forward ? 1 : 2);
    state->run = is_forward ? run_forward : run_backward;
    state->own_scratch_bytes =
        (size_t)kernel->options.n_threads * a.thread_elements * sizeof(float);
    kernel->scratch_bytes = state->own_scratch_bytes;
    kernel->detail = "gemm";
    wfi_use_whole_values(kernel);
    return WF_OK;
}
