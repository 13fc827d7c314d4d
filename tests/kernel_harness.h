/* Walks a graph twice side by side: each node with the plain C reference, and with
 * the kernel that the ordered list gives, on the same inputs. Compares what both
 * write (relative RMS error against the op's tolerance), checks that a second run
 * gives the same bits, and that formats survive packing and accumulation.
 * For tests only; included by one file each. */
#pragma once

#include "base/random.h"
#include "comm/runtime/typed.h"
#include "kernel/backend.h"
#include "kernel/cpu.h"
#include "pass/pass.h"
#include "test.h"

#include <math.h>

/* An op that has to have a fast kernel, so that a test which compares that one compares something.
 */
typedef struct fast_op {
    const char *op, *kernel; /* kernel: a part of what the library calls it; "": any */
} fast_op;

#define MOST_FAST_OPS 4

typedef struct harness {
    wf_context *ctx;
    wf_graph *graph;
    wfi_kernel_options options;
    double slack;          /* allowed error, in tolerances of the op */
    void **slow;           /* [value] what the reference computed */
    void **fast;           /* [value] opaque values of the fast kernels */
    int n_fast;            /* nodes that had a fast kernel */
    int n_formats;         /* operands in a format of the library's */
    int n_adding;          /* kernels that added */
    int every_way, n_ways; /* of the ways of nodes every so manieth is run; 0: the usual alone */
    const fast_op *must;   /* [MOST_FAST_OPS], op NULL behind the last; NULL: none */
    bool is_met[MOST_FAST_OPS];
    uint64_t seed;
    wf_dtype dtype; /* of training */
} harness;

/* Extra bytes behind every buffer that must stay as they are. */
#define GUARD_BYTES 64
#define GUARD       0x5a

static void *buffer_create(size_t bytes) {
    unsigned char *buffer = aligned_alloc(64, wfi_round_up(bytes, 64) + GUARD_BYTES);
    assert_non_null(buffer);
    memset(buffer, 0xff, bytes); /* NaN: what is not written shows */
    memset(buffer + bytes, GUARD, wfi_round_up(bytes, 64) - bytes + GUARD_BYTES);
    return buffer;
}

static void buffer_check(const void *buffer, size_t bytes) {
    const unsigned char *byte = buffer;
    for (size_t i = bytes; i < wfi_round_up(bytes, 64) + GUARD_BYTES; i++)
        assert_int_equal(byte[i], GUARD);
}

static double next_uniform(harness *h) { /* in [-1, 1) */
    h->seed = h->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(int32_t)(h->seed >> 32) / 2147483648.0;
}

static void fill(harness *h, void *buffer, wf_dtype dtype, int64_t n_elem, bool positive) {
    for (int64_t i = 0; i < n_elem; i++) {
        double u = next_uniform(h);
        if (dtype == WF_F32) ((float *)buffer)[i] = (float)(positive ? u * u + 0.1 : u);
        if (dtype == WF_I32) ((int32_t *)buffer)[i] = (int32_t)((u + 1) * 2);
        if (dtype == WF_I64) ((int64_t *)buffer)[i] = 0;
    }
}

static void **slot(harness *h, void **table, int32_t v) {
    return &table[wfi_value_root(h->graph, v)];
}

static double rms_error(const float *x, const float *reference, int64_t n_elem) {
    double error = 0, norm = 0;
    for (int64_t i = 0; i < n_elem; i++) {
        double d = (double)x[i] - reference[i];
        error += d * d;
        norm += (double)reference[i] * reference[i];
    }
    return norm > 0 ? sqrt(error / norm) : sqrt(error);
}

/* As F32, which may be freed. */
static float *as_floats(const wfi_value *value, const void *data) {
    int64_t n_elem = wf_shape_n_elem(&value->shape);
    float *wide = buffer_create((size_t)n_elem * sizeof(float));
    if (value->dtype == WF_BF16)
        wfi_combine(WFI_BASELINE, &(wfi_arithmetic){.dtype = WF_BF16}, data, NULL, n_elem, wide);
    else
        memcpy(wide, data, (size_t)n_elem * sizeof(float));
    return wide;
}

