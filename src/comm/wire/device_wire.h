/* A wire between memories of devices: what ranks in different processes read of each other goes
 * there from device to device, as it is. Private. Which one, and of which kind of device, the job's
 * wire says; nobody above knows more of it than this:
 *
 *     nccl.c   CUDA GPUs, by NCCL
 *
 * Who sends and who receives say so in groups, which all ranks begin in one order; what is in a
 * group of one rank is, in that order, in the same group of the other. What is summed is in groups
 * of its own, of all who have a summand.
 */
#ifndef WFI_DEVICE_WIRE_H
#define WFI_DEVICE_WIRE_H

#include "comm/job/control.h"

typedef struct wfi_device_wire wfi_device_wire;

/* Who sums with whom: the job's ranks are teams of n, and the rank is `own` in team `number`. n is
 * 1: nobody sums. */
typedef struct wfi_wire_team {
    int32_t n, number, own;
} wfi_wire_team;

/* All ranks of the job open it, each for one of its device's streams, which is idle; returns when
 * all have, with as many tasks given to each stream. `device` is the rank's own. Errors:
 * UNSUPPORTED: it cannot be between these devices, or what it needs is not there; those of a wait.
 */
wf_status wfi_device_wire_open(wfi_control *job, wfi_device *device, wfi_stream_queue *stream,
                               wfi_wire_team team, wfi_device_wire **wire_out);
/* From tasks of the stream: a group, in which bytes of its device go to the rank `peer`, or come
 * from it. `end` returns when all have gone and come. Errors: TIMEOUT, REMOTE, DEVICE. */
wf_status wfi_device_wire_begin(wfi_device_wire *wire);
wf_status wfi_device_wire_move(wfi_device_wire *wire, int peer, bool sends, void *data,
                               size_t bytes);
/* Floats, which become the sum of what the ranks of the team have, in an order that nobody knows.
 */
wf_status wfi_device_wire_sum(wfi_device_wire *wire, void *data, size_t n_elem);
wf_status wfi_device_wire_end(wfi_device_wire *wire);
/* The stream's thread is about to end; it takes leave of other ranks, unless the job has failed.
 * NULL is allowed, as below. */
void wfi_device_wire_leave(wfi_device_wire *wire);
/* The stream's thread has ended. */
void wfi_device_wire_close(wfi_device_wire *wire);

#endif
