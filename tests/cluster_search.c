/* The search for plans: no case is better, every plan can be parsed, and the recipe is kept.
 *
 * label: serial
 */
#include "cluster/search.h"
#include "test.h"

typedef struct world {
    wf_context *ctx;
    wf_cluster *cluster;
    wf_model *model;
    wf_recipe recipe;
    wf_prediction_request q;
} world;

static void begin(world *w, const char *cluster, int nodes, int64_t layers, int64_t hidden,
                  int64_t batch) {
    wf_model_config config =
        TEST_MODEL(.n_layers = layers, .hidden = hidden, .n_heads = 16, .n_tokens = 256);
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
    wf_choice choices[16] = {WF_CHOICE_INIT};
    int n;
    TEST_OK(w->ctx, wf_cluster_search(w->ctx, &w->q, 16, choices, &n));
    assert_in_range(n, 1, 16);
    for (int k = 1; k < n; k++)
        for (int i = 0; i < k; i++)
            assert_false(wfi_is_better(&choices[k].prediction, &choices[i].prediction));
    return choices[0];
}

/* A plan that fits is better; of these one that is 0.1 % faster, of others one that lacks less. */
TEST_CASE(compares) {
    const wf_prediction slow = {.fits = 1, .step_ms = 100}, tied = {.fits = 1, .step_ms = 99.95},
                        fast = {.fits = 1, .step_ms = 99.8}, lacks = {.short_by_bytes = 2},
                        least = {.short_by_bytes = 1};
    assert_true(wfi_is_better(&fast, &slow) && !wfi_is_better(&slow, &fast));
    assert_false(wfi_is_better(&tied, &slow) || wfi_is_better(&slow, &tied));
    assert_true(wfi_is_better(&slow, &least) && !wfi_is_better(&least, &slow));
    assert_true(wfi_is_better(&least, &lacks) && !wfi_is_better(&lacks, &least));
}

/* ---- against all plans of up to eight ranks, each predicted without limits ---- */

typedef struct exhaustive {
    wfi_predictor p;
    wf_recipe recipe;
    wf_prediction best;
    char text[200], best_text[200]; /* of plans */
    int64_t best_micro;
    int n, n_fits;
    bool tries_buckets;
} exhaustive;

/* Appends to the plan's text, from `at` on. Returns where it ends. */
static size_t add(exhaustive *e, size_t at, const char *format, ...) WFI_PRINTF(3, 4);
static size_t add(exhaustive *e, size_t at, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(e->text + at, sizeof e->text - at, format, arguments);
    va_end(arguments);
    return at + (size_t)n;
}

static void look_at_plan(exhaustive *e) {
    wf_prediction x = WF_PREDICTION_INIT;
    wfi_verdict verdict;
    scoped_plan plan = NULL;
    wfi_case c;
    if (wf_plan_parse(e->p.ctx, e->text, &plan) != WF_OK) return;
    wf_status status = wfi_case_of_plan(&e->p, plan, &c);
    if (status == WF_OK) status = wfi_predict_case(&e->p, &c, NULL, &x, &verdict);
    if (status != WF_OK) return;
    e->n_fits += x.fits;
    bool is_less = x.fits != e->best.fits ? x.fits
                   : x.fits               ? x.step_ms < e->best.step_ms
                                          : x.short_by_bytes < e->best.short_by_bytes;
    if (e->n++ && !is_less) return;
    e->best = x;
    e->best_micro = e->recipe.n_micro;
    memcpy(e->best_text, e->text, sizeof e->text);
}

static void look_at_savings(exhaustive *e, size_t at) {
    static const char *const repeats[] = {"", ",recompute=selective", ",recompute=all"};
    static const char *const names[] = {"state", "params", "activations"};
    const wf_cluster *cluster = e->p.q.cluster;
    for (int k = 0; k < 81; k++) {
        size_t end = add(e, at, "%s", repeats[k % 3]);
        bool has_space = true;
        for (int i = 0, rest = k / 3, n = 0; i < 3; i++, rest /= 3) {
            if (rest % 3 == 0) continue;
            has_space &= (rest % 3 == 1 ? cluster->host_bytes : cluster->disk_bytes) > 0;
            end = add(e, end, "%s%s%s", n++ ? "+" : ",offload=", names[i],
                      rest % 3 == 1 ? "" : ":disk");
        }
        if (has_space) look_at_plan(e);
    }
}

