/* Arrays on devices, and DataParallel made of its parts: replicate, scatter, parallel_apply and
 * gather give the bits of the module on the whole batch, for every number of devices. */
#include "small_models.h"

#include <math.h>
#include <unistd.h>

static const char *const cpus[] = {"cpu:0", "cpu:1", "cpu", "cpu:0", "cpu:3", "cpu:1"};

/* ---- arrays ---- */

TEST(keeps_elements) {
    static const int64_t numbers[6] = {1, -2, 3, INT64_MAX, 5, INT64_MIN};
    int64_t back[6];
    wf_array *a, *b, *zeros, *none;
    TEST_OK(ctx, wf_array_create(ctx, WF_I64, &WF_SHAPE(2, 3), "cpu", numbers, &a));
    assert_string_equal(wf_array_device(a), "cpu:0");
    assert_int_equal(wf_array_dtype(a), WF_I64);
    assert_int_equal(wf_array_bytes(a), sizeof numbers);
    assert_int_equal(wf_array_shape(a).n_dims, 2);
    assert_int_equal(wf_array_shape(a).dim[1], 3);
    TEST_OK(ctx, wf_array_copy(a, "cpu:7", &b));
    wf_array_destroy(a);
    assert_string_equal(wf_array_device(b), "cpu:7");
    TEST_OK(ctx, wf_array_read(b, back, sizeof back));
    assert_memory_equal(back, numbers, sizeof numbers);
    TEST_REFUSED(ctx, wf_array_read(b, back, 8), WF_SHAPE, "48 bytes, not 8");
    wf_array_destroy(b);
    TEST_OK(ctx, wf_array_create(ctx, WF_F64, &WF_SCALAR, "cpu:0", NULL, &zeros));
    double zero = 1;
    TEST_OK(ctx, wf_array_read(zeros, &zero, sizeof zero));
    assert_true(zero == 0);
    int n;
    TEST_REFUSED(ctx, wf_array_scatter(zeros, cpus, 2, &none, &n), WF_SHAPE, "no samples");
    wf_array_destroy(zeros);
    const struct {
        wf_shape shape;
        const char *device;
        wf_status status;
        const char *says;
    } bad[] = {{WF_SHAPE(2, -1), "cpu", WF_INVALID_ARG, "dim 1 is -1"},
               {WF_SHAPE(INT64_MAX, 3), "cpu", WF_INVALID_ARG, "dim 0"},
               {WF_SHAPE(2), "cuda:0", WF_UNSUPPORTED, "CPU devices"},
               {WF_SHAPE(2), "null", WF_UNSUPPORTED, "CPU devices"},
               {WF_SHAPE(2), NULL, WF_UNSUPPORTED, "CPU devices"},
               {WF_SHAPE(2), "cpu:0,cpu:1", WF_INVALID_ARG, "cpu:0,cpu:1"}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        TEST_REFUSED(ctx, wf_array_create(ctx, WF_F32, &bad[k].shape, bad[k].device, NULL, &none),
                     bad[k].status, bad[k].says);
}

/* As torch divides: equal shares but for the last, and none that is empty. */
TEST(scatters_and_gathers) {
    static const struct {
        int n_devices, n_samples, n_parts, parts[6];
    } cases[] = {{3, 20, 3, {7, 7, 6}}, {4, 5, 3, {2, 2, 1}}, {6, 3, 3, {1, 1, 1}},
                 {2, 1, 1, {1}},        {1, 4, 1, {4}},       {2, 20, 2, {10, 10}}};
    float data[20 * 3], back[20 * 3];
    for (int i = 0; i < 60; i++) data[i] = (float)i;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        wf_array *all, *parts[6], *joined;
        wf_shape shape = WF_SHAPE(cases[k].n_samples, 3);
        int n_parts;
        TEST_OK(ctx, wf_array_create(ctx, WF_F32, &shape, "cpu:2", data, &all));
        TEST_OK(ctx, wf_array_scatter(all, cpus, cases[k].n_devices, parts, &n_parts));
        assert_int_equal(n_parts, cases[k].n_parts);
        for (int p = 0; p < n_parts; p++) {
            assert_int_equal(wf_array_shape(parts[p]).dim[0], cases[k].parts[p]);
            assert_string_equal(wf_array_device(parts[p]), p == 2 ? "cpu:0" : cpus[p]);
        }
        TEST_OK(ctx, wf_array_gather(parts, n_parts, "cpu:5", &joined));
        assert_string_equal(wf_array_device(joined), "cpu:5");
        TEST_OK(ctx, wf_array_read(joined, back, (size_t)cases[k].n_samples * 12));
        assert_memory_equal(back, data, (size_t)cases[k].n_samples * 12);
        for (int p = 0; p < n_parts; p++) wf_array_destroy(parts[p]);
        wf_array_destroy(joined);
        wf_array_destroy(all);
    }
    wf_array *two[2], *none;
    TEST_OK(ctx, wf_array_create(ctx, WF_F32, &WF_SHAPE(4, 3), "cpu", NULL, &two[0]));
    TEST_OK(ctx, wf_array_create(ctx, WF_F32, &WF_SHAPE(4, 2), "cpu", NULL, &two[1]));
    TEST_REFUSED(ctx, wf_array_gather(two, 2, "cpu", &none), WF_SHAPE,
                 "array 0 is F32 [4, 3], array 1 is F32 [4, 2]");
    wf_array_destroy(two[1]);
    TEST_OK(ctx, wf_array_create(ctx, WF_I32, &WF_SHAPE(4, 3), "cpu", NULL, &two[1]));
    TEST_REFUSED(ctx, wf_array_gather(two, 2, "cpu", &none), WF_SHAPE, "array 1 is I32");
    const char *const bad[] = {"cpu:0", "tpu:1"};
    wf_array *parts[2];
    int n;
    TEST_REFUSED(ctx, wf_array_scatter(two[0], bad, 2, parts, &n), WF_UNSUPPORTED, "tpu:1");
    wf_array_destroy(two[0]);
    wf_array_destroy(two[1]);
}

