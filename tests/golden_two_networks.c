/* Networks that are trained beside each other, their weights copied from trainer to trainer:
 * PyTorch's losses of 50 steps (golden/make_dqn.py, make_dcgan.py), under plans.
 *
 * label: once
 */
#include "api/trainer.h"
#include "golden/formula.h"
#include "test.h"

#include <unistd.h>

enum { N_STEPS = 50, N_TRANSITIONS = 32, COPY_EVERY = 10, N_STATES = N_STEPS * N_TRANSITIONS };

static wf_trainer *make(wf_context *ctx, wf_model_function function, const char *recipe,
                        const char *plan) {
    wf_trainer *t;
    TEST_OK(ctx, wf_trainer_open(ctx, function, NULL, recipe, plan, &t));
    return t;
}

/* The formula's; of convolutions a quarter. */
static void fill(const wfi_value *value, float *data) {
    golden_fill_parameter(value->name, value->shape.dim, value->shape.n_dims, data);
    for (int64_t i = 0; i < wf_shape_n_elem(&value->shape) && value->shape.n_dims == 4; i++)
        data[i] /= 4;
}

/* Such weights, as a file. */
static void load_formula(wf_context *ctx, wf_trainer *t) {
    const wf_graph *g = wfi_trainer_graph(t);
    wf_tensor_data tensors[64];
    const char *base = getenv("TMPDIR");
    char path[400];
    int n = 0;
    snprintf(path, sizeof path, "%s/weft-two-%d.safetensors", base ? base : "/tmp", (int)getpid());
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind != WFI_VALUE_PARAM && value->kind != WFI_VALUE_BUFFER) continue;
        void *data = malloc(wfi_value_bytes(g, v));
        assert_true(data && n < 64);
        if (value->kind == WFI_VALUE_PARAM)
            fill(value, data);
        else
            TEST_OK(ctx, wf_trainer_read(t, value->name, data, wfi_value_bytes(g, v)));
        tensors[n++] = (wf_tensor_data){value->name, value->dtype, value->shape, data};
    }
    TEST_OK(ctx, wf_safetensors_write(ctx, path, tensors, n, NULL, 0));
    while (n > 0) free((void *)tensors[--n].data);
    TEST_OK(ctx, wf_trainer_load_weights(t, path));
    unlink(path);
}

static void compare_loss(FILE *golden, double loss, int step, const char *plan) {
    double wanted;
    assert_int_equal(fscanf(golden, "%lf", &wanted), 1);
    if (!(fabs(loss - wanted) <= 2e-5 * (1 + wanted)))
        fail_msg("'%s': step %d has the loss %.9f, PyTorch's %.9f", plan, step + 1, loss, wanted);
}

static int compare_norms(wf_context *ctx, wf_trainer *t, FILE *golden) {
    const wf_graph *g = wfi_trainer_graph(t);
    char name[64];
    double wanted;
    int n = 0;
    for (; fscanf(golden, "%63s %lf", name, &wanted) == 2; n++) {
        size_t bytes = 0;
        double sum = 0;
        for (int32_t v = 0; v < g->n_values; v++)
            if (g->values[v].name && !strcmp(g->values[v].name, name))
                bytes = wfi_value_bytes(g, v);
        assert_true(bytes > 0);
        float *data = malloc(bytes);
        assert_non_null(data);
        TEST_OK(ctx, wf_trainer_read(t, name, data, bytes));
        for (size_t i = 0; i < bytes / sizeof *data; i++) sum += (double)data[i] * data[i];
        free(data);
        if (fabs(sqrt(sum) - wanted) > 1e-4 * wanted)
            fail_msg("the norm of %s is %.9g, PyTorch's %.9g", name, sqrt(sum), wanted);
    }
    return n;
}

/* ---- a network and its target network ---- */

static void dqn(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(4));
    wf_tensor action = wf_input(g, "action", WF_I32, WF_SCALAR);
    wf_tensor wanted = wf_input(g, "wanted", WF_F32, WF_SCALAR);
    x = wf_cut(wf_relu(wf_linear(x, "layer1", 16)), "second");
    wf_tensor q = wf_linear(wf_relu(wf_linear(x, "layer2", 16)), "layer3", 2);
    wf_output(q, "q");
    wf_loss(wf_smooth_l1(wf_gather(q, action), wanted));
}

