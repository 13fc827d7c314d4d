/* The bits of workers, over random models, recipes and plans: staleness 0 is the synchronous
 * trainer, a replay repeats its record under any plan, and local steps are those of trainers whose
 * changes are averaged by hand. */
#include "workers_case.h"

#include "api/share.h"
#include "base/tree.h"
#include "plan/workers.h"
#include "workers/record.h"

static void describe(char text[600], const one_case *c, const char *plan) {
    const wf_recipe *r = &c->recipe;
    snprintf(
        text, 600,
        "seed %d: %d workers, %s; hidden %d, norm %d, dropout %d, tied %d; batch %d, micro %d, "
        "lanes %d; optimizer %d, momentum %g, nesterov %d, decay %g, clip %g, freeze '%.99s', "
        "lr_scale '%.99s'",
        (int)c->seed, (int)r->n_workers, plan, c->net.n_hidden, c->net.has_norm, c->net.has_dropout,
        c->net.is_tied, (int)r->batch, (int)r->n_micro, (int)r->n_lanes, r->optimizer, r->momentum,
        r->nesterov, r->weight_decay, r->clip_norm, r->freeze.text, r->lr_scale.text);
}

static bool is_equal(const wf_step_result *a, const wf_step_result *b) {
    return a->loss == b->loss && a->n_rows == b->n_rows && a->n_hits == b->n_hits &&
           a->lr == b->lr && a->gradient_norm == b->gradient_norm &&
           a->stop_reason == b->stop_reason;
}

static void expect_equal(const one_case *c, const char *plan, const case_result *a,
                         const case_result *b) {
    char text[600];
    describe(text, c, plan);
    for (int s = 0; s < c->n_steps; s++)
        if (!is_equal(&a->steps[s], &b->steps[s]))
            fail_msg("%s: step %d has loss %.17g and %.17g, rows %d and %d, hits %d and %d, "
                     "lr %.17g and %.17g, norm %.17g and %.17g",
                     text, s, a->steps[s].loss, b->steps[s].loss, (int)a->steps[s].n_rows,
                     (int)b->steps[s].n_rows, (int)a->steps[s].n_hits, (int)b->steps[s].n_hits,
                     a->steps[s].lr, b->steps[s].lr, a->steps[s].gradient_norm,
                     b->steps[s].gradient_norm);
    if (strcmp(a->hash, b->hash) != 0) fail_msg("%s: other weights", text);
    if (a->n_state != b->n_state || memcmp(a->state, b->state, a->n_state) != 0)
        fail_msg("%s: another state", text);
}

/* ---- staleness 0 ---- */

/* A plan of 1 to n_workers ranks and 0 to 3 servers. */
static void draw_plan(uint64_t seed, int n_workers, char plan[64]) {
    int n_ranks = 1 + case_draw(seed, 40, n_workers), n_servers = case_draw(seed, 41, 4);
    bool at_workers = case_draw(seed, 42, 2) && n_servers <= n_ranks;
    if (n_servers)
        snprintf(plan, 64, "dp=%d,ps=%d%s", n_ranks, n_servers, at_workers ? "@workers" : "");
    else
        snprintf(plan, 64, "dp=%d", n_ranks);
}

TEST_CASE(staleness_0_is_synchronous) {
    for (int i = 0; i < n_cases(24); i++) {
        uint64_t seed = (uint64_t)i;
        one_case c = case_of(seed, 1 + i % CASE_WORKERS);
        scoped_context ctx = test_context();
        scoped_result want = {0}, got = {0};
        case_crew crew;
        char plan[64];
        draw_plan(seed, (int)c.recipe.n_workers, plan);
        c.n_ignored = case_draw(seed, 43, 2) ? 20 : 0;
        case_run_sync(ctx, &c, case_folder, &want);
        c.recipe.update = WF_UPDATE_ASYNC;
        c.recipe.staleness = 0;
        c.naps_us = 50;
        case_crew_init(&crew, &c);
        case_run_crew(ctx, &crew, plan, case_folder, 2, &got);
        expect_equal(&c, plan, &want, &got);
    }
}

/* ---- replays ---- */

/* The bound holds for every gradient, and the file keeps the rules of a record. */
static void check_record(wf_context *ctx, const one_case *c, const case_crew *crew,
                         const char *path) {
    wfi_record record;
    int64_t n = 0, n_steps = 0, n_bound = c->recipe.staleness;
    TEST_OK(ctx, wfi_record_read(ctx, path, &record));
    assert_int_equal(record.n_applied, c->n_steps * (c->recipe.n_workers - c->recipe.n_backup));
    TEST_OK(ctx, wfi_record_check_end(&record));
    for (; wf_workers_staleness(crew->workers, n_steps) >= 0; n_steps++)
        n += wf_workers_staleness(crew->workers, n_steps);
    assert_int_equal(n, record.n_applied);
    if (n_steps > n_bound + 1)
        fail_msg("a gradient is %d steps old, the bound is %d", (int)n_steps - 1, (int)n_bound);
    wfi_record_release(&record);
}

