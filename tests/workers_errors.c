/* Workers that fail, and runs that no workers can follow, end with a status and a sentence, and
 * leave nothing behind.
 * label: serial
 */
#include "workers_case.h"

#include "small_models.h"

static one_case bare_case(wf_update_mode update, int n_workers) {
    one_case c = case_of(3, n_workers);
    c.net = (case_net){.n_hidden = 12};
    wf_recipe r = WF_RECIPE_INIT;
    r.batch = r.n_micro = 2 * n_workers;
    r.n_lanes = r.n_workers = n_workers;
    r.kernels = WF_KERNELS_REFERENCE;
    r.update = update;
    r.local_steps = 2;
    c.recipe = r;
    c.n_least = r.n_micro;
    return c;
}

static const struct {
    wf_update_mode update;
    int64_t staleness;
    const char *plan;
} kinds[] = {{WF_UPDATE_ASYNC, 0, "dp=3"},
             {WF_UPDATE_ASYNC, 0, "dp=2,ps=2"},
             {WF_UPDATE_ASYNC, 1, "dp=3,ps=2@workers"},
             {WF_UPDATE_ASYNC, WF_STALENESS_UNBOUNDED, "dp=1,ps=1"},
             {WF_UPDATE_LOCAL, 0, "dp=3"},
             {WF_UPDATE_LOCAL, 0, "dp=1"}};

static one_case case_of_kind(size_t kind) {
    one_case c = bare_case(kinds[kind].update, 3);
    if (kinds[kind].update == WF_UPDATE_ASYNC) c.recipe.staleness = kinds[kind].staleness;
    return c;
}

/* ---- failures of runs ---- */

typedef struct failing_crew {
    case_crew crew;
    wf_context *ctx;
    int worker;
    int64_t batch;
} failing_crew;

static wf_status read_until(void *self, int worker, int64_t batch, wf_worker_part *part_out) {
    failing_crew *f = self;
    if (worker == f->worker && batch == f->batch)
        return wfi_fail(f->ctx, WF_IO, "worker %d: no disk", worker);
    return case_read(&f->crew, worker, batch, part_out);
}

TEST_CASE(reader_fails) {
    for (size_t k = 0; k < WFI_COUNT(kinds); k++)
        for (int i = 0; i < 3; i++) {
            scoped_context ctx = test_context();
            one_case c = case_of_kind(k);
            static failing_crew f;
            wf_step_result results[CASE_STEPS];
            int64_t n_done;
            char words[32];
            case_crew_init(&f.crew, &c);
            f.ctx = ctx;
            f.worker = i;
            f.batch = i;
            f.crew.config.read = read_until;
            snprintf(words, sizeof words, "worker %d: no disk", i);
            TEST_OK(ctx, case_try_crew(ctx, &f.crew, kinds[k].plan));
            TEST_REFUSED(ctx, wf_workers_run(f.crew.workers, 5, results, &n_done), WF_IO, words);
            TEST_REFUSED(ctx, wf_workers_run(f.crew.workers, 5, results, &n_done), WF_IO, words);
            wf_workers_destroy(f.crew.workers);
        }
}

TEST_CASE(learning_rate_is_too_large) {
    for (size_t k = 0; k < WFI_COUNT(kinds); k++) {
        scoped_context ctx = test_context();
        one_case c = case_of_kind(k);
        scoped_crew crew;
        c.recipe.lr = 1e6;
        c.recipe.momentum = 1;
        c.recipe.weight_decay = 1e6;
        case_crew_init(&crew, &c);
        TEST_OK(ctx, case_try_crew(ctx, &crew, kinds[k].plan));
        wf_status status = wf_workers_run(crew.workers, CASE_STEPS, crew.results, &crew.n_done);
        if (status != WF_NOT_FINITE || !strstr(wf_context_error(ctx), "step ") ||
            !strstr(wf_context_error(ctx), "unit "))
            fail_msg("kind %d: %s: %s", (int)k, wf_status_name(status), wf_context_error(ctx));
    }
}

