/* Kernels of a kind of devices that compile them against the plain C ones: every op's samples with
 * their backward, in and out of place, the update; and what an address of their memory is.
 */
#pragma once

#include "base/finite.h"
#include "kernel/gpu/gpu.h"
#include "op_case.h"
#include "pass/pass.h"

#include <math.h>

#define ARENA_BYTES ((size_t)2 << 20)
#define LONG_BYTES  ((size_t)40 << 20)
#define SKIPPED     77

static const wfi_backend *backend;
static wf_status strange_status; /* of what is copied from an address that is not the device's */
static const char *strange_sentence;
static wf_context *ctx;
static wfi_failure failure;
static wfi_device *device;
static wfi_stream_queue *stream;
static size_t arena_bytes = ARENA_BYTES;
static char *arena;
static unsigned char *host;  /* what the arena is filled with, and read to */
static int n_ways, n_adding; /* that have been checked, of libraries */
static bool is_narrow;       /* what is not a weight or a sum is BF16 */
static bool skips_nodes;     /* compiling the kernels of all takes most of the time */
static bool is_tf32;         /* what is multiplied in F32 */
static unsigned rounded_ops; /* of multiplied_ops, those whose results show it */
static bool was_seen[256];   /* by place in the table of ops */

/* What a library multiplies, as TF32 if it is asked to; other ops are as near as ever. */
static const wfi_op *const multiplied_ops[] = {&wfi_op_linear,
                                               &wfi_op_linear_backward_data,
                                               &wfi_op_linear_backward_weight,
                                               &wfi_op_matmul,
                                               &wfi_op_conv2d,
                                               &wfi_op_conv2d_backward_data,
                                               &wfi_op_conv2d_backward_weight,
                                               &wfi_op_self_attention,
                                               &wfi_op_self_attention_backward,
                                               &wfi_op_lstm_backward};

static int begin(void **state) {
    const wfi_owner owner = {.ctx = ctx, .timeout_ms = 600000, .failure = &failure};
    void *base;
    failure = (wfi_failure){0};
    TEST_OK(ctx, wfi_device_create(&owner, backend->device, 0, 1, &device));
    TEST_OK(ctx, wfi_stream_create(device, "compute", 0, NULL, &stream));
    TEST_OK(ctx, device->kind->memory_create(device, WFI_SPACE_DEVICE, arena_bytes, &base));
    arena = base;
    host = malloc(arena_bytes);
    return host ? 0 : -1;
}

static int end(void **state) {
    wfi_stream_destroy(stream);
    device->kind->memory_destroy(device, WFI_SPACE_DEVICE, arena, arena_bytes);
    wfi_device_destroy(device);
    free(host);
    return 0;
}

/* Runs on the stream, to its end. */
static void run(wfi_task task, void *self) {
    TEST_OK(ctx, wfi_stream_push(stream, task, self, NULL));
    TEST_OK(ctx, wfi_event_wait(wfi_stream_record(stream)));
}

static void put(void) {
    TEST_OK(ctx, wfi_memory_copy(device, NULL, arena, WFI_SPACE_DEVICE, host, WFI_SPACE_HOST,
                                 arena_bytes));
}

static void get(void) {
    TEST_OK(ctx, wfi_memory_copy(device, NULL, host, WFI_SPACE_HOST, arena, WFI_SPACE_DEVICE,
                                 arena_bytes));
}

/* ---- nodes ---- */

typedef struct one_node {
    const graph_walk *w;
    const wf_graph *g; /* as the kernel sees it: types may be others */
    const wfi_node *node;
    wfi_kernel *kernel;
    size_t at[WFI_MAX_OPERANDS], scratch_at;
    size_t plain_at[WFI_MAX_OPERANDS]; /* of an input that is packed; else 0 */
    int over;                          /* the input that the first output lies over; -1: none */
} one_node;

/* An input as the kernel's library wants it, from where it lies as it is. */
static wf_status pack(const one_node *n, int i) {
    const wf_shape *shape = &n->g->values[n->node->in[i]].shape;
    wfi_kernel *kernel;
    WF_TRY(wfi_kernel_create_pack(ctx, &n->kernel->options, n->kernel->format[i], shape, &kernel));
    wf_status status = wfi_kernel_prepare(kernel);
    if (status == WF_OK)
        status =
            wfi_kernel_run(kernel, stream, (void *[]){arena + n->plain_at[i], arena + n->at[i]},
                           NULL, &n->w->step);
    wfi_kernel_destroy(kernel);
    return status;
}

