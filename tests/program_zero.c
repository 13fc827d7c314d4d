/* What dividing state saves and moves: GPT-2's 124 million parameters over four ranks, as the
 * formulas of ZeRO's paper say. Nothing runs.
 *
 * label: serial
 */
#include "test_program.h"

#define N_RANKS 4
static const double n_parameters = 124439808;
/* The head's use of the embedding has a gradient of its own, which is summed, too. */
static const double n_tied = 50257 * 768;

typedef struct figures {
    double state, peak; /* bytes a rank; the most */
    double sent;        /* elements a rank, on average */
} figures;

static figures figures_of(wf_context *ctx, const char *plan_text, int64_t n_micro) {
    wf_recipe recipe = WF_RECIPE_INIT;
    figures f = {0, 0, 0};
    recipe.batch = recipe.n_micro = n_micro;
    recipe.n_lanes = N_RANKS;
    recipe.n_slices = 1;
    recipe.n_threads = 1;
    recipe.optimizer = WF_ADAMW;
    scoped_model model =
        test_find_model(ctx, "gpt2", &TEST_MODEL(.n_tokens = 256, .n_classes = 50257));
    scoped_program p = test_program(ctx, model, &recipe, plan_text);
    assert_int_equal(wf_program_n_ranks(p), N_RANKS);
    for (int r = 0; r < N_RANKS; r++) {
        wf_rank_summary s = wf_program_rank(p, r);
        if ((double)s.state_bytes > f.state) f.state = (double)s.state_bytes;
        if ((double)s.peak_bytes > f.peak) f.peak = (double)s.peak_bytes;
        f.sent += (double)s.sent_bytes / 4 / N_RANKS;
    }
    return f;
}

static void expect_near(const char *what, double got, double want) {
    if (got < 0.995 * want || got > 1.005 * want)
        fail_msg("%s: %.4g, expected %.4g", what, got, want);
}

TEST(as_the_paper_says) {
    static const struct {
        const char *plan;
        double state; /* bytes a parameter */
        double sent;  /* times (n - 1) / n */
    } rows[] = {{"dp=4", 12, 2},
                {"dp=4,zero=1", 4 + 8. / N_RANKS, 2},
                {"dp=4,zero=2", 4 + 8. / N_RANKS, 2},
                {"dp=4,zero=3", 12. / N_RANKS, 3}};
    double peak = 1e18;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        figures f = figures_of(ctx, rows[k].plan, N_RANKS);
        double part = (N_RANKS - 1.) / N_RANKS;
        expect_near("state", f.state, rows[k].state * n_parameters);
        expect_near("sent", f.sent, rows[k].sent * n_parameters * part);
        assert_true(f.peak < peak);
        peak = f.peak;
    }
}

/* Two replicas of two slices each: parameters are gathered within a replica; slices of gradients
 * are summed there, then between replicas. */
TEST(shards_of_some) {
    figures f = figures_of(ctx, "dp=4,zero=3,shard=2", N_RANKS);
    expect_near("state", f.state, 12. / 2 * n_parameters);
    expect_near("sent", f.sent, (2. / 2 + 1. / 2 + 2. / 2 / 2) * n_parameters);
    f = figures_of(ctx, "dp=4,zero=3,shard=1", N_RANKS);
    expect_near("sent", f.sent, figures_of(ctx, "dp=4", N_RANKS).sent);
}

/* With four microbatches a rank: a gather for forward and one for backward of each, or of all. The
 * embedding's backward reads no parameters, and that of the last unit follows its forward. */
TEST(breadth_gathers_twice) {
    double part = (N_RANKS - 1.) / N_RANKS;
    figures once = figures_of(ctx, "dp=4,zero=3", N_RANKS);
    figures each = figures_of(ctx, "dp=4,zero=3", 4 * N_RANKS);
    figures breadth = figures_of(ctx, "dp=4,zero=3,schedule=breadth", 4 * N_RANKS);
    assert_true(breadth.sent == once.sent);
    expect_near("sent", each.sent - once.sent, 3 * 2 * n_parameters * part);
}

/* Gathering further ahead takes memory, and not at all saves some. */
TEST(prefetch_takes_memory) {
    figures none = figures_of(ctx, "dp=4,zero=3,prefetch=0", N_RANKS);
    figures one = figures_of(ctx, "dp=4,zero=3", N_RANKS);
    figures many = figures_of(ctx, "dp=4,zero=3,prefetch=6", N_RANKS);
    assert_true(none.peak < one.peak && one.peak < many.peak);
    assert_true(none.sent == one.sent && one.sent == many.sent);
    assert_true(figures_of(ctx, "dp=4,zero=3,overlap=off", N_RANKS).peak == none.peak);
    /* Beside what zero=2 needs there is, at the peak in the head, the embedding alone. */
    double embedding = 4 * (n_tied + 1024 * 768);
    double zero2 = figures_of(ctx, "dp=4,zero=2", N_RANKS).peak;
    double kept = 4 * n_parameters * (1 - 1. / N_RANKS);
    assert_true(none.peak < zero2 - kept + embedding + (1 << 20));
    assert_true(one.peak < none.peak + 30e6); /* a block of 7 million parameters */
}

/* What kernels want packed is packed again of what is gathered again: the proof would refuse it. */
TEST(packed_again) {
    static const char *const plans[] = {"dp=2,zero=3", "dp=2,zero=3,schedule=breadth",
                                        "dp=2,pp=2,zero=3,schedule=zb1"};
    scoped_model model = test_find_model(ctx, "resnet18", &TEST_MODEL(.height = 32, .width = 32));
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        wf_recipe recipe = TEST_RECIPE(.batch = 8, .n_micro = 4, .n_threads = 1);
        scoped_program p = test_program(ctx, model, &recipe, plans[k]);
    }
}
