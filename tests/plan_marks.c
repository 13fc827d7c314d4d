/* Where stages begin: where the model marks them, unless the plan says otherwise.
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
