/* The passes that make a program, in the order in which they run.
 *
 * How it comes about: place.c decides where values live, segment.c compiles each unit's nodes into
 * segments with a workspace (workspace.c); map.c puts stages on ranks; lower.c follows the schedule
 * and emits blocks and instructions; depend.c derives the dependencies from the reads and writes of
 * each instruction; order.c finds the order of execution; memory.c gives blocks their offsets.
 * check.c proves the result, without using any of them but order.c; instructions.c lists the bytes
 * that an instruction touches.
 */
#ifndef WFI_PROGRAM_PASSES_H
#define WFI_PROGRAM_PASSES_H

#include "program/program.h"

/* map.c: which units are a stage, which rank is on which, and in which group. `like`: see
 * wfi_program_begin. */
wf_status wfi_program_map(wf_program *p, const wf_program *like);
/* classes.c: which ranks are lowered, and which ones follow them. */
wf_status wfi_program_find_classes(wf_program *p);
/* alike.c: finds whether the ranks of two `tp` coordinates differ only by their slices. */
wf_status wfi_program_has_equal_slices(const wf_program *p, int32_t a, int32_t b, bool *is_out);
/* Copies results of the lowered ranks to those that follow them. */
void wfi_program_share(wf_program *p);
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
/* rounds.c: the same where the replicas are no pipelines of their own. */
wf_status wfi_program_rounds(const wf_program *p, wfi_action_list **lists_out);
/* recompute.c: replaces a program that recomputes nothing, of a plan with recompute=auto, by one
 * that fits into the plan's memory, if there is any. */
wf_status wfi_program_choose_recompute(wf_program **program);
/* That each rank's actions are those of a step on its stages: F, B and W (or BW) of each microbatch
 * once and in this order, gradients of a lane in ascending order. order.c checks the interaction of
 * ranks. Errors: BUG; the sentence names the stage and the action. */
wf_status wfi_program_check_actions(const wf_program *p, const wfi_action_list *lists);
typedef struct wfi_sequence wfi_sequence;
wf_status wfi_program_lower(wf_program *p, const wfi_action_list *lists,
                            const wfi_sequence *sequence);
/* Reads and writes -> dependencies; drops those that others imply. */
wf_status wfi_program_depend(wf_program *p);
/* Fills clock and order. Errors: BUG: a deadlock; the message names the waiting ranks. */
wf_status wfi_program_order(wf_program *p);
/* fold.c: finds whether the middle of each lane's step repeats, and plans the memory of the short
 * form. `fold`: see lower.h; without a period if nothing repeats. */
typedef struct wfi_fold wfi_fold;
wf_status wfi_fold_find(wf_program *p, wfi_pool *pool, const wfi_action_list *lists,
                        wfi_fold *fold_out);
/* Ends the program of a short form, or NULL. */
void wfi_program_end_shorter(wf_program *shorter);
/* turns.c: keeps in the short form where it repeats. */
wf_status wfi_fold_mark(const wfi_fold *fold);
/* next_out [n_blocks of the short form]: the block that has the same offset one period
 * later, or -1. *is_periodic_out: whether the short form's instructions repeat. */
wf_status wfi_fold_find_turns(const wfi_fold *fold, int32_t *next_out, bool *is_periodic_out);
/* Gives blocks of the program the offsets of the short form's. Errors: BUG: it does not repeat. */
wf_status wfi_fold_copy(const wfi_fold *fold, wf_program *p);
/* `next`: see above; NULL: there is no short form. n_records: of the whole step on each rank that
 * has any; 0: records are placed like all else. *fits_out: whether each block ends before the next
 * one begins; if not, nothing is placed. */
wf_status wfi_program_place(wf_program *p, int32_t *next, int64_t n_records, int64_t n_period,
                            bool *fits_out);
void wfi_place_records(const wf_program *p, const wfi_rank *rank);
/* summary.c: counts the bytes of each lowered rank for reports. */
void wfi_program_sum_blocks(wf_program *p);
/* Bytes that each rank sends and receives. */
wf_status wfi_program_count_traffic(wf_program *p);

#endif