/* What a kernel may be wrong by: the op's tolerance, and, of a graph of BF16, two roundings of a
 * number, of 2^-9 each. */
static double tolerance_of(const harness *h, const wfi_node *node) {
    return node->op->tolerance + (h->dtype == WF_BF16 ? 1.0 / 256 : 0);
}

static void run_helper(harness *h, wfi_kernel *kernel, void *from, void *to) {
    void *scratch = buffer_create(kernel->scratch_bytes + 1);
    assert_int_equal(wfi_kernel_prepare(kernel), WF_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(kernel->extent[i], kernel->bytes[i]);
    assert_int_equal(kernel->scratch_extent, kernel->scratch_bytes);
    assert_int_equal(wfi_kernel_run(kernel, NULL, (void *[]){from, to}, scratch, NULL), WF_OK);
    buffer_check(scratch, kernel->scratch_bytes + 1);
    buffer_check(to, kernel->bytes[1]);
    wfi_kernel_destroy(kernel);
    free(scratch);
}

static void *pack(harness *h, const wfi_format *format, const wf_shape *shape, void *plain) {
    wfi_kernel *kernel;
    assert_int_equal(wfi_kernel_create_pack(h->ctx, &h->options, format, shape, &kernel), WF_OK);
    assert_int_equal(kernel->bytes[1], format->bytes);
    void *packed = buffer_create(format->bytes);
    run_helper(h, kernel, plain, packed);
    return packed;
}

static void accumulate(harness *h, const wfi_format *format, const wf_shape *shape, bool add,
                       void *gradient, float *accumulator) {
    wfi_kernel *kernel;
    assert_int_equal(wfi_kernel_create_accumulate(h->ctx, &h->options, format, shape, add, &kernel),
                     WF_OK);
    run_helper(h, kernel, gradient, accumulator);
}

/* The gradient in plain order; on the way, that `add` is exactly old + gradient. */
static void *unpack(harness *h, const wfi_format *format, const wf_shape *shape, void *gradient) {
    int64_t n_elem = wf_shape_n_elem(shape);
    size_t bytes = (size_t)n_elem * sizeof(float);
    float *plain = buffer_create(bytes), *sum = buffer_create(bytes), *old = buffer_create(bytes);
    accumulate(h, format, shape, false, gradient, plain);
    fill(h, old, WF_F32, n_elem, false);
    memcpy(sum, old, bytes);
    accumulate(h, format, shape, true, gradient, sum);
    for (int64_t i = 0; i < n_elem; i++) assert_true(sum[i] == old[i] + plain[i]);
    free(sum);
    free(old);
    return plain;
}

/* Over each input that the op says it may overwrite, a kernel gives what it gave beside it. */
static void check_in_place(wfi_kernel *kernel, void *const operands[], void *scratch,
                           const wfi_step_args *step) {
    const wfi_node *node = kernel->node;
    size_t bytes = kernel->bytes[node->n_in];
    for (int i = 0; i < node->n_in; i++) {
        if (!(node->op->overwrites >> i & 1) || kernel->bytes[i] != bytes) continue;
        void *own[WFI_MAX_OPERANDS] = {NULL};
        for (int k = 0; k < kernel->n_operands; k++) own[k] = operands[k];
        for (int k = node->n_in; k < kernel->n_operands; k++)
            if (operands[k]) own[k] = buffer_create(kernel->bytes[k]);
        memcpy(own[node->n_in], operands[i], bytes);
        own[i] = own[node->n_in];
        assert_int_equal(wfi_kernel_run(kernel, NULL, own, scratch, step), WF_OK);
        for (int k = node->n_in; k < kernel->n_operands; k++) {
            if (!operands[k]) continue;
            if (memcmp(own[k], operands[k], kernel->bytes[k]) != 0)
                fail_msg("%s (%s %s) over input %d: output %d differs", node->op->name,
                         kernel->impl->name, kernel->detail, i, k - node->n_in);
            buffer_check(own[k], kernel->bytes[k]);
            free(own[k]);
        }
    }
}

/* The kernel that adds, if there is one: what it leaves is what was there and what the node makes.
 */
static void check_adding(harness *h, const wfi_node *node, const wfi_kernel_options *options,
                         const wfi_step_args *step) {
    wfi_kernel *kernel;
    assert_int_equal(wfi_kernel_create_adding(h->ctx, h->graph, node, options, &kernel), WF_OK);
    if (!kernel) return;
    void *operands[WFI_MAX_OPERANDS] = {NULL}, *scratch = buffer_create(kernel->scratch_bytes);
    float *expected[WFI_MAX_OUTPUTS];
    for (int i = 0; i < node->n_in; i++) operands[i] = *slot(h, h->slow, node->in[i]);
    for (int k = 0; k < node->n_out; k++) {
        size_t bytes = kernel->bytes[node->n_in + k];
        float *sum = operands[node->n_in + k] = buffer_create(bytes);
        expected[k] = buffer_create(bytes);
        fill(h, sum, WF_F32, (int64_t)(bytes / sizeof(float)), false);
        const float *made = *slot(h, h->slow, node->out[k]);
        for (size_t i = 0; i < bytes / sizeof(float); i++) expected[k][i] = sum[i] + made[i];
    }
    assert_int_equal(wfi_kernel_prepare(kernel), WF_OK);
    for (int i = 0; i < kernel->n_operands; i++)
        assert_int_equal(kernel->extent[i], kernel->bytes[i]);
    assert_int_equal(wfi_kernel_run(kernel, NULL, operands, scratch, step), WF_OK);
    buffer_check(scratch, kernel->scratch_bytes);
    for (int k = 0; k < node->n_out; k++) {
        size_t bytes = kernel->bytes[node->n_in + k];
        float *sum = operands[node->n_in + k];
        buffer_check(sum, bytes);
        if (kernel->impl == &wfi_kernel_reference)
            assert_memory_equal(sum, expected[k], bytes);
        else
            assert_true(rms_error(sum, expected[k], (int64_t)(bytes / sizeof(float))) <=
                        h->slack * tolerance_of(h, node));
        free(sum);
        free(expected[k]);
    }
    h->n_adding++;
    free(scratch);
    wfi_kernel_destroy(kernel);
}

static void run_reference(harness *h, const wfi_node *node, const wfi_step_args *step) {
    wfi_kernel_options options = {.backend = &wfi_backend_cpu, .n_threads = 1, .reference = true};
    wfi_kernel *kernel;
    assert_int_equal(wfi_kernel_create(h->ctx, h->graph, node, &options, &kernel), WF_OK);
    void *operands[WFI_MAX_OPERANDS] = {NULL}, *owned[WFI_MAX_OPERANDS] = {NULL};
    for (int i = 0; i < kernel->n_operands; i++) {
        int32_t v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (v < 0) continue;
        void **place = slot(h, h->slow, v);
        if (!*place) *place = buffer_create(kernel->bytes[i]);
        operands[i] = *place;
        if (kernel->format[i])
            operands[i] = owned[i] =
                pack(h, kernel->format[i], &wfi_value_at(h->graph, v)->shape, operands[i]);
    }
    void *scratch = buffer_create(kernel->scratch_bytes + 1);
    assert_int_equal(wfi_kernel_prepare(kernel), WF_OK);
    assert_int_equal(wfi_kernel_run(kernel, NULL, operands, scratch, step), WF_OK);
    check_in_place(kernel, operands, scratch, step);
    buffer_check(scratch, kernel->scratch_bytes + 1);
    for (int i = 0; i < kernel->n_operands; i++) free(owned[i]);
    free(scratch);
    wfi_kernel_destroy(kernel);
    check_adding(h, node, &options, step);
    check_adding(h, node, &h->options, step);
}

static void compare(harness *h, const wfi_kernel *kernel, int operand, void *result,
                    const void *expected) {
    const wfi_node *node = kernel->node;
    const wfi_value *value = wfi_value_at(h->graph, node->out[operand - node->n_in]);
    int64_t n_elem = wf_shape_n_elem(&value->shape);
    const wfi_format *format = kernel->format[operand];
    float *plain = format ? unpack(h, format, &value->shape, result) : as_floats(value, result);
    float *reference = as_floats(value, expected);
    double error = rms_error(plain, reference, n_elem), allowed = h->slack * tolerance_of(h, node);
    if (!(error <= allowed)) {
        char text[WFI_SHAPE_TEXT];
        fail_msg("%s (%s), output %d %s: relative error %.2e, allowed %.2e", node->op->name,
                 kernel->detail, operand - node->n_in, wfi_shape_text(&value->shape, text), error,
                 allowed);
    }
    free(plain);
    free(reference);
}

static void run_fast(harness *h, wfi_kernel *kernel, const wfi_step_args *step) {
    const wfi_node *node = kernel->node;
    void *operands[WFI_MAX_OPERANDS] = {NULL}, *owned[WFI_MAX_OPERANDS] = {NULL};
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] < 0) continue;
        const wfi_value *value = wfi_value_at(h->graph, node->in[i]);
        operands[i] =
            value->opaque ? *slot(h, h->fast, node->in[i]) : *slot(h, h->slow, node->in[i]);
        if (!kernel->format[i]) continue;
        h->n_formats++;
        assert_int_equal(kernel->bytes[i], kernel->format[i]->bytes);
        operands[i] = owned[i] = pack(h, kernel->format[i], &value->shape, operands[i]);
    }
    void *first[WFI_MAX_OUTPUTS] = {NULL}, *scratch = buffer_create(kernel->scratch_bytes + 1);
    assert_int_equal(wfi_kernel_prepare(kernel), WF_OK);
    for (int i = 0; i < kernel->n_operands; i++)
        assert_int_equal(kernel->extent[i], kernel->bytes[i]);
    assert_int_equal(kernel->scratch_extent, kernel->scratch_bytes);
    for (int repeat = 0; repeat < 2; repeat++) {
        for (int i = node->n_in; i < kernel->n_operands; i++) {
            if (node->out[i - node->n_in] < 0) continue;
            first[i - node->n_in] = operands[i];
            operands[i] = buffer_create(kernel->bytes[i]);
        }
        assert_int_equal(wfi_kernel_run(kernel, NULL, operands, scratch, step), WF_OK);
    }
    check_in_place(kernel, operands, scratch, step);
    buffer_check(scratch, kernel->scratch_bytes + 1);
    for (int i = node->n_in; i < kernel->n_operands; i++) {
        int32_t v = node->out[i - node->n_in];
        if (v < 0) continue;
        buffer_check(operands[i], kernel->bytes[i]);
        h->n_formats += kernel->format[i] != NULL;
        if (wfi_value_at(h->graph, v)->opaque) {
            *slot(h, h->fast, v) = operands[i];
        } else {
            assert_memory_equal(operands[i], first[i - node->n_in], kernel->bytes[i]);
            compare(h, kernel, i, operands[i], *slot(h, h->slow, v));
            free(operands[i]);
        }
        free(first[i - node->n_in]);
    }
    for (int i = 0; i < node->n_in; i++) free(owned[i]);
    free(scratch);
}

