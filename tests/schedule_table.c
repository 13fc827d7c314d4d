/* The published bubbles: Qi et al., "Zero Bubble Pipeline Parallelism" (2023, arXiv
 * 2401.10241), Table 5, which its authors computed from the times in Table 9. And auto is at
 * least as good as any of them in the same memory.
 *
 * label: once serial
 */
#include "test.h"

#include <math.h>

#define MAX_STAGES 64

typedef struct row {
    int n_stages, n_micro;
    wf_stage_times times;
    double transfer;
    /* In ten-thousandths of the step. */
    int bubble[3]; /* of 1F1B, ZB-H1 and ZB-H2 */
    int solver;    /* of the paper's own solver, ZB-2p */
    int enough;    /* auto reaches that if a stage holds so many whole microbatches */
    double scores; /* 5as/h: what backward alone needs, beside 34 units of which W keeps 32 */
    int n_chunks;  /* 1F1B-I: of a stage, and its bubble */
    int interleaved;
} row;

/* The solver's memory is 2p microbatches, of which W keeps a part after B. */
static const row table[] = {
    {8, 24, {18.522, 18.086, 9.337}, 0.601, {2431, 1585, 1083}, 433, 24, 160 / 3.0, 3, 1055},
    {8, 64, {18.546, 18.097, 9.321}, 0.762, {1240, 674, 444}, 26, 29, 160 / 3.0, 3, 443},
    {8, 32, {29.802, 29.428, 19.530}, 0.577, {1898, 1045, 559}, 22, 28, 40, 4, 628},
    {8, 64, {29.935, 29.621, 19.388}, 0.535, {1091, 554, 294}, 10, 28, 40, 4, 320},
    {16, 48, {11.347, 11.248, 8.132}, 0.377, {2552, 1397, 672}, 66, 43, 40, 3, 1104},
    {32, 128, {10.408, 10.204, 7.703}, 0.408, {2168, 1106, 490}, 29, 89, 40, 2, 1164},
};

static double bubble_of(wf_context *ctx, const row *r, const char *schedule, int hold, int n_chunks,
                        double weight_held) {
    wf_stage_times times[MAX_STAGES];
    wf_schedule_request request = WF_SCHEDULE_REQUEST_INIT;
    wf_schedule_result *result;
    for (int s = 0; s < r->n_stages; s++) times[s] = r->times;
    request.schedule = schedule;
    request.n_stages = r->n_stages;
    request.n_micro = r->n_micro;
    request.times = times;
    request.transfer_ms = r->transfer;
    request.max_in_flight = hold;
    request.n_chunks = n_chunks;
    request.weight_held = weight_held;
    TEST_OK(ctx, wf_schedule_simulate(ctx, &request, &result));
    double bubble = wf_schedule_result_summary(result).bubble;
    wf_schedule_result_destroy(result);
    return bubble;
}

TEST(published) {
    static const char *const names[] = {"1f1b", "zb1", "zb2"};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int k = 0; k < 3; k++)
            assert_int_equal(lround(1e4 * bubble_of(ctx, &table[i], names[k], 0, 0, 1)),
                             table[i].bubble[k]);
}

/* What no schedule can go below that holds no more than ZB-H2: when the last stage has done
 * its last B, that has yet to travel to the first stage. See bound_at_end in auto.c. */
static double bound_of(const row *r) {
    const wf_stage_times *t = &r->times;
    double work = r->n_micro * (t->forward_ms + t->backward_ms + t->weight_ms);
    double rest =
        (r->n_stages - 1) * (t->forward_ms + t->backward_ms + 2 * r->transfer - 2 * t->weight_ms);
    return rest / (work + rest);
}

/* One stage a rank, all of a microbatch kept until W. */
TEST(auto_is_not_worse) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const row *r = &table[i];
        int n = r->n_stages;
        double small = bubble_of(ctx, r, "auto", n, 1, 1);
        double large = bubble_of(ctx, r, "auto", 2 * n - 1, 1, 1);
        assert_true(small <= bubble_of(ctx, r, "zb1", n, 0, 1));
        assert_true(small <= bubble_of(ctx, r, "1f1b", n, 0, 1));
        assert_true(large <= bubble_of(ctx, r, "zb2", 2 * n - 1, 0, 1));
        assert_true(large <= small);
        assert_true(fabs(large - bound_of(r)) < 1e-9);
        /* The first row falls short of it by 0.0003, the others reach it. */
        assert_true(bubble_of(ctx, r, "auto", r->enough, 1, 1) < r->solver / 1e4 + 0.00035);
    }
}

