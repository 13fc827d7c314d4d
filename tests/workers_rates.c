/* Rates, versions, scales and rounding of workers, which no comparison of two runs of workers would
 * show.
 *
 * label: serial
 */
#include "workers_case.h"

#include "api/share.h"
#include "plan/workers.h"
#include "workers/record.h"

#include <fenv.h>
#include <math.h>

/* ---- rates, progress and staleness ---- */

/* One worker always has the latest parameters. */
TEST_CASE(one_worker_is_synchronous) {
    for (int i = 0; i < n_cases(6); i++) {
        scoped_context ctx = test_context();
        scoped_result want = {0}, got = {0};
        case_crew crew;
        one_case c = async_case(60000 + (uint64_t)i, 1, i % 2 ? 1 : WF_STALENESS_UNBOUNDED);
        c.recipe.clip_norm = 0; /* a worker sums its squares in another order */
        c.recipe.staleness_lr = 1;
        case_run_sync(ctx, &c, case_folder, &want);
        case_crew_init(&crew, &c);
        case_run_crew(ctx, &crew, i % 3 ? "dp=1,ps=2" : "dp=1", case_folder, 2, &got);
        case_expect_equal(&c, "one worker", &want, &got);
    }
}

/* The same, with a norm that is summed in another order: near, and not the run without a limit. */
TEST(one_worker_clips) {
    case_result want = {0}, got = {0};
    case_crew crew;
    one_case c = async_case(65000, 1, WF_STALENESS_UNBOUNDED);
    c.recipe.optimizer = WF_SGD;
    c.recipe.clip_norm = 0.2;
    case_run_sync(ctx, &c, case_folder, &want);
    case_crew_init(&crew, &c);
    case_run_crew(ctx, &crew, "dp=1,ps=2", case_folder, 2, &got);
    for (int s = 0; s < c.n_steps; s++)
        assert_true(fabs(want.steps[s].loss - got.steps[s].loss) < 1e-4);
    case_release(&want);
    c.recipe.clip_norm = 0;
    case_run_sync(ctx, &c, case_folder, &want);
    assert_true(fabs(want.steps[c.n_steps - 1].loss - got.steps[c.n_steps - 1].loss) > 1e-3);
    case_release(&want);
    case_release(&got);
}

/* ---- backup workers ---- */

/* A trainer that takes the steps of the record: the parts of one worker each. */
static void run_parts(wf_context *ctx, const one_case *c, const wf_recipe *resolved,
                      case_result *r) {
    wfi_record record;
    case_data data;
    wf_feed feeds[2];
    int64_t n_steps = 0, first, n;
    wf_recipe own = wfi_recipe_of_worker(resolved);
    wf_trainer *t = case_trainer(ctx, c, &own);
    TEST_OK(ctx, wfi_record_read(ctx, case_path, &record));
    for (size_t k = 0; k < record.n_pushes; k++) {
        const wfi_push *push = &record.pushes[k];
        if (push->is_dropped) continue;
        wf_recipe_part(resolved, c->recipe.batch, (int)resolved->n_workers, push->worker, &first,
                       &n);
        case_fill(c, push->batch, first, n, &data);
        wfi_trainer_share(t, &(wfi_share){.step = push->batch, .first_sample = first});
        TEST_OK(ctx,
                wf_trainer_step(t, feeds, case_feeds(&data, n, feeds), n, &r->steps[n_steps++]));
    }
    assert_int_equal(n_steps, c->n_steps);
    case_keep(ctx, t, case_folder, r);
    wf_trainer_destroy(t);
    wfi_record_release(&record);
}

/* One of M gradients, times M, is the gradient of one worker's part alone. M is a power of two, so
 * the bits are equal, too. */
TEST_CASE(backup_stands_for_the_batch) {
    for (int i = 0; i < n_cases(4); i++) {
        scoped_context ctx = test_context();
        scoped_result want = {0}, got = {0};
        case_crew crew;
        one_case c = async_case(90000 + (uint64_t)i, i % 2 ? 2 : 4, 0);
        c.recipe.optimizer = WF_SGD; /* others count steps, which the trainer takes for batches */
        c.recipe.momentum = 0.9;
        c.recipe.n_backup = c.recipe.n_workers - 1;
        c.recipe.batch = c.n_least = 2 * c.recipe.n_micro;
        c.naps_us = 200;
        case_crew_init(&crew, &c);
        crew.config.record = case_path;
        (void)remove(case_path);
        case_run_crew(ctx, &crew, "dp=2,ps=2", case_folder, 2, &got);
        run_parts(ctx, &c, &crew.resolved, &want);
        case_expect_equal(&c, "one gradient a step", &want, &got);
    }
}

typedef struct shown_crew {
    case_crew crew;
    int64_t latest;
    double loss[CASE_STEPS + 1];
} shown_crew;

static void note_progress(void *self, int64_t n_steps, double loss) {
    shown_crew *s = self;
    assert_in_range(n_steps, s->latest + 1, CASE_STEPS);
    s->loss[s->latest = n_steps] = loss;
}

/* The rate of each step's last push, and the histogram, follow from the record. */
static void check_rates(wf_context *ctx, const shown_crew *s, const wf_step_result *results) {
    const wf_recipe *r = &s->crew.resolved;
    int64_t n = r->n_workers, counts[CASE_STEPS * CASE_WORKERS] = {0};
    wfi_record record;
    TEST_OK(ctx, wfi_record_read(ctx, case_path, &record));
    for (int64_t k = 0; k < (int64_t)record.n_pushes; k++) {
        int64_t steps = (k - record.pushes[k].version + n - 1) / n;
        double lr = wf_recipe_lr(r, k / n) / (double)n;
        counts[steps]++;
        if (r->staleness_lr && steps > 1) lr /= (double)steps;
        if (k % n == n - 1) assert_true(results[k / n].lr == lr);
    }
    for (int64_t k = 0; wf_workers_staleness(s->crew.workers, k) >= 0; k++)
        assert_int_equal(wf_workers_staleness(s->crew.workers, k), counts[k]);
    wfi_record_release(&record);
}

