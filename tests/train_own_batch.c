/* Processes that bring their own samples: loss, weights, tests and outputs have the bits of one
 * rank that is given all of them; steps whose parts do not fit together are refused on all
 * ranks, with a sentence, and change nothing. */
#include "rank_processes.h"
#include "small_models.h"

#include <stdbool.h>

#define N_STEPS 4

static wf_recipe own_recipe(void) {
    wf_recipe recipe = small_recipe();
    recipe.n_micro = 8;
    recipe.n_lanes = 4;
    recipe.n_threads = 1;
    recipe.clip_norm = 0.5;
    return recipe;
}

/* The last step is the smaller one at the end of an epoch. */
static int64_t step_samples(int step) {
    return step == N_STEPS - 1 ? 13 : SMALL_BATCH;
}

/* Labels that do not count are not spread evenly: no replica could guess the global count. */
static void fill(small_batch *b, int step) {
    small_batch_fill(b, step);
    for (int i = 0; i < 5; i++) b->y[i] = -1;
    b->y[9] = -1;
}

/* The feeds of samples `first` to first + n, of those inputs that this rank reads. */
static int feeds_of(const small_batch *b, int64_t first, int64_t n, bool has_x, bool has_y,
                    wf_feed feeds[2]) {
    int n_feeds = 0;
    if (has_x)
        feeds[n_feeds++] =
            (wf_feed){"x", b->x + first * SMALL_IMAGE, (size_t)n * SMALL_IMAGE * sizeof *b->x};
    if (has_y) feeds[n_feeds++] = (wf_feed){"y", b->y + first, (size_t)n * sizeof *b->y};
    return n_feeds;
}

typedef struct rank_place {
    bool has_x, has_y, is_first_replica;
} rank_place;

static wf_status own_step(wf_trainer *t, const rank_place *at, int step, int64_t n_more,
                          double *loss_out) {
    static small_batch b;
    wf_feed feeds[2];
    wf_step_result result;
    int64_t first, n;
    fill(&b, step);
    wf_trainer_part(t, step_samples(step), &first, &n);
    int n_feeds = feeds_of(&b, first, n + n_more, at->has_x, at->has_y, feeds);
    wf_status status = wf_trainer_step(t, feeds, n_feeds, n + n_more, &result);
    if (status == WF_OK) *loss_out = result.loss;
    return status;
}

/* Rank 0 brings too few, then rank 1 the wrong feeds: too few bytes, and a label that there is not.
 * Each rank says what it was told. */
static void be_wrong(wf_context *ctx, wf_trainer *t, const rank_place *at, int rank) {
    static small_batch b;
    wf_feed feed = {"x", b.x, 5};
    wf_step_result result;
    double loss;
    if (own_step(t, at, 1, rank == 0 ? -1 : 0, &loss) == WF_SHAPE)
        printf("[%s] ", wf_context_error(ctx));
    wf_status status =
        rank == 1 ? wf_trainer_step(t, &feed, 1, 1, &result) : own_step(t, at, 1, 0, &loss);
    if (status == WF_SHAPE) printf("[%s] ", wf_context_error(ctx));
    b.y[0] = 10;
    feed = (wf_feed){"y", b.y, sizeof *b.y};
    status = rank == 1 ? wf_trainer_step(t, &feed, 1, 1, &result) : own_step(t, at, 1, 0, &loss);
    if (status == WF_INVALID_ARG) printf("(%s) ", wf_context_error(ctx));
}

static void say_forward(wf_context *ctx, wf_trainer *t, const rank_place *at) {
    static small_batch b;
    float logits[11 * 10];
    wf_feed feeds[2];
    wf_step_result result;
    fill(&b, 77);
    int n_feeds = feeds_of(&b, 0, 11, at->has_x && at->is_first_replica,
                           at->has_y && at->is_first_replica, feeds);
    TEST_OK(ctx, wf_trainer_forward(t, feeds, n_feeds, 11, "logits", logits, sizeof logits));
    TEST_OK(ctx, wf_trainer_eval(t, feeds, n_feeds, 11, &result));
    uint64_t hash = 7;
    for (size_t i = 0; i < 110; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        hash = hash * 0x9E3779B97F4A7C15u + bits;
    }
    printf("%016llx %.17g %lld %lld ", (unsigned long long)hash, result.loss,
           (long long)result.n_rows, (long long)result.n_hits);
}

static wf_trainer *make_trainer(wf_context *ctx, const char *plan_text, wf_job *job) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = own_recipe();
    wf_model *model;
    wf_plan *plan;
    wf_trainer *t;
    config.job = job;
    config.own_batch = 1;
    TEST_OK(ctx, wf_model_create(ctx, "small", small_net, NULL, 0, &model));
    TEST_OK(ctx, wf_plan_parse(ctx, plan_text, &plan));
    assert_int_equal(wf_plan_loads_at_root(plan), 0);
    TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &t));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return t;
}

static void say_weights(wf_context *ctx, wf_trainer *t) {
    char sha[65];
    TEST_OK(ctx, wf_trainer_weights_sha256(t, sha));
    printf("%s", sha);
}

