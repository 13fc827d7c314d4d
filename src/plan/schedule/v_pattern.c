/* V-Half and V-Min (Qi et al., 2024, arXiv 2405.15362): half of 1F1B's memory, where F goes down at
 * half the speed at which it comes up; and a third, the least with which stages can work without a
 * pause. */
#include "plan/schedule/schedule.h"

/* When a device does F on the way down, F on the way up, B down, and B up of microbatch 0, where
 * all of F, B and W take 1. */
typedef struct v_pattern {
    int begin[4];
} v_pattern;

/* The one of the four that begins an action then; -1: none. */
static int find_begin(const wfi_schedule_request *r, const v_pattern *pattern, int time) {
    for (int k = 0; k < 4; k++) {
        int since = time - pattern->begin[k];
        if (since >= 0 && since % WFI_V_PERIOD == 0 && since / WFI_V_PERIOD < r->n_micro) return k;
    }
    return -1;
}

/* Repeats it for each microbatch, WFI_V_PERIOD apart; W goes where nothing else is. No two of the
 * times may be the same but for whole periods. How long it is from F to B says how many
 * microbatches a device holds. */
static void repeat(const wfi_schedule_request *r, int device, v_pattern pattern,
                   wfi_action_list *list) {
    int up = r->n_stages - 1 - device;
    const int stages[] = {device, up, up, device};
    int late = 0; /* after the B of the latest W */
    for (int time = 0; list->n < WFI_V_PERIOD * r->n_micro; time++) {
        int k = find_begin(r, &pattern, time);
        if (k >= 0) {
            wfi_action_push(list, k < 2 ? WFI_ACTION_F : WFI_ACTION_B, stages[k],
                            (time - pattern.begin[k]) / WFI_V_PERIOD);
            continue;
        }
        while (late < list->n && list->actions[late].kind != WFI_ACTION_B) late++;
        if (late == list->n) continue;
        wfi_action b = list->actions[late++];
        wfi_action_push(list, WFI_ACTION_W, b.stage, b.micro);
    }
}

/* B waits where it would fall on the times of F. */
static void half(const wfi_schedule_request *request, int device, wfi_action_list *list) {
    int p = wfi_request_n_devices(request), wait = p % 2 ? 0 : 3;
    v_pattern pattern = {
        {2 * device, 3 * p - 2 - device, 3 * p + wait + 2 * device - 1, 6 * p + wait - 2 - device}};
    repeat(request, device, pattern, list);
}

const wfi_schedule wfi_schedule_vhalf = {
    .name = "vhalf",
    .help = "V-Half: two stages a rank, half the memory of 1f1b and two thirds of its bubble",
    .splits_weight = true,
    .rule = half,
    .n_chunks = 2,
    .is_v = true};

static void least(const wfi_schedule_request *request, int device, wfi_action_list *list) {
    int p = wfi_request_n_devices(request), wait = p % 3 ? 0 : 2;
    v_pattern pattern = {
        {device, 2 * p - 1 - device, 2 * p + wait + device, 4 * p + wait - 1 - device}};
    repeat(request, device, pattern, list);
}

const wfi_schedule wfi_schedule_vmin = {
    .name = "vmin",
    .help = "V-Min: two stages a rank, a third of the memory of 1f1b and two thirds of its bubble",
    .splits_weight = true,
    .rule = least,
    .n_chunks = 2,
    .is_v = true};
