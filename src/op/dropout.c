/* Dropout: the mask is a function of (seed, name, step, sample, element), so it is the same in the
 * forward, the backward and a recomputation, on any rank.
 *
 * dropout(x) -> y, dropout_backward(dy) -> dx; attr.dropout */
#include "op/check.h"

#define DRAWN_AT_ONCE 256

static wf_status dropout_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape x = wfi_in_shape(g, node, 0);
    double p = node->attr.dropout.p;
    if (!(p >= 0 && p < 1))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "p is %g, but must be in [0, 1)", p);
    /* Elements are counted from the sample's first, in every microbatch. */
    bool is_part = node->attr.dropout.sample_size > 0;
    if (!is_part && (x.n_dims < 1 || x.dim[0] != g->batch))
        return wfi_op_fail(g, node, WF_SHAPE,
                           "the first dim of %s is not the microbatch's %lld "
                           "samples",
                           wfi_show(&x).text, (long long)g->batch);
    return wfi_node_output(g, node, WF_F32, &x);
}

static void drop(wfi_random_key key, const wfi_step_args *step, double p, uint64_t first, int64_t n,
                 const float *x, float *y) {
    double factor = 1 / (1 - p);
    float uniform[DRAWN_AT_ONCE];
    for (int64_t i = 0; i < n; i += DRAWN_AT_ONCE) {
        int64_t n_drawn = wfi_min_i64(DRAWN_AT_ONCE, n - i);
        wfi_random_fill_uniform(key, step->step, first + (uint64_t)i, n_drawn, uniform);
        for (int64_t k = 0; k < n_drawn; k++)
            y[i + k] = uniform[k] >= p ? (float)(x[i + k] * factor) : 0;
    }
}

/* A part draws the same mask for its elements as the whole op. */
static wfi_numbers dropout_numbers(const wfi_call *call) {
    const wf_shape *shape = &call->in[0].shape;
    const wfi_attr *a = call->attr;
    int64_t n_total = wf_shape_n_elem(shape), sample_size = n_total / shape->dim[0];
    int64_t run = a->dropout.run ? a->dropout.run : n_total;
    int64_t stride = a->dropout.run ? a->dropout.stride : n_total;
    if (a->dropout.run) sample_size = sample_size / run * stride;
    if (a->dropout.sample_size) sample_size = a->dropout.sample_size;
    return (wfi_numbers){
        .n_threads = n_total,
        .n = {n_total, run, a->dropout.first, stride, sample_size, (int64_t)a->dropout.name},
        .f = {a->dropout.p}};
}

static void dropout_reference(const wfi_call *call) {
    const wfi_numbers told = dropout_numbers(call);
    const wfi_attr *a = call->attr;
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    wfi_random_key key = {call->step->seed, a->dropout.name};
    uint64_t first = (uint64_t)(call->step->first_sample * told.n[4] + told.n[2]);
    for (int64_t i = 0; i < told.n[0]; i += told.n[1], first += (uint64_t)told.n[3])
        drop(key, call->step, a->dropout.p, first, told.n[1], x + i, y + i);
}

static bool divide_elements(wfi_attr *attr, const wfi_op_part *part) {
    attr->dropout.run = (part->end - part->begin) * part->inner;
    attr->dropout.first = part->begin * part->inner;
    attr->dropout.stride = part->length * part->inner;
    return true;
}

/* By a dim of samples, not by samples. */
static const wfi_op_cut dropout_place[] = {
    {.name = "elements", .in = {WFI_ANY_DIM}, .out = {WFI_ANY_DIM}, .divide = divide_elements},
    {0}};

static const wfi_op_sample dropout_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(1, 5, 9)}, .attr = {.dropout = {0.4, 7}}}, {0}};

const wfi_op wfi_op_dropout = {
    .name = "dropout",
    .flags = WFI_OP_CHEAP | WFI_OP_READS_STEP,
    .overwrites = 1 << 0,
    .tolerance = 1e-7f,
    .check = dropout_check,
    .backward = (const wfi_op_backward[]){{.op = &wfi_op_dropout_backward, .in = {WFI_DY}}, {0}},
    .work = {20, WFI_Y}, /* ten rounds of Philox for every four elements */
    .reference = dropout_reference,
    .numbers = dropout_numbers,
    .samples = dropout_samples,
    .place = dropout_place,
};

const wfi_op wfi_op_dropout_backward = {
    .name = "dropout_backward",
    .flags = WFI_OP_READS_STEP,
    .overwrites = 1 << 0,
    .tolerance = 1e-7f,
    .check = dropout_check,
    .work = {20, WFI_Y},
    .reference = dropout_reference,
    .numbers = dropout_numbers,
};

/* Two of one name would drop the same elements. */
static bool name_is_taken(const wf_graph *g, uint64_t name) {
    for (int32_t n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == &wfi_op_dropout && g->nodes[n].attr.dropout.name == name) return true;
    return false;
}

wf_tensor wf_dropout(wf_tensor x, const char *name, float p) {
    wf_graph *g = x.graph;
    if (!g || x.id < 0 || g->status != WF_OK) return x;
    /* Training graphs and others have the same units. */
    if (p != 0) g->units[g->n_units - 1].is_passed = true;
    if (!g->training || p == 0) return x;
    char *full = wfi_pool_format(&g->pool, "%s%s", g->scope, name);
    if (!full) {
        g->status = WF_NO_MEMORY;
        return wfi_inert(g);
    }
    wfi_attr attr = {.dropout = {.p = p, .name = wfi_random_name(full)}};
    if (name_is_taken(g, attr.dropout.name)) {
        wfi_graph_fail(g, WF_INVALID_ARG,
                       "dropout: two are called '%s'; their masks would be equal", full);
        return wfi_inert(g);
    }
    return wfi_build(&wfi_op_dropout, &attr, NULL, 1, &x);
}
