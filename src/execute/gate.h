/* Moves bytes between ranks whose processes cannot read each other's memory. Private.
 *
 * Only copies read another rank's memory, and they write to a block of the reader's own: a receive,
 * or a step of a collective that copies (the plan stages operands of kernels). Every process has
 * the whole program, so both sides know of each copy, and no requests are needed. An instruction
 * has one more task before a receive, a send or a phase: its gate. After a rank's gate the bytes
 * that others copy are complete, and the memory for copies of others' bytes is free. The task after
 * the gate begins when the bytes have come, and those of this rank have gone.
 *
 *   HOST      Processes share the host's memory, but not that of devices. The gate copies bytes to
 *             a host copy of the device's memory, from which the others copy them.
 *   MESSAGES  The transport sends and receives. It finds a device's memory in its host copy.
 *   WIRE      A stream of its own moves all bytes of a phase at once (comm/wire/device_wire.h),
 *             after the gates of all members. So no GPU waits for another rank, and the watchdog
 *             can name a late one. Phases are in the order of the program on every rank.
 */
#pragma once

#include "execute/worker.h"

typedef enum wfi_carrier {
    WFI_CARRIER_NONE, /* all ranks read each other's memory */
    WFI_CARRIER_HOST,
    WFI_CARRIER_MESSAGES,
    WFI_CARRIER_WIRE
} wfi_carrier;

wfi_carrier wfi_carrier_of(const wfi_worker *workers, int32_t n_ranks);

/* A place in memory, `offset` bytes after the begin of a reference. */
typedef struct wfi_location {
    const wfi_reference *reference;
    size_t offset;
} wfi_location;

/* A copy of another rank's bytes. The places are the same: floats that the wire sums with those of
 * other ranks. */
typedef struct wfi_far_copy {
    wfi_location from, to;
    size_t bytes;
} wfi_far_copy;

typedef struct wfi_executor wfi_executor;

/* Issues the gates of phase `number` of the instructions at that place of the order, and what moves
 * their bytes; a send and its receive are one phase. */
wf_status wfi_issue_gates(wfi_executor *e, int32_t at, int32_t number);
/* A task of instruction i makes the copy, unless its bytes have been moved. */
wf_status wfi_make_copy(const wfi_executor *e, int32_t i, const wfi_far_copy *copy);
/* Reports to the checker that the task, which comes after the departure of this rank's bytes, reads
 * them: if messages or a wire move them. */
wf_status wfi_touch_sent(const wfi_executor *e, int32_t i, int32_t number);
