/* oneDNN's products, norms, activations, softmaxes and attention against the plain
 * C reference, over odd shapes.
 *
 * label: serial
 */
#include "kernel_harness.h"
#include "op/op_table.h"

static wf_tensor trained_input(wf_graph *g, wf_shape sample) {
    return wf_add(wf_input(g, "x", WF_F32, sample),
                  wf_parameter(g, "offset", sample, (wf_init){0}));
}

static void end_with_mse(wf_graph *g, wf_tensor y) {
    wf_shape shape = wf_tensor_shape(y), sample = {shape.n_dims - 1, {0}};
    for (int i = 1; i < shape.n_dims; i++) sample.dim[i - 1] = shape.dim[i];
    wf_loss(wf_mse(y, wf_input(g, "target", WF_F32, sample)));
}

static void linear_model(wf_graph *g, const void *config) {
    const int64_t *n = config; /* tokens, in, hidden, out */
    wf_tensor x = trained_input(g, WF_SHAPE(n[0], n[1]));
    x = wf_gelu_tanh(wf_linear(x, "fc1", n[2]));
    x = wf_gelu(wf_linear_in_out(x, "fc2", n[2], 0.02f));
    x = wf_tanh(wf_linear_with(x, wf_parameter(g, "w", WF_SHAPE(n[3], n[2]), (wf_init){0}),
                               (wf_tensor){g, -1}));
    end_with_mse(g, wf_scale(wf_mul(x, wf_sigmoid(x)), 0.7f));
}

TEST_CASE(test_linear) {
    static const int64_t cases[][4] = {
        {1, 10, 10, 5}, {3, 17, 33, 1}, {7, 64, 48, 31}, {1, 1, 1, 1}};
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        for (int64_t batch = 1; batch < 6; batch += 2)
            assert_true(check_graph(linear_model, cases[i], batch, true, WF_CONV_AUTO, 1) >= 9);
}

static void leaky_model(wf_graph *g, const void *slope) {
    end_with_mse(g, wf_leaky_relu(trained_input(g, WF_SHAPE(13, 7)), *(const float *)slope));
}

/* Without a slope the library's would make a number of a NaN. */
TEST_CASE(test_leaky_relu) {
    static const float slope = 0.2f, none = 0;
    static const fast_op must[MOST_FAST_OPS] = {{"leaky_relu", ""}, {"leaky_relu_backward", ""}};
    int n_fast = check_kernels(leaky_model, &slope, 3, true, WF_CONV_AUTO, 1, must);
    assert_int_equal(check_kernels(leaky_model, &none, 3, true, WF_CONV_AUTO, 1, NULL), n_fast - 2);
}

static void norm_model(wf_graph *g, const void *config) {
    const int64_t *n = config;
    wf_tensor x = trained_input(g, WF_SHAPE(n[0], n[1]));
    x = wf_relu(wf_layer_norm(x, "ln"));
    wf_tensor p = wf_softmax(x), q = wf_log_softmax(x);
    end_with_mse(g,
                 wf_mul(wf_matmul(p, wf_transpose(q, 1, 2)), wf_matmul(q, wf_transpose(q, 1, 2))));
}

TEST_CASE(test_norm) {
    static const int64_t cases[][2] = {{3, 16}, {5, 33}, {1, 7}, {4, 130}};
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        assert_true(check_graph(norm_model, cases[i], 3, true, WF_CONV_AUTO, 1) >= 8);
}

static void batch_norm_model(wf_graph *g, const void *config) {
    /* No bias: a norm takes it out again, and its gradient is rounding alone. */
    wf_tensor x = wf_linear_with(trained_input(g, WF_SHAPE(9)),
                                 wf_parameter(g, "weight", WF_SHAPE(21, 9), (wf_init){0}),
                                 (wf_tensor){g, -1});
    end_with_mse(g, wf_relu(wf_batch_norm(x, "bn")));
}

