/* The plans that --plan auto lowers on a cluster, with made-up needs of their programs.
 *
 * label: serial
 */
#include "base/hash.h"
#include "cluster/search.h"
#include "job/fitting.h"
#include "test.h"

enum { MOST_TRIED = 1026, MOST_PLANS = 1 << 17 };

typedef struct game {
    cli c;
    job j;
    wf_choice *all;                     /* [n] plans of the search */
    const wf_choice *tried[MOST_TRIED]; /* [n_tried] */
    int n, n_tried;
    double least, most; /* times that programs need what is predicted */
    double small_bytes; /* a plan that needs more does not fit; 0: no limit */
    uint64_t seed;
    int64_t work; /* of plans that were lowered before */
} game;

static double bytes_of(const wf_choice *x) {
    return x->prediction.peak_bytes - x->prediction.library_bytes;
}

static void add(void *self, const wf_choice *choice) {
    game *a = self;
    assert_in_range(a->n, 0, MOST_PLANS - 1);
    a->all[a->n++] = *choice;
}

static void begin(game *a) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    *a = (game){.j.c = &a->c};
    config.n_tokens = 32;
    a->c.ctx = test_context();
    a->c.o.recipe = (wf_recipe)WF_RECIPE_INIT;
    a->c.o.recipe.batch = 4;
    a->c.o.recipe.optimizer = WF_ADAMW;
    TEST_OK(a->c.ctx, wf_model_find(a->c.ctx, "gpt2-tiny", &config, &a->j.model));
    TEST_OK(a->c.ctx, wf_cluster_load(a->c.ctx, "ethernet", &a->j.cluster));
    TEST_OK(a->c.ctx, wf_cluster_set_nodes(a->j.cluster, 1));
    a->j.cluster->levels[0].count = 2;
    a->j.cluster->library_bytes = 2e5;
    a->all = test_malloc(MOST_PLANS * sizeof *a->all);
    wf_prediction_request q = job_request(&a->j);
    TEST_OK(a->c.ctx, wf_cluster_each(a->c.ctx, &q, INFINITY, 0, add, a));
}

static int compare_doubles(const void *x, const void *y) {
    return (*(const double *)x > *(const double *)y) - (*(const double *)x < *(const double *)y);
}

static double quantile(const game *a, bool of_host, double share) {
    double *bytes = test_malloc((size_t)a->n * sizeof *bytes);
    for (int k = 0; k < a->n; k++) {
        const wf_prediction *x = &a->all[k].prediction;
        bytes[k] = of_host ? x->host_bytes : bytes_of(&a->all[k]);
    }
    qsort(bytes, (size_t)a->n, sizeof *bytes, compare_doubles);
    double found = bytes[(int)(share * (a->n - 1))];
    test_free(bytes);
    return found;
}

/* Limits memory to what a share of all plans is predicted to need. */
static void restart(game *a, double device_share, double host_share) {
    wf_recipe recipe = a->c.o.recipe;
    recipe.n_micro = recipe.n_lanes = recipe.n_slices = 0;
    job_end_list(&a->j);
    wf_plan_destroy(a->j.plan);
    a->j = (job){.c = &a->c, .model = a->j.model, .cluster = a->j.cluster};
    a->c.o = (options){.recipe = recipe};
    if (device_share >= 0) a->c.o.device_memory = (int64_t)(1 + quantile(a, false, device_share));
    if (host_share > 0) a->c.o.host_memory = (int64_t)(1 + quantile(a, true, host_share));
    a->n_tried = 0;
}

static void end(game *a) {
    job_end_list(&a->j);
    wf_plan_destroy(a->j.plan);
    wf_model_destroy(a->j.model);
    wf_cluster_destroy(a->j.cluster);
    test_free(a->all);
    test_context_end(a->c.ctx);
}

/* The plan without keys that may change nothing, and its buckets in MiB. */
static long read_bucket(const wf_choice *x, char text[200]) {
    static const char *const keys[] = {",bucket=", ",recompute="};
    const char *bucket = strstr(x->plan, keys[0]);
    strcpy(text, x->plan);
    for (size_t k = 0; k < WFI_COUNT(keys); k++) {
        char *at = strstr(text, keys[k]);
        if (at)
            memmove(at, at + 1 + strcspn(at + 1, ","), strlen(at + 1 + strcspn(at + 1, ",")) + 1);
    }
    return bucket ? atol(bucket + 8) : 4;
}

static double share_of(const game *a, const wf_choice *x) {
    const options *o = &a->c.o;
    double device = o->device_memory ? bytes_of(x) / (double)o->device_memory : 0;
    double host = o->host_memory ? x->prediction.host_bytes / (double)o->host_memory : 0;
    return fmax(device, host);
}

/* The prediction is wrong, but alike for plans that differ by keys that change nothing. */
static double needs_of(const game *a, const wf_choice *x) {
    char text[200];
    long mib = read_bucket(x, text);
    uint64_t hash =
        wfi_hash_add(WFI_HASH_INIT + a->seed, text, strlen(text)) + (uint64_t)x->n_micro;
    double times = a->least + (a->most - a->least) * (double)(hash % 16) / 15;
    for (; mib < 256; mib *= 4) times *= 0.97;
    if (a->small_bytes > 0 && bytes_of(x) > a->small_bytes) return fmax(1.5, share_of(a, x));
    return times * share_of(a, x);
}

static bool is_alike(const wf_choice *a, const wf_choice *b) {
    char x[200], y[200];
    (void)read_bucket(a, x);
    (void)read_bucket(b, y);
    return !strcmp(x, y) && a->n_micro == b->n_micro &&
           a->prediction.step_ms == b->prediction.step_ms &&
           a->prediction.peak_bytes == b->prediction.peak_bytes;
}

