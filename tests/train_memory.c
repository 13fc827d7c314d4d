/* Bytes: the heap stays still, a cap too small is a sentence, and every failed allocation is a
 * clean error.
 *
 * label: serial
 */
#include "small_models.h"

#include <malloc.h>
#include <unistd.h>

TEST(heap_stays_still) {
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
}

TEST(too_small_a_cap) {
    scoped_trainer trainer;
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 1);
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    scoped_model model = test_model(ctx, "small", small_net, NULL, 0);
    scoped_plan plan = test_plan(ctx, "");
    wf_program *p;
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    size_t peak = wf_program_rank(p, 0).peak_bytes;
    wf_program_destroy(p);
    config.device_memory_bytes = peak - 1;
    TEST_REFUSED(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer),
                 WF_DOES_NOT_FIT, "iB, 1 byte more than the");
    config.device_memory_bytes = 1000;
    TEST_REFUSED(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer),
                 WF_DOES_NOT_FIT, "more than the 1000 bytes given");
    config.device_memory_bytes = peak;
    TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer));
}

/* ---- the n-th allocation fails ---- */

typedef struct faulty {
    long n_left;  /* allocations that still succeed; atomic access */
    bool is_once; /* one fails, not all from there on */
} faulty;

static void *faulty_alloc(void *self, size_t bytes) {
    faulty *f = self;
    void *block = NULL;
    long n_left = __atomic_fetch_sub(&f->n_left, 1, __ATOMIC_RELAXED);
    if (n_left == 0 || (n_left < 0 && !f->is_once) || posix_memalign(&block, 64, bytes))
        return NULL;
    return block;
}

static void faulty_free(void *self, void *block) {
    free(block);
}

/* Everything that a program may do with a trainer, until something fails. */
static wf_status live(wf_context *ctx, const char *plan_text, const char *folder) {
    scoped_model model = NULL;
    scoped_plan plan = NULL;
    scoped_trainer trainer = NULL;
    wf_recipe recipe = SMALL_RECIPE(.n_lanes = 2, .clip_norm = 1, .kernels = WF_KERNELS_REFERENCE);
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    char weights[300], all[300], hex[65], *note = NULL;
    snprintf(weights, sizeof weights, "%s/weights", folder);
    snprintf(all, sizeof all, "%s/state", folder);
    const wf_metadata notes[] = {{"note", "of one's own"}};
    static small_batch batch;
    small_batch_fill(&batch, 0);
    const wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    const wf_feed half[] = {{"x", batch.x, sizeof batch.x / 2}, {"y", batch.y, sizeof batch.y / 2}};
    static float logits[SMALL_BATCH * 10];
    wf_step_result result;
    wf_status s = wf_model_create(ctx, "small", small_net, NULL, 0, &model);
    if (s == WF_OK) s = wf_plan_parse(ctx, plan_text, &plan);
    if (s == WF_OK) s = wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer);
    if (s == WF_OK) s = small_try_step(trainer, 0, NULL);
    if (s == WF_OK) s = wf_trainer_eval(trainer, half, 2, SMALL_BATCH / 2, &result);
    if (s == WF_OK)
        s = wf_trainer_forward(trainer, feeds, 1, SMALL_BATCH, "logits", logits, sizeof logits);
    if (s == WF_OK) s = wf_trainer_save(trainer, weights);
    if (s == WF_OK) s = wf_trainer_save_state(trainer, all, notes, 1);
    if (s == WF_OK) s = wf_trainer_load_weights(trainer, weights);
    if (s == WF_OK) s = wf_trainer_load_state(trainer, all);
    if (s == WF_OK) s = wf_trainer_state_metadata(ctx, all, "note", &note);
    if (s == WF_OK) s = wf_trainer_weights_sha256(trainer, hex);
    if (note) wf_text_free(ctx, note);
    return s;
}

/* Allocation n fails. Returns whether there were so many. */
static bool fail_one(const char *plan, const char *folder, long n, bool is_once) {
    faulty f = {n, is_once};
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    config.allocator = (wf_allocator){faulty_alloc, faulty_free, &f};
    wf_context *ctx = NULL;
    wf_status status = wf_context_create(&config, &ctx);
    if (status == WF_OK) status = live(ctx, plan, folder);
    if (status != WF_OK && status != WF_NO_MEMORY)
        fail_msg("allocation %ld failed: %s: %s", n, wf_status_name(status), wf_context_error(ctx));
    if (status != WF_OK && ctx && !strstr(wf_context_error(ctx), "no host memory"))
        fail_msg("allocation %ld failed: %s", n, wf_context_error(ctx));
    if (ctx && wf_context_memory(ctx).n_live)
        fail_msg("allocation %ld failed, and %d blocks were never freed (%s)", n,
                 (int)wf_context_memory(ctx).n_live, wf_context_error(ctx));
    wf_context_destroy(ctx);
    return __atomic_load_n(&f.n_left, __ATOMIC_RELAXED) < 0;
}

/* From the first to the last that a whole life takes; with all that follow, and by itself. Each
 * with WEFT_TEST_FULL=1, otherwise some, with threads only a few: making them takes the time. */
TEST_CASE(every_allocation_may_fail) {
    static const char *const plans[] = {"", "dp=2,pp=2"};
    char folder[256], path[300];
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/weft-memory-XXXXXX", parent && *parent ? parent : "/tmp");
    assert_non_null(mkdtemp(folder));
    int n_descriptors = 0;
    for (int k = 0; k < 4; k++) {
        long n = k % 2, stride = getenv("WEFT_TEST_FULL") ? 1 : k < 2 ? 11 : 47;
        while (fail_one(plans[k / 2], folder, n, k % 2)) {
            n += stride;
            if (!n_descriptors) n_descriptors = test_descriptors();
        }
        print_message("plan '%s': about %ld allocations\n", plans[k / 2], n);
        assert_true(n > 300);
    }
    assert_int_equal(test_descriptors(), n_descriptors);
    snprintf(path, sizeof path, "%s/weights", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/state", folder);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}
