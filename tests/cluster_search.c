/* The search for plans: no case is better, every plan can be parsed, and the recipe is kept.
 *
 * label: serial
 */
#include "cluster/search.h"
#include "test.h"

#include <string.h>
#include <weft/program.h>

typedef struct world {
    wf_context *ctx;
    wf_cluster *cluster;
    wf_model *model;
    wf_recipe recipe;
    wf_prediction_request q;
} world;

static void begin(world *w, const char *cluster, int nodes, int64_t layers, int64_t hidden,
                  int64_t batch) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    config.n_layers = layers, config.hidden = hidden, config.n_heads = 16, config.n_tokens = 256;
    *w = (world){.ctx = test_context(), .recipe = WF_RECIPE_INIT, .q = WF_PREDICTION_REQUEST_INIT};
    TEST_OK(w->ctx, wf_cluster_load(w->ctx, cluster, &w->cluster));
    TEST_OK(w->ctx, wf_cluster_set_nodes(w->cluster, nodes));
    TEST_OK(w->ctx, wf_model_find(w->ctx, "gpt", &config, &w->model));
    w->recipe.batch = batch, w->recipe.optimizer = WF_ADAMW, w->recipe.dtype = WF_BF16;
    w->q.cluster = w->cluster, w->q.model = w->model, w->q.recipe = &w->recipe;
}

static void end(world *w) {
    wf_model_destroy(w->model);
    wf_cluster_destroy(w->cluster);
    test_context_end(w->ctx);
}

static wf_choice search(const world *w) {
    wf_choice choices[16];
    int n;
    TEST_OK(w->ctx, wf_cluster_search(w->ctx, &w->q, 16, choices, &n));
    assert_in_range(n, 1, 16);
    for (int k = 1; k < n; k++)
        for (int i = 0; i < k; i++)
            assert_false(wfi_is_better(&choices[k].prediction, &choices[i].prediction));
    return choices[0];
}

/* A plan that fits is better; of these one that is 0.1 % faster, of others one that lacks less. */
static void compares(void **state) {
    (void)state;
    const wf_prediction slow = {.fits = 1, .step_ms = 100}, tied = {.fits = 1, .step_ms = 99.95},
                        fast = {.fits = 1, .step_ms = 99.8}, lacks = {.short_by_bytes = 2},
                        least = {.short_by_bytes = 1};
    assert_true(wfi_is_better(&fast, &slow) && !wfi_is_better(&slow, &fast));
    assert_false(wfi_is_better(&tied, &slow) || wfi_is_better(&slow, &tied));
    assert_true(wfi_is_better(&slow, &least) && !wfi_is_better(&least, &slow));
    assert_true(wfi_is_better(&least, &lacks) && !wfi_is_better(&lacks, &least));
}

/* ---- against all cases, each predicted without limits ---- */

typedef struct exhaustive {
    wfi_predictor p;
    wf_prediction best;
    int n, n_fits, pp, tp, chunks; /* the most */
} exhaustive;

static wf_status look(void *self, const wfi_case *c) {
    exhaustive *e = self;
    wf_prediction x;
    bool is_exact;
    e->pp = c->pp > e->pp ? c->pp : e->pp, e->tp = c->tp > e->tp ? c->tp : e->tp;
    e->chunks = c->chunks > e->chunks ? c->chunks : e->chunks;
    assert_false(c->zero >= 2 && c->pp > 1); /* each microbatch would sum over the replicas */
    if (wfi_predict_case(&e->p, c, NULL, &x, &is_exact) != WF_OK) return WF_OK;
    assert_true(is_exact);
    /* Limits that a case just meets do not exclude it; one that lacks as many bytes as the best is
     * no better. */
    const wfi_limits own = {x.step_ms * (1 + 1e-9), x.short_by_bytes + 1};
    if (e->n % 8 == 0) TEST_OK(e->p.ctx, wfi_predict_case(&e->p, c, &own, &x, &is_exact));
    assert_true(is_exact);
    bool is_less = x.fits ? x.step_ms < e->best.step_ms : x.short_by_bytes < e->best.short_by_bytes;
    if (!e->n++ || x.fits > e->best.fits || (x.fits == e->best.fits && is_less)) e->best = x;
    e->n_fits += x.fits;
    return WF_OK;
}

