/* The simulation of updates against closed formulas, and rules that hold for all times.
 *
 * label: serial
 */
#include "base/random.h"
#include "sim/updates.h"
#include "test.h"
#include "workers/bound.h"

#include <math.h>

/* In double, unlike assert_float_equal. */
static void expect_near(double value, double want, double relative) {
    if (!(fabs(value - want) <= relative * fabs(want) + 1e-12))
        fail_msg("%.17g, expected %.17g", value, want);
}
#define NEAR(value, want) expect_near(value, want, 1e-9)

static wf_simulation_config config_of(wf_simulation_update update, int64_t n_workers,
                                      double compute_ms) {
    wf_simulation_config c = WF_SIMULATION_CONFIG_INIT;
    c.update = update;
    c.n_workers = n_workers;
    c.forward_ms = compute_ms / 4;
    c.backward_ms = compute_ms / 2;
    c.weight_ms = compute_ms / 4;
    return c;
}

static wf_simulation *run(wf_context *ctx, const wf_simulation_config *c) {
    wf_simulation *s;
    TEST_OK(ctx, wf_simulation_run(ctx, c, &s));
    return s;
}

static wf_simulation_summary summary_of(const wf_simulation_config *c) {
    scoped_context ctx = test_context();
    scoped_simulation s = run(ctx, c);
    wf_simulation_summary sum = wf_simulation_summarize(s);
    return sum;
}

static void expect_step(wf_simulation_config c, double step_ms) {
    wf_simulation_summary sum = summary_of(&c);
    NEAR(sum.step_ms, step_ms);
    NEAR(sum.steps_per_second, 1e3 / step_ms);
}

/* ---- throughput ---- */

/* Without transfers each kind of update takes the time of a share a step. */
TEST_CASE(equal_workers) {
    for (int64_t m = 1; m <= 5; m++) {
        wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, m, 12);
        expect_step(c, 12);
        NEAR(summary_of(&c).worker_busy, 1);
        c.staleness = 0;
        expect_step(c, 12);
        c.staleness = 1;
        expect_step(c, 12);
        c.update = WF_SIMULATION_SYNC;
        expect_step(c, 12);
        c.update = WF_SIMULATION_LOCAL;
        c.local_steps = 7; /* does not divide 100: the last round is shorter */
        expect_step(c, 12);
    }
}

/* Three workers at full speed and one at a third; all wait for it if they must. */
TEST_CASE(slow_worker) {
    wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 4, 12);
    c.slow = 3;
    expect_step(c, 12 * 4 / (3 + 1.0 / 3));
    c.staleness = 0;
    expect_step(c, 36);
    c.update = WF_SIMULATION_SYNC;
    expect_step(c, 36);
    NEAR(summary_of(&c).worker_busy, (1 + 3 / 3.0) / 4);
    c.update = WF_SIMULATION_LOCAL;
    c.local_steps = 10;
    expect_step(c, 36);
}

/* While the slow worker computes once, the other one may add as many updates as the bound has. */
TEST_CASE(bound_limits_throughput) {
    for (int64_t bound = 1; bound <= 4; bound++) {
        wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 2, 1);
        c.slow = 16;
        c.staleness = bound;
        c.n_steps = 100000;
        double want = 16.0 * 2 / (double)(2 * bound + 1);
        expect_near(summary_of(&c).step_ms, want, 1e-3);
    }
}

TEST_CASE(one_worker) {
    wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 1, 12);
    c.transfer_ms = 5;
    c.update_ms = 3;
    expect_step(c, 5 + 12 + 5 + 3);
    c.staleness = 0;
    expect_step(c, 5 + 12 + 5 + 3);
    c.n_servers = 2;
    expect_step(c, 2.5 + 12 + 2.5 + 1.5);
    c.update = WF_SIMULATION_SYNC; /* has nothing to exchange */
    expect_step(c, 12 + 3);
    c.slow = 2;
    expect_step(c, 24 + 6);
}