/* In the memory of ZB-2p, counted as the paper counts it, auto's bubble is the solver's or smaller:
 * with one stage a rank up to 0.0003 in the first row, where no list of that kind is shorter, and
 * 0.0024 in the last; with those that auto chooses in all. */
TEST(as_the_papers_solver) {
    static const double short_by[] = {0.00031, 0, 0, 0, 0, 0.0024};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const row *r = &table[i];
        double part = 32 / (34 + r->scores), solver = r->solver / 1e4;
        double one = bubble_of(ctx, r, "auto", 2 * r->n_stages, 1, part);
        double best = bubble_of(ctx, r, "auto", 2 * r->n_stages, 0, part);
        if (one > solver + short_by[i] || best > solver)
            fail_msg("row %d: %.4f with one stage a rank, %.4f, and the paper's solver %.4f",
                     (int)i, one, best, solver);
        assert_true(one < bubble_of(ctx, r, "auto", 2 * r->n_stages, 1, 1));
    }
}

/* Megatron's order of 1F1B-I. The paper's column has details that it does not tell: ours is above
 * it, by no more than 0.0035. */
TEST(interleaved_near_the_table) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const row *r = &table[i];
        double above = bubble_of(ctx, r, "interleaved", 0, r->n_chunks, 1) - r->interleaved / 1e4;
        if (above < 0 || above > 0.0035) fail_msg("row %d: off by %.4f", (int)i, above);
    }
}

TEST(bad_requests) {
    wf_stage_times times[2] = {{1, 1, 1}, {1, 1, 1}};
    wf_schedule_result *result = NULL;
    const wf_schedule_request good = {sizeof good, "1f1b",           2, 4, times, 0,
                                      0,           WF_SCHEDULE_STEP, 0, 1};
    wf_schedule_request q = good;
#define REFUSED(field, value, status, says)                                                        \
    do {                                                                                           \
        q = good;                                                                                  \
        q.field = value;                                                                           \
        TEST_REFUSED(ctx, wf_schedule_simulate(ctx, &q, &result), status, says);                   \
    } while (0)
    REFUSED(struct_size, 3, WF_INVALID_ARG, "WF_SCHEDULE_REQUEST_INIT");
    REFUSED(schedule, NULL, WF_INVALID_ARG, "WF_SCHEDULE_REQUEST_INIT");
    REFUSED(schedule, "fast", WF_INVALID_ARG,
            "there are naive, gpipe, 1f1b, interleaved, zb1, zb2, zbv, vhalf, vmin, breadth, auto");
    REFUSED(n_stages, 0, WF_INVALID_ARG, "0 stages");
    REFUSED(n_stages, 5000, WF_INVALID_ARG, "1 to 4096");
    REFUSED(n_micro, 0, WF_INVALID_ARG, "0 microbatches");
    REFUSED(n_micro, 500001, WF_INVALID_ARG, "1 to 500000");
    REFUSED(transfer_ms, -1, WF_INVALID_ARG, "a transfer takes -1 ms");
    REFUSED(max_in_flight, -1, WF_INVALID_ARG, "hold -1");
    REFUSED(n_chunks, -1, WF_INVALID_ARG, "-1 chunks");
    REFUSED(n_chunks, 125001, WF_INVALID_ARG, "1 to 125000");
    REFUSED(n_chunks, 2, WF_INVALID_ARG, "2 chunks do not go with schedule 1f1b: it has one chunk");
    REFUSED(weight_held, 1.5, WF_INVALID_ARG, "keeps 1.5 of a microbatch");
    REFUSED(weight_held, (double)NAN, WF_INVALID_ARG, "keeps nan of a microbatch");
    REFUSED(max_in_flight, 1, WF_DOES_NOT_FIT,
            "needs stage 0 to hold 2 microbatches, but it may hold 1");
    REFUSED(max_in_flight, 1, WF_DOES_NOT_FIT, "fit: naive, auto");
#undef REFUSED
    times[1].weight_ms = (double)NAN;
    TEST_REFUSED(ctx, wf_schedule_simulate(ctx, &good, &result), WF_INVALID_ARG,
                 "the weight gradient of stage 1");
    assert_null(result);
}