static wf_status enter(wf_context *ctx, int n_threads) {
    int n_come;
    return wfi_backend_cpu.thread_enter(ctx, 0, n_threads, &n_come);
}

static void note_fast(harness *h, const wfi_kernel *kernel) {
    h->n_fast++;
    char way[WFI_WAY_TEXT];
    const char *name = *wfi_kernel_way_text(kernel, way) ? way : kernel->detail;
    for (int i = 0; h->must && i < MOST_FAST_OPS && h->must[i].op; i++)
        h->is_met[i] |=
            !strcmp(h->must[i].op, kernel->node->op->name) && strstr(name, h->must[i].kernel);
}

static void check_fast(const harness *h) {
    for (int i = 0; h->must && i < MOST_FAST_OPS && h->must[i].op; i++)
        if (!h->is_met[i])
            fail_msg("no %s kernel for %s: nothing was compared", h->must[i].kernel, h->must[i].op);
}

/* Other ways that the library has for the node, as a recipe's table asks for them: a sample of
 * them, or, with WEFT_TEST_FULL=1, all, in all layouts, types and numbers of threads. */
static void run_ways(harness *h, const wfi_node *node, const wfi_kernel_impl *impl,
                     const wfi_step_args *step) {
    const char *const *forms = wfi_forms(impl, node->op);
    double slack = h->slack;
    for (wfi_way way = {0, 0}; forms && forms[way.form];) {
        char shape[WFI_NODE_TEXT], name[WFI_WAY_TEXT], again[WFI_WAY_TEXT];
        char tuned[WFI_NODE_TEXT + WFI_WAY_TEXT];
        wfi_kernel *kernel;
        assert_int_equal(
            wfi_kernel_create_way(h->ctx, h->graph, node, &h->options, impl, way, &kernel), WF_OK);
        way = kernel ? (wfi_way){way.form, way.number + 1} : (wfi_way){way.form + 1, 0};
        if (!kernel) continue;
        wfi_kernel_way_text(kernel, name);
        wfi_kernel_destroy(kernel);
        if (h->n_ways++ % h->every_way) continue;
        snprintf(tuned, sizeof tuned, "%s=%s", wfi_node_text(h->graph, node, shape), name);
        assert_int_equal(wfi_tuned_check(h->ctx, tuned), WF_OK);
        h->options.tuned = tuned;
        h->slack = strstr(name, "wino") ? 10 : slack;
        assert_int_equal(wfi_kernel_create(h->ctx, h->graph, node, &h->options, &kernel), WF_OK);
        assert_string_equal(wfi_kernel_way_text(kernel, again), name);
        if (getenv("WEFT_TEST_VERBOSE")) print_message("    %s\n", tuned);
        run_fast(h, kernel, step);
        wfi_kernel_destroy(kernel);
    }
    h->options.tuned = NULL;
    h->slack = slack;
}