TEST_CASE(all_reduce) {
    wf_simulation_config c = config_of(WF_SIMULATION_SYNC, 3, 12);
    c.transfer_ms = 5;
    c.update_ms = 3;
    expect_step(c, 12 + 2 * 5 + 3);
    c.update = WF_SIMULATION_LOCAL;
    c.local_steps = 4;
    expect_step(c, (4 * (12 + 3) + 2 * 5 + 3) / 4.0);
    c.local_steps = 1;
    expect_step(c, 12 + 3 + 2 * 5 + 3);
    c.slow = 2;
    expect_step(c, 2 * (12 + 3) + 2 * 5 + 2 * 3);
}

/* Pulls follow each other on the link, then pushes do; the last worker's are the longest way. */
TEST_CASE(waiting_servers) {
    for (int64_t m = 1; m <= 4; m++) {
        wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, m, 100);
        c.transfer_ms = 5;
        c.update_ms = 3;
        c.staleness = 0;
        expect_step(c, (double)(m + 1) * 5 + 100 + 3);
    }
}

/* ---- servers ---- */

TEST_CASE(link_is_bottleneck) {
    for (int64_t k = 1; k <= 4; k *= 2) {
        wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 8, 1);
        c.n_servers = k;
        c.transfer_ms = 10;
        expect_step(c, 8 * 2 * 10.0 / (double)k);
        NEAR(summary_of(&c).server_busy, 1);
        NEAR(summary_of(&c).update_busy, 0);
    }
}

TEST_CASE(update_is_bottleneck) {
    for (int64_t k = 1; k <= 4; k *= 2) {
        wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 8, 1);
        c.n_servers = k;
        c.update_ms = 10;
        c.n_steps = 1000;
        expect_step(c, 8 * 10.0 / (double)k + 1e-3); /* the first share comes before */
        expect_near(summary_of(&c).server_busy, 1, 1e-3);
        NEAR(summary_of(&c).link_busy, 0);
    }
}

/* Twice the servers have half the work each. */
TEST_CASE(servers_divide_work) {
    wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 4, 200);
    c.transfer_ms = 4;
    c.update_ms = 6;
    for (c.n_servers = 1; c.n_servers <= 4; c.n_servers *= 2) {
        wf_simulation_summary sum = summary_of(&c);
        NEAR(sum.link_busy * sum.step_ms, 4 * 2 * 4.0 / (double)c.n_servers);
        NEAR(sum.update_busy * sum.step_ms, 4 * 6.0 / (double)c.n_servers);
        NEAR(sum.server_busy, fmax(sum.link_busy, sum.update_busy));
    }
}

/* ---- staleness ---- */

/* Each of M equal workers reads after its own update, then the others' M - 1 follow. */
TEST(staleness_of_equal_workers) {
    for (int64_t m = 2; m <= 4; m++) {
        wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, m, 12);
        wf_simulation *s = run(ctx, &c);
        assert_int_equal(wf_simulation_summarize(s).n_staleness, 2);
        assert_int_equal(wf_simulation_staleness(s, 0), 1);
        assert_int_equal(wf_simulation_staleness(s, 1), 100 * m - 1);
        assert_int_equal(wf_simulation_staleness(s, 2), 0);
        assert_int_equal(wf_simulation_staleness(s, -1), 0);
        assert_int_equal(wf_simulation_staleness(s, 1 << 20), 0);
        wf_simulation_destroy(s);
        c.update = WF_SIMULATION_SYNC;
        s = run(ctx, &c);
        assert_int_equal(wf_simulation_summarize(s).n_staleness, 1);
        assert_int_equal(wf_simulation_staleness(s, 0), 100 * m);
        wf_simulation_destroy(s);
        c.update = WF_SIMULATION_LOCAL;
        assert_int_equal(summary_of(&c).n_staleness, 0);
    }
}

