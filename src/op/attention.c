/* Self attention of h heads of queries and g of keys and values (Ainslie et al., 2023), all of size
 * d: h / g heads of queries read one of keys. c = h d; P are the attention weights. S and P have t
 * squared values per head and are not saved: the backward recomputes them from L, the logarithm of
 * each row's sum.
 *
 * self_attention(qkv [n, t, (h + 2 g) d]) -> y [n, t, c], L [n, h, t]
 * self_attention_backward(dy, qkv, y, L) -> dqkv
 * cached_attention(qkv [n, (h + 2 g) d], positions I32 [n], cache [t, 2 g d]) -> y [n, c]
 *
 * cached_attention reads n tokens of one text, one after the other: it writes the keys and values
 * of each to the row of its position, then the token attends to all rows up to there. For a
 * position outside the cache, y is 0. With causal w > 1 a token sees at most w tokens: itself and
 * those before it.
 *
 *   S = q k^T / sqrt(d)    L = log sum exp S    P = exp(S - L)    y = P v
 *   dP = dy v^T    dS = P (dP - sum P dP), and sum P dP = sum dy y
 *   dq = dS k / sqrt(d)    dk = dS^T q / sqrt(d)    dv = P^T dy
 *
 * dk and dv are the sums over the heads that read them, in ascending order. */
#include "op/check.h"

#include <math.h>
#include <string.h>

/* Heads of queries, keys and values in a row of qkv. */
static int64_t heads_of(const wfi_attr *attr) {
    return attr->attention.n_heads + 2 * attr->attention.n_keys;
}

static bool is_grouped(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return node->attr.attention.n_keys != node->attr.attention.n_heads;
}

static bool is_not_grouped(const wf_graph *g, const wfi_node *node) {
    return !is_grouped(g, node);
}

/* n_keys, where keys are grouped for another number of heads of queries. */
enum { OTHER_HEADS = -1 };

static wf_status check_heads(const wf_graph *g, const wfi_node *node, const wf_shape *qkv) {
    int64_t n = node->attr.attention.n_heads, n_keys = node->attr.attention.n_keys;
    if (n >= 1 && n_keys == OTHER_HEADS)
        return wfi_op_fail(g, node, WF_INVALID_ARG,
                           "%lld heads are not those that wf_rotary grouped", (long long)n);
    if (n >= 1 && wfi_last_dim(qkv) % heads_of(&node->attr) == 0) return WF_OK;
    return wfi_op_fail(g, node, WF_INVALID_ARG, "%lld heads, %lld of keys, do not divide qkv %s",
                       (long long)n, (long long)n_keys, wfi_show(qkv).text);
}

static wf_status self_attention_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape qkv = wfi_in_shape(g, node, 0);
    int64_t n_heads = node->attr.attention.n_heads;
    if (qkv.n_dims != 3 || wf_shape_n_elem(&qkv) == 0 || (!is_grouped(g, node) && qkv.dim[2] % 3))
        return wfi_op_fail(g, node, WF_SHAPE, "qkv %s is not [n, t, 3 c]", wfi_show(&qkv).text);
    WF_TRY(check_heads(g, node, &qkv));
    int64_t n = qkv.dim[0], t = qkv.dim[1], d = qkv.dim[2] / heads_of(&node->attr);
    WF_TRY(wfi_node_output(g, node, WF_F32, &WF_SHAPE(n, t, n_heads * d)));
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(n, n_heads, t));
}

/* One product of a square with the heads; half of it, and the diagonal, where causality skips the
 * future. */
static double product_flops(const wfi_node *node, const wf_shape *qkv) {
    double n = (double)qkv->dim[0], t = (double)qkv->dim[1];
    double c = (double)(qkv->dim[2] / heads_of(&node->attr) * node->attr.attention.n_heads);
    return n * t * (node->attr.attention.causal ? t + 1 : 2 * t) * c;
}

static double self_attention_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape qkv = wfi_in_shape(g, node, 0);
    return 2 * product_flops(node, &qkv);
}

static double self_attention_backward_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape qkv = wfi_in_shape(g, node, 1);
    return 5 * product_flops(node, &qkv);
}

/* ---- references ---- */

/* n[1] tokens, n[2] channels of queries, n[3] heads of n[4] elements, n[5]: causal, n[6] heads of
 * keys, n[7] elements of a token in qkv; f[0]: the scale of the scores. A group for each token of
 * each head. */