static wf_status run_node(void *self, void *argument) {
    const one_node *n = self;
    void *operands[WFI_MAX_OPERANDS] = {NULL};
    for (int i = 0; i < n->kernel->n_operands; i++) {
        if (n->kernel->bytes[i]) operands[i] = arena + n->at[i];
        if (n->plain_at[i]) WF_TRY(pack(n, i));
    }
    return wfi_kernel_run(n->kernel, stream, operands,
                          n->kernel->scratch_bytes ? arena + n->scratch_at : NULL, &n->w->step);
}

static int32_t operand_of(const wfi_node *node, int i) {
    return i < node->n_in ? node->in[i] : node->out[i - node->n_in];
}

static const wfi_value *value_at(const one_node *n, int i) {
    int32_t v = operand_of(n->node, i);
    return v < 0 ? NULL : wfi_value_at(n->g, v);
}

static float round_one(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (x != x ? bits : bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void narrow_down(const float *from, size_t n, unsigned char *to) {
    for (size_t k = 0; k < n; k++) {
        float x = round_one(from[k]);
        memcpy(to + 2 * k, (char *)&x + 2, 2);
    }
}

/* Inputs are what the reference had, if nothing has written over them since; what is added to is
 * its result. */
static void place(one_node *n, void *const *inputs) {
    size_t at = 64;
    memset(host, 0xff, arena_bytes);
    for (int i = 0; i < n->kernel->n_operands; i++) {
        size_t bytes = n->kernel->bytes[i];
        n->at[i] = i == n->node->n_in && n->over >= 0 ? n->at[n->over] : at;
        bool is_packed = i < n->node->n_in && bytes && n->kernel->format[i];
        n->plain_at[i] = is_packed ? at + wfi_round_up(bytes, 64) + 64 : 0;
        if (is_packed) {
            size_t plain_bytes = wfi_value_bytes(n->g, n->node->in[i]);
            memcpy(host + n->plain_at[i], inputs[i], plain_bytes);
            at = n->plain_at[i] + wfi_round_up(plain_bytes, 64) - wfi_round_up(bytes, 64);
        } else if (i < n->node->n_in && bytes && value_at(n, i)->dtype == WF_BF16)
            narrow_down(inputs[i], bytes / 2, host + at);
        else if (i < n->node->n_in && bytes)
            memcpy(host + at, inputs[i], bytes);
        if (i >= n->node->n_in && n->kernel->adds)
            memcpy(host + at, n->w->data[operand_of(n->node, i)], bytes);
        at += wfi_round_up(bytes, 64) + 64;
        assert_true(at < arena_bytes);
    }
    n->scratch_at = at;
    assert_true(at + n->kernel->scratch_bytes < arena_bytes);
}

static double number_at(wf_dtype dtype, const void *data, int64_t k) {
    uint32_t wide = dtype == WF_BF16 ? (uint32_t)((const uint16_t *)data)[k] << 16 : 0;
    float x;
    memcpy(&x, &wide, sizeof x);
    if (dtype == WF_BF16) return (double)x;
    return dtype == WF_F64 ? ((const double *)data)[k] : (double)((const float *)data)[k];
}

static void compare(const one_node *n, int i) {
    const wfi_value *value = value_at(n, i);
    /* An LSTM's workspace is numbers that nobody but its own backward reads. */
    if (!value || (value->opaque && n->node->op == &wfi_op_lstm)) return;
    wf_dtype own = wfi_value_at(n->w->g, operand_of(n->node, i))->dtype;
    const void *data = n->w->data[operand_of(n->node, i)];
    bool is_exact = n->node->op == &wfi_op_dropout || n->node->op == &wfi_op_dropout_backward;
    bool is_real = (own == WF_F32 && (value->dtype == WF_BF16 || !is_exact)) || own == WF_F64;
    double bound = (double)n->node->op->tolerance + (is_narrow && own == WF_F32 ? 0.008 : 0);
    double error = 0, norm = 0;
    for (int64_t k = 0; is_real && k < wf_shape_n_elem(&value->shape); k++) {
        double want = number_at(own, data, k) * (n->kernel->adds ? 2 : 1);
        double got = number_at(value->dtype, host + n->at[i], k);
        if (isnan(got) && isnan(want)) continue;
        error += pow(got - want, 2);
        norm += pow(want, 2);
    }
    if (!is_real) error = memcmp(data, host + n->at[i], n->kernel->bytes[i]) != 0;
    for (size_t k = 0; k < WFI_COUNT(multiplied_ops); k++) {
        if (!is_tf32 || n->node->op != multiplied_ops[k]) continue;
        rounded_ops |= (unsigned)(sqrt(error) > 1e-4 * sqrt(norm)) << k;
        bound += 0.001;
    }
    if (!(sqrt(error) <= bound * sqrt(norm) + 1e-12))
        fail_msg("%s: output %d (over input %d) is %.3g off, of %.3g", n->node->op->name,
                 i - n->node->n_in, n->over, sqrt(error), sqrt(norm));
}

/* Nothing beside the outputs is written. */
static void check_gaps(const one_node *n) {
    for (int i = n->node->n_in; i < n->kernel->n_operands; i++)
        memset(host + n->at[i], 0xff, n->kernel->bytes[i]);
    for (int i = 0; i < n->node->n_in; i++) {
        memset(host + n->at[i], 0xff, n->kernel->bytes[i]);
        if (n->plain_at[i])
            memset(host + n->plain_at[i], 0xff, wfi_value_bytes(n->g, n->node->in[i]));
    }
    memset(host + n->scratch_at, 0xff, n->kernel->scratch_bytes);
    for (size_t i = 0; i < arena_bytes; i++)
        if (host[i] != 0xff) fail_msg("%s writes at byte %zu", n->node->op->name, i);
}

static void check_node(one_node *n, void *const *inputs) {
    for (n->over = -1; n->over < n->node->n_in; n->over++) {
        bool may = n->over < 0 || (n->node->op->overwrites >> n->over & 1 &&
                                   n->kernel->bytes[n->over] == n->kernel->bytes[n->node->n_in]);
        if (!may) continue;
        place(n, inputs);
        put();
        run(run_node, n);
        get();
        for (int i = 0; i < n->kernel->n_operands; i++)
            if (i >= n->node->n_in || n->node->op->roles.cache_in >> i & 1) compare(n, i);
        check_gaps(n);
    }
}

static void check_kernel(one_node *n, void *const *inputs, wfi_kernel *kernel) {
    n->kernel = kernel;
    TEST_OK(ctx, wfi_kernel_prepare(kernel));
    check_node(n, inputs);
}

/* The usual way, which is given, all others that a library has, and one that adds. */
static void check_ways(one_node *n, void *const *inputs, const wfi_kernel_options *options,
                       wfi_kernel *usual) {
    wfi_kernel *other;
    check_kernel(n, inputs, usual);
    for (wfi_way way = {usual->way.form, 0}; wfi_forms(usual->impl, usual->node->op);
         way.number++) {
        TEST_OK(ctx, wfi_kernel_create_way(ctx, n->g, n->node, options, usual->impl, way, &other));
        if (!other) break;
        check_kernel(n, inputs, other);
        wfi_kernel_destroy(other);
        n_ways++;
    }
    TEST_OK(ctx, wfi_kernel_create_adding(ctx, n->g, n->node, options, &other));
    if (other) check_kernel(n, inputs, other);
    n_adding += other != NULL;
    wfi_kernel_destroy(other);
    wfi_kernel_destroy(usual);
}

/* A result that is kept in F32, of whatever node. */
static bool is_wide_result(const wf_graph *g, int32_t v) {
    const wfi_node *node = v >= 0 && g->values[v].node >= 0 ? &g->nodes[g->values[v].node] : NULL;
    for (int i = 0; node && i < node->n_out; i++)
        if (node->out[i] == v && node->op->roles.wide_out >> i & 1) return true;
    return false;
}

/* Types as a graph that is trained in BF16 has them, of one node: `g`, of these values. */
static void set_types(const wf_graph *from, const wfi_node *node, wfi_value *values, wf_graph *g) {
    *g = *from;
    memcpy(values, from->values, (size_t)from->n_values * sizeof *values);
    g->values = values;
    for (int i = 0; i < node->n_in + node->n_out && is_narrow; i++) {
        int32_t v = operand_of(node, i);
        int out = i - node->n_in;
        bool is_wide = out < 0 ? (node->op->roles.weight_in | node->op->roles.cache_in) >> i & 1
                               : (node->op->roles.wide_out | node->op->roles.weight_out) >> out & 1;
        is_wide |= is_wide_result(from, v);
        if (v >= 0 && values[v].dtype == WF_F32 && values[v].shape.n_dims >= 2 && !is_wide)
            values[v].dtype = WF_BF16;
    }
}

/* What the reference sees of inputs that are BF16, or of weights that count as if they were. */
static void round_inputs(graph_walk *w, const wf_graph *g, const wfi_node *node) {
    for (int i = 0; i < node->n_in; i++) {
        int32_t v = node->in[i];
        bool is_weight = node->op->roles.weight_in >> i & 1;
        if (v < 0 || (g->values[v].dtype != WF_BF16 &&
                      !(is_weight && g->values[node->in[0]].dtype == WF_BF16)))
            continue;
        float *x = w->data[v];
        for (int64_t k = 0; k < wf_shape_n_elem(&g->values[v].shape); k++) x[k] = round_one(x[k]);
    }
}

static void check_one(graph_walk *w, const wfi_node *node) {
    const wfi_kernel_options options = {
        .backend = backend, .n_threads = 1, .multiplies_tf32 = is_tf32};
    void *inputs[WFI_MAX_INPUTS] = {NULL};
    wfi_value *values = malloc((size_t)w->g->n_values * sizeof *values);
    wf_graph g;
    one_node n = {.w = w, .g = &g, .node = node};
    set_types(w->g, node, values, &g);
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] < 0) continue;
        size_t bytes = wfi_value_bytes(w->g, node->in[i]);
        inputs[i] = memcpy(malloc(bytes + 1), w->data[node->in[i]], bytes);
    }
    round_inputs(w, &g, node);
    walk_node(w, node);
    if (!wfi_node_is_alias(w->g, node)) {
        TEST_OK(ctx, wfi_kernel_create(ctx, &g, node, &options, &n.kernel));
        check_ways(&n, inputs, &options, n.kernel);
    }
    for (int op = 0; wfi_op_table[op]; op++) was_seen[op] |= wfi_op_table[op] == node->op;
    for (int i = 0; i < node->n_in; i++) free(inputs[i]);
    free(values);
}