static wf_status read_uncounted(void *self, int worker, int64_t batch, wf_worker_part *part_out) {
    WF_TRY(case_read(self, worker, batch, part_out));
    part_out->n_ignored = 0;
    return WF_OK;
}

TEST(ignored_labels_are_counted) {
    one_case c = case_of_kind(0);
    scoped_crew crew;
    c.n_ignored = 30;
    case_crew_init(&crew, &c);
    crew.config.read = read_uncounted;
    TEST_OK(ctx, case_try_crew(ctx, &crew, "dp=3"));
    TEST_REFUSED(ctx, wf_workers_run(crew.workers, CASE_STEPS, crew.results, &crew.n_done),
                 WF_INVALID_ARG, "config.read has to count those of the whole batch");
}

/* A deadline that a worker misses: the reader naps. */
static const char *try_deadline(void *self, int timeout_ms) {
    size_t k = *(const size_t *)self;
    wf_context *ctx = test_context();
    one_case c = case_of_kind(k);
    static case_crew crew;
    static char wrong[300];
    wf_step_result results[CASE_STEPS];
    int64_t n_done;
    c.naps_us = 20 * 1000 * timeout_ms;
    c.slow = 0;
    case_crew_init(&crew, &c);
    crew.trainer.timeout_ms = timeout_ms;
    wf_status status = case_try_crew(ctx, &crew, kinds[k].plan); /* may miss it, too */
    if (status == WF_OK) status = wf_workers_run(crew.workers, 1, results, &n_done);
    bool is_right = status == WF_TIMEOUT && strstr(wf_context_error(ctx), "workers: no message of");
    snprintf(wrong, sizeof wrong, "%s: %s", wf_status_name(status), wf_context_error(ctx));
    wf_workers_destroy(crew.workers);
    test_context_end(ctx);
    return is_right ? NULL : wrong;
}

TEST_CASE(worker_is_silent) {
    size_t k = 1;
    test_deadlines(try_deadline, &k);
}

/* ---- refusals ---- */

static void refuse(const one_case *c, const char *plan, const char *words) {
    scoped_context ctx = test_context();
    case_crew crew;
    case_crew_init(&crew, c);
    TEST_REFUSED(ctx, case_try_crew(ctx, &crew, plan), WF_INVALID_ARG, words);
}

TEST_CASE(refuses_plans) {
    static const struct {
        const char *plan, *words;
    } plans[] = {{"pp=2", "each worker has all parameters on one rank"},
                 {"tp=2", "each worker has all parameters on one rank"},
                 {"dp=2,zero=1", "each worker has all parameters on one rank"},
                 {"dp=2,zero=3", "each worker has all parameters on one rank"},
                 {"dataparallel=2", "each worker has all parameters on one rank"},
                 {"dp=2,lanes=2+1", "each worker has all parameters on one rank"},
                 {"dp=4", "dp=4 has more ranks than the recipe's 3 workers"}};
    for (size_t i = 0; i < WFI_COUNT(plans); i++)
        for (int local = 0; local < 2; local++) {
            one_case c = bare_case(local ? WF_UPDATE_LOCAL : WF_UPDATE_ASYNC, 3);
            refuse(&c, plans[i].plan, plans[i].words);
        }
    one_case c = bare_case(WF_UPDATE_LOCAL, 4);
    refuse(&c, "dp=2,ps=1", "ps=1: parameter servers need update=async");
    refuse(&c, "dp=3", "dp=3 does not divide the 4 workers into equal parts");
}

