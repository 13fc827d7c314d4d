/* One trainer, several programs: full batches, a shorter last one, tests. All find the state in
 * the same place, however stages are balanced: a test changes no weight, and every plan gives
 * one rank's losses, test losses and weights. And a program whose steady phase repeats.
 *
 * label: once serial long
 */
#include "plan/schedule/schedule.h"
#include "small_models.h"

#define BATCH 12
#define REST  9
#define PIXEL (3 * 8 * 8)

typedef struct outcome {
    double loss[3], test[2];
    char sha[65];
} outcome;

static wf_model *make_model(wf_context *ctx) {
    wf_model *model = test_find_model(
        ctx, "resnet18", &TEST_MODEL(.height = 8, .width = 8, .n_classes = 10, .small_stem = 1));
    return model;
}

static double run_step(wf_context *ctx, wf_trainer *t, int64_t n, bool trains) {
    static float x[BATCH * PIXEL];
    static int32_t y[BATCH];
    for (int i = 0; i < BATCH * PIXEL; i++) x[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < BATCH; i++) y[i] = i * 3 % 10;
    wf_feed feeds[] = {{"x", x, (size_t)n * PIXEL * sizeof *x}, {"y", y, (size_t)n * sizeof *y}};
    wf_step_result result;
    if (trains)
        TEST_OK(ctx, wf_trainer_step(t, feeds, 2, n, &result));
    else
        TEST_OK(ctx, wf_trainer_eval(t, feeds, 2, n, &result));
    return result.loss;
}

static outcome run(const char *plan_text, bool measured) {
    scoped_context ctx = test_context();
    scoped_model model = make_model(ctx);
    wf_recipe recipe = TEST_RECIPE(.batch = BATCH, .n_micro = 4, .n_threads = 1,
                                   .optimizer = WF_ADAMW, .lr = 0.001);
    wf_costs *costs = NULL;
    scoped_trainer t;
    char before[65];
    outcome o;
    scoped_plan plan = test_plan(ctx, plan_text);
    if (measured) {
        TEST_OK(ctx, wf_costs_measure(ctx, model, &recipe, plan, NULL, &costs));
        TEST_OK(ctx, wf_plan_use_costs(plan, costs));
        wf_costs_destroy(costs);
    }
    TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, NULL, &t));
    o.loss[0] = run_step(ctx, t, BATCH, true);
    TEST_OK(ctx, wf_trainer_weights_sha256(t, before));
    o.test[0] = run_step(ctx, t, 7, false);
    TEST_OK(ctx, wf_trainer_weights_sha256(t, o.sha));
    if (strcmp(before, o.sha)) fail_msg("plan %s: a test changes the weights", plan_text);
    o.loss[1] = run_step(ctx, t, REST, true);
    o.test[1] = run_step(ctx, t, BATCH, false);
    o.loss[2] = run_step(ctx, t, BATCH, true);
    TEST_OK(ctx, wf_trainer_weights_sha256(t, o.sha));
    for (int r = 0; r < wf_plan_n_ranks(plan); r++) {
        wf_trainer_memory memory = wf_trainer_memory_of(t, r);
        assert_int_equal(memory.planned_peak_bytes, memory.measured_peak_bytes);
    }
    return o;
}

static void compare(const outcome *one, const char *plan, bool measured) {
    outcome o = run(plan, measured);
    if (memcmp(one->loss, o.loss, sizeof o.loss) || memcmp(one->test, o.test, sizeof o.test) ||
        strcmp(one->sha, o.sha))
        fail_msg("plan %s: losses %.17g %.17g %.17g, tests %.17g %.17g; one rank has %.17g %.17g "
                 "%.17g, %.17g %.17g",
                 plan, o.loss[0], o.loss[1], o.loss[2], o.test[0], o.test[1], one->loss[0],
                 one->loss[1], one->loss[2], one->test[0], one->test[1]);
}

TEST_CASE(every_schedule) {
    outcome one = run("", false);
    for (int k = 0; wfi_schedules[k]; k++) {
        if (k % TEST_SAMPLE) continue;
        char plan[64];
        snprintf(plan, sizeof plan, "pp=%d,schedule=%s", 2 + k % 3, wfi_schedules[k]->name);
        compare(&one, plan, false);
    }
    compare(&one, "dp=1,pp=2", true);
}

/* A lane of so many microbatches that the memory of the steady phase is planned once
 * (compile/short_form.c). The third step reads the momentum that a step like all later ones left.
 */
TEST(many_microbatches) {
    enum { MANY = 64 };
    static float x[MANY * SMALL_IMAGE];
    static int32_t y[MANY];
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    char one[65], sha[65], plan[64] = "";
    wf_recipe recipe = SMALL_RECIPE(.batch = MANY, .n_micro = MANY, .n_threads = 1,
                                    .kernels = WF_KERNELS_REFERENCE);
    for (int i = 0; i < MANY * SMALL_IMAGE; i++) x[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < MANY; i++) y[i] = i * 3 % 10;
    for (int k = -1; k < 0 || wfi_schedules[k]; k++) {
        wf_step_result result;
        bool is_deep = k >= 0 && wfi_schedule_n_chunks(wfi_schedules[k], 0) > 1; /* of four units */
        if (k >= 0)
            snprintf(plan, sizeof plan, "pp=%d,schedule=%s", is_deep ? 2 : 2 + k % 3,
                     wfi_schedules[k]->name);
        scoped_trainer t = planned_trainer(ctx, token_net, &recipe, plan, NULL, 0);
        for (int s = 0; s < 3; s++) TEST_OK(ctx, wf_trainer_step(t, feeds, 2, MANY, &result));
        TEST_OK(ctx, wf_trainer_weights_sha256(t, k < 0 ? one : sha));
        if (k >= 0 && strcmp(sha, one)) fail_msg("plan '%s': not one rank's bits", plan);
        small_expect_planned(t, plan);
    }
}