/* Every node of the graph, forward and backward. */
static void check_graph(const op_case *c, wf_graph *g) {
    graph_walk w;
    walk_create(&w, g);
    w.step.seed = UINT64_C(0x123456789abcdef0);
    case_fill_values(c, &w);
    for (int32_t k = 0; k < g->n_nodes; k++)
        if (!g->nodes[k].dead) check_one(&w, &g->nodes[k]);
    walk_destroy(&w);
}

/* The only op without a kernel: to and from layouts that these devices do not have. */
static bool has_kernel(const wfi_op *op) {
    return op != &wfi_op_reorder;
}

/* In BF16 kernels are other programs, and to compile them takes long: without WEFT_TEST_FULL one of
 * each file. */
static bool is_tried(const wfi_op *op) {
    static const wfi_op *const few[] = {
        &wfi_op_gelu,   &wfi_op_dropout,    &wfi_op_cross_entropy, &wfi_op_embedding,
        &wfi_op_linear, &wfi_op_batch_norm, &wfi_op_max_pool,      &wfi_op_cached_attention};
    bool is = !is_narrow || test_is_full();
    for (size_t k = 0; k < WFI_COUNT(few); k++) is |= op == few[k];
    for (size_t k = 0; k < WFI_COUNT(multiplied_ops) && backend->has_tf32; k++)
        is |= op == multiplied_ops[k]; /* not by what is compiled */
    return is && has_kernel(op);
}

