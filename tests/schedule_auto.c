/* The schedule auto against all schedules there are, for few stages and microbatches; and
 * against the fixed ones for more.
 *
 * label: serial
 */
#include "schedule_case.h"

#include <math.h>

#define MAX_STAGES 8
#define MAX_MICRO  4

/* ---- is there a better one? ---- */

/* Tries every order of begins: whatever schedule there is, its actions can be listed by begin
 * and stage. It shares nothing with auto, and cuts only what is already too late. */
typedef struct search_state {
    const wfi_schedule_request *request;
    double weight_held;        /* the part of a microbatch that W keeps, after B */
    double target;             /* look for one that costs less */
    double offset[3], free[3]; /* by stage */
    double forward[3][MAX_MICRO], backward[3][MAX_MICRO];
    int n[3][3]; /* F, B, W done */
} search_state;

static double duration(const search_state *at, int s, int kind) {
    const wfi_stage_times *times = &at->request->times[s];
    return kind == 0 ? times->forward : kind == 1 ? times->backward : times->weight;
}

/* When stage s could begin; negative: it cannot yet. */
static double begin_of(const search_state *at, int s, int kind) {
    const wfi_schedule_request *r = at->request;
    const int *n = at->n[s];
    double there = 0;
    if (n[kind] == r->n_micro || (kind && n[kind] == n[kind - 1])) return -1;
    if (kind == 0 && 1 + n[0] - n[1] + at->weight_held * (n[1] - n[2]) > r->hold + 1e-9) return -1;
    if (kind == 0 && s > 0) {
        if (at->n[s - 1][0] == n[0]) return -1;
        there = at->forward[s - 1][n[0]] + r->transfer;
    }
    if (kind == 1 && s < r->n_stages - 1) {
        if (at->n[s + 1][1] == n[1]) return -1;
        there = at->backward[s + 1][n[1]] + r->transfer;
    }
    return fmax(there, at->free[s]);
}

/* No stage can end before it has done what is left, beginning now. */
static bool is_too_late(const search_state *at, double now) {
    for (int s = 0; s < at->request->n_stages; s++) {
        double end = fmax(at->free[s], 0);
        bool has_work = at->n[s][2] < at->request->n_micro;
        if (has_work) end = fmax(end, now);
        for (int k = 0; k < 3; k++)
            end += (at->request->n_micro - at->n[s][k]) * duration(at, s, k);
        if (end - at->offset[s] >= at->target) return true;
    }
    return false;
}

static bool is_better_from(search_state *at, double last, int last_stage) {
    const wfi_schedule_request *r = at->request;
    bool is_done = true;
    if (is_too_late(at, last)) return false;
    for (int s = 0; s < r->n_stages; s++) {
        is_done = is_done && at->n[s][2] == r->n_micro;
        for (int kind = 0; kind < 3; kind++) {
            double begin = begin_of(at, s, kind), free = at->free[s];
            if (begin < last || (begin <= last && s < last_stage)) continue;
            int m = at->n[s][kind]++;
            at->free[s] = begin + duration(at, s, kind);
            if (kind == 0) at->forward[s][m] = at->free[s];
            if (kind == 1) at->backward[s][m] = at->free[s];
            bool found = is_better_from(at, begin, s);
            at->n[s][kind]--;
            at->free[s] = free;
            if (found) return true;
        }
    }
    return is_done;
}

static bool is_there_a_better(const wfi_schedule_request *request, double weight_held,
                              double cost) {
    search_state at = {.request = request, .weight_held = weight_held, .target = cost * (1 - 1e-9)};
    for (int s = 1; s < request->n_stages && request->by_stage_span; s++)
        at.offset[s] = at.offset[s - 1] + request->times[s - 1].forward + request->transfer;
    return is_better_from(&at, 0, 0);
}