static wfi_numbers numbers_of(const wfi_attr *attr, int64_t n, int64_t t, int64_t row) {
    int64_t n_heads = attr->attention.n_heads, d = row / heads_of(attr);
    return (wfi_numbers){
        .n_groups = n * n_heads * t,
        .n = {0, t, n_heads * d, n_heads, d, attr->attention.causal, attr->attention.n_keys, row},
        .f = {1 / sqrt((double)d)}};
}

static wfi_numbers of_qkv(const wfi_call *call, const wfi_operand *qkv) {
    const int64_t *dim = qkv->shape.dim;
    return numbers_of(call->attr, dim[0], dim[1], dim[2]);
}

static wfi_numbers self_attention_numbers(const wfi_call *call) {
    return of_qkv(call, &call->in[0]);
}

static wfi_numbers self_attention_backward_numbers(const wfi_call *call) {
    return of_qkv(call, &call->in[1]);
}

typedef struct head { /* of one sample */
    const float *q, *k, *v;
    int64_t q_step, kv_step; /* from one row to the next */
    int64_t t, c, d;
    double factor;
    int64_t window; /* keys that a query sees at most */
} head;

static int64_t window_of(const wfi_call *call, int64_t t) {
    return call->attr->attention.causal > 1 ? call->attr->attention.causal : t;
}

static head head_of(const wfi_call *call, const wfi_operand *qkv, int64_t n, int64_t h) {
    const wfi_numbers own = of_qkv(call, qkv);
    int64_t t = own.n[1], c = own.n[2], d = own.n[4], row = own.n[7];
    const float *first = (float *)qkv->data + n * t * row;
    const float *keys = first + c + h / (own.n[3] / own.n[6]) * d;
    return (head){first + h * d,     keys, keys + own.n[6] * d, row, row, t, c, d, own.f[0],
                  window_of(call, t)};
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

static int64_t first_seen(const head *a, int64_t n_seen) {
    return wfi_max_i64(n_seen - a->window, 0);
}

/* Row i of P into p [t]: zero beyond `n_seen`, and before the window. Gives its L. */
static double attend(const head *a, int64_t i, int64_t n_seen, double *p) {
    double max = -INFINITY, sum = 0;
    int64_t first = first_seen(a, n_seen);
    for (int64_t j = first; j < n_seen; j++) {
        p[j] = dot(a->q + i * a->q_step, a->k + j * a->kv_step, a->d) * a->factor;
        if (p[j] > max) max = p[j];
    }
    for (int64_t j = first; j < n_seen; j++) sum += p[j] = exp(p[j] - max);
    for (int64_t j = first; j < n_seen; j++) p[j] /= sum;
    for (int64_t j = 0; j < first; j++) p[j] = 0;
    for (int64_t j = n_seen; j < a->t; j++) p[j] = 0;
    return max + log(sum);
}

/* The values of the first n rows, weighed by p: some columns at a time, row by row, as rows lie far
 * apart. Each column's sum is in the order of the rows. */
static void mix_values(const head *a, const double *p, int64_t n, float *y) {
    enum { N_COLUMNS = 16 };
    for (int64_t e = 0; e < a->d; e += N_COLUMNS) {
        double sum[N_COLUMNS] = {0};
        int64_t n_columns = wfi_min_i64(a->d - e, N_COLUMNS);
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k < n_columns; k++) sum[k] += p[j] * a->v[j * a->kv_step + e + k];
        for (int64_t k = 0; k < n_columns; k++) y[e + k] = (float)sum[k];
    }
}

static int64_t n_seen_by(const wfi_call *call, int64_t i, int64_t t) {
    return call->attr->attention.causal ? i + 1 : t;
}

static size_t self_attention_scratch_bytes(const wf_graph *g, const wfi_node *node) {
    return (size_t)wfi_in_shape(g, node, 0).dim[1] * sizeof(double);
}

static void self_attention_reference(const wfi_call *call) {
    const wfi_operand *qkv = &call->in[0];
    float *y = call->out[0].data, *log_sum = call->out[1].data;
    double *p = call->scratch; /* [t] */
    int64_t n_heads = call->attr->attention.n_heads;
    for (int64_t n = 0; n < qkv->shape.dim[0]; n++)
        for (int64_t h = 0; h < n_heads; h++) {
            head a = head_of(call, qkv, n, h);
            for (int64_t i = 0; i < a.t; i++) {
                *log_sum++ = (float)attend(&a, i, n_seen_by(call, i, a.t), p);
                mix_values(&a, p, a.t, y + (n * a.t + i) * a.c + h * a.d);
            }
        }
}

