/* Workers that go on from files: replays and records of runs that are resumed anywhere, local steps
 * under another plan, and files of other runs. Also the figures of runs that need no other run to
 * compare with: rates, versions, planned memory and traffic. */
#include "workers_case.h"

#include "workers/record.h"

#include <unistd.h>

static char folder[] = "/tmp/weft-test-XXXXXX", record_path[64], state_path[64], workers_path[64];

static int n_cases(int n) {
    return (test_is_full() ? 20 * n : n) / TEST_SAMPLE + 1;
}

static one_case async_case(uint64_t seed, int n_workers, int64_t staleness) {
    one_case c = case_of(seed, n_workers);
    c.recipe.update = WF_UPDATE_ASYNC;
    c.recipe.staleness = staleness;
    return c;
}

/* ---- parts of runs ---- */

typedef struct part {
    const char *plan, *record, *replay;
    bool loads, saves;
    int n_steps;
} part;

static void open_part(wf_context *ctx, case_crew *crew, const one_case *c, const part *p) {
    case_crew_init(crew, c);
    crew->config.record = p->record;
    crew->config.replay = p->replay;
    TEST_OK(ctx, case_try_crew(ctx, crew, p->plan));
    if (!p->loads) return;
    TEST_OK(ctx, wf_trainer_load_state(wf_workers_trainer(crew->workers), state_path));
    TEST_OK(ctx, wf_workers_load(crew->workers, workers_path));
}

static void run_part(wf_context *ctx, const one_case *c, const part *p, case_result *r) {
    case_crew crew;
    int64_t n_done, first;
    open_part(ctx, &crew, c, p);
    first = wf_workers_n_steps(crew.workers);
    TEST_OK(ctx, wf_workers_run(crew.workers, p->n_steps, r->steps + first, &n_done));
    assert_int_equal(n_done, p->n_steps);
    if (p->saves)
        TEST_OK(ctx, wf_trainer_save_state(wf_workers_trainer(crew.workers), state_path, NULL, 0));
    if (p->saves) TEST_OK(ctx, wf_workers_save(crew.workers, workers_path));
    free(r->state);
    case_keep(ctx, wf_workers_trainer(crew.workers), folder, r);
    wf_workers_destroy(crew.workers);
}

static void expect_equal(const one_case *c, const char *what, const case_result *a,
                         const case_result *b) {
    for (int s = 0; s < c->n_steps; s++)
        if (a->steps[s].loss != b->steps[s].loss || a->steps[s].n_rows != b->steps[s].n_rows)
            fail_msg("seed %d, %s: step %d has loss %.17g and %.17g", (int)c->seed, what, s,
                     a->steps[s].loss, b->steps[s].loss);
    if (a->n_state != b->n_state || memcmp(a->state, b->state, a->n_state) != 0)
        fail_msg("seed %d, %s: another state", (int)c->seed, what);
}

/* ---- records ---- */

static void records_go_on(void **state) {
    (void)state;
    static const int64_t bounds[] = {0, 1, WF_STALENESS_UNBOUNDED};
    for (int i = 0; i < n_cases(8); i++) {
        wf_context *ctx = test_context();
        case_result want = {0}, got = {0};
        one_case c = async_case(30000 + (uint64_t)i, 2 + i % 3, bounds[i % 4 % 3]);
        int first = 1 + case_draw(c.seed, 70, c.n_steps - 1), rest = c.n_steps - first;
        c.recipe.n_backup = !c.recipe.staleness;
        c.naps_us = 400;
        c.slow = (int)c.recipe.n_workers - 1; /* its last push of a part is late */
        (void)remove(record_path);
        run_part(ctx, &c, &(part){"dp=2", record_path, NULL, false, true, first}, &want);
        run_part(ctx, &c, &(part){"dp=2,ps=2", record_path, NULL, true, false, rest}, &want);
        c.naps_us = 0;
        run_part(ctx, &c, &(part){"dp=1", NULL, record_path, true, false, rest}, &got);
        memcpy(got.steps, want.steps, (size_t)first * sizeof *got.steps);
        expect_equal(&c, "the second part", &want, &got);
        run_part(ctx, &c, &(part){"dp=1", NULL, record_path, false, false, c.n_steps}, &got);
        expect_equal(&c, "all", &want, &got);
        int other = c.recipe.staleness ? first : 1 + case_draw(c.seed, 71, c.n_steps - 1);
        memset(got.steps, 0, sizeof got.steps);
        run_part(ctx, &c, &(part){"dp=2", NULL, record_path, false, true, other}, &got);
        run_part(ctx, &c, &(part){"dp=1,ps=1", NULL, record_path, true, false, c.n_steps - other},
                 &got);
        expect_equal(&c, "a resumed replay", &want, &got);
        case_release(&want);
        case_release(&got);
        test_context_end(ctx);
    }
}