static void check_samples(void) {
    for (int op = 0; wfi_op_table[op]; op++) {
        const wfi_op *about = wfi_op_table[op];
        for (int k = 0; about->samples && about->samples[k].n_in && is_tried(about); k++) {
            char name[64];
            op_case c = case_of_sample(op, k, name);
            wf_graph_config config = WF_GRAPH_CONFIG_INIT;
            scoped_graph g;
            config.training = about->gradient || about->backward;
            TEST_OK(ctx, wf_graph_create(ctx, &config, case_model, &c, &g));
            check_graph(&c, g);
        }
    }
}

static void every_op_agrees_with_plain_c(void **state) {
    if (skips_nodes) return;
    check_samples();
    for (int op = 0; wfi_op_table[op]; op++) {
        const char *name = wfi_op_table[op]->name;
        if (was_seen[op] && !has_kernel(wfi_op_table[op])) fail_msg("%s has a kernel now", name);
        if (!was_seen[op] && is_tried(wfi_op_table[op])) fail_msg("%s was not tried", name);
    }
}

static void and_in_bf16(void **state) {
    if (skips_nodes) return;
    is_narrow = true;
    check_samples();
    is_narrow = false;
}

static void and_in_tf32(void **state) {
    if (!backend->has_tf32) return;
    is_tf32 = true;
    check_samples();
    is_tf32 = false;
    assert_int_equal(rounded_ops, (1 << WFI_COUNT(multiplied_ops)) - 1);
}