static size_t self_attention_backward_scratch_bytes(const wf_graph *g, const wfi_node *node) {
    wf_shape qkv = wfi_in_shape(g, node, 1);
    int64_t t = qkv.dim[1], d = qkv.dim[2] / heads_of(&node->attr);
    return (size_t)(2 * t * (t + d)) * sizeof(double);
}

/* Row i of P and dS [t]; dy and y in rows of c. */
static void backward_scores(const head *a, const float *dy, const float *y, float log_sum,
                            int64_t i, int64_t n_seen, double *p, double *ds) {
    double sum = dot(dy + i * a->c, y + i * a->c, a->d);
    int64_t first = first_seen(a, n_seen);
    for (int64_t j = first; j < n_seen; j++) {
        double s = dot(a->q + i * a->q_step, a->k + j * a->kv_step, a->d) * a->factor;
        p[j] = exp(s - log_sum);
        ds[j] = p[j] * (dot(dy + i * a->c, a->v + j * a->kv_step, a->d) - sum);
    }
    for (int64_t j = 0; j < first; j++) p[j] = ds[j] = 0;
    for (int64_t j = n_seen; j < a->t; j++) p[j] = ds[j] = 0;
}

/* Row i of dq for one head; adds row i of its dk and dv to `sums` [2, d]. */
static void backward_row(const head *a, const float *dy, const double *p, const double *ds,
                         int64_t i, float *to, double *sums) {
    for (int64_t e = 0; e < a->d; e++) {
        double dq = 0, dk = 0, dv = 0;
        for (int64_t j = 0; j < a->t; j++) {
            dq += ds[i * a->t + j] * a->k[j * a->kv_step + e];
            dk += ds[j * a->t + i] * a->q[j * a->q_step + e];
            dv += p[j * a->t + i] * dy[j * a->c + e];
        }
        to[e] = (float)(dq * a->factor);
        sums[e] += dk;
        sums[a->d + e] += dv;
    }
}

/* One head; adds its dk and dv to `sums` [t, 2, d]. */
static void backward_head(const wfi_call *call, int64_t n, int64_t h, double *sums) {
    const head a = head_of(call, &call->in[1], n, h);
    int64_t t = a.t, first = n * t * a.c + h * a.d;
    const float *dy = (float *)call->in[0].data + first, *y = (float *)call->in[2].data + first;
    const float *log_sum = (float *)call->in[3].data + n * t * (a.c / a.d) + h * t;
    float *dq = (float *)call->out[0].data + n * t * a.q_step + h * a.d;
    double *p = call->scratch, *ds = p + t * t; /* [t, t] */
    for (int64_t i = 0; i < t; i++)
        backward_scores(&a, dy, y, log_sum[i], i, n_seen_by(call, i, t), p + i * t, ds + i * t);
    for (int64_t i = 0; i < t; i++)
        backward_row(&a, dy, p, ds, i, dq + i * a.q_step, sums + i * 2 * a.d);
}

static void self_attention_backward_reference(const wfi_call *call) {
    const wfi_numbers own = of_qkv(call, &call->in[1]);
    int64_t t = own.n[1], d = own.n[4], n_keys = own.n[6], n_shared = own.n[3] / n_keys;
    double *sums = (double *)call->scratch + 2 * t * t; /* [t, 2, d] */
    for (int64_t n = 0; n < call->in[1].shape.dim[0]; n++)
        for (int64_t key = 0; key < n_keys; key++) {
            float *to = (float *)call->out[0].data + n * t * own.n[7] + own.n[2] + key * d;
            memset(sums, 0, (size_t)(2 * t * d) * sizeof *sums);
            for (int64_t k = 0; k < n_shared; k++) backward_head(call, n, key * n_shared + k, sums);
            for (int64_t i = 0; i < t * d; i++) {
                int64_t row = i / d, e = i % d;
                to[row * own.n[7] + e] = (float)(sums[row * 2 * d + e] * own.f[0]);
                to[row * own.n[7] + n_keys * d + e] = (float)sums[(row * 2 + 1) * d + e];
            }
        }
}

static bool divide_heads(wfi_attr *attr, const wfi_op_part *part) {
    bool divides = attr->attention.n_heads % part->n == 0 && attr->attention.n_keys % part->n == 0;
    if (!divides) return false;
    attr->attention.n_heads /= part->n;
    attr->attention.n_keys /= part->n;
    return true;
}