static const wfi_stage_times small_times[][3] = {
    {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, {{2, 2, 1}, {2, 2, 1}, {2, 2, 1}},
    {{3, 4, 2}, {5, 4, 3}, {2, 3, 2}}, {{5, 1, 4}, {2, 6, 1}, {3, 3, 3}},
    {{1, 2, 7}, {1, 5, 2}, {4, 1, 6}}, {{1.25, 1.5, 0.75}, {1, 2.125, 1}, {1.75, 1, 0.5}},
};

TEST(small_are_optimal) {
    int n_cases = 0;
    for (size_t t = 0; t < WFI_COUNT(small_times); t++)
        for (int i = 0; i < 3 * MAX_MICRO * MAX_MICRO * 2 * 2; i++) {
            schedule_case c;
            wfi_schedule_request r = {1 + i % 3,
                                      1 + i / 3 % 4,
                                      small_times[t],
                                      i / 48 % 2 ? 0.5 : 0,
                                      1 + i / 12 % 4,
                                      i / 96,
                                      0,
                                      NULL,
                                      NULL};
            if (r.hold > r.n_micro) continue;
            double weight_held = t % 2 ? 0.4 : 1;
            schedule_case_cut(ctx, "auto", 1, weight_held, &r, &c);
            assert_true(schedule_case_peak(&c) <= r.hold);
            double cost = schedule_case_cost(&c);
            if (is_there_a_better(&r, weight_held, cost))
                fail_msg("times %d, %d stages, %d microbatches, hold %d, transfer %g, goal %d: "
                         "there is a better one than %g",
                         (int)t, r.n_stages, r.n_micro, r.hold, r.transfer, r.by_stage_span, cost);
            /* and the search does find what is there */
            assert_true(is_there_a_better(&r, weight_held, cost * (1 + 1e-6)));
            schedule_case_end(&c);
            n_cases++;
        }
    assert_int_equal(n_cases, 6 * 120);
}

/* ---- never worse than a fixed one ---- */

/* With one stage a device, and with two on the legs of a V. */
static void check_fixed(wf_context *ctx, const wfi_schedule_request *request, double weight_held) {
    for (int chunks = 1; chunks <= 2; chunks++) {
        schedule_case best, fixed;
        schedule_case_cut(ctx, "auto", chunks, weight_held, request, &best);
        assert_true(schedule_case_peak(&best) <= request->hold);
        for (int i = 0; wfi_schedules[i]; i++) {
            const wfi_schedule *other = wfi_schedules[i];
            if (other->search || wfi_schedule_n_chunks(other, 0) != chunks ||
                (chunks == 2 && !other->is_v))
                continue;
            schedule_case_cut(ctx, other->name, chunks, weight_held, request, &fixed);
            if (schedule_case_peak(&fixed) <= request->hold &&
                schedule_case_cost(&best) > schedule_case_cost(&fixed) * (1 + 1e-12))
                fail_msg("%d stages, %d microbatches, hold %d, weight held %g: %g, but %s %g",
                         request->n_stages, request->n_micro, request->hold, weight_held,
                         schedule_case_cost(&best), other->name, schedule_case_cost(&fixed));
            schedule_case_end(&fixed);
        }
        schedule_case_end(&best);
    }
}

TEST(never_worse) {
    wfi_stage_times times[MAX_STAGES];
    for (int n_stages = 1; n_stages <= MAX_STAGES; n_stages++)
        for (int i = 0; i < 8; i++) {
            for (int s = 0; s < n_stages; s++)
                times[s] = (wfi_stage_times){2 + (s * i) % 5, 3 + (s + i) % 3, 1 + (s + 2 * i) % 4};
            wfi_schedule_request r = {n_stages, 1 + 3 * i, times, 0.3 * (i % 3), 0,
                                      i & 1,    0,         NULL,  NULL};
            const int holds[] = {1, n_stages, 2 * n_stages - 1, 100};
            r.hold = holds[(i + n_stages) % 4];
            check_fixed(ctx, &r, i % 2 ? 1 : 0.4);
        }
}

/* Stages that need more or less, before B or after it: nothing holds more than it may, and lists
 * are legal. */
TEST(memory_by_stage) {
    wfi_stage_times times[2 * MAX_STAGES];
    wfi_stage_memory memory[2 * MAX_STAGES];
    int device_of[2 * MAX_STAGES];
    for (int i = 0; i < 300; i++) {
        int n = 1 + i % MAX_STAGES, chunks = 1 + i / 8 % 2, n_stages = n * chunks;
        for (int s = 0; s < n_stages; s++) {
            double until_weight = 0.1 + 0.1 * ((i + 3 * s) % 10);
            times[s] = (wfi_stage_times){2 + (s * i) % 5, 3 + (s + i) % 3, 1 + (s + 2 * i) % 4};
            memory[s] = (wfi_stage_memory){1.0 / chunks, until_weight / chunks};
            if ((i + s) % 3 == 0)
                memory[s] = (wfi_stage_memory){until_weight / chunks, 1.0 / chunks};
            device_of[s] = wfi_schedule_device_of(&wfi_schedule_auto, n, s);
        }
        wfi_schedule_request r = {.n_stages = n_stages,
                                  .n_micro = 1 + i % 13,
                                  .times = times,
                                  .transfer = 0.3 * (i % 3),
                                  .hold = 1 + i % 5,
                                  .n_devices = n,
                                  .device_of = device_of,
                                  .memory = memory};
        wfi_action_list *lists;
        wfi_timing timing;
        TEST_OK(ctx, wfi_schedule_make(ctx, &wfi_schedule_auto, &r, &lists));
        TEST_OK(ctx, wfi_timing_init(ctx, &r, &timing));
        TEST_OK(ctx, wfi_timing_run(&r, lists, &timing));
        for (int d = 0; d < n; d++) assert_true(timing.peak[d] <= r.hold);
        wfi_timing_release(&timing);
        wfi_schedule_free(ctx, lists, n);
    }
}

/* The same request gives the same lists, and one large search ends. */
TEST(is_repeatable) {
    wfi_stage_times times[MAX_STAGES];
    for (int s = 0; s < MAX_STAGES; s++)
        times[s] = (wfi_stage_times){7 + s % 3, 8 - s % 2, 5 + s % 4};
    wfi_schedule_request r = {MAX_STAGES, 32, times, 0.5, MAX_STAGES, 0, 0, NULL, NULL};
    schedule_case first, again;
    schedule_case_begin(ctx, "auto", &r, &first);
    schedule_case_begin(ctx, "auto", &r, &again);
    for (int s = 0; s < MAX_STAGES; s++)
        assert_memory_equal(first.lists[s].actions, again.lists[s].actions,
                            (size_t)first.lists[s].n * sizeof(wfi_action));
    schedule_case_end(&first);
    schedule_case_end(&again);
}

/* Times of zero make stages wait for each other in other orders; none may be chosen. */
TEST(zero_times) {
    wfi_stage_times times[MAX_STAGES] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 1}, {0, 0, 1}, {1, 1, 0}};
    for (int n_stages = 1; n_stages <= MAX_STAGES; n_stages++)
        for (int hold = 1; hold < 6; hold += 2) {
            wfi_schedule_request r = {n_stages, 5, times, 0, hold, hold == 3, 0, NULL, NULL};
            check_fixed(ctx, &r, 1);
        }
}
