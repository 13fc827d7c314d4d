/* Self-attention over packed queries, keys and values.
 *
 * self_attention(qkv [n, t, 3c]) -> y [n, t, c], probabilities [n, heads, t, t]
 * self_attention_backward(dy, qkv, probabilities) -> dqkv
 *
 * With d = c / heads: p = softmax(q k^T / sqrt(d)), y = p v; causal: position i looks
 * at 0..i, and later probabilities are 0. */
#include "op/check.h"

#include <math.h>

typedef struct attention {
    int64_t n, t, c, heads, d;
    double scale;
    bool causal;
} attention;

static attention attention_of(const wfi_attr *attr, const wf_shape *qkv) {
    attention a = {qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3, attr->attention.n_heads, 0, 0, false};
    a.d = a.c / a.heads;
    a.scale = 1 / sqrt((double)a.d);
    a.causal = attr->attention.causal != 0;
    return a;
}

/* Position of element 0 of part 0 (q), 1 (k) or 2 (v) in qkv. */
static int64_t part_at(const attention *a, int64_t n, int64_t t, int part, int64_t head) {
    return ((n * a->t + t) * 3 + part) * a->c + head * a->d;
}

static int64_t probability_at(const attention *a, int64_t n, int64_t head, int64_t i) {
    return ((n * a->heads + head) * a->t + i) * a->t;
}

static wf_status check_qkv(const wf_graph *g, const wfi_node *node, int i) {
    wf_shape qkv = wfi_in_shape(g, node, i);
    int64_t heads = node->attr.attention.n_heads;
    if (qkv.n_dims != 3 || wf_shape_n_elem(&qkv) == 0 || heads < 1 || qkv.dim[2] % (3 * heads))
        return wfi_op_fail(g, node, WF_SHAPE,
                           "%s is not [n, t, 3 c] with c a multiple of %lld heads",
                           wfi_show(&qkv).text, (long long)heads);
    return WF_OK;
}

static wf_status self_attention_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    WF_TRY(check_qkv(g, node, 0));
    wf_shape qkv = wfi_in_shape(g, node, 0);
    int64_t heads = node->attr.attention.n_heads;
    WF_TRY(wfi_node_output(g, node, WF_F32, &WF_SHAPE(qkv.dim[0], qkv.dim[1], qkv.dim[2] / 3)));
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(qkv.dim[0], heads, qkv.dim[1], qkv.dim[1]));
}

static wf_status self_attention_gradient(wfi_autodiff *ad, const wfi_node *node) {
    return wfi_pass(ad, node->in[0], &wfi_op_self_attention_backward, &node->attr, NULL, 3,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0]), node->in[0], node->out[1]});
}

/* Two products forward, four backward; a causal mask is not counted as saving. */
static double self_attention_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape y = wfi_out_shape(g, node, 0);
    return 4.0 * (double)wf_shape_n_elem(&y) * (double)y.dim[1];
}

static double self_attention_backward_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape qkv = wfi_out_shape(g, node, 0);
    return 8.0 / 3 * (double)wf_shape_n_elem(&qkv) * (double)qkv.dim[1];
}

/* p [t]: the probabilities of position i. */
static void softmax_row(const attention *a, const float *qkv, int64_t n, int64_t head, int64_t i,
                        float *p) {
    int64_t end = a->causal ? i + 1 : a->t;
    const float *q = qkv + part_at(a, n, i, 0, head);
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < end; j++) {
        const float *k = qkv + part_at(a, n, j, 1, head);
        double dot = 0;
        for (int64_t l = 0; l < a->d; l++) dot += (double)q[l] * k[l];
        p[j] = (float)(dot * a->scale);
        if (p[j] > most) most = p[j];
    }
    for (int64_t j = 0; j < end; j++) sum += exp(p[j] - most);
    for (int64_t j = 0; j < a->t; j++) p[j] = j < end ? (float)(exp(p[j] - most) / sum) : 0;
}

