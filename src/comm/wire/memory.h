/* What a group's ranks share, and how they wait for each other. Private.
 *
 * A group shares a segment. In it each rank counts how often it has arrived, and beside the count
 * leaves what it came for: the operation's fingerprint and where its buffers lie. So comparing
 * costs no message of its own. Two counts take turns: a rank that is ahead by one arrival does not
 * write over what others still read, and it cannot be ahead by two.
 *
 * A buffer that the others cannot see, or that has to outlive being overwritten, goes through a
 * window of bounded size, chunk by chunk.
 *
 * Ranks that share no memory (wire `mpi`) have a copy each of the segment, which the transport
 * keeps; what a phase reads of others is sent to them before (wfi_message_ops).
 */
#ifndef WFI_WIRE_MEMORY_H
#define WFI_WIRE_MEMORY_H

#include "base/clock.h"
#include "comm/group/group.h"

#define WFI_GROUP_BLOCKS 256 /* of memory that one rank shares */

/* Where something lies, for all ranks: inproc: an address; shm: block and offset. */
typedef uint64_t wfi_handle;
#define WFI_HANDLE_NONE UINT64_MAX

enum { WFI_SAYS_FINGERPRINT, WFI_SAYS_IN, WFI_SAYS_OUT };

/* shm: what one rank shares. */
typedef struct wfi_shared_block {
    uint64_t bytes;
    uint32_t serial; /* changes with every block that takes this place */
    int32_t fd;
} wfi_shared_block;

/* One rank's part of the segment. Only that rank writes it. */
typedef struct wfi_member {
    wfi_shared_epoch arrival[2];
    wfi_call call;     /* what it does */
    wfi_handle window; /* atomic access; 0: none yet */
    int32_t has_left;  /* atomic access */
    int32_t touches;   /* atomic access: is in others' buffers (wfi_memory_touch) */
    wfi_shared_block blocks[WFI_GROUP_BLOCKS];
} __attribute__((aligned(64))) wfi_member;

/* What one rank sends to one other. */
typedef struct wfi_channel {
    wfi_shared_epoch sent, received; /* chunks */
} wfi_channel;

typedef struct wfi_segment {
    wfi_failure failure;
    int32_t n_left; /* atomic access */
    wfi_member members[];
} wfi_segment;

struct wfi_run;
struct wfi_run_buffers;
struct wfi_memory;

/* What shared memory does by itself, and others by messages. */
typedef struct wfi_message_ops {
    /* Says to the others' copies what this rank's part of the own one has become. */
    wf_status (*tell_arrival)(struct wfi_memory *m);
    wf_status (*tell_channel)(struct wfi_memory *m, int32_t rank, bool is_sender);
    void (*tell_failure)(struct wfi_memory *m);
    /* Around the steps of a phase: brings what they read of others, and what others read of us. */
    wf_status (*begin)(struct wfi_run *run, const wfi_reduce_step *steps, int32_t n_steps);
    wf_status (*end)(struct wfi_run *run);
    /* Where an element of another rank is that has been brought. */
    char *(*find)(const struct wfi_run *run, int32_t rank, wfi_window which, int64_t at);
    /* The algorithm "engine", after all have come. */
    wf_status (*engine)(struct wfi_run *run);
    /* "send" and "recv", when both know of each other. */
    wf_status (*pass)(struct wfi_memory *m, const wfi_operation *operation);
    /* Of the requests that are counted there, whose is the next; -1: unknown. */
    int32_t (*awaited)(const struct wfi_memory *m, const wfi_shared_epoch *done);
} wfi_message_ops;

typedef struct wfi_memory {
    wf_group *group;
    wfi_segment *segment;
    size_t segment_bytes;
    wfi_channel *channels; /* [from][to] */
    uint64_t epoch;        /* how often this rank has arrived */
    int32_t n_spins, n_yields;
    size_t cache_bytes; /* of the last level */
    char *window;       /* own, NULL: not made yet */
    void *staging;      /* pairwise's, or NULL */
    size_t staging_bytes;
    struct wfi_run_buffers *of;      /* [n] of the operation that runs */
    void *own;                       /* of the wire */
    bool is_open;                    /* ranks use each other's buffers where those lie (inproc) */
    bool opened_by_all, is_refused;  /* inproc: what all know of the group's making */
    const wfi_message_ops *messages; /* NULL: memory is shared */
    const wfi_shared_epoch *moved;   /* [2] counts of requests received and sent, or NULL */
    /* The handle of a range of this rank's memory; WFI_HANDLE_NONE: others cannot see it. */
    wfi_handle (*find)(struct wfi_memory *m, const void *data, size_t bytes);
    /* Where another rank's handle lies for us. */
    wf_status (*resolve)(struct wfi_memory *m, int32_t rank, wfi_handle handle, char **data_out);
} wfi_memory;

size_t wfi_segment_bytes(int32_t n);
wf_status wfi_memory_create(wf_group *group, wfi_segment *segment, wfi_memory **memory_out);
/* Says that this rank has left. Returns whether it is the last. */
bool wfi_memory_leave(wfi_memory *m);
void wfi_memory_destroy(wfi_memory *m);
/* Memory of a process alone, as wires have it on which others need not see it. */
wf_status wfi_memory_alloc(wf_group *group, size_t bytes, void **block_out);
void wfi_memory_free(wf_group *group, void *block);

/* ---- arrive.c ---- */

/* Says that this rank has come once more, and for what. */
wf_status wfi_memory_arrive(wfi_memory *m, const uint64_t *says, int32_t n_says);
/* Returns when all have come as often. Errors: REMOTE, TIMEOUT: the sentence names who did not
 * come; they become the group's. */
wf_status wfi_memory_wait(wfi_memory *m);
static inline const uint64_t *wfi_memory_says(const wfi_memory *m, int32_t rank) {
    return m->segment->members[rank].arrival[m->epoch & 1].says;
}
/* One deadline, for however many ranks are awaited one after the other; and when the next line
 * about it is due. It begins when somebody has to be slept for. Zero at first. */
typedef struct wfi_memory_deadline {
    bool has_begun;
    wfi_wait_clock clock;
    int64_t due_ms;
} wfi_memory_deadline;
/* Waits for one count of another rank. */
wf_status wfi_memory_wait_for(wfi_memory *m, wfi_shared_epoch *e, uint64_t value, int32_t rank,
                              wfi_memory_deadline *deadline);
/* The failure becomes the group's. */
wf_status wfi_memory_fail(wfi_memory *m, wf_status status);
/* REMOTE: that rank has left or died. */
wf_status wfi_memory_lost(wfi_memory *m, int32_t rank);
/* The group's failure, as this thread's. */
wf_status wfi_memory_check(wfi_memory *m);
/* Around what reads or writes other ranks' buffers: a rank whose call fails gives its own back to
 * the caller when nobody is in them any more. Errors: the group's failure; nothing may be touched.
 */
wf_status wfi_memory_touch(wfi_memory *m);
void wfi_memory_let_go(wfi_memory *m);

/* ---- run.c, pass.c ---- */

wf_status wfi_memory_run(wf_group *group, const wfi_operation *operation);
wf_status wfi_memory_pass(wf_group *group, const wfi_operation *operation);

/* window.c: four parts of WFI_WINDOW_BYTES: IN, OUT, and WORK, whose elements may be twice as
 * large. */
#define WFI_WINDOW_BYTES ((size_t)512 << 10)
wf_status wfi_memory_make_window(wfi_memory *m);
/* Another rank's, or the own one. */
wf_status wfi_memory_window(wfi_memory *m, int32_t rank, wfi_window part, char **data_out);

#endif