static float s[N_STATES][4], next[N_STATES][4];
static int32_t action[N_STATES], end[N_STATES];

static double learn(wf_context *ctx, wf_trainer *policy, wf_trainer *target, int first) {
    float q[N_TRANSITIONS][2], wanted[N_TRANSITIONS];
    wf_step_result result;
    const wf_feed of_next = {"x", next[first], sizeof *next * N_TRANSITIONS};
    const wf_feed feeds[] = {{"x", s[first], sizeof *s * N_TRANSITIONS},
                             {"action", &action[first], sizeof *action * N_TRANSITIONS},
                             {"wanted", wanted, sizeof wanted}};
    TEST_OK(ctx, wf_trainer_forward(target, &of_next, 1, N_TRANSITIONS, "q", q, sizeof q));
    for (int i = 0; i < N_TRANSITIONS; i++)
        wanted[i] = 1 + (end[first + i] ? 0.99f * fmaxf(q[i][0], q[i][1]) : 0);
    TEST_OK(ctx, wf_trainer_step(policy, feeds, 3, N_TRANSITIONS, &result));
    return result.loss;
}

TEST_CASE(dqn_as_pytorch) {
    static const char recipe[] =
        "batch=32,micro=4,lanes=2,optimizer=adamw,lr=0.01,weight_decay=0.01";
    static const char *const plans[][2] = {/* the policy's, the target's */
                                           {"", ""},
                                           {"dp=2,zero=3", "pp=2"},
                                           {"pp=2", "dp=2,zero=1"},
                                           {"dp=2", "dp=2,pp=2"}};
    char one[65], hex[65];
    golden_fill("state", 2, 0, s[0], sizeof s / sizeof(float));
    golden_fill("next", 2, 0, next[0], sizeof next / sizeof(float));
    golden_fill_integers("action", 2, action, N_STATES);
    golden_fill_integers("end", 5, end, N_STATES); /* 0: it is one */
    scoped_context ctx = test_context();
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        scoped_trainer policy = make(ctx, dqn, recipe, plans[k][0]);
        scoped_trainer target = make(ctx, dqn, recipe, plans[k][1]);
        FILE *golden = fopen("tests/golden/dqn.txt", "r");
        assert_non_null(golden);
        load_formula(ctx, policy);
        for (int step = 0; step < N_STEPS; step++) {
            if (step % COPY_EVERY == 0) TEST_OK(ctx, wf_trainer_copy_weights(target, policy, NULL));
            compare_loss(golden, learn(ctx, policy, target, step * N_TRANSITIONS), step,
                         plans[k][0]);
        }
        assert_int_equal(compare_norms(ctx, policy, golden), 6);
        fclose(golden);
        TEST_OK(ctx, wf_trainer_weights_sha256(policy, k ? hex : one));
        if (k) assert_string_equal(hex, one);
    }
}

/* ---- two networks that are trained against each other ---- */

enum { N_IMAGES = 8, IMAGE = 16 * 16, NOISE = 8, WIDTH = 8 };

static wf_tensor transposed(wf_tensor x, const char *name, int64_t n_out, wf_conv2d_shape how) {
    int64_t n_in = wf_tensor_shape(x).dim[1];
    wf_scope(x.graph, "%s", name);
    wf_tensor weight = wf_parameter(x.graph, "weight", WF_SHAPE(n_in, n_out, 4, 4),
                                    (wf_init){WF_INIT_NORMAL, 0.02f});
    wf_scope_end(x.graph);
    return wf_conv_transpose2d_with(x, weight, how);
}

static wf_tensor generate(wf_graph *g) {
    const wf_conv2d_shape twice = {.stride = 2, .pad = 1};
    wf_tensor x = wf_input(g, "noise", WF_F32, WF_SHAPE(NOISE, 1, 1));
    wf_scope(g, "g");
    x = transposed(x, "conv1", 2 * WIDTH, (wf_conv2d_shape){.stride = 1});
    x = transposed(wf_relu(wf_batch_norm(x, "bn1")), "conv2", WIDTH, twice);
    x = transposed(wf_relu(wf_batch_norm(x, "bn2")), "conv3", 1, twice);
    wf_scope_end(g);
    return wf_cut(wf_tanh(x), "made");
}

