/* The ready-made models: names, shapes and numbers of parameters are those of torchvision
 * and Hugging Face, units are where a plan can cut, what makes no sense is refused.
 *
 * label: serial
 */
#include "graph/graph.h"
#include "nn/model.h"
#include "test.h"

typedef struct census {
    int n_params, n_buffers, n_units;
    int64_t n_values; /* elements of all parameters */
} census;

static wf_graph *build(wf_context *ctx, const char *name, const wf_model_config *config) {
    wf_graph *g;
    wf_graph_config graph = WF_GRAPH_CONFIG_INIT;
    scoped_model model = test_find_model(ctx, name, config);
    TEST_OK(ctx, wf_graph_create(ctx, &graph, model->function, model->config, &g));
    return g;
}

static census count(const wf_graph *g) {
    census c = {.n_units = g->n_units};
    for (int32_t v = 0; v < g->n_values; v++) {
        c.n_buffers += g->values[v].kind == WFI_VALUE_BUFFER;
        if (g->values[v].kind != WFI_VALUE_PARAM) continue;
        c.n_params++;
        c.n_values += wf_shape_n_elem(&g->values[v].shape);
    }
    return c;
}

/* Fails unless a parameter or buffer of that name and shape is there. */
static void expect(const wf_graph *g, const char *name, wf_shape shape) {
    char is[WFI_SHAPE_TEXT], wanted[WFI_SHAPE_TEXT];
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = &g->values[v];
        if (value->kind != WFI_VALUE_PARAM && value->kind != WFI_VALUE_BUFFER) continue;
        if (strcmp(value->name, name)) continue;
        if (!wfi_shape_equal(&value->shape, &shape))
            fail_msg("%s is %s, not %s", name, wfi_shape_text(&value->shape, is),
                     wfi_shape_text(&shape, wanted));
        return;
    }
    fail_msg("there is no %s", name);
}

TEST(resnet50) {
    scoped_graph g = build(ctx, "resnet50", NULL);
    census c = count(g);
    assert_int_equal(c.n_params, 161);
    assert_int_equal(c.n_values, 25557032);
    assert_int_equal(c.n_buffers, 159);
    assert_int_equal(c.n_units, 34); /* stem, two a block of 3 + 4 + 6 + 3, head */
    expect(g, "conv1.weight", WF_SHAPE(64, 3, 7, 7));
    expect(g, "bn1.running_var", WF_SHAPE(64));
    expect(g, "bn1.num_batches_tracked", WF_SCALAR);
    expect(g, "layer1.0.downsample.0.weight", WF_SHAPE(256, 64, 1, 1));
    expect(g, "layer1.0.downsample.1.running_mean", WF_SHAPE(256));
    expect(g, "layer2.0.conv2.weight", WF_SHAPE(128, 128, 3, 3));
    expect(g, "layer4.2.bn3.bias", WF_SHAPE(2048));
    expect(g, "fc.weight", WF_SHAPE(1000, 2048));
    expect(g, "fc.bias", WF_SHAPE(1000));
    assert_string_equal(g->units[0].name, "stem");
    assert_string_equal(g->units[1].name, "layer1.0");
    assert_string_equal(g->units[2].name, "layer1.0.conv3");
    assert_string_equal(g->units[33].name, "head");
}

TEST(basic_resnets) {
    wf_graph *g = build(ctx, "resnet18", NULL);
    assert_int_equal(count(g).n_params, 62);
    assert_int_equal(count(g).n_values, 11689512);
    expect(g, "layer2.0.downsample.0.weight", WF_SHAPE(128, 64, 1, 1));
    expect(g, "layer4.1.conv2.weight", WF_SHAPE(512, 512, 3, 3));
    wf_graph_destroy(g);
    g = build(ctx, "resnet34", NULL);
    assert_int_equal(count(g).n_params, 110);
    assert_int_equal(count(g).n_values, 21797672);
    wf_graph_destroy(g);

    wf_model_config small =
        TEST_MODEL(.channels = 1, .height = 28, .width = 28, .n_classes = 10, .small_stem = 1);
    g = build(ctx, "resnet18", &small);
    expect(g, "conv1.weight", WF_SHAPE(64, 1, 3, 3));
    expect(g, "fc.weight", WF_SHAPE(10, 512));
    wf_graph_destroy(g);
}

