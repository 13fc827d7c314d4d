/* oneDNN's convolutions, batch norms and poolings against the plain C reference,
 * over odd shapes in both layouts.
 *
 * label: serial
 */
#include "kernel_harness.h"

typedef struct conv_case {
    int64_t batch, c_in, c_out, h, w, kernel, stride, pad, groups;
    int bias;
    int64_t dilation;
} conv_case;

/* Before the convolution stands something trained, so that its data gradient is asked for. */
static wf_tensor trained_input(wf_graph *g, int64_t c, int64_t h, int64_t w) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(c, h, w));
    return wf_add(x, wf_parameter(g, "offset", WF_SHAPE(c, h, w), (wf_init){0}));
}

static void end_with_mse(wf_graph *g, wf_tensor y) {
    wf_shape shape = wf_tensor_shape(y), sample = {shape.n_dims - 1, {0}};
    for (int i = 1; i < shape.n_dims; i++) sample.dim[i - 1] = shape.dim[i];
    wf_loss(wf_mse(y, wf_input(g, "target", WF_F32, sample)));
}

static void conv_model(wf_graph *g, const void *config) {
    const conv_case *c = config;
    wf_tensor x = trained_input(g, c->c_in, c->h, c->w), bias = {g, -1};
    wf_tensor weight = wf_parameter(
        g, "weight", WF_SHAPE(c->c_out, c->c_in / c->groups, c->kernel, c->kernel), (wf_init){0});
    if (c->bias) bias = wf_parameter(g, "bias", WF_SHAPE(c->c_out), (wf_init){0});
    wf_conv2d_shape shape = {c->stride, c->pad, c->groups, c->dilation};
    end_with_mse(g, wf_conv2d_with(x, weight, bias, shape));
}

TEST_CASE(test_conv) {
    static const conv_case cases[] = {
        {2, 16, 32, 9, 7, 3, 1, 1, 1, 0, 1},  {1, 32, 16, 5, 5, 1, 1, 0, 1, 0, 1},
        {3, 32, 48, 9, 9, 3, 2, 1, 1, 0, 1},  {2, 48, 32, 7, 8, 1, 2, 0, 1, 1, 1},
        {2, 3, 16, 15, 13, 7, 2, 3, 1, 0, 1}, {5, 1, 32, 11, 11, 5, 1, 2, 1, 1, 1},
        {2, 17, 5, 8, 9, 3, 1, 1, 1, 1, 1},   {1, 6, 16, 10, 10, 5, 1, 0, 1, 1, 1},
        {2, 16, 10, 6, 6, 3, 1, 1, 1, 1, 1},  {2, 32, 32, 6, 7, 3, 1, 1, 2, 0, 1},
        {2, 32, 32, 7, 7, 3, 2, 1, 32, 1, 1}, {1, 32, 64, 5, 6, 3, 1, 1, 8, 0, 1},
        {2, 6, 9, 5, 5, 3, 1, 0, 3, 1, 1},    {4, 16, 16, 1, 1, 1, 1, 0, 1, 0, 1},
        {1, 16, 16, 2, 3, 5, 1, 2, 1, 1, 1},  {2, 16, 16, 8, 8, 3, 3, 0, 1, 0, 1},
        {2, 16, 32, 9, 7, 3, 1, 2, 1, 0, 2},  {2, 3, 16, 15, 13, 5, 2, 3, 1, 0, 3},
        {2, 17, 5, 8, 9, 3, 1, 2, 1, 1, 2},   {2, 32, 32, 7, 7, 3, 1, 2, 32, 1, 2},
        {2, 32, 32, 9, 8, 2, 2, 0, 2, 0, 4},
    };
    for (size_t i = 0; i < WFI_COUNT(cases); i++) {
        const conv_case *c = &cases[i];
        int n_fast = check_graph(conv_model, c, c->batch, true, WF_CONV_DIRECT, 1);
        assert_true(n_fast >= 3); /* the convolution in three directions */
    }
}

/* Windows that are larger than the images: only the weights that meet an image are multiplied, and
 * the others' gradient is 0. */