static void look_at_buckets(exhaustive *e, size_t at, int dp) {
    static const int mib[] = {1, 16, 64, 256};
    int n_fits = e->n_fits;
    look_at_savings(e, at);
    bool fits = e->n_fits > n_fits; /* else other buckets are not tried */
    for (size_t k = 0; k < WFI_COUNT(mib) && dp > 1 && fits && e->tries_buckets; k++)
        look_at_savings(e, add(e, at, ",bucket=%dMiB", mib[k]));
}

static void look_at_zero(exhaustive *e, size_t at, int dp) {
    look_at_buckets(e, add(e, at, "%s", ""), dp);
    for (int zero = 1; zero < 4; zero++)
        for (int shard = 1; shard <= dp; shard++)
            look_at_buckets(e, add(e, at, ",zero=%d,shard=%d", zero, shard), dp);
}

static void look_at_schedules(exhaustive *e, size_t at, int dp, int pp) {
    const char *name;
    for (int k = 0; (name = wf_schedule_name(k)); k++) {
        bool any_chunks = wfi_schedule_find(name)->any_chunks && pp > 1;
        bool is_same = pp == 1 && !wfi_schedule_find(name)->by_unit && k > 0;
        if (is_same || !strcmp(name, "auto")) continue; /* one stage needs no schedule */
        size_t end = add(e, at, ",schedule=%s", name);
        if (!any_chunks) look_at_zero(e, end, dp);
        for (int chunks = 1; chunks <= 8 && any_chunks; chunks++)
            look_at_zero(e, add(e, end, ",chunks=%d", chunks), dp);
    }
}

static void look_at_meshes(exhaustive *e, int n_devices) {
    for (int dp = 1; dp <= n_devices; dp++)
        for (int tp = 1; tp <= n_devices / dp; tp++)
            for (int pp = 1; pp <= n_devices / dp / tp; pp++) {
                size_t end = add(e, 0, "dp=%d,tp=%d,pp=%d", dp, tp, pp);
                look_at_schedules(e, end, dp, pp);
                if (tp > 1) look_at_schedules(e, add(e, end, ",sp"), dp, pp);
            }
}

static void look_at_all(const world *w, exhaustive *e) {
    int n = (int)wf_cluster_n_devices(w->cluster);
    wf_prediction_request q = w->q;
    e->recipe = w->recipe;
    q.recipe = &e->recipe;
    for (int64_t micro = 1; micro <= w->recipe.batch; micro++) {
        if (w->recipe.batch % micro) continue; /* equal ones */
        e->recipe.n_micro = micro;
        TEST_OK(w->ctx, wfi_predictor_begin(w->ctx, &q, &e->p));
        look_at_meshes(e, n);
        wfi_predictor_end(&e->p);
    }
}

/* Models of this machine, or a GPT of random size, on devices of random memory. */
static void begin_random(world *w, int k) {
    static const char *const names[] = {"mlp", "gpt2-tiny", "resnet18", "lstm"};
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    bool is_gpt = (size_t)k >= WFI_COUNT(names);
    if (k == 2) config.height = config.width = 32;
    if (k == 1 || k == 3 || is_gpt) config.n_tokens = 32;
    if (is_gpt) {
        config.n_layers = 1 + rand() % 4, config.hidden = 64 * (1 + rand() % 4);
        config.n_heads = 1 << rand() % 3, config.n_classes = 64 + rand() % 1000;
    }
    *w = (world){.ctx = test_context(), .recipe = WF_RECIPE_INIT, .q = WF_PREDICTION_REQUEST_INIT};
    TEST_OK(w->ctx, wf_cluster_load(w->ctx, "ethernet", &w->cluster));
    TEST_OK(w->ctx, wf_cluster_set_nodes(w->cluster, 1 + k % 2));
    w->cluster->levels[0].count = k == 5 ? 4 : 1 + rand() % 2;
    if (k % 3) w->cluster->disk_bytes = 0;
    w->cluster->library_bytes = 0, w->cluster->memory_bytes = 0.2e6 * (double)(1 << rand() % 10);
    w->cluster->host_bytes = 1e6 * (double)(1 << rand() % 7);
    TEST_OK(w->ctx, wf_model_find(w->ctx, is_gpt ? "gpt" : names[k], &config, &w->model));
    w->recipe.batch = 2 + 2 * (rand() % 4), w->recipe.dtype = rand() % 2 ? WF_BF16 : WF_F32;
    w->recipe.optimizer = WF_ADAMW;
    w->q.cluster = w->cluster, w->q.model = w->model, w->q.recipe = &w->recipe;
}

