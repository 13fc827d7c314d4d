/* A pipeline schedule is data: for one stage, an ordered list of actions. Private.
 *
 * F runs a stage forward on a microbatch, B gives the gradient of its input, W
 * the gradient of its weights, BW both at once. Each schedule is a pure function in
 * a file of its own; a pass (program/lower.c) adds sends and receives.
 */
#ifndef WFI_SCHEDULE_H
#define WFI_SCHEDULE_H

#include <stdbool.h>

typedef enum wfi_action_kind {
    WFI_ACTION_F,
    WFI_ACTION_B,
    WFI_ACTION_W,
    WFI_ACTION_BW
} wfi_action_kind;

typedef struct wfi_action {
    wfi_action_kind kind;
    int stage, chunk, micro; /* micro counts from 0 within the replica */
} wfi_action;

typedef struct wfi_schedule {
    const char *name;
    const char *help;
    bool splits_weight; /* uses B and W instead of BW */
    /* Writes stage `stage`'s actions; room for 3 * n_micro. Returns how many. */
    int (*make)(int n_stages, int stage, int n_micro, wfi_action *actions_out);
} wfi_schedule;

extern const wfi_schedule wfi_schedule_gpipe;
extern const wfi_schedule wfi_schedule_1f1b;

/* All of them, NULL-terminated. */
extern const wfi_schedule *const wfi_schedules[];
/* NULL if there is none of that name. */
const wfi_schedule *wfi_schedule_find(const char *name);

#endif
