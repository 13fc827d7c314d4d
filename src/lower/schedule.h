/* The order of each rank's work. Private. */
#pragma once

#include "plan/schedule/schedule.h"
#include "program/program.h"

/* The actions of each rank [n_ranks], microbatches counted in the step; free with
 * wfi_schedule_free. */
wf_status wfi_program_schedule(const wf_program *p, wfi_action_list **lists_out);
/* Time of a microbatch on a stage, and of a message between stages (of the slowest pair), in us;
 * the stages begin with first_unit[n_stages + 1]. */
void wfi_program_stage_times(const wf_program *p, const int32_t *first_unit, int32_t stage,
                             wfi_stage_times *times_out);
double wfi_program_transfer_time(const wf_program *p, const int32_t *first_unit, int32_t n_stages);
/* Bytes of forward values of units that a part of a unit reads, without those that the unit
 * saved. */
size_t wfi_program_read_bytes(const wf_program *p, int32_t unit, wfi_part part);
/* The request for the plan's schedule, with those stages; the arrays are the pool's. Needs nothing
 * of the program but its graph, costs and code. */
wf_status wfi_program_request(const wf_program *p, const int32_t *first_unit, wfi_pool *pool,
                              wfi_schedule_request *request_out);
/* choose.c: resolves a schedule=auto without a number of stages per rank to the plan with the
 * shortest step. */
wf_status wfi_program_choose_chunks(const wf_program *p);
/* rounds.c: fills the lists [n_ranks] where the replicas are no pipelines of their own. */
wf_status wfi_program_rounds(const wf_program *p, wfi_action_list *lists);
