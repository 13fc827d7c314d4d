/* A channel between a worker and a server: the worker sends a message, and the server answers into
 * the same buffer. Neither call waits. Private.
 *
 * Within a process both sides share the buffer. Between processes each side has its own, and a
 * group of their ranks moves the bytes: over shared memory, or over MPI, with its progress thread.
 */
#ifndef WFI_WORKERS_CHANNEL_H
#define WFI_WORKERS_CHANNEL_H

#include "base/base.h"

#include <weft/group.h>

typedef struct wfi_channel {
    void *buffer; /* 64-byte aligned; of this side, or of both */
    size_t bytes; /* a multiple of 64 */
    /* Between threads: 0 idle, 1 asked, 2 answered. Atomic access. */
    int state;
    /* Between processes, otherwise NULL. One thread of this process uses the group. */
    wf_group *group;
    int peer;     /* rank in the group */
    bool crosses; /* from rank to rank: counted */
    uint64_t n_sent, n_answered;
    wf_work *sending, *receiving;
} wfi_channel;

/* The worker's side; `counts`: as traffic of a step. A worker with several servers first sends to
 * all, and then awaits all: the calls of a group run one after another. */
wf_status wfi_channel_send(wfi_channel *c, bool counts);
wf_status wfi_channel_await(wfi_channel *c);
/* Returns whether the answer is in the buffer. */
wf_status wfi_channel_is_answered(wfi_channel *c, bool *is_out);

/* The server's side: before each message. */
wf_status wfi_channel_expect(wfi_channel *c);
wf_status wfi_channel_is_asked(wfi_channel *c, bool *is_out);
wf_status wfi_channel_answer(wfi_channel *c, bool counts);

/* Waits for calls that are under way, after the last message. */
wf_status wfi_channel_settle(wfi_channel *c);

#endif
