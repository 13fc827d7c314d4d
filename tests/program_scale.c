/* Programs of many stages and microbatches: made, proved and walked on the null device,
 * under every schedule, in a time that grows with their size and not faster.
 *
 * WEFT_TEST_FULL=1 runs the whole grid up to 64 stages x 256 microbatches.
 *
 * label: once long
 */
#include "plan/schedule/schedule.h"
#include "test.h"

#include <stdlib.h>
#include <weft/nn.h>
#include <weft/program.h>

#define N_UNITS 66

/* As little as possible in each unit: what counts is how many there are. */
static void chain(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor h = wf_input(g, "x", WF_F32, WF_SHAPE(4));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    for (int u = 0; u < N_UNITS; u++) {
        char name[16];
        snprintf(name, sizeof name, "unit%d", u);
        h = wf_linear(wf_cut(h, name), name, 4);
    }
    wf_loss(wf_cross_entropy(h, y));
}

static void make(const char *schedule, int n_stages, int n_micro) {
    wf_context *ctx = test_context();
    wf_recipe recipe = WF_RECIPE_INIT;
    recipe.batch = recipe.n_micro = n_micro;
    recipe.n_lanes = 1;
    recipe.kernels = WF_KERNELS_REFERENCE;
    wf_model *model;
    wf_plan *plan;
    wf_program *p;
    wf_dry_run run;
    char text[64];
    snprintf(text, sizeof text, "pp=%d,schedule=%s", n_stages, schedule);
    TEST_OK(ctx, wf_model_create(ctx, "chain", chain, NULL, 0, &model));
    TEST_OK(ctx, wf_plan_parse(ctx, text, &plan));
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    TEST_OK(ctx, wf_program_check(p));
    TEST_OK(ctx, wf_program_dry_run(p, &run));
    assert_true(run.n_instructions >= 2 * (int64_t)n_stages * n_micro);
    /* GBs of clocks would not fit beside what the program is for. */
    if (wf_context_memory(ctx).peak_bytes > (size_t)1 << 30)
        fail_msg("plan '%s', %d microbatches: %zu bytes of host memory", text, n_micro,
                 wf_context_memory(ctx).peak_bytes);
    wf_program_destroy(p);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    test_context_end(ctx);
}

static const int stages[] = {1, 2, 3, 8, 33, 64}, micros[] = {1, 2, 7, 64, 256};

static void grid(void **state) {
    (void)state;
    const char *full = getenv("WEFT_TEST_FULL");
    int most = full && !strcmp(full, "1") ? 64 * 256 : 600;
    for (int s = 0; wfi_schedules[s]; s++)
        for (size_t p = 0; p < sizeof stages / sizeof *stages; p++)
            for (size_t m = 0; m < sizeof micros / sizeof *micros; m++)
                if (stages[p] * micros[m] <= most &&
                    stages[p] * wfi_schedule_n_chunks(wfi_schedules[s], 0) <= N_UNITS)
                    make(wfi_schedules[s]->name, stages[p], micros[m]);
}

static void largest(void **state) {
    (void)state;
    make("zb1", 64, 256);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grid),
        cmocka_unit_test(largest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
