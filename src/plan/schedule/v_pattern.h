/* The rule that V-Half and V-Min share (Qi et al., 2024, arXiv 2405.15362). Private. */
#pragma once

#include "plan/schedule/schedule.h"

/* When a device does F on the way down, F on the way up, B down, and B up of microbatch 0, where
 * all of F, B and W take 1. */
enum { WFI_V_PERIOD = 6 };
typedef struct wfi_v_pattern {
    int begin[4];
} wfi_v_pattern;

/* Repeats it for each microbatch, WFI_V_PERIOD apart; W goes where nothing else is. No two of the
 * times may be the same but for whole periods. How long it is from F to B says how many
 * microbatches a device holds. */
void wfi_v_repeat(const wfi_schedule_request *request, int device, wfi_v_pattern pattern,
                  wfi_action_list *list);