TEST(rates_follow_the_record) {
    for (int i = 0; i < n_cases(6); i++) {
        static shown_crew s;
        wf_step_result results[CASE_STEPS];
        int64_t n_done;
        one_case c = async_case(70000 + (uint64_t)i, 2 + i % 3, WF_STALENESS_UNBOUNDED);
        c.recipe.staleness_lr = i % 2;
        c.recipe.lr_schedule = WF_LR_COSINE;
        c.recipe.schedule_steps = 12;
        c.naps_us = 200;
        c.slow = 1;
        s = (shown_crew){0};
        case_crew_init(&s.crew, &c);
        s.crew.config.record = case_path;
        s.crew.config.progress = note_progress;
        TEST_OK(ctx, case_try_crew(ctx, &s.crew, "dp=2"));
        TEST_OK(ctx, wf_workers_run(s.crew.workers, c.n_steps, results, &n_done));
        assert_true(s.latest > 0);
        for (int64_t k = 1; k <= s.latest; k++)
            assert_true(!s.loss[k] || s.loss[k] == results[k - 1].loss);
        check_rates(ctx, &s, results);
        wf_workers_destroy(s.crew.workers);
    }
}

/* The last push of step 2 is three updates old, so two steps. */
TEST(rate_of_an_old_gradient) {
    static const wfi_push pushes[] = {{0, false, 0, 0}, {0, false, 1, 1}, {0, false, 2, 2},
                                      {1, false, 0, 0}, {1, false, 1, 4}, {0, false, 3, 3}};
    static shown_crew s;
    unsigned char identity[WFI_IDENTITY_BYTES];
    wfi_record record;
    wf_step_result results[CASE_STEPS];
    int64_t n_done;
    one_case c = async_case(75000, 2, WF_STALENESS_UNBOUNDED);
    c.recipe.staleness_lr = 1;
    wfi_record_identify("", identity);
    TEST_OK(ctx, wfi_record_init(ctx, 2, 0, -1, 0, identity, &record));
    for (size_t k = 0; k < WFI_COUNT(pushes); k++)
        TEST_OK(ctx, wfi_record_add(&record, &pushes[k]));
    TEST_OK(ctx, wfi_record_write(&record, case_path));
    wfi_record_release(&record);
    s = (shown_crew){0};
    case_crew_init(&s.crew, &c);
    s.crew.config.replay = case_path;
    TEST_OK(ctx, case_try_crew(ctx, &s.crew, "dp=2"));
    TEST_OK(ctx, wf_workers_run(s.crew.workers, 3, results, &n_done));
    assert_true(results[1].lr == wf_recipe_lr(&s.crew.resolved, 1) / 2 / 2);
    assert_int_equal(wf_workers_staleness(s.crew.workers, 2), 1);
    check_rates(ctx, &s, results);
    wf_workers_destroy(s.crew.workers);
}

/* ---- numbers of the caller ---- */

static wf_status read_nan(void *self, int worker, int64_t batch, wf_worker_part *part_out) {
    case_crew *crew = self;
    WF_TRY(case_read(self, worker, batch, part_out));
    if (batch == 2) crew->data[worker].x[0] = NAN;
    return WF_OK;
}

TEST_CASE(error_names_the_step) {
    for (int sums = 0; sums < 2; sums++) {
        scoped_context ctx = test_context();
        scoped_crew crew;
        one_case c = async_case(76000, 2, sums ? 0 : WF_STALENESS_UNBOUNDED);
        case_crew_init(&crew, &c);
        crew.config.read = read_nan;
        TEST_OK(ctx, case_try_crew(ctx, &crew, "dp=1"));
        TEST_REFUSED(ctx, wf_workers_run(crew.workers, c.n_steps, crew.results, &crew.n_done),
                     WF_NOT_FINITE, "step 3: ");
    }
}

static wf_status read_nearest(void *self, int worker, int64_t batch, wf_worker_part *part_out) {
    int before = fegetround();
    fesetround(FE_TONEAREST);
    wf_status status = case_read(self, worker, batch, part_out);
    fesetround(before);
    return status;
}

/* Programs that round otherwise get the same bits. */
TEST(rounding_is_not_the_callers) {
    for (int local = 0; local < 2; local++) {
        case_result results[2] = {0};
        one_case c = async_case(77000, 3, 0);
        c.recipe.clip_norm = 0.2;
        if (local) c.recipe.update = WF_UPDATE_LOCAL;
        for (int upward = 0; upward < 2; upward++) {
            scoped_crew crew;
            case_crew_init(&crew, &c);
            crew.config.read = read_nearest;
            TEST_OK(ctx, case_try_crew(ctx, &crew, "dp=3"));
            int before = fegetround();
            if (upward) fesetround(FE_UPWARD);
            case_steps(ctx, &crew, 2, case_folder, &results[upward]);
            fesetround(before);
        }
        /* Losses are sums of the caller's thread. */
        assert_memory_equal(results[0].state, results[1].state, results[0].n_state);
        case_release(&results[0]);
        case_release(&results[1]);
    }
}

TEST_FIXTURE(case_make_folder, case_remove_folder)