static void self_attention_reference(const wfi_call *call) {
    attention a = attention_of(call->attr, &call->in[0].shape);
    const float *qkv = call->in[0].data;
    float *y = call->out[0].data;
    for (int64_t n = 0; n < a.n; n++)
        for (int64_t head = 0; head < a.heads; head++)
            for (int64_t i = 0; i < a.t; i++) {
                float *p = (float *)call->out[1].data + probability_at(&a, n, head, i);
                softmax_row(&a, qkv, n, head, i, p);
                for (int64_t l = 0; l < a.d; l++) {
                    double sum = 0;
                    for (int64_t j = 0; j < a.t; j++)
                        sum += (double)p[j] * qkv[part_at(&a, n, j, 2, head) + l];
                    y[(n * a.t + i) * a.c + head * a.d + l] = (float)sum;
                }
            }
}

const wfi_op wfi_op_self_attention = {
    .name = "self_attention",
    .tolerance = 5e-6f,
    .check = self_attention_check,
    .gradient = self_attention_gradient,
    .flops = self_attention_flops,
    .reference = self_attention_reference,
};

static wf_status self_attention_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fff"));
    WF_TRY(check_qkv(g, node, 1));
    wf_shape qkv = wfi_in_shape(g, node, 1);
    return wfi_node_output(g, node, WF_F32, &qkv);
}

/* ds [t]: the gradient of the scores of position i, before the scale. */
static void score_gradient(const attention *a, const float *dy, const float *qkv, const float *p,
                           int64_t n, int64_t head, double *ds) {
    double sum = 0;
    for (int64_t j = 0; j < a->t; j++) {
        const float *v = qkv + part_at(a, n, j, 2, head);
        double dp = 0;
        for (int64_t l = 0; l < a->d; l++) dp += (double)dy[l] * v[l];
        ds[j] = dp;
        sum += dp * p[j];
    }
    for (int64_t j = 0; j < a->t; j++) ds[j] = p[j] * (ds[j] - sum);
}

static size_t self_attention_backward_scratch(const wf_graph *g, const wfi_node *node) {
    wf_shape qkv = wfi_in_shape(g, node, 1);
    /* Scores of one position, and one head's dq, dk and dv in double. */
    int64_t d = qkv.dim[2] / 3 / node->attr.attention.n_heads;
    return (size_t)(qkv.dim[1] * (1 + 3 * d)) * sizeof(double);
}

static void self_attention_backward_reference(const wfi_call *call) {
    attention a = attention_of(call->attr, &call->in[1].shape);
    const float *dy = call->in[0].data, *qkv = call->in[1].data;
    float *dqkv = call->out[0].data;
    double *ds = call->scratch, *sums = ds + a.t; /* [3, t, d] */
    for (int64_t n = 0; n < a.n; n++)
        for (int64_t head = 0; head < a.heads; head++) {
            for (int64_t k = 0; k < 3 * a.t * a.d; k++) sums[k] = 0;
            double *dq = sums, *dk = dq + a.t * a.d, *dv = dk + a.t * a.d;
            for (int64_t i = 0; i < a.t; i++) {
                const float *p = (float *)call->in[2].data + probability_at(&a, n, head, i);
                const float *dy_i = dy + (n * a.t + i) * a.c + head * a.d;
                const float *q = qkv + part_at(&a, n, i, 0, head);
                score_gradient(&a, dy_i, qkv, p, n, head, ds);
                for (int64_t j = 0; j < a.t; j++) {
                    const float *k = qkv + part_at(&a, n, j, 1, head);
                    for (int64_t l = 0; l < a.d; l++) {
                        dq[i * a.d + l] += a.scale * ds[j] * k[l];
                        dk[j * a.d + l] += a.scale * ds[j] * q[l];
                        dv[j * a.d + l] += (double)p[j] * dy_i[l];
                    }
                }
            }
            for (int part = 0; part < 3; part++)
                for (int64_t t = 0; t < a.t; t++)
                    for (int64_t l = 0; l < a.d; l++)
                        dqkv[part_at(&a, n, t, part, head) + l] =
                            (float)sums[(part * a.t + t) * a.d + l];
        }
}

const wfi_op wfi_op_self_attention_backward = {
    .name = "self_attention_backward",
    .tolerance = 1e-5f,
    .check = self_attention_backward_check,
    .flops = self_attention_backward_flops,
    .scratch_bytes = self_attention_backward_scratch,
    .reference = self_attention_backward_reference,
};

wf_tensor wf_self_attention(wf_tensor qkv, int64_t n_heads, int causal) {
    wfi_attr attr = {.attention = {n_heads, causal}};
    return wfi_build(&wfi_op_self_attention, &attr, NULL, 1, &qkv);
}