/* A plan is not tried again, nor if one that differs only by its buckets needs far too much, unless
 * the order is that of bytes. */
static void check_new(const game *a, const wf_choice *x) {
    char text[200];
    for (int k = 0; k < a->n_tried; k++) {
        const wf_choice *y = a->tried[k];
        assert_false(!strcmp(x->plan, y->plan) && x->n_micro == y->n_micro);
        if (a->j.list->is_by_bytes || !is_alike(x, y)) continue;
        assert_true(needs_of(a, y) <= 1.2);
        assert_true(needs_of(a, y) <= 1 || read_bucket(x, text) < read_bucket(y, text));
    }
}

static const wf_choice *find(const game *a, const wf_choice *x) {
    for (int k = 0; k < a->n; k++)
        if (!strcmp(a->all[k].plan, x->plan) && a->all[k].n_micro == x->n_micro) return &a->all[k];
    fail_msg("%s is not in the search space", x->plan);
    return NULL;
}

/* As weft plan does, without programs. Returns the plan that is taken. */
static const wf_choice *play(game *a) {
    const wf_choice *next;
    TEST_OK(a->c.ctx, job_choose_on_cluster(&a->j));
    a->j.list->work = a->work;
    for (;;) {
        const wf_choice *now = find(a, &a->j.choices[0]);
        struct job_list *l = a->j.list;
        if (l->has_ended) return now;
        double needs = needs_of(a, now);
        fitting_remember(&a->j, needs);
        check_new(a, now);
        assert_in_range(a->n_tried, 0, MOST_TRIED - 1);
        a->tried[a->n_tried++] = now;
        if (needs <= 1 && fitting_is_fastest(l)) return now;
        assert_true(l->items || fitting_list(&a->j, needs));
        next = fitting_next(&a->j);
        if (!next) return now;
        assert_false(l->has_ended && !strcmp(next->plan, a->j.choices[0].plan));
        /* Plans that are likely to fit come first. */
        if (!l->has_ended && !l->is_by_bytes)
            assert_int_equal(share_of(a, next) > 1.25, l->takes_all);
        assert_true(l->has_ended || !a->c.o.layers || share_of(a, next) <= 1);
        a->j.choices[0] = *next;
    }
}

static const wf_choice *find_best(const game *a) {
    const wf_choice *best = NULL;
    for (int k = 0; k < a->n; k++)
        if (needs_of(a, &a->all[k]) <= 1 && (!a->c.o.layers || share_of(a, &a->all[k]) <= 1) &&
            (!best || a->all[k].prediction.step_ms < best->prediction.step_ms))
            best = &a->all[k];
    return best;
}

static void check_taken(const game *a, const wf_choice *taken) {
    const wf_choice *best = find_best(a);
    if (best)
        assert_true(needs_of(a, taken) <= 1 &&
                    0.999 * taken->prediction.step_ms <= best->prediction.step_ms);
    for (int k = 0; k < a->n_tried && !best; k++)
        assert_true(needs_of(a, taken) <= needs_of(a, a->tried[k]));
}

TEST_CASE(takes_the_fastest_that_fits) {
    static const struct {
        double device, host, least, most;
    } cases[] = {
        {0.01, 0, 0.4, 1.6},   {0.01, 0.8, 0.4, 1.6}, {0.05, 0, 0.4, 2.6}, {0.1, 0, 1, 2},
        {0.001, 0.9, 0.34, 1}, {0, 0, 2, 3},          {0, 0, 0.4, 3},      {0.3, 0, 1.1, 2.6},
        {0.5, 0.5, 1.3, 1.4},  {0.1, 0, 1.95, 2.7},   {-1, 0.3, 0.4, 1.6}, {0.05, 0.3, 0.34, 1},
        {0.05, 0.6, 0.34, 1},  {0.02, 0, 0.4, 2.6},   {0.02, 0, 0.4, 2.6}, {0.02, 0, 0.4, 2.6}};
    game a;
    begin(&a);
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        restart(&a, cases[k].device, cases[k].host);
        a.least = cases[k].least, a.most = cases[k].most, a.seed = k;
        check_taken(&a, play(&a));
    }
    end(&a);
}

/* After too much work, the plans with the fewest bytes are left if none has fitted. */
TEST_CASE(ends_with_small_plans) {
    game a;
    begin(&a);
    restart(&a, 0.5, 0);
    a.least = a.most = 1;
    a.small_bytes = 1 + quantile(&a, false, 0.0005);
    a.work = 1 << 16;
    assert_true(needs_of(&a, play(&a)) <= 1);
    assert_in_range(a.n_tried, 2, 50);
    a.small_bytes = 0;
    restart(&a, 0.02, 0);
    a.least = 0.4, a.most = 2.6;
    a.work = 1 << 17;
    assert_true(needs_of(&a, play(&a)) <= 1);
    assert_int_equal(a.n_tried, 1);
    end(&a);
}

/* Large plans are tried if they are predicted to fit. */
TEST_CASE(large_plans_are_trusted) {
    game a;
    begin(&a);
    restart(&a, 0.05, 0);
    a.c.o.layers = 1 << 20;
    a.least = 0.4, a.most = 2.6;
    check_taken(&a, play(&a));
    assert_true(a.n_tried > 0);
    end(&a);
}

TEST_CASE(large_plans) {
    game a;
    begin(&a);
    assert_false(job_is_large(&a.j, 64, 2048));
    assert_true(job_is_large(&a.j, 65, 1) && job_is_large(&a.j, 1, 2049));
    a.c.o.layers = 2;
    assert_false(job_is_large(&a.j, 64, 1024));
    assert_true(job_is_large(&a.j, 1, 1025));
    end(&a);
}
