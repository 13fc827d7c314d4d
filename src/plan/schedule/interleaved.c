/* Interleaved 1F1B (Narayanan et al., 2021): a device has several stages, each n_devices after the
 * one before, so that a microbatch goes round all devices several times, and the pipeline fills and
 * drains in shorter pieces. Microbatches go in groups: a group passes all stages of a device before
 * the next one begins. Groups have n_devices microbatches, or, where these do not divide them all,
 * as few more as possible. */
#include "plan/schedule/schedule.h"

/* How many groups there are, and where group g begins. */
static int n_groups(const wfi_schedule_request *r) {
    return (int)wfi_max_i64(r->n_micro / wfi_request_n_devices(r), 1);
}
static int group_begin(const wfi_schedule_request *r, int g) {
    int n = n_groups(r), size = r->n_micro / n, n_larger = r->n_micro % n;
    return g * size + (int)wfi_min_i64(g, n_larger);
}

/* Where the device is in its order of forwards, or, with chunks from the last to the first, of
 * backwards. */
typedef struct cursor {
    int group, chunk, micro;
} cursor;

static void push(const wfi_schedule_request *r, int device, wfi_action_kind kind, cursor *at,
                 wfi_action_list *list) {
    int n_chunks = wfi_request_n_chunks(r), n_devices = wfi_request_n_devices(r);
    int chunk = kind == WFI_ACTION_F ? at->chunk : n_chunks - 1 - at->chunk;
    wfi_action_push(list, kind, chunk * n_devices + device, at->micro++);
    if (at->micro < group_begin(r, at->group + 1)) return;
    if (++at->chunk == n_chunks) at->chunk = 0, at->group++;
    at->micro = group_begin(r, at->group);
}

/* As many forwards before the first backward as let it come back in time. */
static void rule(const wfi_schedule_request *r, int device, wfi_action_list *list) {
    int n = r->n_micro * wfi_request_n_chunks(r);
    int n_later = wfi_request_n_devices(r) - 1 - device;
    int n_warm = (wfi_request_n_chunks(r) - 1) * group_begin(r, 1) + 2 * n_later;
    cursor forward = {0, 0, 0}, backward = {0, 0, 0};
    for (int k = 0; k < n + n_warm; k++) {
        if (k < n) push(r, device, WFI_ACTION_F, &forward, list);
        if (k >= n_warm && k - n_warm < n) push(r, device, WFI_ACTION_BW, &backward, list);
    }
}

const wfi_schedule wfi_schedule_interleaved = {
    .name = "interleaved",
    .help = "1F1B with several stages a rank, chunks=V: a V-th of the bubble, more transfers",
    .rule = rule,
    .n_chunks = 2,
    .any_chunks = true};
