/* Every schedule over stages x microbatches: legal, free of deadlock, gradients in ascending
 * order, and no more held than it says. And lists that were broken by hand are refused.
 *
 * label: once serial
 */
#include "schedule_case.h"

#define MAX_STAGES 64

static int least(int a, int b) {
    return a < b ? a : b;
}

static void check_order(const schedule_case *c, const char *name) {
    int next[CASE_STAGES][3];
    memset(next, 0, sizeof next);
    for (int d = 0; d < c->request.n_devices; d++)
        for (int i = 0; i < c->lists[d].n; i++) {
            const wfi_action *a = &c->lists[d].actions[i];
            wfi_action_kind kind = a->kind == WFI_ACTION_BW ? WFI_ACTION_B : a->kind;
            if (a->micro != next[a->stage][kind]++)
                fail_msg("%s, %d stages, %d microbatches: stage %d does microbatch %d too early",
                         name, c->request.n_stages, c->request.n_micro, a->stage, a->micro);
        }
}

/* So many chunk microbatches, of V; 1F1B would hold p. The papers say what is asymptotically true:
 * (V-1)p + 2p - 1 of V (Megatron's warm-up and one), p, p/2, p/3. */
static double most_held(const schedule_case *c, const char *name) {
    int p = c->request.n_devices, m = c->request.n_micro, v = wfi_request_n_chunks(&c->request);
    if (!strcmp(name, "naive")) return 1;
    if (!strcmp(name, "1f1b") || !strcmp(name, "zb1") || !strcmp(name, "zbv")) return least(p, m);
    if (!strcmp(name, "zb2")) return least(2 * p - 1, m);
    if (!strcmp(name, "interleaved") && m % p == 0) return (double)(v * p + p - 1) / v;
    if (!strcmp(name, "vhalf")) return p / 2 + 1 + (p % 2 ? 0 : 1) * 0.5;
    if (!strcmp(name, "vmin")) return (p + 2) / 3 + 1;
    if (!strcmp(name, "auto")) return c->request.hold;
    return m;
}

static void check_held(const schedule_case *c, const char *name) {
    double peak = schedule_case_peak(c), most = most_held(c, name);
    if (peak > most + 1e-9 || peak > c->request.n_micro)
        fail_msg("%s, %d devices, %d stages, %d microbatches: holds %g, more than %g", name,
                 c->request.n_devices, c->request.n_stages, c->request.n_micro, peak, most);
}

static void check_size(wf_context *ctx, int n_stages, int n_micro) {
    wfi_stage_times times[MAX_STAGES];
    for (int s = 0; s < n_stages; s++)
        times[s] = (wfi_stage_times){2 + s % 3, 3 - s % 2, 1 + 0.25 * (s % 5)};
    for (int i = 0; wfi_schedules[i]; i++)
        for (int chunks = 0; chunks <= 4; chunks++) {
            schedule_case c;
            const char *name = wfi_schedules[i]->name;
            wfi_schedule_request request = {n_stages, n_micro, times, 0.1, 1 + n_stages / 2,
                                            i % 2,    0,       NULL,  NULL};
            if (chunks && wfi_schedule_refuses_chunks(wfi_schedules[i], chunks)) continue;
            if (wfi_schedules[i]->search && (n_stages * n_micro > 300 || chunks > 2)) continue;
            schedule_case_cut(ctx, name, chunks, 1, &request, &c);
            check_order(&c, name);
            check_held(&c, name);
            schedule_case_end(&c);
        }
}

TEST(all_are_legal) {
    static const int stages[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 63, 64};
    static const int micro[] = {1, 2, 3, 4, 5, 8, 9, 16, 31, 64, 127, 256};
    for (size_t s = 0; s < WFI_COUNT(stages); s++)
        for (size_t m = 0; m < WFI_COUNT(micro); m++) check_size(ctx, stages[s], micro[m]);
}

/* ---- what the papers say, where F, B and W take equally long and transfers nothing ---- */

static double bubble_of(wf_context *ctx, const char *name, int chunks, int p, int m,
                        double *held_out) {
    wfi_stage_times times[MAX_STAGES];
    schedule_case c;
    for (int s = 0; s < p; s++) times[s] = (wfi_stage_times){10, 10, 10};
    wfi_schedule_request request = {p, m, times, 0, 2 * p - 1, 1, 0, NULL, NULL};
    schedule_case_cut(ctx, name, chunks, 1, &request, &c);
    double bubble = schedule_case_bubble(&c);
    *held_out = schedule_case_peak(&c);
    schedule_case_end(&c);
    return bubble;
}

/* Of the ideal time: (p-1)/(V m) where p divides m, and memory (1 + (p-1)/(pV)) times 1F1B's. */
TEST(interleaved_as_its_formula) {
    for (int p = 2; p <= 8; p++)
        for (int v = 1; v <= 4; v++)
            for (int rounds = 2; rounds <= 5; rounds++) {
                double held, bubble = bubble_of(ctx, "interleaved", v, p, p * rounds, &held);
                assert_float_equal(bubble / (1 - bubble), (p - 1.0) / (v * p * rounds), 1e-9);
                if (rounds > 2) assert_float_equal(held, p * (1 + (p - 1.0) / (p * v)), 1e-6);
            }
}

