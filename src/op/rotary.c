/* Rotary positions (Su et al., 2021) of h heads of queries and g of keys, which attention reads
 * with the values side by side.
 *
 * rotary(q [.., t, h d], k [.., t, g d], v [.., t, g d]) -> qkv [.., t, (h + 2 g) d]
 * rotary_backward(dqkv) -> dq, dk, dv
 * rotary(q [n, h d], k, v, positions I32 [n]) -> qkv: n tokens of one text
 *
 * Elements i and i + d / 2 of each head of q and k are a pair, turned by the angle p theta^(-2 i /
 * d) at position p.
 *
 * Llama 3 scales the angle's frequency f, in turns per n_positions: by 1 / factor up to `low`
 * turns, not at all from `high` turns on, and by a straight line between. factor 0: not at all. */
#include "op/plain.h"

#include "op/rotary.cl"

#define TWO_PI 6.283185307179586

static wf_status check_scaling(const wf_graph *g, const wfi_node *node) {
    double factor = node->attr.rotary.factor, low = node->attr.rotary.low,
           high = node->attr.rotary.high;
    int64_t n_positions = node->attr.rotary.n_positions;
    if (factor == 0 || (factor >= 1 && low > 0 && high > low && n_positions > 0)) return WF_OK;
    return wfi_op_fail(g, node, WF_INVALID_ARG,
                       "scaling by %g from %g to %g turns in %lld positions: a factor is at least "
                       "1, and turns and positions are above 0 and ascend",
                       factor, low, high, (long long)n_positions);
}

static wf_status check_heads(const wf_graph *g, const wfi_node *node, int64_t c, int64_t c_keys) {
    int64_t n = node->attr.rotary.n_heads, n_keys = node->attr.rotary.n_keys;
    double theta = node->attr.rotary.theta;
    if (n < 1 || n_keys < 1 || n % n_keys || c % n || c / n % 2 || c_keys * n != c * n_keys)
        return wfi_op_fail(g, node, WF_INVALID_ARG,
                           "%lld heads of %lld queries and %lld of %lld keys: heads have an even "
                           "number of elements, and keys divide queries",
                           (long long)n, (long long)c, (long long)n_keys, (long long)c_keys);
    if (!(theta > 0 && theta < 1e15))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "theta is %g", theta);
    return check_scaling(g, node);
}

static wf_status rotary_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fffi?"));
    wf_shape q = wfi_in_shape(g, node, 0), k = wfi_in_shape(g, node, 1);
    wf_shape v = wfi_in_shape(g, node, 2), like = q;
    bool is_cached = node->n_in > 3 && node->in[3] >= 0;
    if (q.n_dims) like.dim[q.n_dims - 1] = k.n_dims ? k.dim[k.n_dims - 1] : 0;
    if (q.n_dims != (is_cached ? 2 : 3) || !wfi_shape_equal(&k, &like) ||
        !wfi_shape_equal(&v, &like))
        return wfi_op_fail(g, node, WF_SHAPE, "q %s, k %s and v %s do not fit", wfi_show(&q).text,
                           wfi_show(&k).text, wfi_show(&v).text);
    if (is_cached && wfi_in_shape(g, node, 3).dim[0] != q.dim[0])
        return wfi_op_fail(g, node, WF_SHAPE, "q %s and its positions do not fit",
                           wfi_show(&q).text);
    WF_TRY(check_heads(g, node, wfi_last_dim(&q), wfi_last_dim(&k)));
    q.dim[q.n_dims - 1] += 2 * wfi_last_dim(&k);
    return wfi_node_output(g, node, WF_F32, &q);
}

static wf_status rotary_backward_check(wf_graph *g, wfi_node *node) {
    wf_shape q = wfi_in_shape(g, node, 0), k = q;
    int64_t n = node->attr.rotary.n_heads, n_keys = node->attr.rotary.n_keys;
    int64_t d = q.dim[2] / (n + 2 * n_keys);
    q.dim[2] = n * d;
    k.dim[2] = n_keys * d;
    WF_TRY(wfi_node_output(g, node, WF_F32, &q));
    WF_TRY(wfi_node_output(g, node, WF_F32, &k));
    return wfi_node_output(g, node, WF_F32, &k);
}

/* Of rows of n_heads heads. */
static wfi_numbers numbers_of(const wfi_attr *a, const wf_shape *shape, int64_t n_heads,
                              bool has_places) {
    int64_t n_rows = wfi_n_rows(shape), t = shape->n_dims > 2 ? shape->dim[1] : 1;
    int64_t d = wfi_last_dim(shape) / n_heads;
    double factor = a->rotary.factor, between = a->rotary.high - a->rotary.low;
    double turns = (double)a->rotary.n_positions / TWO_PI;
    if (factor == 0) factor = between = 1; /* the kernel divides by neither */
    return (wfi_numbers){
        .n_threads = n_rows * (d / 2),
        .n = {n_rows, t, d, a->rotary.n_heads, a->rotary.n_keys, has_places},
        .f = {log(a->rotary.theta), 1 / factor, turns / between, a->rotary.low / between}};
}