/* A slow worker's gradient is 3 X updates old: those of the other three. */
TEST(staleness_of_slow_worker) {
    wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 4, 12);
    c.slow = 10;
    scoped_simulation s = run(ctx, &c);
    assert_int_equal(wf_simulation_summarize(s).n_staleness, 9); /* ceil(30 / 4) = 8 */
    assert_true(wf_simulation_staleness(s, 8) > 0);
    for (c.staleness = 0; c.staleness < 8; c.staleness++)
        assert_int_equal(summary_of(&c).n_staleness, c.staleness + 1);
    c.staleness = INT64_MAX;
    assert_int_equal(summary_of(&c).n_staleness, 9);
}

/* Whether all gradients keep the bound if they are applied in the order of their versions. */
static bool is_possible(const int64_t *versions, int32_t n, int64_t version, int64_t bound) {
    for (int32_t k = 0; k < n; k++)
        if (version + k - versions[k] > bound) return false;
    return true;
}

/* A gradient may be applied first exactly if the others can keep the bound afterwards. */
TEST_CASE(rule_of_bound) {
    static const int32_t readers[] = {0, 1, 2, 3};
    int n_allowed = 0, n_held = 0;
    for (int i = 0; i < 6 * 6 * 6 * 6; i++) {
        int64_t versions[] = {i % 6, i / 6 % 6, i / 36 % 6, i / 216}, version = 6, bound = 7;
        bool is_sorted =
            versions[0] <= versions[1] && versions[1] <= versions[2] && versions[2] <= versions[3];
        if (!is_sorted || !is_possible(versions, 4, version, bound)) continue;
        int32_t last = wfi_bound_last(readers, 4, versions, version, bound);
        for (int32_t k = 0; k < 4; k++) {
            int64_t others[3];
            for (int32_t m = 0; m < 3; m++) others[m] = versions[m + (m >= k)];
            assert_int_equal(k <= last, is_possible(others, 3, version + 1, bound));
            k <= last ? n_allowed++ : n_held++;
        }
        assert_int_equal(wfi_bound_last(readers, 4, versions, version, -1), 3);
    }
    assert_true(n_allowed > 0 && n_held > 0);
}

/* ---- any times ---- */

static double random_ms(wfi_random_key key, uint64_t i, double most) {
    uint32_t words[4];
    wfi_random_words(key, 0, i, words);
    return words[1] % 4 ? most * (words[0] / 4294967296.0) : 0;
}

static wf_simulation_config random_config(uint64_t i) {
    wfi_random_key key = {i, 7};
    wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 1 + (int64_t)(i % 7), 0);
    c.n_steps = 12;
    c.timeline_steps = 1 + (int64_t)(i % 12);
    c.n_servers = 1 + (int64_t)(i / 7 % 3);
    c.staleness = (int64_t)(i % 5) - 1;
    c.forward_ms = 1 + random_ms(key, 0, 10);
    c.backward_ms = random_ms(key, 1, 10);
    c.transfer_ms = random_ms(key, 2, 10);
    c.update_ms = random_ms(key, 3, 5);
    c.slow = 1 + random_ms(key, 4, 8);
    return c;
}

/* Every gradient is applied once, within the bound. */
static void expect_histogram(const wf_simulation_config *c, const wf_simulation *s) {
    int64_t n = 0, n_staleness = wf_simulation_summarize(s).n_staleness;
    for (int64_t k = 0; k < n_staleness; k++) n += wf_simulation_staleness(s, k);
    assert_int_equal(n, c->n_steps * c->n_workers);
    if (c->staleness >= 0) assert_true(n_staleness <= c->staleness + 1);
}

static const wf_span *next_span(const wf_timeline *t, int *at, int rank, const char *stream,
                                wf_span *out) {
    for (; *at < wf_timeline_n_spans(t); ++*at) {
        *out = wf_timeline_span(t, *at);
        if (out->rank == rank && !strcmp(out->stream, stream)) return ++*at, out;
    }
    return NULL;
}

/* The end of the update that made a version; 0: it was there from the begin. */
static double update_end(const wf_timeline *t, int server, int64_t version) {
    wf_span span;
    for (int at = 0; version > 0 && next_span(t, &at, server, "compute", &span);)
        if (span.micro == version) return span.end_us;
    return version > 0 ? NAN : 0;
}