/* ---- modules ---- */

/* The tutorial's block, without a loss. */
static void block(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(20));
    wf_output(wf_linear(wf_relu(wf_linear(x, "net1", 20)), "net2", 20), "out");
}

static wf_model *make_model(wf_context *ctx, int which) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    wf_model *model;
    if (which == 2) {
        config.n_tokens = 8;
        config.n_classes = 50;
        model = test_find_model(ctx, "gpt2-tiny", &config);
    } else {
        model = test_model(ctx, "block", which ? small_net : block, NULL, 0);
    }
    return model;
}

static wf_array *make_input(wf_context *ctx, int which, int64_t n) {
    static const int64_t n_elem[] = {20, SMALL_IMAGE, 8};
    wf_shape shapes[] = {WF_SHAPE(n, 20), WF_SHAPE(n, 3, 8, 8), WF_SHAPE(n, 8)};
    size_t n_all = (size_t)(n * n_elem[which]);
    float *floats = malloc(n_all * sizeof *floats);
    int32_t *tokens = (int32_t *)floats;
    wf_array *input;
    assert_non_null(floats);
    if (which == 2)
        for (size_t i = 0; i < n_all; i++) tokens[i] = (int32_t)(i * 7 % 50);
    else
        wfi_random_fill_normal((wfi_random_key){3, 4}, 0, 0, 1, (int64_t)n_all, floats);
    TEST_OK(ctx, wf_array_create(ctx, which == 2 ? WF_I32 : WF_F32, &shapes[which], "cpu:0", floats,
                                 &input));
    free(floats);
    return input;
}

static char *content_of(wf_context *ctx, const wf_array *a) {
    char *content = malloc(wf_array_bytes(a));
    assert_non_null(content);
    TEST_OK(ctx, wf_array_read(a, content, wf_array_bytes(a)));
    return content;
}

static void expect_same(wf_context *ctx, const wf_array *got, const wf_array *want,
                        const char *what, int n) {
    assert_int_equal(wf_array_bytes(got), wf_array_bytes(want));
    char *a = content_of(ctx, got), *b = content_of(ctx, want);
    if (memcmp(a, b, wf_array_bytes(want))) fail_msg("%s over %d devices has other bits", what, n);
    free(a);
    free(b);
}

static void equals_the_whole(wf_context *ctx, wf_module *module, int which, int64_t n) {
    static const char *const names[] = {"the block", "the convolutional net", "gpt2-tiny"};
    wf_array *input = make_input(ctx, which, n), *want, *got;
    TEST_OK(ctx, wf_module_apply(module, input, &want));
    assert_int_equal(wf_array_shape(want).dim[0], n);
    for (int n_devices = 0; n_devices <= 6; n_devices += 1 + (n_devices > 2)) {
        const char *to = n_devices == 2 ? "cpu:9" : NULL;
        TEST_OK(ctx, wf_data_parallel(module, input, cpus, n_devices, to, &got));
        assert_string_equal(wf_array_device(got), to ? to : "cpu:0");
        expect_same(ctx, got, want, names[which], n_devices);
        wf_array_destroy(got);
    }
    wf_array_destroy(want);
    wf_array_destroy(input);
}