/* Workers that take turns read parameters within steps, which no checkpoint has. */
static void replay_begins_between_reads(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    case_result r = {0};
    case_crew crew;
    int64_t n_done;
    one_case c = async_case(35000, 2, WF_STALENESS_UNBOUNDED);
    (void)remove(record_path);
    run_part(ctx, &c, &(part){"dp=1", record_path, NULL, false, false, 4}, &r);
    run_part(ctx, &c, &(part){"dp=1", NULL, record_path, false, true, 2}, &r);
    open_part(ctx, &crew, &c, &(part){"dp=1", NULL, record_path, true, false, 2});
    TEST_REFUSED(ctx, wf_workers_run(crew.workers, 2, r.steps, &n_done), WF_INVALID_ARG,
                 "a replay cannot begin after step 2, where workers had read older");
    wf_workers_destroy(crew.workers);
    case_release(&r);
    test_context_end(ctx);
}

/* ---- local steps ---- */

static void local_steps_go_on(void **state) {
    (void)state;
    static const char *const plans[] = {"dp=1", "dp=2", "dp=4"};
    for (int i = 0; i < n_cases(6); i++) {
        wf_context *ctx = test_context();
        case_result want = {0}, got = {0};
        one_case c = case_of(40000 + (uint64_t)i, 4);
        c.recipe.update = WF_UPDATE_LOCAL;
        c.recipe.local_steps = 2;
        c.recipe.outer_momentum = 0.9;
        case_crew crew;
        case_crew_init(&crew, &c);
        case_run_crew(ctx, &crew, plans[i % 3], folder, 2, &want);
        run_part(ctx, &c, &(part){plans[(i + 1) % 3], NULL, NULL, false, true, 2}, &got);
        run_part(ctx, &c, &(part){plans[(i + 2) % 3], NULL, NULL, true, false, 3}, &got);
        expect_equal(&c, "resumed", &want, &got);
        case_release(&want);
        case_release(&got);
        test_context_end(ctx);
    }
}

/* ---- files of other runs ---- */

static void refuse_load(const one_case *c, const char *record, bool replays, wf_status status,
                        const char *words) {
    wf_context *ctx = test_context();
    case_crew crew;
    part p = {"dp=2", replays ? NULL : record, replays ? record : NULL, false, false, 0};
    open_part(ctx, &crew, c, &p);
    TEST_OK(ctx, wf_trainer_load_state(wf_workers_trainer(crew.workers), state_path));
    TEST_REFUSED(ctx, wf_workers_load(crew.workers, workers_path), status, words);
    wf_workers_destroy(crew.workers);
    test_context_end(ctx);
}

static void refuses_files_of_other_runs(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    case_result r = {0};
    char late[64];
    one_case c = async_case(50000, 2, WF_STALENESS_UNBOUNDED), local = c;
    local.recipe.update = WF_UPDATE_LOCAL;
    snprintf(late, sizeof late, "%s/late", folder);
    (void)remove(record_path);
    run_part(ctx, &c, &(part){"dp=1", record_path, NULL, false, false, 2}, &r);
    c.naps_us = 2000; /* and one worker computes nearly all parts */
    c.slow = 0;
    run_part(ctx, &c, &(part){"dp=2", NULL, NULL, false, true, 2}, &r);
    run_part(ctx, &c, &(part){"dp=2", late, NULL, true, false, 1}, &r);
    c.naps_us = 0;
    refuse_load(&c, record_path, false, WF_INVALID_ARG, "they are of different runs");
    refuse_load(&c, record_path, true, WF_INVALID_ARG, "they are of different runs");
    refuse_load(&local, NULL, false, WF_CORRUPT, "'outer.momentum' is missing");
    run_part(ctx, &c, &(part){"dp=1", NULL, NULL, false, true, 1}, &r);
    refuse_load(&c, late, false, WF_INVALID_ARG, "begins after step 2, and this run after 1");
    refuse_load(&c, late, true, WF_INVALID_ARG, "begins after step 2, and this run after 1");
    char kept[80];
    snprintf(kept, sizeof kept, "%s.kept", workers_path);
    assert_int_equal(rename(workers_path, kept), 0);
    run_part(ctx, &c, &(part){"dp=1", NULL, NULL, false, true, 3}, &r);
    assert_int_equal(rename(kept, workers_path), 0);
    refuse_load(&c, NULL, false, WF_CORRUPT, "is not of step 3");
    (void)remove(late);
    case_release(&r);
    test_context_end(ctx);
}

/* ---- rates, progress and staleness ---- */

