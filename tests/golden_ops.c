/* Single ops and their gradients against PyTorch's (golden/make_ops.py).
 *
 * label: serial
 */
#include "golden/formula.h"
#include "graph_walk.h"

#include <math.h>

enum { ROWS = 4, COLUMNS = 5, N = ROWS * COLUMNS };

static wf_tensor bce(wf_tensor x, wf_tensor b, wf_tensor index) {
    return wf_binary_cross_entropy(x, b);
}
static wf_tensor smooth_l1(wf_tensor x, wf_tensor b, wf_tensor index) {
    return wf_smooth_l1(x, b);
}
static wf_tensor gather(wf_tensor x, wf_tensor b, wf_tensor index) {
    return wf_gather(x, index);
}
static wf_tensor leaky_relu(wf_tensor x, wf_tensor b, wf_tensor index) {
    return wf_leaky_relu(x, 0.2f);
}

static wf_tensor conv_transpose2d(wf_tensor x, wf_tensor b, wf_tensor index) {
    return wf_conv_transpose2d_with(wf_reshape(x, WF_SHAPE(1, 2, 2, 5)),
                                    wf_reshape(b, WF_SHAPE(2, 1, 5, 2)),
                                    (wf_conv2d_shape){.stride = 2, .pad = 1});
}

static wf_tensor dilated_conv2d(wf_tensor x, wf_tensor b, wf_tensor index) {
    return wf_conv2d_with(wf_reshape(x, WF_SHAPE(1, 1, 4, 5)), wf_reshape(b, WF_SHAPE(5, 1, 2, 2)),
                          index, (wf_conv2d_shape){.pad = 1, .dilation = 2});
}

static wf_tensor dilated_transpose(wf_tensor x, wf_tensor b, wf_tensor index) {
    return wf_conv_transpose2d_with(wf_reshape(x, WF_SHAPE(1, 2, 2, 5)),
                                    wf_reshape(b, WF_SHAPE(2, 1, 5, 2)),
                                    (wf_conv2d_shape){.pad = 2, .groups = 2, .dilation = 3});
}

typedef struct golden_op {
    const char *name;
    wf_tensor (*build)(wf_tensor x, wf_tensor b, wf_tensor index);
    bool reads_b, reads_index, is_target; /* the latter: b is from 0 to 1 */
} golden_op;

static const golden_op ops[] = {
    {"binary_cross_entropy", bce, true, false, true},
    {"smooth_l1", smooth_l1, true, false, false},
    {"huber", smooth_l1, true, false, false},
    {"gather", gather, false, true, false},
    {"leaky_relu", leaky_relu, false, false, false},
    {"conv_transpose2d", conv_transpose2d, true, false, false},
    {"dilated_conv2d", dilated_conv2d, true, false, false},
    {"dilated_transpose", dilated_transpose, true, false, false},
};

static void model(wf_graph *g, const void *config) {
    const golden_op *op = config;
    wf_tensor none = {g, -1}, b = none, index = none;
    wf_tensor x = wf_parameter(g, "x", WF_SHAPE(ROWS, COLUMNS), (wf_init){WF_INIT_CONSTANT, 0});
    if (op->reads_b) b = wf_reshape(wf_input(g, "b", WF_F32, WF_SHAPE(N)), WF_SHAPE(ROWS, COLUMNS));
    if (op->reads_index)
        index = wf_reshape(wf_input(g, "index", WF_I32, WF_SHAPE(ROWS)), WF_SHAPE(ROWS));
    wf_tensor y = op->build(x, b, index);
    wf_shape shape = wf_tensor_shape(y);
    int64_t n = wf_shape_n_elem(&shape);
    y = wf_reshape(y, WF_SHAPE(1, n));
    wf_output(y, "y");
    wf_loss(wf_sum(wf_mul(y, wf_input(g, "weights", WF_F32, WF_SHAPE(n))), 1));
}

static void expect(FILE *golden, const golden_op *op, const char *what, const float *got,
                   int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double want;
        assert_int_equal(fscanf(golden, "%lf", &want), 1);
        if (!(fabs(got[i] - want) <= 1e-6 * (1 + fabs(want))))
            fail_msg("%s, %s, element %lld: %.9g, PyTorch has %.9g", op->name, what, (long long)i,
                     (double)got[i], want);
    }
}

