/* The memory that a group's ranks share, and how they wait for each other. Private.
 *
 * A group shares a segment. In it each rank counts its arrivals and stores a message with the
 * count: the operation's fingerprint and the handles of its buffers. So the consistency check costs
 * no message of its own. Two counters alternate: a rank that is ahead by one arrival does not
 * overwrite the message that others still read, and no rank can be ahead by two.
 *
 * A buffer that the others cannot access, or that is overwritten too early, goes through a window
 * of bounded size, chunk by chunk.
 *
 * Ranks that share no memory (wire `mpi`) have a copy each of the segment, which the transport
 * updates. Elements that a phase reads from other ranks are sent to the reader before
 * (wfi_message_ops).
 */
#pragma once

#include "base/clock.h"
#include "comm/group/group.h"

#define WFI_GROUP_BLOCKS 256 /* blocks of memory that one rank shares */

/* A location that all ranks can resolve. inproc: an address; shm: block and offset. */
typedef uint64_t wfi_handle;
#define WFI_HANDLE_NONE UINT64_MAX

enum { WFI_ARRIVAL_FINGERPRINT, WFI_ARRIVAL_IN, WFI_ARRIVAL_OUT };

/* shm: one block of memory that a rank shares. */
typedef struct wfi_shared_block {
    uint64_t bytes;
    uint32_t serial; /* changes with every block in this slot */
    int32_t fd;
} wfi_shared_block;

/* One rank's part of the segment. Only that rank writes it. */
typedef struct wfi_member {
    wfi_shared_epoch arrival[2];
    wfi_group_call call; /* the rank's current call */
    wfi_handle window;   /* atomic access; 0: none yet */
    int32_t has_left;    /* atomic access */
    int32_t touches;     /* atomic access: accesses others' buffers (wfi_memory_touch) */
    wfi_shared_block blocks[WFI_GROUP_BLOCKS];
} __attribute__((aligned(64))) wfi_member;

/* The sends of one rank to one other. */
typedef struct wfi_group_channel {
    wfi_shared_epoch sent, received; /* chunks */
} wfi_group_channel;

typedef struct wfi_group_segment {
    wfi_failure failure;
    int32_t n_left; /* atomic access */
    wfi_member members[];
} wfi_group_segment;

struct wfi_run;
struct wfi_run_buffers;
struct wfi_memory;

/* Messages that replace shared memory. */
typedef struct wfi_message_ops {
    /* Sends this rank's arrival, its channel or its failure to the copies of other ranks. */
    wf_status (*send_arrival)(struct wfi_memory *m);
    wf_status (*send_channel)(struct wfi_memory *m, int32_t rank, bool is_sender);
    void (*send_failure)(struct wfi_memory *m);
    /* Around the steps of a phase: receives the elements that the steps read from other ranks, and
     * sends those that other ranks read. */
    wf_status (*begin)(struct wfi_run *run, const wfi_reduce_step *steps, int32_t n_steps);
    wf_status (*end)(struct wfi_run *run);
    /* The address of a received element of another rank. */
    char *(*find)(const struct wfi_run *run, int32_t rank, wfi_window which, int64_t at);
    /* The algorithm "engine", after the arrival of all ranks. */
    wf_status (*engine)(struct wfi_run *run);
    /* "send" and "recv", after both ranks have exchanged their calls. */
    wf_status (*pass)(struct wfi_memory *m, const wfi_operation *operation);
    /* The rank of the oldest request that `done` counts; -1: unknown. */
    int32_t (*awaited)(const struct wfi_memory *m, const wfi_shared_epoch *done);
} wfi_message_ops;