TEST_CASE(equals_exhaustive) {
    int n = 0, n_fits = 0, n_best = 0;
    srand(7);
    for (int k = 0; k < 24; k++) {
        world w;
        exhaustive e = {.tries_buckets = k % 16 == 2}; /* five times the plans */
        begin_random(&w, k);
        look_at_all(&w, &e);
        wf_choice found = search(&w);
        bool is_best = e.best.fits ? found.prediction.fits &&
                                         found.prediction.step_ms <= e.best.step_ms * 1.0011
                                   : found.prediction.short_by_bytes <= e.best.short_by_bytes;
        if (!is_best)
            fail_msg(
                "case %d: %s in %lld microbatches: %g ms, short by %g; but %s in %lld: %g ms, %g",
                k, found.plan, (long long)found.n_micro, found.prediction.step_ms,
                found.prediction.short_by_bytes, e.best_text, (long long)e.best_micro,
                e.best.step_ms, e.best.short_by_bytes);
        n += e.n, n_fits += e.n_fits, n_best += e.best.fits;
        end(&w);
    }
    assert_true(n > 100000 && n_fits > n / 20 && n_fits < n - n / 20 && n_best > 8);
}

/* ---- against all cases of the search, each predicted without limits ---- */

static wf_status look(void *self, const wfi_case *c, wfi_use *use_out) {
    exhaustive *e = self;
    wf_prediction x;
    wfi_verdict verdict;
    assert_false(c->zero == 2 && c->pp > 1); /* the same as zero=1 */
    if (wfi_predict_case(&e->p, c, NULL, &x, &verdict) != WF_OK) return WF_OK;
    assert_int_equal(verdict, WFI_PREDICTED);
    /* Limits that a case just meets do not exclude it; one that lacks as many bytes as the best is
     * no better. */
    const wfi_limits own = {x.step_ms * (1 + 1e-9), x.short_by_bytes + 1};
    wf_prediction again;
    if (e->n % 8 == 0) TEST_OK(e->p.ctx, wfi_predict_case(&e->p, c, &own, &again, &verdict));
    assert_int_equal(verdict, WFI_PREDICTED);
    bool is_less = x.fits ? x.step_ms < e->best.step_ms : x.short_by_bytes < e->best.short_by_bytes;
    if (!e->n++ || x.fits > e->best.fits || (x.fits == e->best.fits && is_less)) e->best = x;
    e->n_fits += x.fits;
    return WF_OK;
}