TEST_CASE(test_trimmed) {
    const fast_op must[MOST_FAST_OPS] = {{"conv2d", "trimmed"},
                                         {"conv2d_backward_data", "trimmed"},
                                         {"conv2d_backward_weight", "trimmed"}};
    static const conv_case cases[] = {
        {3, 32, 48, 1, 1, 3, 1, 1, 1, 0, 1}, {5, 16, 32, 2, 2, 3, 2, 1, 1, 1, 1},
        {2, 32, 16, 2, 2, 5, 1, 2, 1, 1, 1}, {2, 16, 16, 1, 2, 5, 2, 2, 1, 0, 1},
        {4, 16, 32, 2, 2, 3, 1, 2, 1, 0, 2}, {1, 16, 16, 2, 2, 4, 1, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        check_kernels(conv_model, &cases[i], cases[i].batch, true, WF_CONV_AUTO, 1, must);
    /* Cut on one side alone: as a whole. In groups, and not in blocks: as well; and where the first
     * weight that meets the image is behind its edge. */
    static const conv_case whole[] = {{2, 16, 16, 1, 4, 3, 1, 1, 1, 0, 1},
                                      {2, 32, 32, 1, 1, 3, 1, 1, 2, 0, 1},
                                      {2, 20, 8, 1, 1, 3, 1, 1, 1, 1, 1},
                                      {2, 16, 16, 2, 2, 2, 3, 1, 1, 0, 2}};
    for (size_t i = 0; i < WFI_COUNT(whole); i++)
        assert_true(check_graph(conv_model, &whole[i], whole[i].batch, true, WF_CONV_AUTO, 1) >= 3);
}

/* Of one channel, some ways take the part in the layout that it has in its window, but not from
 * where the window begins. */
TEST_CASE(test_trimmed_plain) {
    static const conv_case one = {2, 1, 1, 1, 1, 3, 1, 1, 1, 0, 1};
    bool is_full = getenv("WEFT_TEST_FULL");
    setenv("WEFT_TEST_FULL", "1", 1);
    check_graph(conv_model, &one, one.batch, true, WF_CONV_AUTO, 1);
    if (!is_full) unsetenv("WEFT_TEST_FULL");
}

/* oneDNN 3 has no Winograd any more, and 2 has it for AVX-512 alone; then the convolution is a
 * direct one. */
static bool has_winograd(void) {
    const char *library = wfi_backend_cpu.library(NULL);
    return strstr(library, "oneDNN 2.") && (strstr(library, "avx512") || strstr(library, "newer"));
}

TEST_CASE(test_winograd) {
    const char *kernel = has_winograd() ? "wino" : "";
    const fast_op must[MOST_FAST_OPS] = {
        {"conv2d", kernel}, {"conv2d_backward_data", kernel}, {"conv2d_backward_weight", kernel}};
    static const conv_case cases[] = {
        {2, 32, 32, 12, 12, 3, 1, 1, 1, 0, 1},
        {3, 64, 32, 7, 9, 3, 1, 1, 1, 1, 1},
        {4, 16, 48, 16, 16, 3, 1, 1, 1, 0, 1},
    };
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        check_kernels(conv_model, &cases[i], cases[i].batch, true, WF_CONV_WINOGRAD, 10, must);
    check_kernels(conv_model, &cases[2], cases[2].batch, true, WF_CONV_AUTO, 10, must);
}

/* A residual block: fused batch norm + ReLU and batch norm + add + ReLU. */
static void block_model(wf_graph *g, const void *config) {
    const int64_t *c = config; /* channels, size */
    wf_tensor x = trained_input(g, c[0], c[1], c[1]);
    wf_conv2d_shape same = {.stride = 1, .pad = 1};
    x = wf_relu(wf_batch_norm(wf_conv2d(x, "conv1", c[0], 3, same), "bn1"));
    wf_tensor y = wf_relu(wf_batch_norm(wf_conv2d(x, "conv2", c[0], 3, same), "bn2"));
    y = wf_batch_norm(wf_conv2d(y, "conv3", c[0], 3, same), "bn3");
    y = wf_relu(wf_add(x, y));
    end_with_mse(g, wf_global_avg_pool(y));
}

TEST_CASE(test_block) {
    static const int64_t cases[][2] = {{32, 5}, {16, 8}, {16, 17}, {17, 6}, {3, 4}};
    static const fast_op must[] = {
        {"batch_norm", "channels"}, {"batch_norm_backward", "channels"}, {NULL, ""}};
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        for (int training = 0; training < 2; training++)
            assert_true(check_kernels(block_model, cases[i], 3, training, WF_CONV_DIRECT, 1,
                                      training && cases[i][0] % 16 == 0 ? must : NULL) > 5);
}

typedef struct pool_case {
    int64_t c, h, w, kernel, stride, pad;
} pool_case;

static void pool_model(wf_graph *g, const void *config) {
    const pool_case *c = config;
    wf_tensor x = trained_input(g, c->c, c->h, c->w);
    wf_tensor a = wf_max_pool(x, c->kernel, c->stride, c->pad);
    wf_tensor b = wf_avg_pool(x, c->kernel, c->stride, c->pad);
    end_with_mse(g, wf_mul(wf_add(a, b), wf_sigmoid(b)));
}

TEST_CASE(test_pool) {
    static const pool_case cases[] = {
        {16, 9, 9, 3, 2, 1}, {32, 8, 7, 2, 2, 0}, {17, 9, 8, 3, 2, 1}, {3, 5, 5, 5, 1, 0},
        {48, 6, 6, 3, 1, 1}, {1, 7, 7, 2, 3, 0},  {16, 4, 5, 2, 1, 1},
    };
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        assert_true(check_graph(pool_model, &cases[i], 2, true, WF_CONV_AUTO, 1) >= 4);
}

/* ---- memory that is too small ---- */

/* Describes each kernel anew, with a byte less for one operand, or for its scratch memory. */
static int shorten_all(wf_context *ctx, wf_graph *graph) {
    const wfi_kernel_options options = {.backend = &wfi_backend_cpu, .n_threads = 1};
    int n = 0;
    for (int32_t k = 0; k < graph->n_nodes; k++)
        for (int i = 0; i <= WFI_MAX_OPERANDS; i++) {
            wfi_kernel *kernel;
            if (graph->nodes[k].dead) continue;
            assert_int_equal(wfi_kernel_create(ctx, graph, &graph->nodes[k], &options, &kernel),
                             WF_OK);
            bool is_scratch = i == WFI_MAX_OPERANDS;
            size_t *bytes = is_scratch ? &kernel->scratch_bytes : &kernel->bytes[i];
            if (*bytes && kernel->impl != &wfi_kernel_reference) {
                --*bytes;
                assert_int_equal(wfi_kernel_prepare(kernel), WF_BUG);
                assert_non_null(strstr(wf_context_error(ctx), "are planned"));
                n++;
            }
            wfi_kernel_destroy(kernel);
        }
    return n;
}

TEST_CASE(test_extents) {
    static const int64_t block[] = {32, 5};
    wf_context *ctx;
    wf_graph *graph;
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    assert_int_equal(wf_context_create(NULL, &ctx), WF_OK);
    config.batch = 2;
    assert_int_equal(wf_graph_create(ctx, &config, block_model, block, &graph), WF_OK);
    assert_int_equal(wfi_graph_layout(graph), WF_OK);
    assert_true(shorten_all(ctx, graph) > 30);
    wf_graph_destroy(graph);
    wf_context_destroy(ctx);
}

/* ---- memory that runs out ---- */

typedef struct scarce { /* the n-th allocation fails */
    int n_left;
} scarce;

static void *scarce_alloc(void *self, size_t bytes) {
    scarce *s = self;
    return s->n_left-- == 0 ? NULL : aligned_alloc(64, wfi_round_up(bytes, 64));
}

static void scarce_free(void *self, void *block) {
    free(block);
}

static wf_status describe_all(wf_context *ctx, wf_graph *graph) {
    wfi_kernel_options options = {.backend = &wfi_backend_cpu, .n_threads = 1};
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        wfi_kernel *kernel;
        if (graph->nodes[n].dead) continue;
        WF_TRY(wfi_kernel_create(ctx, graph, &graph->nodes[n], &options, &kernel));
        for (int i = 0; i < kernel->n_operands; i++) {
            wfi_kernel *pack = NULL;
            wf_status status = WF_OK;
            if (kernel->format[i] && i < graph->nodes[n].n_in)
                status = wfi_kernel_create_pack(ctx, &options, kernel->format[i],
                                                &wfi_value_at(graph, graph->nodes[n].in[i])->shape,
                                                &pack);
            wfi_kernel_destroy(pack);
            if (status != WF_OK) wfi_kernel_destroy(kernel);
            WF_TRY(status);
        }
        wfi_kernel_destroy(kernel);
    }
    return WF_OK;
}

/* Every allocation fails once: a clean error, and nothing is left behind. */
TEST_CASE(test_no_memory) {
    static const conv_case cases[] = {{1, 16, 32, 5, 5, 3, 1, 1, 1, 0, 1},
                                      {1, 6, 16, 5, 5, 3, 1, 1, 1, 1, 1}};
    for (size_t i = 0; i < WFI_COUNT(cases); i++) {
        scarce memory = {-1};
        wf_context_config config = WF_CONTEXT_CONFIG_INIT;
        config.allocator = (wf_allocator){scarce_alloc, scarce_free, &memory};
        wf_context *ctx;
        assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
        wf_graph_config graph_config = WF_GRAPH_CONFIG_INIT;
        wf_graph *graph;
        assert_int_equal(wf_graph_create(ctx, &graph_config, conv_model, &cases[i], &graph), WF_OK);
        assert_int_equal(wfi_graph_layout(graph), WF_OK);
        uint64_t n_live = wf_context_memory(ctx).n_live;
        wf_status status = WF_NO_MEMORY;
        for (int n = 0; status != WF_OK; n++) {
            memory.n_left = n;
            status = describe_all(ctx, graph);
            assert_true(status == WF_OK || status == WF_NO_MEMORY);
            assert_int_equal(wf_context_memory(ctx).n_live, n_live);
        }
        wf_graph_destroy(graph);
        wf_context_destroy(ctx);
    }
}