/* Plans that pass samples on want them all on every process. */
static int be_refused(wf_context *ctx, const char *plan_text, wf_job *job) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = own_recipe();
    wf_model *model;
    wf_plan *plan;
    wf_trainer *t;
    config.job = job;
    config.own_batch = 1;
    TEST_OK(ctx, wf_model_create(ctx, "small", small_net, NULL, 0, &model));
    TEST_OK(ctx, wf_plan_parse(ctx, plan_text, &plan));
    assert_true(wf_plan_loads_at_root(plan) || !wf_plan_has_equal_parts(plan));
    TEST_REFUSED(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &t), WF_UNSUPPORTED,
                 "give each process the whole batch");
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    wf_job_leave(job);
    test_context_end(ctx);
    return 0;
}

static int be_rank(char **argv) {
    wf_context *ctx = test_context();
    wf_job *job = join_ranks(ctx, argv);
    if (!strcmp(argv[5], "refused")) return be_refused(ctx, argv[4], job);
    int rank = wf_job_rank(job), pp = atoi(argv[5]);
    wf_trainer *t = make_trainer(ctx, argv[4], job);
    rank_place at = {rank % pp == 0, rank % pp == pp - 1, rank < pp};
    double loss = 0;
    be_wrong(ctx, t, &at, rank);
    printf("= ");
    for (int s = 0; s < N_STEPS; s++) {
        TEST_OK(ctx, own_step(t, &at, s, 0, &loss));
        printf("%.17g ", loss);
    }
    say_forward(ctx, t, &at);
    say_weights(ctx, t);
    wf_trainer_destroy(t);
    wf_job_leave(job);
    test_context_end(ctx);
    return 0;
}

/* The same on one rank, as text. */
static void one_rank(char *want, size_t bytes) {
    static small_batch b;
    float logits[11 * 10];
    char sha[65];
    wf_context *ctx = test_context();
    wf_recipe recipe = own_recipe();
    wf_trainer *t = planned_trainer(ctx, small_net, &recipe, "", "cpu:1", 0);
    wf_feed feeds[2];
    wf_step_result result;
    size_t n = 0;
    for (int s = 0; s < N_STEPS; s++) {
        fill(&b, s);
        feeds_of(&b, 0, step_samples(s), true, true, feeds);
        TEST_OK(ctx, wf_trainer_step(t, feeds, 2, step_samples(s), &result));
        n += (size_t)snprintf(want + n, bytes - n, "%.17g ", result.loss);
    }
    fill(&b, 77);
    feeds_of(&b, 0, 11, true, true, feeds);
    TEST_OK(ctx, wf_trainer_forward(t, feeds, 2, 11, "logits", logits, sizeof logits));
    TEST_OK(ctx, wf_trainer_eval(t, feeds, 2, 11, &result));
    uint64_t hash = 7;
    for (size_t i = 0; i < 110; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        hash = hash * 0x9E3779B97F4A7C15u + bits;
    }
    TEST_OK(ctx, wf_trainer_weights_sha256(t, sha));
    snprintf(want + n, bytes - n, "%016llx %.17g %lld %lld %s", (unsigned long long)hash,
             result.loss, (long long)result.n_rows, (long long)result.n_hits, sha);
    wf_trainer_destroy(t);
    test_context_end(ctx);
}

TEST_CASE(bits_of_one_rank) {
    static const struct {
        const char *plan, *pp;
        int n_ranks;
        const char *too_few; /* what all ranks are told then */
    } plans[] = {
        {"dp=2", "1", 2, "rank 0 brings 7 samples to a step of 15, of which its part is 8"},
        {"dp=4", "1", 4, "rank 0 brings 3 samples to a step of 15, of which its part is 4"},
        {"pp=3", "3", 3, "rank 1 brings 16 samples to a step of 15, of which its part is 15"},
        {"dp=2,pp=2", "2", 4, "rank 0 brings 7 samples to a step of 15, of which its part is 8"},
    };
    static rank_process p[MAX_PROCESSES];
    static char want[1000];
    one_rank(want, sizeof want);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        const char *words[MAX_WORDS] = {plans[k].plan, plans[k].pp};
        run_ranks(p, plans[k].n_ranks, words);
        for (int r = 0; r < plans[k].n_ranks; r++) {
            char *same = strstr(p[r].said, "= ");
            if (p[r].status || !same || strcmp(same + 2, want))
                fail_msg("plan '%s', rank %d: '%s', one rank says '%s'", plans[k].plan, r,
                         p[r].said, want);
            const char *wrong = r == 1 ? "was given 5 bytes" : "[the feeds of rank 1 were refused";
            const char *label = r == 1 ? "(y[0] is 10; " : "(the feeds of rank 1 were refused";
            if (!strstr(p[r].said, plans[k].too_few) || !strstr(p[r].said, wrong) ||
                !strstr(p[r].said, label))
                fail_msg("plan '%s', rank %d: '%s', not '%s', '%s' and '%s'", plans[k].plan, r,
                         p[r].said, plans[k].too_few, wrong, label);
        }
    }
}

TEST_CASE(needs_a_divided_batch) {
    static const char *const plans[] = {"dataparallel=2", "block:dp=2", "dp=2,lanes=3+1"};
    static rank_process p[MAX_PROCESSES];
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        const char *words[MAX_WORDS] = {plans[k], "refused"};
        run_ranks(p, 2, words);
        for (int r = 0; r < 2; r++)
            if (p[r].status) fail_msg("%s, rank %d: '%s'", plans[k], r, p[r].said);
    }
}

int main(int argc, char **argv) {
    if (argc > 4) return be_rank(argv);
    return test_run(NULL, NULL);
}