/* One worker always has the latest parameters. */
static void one_worker_is_synchronous(void **state) {
    (void)state;
    for (int i = 0; i < n_cases(6); i++) {
        wf_context *ctx = test_context();
        case_result want = {0}, got = {0};
        case_crew crew;
        one_case c = async_case(60000 + (uint64_t)i, 1, i % 2 ? 1 : WF_STALENESS_UNBOUNDED);
        c.recipe.clip_norm = 0; /* a worker sums its squares in another order */
        c.recipe.staleness_lr = 1;
        case_run_sync(ctx, &c, folder, &want);
        case_crew_init(&crew, &c);
        case_run_crew(ctx, &crew, i % 3 ? "dp=1,ps=2" : "dp=1", folder, 2, &got);
        expect_equal(&c, "one worker", &want, &got);
        case_release(&want);
        case_release(&got);
        test_context_end(ctx);
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
    TEST_OK(ctx, wfi_record_read(ctx, record_path, &record));
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

static void rates_follow_the_record(void **state) {
    (void)state;
    for (int i = 0; i < n_cases(6); i++) {
        wf_context *ctx = test_context();
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
        s.crew.config.record = record_path;
        s.crew.config.progress = note_progress;
        TEST_OK(ctx, case_try_crew(ctx, &s.crew, "dp=2"));
        TEST_OK(ctx, wf_workers_run(s.crew.workers, c.n_steps, results, &n_done));
        assert_true(s.latest > 0);
        for (int64_t k = 1; k <= s.latest; k++)
            assert_true(!s.loss[k] || s.loss[k] == results[k - 1].loss);
        check_rates(ctx, &s, results);
        wf_workers_destroy(s.crew.workers);
        test_context_end(ctx);
    }
}

/* ---- planned memory and traffic ---- */

static void get_ranks(wf_context *ctx, const one_case *c, const char *plan, int plan_only,
                      int n_ranks, wf_workers_rank *ranks) {
    case_crew crew;
    wf_step_result results[CASE_STEPS];
    int64_t n_done;
    case_crew_init(&crew, c);
    crew.config.plan_only = plan_only;
    TEST_OK(ctx, case_try_crew(ctx, &crew, plan));
    if (!plan_only) TEST_OK(ctx, wf_workers_run(crew.workers, c->n_steps, results, &n_done));
    for (int r = 0; r < n_ranks; r++) TEST_OK(ctx, wf_workers_rank_get(crew.workers, r, &ranks[r]));
    wf_workers_destroy(crew.workers);
}

/* A run of asynchronous workers also sends its first pull, which is as large as a push. */
static void check_rank(const one_case *c, const wf_workers_rank *plan, const wf_workers_rank *ran) {
    bool is_async = c->recipe.update == WF_UPDATE_ASYNC;
    uint64_t n = (uint64_t)c->n_steps, sent = plan->sent_bytes * (n + is_async) / n;
    assert_int_equal(ran->memory.planned_host_peak_bytes, plan->memory.planned_host_peak_bytes);
    assert_int_equal(ran->memory.measured_host_peak_bytes, plan->memory.planned_host_peak_bytes);
    assert_int_equal(ran->memory.measured_peak_bytes, plan->memory.planned_peak_bytes);
    assert_int_equal(ran->sent_bytes, sent);
    assert_int_equal(ran->received_bytes, sent);
}

static void planned_is_measured(void **state) {
    (void)state;
    static const struct {
        const char *plan;
        int n_ranks;
    } plans[] = {{"dp=2,ps=2", 4}, {"dp=2,ps=2@workers", 2}, {"dp=2", 2}, {"dp=4,ps=1", 5}};
    for (int local = 0; local < 2; local++)
        for (size_t p = local ? 2 : 0; p < WFI_COUNT(plans) - (size_t)local; p++) {
            wf_context *ctx = test_context();
            wf_workers_rank plan[5], ran[5], processes[5];
            one_case c = async_case(80000, 4, 0);
            c.net.has_norm = 1;
            c.recipe.update = local ? WF_UPDATE_LOCAL : WF_UPDATE_ASYNC;
            c.recipe.local_steps = 1;
            get_ranks(ctx, &c, plans[p].plan, 0, plans[p].n_ranks, ran);
            get_ranks(ctx, &c, plans[p].plan, 1, plans[p].n_ranks, plan);
            get_ranks(ctx, &c, plans[p].plan, 2, plans[p].n_ranks, processes);
            for (int r = 0; r < plans[p].n_ranks; r++) check_rank(&c, &plan[r], &ran[r]);
            /* Processes share no messages and no common parameters. */
            size_t threads = plan[local].memory.planned_host_peak_bytes;
            assert_true(processes[local].memory.planned_host_peak_bytes > threads ||
                        plans[p].n_ranks > 2);
            test_context_end(ctx);
        }
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return 1;
    snprintf(record_path, sizeof record_path, "%s/record", folder);
    snprintf(state_path, sizeof state_path, "%s/trainer", folder);
    snprintf(workers_path, sizeof workers_path, "%s/workers", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    (void)remove(record_path);
    (void)remove(state_path);
    (void)remove(workers_path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_go_on),
        cmocka_unit_test(replay_begins_between_reads),
        cmocka_unit_test(local_steps_go_on),
        cmocka_unit_test(refuses_files_of_other_runs),
        cmocka_unit_test(one_worker_is_synchronous),
        cmocka_unit_test(rates_follow_the_record),
        cmocka_unit_test(planned_is_measured),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
