/* Parameters that no loss depends on and inputs that nothing reads are named when the plan is
 * made: by wf_program_create and by wf_trainer_create, on one rank and on several.
 *
 * label: serial
 */
#include "small_models.h"

static wf_tensor base(wf_graph *g) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(6));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_cut(wf_relu(wf_linear(x, "fc1", 8)), "second");
    wf_loss(wf_cross_entropy(wf_linear(h, "fc2", 4), y));
    return h;
}

/* A head that is an output, but no part of the loss. */
static void second_head(wf_graph *g, const void *config) {
    wf_output(wf_linear(base(g), "head", 3), "scores");
}

static void ten_alone(wf_graph *g, const void *config) {
    (void)base(g);
    for (int i = 0; i < 10; i++) {
        wf_scope(g, "extra%d", i);
        wf_parameter(g, "w", WF_SHAPE(2), (wf_init){WF_INIT_CONSTANT, 1});
        wf_scope_end(g);
    }
}

static void spare_input(wf_graph *g, const void *config) {
    wf_input(g, "mask", WF_F32, WF_SHAPE(6));
    (void)base(g);
}

/* An input that is only an output, through a reshape, is read. */
static void shown_input(wf_graph *g, const void *config) {
    wf_tensor shown = wf_input(g, "shown", WF_F32, WF_SHAPE(6));
    wf_output(wf_reshape(shown, WF_SHAPE(-1, 2, 3)), "same");
    (void)base(g);
}

static void expect(wf_model_function function, const char *says) {
    static const char *const plans[] = {"", "dp=2", "pp=2"};
    scoped_context ctx = test_context();
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        wf_recipe recipe = SMALL_RECIPE(.n_lanes = 2);
        scoped_program program;
        wf_trainer *trainer;
        scoped_model model = test_model(ctx, "unused", function, NULL, 0);
        scoped_plan plan = test_plan(ctx, plans[k]);
        TEST_REFUSED(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &program),
                     WF_INVALID_ARG, says);
        TEST_REFUSED(ctx, wf_trainer_create(ctx, model, &recipe, plan, NULL, &trainer),
                     WF_INVALID_ARG, says);
        /* Without a backward there is nothing to miss. */
        TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_FORWARD, &program));
    }
}

TEST_CASE(parameters_are_named) {
    expect(second_head, "depend on parameters 'head.weight', 'head.bias': nothing would train");
    expect(ten_alone, "'extra0.w', 'extra1.w', 'extra2.w', 'extra3.w', 'extra4.w', 'extra5.w', "
                      "'extra6.w', 'extra7.w' and 2 more");
}

TEST_CASE(inputs_are_named) {
    expect(spare_input, "nothing reads input 'mask'");
}

TEST(outputs_count) {
    wf_recipe recipe = small_recipe();
    wf_trainer_destroy(planned_trainer(ctx, shown_input, &recipe, "", "cpu:1", 0));
}
