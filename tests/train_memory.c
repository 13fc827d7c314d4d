/* Bytes: the planned peak is the measured one, the heap stays still, a cap too small
 * is a sentence, and every failed allocation is a clean error. */
#include "small_models.h"

#include <malloc.h>
#include <stdlib.h>

static void planned_is_measured(void **state) {
    (void)state;
    for (int micro = 1; micro <= 8; micro *= 2)
        for (int kernels = 0; kernels < 2; kernels++) {
            wf_context *ctx = test_context();
            wf_recipe recipe = small_recipe();
            recipe.n_micro = micro;
            recipe.n_lanes = micro > 1 ? 2 : 1;
            recipe.clip_norm = 1;
            recipe.kernels = kernels ? WF_KERNELS_REFERENCE : WF_KERNELS_FAST;
            wf_trainer *trainer = small_trainer(ctx, small_net, &recipe, 0);
            (void)small_step(ctx, trainer, 0);
            wf_trainer_memory memory = wf_trainer_memory_of(trainer, 0);
            wf_rank_summary rank = wf_program_rank(wf_trainer_program(trainer), 0);
            assert_true(memory.planned_peak_bytes > 0);
            assert_int_equal(memory.planned_peak_bytes, memory.measured_peak_bytes);
            assert_int_equal(memory.planned_peak_bytes, rank.peak_bytes);
            assert_true(rank.bound_bytes <= rank.peak_bytes);
            wf_trainer_destroy(trainer);
            test_context_end(ctx);
        }
}

static void heap_stays_still(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_recipe recipe = small_recipe();
    wf_trainer *trainer = small_trainer(ctx, small_net, &recipe, 0);
    for (int s = 0; s < 2; s++) (void)small_step(ctx, trainer, s);
    wf_memory_count before = wf_context_memory(ctx);
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    struct mallinfo2 heap = mallinfo2();
#endif
    for (int s = 0; s < 20; s++) (void)small_step(ctx, trainer, s);
    wf_memory_count after = wf_context_memory(ctx);
    assert_int_equal(after.n_allocations, before.n_allocations);
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    struct mallinfo2 now = mallinfo2();
    assert_true(now.uordblks <= heap.uordblks);
    assert_true(now.hblkhd <= heap.hblkhd);
#endif
    wf_trainer_destroy(trainer);
    test_context_end(ctx);
}

static void too_small_a_cap(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_model *model;
    wf_plan *plan;
    wf_trainer *trainer;
    wf_recipe recipe = small_recipe();
    recipe.n_micro = 1;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    TEST_OK(ctx, wf_model_create(ctx, "small", small_net, NULL, 0, &model));
    TEST_OK(ctx, wf_plan_parse(ctx, "", &plan));
    wf_program *p;
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    size_t peak = wf_program_rank(p, 0).peak_bytes;
    wf_program_destroy(p);
    config.device_memory_bytes = peak - 1;
    TEST_REFUSED(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer),
                 WF_DOES_NOT_FIT, "1 more than the");
    assert_non_null(strstr(wf_context_error(ctx), "--micro 2 or the plan dp=1,pp=2"));
    config.device_memory_bytes = 1000;
    TEST_REFUSED(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer),
                 WF_DOES_NOT_FIT, "neither more microbatches nor more stages");
    config.device_memory_bytes = peak;
    TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer));
    wf_trainer_destroy(trainer);
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    test_context_end(ctx);
}

/* ---- the n-th allocation fails ---- */

typedef struct faulty {
    long n_left; /* allocations that still succeed */
} faulty;

static void *faulty_alloc(void *self, size_t bytes) {
    faulty *f = self;
    void *block = NULL;
    if (f->n_left-- <= 0 || posix_memalign(&block, 64, bytes)) return NULL;
    return block;
}

static void faulty_free(void *self, void *block) {
    (void)self;
    free(block);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const plans[] = {"", "dp=2,pp=2"};
    for (int k = 0; k < 2; k++)
        for (long n = 1;; n++) {
            faulty f = {n};
            wf_context_config config = WF_CONTEXT_CONFIG_INIT;
            config.allocator = (wf_allocator){faulty_alloc, faulty_free, &f};
            wf_context *ctx = NULL;
            wf_status status = wf_context_create(&config, &ctx);
            wf_model *model = NULL;
            wf_plan *plan = NULL;
            wf_program *program = NULL;
            wf_recipe recipe = small_recipe();
            recipe.n_lanes = 2;
            recipe.kernels = WF_KERNELS_REFERENCE;
            if (status == WF_OK) status = wf_model_create(ctx, "small", small_net, NULL, 0, &model);
            if (status == WF_OK) status = wf_plan_parse(ctx, plans[k], &plan);
            if (status == WF_OK)
                status = wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &program);
            if (status != WF_OK && status != WF_NO_MEMORY)
                fail_msg("allocation %ld failed: %s: %s", n, wf_status_name(status),
                         wf_context_error(ctx));
            if (status != WF_OK && ctx)
                assert_non_null(strstr(wf_context_error(ctx), "no host memory"));
            wf_program_destroy(program);
            wf_model_destroy(model);
            wf_plan_destroy(plan);
            if (ctx) test_context_end(ctx);
            if (status == WF_OK) {
                assert_true(n > 100);
                break;
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned_is_measured),
        cmocka_unit_test(heap_stays_still),
        cmocka_unit_test(too_small_a_cap),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
