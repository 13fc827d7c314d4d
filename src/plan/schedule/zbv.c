/* ZB-V (Qi et al., 2024, arXiv 2405.15362): a device has two stages, on the legs of a V. A
 * microbatch goes down one leg and up the other, so its loss and its first B are on the device
 * where it began. Where F, B and W take equally long there is no bubble, in the memory of 1F1B. */
#include "plan/schedule/schedule.h"

/* The device's two legs. */
typedef struct legs {
    const wfi_schedule_request *request;
    wfi_action_list *list;
    int stage[2];
    int n[2][3]; /* F, B and W done */
} legs;

/* The rule is for a pipeline that is full; fewer microbatches leave theirs out. */
static void push(legs *v, wfi_action_kind kind, int leg) {
    int micro = v->n[leg][kind]++;
    if (micro < v->request->n_micro) wfi_action_push(v->list, kind, v->stage[leg], micro);
}

static void push_both(legs *v, int leg) {
    push(v, WFI_ACTION_B, leg);
    push(v, WFI_ACTION_W, leg);
}

static void rule(const wfi_schedule_request *r, int device, wfi_action_list *list) {
    int p = wfi_request_n_devices(r), n_left = p - device;
    int n_micro = (int)wfi_max_i64(r->n_micro, 2 * p - 1);
    legs v = {.request = r, .list = list, .stage = {device, 2 * p - 1 - device}};
    for (int k = 0; k < 2 * n_left - 1; k++) push(&v, WFI_ACTION_F, 0);
    for (int k = 0; k < device; k++) {
        push(&v, WFI_ACTION_F, 1);
        push(&v, WFI_ACTION_F, 0);
    }
    for (int k = 0; k < n_left; k++) {
        push(&v, WFI_ACTION_F, 1);
        push_both(&v, 1);
    }
    while (v.n[1][WFI_ACTION_F] < n_micro) {
        if (v.n[0][WFI_ACTION_F] < n_micro) push(&v, WFI_ACTION_F, 0);
        push_both(&v, 0);
        push(&v, WFI_ACTION_F, 1);
        push_both(&v, 1);
    }
    /* The remaining B go ahead of W, which fills the end. */
    for (int k = 0; k < device; k++)
        for (int leg = 0; leg < 2; leg++) push(&v, WFI_ACTION_B, leg);
    for (int k = 0; k < n_left; k++) push_both(&v, 0);
    for (int leg = 1; leg >= 0; leg--)
        while (v.n[leg][WFI_ACTION_W] < n_micro) push(&v, WFI_ACTION_W, leg);
}

const wfi_schedule wfi_schedule_zbv = {
    .name = "zbv",
    .help = "ZB-V: two stages a rank, nearly no bubble in the memory of 1f1b",
    .splits_weight = true,
    .rule = rule,
    .n_chunks = 2,
    .is_v = true};