static void walk(harness *h) {
    wfi_step_args step = {.seed = 1, .loss_scale = 1.0 / (double)h->graph->batch};
    for (int32_t n = 0; n < h->graph->n_nodes; n++) {
        const wfi_node *node = &h->graph->nodes[n];
        if (node->dead) continue;
        run_reference(h, node, &step);
        wfi_kernel *kernel;
        assert_int_equal(wfi_kernel_create(h->ctx, h->graph, node, &h->options, &kernel), WF_OK);
        if (getenv("WEFT_TEST_VERBOSE"))
            print_message("%s: %s %s\n", node->op->name, kernel->impl->name, kernel->detail);
        if (kernel->impl != &wfi_kernel_reference) {
            /* The widened one may have the plain kernel inside: it takes nothing from others. */
            if (kernel->impl != &wfi_kernel_widened || *kernel->detail) note_fast(h, kernel);
            /* Described above on a thread that was told nothing. */
            assert_int_equal(enter(h->ctx, h->options.n_threads), WF_OK);
            run_fast(h, kernel, &step);
            if (h->every_way) run_ways(h, node, kernel->impl, &step);
            assert_int_equal(enter(h->ctx, 1), WF_OK);
        }
        wfi_kernel_destroy(kernel);
    }
}

/* Everything that does not come out of a node. */
static void fill_leaves(harness *h) {
    for (int32_t v = 0; v < h->graph->n_values; v++) {
        const wfi_value *value = wfi_value_at(h->graph, v);
        if (value->kind == WFI_VALUE_NODE || value->alias >= 0) continue;
        h->slow[v] = buffer_create(wfi_value_bytes(h->graph, v));
        fill(h, h->slow[v], value->dtype, wf_shape_n_elem(&value->shape),
             value->kind == WFI_VALUE_BUFFER);
    }
}

