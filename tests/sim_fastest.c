/* The fastest plan that fits, against every plan of the search space. Each is drafted, and those
 * that would be better are compiled.
 *
 * label: once
 */
#include "compile/compile.h"
#include "sim/step.h"
#include "test_program.h"

#include <math.h>

#define MOST_PLANS 6000
#define N_LIMITS   4

typedef struct answer {
    char plan[160];
    double us;
    size_t bound_bytes, peak_bytes; /* the latter 0: not known */
    int n_keys;
} answer;

typedef struct space {
    wf_context *ctx;
    wf_program *first;
    wf_program *parts[12]; /* which drafts borrow: by sp, recompute and separate W */
    answer all[MOST_PLANS];
    int n;
} space;

static size_t highest_peak(const wf_program *p) {
    size_t most = 0;
    for (int r = 0; r < wf_program_n_ranks(p); r++)
        most = (size_t)fmax((double)most, (double)wf_program_rank(p, r).peak_bytes);
    return most;
}

static int count_keys(const char *plan) {
    int n = 0;
    for (; *plan; plan++) n += *plan == ',' || *plan == '+';
    return n;
}

/* A draft takes the program's time, and needs no more memory. */
static size_t find_peak(const space *s, answer *a) {
    double us;
    if (a->peak_bytes) return a->peak_bytes;
    scoped_program p = test_program(s->ctx, s->first->model, &s->first->recipe, a->plan);
    TEST_OK(s->ctx, wfi_simulate_step(p, &us));
    if (us != a->us) fail_msg("%s: %g us, drafted as %g us", a->plan, us, a->us);
    a->peak_bytes = highest_peak(p);
    assert_true(a->bound_bytes <= a->peak_bytes);
    return a->peak_bytes;
}

static void look_at(space *s, const char *text, size_t recompute) {
    const wf_program *first = s->first;
    wf_program *draft;
    scoped_plan plan = NULL;
    if (wf_plan_parse(s->ctx, text, &plan) != WF_OK) return;
    size_t k = (plan->divides_rows * 3 + recompute) * 2 + plan->schedule->splits_weight;
    if (!s->parts[k] &&
        wfi_program_begin(s->ctx, first->model, &first->recipe, plan, first->backend, first->kind,
                          WFI_USE_DRAFT, NULL, &s->parts[k]) != WF_OK)
        return;
    if (wfi_program_draft(first, plan, s->parts[k], &draft) != WF_OK) return;
    assert_true(s->n < MOST_PLANS);
    answer *a = &s->all[s->n++];
    *a = (answer){.bound_bytes = highest_peak(draft)};
    TEST_OK(s->ctx, wfi_simulate_step(draft, &a->us));
    snprintf(a->plan, sizeof a->plan, "%s", wf_program_plan(draft));
    a->n_keys = count_keys(a->plan);
    if (s->n % 500 == 0) (void)find_peak(s, a);
    wf_program_destroy(draft);
}

static void look_at_savings(space *s, const char *plan) {
    static const char *const recomputes[] = {"", ",recompute=selective", ",recompute=all"};
    static const char *const offloads[] = {"",
                                           ",offload=state",
                                           ",offload=params",
                                           ",offload=activations",
                                           ",offload=state+params",
                                           ",offload=state+activations",
                                           ",offload=params+activations",
                                           ",offload=state+params+activations"};
    char text[240];
    for (size_t r = 0; r < WFI_COUNT(recomputes); r++)
        for (size_t k = 0; k < WFI_COUNT(offloads); k++)
            for (int late = 0; late <= (k > 0); late++) {
                snprintf(text, sizeof text, "%s%s%s%s", plan, recomputes[r], offloads[k],
                         late ? ",prefetch=0" : "");
                look_at(s, text, r);
            }
}

