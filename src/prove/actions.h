/* The check of a schedule. Private. */
#pragma once

#include "plan/schedule/schedule.h"
#include "program/program.h"

/* That each rank's actions are those of a step on its stages: F, B and W (or BW) of each microbatch
 * once and in this order, gradients of a lane in ascending order. order.c checks the interaction of
 * ranks. Errors: BUG; the sentence names the stage and the action. */
wf_status wfi_program_check_actions(const wf_program *p, const wfi_action_list *lists);