/* Queries, keys and values of all heads are in one tensor. */
static const wfi_op_sample self_attention_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(2, 3, 12)}, .attr = {.attention = {2, 2, 0}}},
    {.n_in = 1, .in = {WFI_DIMS(2, 5, 12)}, .attr = {.attention = {2, 2, 1}}},
    {.n_in = 1, .in = {WFI_DIMS(2, 7, 12)}, .attr = {.attention = {2, 2, 3}}},
    {.n_in = 1, .in = {WFI_DIMS(2, 5, 30)}, .attr = {.attention = {6, 2, 1}}},
    {.n_in = 1, .in = {WFI_DIMS(2, 7, 12)}, .attr = {.attention = {2, 1, 3}}},
    {0}};

#define CUT_HEADS(blocks_of_qkv, when)                                                             \
    {                                                                                              \
        .name = "heads", .in = {-1}, .out = {-1, 2}, .n_blocks = (blocks_of_qkv),                  \
        .blocks = 1 << 0, .applies = (when), .divide = divide_heads                                \
    }

static const wfi_op_cut self_attention_place[] = {{.name = "samples", .in = {1}, .out = {1, 1}},
                                                  CUT_HEADS(3, is_not_grouped),
                                                  CUT_HEADS(WFI_UNEQUAL, is_grouped),
                                                  {0}};

const wfi_op wfi_op_self_attention = {
    .name = "self_attention",
    .roles = {.wide_out = 1 << 1},
    .tolerance = 1e-5f,
    .check = self_attention_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_self_attention_backward, .in = {WFI_DY, WFI_X, WFI_Y, WFI_Y + 1}}, {0}},
    .flops = self_attention_flops,
    .scratch_bytes = self_attention_scratch_bytes,
    .reference = self_attention_reference,
    .numbers = self_attention_numbers,
    .samples = self_attention_samples,
    .place = self_attention_place,
};

const wfi_op wfi_op_self_attention_backward = {
    .name = "self_attention_backward",
    .tolerance = 2e-5f,
    .makes = {WFI_X + 1},
    .flops = self_attention_backward_flops,
    .scratch_bytes = self_attention_backward_scratch_bytes,
    .reference = self_attention_backward_reference,
    .numbers = self_attention_backward_numbers,
};

/* Whether each column of output v is made of the same column of the first input. Ops that mix
 * columns, such as linear, are not cheap. */
static bool keeps_columns(const wf_graph *g, const wfi_node *node, int32_t v) {
    return node->op->flags & (WFI_OP_CHEAP | WFI_OP_ALIAS) && node->op != &wfi_op_transpose &&
           node->in[0] >= 0 && wfi_shape_equal(&g->values[node->in[0]].shape, &g->values[v].shape);
}

/* The heads of keys: those of the wf_rotary that qkv comes from, through ops that keep its columns;
 * otherwise as many as of queries. */
static wfi_attr attr_of(wf_tensor qkv, int64_t n_heads, int causal) {
    const wf_graph *g = qkv.graph;
    int32_t v = qkv.id, made;
    while (v >= 0 && (made = g->values[v].node) >= 0) {
        const wfi_node *node = &g->nodes[made];
        if (node->op == &wfi_op_rotary) {
            int64_t n = node->attr.rotary.n_heads, n_keys = node->attr.rotary.n_keys;
            if (n != n_heads) n_keys = n == n_keys ? n_heads : OTHER_HEADS;
            return (wfi_attr){.attention = {n_heads, n_keys, causal}};
        }
        v = keeps_columns(g, node, v) ? node->in[0] : -1;
    }
    return (wfi_attr){.attention = {n_heads, n_heads, causal}};
}

wf_tensor wf_self_attention(wf_tensor qkv, int64_t n_heads, int causal) {
    wfi_attr attr = attr_of(qkv, n_heads, causal);
    return wfi_build(&wfi_op_self_attention, &attr, NULL, 1, &qkv);
}

/* ---- a text token by token ---- */

static wf_status cached_attention_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fif"));
    wf_shape qkv = wfi_in_shape(g, node, 0), positions = wfi_in_shape(g, node, 1);
    wf_shape cache = wfi_in_shape(g, node, 2);
    bool has_heads = qkv.n_dims == 2 && qkv.dim[1] > 0;
    if (has_heads) WF_TRY(check_heads(g, node, &qkv));
    int64_t d = has_heads ? qkv.dim[1] / heads_of(&node->attr) : 0;
    if (d < 1 || positions.n_dims != 1 || qkv.dim[0] != positions.dim[0] || cache.n_dims != 2 ||
        cache.dim[1] != 2 * node->attr.attention.n_keys * d)
        return wfi_op_fail(g, node, WF_SHAPE, "qkv %s, positions %s and cache %s do not fit",
                           wfi_show(&qkv).text, wfi_show(&positions).text, wfi_show(&cache).text);
    wf_shape y = WF_SHAPE(qkv.dim[0], node->attr.attention.n_heads * d);
    return wfi_node_output(g, node, WF_F32, &y);
}

