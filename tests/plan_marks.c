/* Where stages begin: where the model marks them, unless the plan says otherwise; else such that
 * the heaviest is as light as can be, and the others are even.
 *
 * label: serial
 */
#include "test_program.h"

/* Four layers; the second stage begins before the last, which is no balance. */
static void marked(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(64));
    wf_tensor y = wf_input(g, "y", WF_F32, WF_SHAPE(8));
    x = wf_relu(wf_linear(wf_cut(x, "one"), "one", 64));
    x = wf_relu(wf_linear(wf_cut(x, "two"), "two", 64));
    x = wf_relu(wf_linear(wf_cut(x, "three"), "three", 64));
    x = wf_next_stage(x, "four");
    wf_loss(wf_mse(wf_linear(x, "four", 8), y));
}

static const char *second_stage(wf_context *ctx, const char *plan_text, char *name, size_t bytes) {
    wf_recipe recipe = TEST_RECIPE(.n_threads = 1);
    scoped_model model = test_model(ctx, "marked", marked, NULL, 0);
    scoped_program program = test_program(ctx, model, &recipe, plan_text);
    snprintf(name, bytes, "%s", wf_program_unit(program, 1, 0).name);
    return name;
}

TEST(who_decides) {
    char name[32];
    assert_string_equal(second_stage(ctx, "pp=2", name, sizeof name), "four");
    assert_string_equal(second_stage(ctx, "pp=2,cut=two", name, sizeof name), "two");
    assert_string_not_equal(second_stage(ctx, "pp=2,cut=balanced", name, sizeof name), "four");
    /* Another number of stages than the model marks. */
    assert_string_not_equal(second_stage(ctx, "pp=3", name, sizeof name), "four");
}

#define N_EVEN 17 /* so many stages of two layers, after one of the first layer */

static void heavy_begin(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(64));
    wf_tensor y = wf_input(g, "y", WF_F32, WF_SHAPE(8));
    x = wf_relu(wf_linear(x, "heavy", 8));
    for (int k = 0; k < 2 * N_EVEN; k++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", k);
        x = wf_relu(wf_linear(wf_cut(x, name), name, 8));
    }
    wf_loss(wf_mse(x, y));
}

TEST(stages_are_even) {
    wf_recipe recipe = WF_RECIPE_INIT;
    scoped_model model = test_model(ctx, "heavy begin", heavy_begin, NULL, 0);
    scoped_program program = test_program(ctx, model, &recipe, "pp=18");
    for (int k = 0; k < N_EVEN; k++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", 2 * k);
        assert_string_equal(wf_program_unit(program, k + 1, 0).name, name);
    }
}