TEST(gpt2) {
    wf_model_config config = TEST_MODEL(.n_tokens = 32, .n_classes = INT64_C(1) << 40);
    wf_model *model;
    TEST_REFUSED(ctx, wf_model_find(ctx, "gpt2", &config, &model), WF_INVALID_ARG,
                 "n_classes is 1099511627776; it must lie between 0 and 2147483647");
    config.n_classes = 0; /* the model's own vocabulary */
    wf_graph *g = build(ctx, "gpt2", &config);
    census c = count(g);
    assert_int_equal(c.n_params, 148);
    assert_int_equal(c.n_values, 124439808);
    assert_int_equal(c.n_units, 14);
    expect(g, "wte.weight", WF_SHAPE(50257, 768));
    expect(g, "wpe.weight", WF_SHAPE(1024, 768));
    expect(g, "h.0.attn.c_attn.weight", WF_SHAPE(768, 2304)); /* [in, out] */
    expect(g, "h.11.mlp.c_proj.weight", WF_SHAPE(3072, 768));
    expect(g, "h.11.mlp.c_proj.bias", WF_SHAPE(768));
    expect(g, "h.5.ln_2.bias", WF_SHAPE(768));
    expect(g, "ln_f.weight", WF_SHAPE(768));
    assert_string_equal(g->units[0].name, "embed");
    assert_string_equal(g->units[1].name, "h.0");
    assert_string_equal(g->units[13].name, "head");
    wf_graph_destroy(g);

    g = build(ctx, "gpt2-tiny", &config);
    expect(g, "wte.weight", WF_SHAPE(256, 64));
    expect(g, "wpe.weight", WF_SHAPE(64, 64));
    assert_int_equal(count(g).n_units, 4);
    wf_graph_destroy(g);

    /* GPT-2 1.5B, which has 48 layers and heads of 64; what is not said is GPT-2's. */
    config.n_tokens = 2000;
    config.n_layers = 48, config.hidden = 1600, config.n_heads = 25;
    g = build(ctx, "gpt", &config);
    assert_int_equal(count(g).n_units, 50);
    expect(g, "wpe.weight", WF_SHAPE(2000, 1600));
    expect(g, "h.47.mlp.c_fc.weight", WF_SHAPE(1600, 6400));
    wf_graph_destroy(g);
    config.n_tokens = 32;
    g = build(ctx, "gpt", &config);
    assert_int_equal(count(g).n_values, 1557611200);
    wf_graph_destroy(g);
    config.n_layers = config.hidden = config.n_heads = 0;
    g = build(ctx, "gpt", &config);
    assert_int_equal(count(g).n_values, 124439808);
    wf_graph_destroy(g);
}

TEST(mlp) {
    wf_model_config config = TEST_MODEL(.channels = 1, .height = 28, .width = 28, .n_classes = 10);
    scoped_graph g = build(ctx, "mlp", &config);
    expect(g, "net1.weight", WF_SHAPE(256, 784));
    expect(g, "net3.bias", WF_SHAPE(10));
    assert_int_equal(count(g).n_values, 784 * 256 + 256 + 256 * 256 + 256 + 2560 + 10);
}

static wf_status try_model(wf_context *ctx, const char *name, const wf_model_config *config) {
    wf_model *model;
    wf_status status = wf_model_find(ctx, name, config, &model);
    if (status == WF_OK) wf_model_destroy(model);
    return status;
}

TEST(refusals) {
    wf_model_config c = WF_MODEL_CONFIG_INIT;
    TEST_REFUSED(ctx, try_model(ctx, "resnet19", &c), WF_INVALID_ARG, "resnet18, resnet34");
    c.n_tokens = 8;
    TEST_REFUSED(ctx, try_model(ctx, "mlp", &c), WF_INVALID_ARG, "does not use n_tokens");
    c.n_tokens = 0, c.dropout = 0.1;
    TEST_REFUSED(ctx, try_model(ctx, "resnet18", &c), WF_INVALID_ARG, "does not use dropout");
    c.dropout = 1;
    TEST_REFUSED(ctx, try_model(ctx, "gpt2", &c), WF_INVALID_ARG, "dropout is 1");
    c.dropout = 0, c.small_stem = 1;
    TEST_REFUSED(ctx, try_model(ctx, "mlp", &c), WF_INVALID_ARG, "small_stem");
    c.small_stem = 0, c.height = 32;
    TEST_REFUSED(ctx, try_model(ctx, "gpt2", &c), WF_INVALID_ARG,
                 "does not use height, which is for models of images");
    c.height = 224, c.n_layers = 3;
    TEST_REFUSED(ctx, try_model(ctx, "gpt2", &c), WF_INVALID_ARG, "does not use n_layers");
    c.n_heads = 5;
    TEST_REFUSED(ctx, try_model(ctx, "gpt", &c), WF_INVALID_ARG, "768 does not divide into 5");
    c.n_heads = -12;
    TEST_REFUSED(ctx, try_model(ctx, "gpt", &c), WF_INVALID_ARG, "n_heads is -12");
    c.n_heads = 0, c.n_positions = -1;
    TEST_REFUSED(ctx, try_model(ctx, "gpt", &c), WF_INVALID_ARG, "n_positions is -1");
    c.n_positions = 0, c.n_layers = 4097;
    TEST_REFUSED(ctx, try_model(ctx, "gpt", &c), WF_INVALID_ARG, "n_layers is 4097");
    c.n_layers = 0, c.height = 0;
    TEST_REFUSED(ctx, try_model(ctx, "mlp", &c), WF_INVALID_ARG,
                 "height is 0; it must lie between 1");
    c.height = 224, c.n_classes = -1;
    TEST_REFUSED(ctx, try_model(ctx, "mlp", &c), WF_INVALID_ARG, "classes");

    /* More tokens than there are positions: known when the graph is built. */
    wf_graph_config graph = WF_GRAPH_CONFIG_INIT;
    wf_graph *g;
    scoped_model model = test_find_model(ctx, "gpt2-tiny", &TEST_MODEL(.n_tokens = 65));
    TEST_REFUSED(ctx, wf_graph_create(ctx, &graph, model->function, model->config, &g),
                 WF_INVALID_ARG, "at most 64");
}