/* Sizes beyond a tile, a group and the columns that a thread has; a ReLU fused, with and without an
 * addend; groups. */
static void large_model(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(6, 11, 9));
    wf_tensor ids = wf_input(g, "ids", WF_I32, WF_SHAPE(70));
    x = wf_conv2d(x, "c1", 48, 3, (wf_conv2d_shape){.pad = 1});
    x = wf_relu(wf_batch_norm(x, "bn"));
    wf_tensor other = wf_batch_norm(wf_conv2d(x, "c3", 48, 1, (wf_conv2d_shape){0}), "bn3");
    x = wf_relu(wf_add(other, x));
    x = wf_conv2d(x, "c2", 36, 3, (wf_conv2d_shape){.stride = 2, .groups = 4});
    x = wf_gelu(wf_max_pool(wf_dropout(x, "drop", 0.3f), 2, 2, 0));
    x = wf_reshape(x, WF_SHAPE(-1, 36 * 4));
    x = wf_add(wf_linear(x, "fc", 70), wf_linear(wf_linear(x, "one", 1), "back", 70));
    wf_tensor y = wf_embedding(ids, "rows", 9, 300, 1);
    y = wf_self_attention(wf_linear(wf_layer_norm(y, "ln"), "qkv", 3 * 70), 1, 1);
    wf_tensor z = wf_softmax(wf_reshape(wf_mean(y, 2), WF_SHAPE(-1, 70)));
    wf_loss(wf_cross_entropy(wf_add(x, z), wf_input(g, "labels", WF_I32, WF_SCALAR)));
}

static void check_model(wf_model_function model, int64_t batch) {
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    scoped_graph g;
    config.batch = batch;
    TEST_OK(ctx, wf_graph_create(ctx, &config, model, NULL, &g));
    graph_walk w;
    walk_create(&w, g);
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = &g->values[v];
        for (int64_t k = 0; value->node < 0 && k < wf_shape_n_elem(&value->shape); k++) {
            if (value->dtype == WF_I32) ((int32_t *)w.data[v])[k] = (int32_t)(k * 7 % 9);
            if (value->dtype == WF_F32) ((float *)w.data[v])[k] = walk_uniform((uint64_t)v, k);
        }
    }
    for (int32_t k = 0; k < g->n_nodes; k++)
        if (!g->nodes[k].dead) check_one(&w, &g->nodes[k]);
    walk_destroy(&w);
}

static void large_nodes_agree(void **state) {
    if (skips_nodes) return;
    check_model(large_model, 3);
}

/* More scores than are there at once: a head after the other, also of those that share one of
 * keys. The window is longer than a group. */
static void long_model(wf_graph *g, const void *config) {
    wf_tensor y = wf_embedding(wf_input(g, "ids", WF_I32, WF_SHAPE(1700)), "rows", 9, 18, 1);
    wf_tensor turned = wf_rotary(wf_slice(y, 2, 0, 6), wf_slice(y, 2, 6, 2), wf_slice(y, 2, 8, 2),
                                 (wf_tensor){g, -1}, 3, 1, 100);
    y = wf_mean(wf_add(wf_self_attention(y, 3, 100), wf_self_attention(turned, 3, 1)), 1);
    wf_loss(wf_cross_entropy(y, wf_input(g, "labels", WF_I32, WF_SCALAR)));
}

static void long_texts_agree(void **state) {
    assert_int_equal(end(state), 0);
    arena_bytes = LONG_BYTES;
    assert_int_equal(begin(state), 0);
    check_model(long_model, 1);
    assert_int_equal(end(state), 0);
    arena_bytes = ARENA_BYTES;
    assert_int_equal(begin(state), 0);
}

