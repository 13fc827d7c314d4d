/* One layer of long short-term memory: hidden state h and cell c, from token to token.
 *
 * lstm(x, w_ih, w_hh, b_ih, b_hh, hidden) -> y, next, workspace (in training graphs)
 * lstm_backward(dy, x, w_ih, w_hh, hidden, y, next, workspace) -> dx, dw_ih, dw_hh, db
 *
 * x [n, tokens, in], y [n, tokens, h]; weights [4 h, in] and [4 h, h], biases [4 h]: the rows of
 * the input gate i, the forget gate f, the cell's new value g and the output gate o, as PyTorch has
 * them. hidden and next [n, 2, h]: h and c before the first token, and after the last.
 *
 *     i, f, o = sigmoid(...), g = tanh(...) of w_ih x + w_hh h + b_ih + b_hh
 *     c = f c + i g,  h = o tanh(c)
 *
 * Both biases have the gradient db. Nothing goes back into `hidden`: backpropagation is truncated.
 * The reference's workspace is for each token the four gates and c. */
#include "op/check.h"

#include <math.h>
#include <string.h>

enum { GATE_I, GATE_F, GATE_G, GATE_O, N_GATES };

/* ---- checks ---- */

static wf_status lstm_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "ffffff"));
    wf_shape x = wfi_in_shape(g, node, 0), recurrent = wfi_in_shape(g, node, 2);
    if (x.n_dims != 3 || wf_shape_n_elem(&x) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "x %s is not [n, tokens, features]",
                           wfi_show(&x).text);
    if (recurrent.n_dims != 2 || recurrent.dim[1] < 1)
        return wfi_op_fail(g, node, WF_SHAPE, "the recurrent weight %s is not [4 h, h]",
                           wfi_show(&recurrent).text);
    int64_t h = recurrent.dim[1];
    wf_shape y = WF_SHAPE(x.dim[0], x.dim[1], h), hidden = WF_SHAPE(x.dim[0], 2, h);
    WF_TRY(wfi_check_shape(g, node, 2, "the recurrent weight", WF_SHAPE(N_GATES * h, h)));
    WF_TRY(wfi_check_shape(g, node, 1, "the weight", WF_SHAPE(N_GATES * h, x.dim[2])));
    WF_TRY(wfi_check_shape(g, node, 5, "the hidden state", hidden));
    for (int i = 3; i < 5; i++)
        WF_TRY(wfi_check_shape(g, node, i, "a bias", WF_SHAPE(N_GATES * h)));
    WF_TRY(wfi_node_output(g, node, WF_F32, &y));
    WF_TRY(wfi_node_output(g, node, WF_F32, &hidden));
    if (!g->training) return WF_OK;
    int64_t n = wf_shape_n_elem(&y) * (N_GATES + 1);
    return wfi_node_opaque_output(g, node, n * (int64_t)sizeof(float));
}

static wf_status lstm_backward_check(wf_graph *g, wfi_node *node) {
    for (int i = 1; i < 4; i++) {
        wf_shape shape = wfi_in_shape(g, node, i);
        WF_TRY(wfi_node_output(g, node, WF_F32, &shape));
    }
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(wfi_in_shape(g, node, 2).dim[0]));
}

static wf_status lstm_gradient(wfi_autodiff *ad, const wfi_node *node) {
    const int32_t *in = node->in;
    const int32_t *made = node->out;
    const int32_t operands[] = {
        wfi_gradient_of(ad, made[0]), in[0], in[1], in[2], in[5], made[0], made[1], made[2]};
    const wfi_node *back =
        wfi_backward_node(ad, &wfi_op_lstm_backward, &node->attr, NULL, 8, operands);
    if (!back) return wfi_graph_of(ad)->status;
    int32_t out[WFI_MAX_OUTPUTS];
    memcpy(out, back->out, sizeof out); /* a sum is a node, too, and may move this one */
    for (int k = 0; k < 4; k++) WF_TRY(wfi_contribute(ad, in[k], out[k]));
    return wfi_contribute(ad, in[4], out[3]);
}

/* ---- references ---- */

typedef struct sizes {
    int64_t n, n_tokens, n_in, h;
} sizes;

static sizes sizes_of(const wfi_operand *x, const wfi_operand *w_hh) {
    return (sizes){x->shape.dim[0], x->shape.dim[1], x->shape.dim[2], w_hh->shape.dim[1]};
}

/* A group for each of n[4] samples of n[3] tokens of n[2] features; n[1]: hidden units. */
static wfi_numbers numbers_of(const sizes *s) {
    return (wfi_numbers){.n_groups = s->n, .n = {0, s->h, s->n_in, s->n_tokens, s->n}};
}

