/* Streams whose tasks run in another process, which advances their counters. Private.
 *
 * All processes have the same program, so each knows without a message how many tasks a step pushes
 * to a stream of another rank. This process only counts the tasks and compares events with a
 * counter. The counter is the other process's own, in shared memory, or a copy that the transport
 * updates. Streams of the transport count the messages that it received or sent.
 */
#pragma once

#include "device/device.h"

#define WFI_REMOTE_LOST 64

/* The remote streams of one owner, which borrow this struct. */
typedef struct wfi_remote {
    wfi_owner owner;
    wfi_shared_epoch *counters; /* [stream number] */
    /* Whether the process of that rank has left or died. NULL: no process can. */
    bool (*is_lost)(const void *self, int rank);
    void (*describe_lost)(const void *self, int rank, char text_out[WFI_REMOTE_LOST]);
    /* Set if the streams count messages "of" or "to" (`direction`) other ranks: returns the rank
     * that has to send or take the next message. NULL: the streams count tasks of another rank. */
    int (*awaited_rank)(const void *self, int stream);
    const char *direction;
    const void *self;
} wfi_remote;

/* `name` is static. */
wf_status wfi_remote_stream_create(const wfi_remote *remote, const char *name, int number,
                                   wfi_stream_queue **stream_out);
/* Counts `n_tasks` more tasks, which the owner's process pushes to its stream. */
void wfi_remote_stream_count(wfi_stream_queue *stream, uint64_t n_tasks);