TEST_CASE(test_flat_batch_norm) {
    static const fast_op must[][MOST_FAST_OPS] = {
        {{"linear", ""}, {"batch_norm_inference", ""}},
        {{"linear_backward_weight", ""}, {"batch_norm", ""}, {"batch_norm_backward", ""}}};
    for (int training = 0; training < 2; training++)
        check_kernels(batch_norm_model, NULL, 8, training, WF_CONV_AUTO, 1, must[training]);
}

typedef struct attention_case {
    int64_t t, c, n_heads, n_keys;
    int causal;
} attention_case;

static void attention_model(wf_graph *g, const void *config) {
    const attention_case *c = config;
    wf_tensor x = trained_input(g, WF_SHAPE(c->t, c->c)), qkv;
    int64_t c_keys = c->c / c->n_heads * c->n_keys;
    if (c->n_keys < c->n_heads)
        qkv = wf_rotary(wf_linear(x, "q", c->c), wf_linear(x, "k", c_keys),
                        wf_linear(x, "v", c_keys), (wf_tensor){g, -1}, c->n_heads, c->n_keys, 100);
    else
        qkv = wf_linear(x, "qkv", 3 * c->c);
    end_with_mse(g, wf_self_attention(qkv, c->n_heads, c->causal));
}

TEST_CASE(test_attention) {
    static const attention_case cases[] = {
        {8, 16, 2, 2, 0},  {8, 16, 2, 2, 1},   {13, 33, 3, 3, 1},  {32, 64, 1, 1, 1},
        {1, 6, 2, 2, 1},   {21, 24, 4, 4, 0},  {21, 24, 4, 4, 5},  {21, 24, 6, 2, 1},
        {13, 12, 3, 1, 0}, {300, 8, 4, 2, 90}, {300, 8, 2, 2, 90}, {300, 8, 2, 2, 1},
        {300, 8, 2, 2, 0}, /* more rows of scores than are made at a time */
    };
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        for (int n_threads = 1; n_threads <= 3; n_threads += 2)
            assert_true(check_graph(attention_model, &cases[i], 2, true, WF_CONV_AUTO, n_threads) >=
                        5);
}

static void lstm_model(wf_graph *g, const void *config) {
    const int64_t *n = config; /* tokens, in, hidden */
    wf_tensor x = wf_lstm(trained_input(g, WF_SHAPE(n[0], n[1])), "rnn", 0, n[2]);
    end_with_mse(g, wf_lstm(x, "rnn", 1, n[2]));
}

TEST_CASE(test_lstm) {
    static const int64_t cases[][3] = {{1, 3, 2}, {5, 12, 16}, {7, 33, 17}, {3, 8, 64}};
    static const fast_op must[][MOST_FAST_OPS] = {{{"lstm", ""}},
                                                  {{"lstm", ""}, {"lstm_backward", ""}}};
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        for (int training = 0; training < 2; training++)
            for (int64_t batch = 1; batch < 21; batch += 6)
                check_kernels(lstm_model, cases[i], batch, training, WF_CONV_AUTO, 1,
                              must[training]);
}

static void classifier_model(wf_graph *g, const void *config) {
    const int64_t *n = config;
    wf_tensor x = wf_linear(trained_input(g, WF_SHAPE(n[0], n[1])), "fc", n[2]);
    wf_loss(wf_cross_entropy(x, wf_input(g, "labels", WF_I32, WF_SHAPE(n[0]))));
}

TEST_CASE(test_classifier) {
    static const int64_t cases[][3] = {{1, 5, 10}, {3, 8, 101}, {2, 4, 20011}, {1, 3, 70001}};
    static const fast_op must[] = {
        {"linear", ""}, {"linear_backward_data", ""}, {"linear_backward_weight", ""}, {NULL, ""}};
    static const fast_op must_with_many_classes[] = {{"linear", ""},
                                                     {"linear_backward_weight", ""},
                                                     {"cross_entropy", ""},
                                                     {"cross_entropy_backward", ""}};
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        check_kernels(classifier_model, cases[i], 3, true, WF_CONV_AUTO, 1,
                      cases[i][2] > 8192 ? must_with_many_classes : must);
}