TEST(is_the_module) {
    static const struct {
        int64_t grain, n_samples; /* shares begin at multiples of the grain */
        wf_kernels kernels;
    } cases[] = {{1, 20, WF_KERNELS_FAST}, {1, 3, WF_KERNELS_FAST}, {1, 1, WF_KERNELS_REFERENCE}};
    for (int which = 0; which < 3; which++) {
        scoped_model model = make_model(ctx, which);
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            wf_module_config config = WF_MODULE_CONFIG_INIT;
            scoped_module module;
            config.grain = cases[k].grain;
            config.kernels = cases[k].kernels;
            config.seed = 3;
            if (which == 1) config.output = "logits";
            TEST_OK(ctx, wf_module_create(ctx, model, &config, &module));
            equals_the_whole(ctx, module, which, cases[k].n_samples);
        }
    }
}

/* A larger grain divides as well, if the parts do: 24 samples, grain 4, over 1, 2, 3 or 6. */
TEST(keeps_a_grain) {
    scoped_model model = make_model(ctx, 0);
    wf_module_config config = WF_MODULE_CONFIG_INIT;
    scoped_module module;
    config.grain = 4;
    TEST_OK(ctx, wf_module_create(ctx, model, &config, &module));
    wf_array *input = make_input(ctx, 0, 24), *want, *got;
    TEST_OK(ctx, wf_module_apply(module, input, &want));
    for (int n = 1; n <= 6; n += 1 + (n == 3) * 2) {
        TEST_OK(ctx, wf_data_parallel(module, input, cpus, n, NULL, &got));
        expect_same(ctx, got, want, "a grain of 4", n);
        wf_array_destroy(got);
    }
    wf_array_destroy(want);
    wf_array_destroy(input);
}

/* Replicas have the weights that the module has when they are made, not those of its seed. */
TEST(copies_weights) {
    char folder[] = "/tmp/weft-test-XXXXXX", path[64];
    float a[400], b[400];
    scoped_model model = make_model(ctx, 0);
    wf_module_config config = WF_MODULE_CONFIG_INIT;
    wf_module *module, *replicas[2];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/weights", folder);
    for (int i = 0; i < 400; i++) a[i] = 0.01f * (float)(i % 17);
    wf_tensor_data tensors[] = {{"net1.weight", WF_F32, WF_SHAPE(20, 20), a},
                                {"net1.bias", WF_F32, WF_SHAPE(20), a},
                                {"net2.weight", WF_F32, WF_SHAPE(20, 20), a},
                                {"net2.bias", WF_F32, WF_SHAPE(20), a}};
    TEST_OK(ctx, wf_safetensors_write(ctx, path, tensors, 4, NULL, 0));
    TEST_OK(ctx, wf_module_create(ctx, model, &config, &module));
    TEST_OK(ctx, wf_module_load_weights(module, path));
    TEST_OK(ctx, wf_module_replicate(module, cpus, 2, replicas));
    for (int k = 0; k < 2; k++) {
        assert_string_equal(wf_module_device(replicas[k]), cpus[k]);
        TEST_OK(ctx, wf_module_read(replicas[k], "net2.weight", b, sizeof b));
        assert_memory_equal(a, b, sizeof a);
        wf_module_destroy(replicas[k]);
    }
    equals_the_whole(ctx, module, 0, 5);
    wf_module_destroy(module);
    unlink(path);
    rmdir(folder);
}

/* ---- what is refused ---- */

static void two_outputs(wf_graph *g, const void *config) {
    wf_tensor a = wf_input(g, "a", WF_F32, WF_SHAPE(4)), b = wf_input(g, "b", WF_F32, WF_SHAPE(4));
    wf_output(wf_add(a, b), "sum");
    wf_output(wf_sum(wf_linear(a, "l", 4), 0), "total");
}

