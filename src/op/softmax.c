/* Softmax and its logarithm over the last dim; x [rows.., n].
 *
 * softmax(x) -> y, softmax_backward(dy, y) -> dx
 * log_softmax(x) -> y, log_softmax_backward(dy, y) -> dx */
#include "op/check.h"

#include <math.h>

typedef struct row_sum {
    double max, sum; /* sum of exp(x - max) */
} row_sum;

static row_sum row_sum_of(const float *x, int64_t n) {
    row_sum row = {x[0], 0};
    for (int64_t i = 1; i < n; i++)
        if (x[i] > row.max) row.max = x[i];
    for (int64_t i = 0; i < n; i++) row.sum += exp(x[i] - row.max);
    return row;
}

static void softmax_reference(const wfi_call *call) {
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    int64_t n = wfi_last_dim(&call->in[0].shape), n_rows = wfi_n_rows(&call->in[0].shape);
    for (int64_t r = 0; r < n_rows; r++, x += n, y += n) {
        row_sum row = row_sum_of(x, n);
        for (int64_t i = 0; i < n; i++) y[i] = (float)(exp(x[i] - row.max) / row.sum);
    }
}

/* dx = y (dy - sum(dy y)) */
static void softmax_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data, *y = call->in[1].data;
    float *dx = call->out[0].data;
    int64_t n = wfi_last_dim(&call->in[0].shape), n_rows = wfi_n_rows(&call->in[0].shape);
    for (int64_t r = 0; r < n_rows; r++, dy += n, y += n, dx += n) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)dy[i] * y[i];
        for (int64_t i = 0; i < n; i++) dx[i] = (float)(y[i] * (dy[i] - sum));
    }
}

static void log_softmax_reference(const wfi_call *call) {
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    int64_t n = wfi_last_dim(&call->in[0].shape), n_rows = wfi_n_rows(&call->in[0].shape);
    for (int64_t r = 0; r < n_rows; r++, x += n, y += n) {
        row_sum row = row_sum_of(x, n);
        double logarithm = log(row.sum);
        for (int64_t i = 0; i < n; i++) y[i] = (float)(x[i] - row.max - logarithm);
    }
}

/* dx = dy - exp(y) sum(dy) */
static void log_softmax_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data, *y = call->in[1].data;
    float *dx = call->out[0].data;
    int64_t n = wfi_last_dim(&call->in[0].shape), n_rows = wfi_n_rows(&call->in[0].shape);
    for (int64_t r = 0; r < n_rows; r++, dy += n, y += n, dx += n) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += dy[i];
        for (int64_t i = 0; i < n; i++) dx[i] = (float)(dy[i] - exp(y[i]) * sum);
    }
}

static const wfi_op_sample softmax_samples[] = {{.n_in = 1, .in = {WFI_DIMS(4, 3, 7)}}, {0}};

const wfi_op wfi_op_softmax = {
    .name = "softmax",
    .flags = WFI_OP_CHEAP | WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_rowwise,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_softmax_backward, .in = {WFI_DY, WFI_Y}}, {0}},
    .work = {10, WFI_Y}, /* maximum, exponential, sum, division */
    .reference = softmax_reference,
    .samples = softmax_samples,
    .place = wfi_place_rows,
};

const wfi_op wfi_op_softmax_backward = {
    .name = "softmax_backward",
    .flags = WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_rowwise,
    .work = {4, WFI_Y},
    .reference = softmax_backward_reference,
};

static const wfi_op_sample log_softmax_samples[] = {{.n_in = 1, .in = {WFI_DIMS(4, 3, 7)}}, {0}};

const wfi_op wfi_op_log_softmax = {
    .name = "log_softmax",
    .flags = WFI_OP_CHEAP | WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_rowwise,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_log_softmax_backward, .in = {WFI_DY, WFI_Y}}, {0}},
    .work = {10, WFI_Y},
    .reference = log_softmax_reference,
    .samples = log_softmax_samples,
    .place = wfi_place_rows,
};

const wfi_op wfi_op_log_softmax_backward = {
    .name = "log_softmax_backward",
    .flags = WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_rowwise,
    .work = {10, WFI_Y},
    .reference = log_softmax_backward_reference,
};

wf_tensor wf_softmax(wf_tensor x) {
    return wfi_build(&wfi_op_softmax, NULL, NULL, 1, &x);
}

wf_tensor wf_log_softmax(wf_tensor x) {
    return wfi_build(&wfi_op_log_softmax, NULL, NULL, 1, &x);
}
