/* Segments that the device has captured. Private.
 *
 * A segment queues the same kernels at the same addresses in every step. Where the kind of device
 * can capture that, it is run as it is the first time, when kernels are compiled and handles made,
 * captured the second time, and replayed from then on. Only kernels that are told of the step
 * (WFI_OP_READS) differ from step to step: a segment that has such is queued anew.
 */
#pragma once

#include "execute/executor.h"

/* Binds the memory that the segment of an instruction touches, and notifies observers; `launches`:
 * also queues its kernels. */
typedef wf_status (*wfi_segment_run)(wfi_executor *e, const wfi_instruction *now, bool launches);

/* NULL: nothing is captured: WEFT_REPLAY is 0. */
wf_status wfi_recorded_create(const wf_program *p, wfi_recorded **recorded_out);
/* The executor's; its workers are there, and idle. */
void wfi_recorded_destroy(const wfi_executor *e);

/* Runs the segment of an instruction, in one of these ways. A task. */
wf_status wfi_recorded_run(wfi_executor *e, const wfi_instruction *now, wfi_segment_run run);