/* A sample of a recurrent model goes on from no other sample, and from no other call. */
TEST(begins_each_sample) {
    enum { N = 3, N_TOKENS = 4, N_WORDS = 11, N_LOGITS = N_TOKENS * N_WORDS };
    int32_t tokens[N * N_TOKENS];
    for (int i = 0; i < N * N_TOKENS; i++) tokens[i] = i % N_TOKENS;
    wf_array *input, *output;
    TEST_OK(ctx, wf_array_create(ctx, WF_I32, &WF_SHAPE(N, N_TOKENS), "cpu:0", tokens, &input));
    for (int64_t grain = 1; grain <= 2; grain++) {
        static float logits[N * N_LOGITS], first[N_LOGITS];
        wf_module_config how = WF_MODULE_CONFIG_INIT;
        how.grain = grain;
        scoped_module module;
        scoped_model model = test_find_model(
            ctx, "lstm",
            &TEST_MODEL(.n_classes = N_WORDS, .n_tokens = N_TOKENS, .hidden = 8, .n_layers = 1));
        TEST_OK(ctx, wf_module_create(ctx, model, &how, &module));
        for (int call = 0; call < 2; call++) {
            TEST_OK(ctx, wf_module_apply(module, input, &output));
            TEST_OK(ctx, wf_array_read(output, logits, sizeof logits));
            wf_array_destroy(output);
            if (!call) memcpy(first, logits, sizeof first);
            for (int s = 0; s < N; s++)
                for (int i = 0; i < N_LOGITS; i++)
                    if (fabsf(logits[s * N_LOGITS + i] - first[i]) > (grain == 1 ? 0 : 1e-6f))
                        fail_msg("grain %d, call %d, sample %d: logit %d is %.9g, not %.9g",
                                 (int)grain, call, s, i, (double)logits[s * N_LOGITS + i],
                                 (double)first[i]);
        }
    }
    wf_array_destroy(input);
}

TEST(refuses) {
    wf_module_config config = WF_MODULE_CONFIG_INIT;
    wf_module *module, *pair[2];
    wf_array *out, *outs[2], *ins[2];
    wf_model *model = test_model(ctx, "two", two_outputs, NULL, 0);
    TEST_REFUSED(ctx, wf_module_create(ctx, model, &config, &module), WF_INVALID_ARG, "2 outputs");
    config.output = "sum";
    TEST_REFUSED(ctx, wf_module_create(ctx, model, &config, &module), WF_INVALID_ARG,
                 "inputs 'a' and 'b'");
    config.output = "total";
    TEST_REFUSED(ctx, wf_module_create(ctx, model, &config, &module), WF_SHAPE,
                 "dim 0 has to be the samples");
    config.output = "mean";
    TEST_REFUSED(ctx, wf_module_create(ctx, model, &config, &module), WF_INVALID_ARG,
                 "no output 'mean'");
    config.output = NULL;
    config.grain = -1;
    TEST_REFUSED(ctx, wf_module_create(ctx, model, &config, &module), WF_INVALID_ARG, "grain");
    wf_model_destroy(model);
    model = make_model(ctx, 0);
    config.grain = 1;
    config.device = "cpu:1";
    TEST_OK(ctx, wf_module_create(ctx, model, &config, &module));
    wf_model_destroy(model);
    ins[0] = make_input(ctx, 0, 3);
    ins[1] = make_input(ctx, 1, 3);
    TEST_REFUSED(ctx, wf_module_apply(module, ins[0], &out), WF_SHAPE,
                 "the input is on cpu:0, the module on cpu:1");
    TEST_REFUSED(ctx, wf_module_apply(module, ins[1], &out), WF_SHAPE,
                 "input 'x' is F32 [1, 20], and F32 [3, 3, 8, 8] was given");
    TEST_OK(ctx, wf_module_replicate(module, cpus, 2, pair));
    TEST_REFUSED(ctx, wf_parallel_apply(pair, ins, 2, outs), WF_SHAPE, "replica 1: module: input");
    TEST_REFUSED(ctx,
                 wf_parallel_apply((wf_module *[]){pair[0], pair[0]},
                                   (wf_array *[]){ins[0], ins[0]}, 2, outs),
                 WF_INVALID_ARG, "replicas 0 and 1 are one module");
    assert_int_equal(wf_array_gather(ins, 0, "cpu", &out), WF_INVALID_ARG);
    const char *const bad[] = {"cpu:0", "disk:1"};
    TEST_REFUSED(ctx, wf_data_parallel(module, ins[0], bad, 2, NULL, &out), WF_UNSUPPORTED,
                 "disk:1");
    TEST_REFUSED(ctx, wf_data_parallel(module, ins[0], cpus, 2, "disk:1", &out), WF_UNSUPPORTED,
                 "disk:1");
    for (int k = 0; k < 2; k++) {
        wf_module_destroy(pair[k]);
        wf_array_destroy(ins[k]);
    }
    wf_module_destroy(module);
}