typedef struct wfi_memory {
    wf_group *group;
    wfi_group_segment *segment;
    size_t segment_bytes;
    wfi_group_channel *channels; /* [from][to] */
    uint64_t epoch;              /* arrivals of this rank */
    int32_t n_spins, n_yields;
    size_t cache_bytes; /* of the last level */
    char *window;       /* own; NULL: not allocated yet */
    void *staging;      /* pairwise's, or NULL */
    size_t staging_bytes;
    struct wfi_run_buffers *of;      /* [n] of the running operation */
    void *own;                       /* of the wire */
    bool is_open;                    /* inproc: ranks access each other's buffers directly */
    bool opened_by_all, is_refused;  /* inproc: whether all ranks opened the group */
    const wfi_message_ops *messages; /* NULL: memory is shared */
    const wfi_shared_epoch *moved;   /* [2] counts of requests received and sent, or NULL */
    /* The handle of a range of this rank's memory; WFI_HANDLE_NONE: others cannot access it. */
    wfi_handle (*find)(struct wfi_memory *m, const void *data, size_t bytes);
    /* The address of another rank's handle in this process. */
    wf_status (*resolve)(struct wfi_memory *m, int32_t rank, wfi_handle handle, char **data_out);
} wfi_memory;

static inline wfi_group_channel *wfi_memory_channel(const wfi_memory *m, int32_t from, int32_t to) {
    return &m->channels[from * m->group->n + to];
}

size_t wfi_segment_bytes(int32_t n);
wf_status wfi_memory_create(wf_group *group, wfi_group_segment *segment, wfi_memory **memory_out);
/* Marks this rank as having left. Returns whether it is the last. */
bool wfi_memory_leave(wfi_memory *m);
void wfi_memory_destroy(wfi_memory *m);
/* Private memory of a process, for wires on which other ranks do not access it. */
wf_status wfi_memory_alloc(wf_group *group, size_t bytes, void **block_out);
void wfi_memory_free(wf_group *group, void *block);

/* ---- arrive.c ---- */

/* Counts an arrival of this rank and publishes its message. */
wf_status wfi_memory_arrive(wfi_memory *m, const uint64_t *message, int32_t n_words);
/* Returns when all ranks have arrived as often. Errors: REMOTE, TIMEOUT: the message names the
 * missing ranks; they become the group's failure. */
wf_status wfi_memory_wait(wfi_memory *m);
static inline const uint64_t *wfi_memory_message(const wfi_memory *m, int32_t rank) {
    return m->segment->members[rank].arrival[m->epoch & 1].message;
}
/* One deadline for several waits in a row, and the time of the next warning. The deadline begins
 * with the first sleep. Initially zero. */
typedef struct wfi_memory_deadline {
    bool has_begun;
    wfi_wait_clock clock;
    int64_t due_ms;
} wfi_memory_deadline;
/* Waits until the counter `e` of another rank reaches `value`. */
wf_status wfi_memory_wait_for(wfi_memory *m, wfi_shared_epoch *e, uint64_t value, int32_t rank,
                              wfi_memory_deadline *deadline);
/* Makes the failure the group's. */
wf_status wfi_memory_fail(wfi_memory *m, wf_status status);
/* Fails with REMOTE: this rank and the other call different operations. */
wf_status wfi_memory_mismatch(const wfi_memory *m, int32_t other);
/* Fails with REMOTE: that rank has left or died. */
wf_status wfi_memory_lost(wfi_memory *m, int32_t rank);
/* Returns the group's failure in this thread's context. */
wf_status wfi_memory_check(wfi_memory *m);
/* Around accesses of other ranks' buffers. A rank whose call fails waits until no other rank
 * accesses its buffers, then returns them to the caller. Errors: the group's failure; no buffer may
 * be accessed then. */
wf_status wfi_memory_touch(wfi_memory *m);
void wfi_memory_let_go(wfi_memory *m);

/* ---- run.c, pass.c ---- */

wf_status wfi_memory_run(wf_group *group, const wfi_operation *operation);
wf_status wfi_memory_pass(wf_group *group, const wfi_operation *operation);

/* window.c: four parts of WFI_WINDOW_BYTES: IN, OUT, and two for WORK, as its elements may have
 * twice the size. */
#define WFI_WINDOW_BYTES ((size_t)512 << 10)
wf_status wfi_memory_make_window(wfi_memory *m);
/* The part's address in another rank's window or in the own one. */
wf_status wfi_memory_window(wfi_memory *m, int32_t rank, wfi_window part, char **data_out);