TEST_CASE(refuses_recipes) {
    const struct {
        const char *text, *words;
    } recipes[] = {
        {"update=sync", "the recipe has update=sync, which needs a wf_trainer"},
        {"update=async,ema=0.9", "ema averages the weights of update=sync"},
        {"update=local,workers=2,ema=0.9", "ema averages the weights of update=sync"},
        {"update=async,lr_schedule=plateau", "lr_schedule=plateau goes with update=sync"},
        {"update=local", "update=local needs the number of workers: --workers M"},
        {"update=async,workers=3,lanes=4,micro=4", "3 workers cannot share its 4 lanes"},
        {"update=local,workers=3,lanes=2,micro=2", "3 workers cannot share its 2 lanes"},
        {"update=async,backup=1,workers=3,lanes=3", "backup drops gradients"},
        {"update=local,workers=3,lanes=3,backup=1", "backup drops gradients"},
        {"update=async,staleness=0,backup=3,workers=3,lanes=3", "leaves no worker"},
        {"update=async,workers=3,lanes=3,batch=2", "batch"},
        {"update=async,workers=5000", "workers is 5000"}};
    for (size_t i = 0; i < WFI_COUNT(recipes); i++) {
        wf_context *ctx = test_context();
        one_case c = bare_case(WF_UPDATE_ASYNC, 1);
        TEST_OK(ctx, wf_recipe_parse(ctx, recipes[i].text, &c.recipe));
        test_context_end(ctx);
        refuse(&c, "", recipes[i].words);
    }
}

TEST(refuses_models_and_configs) {
    case_crew crew;
    one_case c = bare_case(WF_UPDATE_ASYNC, 2);
    case_crew_init(&crew, &c);
    scoped_model model = test_model(ctx, "lstm", lstm_net, NULL, 0);
    wf_plan *plan = test_plan(ctx, "dp=2");
    TEST_REFUSED(ctx, wf_workers_create(ctx, model, &c.recipe, plan, &crew.config, &crew.workers),
                 WF_UNSUPPORTED, "a recurrent model goes on with its hidden state");
    wf_plan_destroy(plan);
    crew.config.read = NULL;
    TEST_REFUSED(ctx, case_try_crew(ctx, &crew, "dp=2"), WF_INVALID_ARG, "config.read is NULL");
    case_crew_init(&crew, &c);
    crew.trainer.devices = "cpu:2";
    TEST_REFUSED(ctx, case_try_crew(ctx, &crew, "dp=2,ps=1"), WF_INVALID_ARG,
                 "'cpu:2' has 2 devices, but the plan");
    crew.trainer.devices = NULL;
    wf_timeline *timeline;
    TEST_OK(ctx, case_try_crew(ctx, &crew, "dp=2"));
    TEST_REFUSED(ctx, wf_workers_timeline(crew.workers, &timeline), WF_INVALID_ARG,
                 "the workers do not trace");
    wf_workers_destroy(crew.workers);
    crew.trainer.trace = 1;
    TEST_OK(ctx, case_try_crew(ctx, &crew, "dp=2"));
    TEST_REFUSED(ctx, wf_workers_timeline(crew.workers, &timeline), WF_INVALID_ARG,
                 "the workers have not run a step");
    wf_workers_destroy(crew.workers);
    crew.trainer.trace = 0;
    crew.config.record = crew.config.replay = case_path;
    TEST_REFUSED(ctx, case_try_crew(ctx, &crew, "dp=2"), WF_INVALID_ARG,
                 "writes no record of its own");
    c = bare_case(WF_UPDATE_LOCAL, 2);
    crew.config.replay = NULL;
    TEST_REFUSED(ctx, case_try_crew(ctx, &crew, "dp=2"), WF_INVALID_ARG,
                 "only update=async writes or replays a record");
}

/* ---- records ---- */

static void write_record(const one_case *c, int n_steps) {
    scoped_context ctx = test_context();
    scoped_crew crew;
    case_crew_init(&crew, c);
    crew.config.record = case_path;
    crew.config.identity = "one";
    TEST_OK(ctx, case_try_crew(ctx, &crew, "dp=2"));
    TEST_OK(ctx, wf_workers_run(crew.workers, n_steps, crew.results, &crew.n_done));
}

static void refuse_record(const one_case *c, const char *identity, const char *words) {
    scoped_context ctx = test_context();
    case_crew crew;
    case_crew_init(&crew, c);
    crew.config.replay = case_path;
    crew.config.identity = identity;
    TEST_REFUSED(ctx, case_try_crew(ctx, &crew, ""), WF_INVALID_ARG, words);
}