static void finds_best(void **state) {
    (void)state;
    static const struct {
        const char *cluster;
        int nodes;
        int64_t layers, hidden, batch;
    } cases[] = {{"ethernet", 2, 4, 1024, 16}, {"ethernet", 1, 12, 4096, 8},
                 {"laptop", 1, 12, 768, 32},   {"laptop", 1, 48, 4096, 8},
                 {"dgx-a100", 1, 8, 2048, 32}, {"ethernet", 2, 96, 12288, 8}};
    const wfi_bounds any = {"any",        WFI_ANY_SIZE, WFI_ANY_SIZE, WFI_ANY_SIZE,
                            WFI_ANY_SIZE, 15,           false};
    int n = 0, n_fits = 0;
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        world w;
        exhaustive e = {.n = 0};
        begin(&w, cases[k].cluster, cases[k].nodes, cases[k].layers, cases[k].hidden,
              cases[k].batch);
        TEST_OK(w.ctx, wfi_predictor_begin(w.ctx, &w.q, &e.p));
        TEST_OK(w.ctx, wfi_each_case(&e.p, &any, look, &e));
        wfi_predictor_end(&e.p);
        int64_t n_devices = wf_cluster_n_devices(w.cluster);
        assert_int_equal(e.pp, wfi_min_i64(cases[k].layers + 2, n_devices));
        assert_int_equal(e.tp, n_devices == 1 ? 1 : (int64_t)w.cluster->levels[0].count);
        assert_int_equal(e.chunks, n_devices == 1 ? 1 : wfi_min_i64(cases[k].layers / 2, 8));
        wf_choice found = search(&w);
        assert_int_equal(found.prediction.fits, e.best.fits);
        if (e.best.fits)
            assert_true(found.prediction.step_ms <= e.best.step_ms * 1.0011);
        else
            assert_true(found.prediction.short_by_bytes == e.best.short_by_bytes);
        n += e.n, n_fits += e.n_fits;
        end(&w);
    }
    assert_true(n > 1000 && n_fits > 100 && n_fits < n);
}

/* ---- plans as text ---- */

static void is_a_plan(const world *w, const wf_choice *choice) {
    wf_prediction x;
    wf_plan *plan;
    world given = *w;
    if (!*choice->plan) return;
    TEST_OK(w->ctx, wf_plan_parse(w->ctx, choice->plan, &plan));
    given.recipe.n_micro = choice->n_micro;
    given.q.recipe = &given.recipe, given.q.plan = plan;
    TEST_OK(w->ctx, wf_predict(w->ctx, &given.q, &x));
    if (x.step_ms != choice->prediction.step_ms || x.peak_bytes != choice->prediction.peak_bytes)
        fail_msg("%s: %.17g ms, found as %.17g", choice->plan, x.step_ms,
                 choice->prediction.step_ms);
    wf_plan_destroy(plan);
}

/* A program of the plan can be made, with the lanes and slices that the choice names, and needs
 * about as much memory. */
static void can_be_lowered(const world *w, const wf_choice *choice) {
    wf_recipe recipe = w->recipe;
    wf_program *program;
    wf_plan *plan;
    if (!*choice->plan || choice->n_micro > 16) return;
    recipe.n_micro = choice->n_micro;
    recipe.n_lanes = choice->n_lanes, recipe.n_slices = choice->n_slices;
    TEST_OK(w->ctx, wf_plan_parse(w->ctx, choice->plan, &plan));
    wf_status status =
        wf_program_create(w->ctx, w->model, &recipe, plan, WF_PROGRAM_TRAIN, &program);
    if (status != WF_OK) fail_msg("%s: %s", choice->plan, wf_context_error(w->ctx));
    double peak = 0, predicted = choice->prediction.peak_bytes - choice->prediction.library_bytes;
    for (int r = 0; r < wf_program_n_ranks(program); r++)
        peak = fmax(peak, (double)wf_program_rank(program, r).peak_bytes);
    if (fabs(predicted / peak - 1) > 0.12)
        fail_msg("%s: %.0f bytes predicted, %.0f planned", choice->plan, predicted, peak);
    wf_program_destroy(program);
    wf_plan_destroy(plan);
}

