/* Transfers of values, inputs and tied weights between ranks. Private to src/lower. */
#pragma once

#include "lower/emit.h"

/* A value or an input of one microbatch, or a lane of a tied weight, that goes from rank to rank.
 */
typedef struct wfi_transfer {
    wfi_name what; /* a VALUE, INPUT or TIED */
    int32_t from, to;
    int32_t place; /* in the sequence: begin of the first action that reads it */
} wfi_transfer;

/* All of a step, in the order in which each rank names its own; the caller frees them.
 */
wf_status wfi_find_transfers(const wf_program *p, const wfi_action_list *lists,
                             const wfi_sequence *sequence, wfi_transfer **transfers_out,
                             int32_t *n_out);

/* The rank's transfers that stand before `end` in the sequence. */
wf_status wfi_lower_transfers(wfi_lowering *l, int32_t end);
/* The inputs that a segment reads and no transfer has brought, from the host. */
wf_status wfi_lower_loads(wfi_lowering *l, const wfi_segment *segment, int64_t micro);