/* ZB-V: none, in 1F1B's memory. V-Half and V-Min: at most three quarters of 1F1B's, and more where
 * they hold less. */
TEST(v_schedules) {
    for (int p = 2; p <= 16; p++) {
        double held, m = 4 * p, one = (p - 1) / (m + p - 1);
        assert_true(bubble_of(ctx, "zbv", 0, p, 4 * p, &held) < 1e-9);
        assert_float_equal(held, p, 1e-6);
        assert_true(bubble_of(ctx, "vhalf", 0, p, 4 * p, &held) < (p > 2 ? 0.75 : 0.9) * one);
        assert_true(bubble_of(ctx, "vmin", 0, p, 4 * p, &held) < 0.8 * one);
        assert_true(p < 4 || bubble_of(ctx, "vmin", 0, p, 4 * p, &held) > 0.5 * one);
    }
}

/* 1F1B on stage s holds what the later stages need, and one. */
TEST(one_f_one_b_holds) {
    wfi_stage_times times[4] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    wfi_schedule_request request = {4, 8, times, 0, 4, 0, 0, NULL, NULL};
    schedule_case c;
    schedule_case_begin(ctx, "1f1b", &request, &c);
    for (int s = 0; s < 4; s++) assert_true(c.timing.peak[s] == 4 - s);
    assert_true(c.timing.makespan == 3 * (8 + 3));
    assert_true(c.timing.span[3] == 3 * 8);
    schedule_case_end(&c);
}

/* ---- broken by hand: two stages, two microbatches ---- */

typedef struct broken {
    const char *lists[2]; /* one letter an action, b for BW; its microbatch follows */
    const char *says;
} broken;

static const broken broken_lists[] = {
    {{"F0F1B0W0B1", "F0B0W0F1B1W1"}, "stage 0 never does W of microbatch 1"},
    {{"F0F1B0W0B1W1", "F0B0W0"}, "stage 0 waits with B of microbatch 1 for stage 1, which ends"},
    {{"F0F1b0b1", "F0b0"}, "waits with BW of microbatch 1"},
    {{"F0F1B0W0W0B1", "F0B0W0F1B1W1"}, "stage 0 does W of microbatch 0 twice"},
    {{"F0F0", "F0B0W0F1B1W1"}, "stage 0 does F of microbatch 0 twice"},
    {{"F0F1B0B0", "F0B0W0F1B1W1"}, "stage 0 does B of microbatch 0 twice"},
    {{"F0F1b0W0", "F0B0W0F1B1W1"}, "stage 0 does W of microbatch 0 twice"},
    {{"F0F1W0B0B1W1", "F0B0W0F1B1W1"}, "W of microbatch 0 before its B"},
    {{"F0F1B0W0B1W1", "B0F0W0F1B1W1"}, "stage 1 does B of microbatch 0 before its F"},
    {{"F0B0F1W0B1W1", "F0F1B0W0B1W1"}, "deadlock: stage"},
    {{"F0F1B0W0B1W1", "F1B1W1F0B0W0"}, NULL},
    {{"F0F2", "F0"}, "microbatches 0 to 1"},
    {{"", ""}, "stage 0 never does F of microbatch 0"},
};

static void read_list(const char *text, int stage, wfi_action_list *list) {
    list->n = 0;
    for (; *text; text += 2) {
        wfi_action_kind kind = *text == 'F'   ? WFI_ACTION_F
                               : *text == 'B' ? WFI_ACTION_B
                               : *text == 'W' ? WFI_ACTION_W
                                              : WFI_ACTION_BW;
        wfi_action_push(list, kind, stage, text[1] - '0');
    }
}

TEST(broken_are_refused) {
    wfi_stage_times times[2] = {{1, 1, 1}, {1, 1, 1}};
    wfi_schedule_request request = {2, 2, times, 0, 2, 0, 0, NULL, NULL};
    wfi_action actions[2][8];
    wfi_action_list lists[2] = {{actions[0], 0}, {actions[1], 0}};
    wfi_timing timing;
    TEST_OK(ctx, wfi_timing_init(ctx, &request, &timing));
    for (size_t i = 0; i < WFI_COUNT(broken_lists); i++) {
        for (int s = 0; s < 2; s++) read_list(broken_lists[i].lists[s], s, &lists[s]);
        if (broken_lists[i].says)
            TEST_REFUSED(ctx, wfi_timing_run(&request, lists, &timing), WF_INVALID_ARG,
                         broken_lists[i].says);
        else
            TEST_OK(ctx, wfi_timing_run(&request, lists, &timing));
    }
    read_list("F0B0W0F1B1W1", 0, &lists[1]); /* stage 1 has those of stage 0 */
    TEST_REFUSED(ctx, wfi_timing_run(&request, lists, &timing), WF_INVALID_ARG,
                 "the list of stage 1 has an action of stage 0");
    wfi_timing_release(&timing);
}
