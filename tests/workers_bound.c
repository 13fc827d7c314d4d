/* The bound of staleness, with slow workers; and runs that stop early, at any moment. */
#include "workers_case.h"

#include "workers/record.h"

static one_case small_case(uint64_t seed, int n_workers, int64_t staleness) {
    one_case c = async_case(seed, n_workers, staleness);
    c.net = (case_net){.n_hidden = 12};
    return c;
}

/* ---- the bound ---- */

static int64_t count_staleness(const case_crew *crew, int64_t *n_out) {
    int64_t n_steps = 0;
    for (*n_out = 0; wf_workers_staleness(crew->workers, n_steps) >= 0; n_steps++)
        *n_out += wf_workers_staleness(crew->workers, n_steps);
    return n_steps - 1;
}

/* One worker naps ten times as long as the others. Returns the largest staleness. */
static int64_t run_with_slow_worker(const one_case *c, const char *plan) {
    scoped_context ctx = test_context();
    scoped_crew crew;
    int64_t n_done, n, n_steps;
    case_crew_init(&crew, c);
    crew.config.record = case_path;
    TEST_OK(ctx, case_try_crew(ctx, &crew, plan));
    TEST_OK(ctx, wf_workers_run(crew.workers, c->n_steps, crew.results, &n_done));
    n_steps = count_staleness(&crew, &n);
    assert_int_equal(n, c->n_steps * c->recipe.n_workers);
    wfi_record record;
    TEST_OK(ctx, wfi_record_read(ctx, case_path, &record));
    assert_int_equal(record.n_pushes, n);
    wfi_record_release(&record);
    return n_steps;
}

TEST_CASE(no_gradient_breaks_the_bound) {
    for (int i = 0; i < 12; i++) {
        one_case c = small_case(100 + (uint64_t)i, 2 + i % 5, 1 + i % 3);
        c.n_steps = 12;
        c.naps_us = 300;
        c.slow = i % (int)c.recipe.n_workers;
        int64_t oldest = run_with_slow_worker(&c, i % 2 ? "dp=2" : "dp=1,ps=2");
        if (oldest > c.recipe.staleness)
            fail_msg("a gradient is %d steps old, the bound is %d", (int)oldest,
                     (int)c.recipe.staleness);
    }
}

/* The same naps break bounds that do not hold them back: the test above can fail. */
TEST_CASE(without_a_bound_gradients_are_older) {
    one_case c = small_case(200, 4, WF_STALENESS_UNBOUNDED);
    c.n_steps = 12;
    c.naps_us = 300;
    c.slow = 1;
    for (int64_t oldest = 0; oldest <= 1;) {
        oldest = run_with_slow_worker(&c, "dp=4");
        c.naps_us *= 2;
    }
}

static void replay_hash(const one_case *c, char hex[65]) {
    scoped_context ctx = test_context();
    scoped_crew crew;
    case_crew_init(&crew, c);
    crew.config.replay = case_path;
    TEST_OK(ctx, case_try_crew(ctx, &crew, ""));
    TEST_OK(ctx, wf_workers_run(crew.workers, c->n_steps, crew.results, &crew.n_done));
    TEST_OK(ctx, wf_trainer_weights_sha256(wf_workers_trainer(crew.workers), hex));
}

/* Of one record, whose oldest gradient decides whether a rate is divided. */
TEST_CASE(staleness_divides_the_rate) {
    for (int64_t bound = 1; bound <= WF_STALENESS_UNBOUNDED; bound += WF_STALENESS_UNBOUNDED - 1) {
        one_case c = small_case(300, 4, bound);
        char whole[65], divided[65];
        c.n_steps = 12;
        c.naps_us = 300;
        c.slow = 1;
        while (run_with_slow_worker(&c, "dp=4") < (bound > 1 ? 2 : 0)) c.naps_us *= 2;
        c.naps_us = 0;
        replay_hash(&c, whole);
        c.recipe.staleness_lr = 1;
        replay_hash(&c, divided);
        assert_int_equal(!strcmp(whole, divided), bound == 1);
    }
}

/* ---- early ends ---- */

/* Asks to stop from the n-th question on. */
typedef struct stopping_crew {
    case_crew crew;
    int n_asked, n_before;
} stopping_crew;

static int stops(void *self) {
    stopping_crew *s = self;
    return __atomic_add_fetch(&s->n_asked, 1, __ATOMIC_RELAXED) > s->n_before ? 7 : 0;
}

static void stop_after(const one_case *c, const char *plan, int n_before) {
    scoped_context ctx = test_context();
    static stopping_crew s;
    wf_step_result results[CASE_STEPS] = {{0}};
    int64_t n_done, n_more;
    case_crew_init(&s.crew, c);
    s.n_asked = 0;
    s.n_before = n_before;
    s.crew.config.stops = stops;
    s.crew.config.record = c->recipe.update == WF_UPDATE_ASYNC ? case_path : NULL;
    TEST_OK(ctx, case_try_crew(ctx, &s.crew, plan));
    TEST_OK(ctx, wf_workers_run(s.crew.workers, c->n_steps, results, &n_done));
    assert_in_range(n_done, 1, c->n_steps);
    for (int k = 0; k < n_done; k++) assert_true(results[k].n_rows > 0);
    assert_int_equal(results[n_done - 1].stop_reason, s.n_asked > n_before ? 7 : 0);
    s.n_before = 1000000;
    TEST_OK(ctx, wf_workers_run(s.crew.workers, 2, results, &n_more));
    assert_int_equal(n_more, 2);
    assert_int_equal(wf_workers_n_steps(s.crew.workers), n_done + 2);
    wf_workers_destroy(s.crew.workers);
}

TEST_CASE(stops_after_whole_steps) {
    for (int backup = 0; backup < 2; backup++)
        for (int i = 0; i < 20; i++) {
            one_case c = small_case((uint64_t)i, 3, i % 2);
            c.recipe.n_backup = i % 2 ? 0 : backup;
            c.naps_us = 100;
            stop_after(&c, i % 3 ? "dp=3" : "dp=2,ps=2", i);
        }
}

TEST_FIXTURE(case_make_folder, case_remove_folder)