/* Runs a case with random naps, and writes the record. */
static void record(wf_context *ctx, const one_case *c, const char *path, case_result *result) {
    scoped_crew crew;
    char plan[64];
    draw_plan(c->seed, (int)c->recipe.n_workers, plan);
    case_crew_init(&crew, c);
    crew.config.record = path;
    crew.config.identity = "a case";
    TEST_OK(ctx, case_try_crew(ctx, &crew, plan));
    case_steps(ctx, &crew, 1 + case_draw(c->seed, 50, c->n_steps - 1), case_folder, result);
    check_record(ctx, c, &crew, path);
}

static void replay(wf_context *ctx, one_case c, const char *plan, const char *path,
                   const case_result *want) {
    case_crew crew;
    scoped_result got = {0};
    c.naps_us = 0;
    case_crew_init(&crew, &c);
    crew.config.replay = path;
    crew.config.identity = "a case";
    int n_first = 1 + case_draw(c.seed + strlen(plan), 51, c.n_steps - 1);
    case_run_crew(ctx, &crew, plan, case_folder, n_first, &got);
    expect_equal(&c, plan, want, &got);
}

TEST(replays_repeat_the_record) {
    static const int64_t bounds[] = {1, 4, WF_STALENESS_UNBOUNDED, 0, 2};
    char plan[64];
    for (int i = 0; i < n_cases(15); i++) {
        uint64_t seed = 10000 + (uint64_t)i;
        scoped_result want = {0};
        one_case c = case_of(seed, 1 + i % CASE_WORKERS);
        c.recipe.update = WF_UPDATE_ASYNC;
        c.recipe.staleness = bounds[case_draw(seed, 52, 5)];
        c.recipe.staleness_lr = case_draw(seed, 53, 2);
        if (!c.recipe.staleness && c.recipe.n_workers > 1)
            c.recipe.n_backup = case_draw(seed, 54, 2);
        c.n_ignored = case_draw(seed, 43, 2) ? 30 : 0;
        c.naps_us = 400;
        c.slow = case_draw(seed, 55, 2) ? 0 : -1;
        record(ctx, &c, case_path, &want);
        replay(ctx, c, "dp=1", case_path, &want);
        draw_plan(seed + 1, (int)c.recipe.n_workers, plan);
        replay(ctx, c, plan, case_path, &want);
    }
}

/* ---- local steps ---- */

static float *sum_of(float *const *parts, int first, int n, size_t n_elem) {
    int64_t n_left = wfi_tree_split(n);
    if (n == 1) return parts[first];
    float *left = sum_of(parts, first, (int)n_left, n_elem);
    const float *right = sum_of(parts, first + (int)n_left, n - (int)n_left, n_elem);
    for (size_t i = 0; i < n_elem; i++) left[i] += right[i];
    return left;
}

/* The workers' trainers, and of one tensor: each worker's, the common one, the outer momentum. */
typedef struct plain_tensor {
    const char *name;
    bool is_buffer;
    size_t n;
    float *own[CASE_WORKERS], *common, *momentum;
} plain_tensor;

typedef struct plain_crew {
    const one_case *c;
    wf_context *ctx;
    wf_recipe resolved;
    wf_trainer *trainers[CASE_WORKERS];
    plain_tensor tensors[16];
    int n_tensors;
} plain_crew;

static void plain_add_tensor(plain_crew *p, const wfi_value *v) {
    plain_tensor *t = &p->tensors[p->n_tensors++];
    *t = (plain_tensor){.name = v->name, .is_buffer = v->kind == WFI_VALUE_BUFFER};
    t->n = (size_t)wf_shape_n_elem(&v->shape);
    t->common = calloc(t->n, sizeof *t->common);
    t->momentum = calloc(t->n, sizeof *t->momentum);
    assert_true(t->common && t->momentum);
    for (int k = 0; k < (int)p->c->recipe.n_workers; k++)
        assert_non_null(t->own[k] = calloc(t->n, sizeof *t->own[k]));
    TEST_OK(p->ctx, wf_trainer_read(p->trainers[0], t->name, t->common, t->n * sizeof(float)));
}

static void plain_open(wf_context *ctx, const one_case *c, plain_crew *p) {
    scoped_model model = case_create_model(ctx, c);
    *p = (plain_crew){.c = c, .ctx = ctx};
    TEST_OK(ctx, wf_recipe_resolve(ctx, &c->recipe, model, NULL, &p->resolved));
    wf_recipe own = wfi_recipe_of_worker(&p->resolved);
    for (int k = 0; k < (int)c->recipe.n_workers; k++) p->trainers[k] = case_trainer(ctx, c, &own);
    const wf_graph *g = wf_trainer_program(p->trainers[0])->graph;
    for (int32_t v = 0; v < g->n_values; v++)
        if (wfi_value_is_state(&g->values[v]) && g->values[v].dtype == WF_F32)
            plain_add_tensor(p, &g->values[v]);
}