TEST(refuses_other_records) {
    one_case c = bare_case(WF_UPDATE_ASYNC, 2), other = bare_case(WF_UPDATE_ASYNC, 3);
    c.recipe.staleness = other.recipe.staleness = 1;
    write_record(&c, 3);
    refuse_record(&c, "two", "was recorded with another model, other data or another recipe");
    refuse_record(&other, "one", "was recorded with 2 workers; this run has 3");
    c.recipe.staleness = 2;
    refuse_record(&c, "one", "was recorded with staleness 1; this run has staleness 2");
    c.recipe.staleness = 1;
    case_crew crew;
    case_crew_init(&crew, &c);
    crew.config.replay = case_path;
    crew.config.identity = "one";
    TEST_OK(ctx, case_try_crew(ctx, &crew, ""));
    TEST_REFUSED(ctx, wf_workers_run(crew.workers, 4, crew.results, &crew.n_done), WF_INVALID_ARG,
                 "ends after step 3, so it cannot be replayed up to step 4");
    wf_workers_destroy(crew.workers);
    assert_int_equal(truncate(case_path, 60), 0);
    TEST_REFUSED(ctx, case_try_crew(ctx, &crew, ""), WF_CORRUPT, case_path);
    assert_int_equal(unlink(case_path), 0);
    TEST_REFUSED(ctx, case_try_crew(ctx, &crew, ""), WF_IO, case_path);
    crew.config.replay = NULL;
    crew.config.record = "/nonexistent/record";
    TEST_OK(ctx, case_try_crew(ctx, &crew, ""));
    TEST_REFUSED(ctx, wf_workers_run(crew.workers, 1, crew.results, &crew.n_done), WF_IO,
                 "/nonexistent");
    wf_workers_destroy(crew.workers);
}

/* ---- no memory ---- */

static void *faulty_alloc(void *self, size_t bytes) {
    void *block = NULL;
    long n_left = __atomic_fetch_sub((long *)self, 1, __ATOMIC_RELAXED);
    return n_left > 0 && !posix_memalign(&block, 64, bytes) ? block : NULL;
}

static void faulty_free(void *self, void *block) {
    free(block);
}

/* Allocation n and all after it fail. Returns whether there were so many. */
static bool fail_from(const one_case *c, const char *plan_text, long n) {
    long n_left = 1 << 20;
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    wf_context *ctx;
    static case_crew crew;
    wf_step_result results[CASE_STEPS];
    int64_t n_done;
    config.allocator = (wf_allocator){faulty_alloc, faulty_free, &n_left};
    assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
    wf_model *model = case_create_model(ctx, c);
    wf_plan *plan = test_plan(ctx, plan_text);
    case_crew_init(&crew, c);
    __atomic_store_n(&n_left, n, __ATOMIC_RELAXED);
    wf_status status = wf_workers_create(ctx, model, &c->recipe, plan, &crew.config, &crew.workers);
    if (status == WF_OK) {
        crew.resolved = *wf_workers_recipe(crew.workers);
        status = wf_workers_run(crew.workers, 2, results, &n_done);
        wf_workers_destroy(crew.workers);
    }
    __atomic_store_n(&n_left, 1 << 20, __ATOMIC_RELAXED);
    if (status != WF_OK && status != WF_NO_MEMORY)
        fail_msg("allocation %ld, %s: %s: %s", n, plan_text, wf_status_name(status),
                 wf_context_error(ctx));
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    test_context_end(ctx);
    return status == WF_NO_MEMORY;
}

TEST_CASE(no_memory) {
    for (size_t k = 0; k < WFI_COUNT(kinds); k += 2) {
        one_case c = case_of_kind(k);
        long n = 0, n_each = test_is_full() ? 1 : 23 * TEST_SAMPLE;
        while (fail_from(&c, kinds[k].plan, n)) n += n_each;
        assert_true(n > 100);
    }
}

TEST_FIXTURE(case_make_folder, case_remove_folder)