static double cached_attention_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape y = wfi_out_shape(g, node, 0), cache = wfi_in_shape(g, node, 2);
    return 4 * (double)wf_shape_n_elem(&y) * (double)cache.dim[0];
}

static size_t cached_attention_scratch_bytes(const wf_graph *g, const wfi_node *node) {
    return (size_t)wfi_in_shape(g, node, 2).dim[0] * sizeof(double);
}

/* A group for each head of keys, which goes through n[0] tokens. */
static wfi_numbers cached_attention_numbers(const wfi_call *call) {
    const int64_t *qkv = call->in[0].shape.dim;
    wfi_numbers own = numbers_of(call->attr, 0, call->in[2].shape.dim[0], qkv[1]);
    own.n[0] = qkv[0];
    own.n_groups = own.n[6];
    return own;
}

static void cached_attention_reference(const wfi_call *call) {
    const wfi_numbers own = cached_attention_numbers(call);
    const float *qkv = call->in[0].data;
    const int32_t *position = call->in[1].data;
    float *cache = call->in[2].data, *y = call->out[0].data;
    double *p = call->scratch; /* [t] */
    int64_t t = own.n[1], c = own.n[2], n_heads = own.n[3], d = own.n[4], row = own.n[7];
    int64_t c_keys = own.n[6] * d, n_shared = n_heads / own.n[6];
    for (int64_t i = 0; i < own.n[0]; i++, qkv += row, y += c) {
        if (position[i] < 0 || position[i] >= t) {
            memset(y, 0, (size_t)c * sizeof *y);
            continue;
        }
        memcpy(cache + position[i] * 2 * c_keys, qkv + c, (size_t)(2 * c_keys) * sizeof *cache);
        for (int64_t h = 0; h < n_heads; h++) {
            const float *keys = cache + h / n_shared * d;
            head a = {qkv + h * d, keys,     keys + c_keys,     row, 2 * c_keys, position[i] + 1, c,
                      d,           own.f[0], window_of(call, t)};
            attend(&a, 0, a.t, p);
            mix_values(&a, p, a.t, y + h * d);
        }
    }
}

static const wfi_op_sample cached_attention_samples[] = {
    {.n_in = 3,
     .in = {WFI_DIMS(3, 12), WFI_DIMS(3), WFI_DIMS(5, 8)},
     .ids = 1 << 1,
     .id_limit = 5,
     .attr = {.attention = {2, 2, 1}}},
    {.n_in = 3,
     .in = {WFI_DIMS(3, 30), WFI_DIMS(3), WFI_DIMS(5, 12)},
     .ids = 1 << 1,
     .id_limit = 5,
     .attr = {.attention = {6, 2, 2}}},
    {0}};

const wfi_op wfi_op_cached_attention = {
    .name = "cached_attention",
    .roles = {.place_in = 1 << 1, .cache_in = 1 << 2},
    .tolerance = 1e-5f,
    .check = cached_attention_check,
    .flops = cached_attention_flops,
    .scratch_bytes = cached_attention_scratch_bytes,
    .reference = cached_attention_reference,
    .numbers = cached_attention_numbers,
    .samples = cached_attention_samples,
};

wf_tensor wf_cached_attention(wf_tensor qkv, wf_tensor position, const char *name, int64_t n_heads,
                              int64_t n_positions) {
    return wfi_cached_attention(qkv, position, name, n_heads, n_positions, 1);
}

wf_tensor wfi_cached_attention(wf_tensor qkv, wf_tensor position, const char *name, int64_t n_heads,
                               int64_t n_positions, int causal) {
    if (qkv.id < 0) return qkv;
    wfi_attr attr = attr_of(qkv, n_heads, causal);
    wf_shape shape = wf_tensor_shape(qkv);
    bool fits = shape.n_dims == 2 && heads_of(&attr) > 0;
    int64_t c_keys = fits ? shape.dim[1] / heads_of(&attr) * attr.attention.n_keys : 1;
    wf_tensor cache = wfi_cache(qkv.graph, name, WF_SHAPE(n_positions, 2 * c_keys));
    return wfi_build(&wfi_op_cached_attention, &attr, NULL, 3, (wf_tensor[]){qkv, position, cache});
}
