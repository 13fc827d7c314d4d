/* Ranks that bring their own samples: loss, weights, tests and outputs have the bits of one rank
 * that is given all of them; steps whose parts do not fit together are refused on all ranks, with a
 * sentence, and change nothing. */
#include "group_ranks.h"
#include "small_models.h"

#define N_STEPS 4

typedef struct work {
    const char *plan;
    int pp;
    const char *too_few; /* what all ranks are told of a part that is too small */
    char want[1000];     /* what one rank says */
} work;

/* A rank's trainer, and the inputs that it reads. */
typedef struct own {
    wf_context *ctx;
    wf_trainer *t;
    bool has_x, has_y, is_first_replica;
    small_batch batch;
} own;

static wf_status make_trainer(wf_context *ctx, wf_job *job, const char *plan,
                              wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .n_threads = 1, .clip_norm = 0.5);
    config.job = job;
    config.own_batch = job != NULL;
    return test_try_trainer(ctx, small_net, &recipe, plan, &config, trainer_out);
}

/* The last step is the smaller one at the end of an epoch. */
static int64_t step_samples(int step) {
    return step == N_STEPS - 1 ? 13 : SMALL_BATCH;
}

/* The feeds of samples `first` to first + n, of those inputs that this rank reads. Labels that do
 * not count are not spread evenly: no replica could guess the global count. */
static int feeds_of(own *u, int step, int64_t first, int64_t n, wf_feed feeds[2]) {
    small_batch *b = &u->batch;
    int n_feeds = 0;
    small_batch_fill(b, step);
    for (int i = 0; i < 5; i++) b->y[i] = -1;
    b->y[9] = -1;
    if (u->has_x)
        feeds[n_feeds++] =
            (wf_feed){"x", b->x + first * SMALL_IMAGE, (size_t)n * SMALL_IMAGE * sizeof *b->x};
    if (u->has_y) feeds[n_feeds++] = (wf_feed){"y", b->y + first, (size_t)n * sizeof *b->y};
    return n_feeds;
}

static wf_status own_step(own *u, int step, int64_t n_more, double *loss_out) {
    wf_feed feeds[2];
    wf_step_result result;
    int64_t first, n;
    wf_trainer_part(u->t, step_samples(step), &first, &n);
    int n_feeds = feeds_of(u, step, first, n + n_more, feeds);
    wf_status status = wf_trainer_step(u->t, feeds, n_feeds, n + n_more, &result);
    *loss_out = result.loss;
    return status;
}

/* Steps, outputs and a test of the first replica's samples, and the weights, as text. */
static wf_status train(own *u, char said[1000]) {
    float logits[11 * 10];
    wf_feed feeds[2];
    wf_step_result result;
    char sha[65];
    uint64_t hash = 7;
    int used = 0;
    for (int s = 0; s < N_STEPS; s++) {
        double loss;
        WF_TRY(own_step(u, s, 0, &loss));
        used += snprintf(said + used, 1000 - (size_t)used, "%.17g ", loss);
    }
    int n_feeds = u->is_first_replica ? feeds_of(u, 77, 0, 11, feeds) : 0;
    WF_TRY(wf_trainer_forward(u->t, feeds, n_feeds, 11, "logits", logits, sizeof logits));
    WF_TRY(wf_trainer_eval(u->t, feeds, n_feeds, 11, &result));
    for (size_t i = 0; i < 110; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        hash = hash * 0x9E3779B97F4A7C15u + bits;
    }
    WF_TRY(wf_trainer_weights_sha256(u->t, sha));
    snprintf(said + used, 1000 - (size_t)used, "%016llx %.17g %lld %lld %s",
             (unsigned long long)hash, result.loss, (long long)result.n_rows,
             (long long)result.n_hits, sha);
    return WF_OK;
}

/* A step in which rank 1 gives the feed, and the others their part. */
static const char *refuse_feed(ranks_one *one, own *u, wf_feed feed, wf_status status,
                               const char *words) {
    double loss;
    wf_step_result result;
    wf_status got =
        one->rank == 1 ? wf_trainer_step(u->t, &feed, 1, 1, &result) : own_step(u, 1, 0, &loss);
    RANKS_REFUSED(one, got, status, one->rank == 1 ? words : "the feeds of rank 1 were refused");
    return NULL;
}

/* Rank 0 brings too few, then rank 1 the wrong feeds: too few bytes, and a label that there is not.
 */
static const char *be_wrong(ranks_one *one, own *u) {
    static const float x[2];
    static const int32_t label = 10;
    double loss;
    RANKS_REFUSED(one, own_step(u, 1, one->rank ? 0 : -1, &loss), WF_SHAPE,
                  ((const work *)one->self)->too_few);
    const char *wrong = refuse_feed(one, u, (wf_feed){"x", x, 5}, WF_SHAPE, "was given 5 bytes");
    return wrong ? wrong
                 : refuse_feed(one, u, (wf_feed){"y", &label, sizeof label}, WF_INVALID_ARG,
                               "y[0] is 10; ");
}

static const char *train_ranks(ranks_one *one) {
    const work *w = one->self;
    int r = one->rank;
    own u = {one->ctx, NULL, r % w->pp == 0, r % w->pp == w->pp - 1, r < w->pp, {{0}, {0}}};
    char said[1000];
    RANKS_TRY(one, make_trainer(one->ctx, one->job, w->plan, &u.t));
    const char *wrong = be_wrong(one, &u);
    if (!wrong) RANKS_TRY(one, train(&u, said));
    wf_trainer_destroy(u.t);
    if (wrong || !strcmp(said, w->want)) return wrong;
    return ranks_text("plan '%s', rank %d: '%s', one rank says '%s'", w->plan, r, said, w->want);
}

TEST(bits_of_one_rank) {
    work all[] = {
        {"dp=2", 1, "rank 0 brings 7 samples to a step of 15, of which its part is 8", ""},
        {"dp=4", 1, "rank 0 brings 3 samples to a step of 15, of which its part is 4", ""},
        {"pp=3", 3, "rank 1 brings 16 samples to a step of 15, of which its part is 15", ""},
        {"dp=2,pp=2", 2, "rank 0 brings 7 samples to a step of 15, of which its part is 8", ""},
    };
    static const int n_ranks[] = {2, 4, 3, 4};
    own u = {ctx, NULL, true, true, true, {{0}, {0}}};
    char want[1000];
    TEST_OK(ctx, make_trainer(ctx, NULL, "", &u.t));
    TEST_OK(ctx, train(&u, want));
    wf_trainer_destroy(u.t);
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        memcpy(all[k].want, want, sizeof want);
        for (int how = MESSAGES; how <= LAST_WAY; how++)
            ranks_as((ranks_way)how, n_ranks[k], train_ranks, &all[k]);
    }
}

/* Plans that pass samples on want them all on every process. */
static const char *be_refused(ranks_one *one) {
    wf_trainer *t;
    RANKS_REFUSED(one, make_trainer(one->ctx, one->job, one->self, &t), WF_UNSUPPORTED,
                  "give each process the whole batch");
    return NULL;
}

TEST(needs_a_divided_batch) {
    static char plans[][20] = {"dataparallel=2", "block:dp=2", "dp=2,lanes=3+1"};
    for (size_t k = 0; k < 3; k++) {
        scoped_plan plan = test_plan(ctx, plans[k]);
        assert_true(wf_plan_loads_at_root(plan) || !wf_plan_has_equal_parts(plan));
        ranks_as(MESSAGES, 2, be_refused, plans[k]);
    }
}