TEST_CASE(finds_best) {
    static const struct {
        const char *cluster;
        int nodes;
        int64_t layers, hidden, batch;
    } cases[] = {{"ethernet", 4, 4, 1024, 16},
                 {"ethernet", 1, 12, 4096, 8},
                 {"laptop", 1, 48, 4096, 8},
                 {"dgx-a100", 2, 8, 2048, 32},
                 {"ethernet", 3, 96, 12288, 8}};
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

/* ---- work ---- */

static wf_status need_work(void *self, const wfi_case *c, wfi_use *use_out) {
    const wfi_limits none = {0, 0};
    wf_prediction x;
    wfi_verdict verdict;
    (void)use_out;
    assert_false(c->divides_rows); /* an MLP has no rows to divide */
    wf_status status = wfi_predict_case(self, c, &none, &x, &verdict);
    return wfi_is_refused(status) ? WF_OK : status;
}

/* The work of a microbatch is computed once, however many there are; sp is not tried in vain. */
TEST_CASE(computes_work_once) {
    (void)state;
    const wfi_bounds any = {"any", WFI_ANY_SIZE, WFI_ANY_SIZE, WFI_ANY_SIZE, WFI_UNUSED, 1, false};
    wf_model_config config = TEST_MODEL(.height = 4, .width = 4);
    world w;
    wfi_predictor p;
    begin(&w, "dgx-a100", 1, 1, 64, 720);
    wf_model_destroy(w.model);
    TEST_OK(w.ctx, wf_model_find(w.ctx, "mlp", &config, &w.model));
    w.q.model = w.model;
    TEST_OK(w.ctx, wfi_predictor_begin(w.ctx, &w.q, &p));
    TEST_OK(w.ctx, wfi_each_case(&p, &any, need_work, &p));
    size_t n = p.n_known;
    assert_true(n > 400);
    TEST_OK(w.ctx, wfi_each_case(&p, &any, need_work, &p));
    assert_int_equal(p.n_known, n);
    wfi_predictor_end(&p);
    end(&w);
}

/* ---- plans as text ---- */

static void is_a_plan(const world *w, const wf_choice *choice) {
    wf_prediction x = WF_PREDICTION_INIT;
    scoped_plan plan = NULL;
    world given = *w;
    if (!*choice->plan) return;
    plan = test_plan(w->ctx, choice->plan);
    given.recipe.n_micro = choice->n_micro;
    given.q.recipe = &given.recipe, given.q.plan = plan;
    TEST_OK(w->ctx, wf_predict(w->ctx, &given.q, &x));
    if (x.step_ms != choice->prediction.step_ms || x.peak_bytes != choice->prediction.peak_bytes)
        fail_msg("%s: %.17g ms, found as %.17g", choice->plan, x.step_ms,
                 choice->prediction.step_ms);
}

/* A program of the plan can be made, with the lanes and slices that the choice names, and needs
 * about as much memory. */
static void can_be_lowered(const world *w, const wf_choice *choice) {
    wf_recipe recipe = w->recipe;
    scoped_program program = NULL;
    scoped_plan plan = NULL;
    if (!*choice->plan || choice->n_micro > 16) return;
    recipe.n_micro = choice->n_micro;
    recipe.n_lanes = choice->n_lanes, recipe.n_slices = choice->n_slices;
    plan = test_plan(w->ctx, choice->plan);
    wf_status status =
        wf_program_create(w->ctx, w->model, &recipe, plan, WF_PROGRAM_TRAIN, &program);
    if (status != WF_OK) fail_msg("%s: %s", choice->plan, wf_context_error(w->ctx));
    double peak = 0, predicted = choice->prediction.peak_bytes - choice->prediction.library_bytes;
    for (int r = 0; r < wf_program_n_ranks(program); r++)
        peak = fmax(peak, (double)wf_program_rank(program, r).peak_bytes);
    if (fabs(predicted / peak - 1) > 0.12)
        fail_msg("%s: %.0f bytes predicted, %.0f planned", choice->plan, predicted, peak);
}

TEST_CASE(strategies) {
    static const char *const names[] = {
        "one device", "DataParallel", "DDP",   "ZeRO-1",   "ZeRO-2",          "ZeRO-3", "pipeline",
        "tensor",     "PP+DP",        "TP+DP", "PP+TP+DP", "DP+PP+TP+ZeRO-1", "offload"};
    world w;
    wf_choice rows[WF_N_STRATEGIES] = {WF_CHOICE_INIT};
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
TEST_CASE(keeps_recipe) {
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

static void find_least(void *self, const wf_choice *choice) {
    double *least = self;
    assert_true(choice->prediction.fits);
    *least = fmin(*least, choice->prediction.step_ms);
}

/* With half of a device's memory, the plan needs the host; with less of that, it is slower. */
TEST_CASE(keeps_limits) {
    world w;
    begin(&w, "laptop", 1, 8, 512, 4);
    wf_prediction x[3] = {search(&w).prediction};
    w.q.device_bytes = (x[0].peak_bytes - x[0].library_bytes) / 2;
    x[1] = search(&w).prediction;
    w.q.host_bytes = x[1].host_bytes - 1;
    x[2] = search(&w).prediction;
    for (int k = 1; k < 3; k++) {
        assert_true(x[k].fits && x[k].step_ms > x[k - 1].step_ms);
        assert_true(x[k].peak_bytes - x[k].library_bytes <= w.q.device_bytes);
    }
    assert_true(x[1].host_bytes > 0 && x[2].host_bytes <= w.q.host_bytes);
    double least = INFINITY;
    TEST_OK(w.ctx, wf_cluster_each(w.ctx, &w.q, 1.01 * x[2].step_ms, 1, find_least, &least));
    assert_true(least <= x[2].step_ms && least > 0.998 * x[2].step_ms);
    end(&w);
}

/* More devices than a plan may have replicas, or more samples than a recipe microbatches; and
 * 62,500 replicas, which cannot be summed in groups of a node. */
TEST_CASE(fills_large_clusters) {
    static const int64_t batches[] = {1000000, 1 << 22};
    for (size_t k = 0; k < WFI_COUNT(batches); k++) {
        world w;
        begin(&w, "dgx-a100", 1000000, 2, 64, batches[k]);
        wf_choice found = search(&w), rows[WF_N_STRATEGIES] = {WF_CHOICE_INIT};
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
TEST_CASE(counts_nodes) {
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
