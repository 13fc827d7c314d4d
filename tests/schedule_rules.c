/* Every schedule over stages x microbatches: legal, free of deadlock, gradients in ascending
 * order, and no more held than it says. And lists that were broken by hand are refused.
 *
 * label: serial
 */
#include "schedule_case.h"

#define MAX_STAGES 64

static int least(int a, int b) {
    return a < b ? a : b;
}

static void check_order(const schedule_case *c, const char *name) {
    for (int s = 0; s < c->request.n_stages; s++) {
        int next[3] = {0, 0, 0};
        for (int i = 0; i < c->lists[s].n; i++) {
            const wfi_action *a = &c->lists[s].actions[i];
            wfi_action_kind kind = a->kind == WFI_ACTION_BW ? WFI_ACTION_B : a->kind;
            if (a->micro != next[kind]++)
                fail_msg("%s, %d stages, %d microbatches: stage %d does microbatch %d too early",
                         name, c->request.n_stages, c->request.n_micro, s, a->micro);
        }
    }
}

static void check_held(const schedule_case *c, const char *name) {
    int n_stages = c->request.n_stages, n_micro = c->request.n_micro;
    int peak = schedule_case_peak(c), most = n_micro;
    if (!strcmp(name, "naive")) most = 1;
    if (!strcmp(name, "1f1b") || !strcmp(name, "zb1")) most = least(n_stages, n_micro);
    if (!strcmp(name, "zb2")) most = least(2 * n_stages - 1, n_micro);
    if (!strcmp(name, "auto")) most = c->request.hold;
    if (peak > most)
        fail_msg("%s, %d stages, %d microbatches: holds %d, more than %d", name, n_stages, n_micro,
                 peak, most);
}

static void check_size(wf_context *ctx, int n_stages, int n_micro) {
    wfi_stage_times times[MAX_STAGES];
    for (int s = 0; s < n_stages; s++)
        times[s] = (wfi_stage_times){2 + s % 3, 3 - s % 2, 1 + 0.25 * (s % 5)};
    for (int i = 0; wfi_schedules[i]; i++) {
        schedule_case c;
        const char *name = wfi_schedules[i]->name;
        wfi_schedule_request request = {n_stages,         n_micro, times, 0.1,
                                        1 + n_stages / 2, i % 2,   0,     NULL};
        if (wfi_schedules[i]->search && n_stages * n_micro > 300) continue;
        schedule_case_begin(ctx, name, &request, &c);
        check_order(&c, name);
        check_held(&c, name);
        schedule_case_end(&c);
    }
}

static void all_are_legal(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    static const int stages[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 63, 64};
    static const int micro[] = {1, 2, 3, 4, 5, 8, 9, 16, 31, 64, 127, 256};
    for (size_t s = 0; s < WFI_COUNT(stages); s++)
        for (size_t m = 0; m < WFI_COUNT(micro); m++) check_size(ctx, stages[s], micro[m]);
    test_context_end(ctx);
}

/* 1F1B on stage s holds what the later stages need, and one. */
static void one_f_one_b_holds(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wfi_stage_times times[4] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    wfi_schedule_request request = {4, 8, times, 0, 4, 0, 0, NULL};
    schedule_case c;
    schedule_case_begin(ctx, "1f1b", &request, &c);
    for (int s = 0; s < 4; s++) assert_int_equal(c.timing.peak[s], 4 - s);
    assert_true(c.timing.makespan == 3 * (8 + 3));
    assert_true(c.timing.span[3] == 3 * 8);
    schedule_case_end(&c);
    test_context_end(ctx);
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

static void broken_are_refused(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wfi_stage_times times[2] = {{1, 1, 1}, {1, 1, 1}};
    wfi_schedule_request request = {2, 2, times, 0, 2, 0, 0, NULL};
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
    test_context_end(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_legal),
        cmocka_unit_test(one_f_one_b_holds),
        cmocka_unit_test(broken_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