/* The first of three blocks, which has all labels; the numbers of the others are zero. */
static void block_model(wf_graph *g, const void *config) {
    const int64_t *n = config;
    wfi_attr attr = {.classes = {n[2], 3, 0, 1}};
    wf_tensor labels = wf_input(g, "labels", WF_I32, WF_SHAPE(n[0]));
    wf_tensor x =
        wf_linear(trained_input(g, WF_SHAPE(n[0], n[1])), "fc", wfi_part_begin(n[2], 1, 3));
    x = wfi_graph_op(g, &wfi_op_class_sums, &attr, NULL, 2, (wf_tensor[]){x, labels});
    wf_loss(
        wfi_graph_op(g, &wfi_op_cross_entropy_of_sums, &attr, NULL, 2, (wf_tensor[]){x, labels}));
}

TEST_CASE(test_block) {
    static const int64_t cases[][3] = {{3, 8, 101}, {2, 4, 20011}, {1, 3, 70001}};
    static const fast_op must[] = {{"class_sums", ""}, {"class_sums_backward", ""}, {NULL, ""}};
    for (size_t i = 0; i < WFI_COUNT(cases); i++)
        check_kernels(block_model, cases[i], 3, true, WF_CONV_AUTO, 1, i ? must : NULL);
}

static void language_model(wf_graph *g, const void *config) {
    const int64_t *n = config; /* tokens, width, words */
    wf_tensor table = wf_parameter(g, "table", WF_SHAPE(n[2], n[1]), (wf_init){0});
    wf_tensor x = wf_embedding_with(wf_input(g, "x", WF_I32, WF_SHAPE(n[0])), table);
    x = wf_linear_in_out_with(x, wf_parameter(g, "wide", WF_SHAPE(n[1], 2 * n[2]), (wf_init){0}),
                              (wf_tensor){g, -1});
    x = wf_linear_with(wf_slice(x, 2, 3, n[1]), table, (wf_tensor){g, -1});
    wf_loss(wf_cross_entropy(x, wf_input(g, "labels", WF_I32, WF_SHAPE(n[0]))));
}

/* Gradients of weights are added to where they are summed: large ones in pieces, the last of which
 * may be smaller, and those of a table by the rows that a microbatch has. */
TEST_CASE(test_adding) {
    static const int64_t cases[][3] = {{5, 64, 20011}, {1, 128, 16384}, {4, 6, 11}};
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    config.batch = 2;
    config.training = true;
    for (size_t i = 0; i < WFI_COUNT(cases); i++) {
        int n;
        for (arithmetic numbers = ALL_F32; numbers <= ALL_BF16; numbers++) {
            check_in_layout(language_model, cases[i], &config, numbers, true, 1, WF_CONV_AUTO, 1,
                            NULL, &n);
            assert_int_equal(n, 6); /* of three weights, by either kernel */
        }
    }
}

/* ---- BF16, bit by bit ---- */

enum { N_ROUNDED = 5000 }; /* more than a widened kernel takes at a time, and some left */

/* Near every BF16 from 1 to 2: what is rounded down, up, and to the even of two as near. */
static float near_bf16(int i, uint16_t *rounded_out) {
    static const uint32_t below[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    uint32_t upper = 0x3f80 + (uint32_t)i / 6 % 128, lower = below[i % 6];
    uint32_t bits = upper << 16 | lower;
    float x;
    memcpy(&x, &bits, sizeof x);
    *rounded_out = (uint16_t)(upper + (lower > 0x8000 || (lower == 0x8000 && (upper & 1))));
    return x;
}

/* Of each element one product with 1, and one sum with 0: what is written is rounded alone. */
static void rounding_model(wf_graph *g, const void *config) {
    wf_tensor weight = wf_parameter(g, "weight", WF_SHAPE(N_ROUNDED, 1), (wf_init){0});
    wf_tensor y =
        wf_linear_with(wf_input(g, "one", WF_F32, WF_SHAPE(1)), weight, (wf_tensor){g, -1});
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(N_ROUNDED));
    wf_output(wf_add(y, wf_add(x, wf_input(g, "zero", WF_F32, WF_SHAPE(N_ROUNDED)))), "y");
}