static void look_at_all(space *s, int n) {
    char mesh[80], plan[120];
    const char *name;
    for (int dp = 1; dp <= n; dp++)
        for (int tp = 1; tp <= n / dp; tp++)
            for (int k = 0; n % (dp * tp) == 0 && (name = wf_schedule_name(k)); k++) {
                bool is_auto = !strcmp(name, "auto");
                for (int sp = 0; sp <= (tp > 1) + 2 * is_auto; sp++) {
                    const char *chunks = !is_auto ? "" : sp < 2 ? ",chunks=1" : ",chunks=2";
                    snprintf(mesh, sizeof mesh, "dp=%d,tp=%d,pp=%d,schedule=%s%s%s", dp, tp,
                             n / dp / tp, name, chunks, sp % 2 && tp > 1 ? ",sp" : "");
                    look_at_savings(s, mesh);
                    for (int zero = 1; zero <= 3 && dp > 1; zero++)
                        for (int shard = 2; shard <= dp; shard++) {
                            snprintf(plan, sizeof plan, "%s,zero=%d,shard=%d", mesh, zero, shard);
                            look_at_savings(s, plan);
                        }
                }
            }
}

static int compare(const void *a, const void *b) {
    size_t x = ((const answer *)a)->bound_bytes, y = ((const answer *)b)->bound_bytes;
    return (x > y) - (x < y);
}

/* No plan that fits is faster, and none that is as fast has fewer keys. */
static void check_limit(space *s, size_t bytes) {
    wf_proposal *found;
    int n;
    TEST_OK(s->ctx, wf_program_propose(s->first, bytes, 0, 1, &found, &n));
    assert_true(n > 0 && found[0].peak_bytes <= bytes);
    assert_int_equal(found[0].n_micro, s->first->recipe.n_micro);
    for (int k = 0; k < s->n && s->all[k].bound_bytes <= bytes; k++) {
        answer *a = &s->all[k];
        bool is_simpler = a->us == found[0].step_us && a->n_keys < count_keys(found[0].plan);
        if ((a->us < found[0].step_us || is_simpler) && find_peak(s, a) <= bytes)
            fail_msg("in %zu bytes %s takes %g us, but %s %g us", bytes, found[0].plan,
                     found[0].step_us, a->plan, a->us);
    }
    wf_proposals_destroy(s->ctx, found, n);
}

/* Limits from the smallest peak to the largest one. */
static void check_model(wf_context *ctx, const char *name, const wf_model_config *config,
                        wf_recipe recipe, int n_ranks) {
    static space s;
    char text[20];
    s = (space){.ctx = ctx};
    wf_model *model = test_find_model(ctx, name, config);
    int dp = recipe.n_lanes && recipe.n_lanes < n_ranks ? (int)recipe.n_lanes : n_ranks;
    snprintf(text, sizeof text, "dp=%d,pp=%d", dp, n_ranks / dp);
    s.first = test_program(ctx, model, &recipe, text);
    look_at_all(&s, n_ranks);
    assert_true(s.n > 100);
    qsort(s.all, (size_t)s.n, sizeof *s.all, compare);
    size_t least = find_peak(&s, &s.all[0]);
    double times = (double)s.all[s.n - 1].bound_bytes / (double)least;
    for (int k = 0; k < N_LIMITS; k++)
        check_limit(&s, (size_t)((double)least * pow(times, (double)k / (N_LIMITS - 1))));
    for (size_t k = 0; k < WFI_COUNT(s.parts); k++) wf_program_destroy(s.parts[k]);
    wf_program_destroy(s.first);
    wf_model_destroy(model);
}

TEST(of_an_mlp) {
    wf_model_config config = TEST_MODEL(.height = 8, .width = 8);
    wf_recipe recipe = TEST_RECIPE(.batch = 32);
    check_model(ctx, "mlp", &config, recipe, 2);
}

TEST(of_a_gpt) {
    wf_model_config config =
        TEST_MODEL(.n_layers = 1, .hidden = 32, .n_heads = 2, .n_tokens = 16, .n_classes = 100);
    wf_recipe recipe =
        TEST_RECIPE(.batch = 4, .n_micro = 2, .n_lanes = 2, .n_slices = 1, .optimizer = WF_ADAMW);
    check_model(ctx, "gpt", &config, recipe, 2);
}

/* Here schedule=auto is the fastest. */
TEST(of_a_pipeline) {
    wf_model_config config =
        TEST_MODEL(.n_layers = 2, .hidden = 64, .n_heads = 4, .n_tokens = 32, .n_classes = 256);
    wf_recipe recipe = TEST_RECIPE(.batch = 8, .n_micro = 4, .n_lanes = 1, .n_slices = 1);
    check_model(ctx, "gpt", &config, recipe, 4);
}