TEST(agree) {
    static const int32_t index[ROWS] = {0, 3, 1, 4};
    FILE *golden = fopen("tests/golden/ops.txt", "r");
    assert_non_null(golden);
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        wf_graph_config config = WF_GRAPH_CONFIG_INIT;
        scoped_graph g;
        graph_walk w;
        char name[40];
        TEST_OK(ctx, wf_graph_create(ctx, &config, model, &ops[k], &g));
        walk_create(&w, g);
        golden_fill("op.x", 3, 0, walk_float(&w, "x"), N);
        if (ops[k].reads_b) golden_fill("op.b", 3, 0, walk_float(&w, "b"), N);
        for (int i = 0; i < N && ops[k].is_target; i++)
            walk_float(&w, "b")[i] = (walk_float(&w, "b")[i] + 3) / 6;
        if (ops[k].reads_index) memcpy(walk_float(&w, "index"), index, sizeof index);
        int64_t n = wf_shape_n_elem(&g->values[walk_find(g, "y")].shape);
        golden_fill("op.weight", 1, 0, walk_float(&w, "weights"), n);
        walk_run(&w, false);
        assert_int_equal(fscanf(golden, "%39s", name), 1);
        assert_string_equal(name, ops[k].name);
        expect(golden, &ops[k], "result", w.data[walk_find(g, "y")], n);
        expect(golden, &ops[k], "gradient", walk_gradient(&w, "x"), N);
        walk_destroy(&w);
    }
    fclose(golden);
}

/* ---- in a model ---- */

/* An image narrower and wide again, against a target of 0 and 1. */
static void there_and_back(wf_graph *g, const void *config) {
    wf_tensor none = {g, -1}, x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor w1 = wf_parameter(g, "w1", WF_SHAPE(16, 3, 4, 4), (wf_init){WF_INIT_NORMAL, 0.2f}),
              w2 = wf_parameter(g, "w2", WF_SHAPE(16, 16, 4, 4), (wf_init){WF_INIT_NORMAL, 0.2f}),
              w3 = wf_parameter(g, "w3", WF_SHAPE(1, 16, 3, 3), (wf_init){WF_INIT_NORMAL, 0.2f});
    wf_conv2d_shape half = {.stride = 2, .pad = 1};
    x = wf_cut(wf_leaky_relu(wf_conv2d_with(x, w1, none, half), 0.2f), "wide");
    x = wf_cut(wf_tanh(wf_conv_transpose2d_with(x, w2, half)), "head");
    x = wf_conv2d_with(x, w3, none, (wf_conv2d_shape){.pad = 2, .dilation = 2});
    wf_loss(wf_binary_cross_entropy(x, wf_input(g, "t", WF_F32, WF_SHAPE(1, 8, 8))));
}

/* Under every plan one rank's bits, and nearly those of the plain kernels. */
TEST(trains) {
    static const struct {
        const char *kernels, *plan;
    } of[] = {{"reference", ""},
              {"fast", ""},
              {"fast", "dp=2"},
              {"fast", "pp=3,schedule=zb1"},
              {"fast", "dp=2,zero=3,recompute=all"}};
    static float x[4 * 192], t[4 * 64];
    char sha[2][65];
    double losses[2];
    golden_fill("op.image", 1, 0, x, 4 * 192);
    golden_fill("op.target", 1, 0, t, 4 * 64);
    for (int i = 0; i < 4 * 64; i++) t[i] = t[i] > 0;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        scoped_trainer trainer;
        wf_step_result result;
        char recipe[100];
        const wf_feed feeds[] = {{"x", x, sizeof x}, {"t", t, sizeof t}};
        snprintf(recipe, sizeof recipe, "batch=4,micro=4,lanes=2,lr=0.1,threads=1,kernels=%s",
                 of[k].kernels);
        TEST_OK(ctx, wf_trainer_open(ctx, there_and_back, NULL, recipe, of[k].plan, &trainer));
        for (int s = 0; s < 3; s++) TEST_OK(ctx, wf_trainer_step(trainer, feeds, 2, 4, &result));
        TEST_OK(ctx, wf_trainer_weights_sha256(trainer, sha[k > 1]));
        if (k > 1) assert_string_equal(sha[1], sha[0]);
        if (k < 2) losses[k] = result.loss;
        if (k == 1) assert_float_equal(losses[1], losses[0], 1e-5);
    }
}
