/* Microbatches accumulate where they are computed: a step reduces each gradient once, however
 * many microbatches it has. */
#include "program/program.h"
#include "small_models.h"

typedef struct traffic {
    size_t sent, received, reduced; /* bytes */
    size_t n_reductions;
} traffic;

static traffic traffic_of(wf_context *ctx, const char *plan_text, int64_t n_micro) {
    wf_recipe recipe = small_recipe();
    wf_model *model;
    wf_plan *plan;
    wf_program *p;
    traffic sum = {0};
    recipe.n_micro = n_micro;
    recipe.n_lanes = 2;
    TEST_OK(ctx, wf_model_create(ctx, "plain", plain_net, NULL, 0, &model));
    TEST_OK(ctx, wf_plan_parse(ctx, plan_text, &plan));
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    for (int r = 0; r < wf_program_n_ranks(p); r++) {
        sum.sent += wf_program_rank(p, r).sent_bytes;
        sum.received += wf_program_rank(p, r).received_bytes;
    }
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (!wfi_is_reduction(now) || now->rank) continue;
        sum.n_reductions++;
        for (int32_t k = 0; k < wfi_n_moved(p, now); k++) sum.reduced += now->references[k].bytes;
    }
    wf_program_destroy(p);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    return sum;
}

static void one_reduction_a_step(void **state) {
    (void)state;
    static const char *const plans[] = {"dp=2,allreduce=root", "dp=2,allreduce=direct",
                                        "dp=2,bucket=1KiB"};
    wf_context *ctx = test_context();
    /* conv1, fc1 and fc2: each parameter begins a cache line. */
    const size_t parameters = (3 * 16 * 9 + 256 * 20 + 32 + 20 * 10 + 8 + 16) * sizeof(float);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        traffic once = traffic_of(ctx, plans[k], 2);
        assert_true(once.sent > 0 && once.n_reductions > 0);
        assert_int_equal(once.reduced, parameters);
        for (int64_t n_micro = 4; n_micro <= 16; n_micro *= 2) {
            traffic more = traffic_of(ctx, plans[k], n_micro);
            if (memcmp(&more, &once, sizeof once))
                fail_msg(
                    "%s, %d microbatches: %zu bytes sent in %zu reductions, with two %zu in %zu",
                    plans[k], (int)n_micro, more.sent, more.n_reductions, once.sent,
                    once.n_reductions);
        }
    }
    test_context_end(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_reduction_a_step)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
