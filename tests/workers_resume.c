/* Workers that go on from files: replays and records of runs that are resumed anywhere, local steps
 * under another plan, and files of other runs.
 *
 * label: serial
 */
#include "workers_case.h"

static char state_path[64], workers_path[64];

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
    scoped_crew crew;
    int64_t n_done, first;
    open_part(ctx, &crew, c, p);
    first = wf_workers_n_steps(crew.workers);
    TEST_OK(ctx, wf_workers_run(crew.workers, p->n_steps, r->steps + first, &n_done));
    assert_int_equal(n_done, p->n_steps);
    if (p->saves)
        TEST_OK(ctx, wf_trainer_save_state(wf_workers_trainer(crew.workers), state_path, NULL, 0));
    if (p->saves) TEST_OK(ctx, wf_workers_save(crew.workers, workers_path));
    free(r->state);
    case_keep(ctx, wf_workers_trainer(crew.workers), case_folder, r);
}

/* ---- records ---- */

TEST_CASE(records_go_on) {
    static const int64_t bounds[] = {0, 1, WF_STALENESS_UNBOUNDED};
    for (int i = 0; i < n_cases(8); i++) {
        scoped_context ctx = test_context();
        scoped_result want = {0}, got = {0};
        one_case c = async_case(30000 + (uint64_t)i, 2 + i % 3, bounds[i % 4 % 3]);
        int first = 1 + case_draw(c.seed, 70, c.n_steps - 1), rest = c.n_steps - first;
        c.recipe.n_backup = !c.recipe.staleness;
        c.naps_us = 400;
        c.slow = (int)c.recipe.n_workers - 1; /* its last push of a part is late */
        (void)remove(case_path);
        run_part(ctx, &c, &(part){"dp=2", case_path, NULL, false, true, first}, &want);
        run_part(ctx, &c, &(part){"dp=2,ps=2", case_path, NULL, true, false, rest}, &want);
        c.naps_us = 0;
        run_part(ctx, &c, &(part){"dp=1", NULL, case_path, true, false, rest}, &got);
        memcpy(got.steps, want.steps, (size_t)first * sizeof *got.steps);
        case_expect_equal(&c, "the second part", &want, &got);
        run_part(ctx, &c, &(part){"dp=1", NULL, case_path, false, false, c.n_steps}, &got);
        case_expect_equal(&c, "all", &want, &got);
        int other = c.recipe.staleness ? first : 1 + case_draw(c.seed, 71, c.n_steps - 1);
        memset(got.steps, 0, sizeof got.steps);
        run_part(ctx, &c, &(part){"dp=2", NULL, case_path, false, true, other}, &got);
        run_part(ctx, &c, &(part){"dp=1,ps=1", NULL, case_path, true, false, c.n_steps - other},
                 &got);
        case_expect_equal(&c, "a resumed replay", &want, &got);
    }
}

/* Workers that take turns read parameters within steps, which no checkpoint has. */
TEST(replay_begins_between_reads) {
    scoped_result r = {0};
    scoped_crew crew;
    one_case c = async_case(35000, 2, WF_STALENESS_UNBOUNDED);
    (void)remove(case_path);
    run_part(ctx, &c, &(part){"dp=1", case_path, NULL, false, false, 4}, &r);
    run_part(ctx, &c, &(part){"dp=1", NULL, case_path, false, true, 2}, &r);
    open_part(ctx, &crew, &c, &(part){"dp=1", NULL, case_path, true, false, 2});
    TEST_REFUSED(ctx, wf_workers_run(crew.workers, 2, r.steps, &crew.n_done), WF_INVALID_ARG,
                 "a replay cannot begin after step 2, where workers had read older");
}

static int stop_now(void *self) {
    return 7;
}

/* A reason to stop ends no replay within the steps that it repeats at once. */
TEST(replay_stops_between_parts) {
    scoped_result r = {0};
    scoped_crew crew;
    one_case c = async_case(36000, 2, WF_STALENESS_UNBOUNDED);
    (void)remove(case_path);
    run_part(ctx, &c, &(part){"dp=1", case_path, NULL, false, false, 4}, &r);
    case_crew_init(&crew, &c);
    crew.config.replay = case_path;
    crew.config.stops = stop_now;
    TEST_OK(ctx, case_try_crew(ctx, &crew, "dp=2"));
    TEST_OK(ctx, wf_workers_run(crew.workers, 4, r.steps, &crew.n_done));
    assert_int_equal(crew.n_done, 4);
}

/* ---- local steps ---- */

static void load_after_a_run(wf_context *ctx, const one_case *c, const char *plan, case_result *r) {
    scoped_crew crew;
    wf_step_result ignored[3];
    open_part(ctx, &crew, c, &(part){plan, NULL, NULL, true, false, 0});
    TEST_OK(ctx, wf_workers_run(crew.workers, 3, ignored, &crew.n_done));
    TEST_OK(ctx, wf_trainer_load_state(wf_workers_trainer(crew.workers), state_path));
    TEST_OK(ctx, wf_workers_load(crew.workers, workers_path));
    TEST_OK(ctx, wf_workers_run(crew.workers, 3, r->steps + 2, &crew.n_done));
    free(r->state);
    case_keep(ctx, wf_workers_trainer(crew.workers), case_folder, r);
}

