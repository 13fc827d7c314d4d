/* The fastest plan that fits, against every plan of the search space, each compiled and simulated.
 *
 * label: once
 */
#include "compile/compile.h"
#include "sim/step.h"
#include "test_program.h"

#include <math.h>

#define MOST_PLANS 2000
#define N_LIMITS   8

typedef struct answer {
    char plan[160];
    double us;
    size_t peak_bytes;
    int n_keys;
} answer;

typedef struct space {
    wf_context *ctx;
    wf_program *first;
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
static void check_draft(const space *s, const wf_plan *plan, const answer *a) {
    scoped_program draft;
    double us;
    TEST_OK(s->ctx, wfi_program_draft(s->first, plan, NULL, &draft));
    TEST_OK(s->ctx, wfi_simulate_step(draft, &us));
    if (us != a->us) fail_msg("%s: %g us, drafted as %g us", a->plan, a->us, us);
    assert_true(highest_peak(draft) <= a->peak_bytes);
}

static void look_at(space *s, const char *text) {
    wf_timeline *timeline;
    wf_program *p;
    scoped_plan plan = NULL;
    if (wf_plan_parse(s->ctx, text, &plan) != WF_OK) return;
    bool is_new = true;
    for (int k = 0; k < s->n; k++) is_new &= strcmp(s->all[k].plan, wf_plan_text(plan)) != 0;
    if (is_new && wf_program_create(s->ctx, s->first->model, &s->first->recipe, plan,
                                    WF_PROGRAM_TRAIN, &p) == WF_OK) {
        assert_true(s->n < MOST_PLANS);
        answer *a = &s->all[s->n++];
        TEST_OK(s->ctx, wf_program_simulate(p, NULL, &timeline));
        snprintf(a->plan, sizeof a->plan, "%s", wf_program_plan(p));
        a->us = wf_timeline_step_us(timeline);
        a->peak_bytes = highest_peak(p);
        a->n_keys = count_keys(a->plan);
        if (s->n % 5 == 0) check_draft(s, plan, a);
        wf_timeline_destroy(timeline);
        wf_program_destroy(p);
    }
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
                                           ",offload=state+params+activations",
                                           ",offload=state+params,prefetch=0"};
    char text[240];
    for (size_t r = 0; r < WFI_COUNT(recomputes); r++)
        for (size_t k = 0; k < WFI_COUNT(offloads); k++) {
            snprintf(text, sizeof text, "%s%s%s", plan, recomputes[r], offloads[k]);
            look_at(s, text);
        }
}

static void look_at_all(space *s, int n) {
    char mesh[80], plan[120];
    const char *name;
    for (int dp = 1; dp <= n; dp++)
        for (int tp = 1; tp <= n / dp; tp++)
            for (int k = 0; n % (dp * tp) == 0 && (name = wf_schedule_name(k)); k++) {
                bool is_of_one = !strcmp(name, "1f1b") || !strcmp(name, "breadth");
                if (!strcmp(name, "auto") || (dp * tp == n && !is_of_one)) continue;
                for (int sp = 0; sp <= (tp > 1); sp++) {
                    snprintf(mesh, sizeof mesh, "dp=%d,tp=%d,pp=%d,schedule=%s%s", dp, tp,
                             n / dp / tp, name, sp ? ",sp" : "");
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
    size_t x = ((const answer *)a)->peak_bytes, y = ((const answer *)b)->peak_bytes;
    return (x > y) - (x < y);
}

/* No plan that fits is faster, and none that is as fast has fewer keys. */
static void check_limit(const space *s, size_t bytes) {
    wf_proposal *found;
    int n;
    TEST_OK(s->ctx, wf_program_propose(s->first, bytes, 0, 1, &found, &n));
    assert_true(n > 0 && found[0].peak_bytes <= bytes);
    assert_int_equal(found[0].n_micro, s->first->recipe.n_micro);
    for (int k = 0; k < s->n && s->all[k].peak_bytes <= bytes; k++) {
        const answer *a = &s->all[k];
        bool is_simpler = a->us == found[0].step_us && a->n_keys < count_keys(found[0].plan);
        if (a->us < found[0].step_us || is_simpler)
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
    snprintf(text, sizeof text, "dp=%d", n_ranks);
    s.first = test_program(ctx, model, &recipe, text);
    look_at_all(&s, n_ranks);
    assert_true(s.n > 100);
    qsort(s.all, (size_t)s.n, sizeof *s.all, compare);
    for (int k = 0; k < N_LIMITS; k++)
        check_limit(&s, s.all[(s.n - 1) * k / (N_LIMITS - 1)].peak_bytes);
    wf_program_destroy(s.first);
    wf_model_destroy(model);
}

TEST(of_an_mlp) {
    wf_model_config config = TEST_MODEL(.height = 8, .width = 8);
    wf_recipe recipe = TEST_RECIPE(.batch = 32);
    check_model(ctx, "mlp", &config, recipe, 4);
}

TEST(of_a_gpt) {
    wf_model_config config =
        TEST_MODEL(.n_layers = 1, .hidden = 32, .n_heads = 2, .n_tokens = 16, .n_classes = 100);
    wf_recipe recipe = TEST_RECIPE(.batch = 4, .optimizer = WF_ADAMW);
    check_model(ctx, "gpt", &config, recipe, 2);
}
