/* The happens-before checker (WEFT_CHECK_EVENTS): what the executor issues is clean under every
 * schedule and plan, and what it did not see is refused.
 *
 * label: once serial
 */
#include "checked_trainer.h"
#include "execute/issue.h"

static void three_clean_steps(wf_model_function function, int64_t n_slices, const char *plan) {
    scoped_context ctx = test_context();
    wf_recipe recipe = checked_recipe();
    recipe.n_slices = n_slices;
    scoped_trainer t = planned_trainer(ctx, function, &recipe, plan, NULL, 0);
    assert_non_null(t->ready[0]->executor->happens);
    for (int step = 0; step < 3; step++) TEST_OK(ctx, small_try_step(t, step, NULL));
}

/* Two pairs of layers that ranks divide. */
static void paired_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_linear(wf_reshape(x, WF_SHAPE(-1, 192)), "first", 16);
    h = wf_add(h, wf_linear(wf_tanh(wf_linear(h, "in1", 16)), "out1", 16));
    wf_cut(h, "second");
    h = wf_add(h, wf_linear(wf_tanh(wf_linear(h, "in2", 16)), "out2", 16));
    wf_loss(wf_cross_entropy(wf_linear(h, "fc", 10), y));
}

TEST_CASE(all_plans_are_clean) {
    static const char *const grids[] = {"", "pp=2,", "pp=3,", "pp=4,", "dp=2,", "dp=2,pp=2,"};
    for (int s = 0; wfi_schedules[s]; s++)
        for (size_t k = 0; k < sizeof grids / sizeof *grids; k++) {
            char plan[64];
            bool is_deep = !strncmp(grids[k], "pp=3", 4) || !strncmp(grids[k], "pp=4", 4);
            if (is_deep && wfi_schedules[s]->n_chunks > 1) continue; /* there are four units */
            snprintf(plan, sizeof plan, "%sschedule=%s", grids[k], wfi_schedules[s]->name);
            three_clean_steps(small_net, 1, plan);
        }
    static const char *const spreads[] = {"dataparallel=2", "dataparallel=2,output=1,overlap=off",
                                          "head:dp=2", "block:dataparallel=2,last:dp=2"};
    for (size_t k = 0; k < WFI_COUNT(spreads); k++) three_clean_steps(small_net, 1, spreads[k]);
    static const char *const divided[] = {"tp=2", "tp=2,pp=2", "tp=2,dp=2,zero=2"};
    for (size_t k = 0; k < WFI_COUNT(divided); k++) three_clean_steps(paired_net, 2, divided[k]);
}

static wf_status do_nothing(void *self, void *argument) {
    return WF_OK;
}

/* A task that reaches a stream on another way than through issue.c. */
TEST(stray_task) {
    scoped_trainer t = checked_trainer(ctx, tiny_net, "pp=2");
    wfi_executor *e = t->ready[0]->executor;
    wfi_issue_begin(e);
    TEST_OK(ctx, wfi_stream_push(t->workers[1].streams[WFI_STREAM_COPY], do_nothing, NULL, NULL));
    TEST_REFUSED(
        ctx, wfi_issue_end(e), WF_BUG,
        "stream copy of rank 1 was given 1 tasks in this step, of which the checker saw 0");
}

TEST_FIXTURE(test_check_events, NULL)
