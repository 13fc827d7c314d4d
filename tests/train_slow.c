/* A slow rank (WEFT_SLOW_RANK) sleeps for each of its compute instructions, the other ranks
 * never, and no bit of the result changes.
 */
#include "api/trainer.h"
#include "small_models.h"
#include "workers/workers.h"

#define N_STEPS 2

static wf_trainer *trainer_of(wf_context *ctx, const char *plan, const char *devices) {
    wf_recipe recipe =
        SMALL_RECIPE(.n_micro = 4, .n_lanes = 2, .n_threads = 1, .kernels = WF_KERNELS_REFERENCE);
    return planned_trainer(ctx, small_net, &recipe, plan, devices, 0);
}

/* Takes the steps and returns the hash of the weights. */
static void run(wf_context *ctx, wf_trainer *trainer, char hex[65]) {
    for (int s = 0; s < N_STEPS; s++) small_step(ctx, trainer, s);
    TEST_OK(ctx, wf_trainer_weights_sha256(trainer, hex));
}

static void expect_sleeps(const wf_trainer *trainer, int rank, bool is_slow) {
    int64_t n = trainer->ready[0]->program->ranks[rank].n_stream[WFI_STREAM_COMPUTE] * N_STEPS;
    assert_true(n > 0);
    assert_int_equal(trainer->workers[rank].n_slowed, is_slow ? n : 0);
    int64_t debt_ns = trainer->workers[rank].slow_debt_ns;
    assert_true(is_slow ? debt_ns && debt_ns < WFI_SLOW_LEAST_NS : !debt_ns);
}

TEST_CASE(bits_of_one_rank) {
    static const struct {
        const char *plan, *devices, *value;
        int slow;
    } cases[] = {{"", "cpu:1", "", -1},           {"", "cpu:1", "0:1.5", 0},
                 {"", "cpu:1", "0:1", -1},        {"", "cpu:1", "1:2", -1},
                 {"dp=2", "cpu:2", "1:1.5", 1},   {"pp=2", "cpu:2", "0:2", 0},
                 {"dp=2,pp=2", "cpu:4", "2:3", 2}};
    char one[65], hex[65];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        scoped_context ctx = test_context();
        setenv("WEFT_SLOW_RANK", cases[k].value, 1);
        scoped_trainer trainer = trainer_of(ctx, cases[k].plan, cases[k].devices);
        unsetenv("WEFT_SLOW_RANK");
        run(ctx, trainer, k ? hex : one);
        if (k) assert_string_equal(one, hex);
        for (int r = 0; r < trainer->n_workers; r++) expect_sleeps(trainer, r, r == cases[k].slow);
    }
}

TEST_CASE(length_of_sleeps) {
    assert_int_equal(wfi_slow_ns(3, 1000), 2000);
    assert_int_equal(wfi_slow_ns(1.5, 1000), 500);
    assert_int_equal(wfi_slow_ns(1000, 3600000000000LL), WFI_SLOW_MOST_NS);
}

/* Code inside the library slows a worker without the variable. */
TEST(slow_by_field) {
    scoped_trainer trainer = trainer_of(ctx, "dp=2", "cpu:2");
    char hex[65];
    trainer->workers[1].slow_factor = 2;
    run(ctx, trainer, hex);
    expect_sleeps(trainer, 0, false);
    expect_sleeps(trainer, 1, true);
}

TEST(bad_values) {
    static const char *const bad[] = {
        "1",      "1:",    ":2",    "-1:2", "+1:2",          " 1:2", "1:2x", "1:0.9",
        "1:1001", "1:nan", "1:inf", "1,2",  "0x1:2",         "1 :2", "1:-3", "0:1e99",
        "a:b",    "1:2:3", "1:2,5", "1: 2", "99999999999:2", "1:2 "};
    wfi_slow slow;
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        char words[128];
        snprintf(words, sizeof words, "WEFT_SLOW_RANK='%s'; it takes RANK:FACTOR", bad[k]);
        setenv("WEFT_SLOW_RANK", bad[k], 1);
        TEST_REFUSED(ctx, wfi_slow_read(ctx, &slow), WF_INVALID_ARG, words);
    }
    setenv("WEFT_SLOW_RANK", "3:2.5", 1);
    TEST_OK(ctx, wfi_slow_read(ctx, &slow));
    assert_int_equal(slow.rank, 3);
    assert_true(slow.factor == 2.5);
    unsetenv("WEFT_SLOW_RANK");
    TEST_OK(ctx, wfi_slow_read(ctx, &slow));
    assert_int_equal(slow.rank, -1);
}

/* ---- workers with parameters of their own ---- */

/* The first samples of a batch, whichever worker reads. */
static wf_status read_part(void *self, int worker, int64_t batch, wf_worker_part *part_out) {
    small_batch *own = (small_batch *)self + worker;
    int64_t n = SMALL_BATCH / 2;
    small_batch_fill(own, (int)batch);
    part_out->feeds[0] = (wf_feed){"x", own->x, (size_t)n * SMALL_IMAGE * sizeof *own->x};
    part_out->feeds[1] = (wf_feed){"y", own->y, (size_t)n * sizeof *own->y};
    part_out->n_feeds = 2;
    part_out->n_samples = n;
    part_out->n_batch = SMALL_BATCH;
    return WF_OK;
}

static wf_workers *workers_of(wf_context *ctx, wf_update_mode update, small_batch *batches) {
    wf_recipe recipe = SMALL_RECIPE(.n_lanes = 2, .n_workers = 2);
    wf_trainer_config trainer = WF_TRAINER_CONFIG_INIT;
    wf_workers_config config = WF_WORKERS_CONFIG_INIT;
    wf_workers *workers;
    recipe.update = update;
    recipe.staleness = 0; /* otherwise one worker may compute all parts */
    recipe.kernels = WF_KERNELS_REFERENCE;
    config.trainer = &trainer;
    config.read = read_part;
    config.self = batches;
    scoped_model model = test_model(ctx, "small", small_net, NULL, 0);
    scoped_plan plan = test_plan(ctx, "dp=2");
    TEST_OK(ctx, wf_workers_create(ctx, model, &recipe, plan, &config, &workers));
    return workers;
}

/* Each worker has a trainer of one rank; the variable counts the plan's ranks. */
TEST_CASE(one_worker_of_two) {
    for (int slow = 0; slow < 4; slow++) {
        small_batch batches[2];
        scoped_context ctx = test_context();
        wf_step_result results[N_STEPS];
        int64_t n_done;
        setenv("WEFT_SLOW_RANK", slow % 2 ? "1:1.5" : "0:1.5", 1);
        wf_workers *w = workers_of(ctx, slow < 2 ? WF_UPDATE_ASYNC : WF_UPDATE_LOCAL, batches);
        unsetenv("WEFT_SLOW_RANK");
        TEST_OK(ctx, wf_workers_run(w, N_STEPS, results, &n_done));
        for (int r = 0; r < 2; r++)
            assert_int_equal(w->ranks[r].trainer->workers[0].n_slowed > 0, r == slow % 2);
        wf_workers_destroy(w);
    }
}

/* The trainer reads the variable before it makes anything. */
TEST(refused_by_trainer) {
    wf_recipe recipe = small_recipe();
    wf_trainer *trainer;
    setenv("WEFT_SLOW_RANK", "fast", 1);
    TEST_REFUSED(ctx, test_try_trainer(ctx, small_net, &recipe, "", NULL, &trainer), WF_INVALID_ARG,
                 "WEFT_SLOW_RANK='fast'");
    unsetenv("WEFT_SLOW_RANK");
}