/* How numbers are kept and multiplied. */
typedef enum arithmetic { ALL_F32, BF16_AS_F32, ALL_BF16 } arithmetic;

static int check_in_layout(wf_model_function model, const void *config,
                           const wf_graph_config *graph_config, arithmetic numbers, bool blocked,
                           int n_threads, wf_conv conv, double slack, const fast_op *must,
                           int *n_adding_out) {
    wf_dtype dtype = numbers == ALL_F32 ? WF_F32 : WF_BF16;
    harness h = {.options = {.backend = &wfi_backend_cpu,
                             .n_threads = n_threads,
                             .conv = conv,
                             .multiplies_bf16 = numbers == ALL_BF16},
                 .slack = slack,
                 .must = must,
                 .every_way = getenv("WEFT_TEST_FULL")                          ? 1
                              : blocked && n_threads == 1 && numbers == ALL_F32 ? 7
                                                                                : 0,
                 .seed = 7,
                 .dtype = dtype};
    assert_int_equal(wf_context_create(NULL, &h.ctx), WF_OK);
    if (enter(h.ctx, n_threads) != WF_OK) { /* a library not on OpenMP */
        wf_context_destroy(h.ctx);
        return INT32_MAX;
    }
    if (wf_graph_create(h.ctx, graph_config, model, config, &h.graph) != WF_OK)
        fail_msg("%s", wf_context_error(h.ctx));
    if (blocked) assert_int_equal(wfi_graph_layout(h.graph), WF_OK);
    assert_int_equal(wfi_graph_cast(h.graph, dtype), WF_OK);
    assert_int_equal(enter(h.ctx, 1), WF_OK);
    size_t n_values = (size_t)h.graph->n_values;
    h.slow = calloc(n_values, sizeof *h.slow);
    h.fast = calloc(n_values, sizeof *h.fast);
    fill_leaves(&h);
    walk(&h);
    check_fast(&h);
    if (n_adding_out) *n_adding_out = h.n_adding;
    for (size_t v = 0; v < n_values; v++) {
        free(h.slow[v]);
        free(h.fast[v]);
    }
    free(h.slow);
    free(h.fast);
    wf_graph_destroy(h.graph);
    assert_int_equal(wf_context_memory(h.ctx).n_live, 0);
    wf_context_destroy(h.ctx);
    return h.n_fast;
}