/* A pull reads the newest version: its update has ended, and the next one has not. */
static void expect_versions(const wf_simulation_config *c, const wf_timeline *t) {
    for (int w = 0; w < c->n_workers && c->update_ms > 0; w++) {
        wf_span span;
        for (int at = 0; next_span(t, &at, w, "compute", &span);) {
            if (span.kind != WF_SPAN_FORWARD) continue;
            double read_us = span.begin_us - 1e3 * c->transfer_ms / (double)c->n_servers;
            double next_us = update_end(t, (int)c->n_workers, span.micro + 1);
            assert_true(update_end(t, (int)c->n_workers, span.micro) <= read_us + 1e-6);
            assert_true(isnan(next_us) || next_us >= read_us - 1e-6);
        }
    }
}

/* Spans of a stream follow each other within the timeline, and all servers have the same. */
static void expect_spans(const wf_simulation_config *c, const wf_timeline *t) {
    int n_ranks = wf_timeline_n_ranks(t), n_workers = (int)c->n_workers;
    assert_int_equal(n_ranks, c->n_workers + c->n_servers);
    for (int i = 0; i < wf_timeline_n_spans(t); i++) {
        wf_span now = wf_timeline_span(t, i), last = wf_timeline_span(t, i ? i - 1 : 0);
        bool follows = i && now.rank == last.rank && !strcmp(now.stream, last.stream);
        assert_true(now.begin_us >= (follows ? last.end_us : 0) - 1e-6);
        assert_true(now.end_us > now.begin_us);
        assert_true(now.end_us <= wf_timeline_step_us(t) + 1e-6);
    }
    for (int r = 0; r < n_ranks; r++) {
        wf_rank_time time = wf_timeline_rank(t, r), like = wf_timeline_rank(t, n_workers);
        double all_us = time.compute_us + time.transfer_us + time.bubble_us + time.wait_us;
        NEAR(all_us, wf_timeline_step_us(t));
        if (r >= n_workers) assert_true(time.compute_us == like.compute_us);
    }
}

TEST_CASE(any_times) {
    for (uint64_t i = 0; i < 200; i += TEST_SAMPLE) {
        scoped_context ctx = test_context();
        wf_simulation_config c = random_config(i);
        scoped_simulation s = run(ctx, &c);
        scoped_simulation again = run(ctx, &c);
        wf_simulation_summary one = wf_simulation_summarize(s),
                              two = wf_simulation_summarize(again);
        assert_memory_equal(&one, &two, sizeof one);
        assert_true(one.worker_busy <= 1 + 1e-9 && one.server_busy <= 1 + 1e-9);
        expect_histogram(&c, s);
        expect_spans(&c, wf_simulation_timeline(s));
        expect_versions(&c, wf_simulation_timeline(s));
    }
}

/* ---- timeline ---- */

/* It ends with the steps that it was asked for; spans are cut off there. */
TEST(timeline_of_first_steps) {
    wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 2, 12);
    wf_simulation *s = run(ctx, &c);
    assert_null(wf_simulation_timeline(s));
    wf_simulation_destroy(s);
    c.timeline_steps = 3;
    c.slow = 2.5;
    s = run(ctx, &c);
    /* Worker 1 pushes at 12, 24, 36, 48, 60 and worker 0 at 30 and 60: six pushes by 60. */
    const wf_timeline *t = wf_simulation_timeline(s);
    NEAR(wf_timeline_step_us(t), 60e3);
    NEAR(wf_timeline_rank(t, 0).compute_us, 60e3);
    wf_simulation_destroy(s);
    c.timeline_steps = 2; /* in worker 0's second share */
    s = run(ctx, &c);
    t = wf_simulation_timeline(s);
    NEAR(wf_timeline_step_us(t), 36e3);
    NEAR(wf_timeline_rank(t, 0).compute_us, 36e3);
    wf_simulation_destroy(s);
    c.update = WF_SIMULATION_SYNC;
    s = run(ctx, &c);
    t = wf_simulation_timeline(s);
    assert_int_equal(wf_timeline_n_ranks(t), 2);
    NEAR(wf_timeline_step_us(t), 60e3);
    NEAR(wf_timeline_rank(t, 1).bubble_us, 36e3);
    wf_simulation_destroy(s);
    c.update = WF_SIMULATION_LOCAL;
    c.local_steps = 5;
    s = run(ctx, &c);
    t = wf_simulation_timeline(s);
    NEAR(wf_timeline_step_us(t), 60e3); /* when worker 0 has taken two steps */
    NEAR(wf_timeline_rank(t, 1).compute_us, 60e3);
    wf_simulation_destroy(s);
    c.local_steps = 2;
    c.transfer_ms = 1;
    s = run(ctx, &c);
    t = wf_simulation_timeline(s);
    NEAR(wf_timeline_step_us(t), 62e3);
    NEAR(wf_timeline_rank(t, 1).compute_us, 24e3);
    NEAR(wf_timeline_rank(t, 1).transfer_us, 2e3);
    wf_simulation_destroy(s);
}

