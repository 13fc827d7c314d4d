/* A pipeline schedule is data: for each device, an ordered list of actions. Private.
 *
 * F runs a stage forward on a microbatch, B gives the gradient of its input, W
 * the gradient of its weights, BW both at once. Each schedule is a pure function in
 * a file of its own; a pass (lower/lower.c) adds sends and receives. Most follow a
 * rule that looks at one device only; auto searches over all stages, with their times.
 *
 * Which stage is on which device is a table. Most schedules have a stage a device; one that has
 * more says how many, and where they are.
 */
#pragma once

#include "base/base.h"

typedef enum wfi_action_kind {
    WFI_ACTION_F,
    WFI_ACTION_B,
    WFI_ACTION_W,
    WFI_ACTION_BW
} wfi_action_kind;

typedef struct wfi_action {
    wfi_action_kind kind;
    int stage, micro; /* micro counts from 0 within the replica */
} wfi_action;

typedef struct wfi_action_list {
    wfi_action *actions; /* room for 3 * n_micro for each stage of the device */
    int n;
} wfi_action_list;

/* Times of one microbatch on one stage, in any one unit of time. BW takes backward + weight. */
typedef struct wfi_stage_times {
    double forward, backward, weight;
} wfi_stage_times;

/* The part of its device's memory that a microbatch on one stage takes: from the begin of F to the
 * end of B, and from there to the end of W. The unit is the sum over all stages of the
 * device of the larger value, so with one stage and all kept until W, both are 1. */
typedef struct wfi_stage_memory {
    double until_backward, until_weight;
} wfi_stage_memory;

/* The inputs of a schedule. */
typedef struct wfi_schedule_request {
    int n_stages, n_micro;
    const wfi_stage_times *times; /* [n_stages] */
    double transfer;              /* from a stage to its neighbour; takes no compute */
    /* Most microbatches that a device may hold, in the unit of wfi_stage_memory; at least 1. Only
     * auto heeds it, the others have a fixed need. */
    int hold;
    /* The measure that auto minimizes: 0, the time from the first begin to the last end; 1, the
     * longest time that any one stage takes, as where steps overlap (Zero Bubble's measure). */
    int by_stage_span;
    int n_devices;        /* with a table */
    const int *device_of; /* [n_stages] the table; NULL: each stage is on a device of its number */
    const wfi_stage_memory *memory; /* [n_stages] NULL: of equal parts that are kept until W */
} wfi_schedule_request;

static inline int wfi_request_n_devices(const wfi_schedule_request *r) {
    return r->device_of ? r->n_devices : r->n_stages;
}
static inline int wfi_request_device_of(const wfi_schedule_request *r, int stage) {
    return r->device_of ? r->device_of[stage] : stage;
}
/* Stages of each device. */
static inline int wfi_request_n_chunks(const wfi_schedule_request *r) {
    return r->n_stages / wfi_request_n_devices(r);
}

/* Without a table of them, all stages of a device have as much, until W. */
static inline wfi_stage_memory wfi_request_memory_of(const wfi_schedule_request *r, int stage) {
    double part = 1.0 / wfi_request_n_chunks(r);
    return r->memory ? r->memory[stage] : (wfi_stage_memory){part, part};
}

typedef struct wfi_schedule {
    const char *name;
    const char *help;
    bool splits_weight; /* uses B and W instead of BW */
    /* Appends the device's actions. NULL for a schedule that searches. */
    void (*rule)(const wfi_schedule_request *request, int device, wfi_action_list *list);
    /* Appends all devices' actions to lists [n_devices]. NULL for one with a rule. */
    wf_status (*search)(wf_context *ctx, const wfi_schedule_request *request,
                        wfi_action_list *lists);
    bool by_unit; /* on one device each unit is a stage */
    /* Chunks: stages that each device has, one after the other. 0: one. */
    int n_chunks;
    bool any_chunks; /* or as many as are asked for */
    bool is_v;       /* every other chunk goes through the devices backward, as on the legs of a V:
                      * so a chunk begins where the one before it ends. Else all go forward. */
} wfi_schedule;

/* `asked`: 0, or as many as are asked for. */
static inline int wfi_schedule_n_chunks(const wfi_schedule *schedule, int asked) {
    return asked ? asked : (int)wfi_max_i64(schedule->n_chunks, 1);
}
static inline int wfi_schedule_device_of(const wfi_schedule *schedule, int n_devices, int stage) {
    int at = stage % n_devices;
    return schedule->is_v && stage / n_devices % 2 ? n_devices - 1 - at : at;
}
/* NULL if the schedule's devices may have so many stages, else a clause with the number that it
 * has. */
const char *wfi_schedule_refuses_chunks(const wfi_schedule *schedule, int n_chunks);

extern const wfi_schedule wfi_schedule_naive, wfi_schedule_gpipe, wfi_schedule_1f1b,
    wfi_schedule_interleaved, wfi_schedule_zb1, wfi_schedule_zb2, wfi_schedule_zbv,
    wfi_schedule_vhalf, wfi_schedule_vmin, wfi_schedule_breadth, wfi_schedule_auto;
enum { WFI_V_PERIOD = 6 }; /* of V-Half and V-Min: from a microbatch to the next */
/* The candidates of auto where the plan does not set the chunks of a device: the best lists that
 * are found with one, or with two on the legs of a V, or a schedule that goes round. */
typedef struct wfi_schedule_choice {
    const wfi_schedule *schedule;
    int n_chunks;
} wfi_schedule_choice;
enum { WFI_N_AUTO_CHOICES = 5 };
extern const wfi_schedule_choice wfi_auto_choices[WFI_N_AUTO_CHOICES];

/* All of them, NULL-terminated. */
extern const wfi_schedule *const wfi_schedules[];
/* NULL if there is none of that name. */
const wfi_schedule *wfi_schedule_find(const char *name);

/* One list a device; the caller frees them. */
wf_status wfi_schedule_make(wf_context *ctx, const wfi_schedule *schedule,
                            const wfi_schedule_request *request, wfi_action_list **lists_out);
void wfi_schedule_free(wf_context *ctx, wfi_action_list *lists, int n_devices);

static inline void wfi_action_push(wfi_action_list *list, wfi_action_kind kind, int stage,
                                   int micro) {
    list->actions[list->n++] = (wfi_action){kind, stage, micro};
}
