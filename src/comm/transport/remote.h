/* Streams whose tasks are done elsewhere: counters that somebody else writes. Private.
 *
 * All processes have the same program, so each knows how many tasks a step gives to another's
 * stream without being told: here tasks are only counted, and events looked up in a counter. That
 * is the other process's own, in memory that both see, or a copy which the transport keeps; or it
 * counts what the transport has received or sent.
 */
#ifndef WFI_REMOTE_H
#define WFI_REMOTE_H

#include "device/device.h"

/* Of the streams of one owner. Borrowed by them. */
typedef struct wfi_remote {
    wfi_owner owner;
    wfi_shared_epoch *counters; /* by the number of a stream */
    /* Whether the process of that rank is gone. NULL: nobody goes. */
    bool (*is_lost)(const void *self, int rank);
    /* Tells that rank, whose stream is going to wait for the event of a trainer's local stream (by
     * its number), when it comes. NULL: it sees the counter itself. */
    wf_status (*notify)(const void *self, int trainer, int rank, int stream, uint64_t epoch);
    int trainer;
    /* What is counted are messages "of" or "to" other ranks for a stream: which rank has to send or
     * to take the next. NULL: tasks of another rank are counted. */
    int (*awaited_rank)(const void *self, int stream);
    const char *direction;
    const void *self;
} wfi_remote;

/* `name` is static. */
wf_status wfi_remote_stream_create(const wfi_remote *remote, const char *name, int number,
                                   wfi_stream_queue **stream_out);
/* So many more tasks are given to the stream where it runs. */
void wfi_remote_stream_count(wfi_stream_queue *stream, uint64_t n_tasks);

#endif