/* The number of its outputs that are BF16, each as it has to be. */
static int run_rounding(harness *h, const wfi_node *node) {
    void *operands[WFI_MAX_OPERANDS] = {NULL}, *owned[WFI_MAX_OPERANDS] = {NULL};
    int n_narrow = 0;
    wfi_kernel *kernel;
    assert_int_equal(wfi_kernel_create(h->ctx, h->graph, node, &h->options, &kernel), WF_OK);
    assert_int_equal(wfi_kernel_prepare(kernel), WF_OK);
    for (int i = 0; i < kernel->n_operands; i++) {
        int32_t v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (v < 0) continue;
        void **at = slot(h, h->slow, v);
        if (!*at) *at = buffer_create(kernel->bytes[i]);
        operands[i] = *at;
        if (kernel->format[i])
            operands[i] = owned[i] =
                pack(h, kernel->format[i], &wfi_value_at(h->graph, v)->shape, *at);
    }
    void *scratch = buffer_create(kernel->scratch_bytes + 1);
    assert_int_equal(wfi_kernel_run(kernel, NULL, operands, scratch, NULL), WF_OK);
    const wfi_value *value = wfi_value_at(h->graph, node->out[0]);
    for (int i = 0; i < N_ROUNDED && value->dtype == WF_BF16; i++) {
        uint16_t want, got = ((const uint16_t *)operands[node->n_in])[i];
        float x = near_bf16(i, &want);
        if (wf_shape_n_elem(&value->shape) < N_ROUNDED) break;
        n_narrow = 1;
        if (got != want)
            fail_msg("%s (%s %s): %a is rounded to %04x, not %04x", node->op->name,
                     kernel->impl->name, kernel->detail, (double)x, got, want);
    }
    for (int i = 0; i < kernel->n_operands; i++) free(owned[i]);
    free(scratch);
    wfi_kernel_destroy(kernel);
    return n_narrow;
}

static void fill_rounding(harness *h) {
    for (int32_t v = 0; v < h->graph->n_values; v++) {
        const wfi_value *value = wfi_value_at(h->graph, v);
        if (value->kind == WFI_VALUE_NODE || value->alias >= 0) continue;
        int64_t n = wf_shape_n_elem(&value->shape);
        float *data = h->slow[v] = buffer_create((size_t)n * sizeof *data);
        uint16_t ignored;
        for (int i = 0; i < n; i++)
            data[i] = n == 1 ? 1 : !strcmp(value->name, "zero") ? 0 : near_bf16(i, &ignored);
    }
}

/* By plain C, by the library's products of F32, and by those of BF16. */
TEST_CASE(test_rounding) {
    for (int way = 0; way < 3; way++) {
        wf_graph_config config = WF_GRAPH_CONFIG_INIT;
        harness h = {.options = {.backend = &wfi_backend_cpu,
                                 .n_threads = 1,
                                 .reference = way == 0,
                                 .multiplies_bf16 = way == 2}};
        int n_narrow = 0;
        config.batch = 1;
        config.training = false;
        assert_int_equal(wf_context_create(NULL, &h.ctx), WF_OK);
        if (wf_graph_create(h.ctx, &config, rounding_model, NULL, &h.graph) != WF_OK)
            fail_msg("%s", wf_context_error(h.ctx));
        assert_int_equal(wfi_graph_cast(h.graph, WF_BF16), WF_OK);
        h.slow = calloc((size_t)h.graph->n_values, sizeof *h.slow);
        fill_rounding(&h);
        for (int32_t n = 0; n < h.graph->n_nodes; n++)
            if (!h.graph->nodes[n].dead) n_narrow += run_rounding(&h, &h.graph->nodes[n]);
        assert_true(n_narrow >= 2);
        for (int32_t v = 0; v < h.graph->n_values; v++) free(h.slow[v]);
        free(h.slow);
        wf_graph_destroy(h.graph);
        wf_context_destroy(h.ctx);
    }
}
