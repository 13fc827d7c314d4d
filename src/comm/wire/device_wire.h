/* A wire between memories of devices: ranks in different processes read each other's bytes from
 * device to device, without a host buffer. Private. The job's wire names it; only these functions
 * depend on the kind of device:
 *
 *     nccl.c   CUDA GPUs, over NCCL
 *
 * Sends and receives are put into groups, which all ranks begin in one order. A message is in the
 * same group of its sender and its receiver, in the same order. Sums have groups of their own,
 * which all ranks with a summand begin.
 */
#pragma once

#include "comm/job/control.h"

typedef struct wfi_device_wire wfi_device_wire;

/* The teams of a sum: the job's ranks are divided into teams of n, and this rank is member `own` of
 * team `number`. n is 1: no sums. */
typedef struct wfi_wire_team {
    int32_t n, number, own;
} wfi_wire_team;

/* All ranks of the job open the wire, each for one of its device's streams, which is idle. Returns
 * when all ranks have. `device` is the rank's own. Errors: UNSUPPORTED: these devices have no such
 * wire, or its library is missing; those of a wait. */
wf_status wfi_device_wire_open(wfi_control *job, wfi_device *device, wfi_stream_queue *stream,
                               wfi_wire_team team, wfi_device_wire **wire_out);
/* Called from tasks of the stream: a group of sends of device memory to the rank `peer`, or
 * receives from it. `end` returns when all have completed. Errors: TIMEOUT, REMOTE, DEVICE. */
wf_status wfi_device_wire_begin(wfi_device_wire *wire);
wf_status wfi_device_wire_move(wfi_device_wire *wire, int peer, bool sends, void *data,
                               size_t bytes);
/* All-reduces floats within the team; the order of summation is unspecified. */
wf_status wfi_device_wire_sum(wfi_device_wire *wire, void *data, size_t n_elem);
wf_status wfi_device_wire_end(wfi_device_wire *wire);
/* Called before the stream's thread ends: waits for the other ranks to leave, unless the job has
 * failed. NULL is allowed, as below. */
void wfi_device_wire_leave(wfi_device_wire *wire);
/* Called after the stream's thread has ended. */
void wfi_device_wire_close(wfi_device_wire *wire);