/* OpenMP's own hand-overs look like races to the thread sanitizer. */
#if defined(__SANITIZE_THREAD__)
#define MOST_THREADS 1
#else
#define MOST_THREADS 2
#endif

/* In row-major order throughout, and in the layouts that weft chooses; there in BF16, too. What
 * `must` be fast has to be in F32's layouts. `slack` in tolerances. Returns the number of nodes
 * that oneDNN took, in the worst case of F32. */
static int check_kernels(wf_model_function model, const void *config, int64_t batch, bool training,
                         wf_conv conv, double slack, const fast_op *must) {
    wf_graph_config graph_config = WF_GRAPH_CONFIG_INIT;
    graph_config.batch = batch;
    graph_config.training = training;
    int least =
        check_in_layout(model, config, &graph_config, ALL_F32, false, 1, conv, slack, NULL, NULL);
    for (int n_threads = 1; n_threads <= MOST_THREADS; n_threads++) {
        int n = check_in_layout(model, config, &graph_config, ALL_F32, true, n_threads, conv, slack,
                                must, NULL);
        if (n < least) least = n;
    }
    check_in_layout(model, config, &graph_config, BF16_AS_F32, true, 1, conv, slack, NULL, NULL);
    check_in_layout(model, config, &graph_config, ALL_BF16, true, MOST_THREADS, conv, slack, NULL,
                    NULL);
    return least;
}

static inline int check_graph(wf_model_function model, const void *config, int64_t batch,
                              bool training, wf_conv conv, double slack) {
    return check_kernels(model, config, batch, training, conv, slack, NULL);
}