/* ---- refusals ---- */

static void *faulty_alloc(void *self, size_t bytes) {
    int *n_left = self;
    return (*n_left)-- > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
}

static void faulty_free(void *self, void *block) {
    free(block);
}

/* The n-th allocation fails, for every n. */
TEST_CASE(no_memory) {
    int n_left = 1 << 20, n = 0;
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    scoped_context ctx;
    scoped_simulation s;
    config.allocator = (wf_allocator){faulty_alloc, faulty_free, &n_left};
    assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
    wf_simulation_config c = config_of(WF_SIMULATION_ASYNC, 3, 12);
    c.timeline_steps = 20;
    wf_status status = WF_NO_MEMORY;
    for (; status != WF_OK; n++) {
        n_left = n;
        status = wf_simulation_run(ctx, &c, &s);
        if (status != WF_OK) {
            assert_int_equal(status, WF_NO_MEMORY);
            assert_int_equal(wf_context_memory(ctx).n_live, 0);
        }
    }
    assert_true(n > 10);
}

TEST(bad_configs) {
    wf_simulation *s;
    const wf_simulation_config good = config_of(WF_SIMULATION_ASYNC, 4, 12);
#define REFUSED(change, words)                                                                     \
    do {                                                                                           \
        wf_simulation_config c = good;                                                             \
        change;                                                                                    \
        TEST_REFUSED(ctx, wf_simulation_run(ctx, &c, &s), WF_INVALID_ARG, words);                  \
    } while (0)
    REFUSED(c.struct_size = 1, "wf_simulation_config");
    REFUSED(c.update = (wf_simulation_update)3, "no kind of update 3");
    REFUSED(c.n_workers = 0, "0 workers; there may be 1 to 256");
    REFUSED(c.n_workers = 257, "257 workers");
    REFUSED(c.n_servers = 0, "0 servers; there may be 1 to 256");
    REFUSED(c.n_steps = 0, "0 steps");
    REFUSED(c.n_steps = 250001, "250001 steps; there may be 1 to 250000");
    REFUSED(c.local_steps = 0, "0 local steps; there may be 1 to 100");
    REFUSED(c.staleness = -2, "-2 steps of staleness");
    REFUSED(c.timeline_steps = 101, "101 steps of the timeline; there may be 0 to 100");
    REFUSED((c.n_steps = 250000, c.timeline_steps = 125001), "there may be 0 to 125000");
    REFUSED(c.slow = 0.5, "slower by 0.5; the factor is from 1 to 1000");
    REFUSED(c.slow = NAN, "slower by nan");
    REFUSED(c.forward_ms = -1, "forward takes -1 ms");
    REFUSED(c.backward_ms = INFINITY, "backward takes inf ms");
    REFUSED(c.weight_ms = 2e9, "the weight gradient takes 2e+09 ms");
    REFUSED(c.transfer_ms = NAN, "a transfer takes nan ms");
    REFUSED(c.update_ms = -0.5, "an update takes -0.5 ms");
    REFUSED(c.forward_ms = c.backward_ms = c.weight_ms = 0, "must take some time to compute");
    wf_simulation_destroy(NULL);
}
