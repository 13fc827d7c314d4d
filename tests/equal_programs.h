/* Two programs of one plan, of which one lowers representatives of classes of ranks: what is
 * reported of them is the same.
 */
#pragma once

#include "program/program.h"
#include "test.h"

static inline void same_summaries(const wf_program *all, const wf_program *some) {
    for (int r = 0; r < wf_program_n_ranks(all); r++) {
        wf_rank_summary a = wf_program_rank(all, r), b = wf_program_rank(some, r);
        assert_string_equal(a.peak_unit, b.peak_unit);
        a.peak_unit = b.peak_unit = NULL;
        assert_memory_equal(&a, &b, sizeof a);
        for (int u = 0; u < a.n_units; u++) {
            wf_unit_summary x = wf_program_unit(all, r, u), y = wf_program_unit(some, r, u);
            assert_string_equal(x.name, y.name);
            assert_true(x.activation_bytes == y.activation_bytes);
        }
    }
}

static inline size_t most_alive(const wf_timeline *t, int rank) {
    size_t most = 0;
    for (int i = 0; i < wf_timeline_n_moments(t, rank); i++) {
        wf_memory_moment moment = wf_timeline_moment(t, rank, i);
        size_t bytes = 0;
        for (int k = 0; k < WF_N_MEMORY_KINDS; k++) bytes += moment.bytes[k];
        if (bytes > most) most = bytes;
    }
    return most;
}

static inline void same_timelines(wf_context *ctx, const wf_program *all, const wf_program *some) {
    scoped_timeline a;
    scoped_timeline b;
    TEST_OK(ctx, wf_program_simulate(all, NULL, &a));
    TEST_OK(ctx, wf_program_simulate(some, NULL, &b));
    assert_true(wf_timeline_step_us(a) == wf_timeline_step_us(b));
    assert_int_equal(wf_timeline_n_spans(a), wf_timeline_n_spans(b));
    for (int r = 0; r <= wf_timeline_n_ranks(a); r++) {
        assert_int_equal(wf_timeline_first_span(a, r), wf_timeline_first_span(b, r));
        assert_int_equal(wf_timeline_like(a, r), r);
        bool exists = r < wf_timeline_n_ranks(a);
        assert_int_equal(wf_timeline_like(b, r), exists ? some->ranks[r].like : r);
    }
    wf_span few[7];
    int64_t n = wf_timeline_n_spans(b);
    assert_int_equal(wf_timeline_n_chunks(a), wf_timeline_n_chunks(b));
    for (int64_t i = 0; i < n; i += 5) {
        assert_int_equal(wf_timeline_spans(b, i, 7, few), n - i < 7 ? n - i : 7);
        for (int k = 0; k < 7 && i + k < n; k++) {
            wf_span one = wf_timeline_span(b, i + k);
            assert_memory_equal(&few[k], &one, sizeof one);
        }
    }
    for (int64_t i = 0; i < wf_timeline_n_spans(a); i++) {
        wf_span x = wf_timeline_span(a, i), y = wf_timeline_span(b, i);
        assert_true(x.kind == y.kind && x.rank == y.rank && x.micro == y.micro);
        assert_true(x.begin_us == y.begin_us && x.end_us == y.end_us);
        assert_string_equal(x.name, y.name);
    }
    for (int r = 0; r < wf_timeline_n_ranks(a); r++) {
        wf_rank_time x = wf_timeline_rank(a, r), y = wf_timeline_rank(b, r);
        assert_memory_equal(&x, &y, sizeof x);
        assert_int_equal(most_alive(a, r), most_alive(b, r));
    }
}