static wf_tensor discriminate(wf_tensor x) {
    const wf_conv2d_shape half = {.stride = 2, .pad = 1};
    wf_scope(x.graph, "d");
    x = wf_leaky_relu(wf_conv2d(x, "conv1", WIDTH, 4, half), 0.2f);
    x = wf_leaky_relu(wf_batch_norm(wf_conv2d(x, "conv2", 2 * WIDTH, 4, half), "bn2"), 0.2f);
    x = wf_conv2d(x, "conv3", 1, 4, (wf_conv2d_shape){.stride = 1});
    wf_scope_end(x.graph);
    return x;
}

static wf_tensor label(wf_graph *g, const char *name) {
    return wf_input(g, name, WF_F32, WF_SHAPE(1, 1, 1));
}

static void of_generator(wf_graph *g, const void *config) {
    wf_loss(wf_binary_cross_entropy(discriminate(generate(g)), label(g, "one")));
}

static void of_discriminator(wf_graph *g, const void *config) {
    wf_tensor made = generate(g), image = wf_input(g, "image", WF_F32, WF_SHAPE(1, 16, 16));
    wf_tensor loss = wf_binary_cross_entropy(discriminate(made), label(g, "zero"));
    loss = wf_cut(loss, "real");
    wf_loss(wf_add(loss, wf_binary_cross_entropy(discriminate(image), label(g, "one"))));
}

TEST(dcgan_as_pytorch) {
    static const char common[] = "batch=8,optimizer=adam,lr=0.0002,beta1=0.5,freeze=";
    static const char *const plans[][2] = {/* the discriminator's, the generator's */
                                           {"", ""},
                                           {"pp=2", ""},
                                           {"", "pp=2"}};
    static const float one[N_IMAGES] = {1, 1, 1, 1, 1, 1, 1, 1}, zero[N_IMAGES];
    static float image[N_STEPS][N_IMAGES * IMAGE], noise[N_STEPS][N_IMAGES * NOISE];
    char recipes[2][100], first[2][65], hex[65];
    golden_fill("image", 1, 0, image[0], sizeof image / sizeof(float));
    golden_fill("noise", 1, 0, noise[0], sizeof noise / sizeof(float));
    for (int k = 0; k < 2; k++)
        snprintf(recipes[k], sizeof recipes[k], "%s%s", common, k ? "d" : "g");
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        scoped_trainer d = make(ctx, of_discriminator, recipes[0], plans[k][0]);
        scoped_trainer g = make(ctx, of_generator, recipes[1], plans[k][1]);
        FILE *golden = fopen("tests/golden/dcgan.txt", "r");
        assert_non_null(golden);
        load_formula(ctx, d);
        TEST_OK(ctx, wf_trainer_copy_weights(g, d, NULL));
        for (int step = 0; step < N_STEPS; step++) {
            wf_step_result result;
            const wf_feed feeds[] = {{"noise", noise[step], sizeof noise[step]},
                                     {"one", one, sizeof one},
                                     {"zero", zero, sizeof zero},
                                     {"image", image[step], sizeof image[step]}};
            TEST_OK(ctx, wf_trainer_step(d, feeds, 4, N_IMAGES, &result));
            compare_loss(golden, result.loss, step, plans[k][0]);
            TEST_OK(ctx, wf_trainer_copy_weights(g, d, "d"));
            TEST_OK(ctx, wf_trainer_step(g, feeds, 2, N_IMAGES, &result));
            compare_loss(golden, result.loss, step, plans[k][1]);
            TEST_OK(ctx, wf_trainer_copy_weights(d, g, "g"));
        }
        fclose(golden);
        TEST_OK(ctx, wf_trainer_weights_sha256(d, k ? hex : first[0]));
        if (k) assert_string_equal(hex, first[0]);
        TEST_OK(ctx, wf_trainer_weights_sha256(g, k ? hex : first[1]));
        if (k) assert_string_equal(hex, first[1]);
    }
}