/* ---- what is no node ---- */

#define N 3000

typedef struct step_call {
    wfi_update_call update;
    wfi_statistics_call statistics;
} step_call;

static wf_status run_update(void *self, void *argument) {
    const step_call *c = self;
    return backend->update(stream, &c->update);
}

/* With the CPU's bits: there is nothing in it but IEEE's operations. */
static void updates_have_the_cpus_bits(void **state) {
    static const wf_optimizer optimizers[] = {WF_SGD, WF_SGD, WF_ADAM, WF_ADAMW};
    const wfi_param_group group = {N * sizeof(float), true, 1};
    for (size_t k = 0; k < WFI_COUNT(optimizers); k++) {
        wf_recipe recipe = WF_RECIPE_INIT;
        float want[5][N]; /* gradient, parameter, states */
        int64_t cell = 0, own_cell = 0;
        recipe.optimizer = optimizers[k];
        recipe.momentum = k == 1 ? 0.9 : 0;
        recipe.nesterov = k == 1;
        recipe.weight_decay = 0.01;
        recipe.ema = k % 2 ? 0.99 : 0;
        for (int i = 0; i < 5; i++)
            for (int e = 0; e < N; e++) want[i][e] = fabsf(walk_uniform((uint64_t)i, e));
        memcpy(host, want, sizeof want);
        put();
        float *base = (float *)(void *)arena;
        step_call c = {.update = {.recipe = &recipe,
                                  .lr = 0.1,
                                  .step = 2,
                                  .gradient = base,
                                  .param = base + N,
                                  .state = {base + 2 * N, base + 3 * N, base + 4 * N},
                                  .n = N,
                                  .groups = &group,
                                  .not_finite = &cell}};
        run(run_update, &c);
        get();
        c.update.gradient = want[0];
        c.update.param = want[1];
        for (int i = 0; i < WFI_MAX_STATES; i++) c.update.state[i] = want[2 + i];
        TEST_OK(ctx, wfi_backend_cpu.update(NULL, &c.update));
        assert_memory_equal(host, want, sizeof want);
        assert_int_equal(cell, 0);
        /* A number that is none is seen, and the next update begins anew. */
        want[0][N - 1] = NAN;
        memcpy(host, want, sizeof want);
        put();
        c.update.gradient = base;
        c.update.param = base + N;
        for (int i = 0; i < WFI_MAX_STATES; i++) c.update.state[i] = base + (2 + i) * N;
        run(run_update, &c);
        assert_int_equal(wfi_not_finite_what(cell), WFI_FINITE_NO_GRADIENT);
        c.update.n = N - 1;
        c.update.not_finite = &own_cell;
        run(run_update, &c);
        assert_int_equal(own_cell, 0);
    }
}

static wf_status run_squares(void *self, void *argument) {
    return backend->squares(stream, (const float *)(const void *)arena, N,
                            (double *)(void *)(arena + 4 * N));
}

/* Of a unit with the squares, one without any, and one with the first of them again. */
static wf_status run_total_norm(void *self, void *argument) {
    double *squares = (double *)(void *)(arena + 4 * N);
    const wfi_squares units[] = {{squares, 3}, {NULL, 0}, {squares, 1}};
    return backend->total_norm(stream, units, 3, squares + 3, self);
}

static void squares_have_the_cpus_bits(void **state) {
    double want[4], norm, own_norm;
    for (int e = 0; e < N; e++) ((float *)(void *)host)[e] = walk_uniform(1, e);
    wfi_gradient_squares(WFI_BASELINE, (const float *)(const void *)host, N, want);
    const wfi_squares units[] = {{want, 3}, {NULL, 0}, {want, 1}};
    TEST_OK(ctx, wfi_backend_cpu.total_norm(NULL, units, 3, &want[3], &own_norm));
    put();
    run(run_squares, NULL);
    run(run_total_norm, &norm);
    get();
    assert_memory_equal(host + 4 * N, want, sizeof want);
    assert_memory_equal(&norm, &own_norm, sizeof norm);
}

/* ---- memory ---- */

static wf_status copy_away(void *self, void *argument) {
    return wfi_memory_copy(device, stream, self, WFI_SPACE_HOST, self, WFI_SPACE_DEVICE, 4);
}

