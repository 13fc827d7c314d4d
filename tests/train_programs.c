/* A program whose steady phase repeats gives one rank's bits. train_plans has shorter batches and
 * tests between steps.
 *
 * label: once serial long
 */
#include "plan/schedule/schedule.h"
#include "small_models.h"

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
