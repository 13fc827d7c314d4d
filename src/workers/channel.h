/* A channel between a worker and a server: the worker sends a message, and the server answers into
 * the same buffer. Neither call waits. Private.
 *
 * Within a process both sides share the buffer. Between processes each side has its own, and a
 * group of their ranks moves the bytes: over shared memory, or over MPI, with its progress thread.
 */
#pragma once

#include "base/base.h"

#include <weft/group.h>

typedef enum wfi_message { WFI_MESSAGE_NONE, WFI_MESSAGE_ASKS, WFI_MESSAGE_ANSWERS } wfi_message;

typedef struct wfi_channel {
    void *buffer; /* 64-byte aligned; of this side, or of both */
    size_t bytes; /* a multiple of 64 */
    int newest;   /* between threads: the wfi_message in the buffer. Atomic access. */
    /* Between processes, otherwise NULL. One thread of this process uses the group. */
    wf_group *group;
    int peer;     /* rank in the group */
    bool crosses; /* from rank to rank: counted */
    uint64_t n_sent, n_answered;
    wf_work *sending, *receiving;
} wfi_channel;

/* `counts`: as traffic of a step. Before the other side's message each side calls `expect`. A
 * worker with several servers first sends to all, and then expects all: the calls of a group run
 * one after another. */
wf_status wfi_channel_send(wfi_channel *c, wfi_message what, bool counts);
wf_status wfi_channel_expect(wfi_channel *c);
/* Returns whether the other side's message is in the buffer; `what`: the one it sends. */
wf_status wfi_channel_has(wfi_channel *c, wfi_message what, bool *has_out);

/* Waits for calls that are under way, after the last message. */
wf_status wfi_channel_settle(wfi_channel *c);