static wfi_numbers lstm_numbers(const wfi_call *call) {
    const sizes s = sizes_of(&call->in[0], &call->in[2]);
    return numbers_of(&s);
}

static wfi_numbers lstm_backward_numbers(const wfi_call *call) {
    const sizes s = sizes_of(&call->in[1], &call->in[3]);
    return numbers_of(&s);
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* The four gates and the cell of a token of a sample: [N_GATES + 1][h]. */
static float *saved_at(float *workspace, const sizes *s, int64_t sample, int64_t token) {
    return workspace + (sample * s->n_tokens + token) * (N_GATES + 1) * s->h;
}

static void lstm_reference(const wfi_call *call) {
    sizes s = sizes_of(&call->in[0], &call->in[2]);
    const float *x = call->in[0].data, *w_ih = call->in[1].data, *w_hh = call->in[2].data,
                *b_ih = call->in[3].data, *b_hh = call->in[4].data, *hidden = call->in[5].data;
    float *y = call->out[0].data, *next = call->out[1].data;
    float *workspace = call->n_out > 2 ? call->out[2].data : NULL;
    for (int64_t k = 0; k < s.n; k++) {
        float *cell = next + (2 * k + 1) * s.h;
        const float *h = hidden + 2 * k * s.h;
        memcpy(cell, h + s.h, (size_t)s.h * sizeof *cell);
        for (int64_t t = 0; t < s.n_tokens; t++, x += s.n_in, y += s.h) {
            float *saved = workspace ? saved_at(workspace, &s, k, t) : NULL;
            for (int64_t j = 0; j < s.h; j++) {
                double gate[N_GATES];
                for (int64_t a = 0; a < N_GATES; a++) {
                    int64_t row = a * s.h + j;
                    double sum = (double)b_ih[row] + b_hh[row] +
                                 dot(w_ih + row * s.n_in, x, s.n_in) +
                                 dot(w_hh + row * s.h, h, s.h);
                    gate[a] = a == GATE_G ? tanh(sum) : sigmoid(sum);
                    if (saved) saved[row] = (float)gate[a];
                }
                cell[j] = (float)(gate[GATE_F] * cell[j] + gate[GATE_I] * gate[GATE_G]);
                y[j] = (float)(gate[GATE_O] * tanh(cell[j]));
                if (saved) saved[N_GATES * s.h + j] = cell[j];
            }
            h = y;
        }
        memcpy(cell - s.h, h, (size_t)s.h * sizeof *h);
    }
}

/* Scratch memory: the gates' gradients of each token, then the gradients of h and c from the next
 * token. */
static size_t backward_scratch(const wf_graph *g, const wfi_node *node) {
    wf_shape y = wfi_in_shape(g, node, 5);
    return (size_t)(wf_shape_n_elem(&y) * N_GATES) * sizeof(float) +
           (size_t)(2 * y.dim[2]) * sizeof(double);
}

/* The gradients of a sample's gates, from the last token to the first. */
static void gates_backward(const wfi_call *call, const sizes *s, int64_t sample, float *dgates,
                           double *dh) {
    const float *dy = call->in[0].data, *w_hh = call->in[3].data, *hidden = call->in[4].data;
    double *dc = dh + s->h;
    memset(dh, 0, (size_t)(2 * s->h) * sizeof *dh);
    for (int64_t t = s->n_tokens - 1; t >= 0; t--) {
        const float *saved = saved_at(call->in[7].data, s, sample, t);
        const float *before = t ? saved_at(call->in[7].data, s, sample, t - 1) + N_GATES * s->h
                                : hidden + (2 * sample + 1) * s->h;
        const float *slope = dy + (sample * s->n_tokens + t) * s->h;
        float *gates = dgates + (sample * s->n_tokens + t) * N_GATES * s->h;
        for (int64_t j = 0; j < s->h; j++) {
            double i = saved[GATE_I * s->h + j], f = saved[GATE_F * s->h + j],
                   g = saved[GATE_G * s->h + j], o = saved[GATE_O * s->h + j],
                   bent = tanh(saved[N_GATES * s->h + j]), all = slope[j] + dh[j];
            double cell = dc[j] + all * o * (1 - bent * bent);
            gates[GATE_I * s->h + j] = (float)(cell * g * i * (1 - i));
            gates[GATE_F * s->h + j] = (float)(cell * before[j] * f * (1 - f));
            gates[GATE_G * s->h + j] = (float)(cell * i * (1 - g * g));
            gates[GATE_O * s->h + j] = (float)(all * bent * o * (1 - o));
            dc[j] = cell * f;
        }
        for (int64_t j = 0; j < s->h; j++) {
            dh[j] = 0;
            for (int64_t row = 0; row < N_GATES * s->h; row++)
                dh[j] += (double)gates[row] * w_hh[row * s->h + j];
        }
    }
}

/* The gradient of a weight, row `row` and column `at`, from the tokens' features. */
static double weight_gradient(const float *dgates, const float *features, int64_t n_rows,
                              int64_t n_gates, int64_t row, int64_t width, int64_t at) {
    double sum = 0;
    for (int64_t r = 0; r < n_rows; r++)
        sum += (double)dgates[r * n_gates + row] * features[r * width + at];
    return sum;
}

static void lstm_backward_reference(const wfi_call *call) {
    sizes s = sizes_of(&call->in[1], &call->in[3]);
    const float *x = call->in[1].data, *w_ih = call->in[2].data, *hidden = call->in[4].data,
                *y = call->in[5].data;
    float *dx = call->out[0].data, *dw_ih = call->out[1].data, *dw_hh = call->out[2].data,
          *db = call->out[3].data;
    int64_t n_rows = s.n * s.n_tokens, n_gates = N_GATES * s.h;
    double *dh = call->scratch;
    float *dgates = (float *)(dh + 2 * s.h);
    for (int64_t k = 0; k < s.n; k++) gates_backward(call, &s, k, dgates, dh);
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < s.n_in; i++) {
            double sum = 0;
            for (int64_t row = 0; row < n_gates; row++)
                sum += (double)dgates[r * n_gates + row] * w_ih[row * s.n_in + i];
            dx[r * s.n_in + i] = (float)sum;
        }
    for (int64_t row = 0; row < n_gates; row++) {
        const float one = 1;
        for (int64_t i = 0; i < s.n_in; i++)
            dw_ih[row * s.n_in + i] =
                (float)weight_gradient(dgates, x, n_rows, n_gates, row, s.n_in, i);
        for (int64_t j = 0; j < s.h; j++) {
            double sum = 0; /* over h before each token */
            for (int64_t k = 0; k < s.n; k++) {
                const float *own = dgates + k * s.n_tokens * n_gates;
                sum += (double)own[row] * hidden[2 * k * s.h + j];
                sum += weight_gradient(own + n_gates, y + k * s.n_tokens * s.h, s.n_tokens - 1,
                                       n_gates, row, s.h, j);
            }
            dw_hh[row * s.h + j] = (float)sum;
        }
        db[row] = (float)weight_gradient(dgates, &one, n_rows, n_gates, row, 0, 0);
    }
}