static void strategies(void **state) {
    (void)state;
    static const char *const names[] = {
        "one device", "DataParallel", "DDP",   "ZeRO-1",   "ZeRO-2",          "ZeRO-3",
        "pipeline",   "tensor",       "PP+DP", "PP+TP+DP", "DP+PP+TP+ZeRO-1", "offload"};
    world w;
    wf_choice rows[WF_N_STRATEGIES];
    begin(&w, "ethernet", 2, 4, 512, 16);
    TEST_OK(w.ctx, wf_cluster_advise(w.ctx, &w.q, rows));
    for (int k = 0; k < WF_N_STRATEGIES; k++) {
        assert_string_equal(rows[k].strategy, names[k]);
        assert_true(*rows[k].plan);
        is_a_plan(&w, &rows[k]);
        can_be_lowered(&w, &rows[k]);
    }
    end(&w);
}

/* Two replicas of two lanes, or four of one; never eight. No more ranks than slices. */
static void keeps_recipe(void **state) {
    (void)state;
    world w;
    begin(&w, "dgx-a100", 1, 8, 2048, 32);
    wf_choice free_choice = search(&w);
    assert_int_equal(free_choice.prediction.n_ranks, 8);
    is_a_plan(&w, &free_choice);
    w.recipe.n_micro = 8, w.recipe.n_lanes = 2, w.recipe.n_slices = 1;
    wf_choice kept = search(&w);
    assert_int_equal(kept.n_micro, 8);
    assert_true(kept.n_lanes <= 2 && kept.n_slices == 1);
    end(&w);
}

/* More devices than a plan may have replicas, or more samples than a recipe microbatches; and
 * 62,500 replicas, which cannot be summed in groups of a node. */
static void fills_large_clusters(void **state) {
    (void)state;
    static const int64_t batches[] = {1000000, 1 << 22};
    for (size_t k = 0; k < WFI_COUNT(batches); k++) {
        world w;
        begin(&w, "dgx-a100", 1000000, 2, 64, batches[k]);
        wf_choice found = search(&w), rows[WF_N_STRATEGIES];
        assert_in_range(found.prediction.n_ranks, 1, WFI_MOST_RANKS);
        is_a_plan(&w, &found);
        TEST_OK(w.ctx, wf_cluster_advise(w.ctx, &w.q, rows));
        for (int r = 0; r < WF_N_STRATEGIES; r++) is_a_plan(&w, &rows[r]);
        world few = w;
        TEST_OK(w.ctx, wf_cluster_load(w.ctx, "dgx-a100", &few.cluster));
        TEST_OK(w.ctx, wf_cluster_set_nodes(few.cluster, 16));
        few.q.cluster = few.cluster;
        assert_true(found.prediction.step_ms <= search(&few).prediction.step_ms * 1.001);
        wf_cluster_destroy(few.cluster);
        w.recipe.n_lanes = found.n_lanes, w.recipe.n_micro = found.n_micro;
        TEST_OK(w.ctx, wf_recipe_resolve(w.ctx, &w.recipe, w.model, NULL, &w.recipe));
        end(&w);
    }
}

/* A group of one node joins several nodes all the same. */
static void counts_nodes(void **state) {
    (void)state;
    const wf_choice rows[WF_N_STRATEGIES] = {{.plan = ""}};
    unsigned bits;
    wf_cluster c = {.n_levels = 3, .levels = {{.count = 8}, {.count = 1}, {.count = 4}}};
    for (int k = 0; k < 3; k++) c.levels[k].bandwidth = 1e11;
    assert_string_equal(wf_cluster_rule(&c, rows, &bits), "several nodes with fast links");
    c.levels[2].bandwidth = 3e10;
    assert_string_equal(wf_cluster_rule(&c, rows, &bits), "several nodes with slow links");
    c.levels[2].count = 1;
    assert_string_equal(wf_cluster_rule(&c, rows, &bits),
                        "one node, and no pipeline stage fits on one device");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compares),
        cmocka_unit_test(finds_best),
        cmocka_unit_test(strategies),
        cmocka_unit_test(keeps_recipe),
        cmocka_unit_test(fills_large_clusters),
        cmocka_unit_test(counts_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