static void plain_close(plain_crew *p) {
    for (int k = 0; k < (int)p->c->recipe.n_workers; k++) {
        wf_trainer_destroy(p->trainers[k]);
        for (int t = 0; t < p->n_tensors; t++) free(p->tensors[t].own[k]);
    }
    for (int t = 0; t < p->n_tensors; t++) {
        free(p->tensors[t].common);
        free(p->tensors[t].momentum);
    }
}

static void plain_step(plain_crew *p, int worker, int64_t batch, double *loss, int64_t *n_rows,
                       int64_t *n_hits) {
    static case_data data;
    wf_feed feeds[2];
    wf_step_result r;
    int64_t first, n, n_batch = case_n_samples(p->c, batch);
    wf_recipe_part(&p->resolved, n_batch, (int)p->c->recipe.n_workers, worker, &first, &n);
    case_fill(p->c, batch, first, n, &data);
    wfi_trainer_share(p->trainers[worker], &(wfi_share){.step = batch, .first_sample = first});
    TEST_OK(p->ctx,
            wf_trainer_step(p->trainers[worker], feeds, case_feeds(&data, n, feeds), n, &r));
    *loss += r.loss * (double)r.n_rows;
    *n_rows += r.n_rows;
    *n_hits += r.n_hits;
}

/* The change is a gradient of PyTorch's SGD with Nesterov's momentum; buffers are averaged. */
static void plain_average(const plain_crew *p, plain_tensor *t) {
    int n_workers = (int)p->c->recipe.n_workers;
    float momentum = (float)p->c->recipe.outer_momentum, lr = (float)p->c->recipe.outer_lr;
    for (int k = 0; k < n_workers; k++) {
        TEST_OK(p->ctx, wf_trainer_read(p->trainers[k], t->name, t->own[k], t->n * sizeof(float)));
        for (size_t i = 0; i < t->n && !t->is_buffer; i++)
            t->own[k][i] = t->common[i] - t->own[k][i];
    }
    float *mean = sum_of(t->own, 0, n_workers, t->n);
    for (size_t i = 0; i < t->n; i++) {
        mean[i] *= 1.0f / (float)n_workers;
        t->momentum[i] = momentum * t->momentum[i] + mean[i];
        if (!t->is_buffer) t->common[i] -= lr * (mean[i] + momentum * t->momentum[i]);
    }
    for (int k = 0; k < n_workers; k++)
        TEST_OK(p->ctx, wf_trainer_write(p->trainers[k], t->name, t->is_buffer ? mean : t->common,
                                         t->n * sizeof(float)));
}

static void run_plain(wf_context *ctx, const one_case *c, int n_first, case_result *r) {
    plain_crew p;
    plain_open(ctx, c, &p);
    for (int s = 0; s < c->n_steps; s++) {
        wf_step_result *step = &r->steps[s];
        step->lr = wf_recipe_lr(&p.resolved, s);
        for (int k = 0; k < (int)c->recipe.n_workers; k++)
            plain_step(&p, k, s, &step->loss, &step->n_rows, &step->n_hits);
        step->loss = step->n_rows ? step->loss / (double)step->n_rows : 0;
        bool ends = s + 1 == n_first || s + 1 == c->n_steps;
        if ((s + 1) % c->recipe.local_steps && !ends) continue;
        for (int t = 0; t < p.n_tensors; t++) plain_average(&p, &p.tensors[t]);
    }
    case_keep(ctx, p.trainers[0], case_folder, r);
    plain_close(&p);
}

static one_case local_case(uint64_t seed, int n_workers) {
    one_case c = case_of(seed, n_workers);
    c.recipe.update = WF_UPDATE_LOCAL;
    c.n_ignored = case_draw(seed, 43, 2) ? 20 : 0;
    c.recipe.local_steps = 1 + case_draw(seed, 60, 4);
    c.recipe.outer_momentum = case_draw(seed, 61, 2) ? 0.9 : 0;
    c.recipe.outer_lr = case_draw(seed, 62, 2) ? 0.7 : 1;
    return c;
}

TEST_CASE(local_is_plain_averaging) {
    for (int i = 0; i < n_cases(12); i++) {
        uint64_t seed = 20000 + (uint64_t)i;
        one_case c = local_case(seed, 1 + i % CASE_WORKERS);
        scoped_context ctx = test_context();
        scoped_result want = {0};
        int n_first = 1 + case_draw(seed, 63, c.n_steps - 1);
        run_plain(ctx, &c, n_first, &want);
        for (int n_ranks = 1; n_ranks <= (int)c.recipe.n_workers; n_ranks++) {
            case_result got = {0};
            case_crew crew;
            char plan[64];
            snprintf(plan, sizeof plan, "dp=%d", n_ranks);
            if (!wfi_lanes_allow(c.recipe.n_workers, n_ranks)) continue;
            case_crew_init(&crew, &c);
            case_run_crew(ctx, &crew, plan, case_folder, n_first, &got);
            expect_equal(&c, plan, &want, &got);
            case_release(&got);
        }
    }
}

TEST_FIXTURE(case_make_folder, case_remove_folder)