/* ---- the ops ---- */

/* Products alone: in and h features to four gates. */
static double lstm_flops(const wf_graph *g, const wfi_node *node) {
    bool is_forward = node->op == &wfi_op_lstm;
    wf_shape x = wfi_in_shape(g, node, !is_forward), w = wfi_in_shape(g, node, is_forward ? 2 : 3);
    double rows = (double)(x.dim[0] * x.dim[1]), features = (double)(x.dim[2] + w.dim[1]);
    return (is_forward ? 2 : 4) * rows * features * (double)w.dim[0];
}

static const wfi_op_sample lstm_samples[] = {
    {.n_in = 6,
     .in = {WFI_DIMS(2, 3, 3), WFI_DIMS(8, 3), WFI_DIMS(8, 2), WFI_DIMS(8), WFI_DIMS(8),
            WFI_DIMS(2, 2, 2)},
     .no_gradient = 1 << 5},
    {0}};

/* Samples do not know of each other. */
static const wfi_op_cut lstm_place[] = {
    {.name = "samples", .in = {1, 0, 0, 0, 0, 1}, .out = {1, 1, 1}}, {0}};

const wfi_op wfi_op_lstm = {
    .name = "lstm",
    .roles = {.weight_in = 1 << 1 | 1 << 2},
    .tolerance = 1e-5f,
    .check = lstm_check,
    .gradient = lstm_gradient,
    .flops = lstm_flops,
    .reference = lstm_reference,
    .numbers = lstm_numbers,
    .samples = lstm_samples,
    .place = lstm_place,
};

const wfi_op wfi_op_lstm_backward = {
    .name = "lstm_backward",
    .roles = {.weight_in = 1 << 2 | 1 << 3, .weight_out = 1 << 1 | 1 << 2},
    .tolerance = 2e-5f,
    .check = lstm_backward_check,
    .flops = lstm_flops,
    .scratch_bytes = backward_scratch,
    .reference = lstm_backward_reference,
    .numbers = lstm_backward_numbers,
};