TEST_CASE(local_steps_go_on) {
    static const char *const plans[] = {"dp=1", "dp=2", "dp=4"};
    for (int i = 0; i < n_cases(6); i++) {
        scoped_context ctx = test_context();
        scoped_result want = {0}, got = {0};
        one_case c = case_of(40000 + (uint64_t)i, 4);
        c.recipe.update = WF_UPDATE_LOCAL;
        c.recipe.local_steps = 2;
        c.recipe.outer_momentum = 0.9;
        case_crew crew;
        case_crew_init(&crew, &c);
        case_run_crew(ctx, &crew, plans[i % 3], case_folder, 2, &want);
        run_part(ctx, &c, &(part){plans[(i + 1) % 3], NULL, NULL, false, true, 2}, &got);
        run_part(ctx, &c, &(part){plans[(i + 2) % 3], NULL, NULL, true, false, 3}, &got);
        case_expect_equal(&c, "resumed", &want, &got);
        memset(got.steps + 2, 0, 3 * sizeof *got.steps);
        load_after_a_run(ctx, &c, plans[i % 3], &got);
        case_expect_equal(&c, "loaded by workers that have run", &want, &got);
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

TEST(refuses_files_of_other_runs) {
    scoped_result r = {0};
    char late[64];
    one_case c = async_case(50000, 2, WF_STALENESS_UNBOUNDED), local = c;
    local.recipe.update = WF_UPDATE_LOCAL;
    snprintf(late, sizeof late, "%s/late", case_folder);
    (void)remove(case_path);
    run_part(ctx, &c, &(part){"dp=1", case_path, NULL, false, false, 2}, &r);
    c.n_ahead = 3; /* and one worker computes three of four parts */
    c.slow = 0;
    run_part(ctx, &c, &(part){"dp=2", NULL, NULL, false, true, 2}, &r);
    c.n_ahead = 0;
    run_part(ctx, &c, &(part){"dp=2", late, NULL, true, false, 1}, &r);
    refuse_load(&c, case_path, false, WF_INVALID_ARG, "they are of different runs");
    refuse_load(&c, case_path, true, WF_INVALID_ARG, "they are of different runs");
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
}

/* ---- files that have been changed, with digests or without ---- */

/* Writes the workers' file anew without digests. Of tensor `name`, 8-byte number `i` becomes
 * `bits`. */
static void forge(wf_context *ctx, const char *name, size_t i, uint64_t bits) {
    scoped_safetensors file;
    TEST_OK(ctx, wf_safetensors_open(ctx, workers_path, &file));
    int n = wf_safetensors_n_tensors(file);
    const char *const keys[] = {"weft.n_steps", "weft.weights_sha256"};
    wf_metadata metadata[2];
    wf_tensor_data *tensors = calloc((size_t)n, sizeof *tensors);
    for (int k = 0; k < 2; k++)
        metadata[k] = (wf_metadata){keys[k], wf_safetensors_metadata(file, keys[k])};
    for (int k = 0; k < n; k++) {
        const wf_safetensors_entry *e = wf_safetensors_get(file, k);
        char *data = malloc(e->n_bytes + 1);
        TEST_OK(ctx, wf_safetensors_read(file, k, data, e->n_bytes));
        if (!strcmp(e->name, name)) memcpy(data + 8 * i, &bits, sizeof bits);
        tensors[k] = (wf_tensor_data){e->name, e->dtype, {.n_dims = 1, .dim = {e->dim[0]}}, data};
    }
    TEST_OK(ctx, wf_safetensors_write(ctx, workers_path, tensors, n, metadata, 2));
    for (int k = 0; k < n; k++) free((void *)(uintptr_t)tensors[k].data);
    free(tensors);
}

TEST(refuses_numbers_of_no_run) {
    static const struct {
        bool is_local;
        const char *name;
        uint64_t bits;
        const char *words;
    } forged[] = {{true, "outer.momentum", 0x7FC000007FC00000, "a run cannot resume from it"},
                  {true, "worker.1.optimizer.0", 0x7F8000007F800000, "a run cannot resume from it"},
                  {true, "workers.next_batch", 3, "as many batches"},
                  {false, "workers.next_batch", 0, "as many batches"},
                  {false, "workers.next_batch", 1000000, "as many batches"},
                  {false, "workers.next_batch", UINT64_MAX, "as many batches"},
                  {false, "workers.staleness", 5, "does not count 4 gradients"},
                  {false, "workers.staleness", UINT64_MAX, "does not count 4 gradients"}};
    scoped_result r = {0};
    for (size_t k = 0; k < WFI_COUNT(forged); k++) {
        one_case c = async_case(60000, 2, WF_STALENESS_UNBOUNDED);
        c.recipe.optimizer = WF_ADAM;
        if (forged[k].is_local) c.recipe.update = WF_UPDATE_LOCAL;
        run_part(ctx, &c, &(part){"dp=1", NULL, NULL, false, true, 2}, &r);
        forge(ctx, "", 0, 0);
        run_part(ctx, &c, &(part){"dp=1", NULL, NULL, true, true, 0}, &r); /* as good without */
        forge(ctx, forged[k].name, 0, forged[k].bits);
        refuse_load(&c, NULL, false, WF_CORRUPT, forged[k].words);
    }
    /* The sum of the batches may be right: local workers have read equally many. */
    one_case c = async_case(60000, 2, WF_STALENESS_UNBOUNDED);
    c.recipe.update = WF_UPDATE_LOCAL;
    run_part(ctx, &c, &(part){"dp=1", NULL, NULL, false, true, 2}, &r);
    forge(ctx, "workers.next_batch", 0, 1);
    forge(ctx, "workers.next_batch", 1, 3);
    refuse_load(&c, NULL, false, WF_CORRUPT, "as many batches");
}

static int make_folder(void **state) {
    int status = case_make_folder(state);
    snprintf(state_path, sizeof state_path, "%s/trainer", case_folder);
    snprintf(workers_path, sizeof workers_path, "%s/workers", case_folder);
    return status;
}

static int remove_folder(void **state) {
    (void)remove(state_path);
    (void)remove(workers_path);
    return case_remove_folder(state);
}

TEST_FIXTURE(make_folder, remove_folder)