/* Between all spaces; an address of the host is refused as one of the device. */
static void spaces_and_addresses(void **state) {
    void *disk, *own;
    size_t bytes = (9 << 20) + 12; /* in pieces */
    char *from = malloc(bytes), *to = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) from[i] = (char)(i * 7 + i / 251);
    TEST_OK(ctx, device->kind->memory_create(device, WFI_SPACE_DISK, bytes, &disk));
    TEST_OK(ctx, device->kind->memory_create(device, WFI_SPACE_DEVICE, bytes, &own));
    TEST_OK(ctx, wfi_memory_copy(device, NULL, own, WFI_SPACE_DEVICE, from, WFI_SPACE_HOST, bytes));
    TEST_OK(ctx, wfi_memory_copy(device, NULL, disk, WFI_SPACE_DISK, own, WFI_SPACE_DEVICE, bytes));
    TEST_OK(ctx, wfi_memory_fill(device, NULL, own, WFI_SPACE_DEVICE, 3, bytes));
    TEST_OK(ctx, wfi_memory_copy(device, NULL, to, WFI_SPACE_HOST, own, WFI_SPACE_DEVICE, bytes));
    for (size_t i = 0; i < bytes; i++) assert_int_equal(to[i], 3);
    TEST_OK(ctx, wfi_memory_copy(device, NULL, own, WFI_SPACE_DEVICE, disk, WFI_SPACE_DISK, bytes));
    TEST_OK(ctx, wfi_memory_copy(device, NULL, to, WFI_SPACE_HOST, own, WFI_SPACE_DEVICE, bytes));
    assert_memory_equal(from, to, bytes);
    device->kind->memory_destroy(device, WFI_SPACE_DISK, disk, bytes);
    device->kind->memory_destroy(device, WFI_SPACE_DEVICE, own, bytes);
    /* What is asked of a stream fails the task that asked. */
    TEST_OK(ctx, wfi_stream_push(stream, copy_away, from, NULL));
    TEST_REFUSED(ctx, wfi_event_wait(wfi_stream_record(stream)), strange_status, strange_sentence);
    free(from);
    free(to);
}

static wf_status add_all(void *self, void *argument) {
    size_t half = arena_bytes / 2 / sizeof(float);
    float *sum = (float *)(void *)arena + (self == stream ? 0 : half);
    return backend->add(self, sum, sum + half / 2, *(const size_t *)argument);
}

/* A driver that knows kernels by how many threads they have does not mistake them: each is wider
 * than all before. */
static void kernels_grow_beside_each_other(void **state) {
    size_t n[128];
    wfi_stream_queue *other, *streams[2] = {stream};
    memset(host, 0, arena_bytes);
    put();
    TEST_OK(ctx, wfi_stream_create(device, "other", 1, NULL, &other));
    streams[1] = other;
    for (size_t i = 0; i < 128; i++) {
        n[i] = (1 << 15) + 64 * i;
        TEST_OK(ctx, wfi_stream_push(streams[i % 2], add_all, streams[i % 2], &n[i]));
    }
    for (int s = 0; s < 2; s++) TEST_OK(ctx, wfi_event_wait(wfi_stream_record(streams[s])));
    wfi_stream_destroy(other);
}

static int check_kernels(const wfi_backend *of, wf_status strange, const char *sentence) {
    char text[256];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_agrees_with_plain_c),
        cmocka_unit_test(and_in_bf16),
        cmocka_unit_test(and_in_tf32),
        cmocka_unit_test(large_nodes_agree),
        cmocka_unit_test(long_texts_agree),
        cmocka_unit_test(updates_have_the_cpus_bits),
        cmocka_unit_test(squares_have_the_cpus_bits),
        cmocka_unit_test(kernels_grow_beside_each_other),
        cmocka_unit_test(spaces_and_addresses),
    };
    backend = of;
    strange_status = strange;
    strange_sentence = sentence;
    ctx = test_context();
    if (backend->device->describe(ctx, backend->device, text, sizeof text) != WF_OK) {
        printf("skipped: %s\n", wf_context_error(ctx));
        wf_context_destroy(ctx);
        return SKIPPED;
    }
    int n_failed = cmocka_run_group_tests(tests, begin, end);
    wf_context_destroy(ctx);
    return n_failed;
}