static wfi_numbers rotary_numbers(const wfi_call *call) {
    bool has_places = call->n_in > 3 && call->in[3].shape.n_dims > 0;
    return numbers_of(call->attr, &call->in[0].shape, call->attr->rotary.n_heads, has_places);
}

static wfi_numbers rotary_backward_numbers(const wfi_call *call) {
    int64_t n_heads = call->attr->rotary.n_heads + 2 * call->attr->rotary.n_keys;
    return numbers_of(call->attr, &call->in[0].shape, n_heads, false);
}

PLAIN_REFERENCE(rotary_reference, rotary, rotary_numbers)
PLAIN_REFERENCE(rotary_backward_reference, rotary_backward, rotary_backward_numbers)

static bool divide_heads(wfi_attr *attr, const wfi_op_part *part) {
    bool divides = attr->rotary.n_heads % part->n == 0 && attr->rotary.n_keys % part->n == 0;
    if (!divides) return false;
    attr->rotary.n_heads /= part->n;
    attr->rotary.n_keys /= part->n;
    return true;
}

static const wfi_op_sample rotary_samples[] = {
    {.n_in = 3,
     .in = {WFI_DIMS(2, 3, 16), WFI_DIMS(2, 3, 8), WFI_DIMS(2, 3, 8)},
     .attr = {.rotary = {4, 2, 100}}},
    {.n_in = 3,
     .in = {WFI_DIMS(2, 5, 12), WFI_DIMS(2, 5, 12), WFI_DIMS(2, 5, 12)},
     .attr = {.rotary = {3, 3, 10000}}},
    {.n_in = 3,
     .in = {WFI_DIMS(1, 9, 16), WFI_DIMS(1, 9, 8), WFI_DIMS(1, 9, 8)},
     .attr = {.rotary = {2, 1, 100, 8, 0.5, 4, 16}}},
    {0}};

static bool is_grouped(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return node->attr.rotary.n_keys != node->attr.rotary.n_heads;
}

static bool is_not_grouped(const wf_graph *g, const wfi_node *node) {
    return !is_grouped(g, node);
}

#define CUT_HEADS(blocks_of_output, when)                                                          \
    {                                                                                              \
        .name = "heads", .in = {-1, -1, -1}, .out = {-1}, .n_blocks = (blocks_of_output),          \
        .blocks = 1 << 3, .applies = (when), .divide = divide_heads                                \
    }

static const wfi_op_cut rotary_place[] = {{.name = "samples", .in = {1, 1, 1}, .out = {1}},
                                          CUT_HEADS(3, is_not_grouped),
                                          CUT_HEADS(WFI_UNEQUAL, is_grouped),
                                          {0}};

const wfi_op wfi_op_rotary = {
    .name = "rotary",
    .flags = WFI_OP_CHEAP,
    .roles = {.place_in = 1 << 3},
    .tolerance = 1e-5f,
    .check = rotary_check,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_rotary_backward, .in = {WFI_DY}, .n_to = 3}, {0}},
    .work = {3, WFI_Y},
    .reference = rotary_reference,
    .numbers = rotary_numbers,
    .samples = rotary_samples,
    .place = rotary_place,
};

const wfi_op wfi_op_rotary_backward = {
    .name = "rotary_backward",
    .tolerance = 1e-5f,
    .check = rotary_backward_check,
    .work = {3, WFI_X},
    .reference = rotary_backward_reference,
    .numbers = rotary_backward_numbers,
};

wf_tensor wf_rotary(wf_tensor q, wf_tensor k, wf_tensor v, wf_tensor positions, int64_t n_heads,
                    int64_t n_keys, float theta) {
    return wf_rotary_scaled(q, k, v, positions, n_heads, n_keys, theta, 0, 0, 0, 0);
}

wf_tensor wf_rotary_scaled(wf_tensor q, wf_tensor k, wf_tensor v, wf_tensor positions,
                           int64_t n_heads, int64_t n_keys, float theta, double factor, double low,
                           double high, int64_t n_positions) {
    wfi_attr attr = {.rotary = {n_heads, n_keys, theta, factor, low, high, n_positions}};
    return wfi_build(&wfi_op_rotary, &attr, NULL, positions.id >= 0 ? 4 : 3,
                     (wf_tensor[]){q, k, v, positions});
}
