/* The parts of a group. Private.
 *
 *     group.c         creating, splitting and destroying groups
 *     calls.c         the public collectives: checks
 *     operation.c     the fingerprint of a call for the consistency check
 *     work.c          calls that return before they complete
 *     wire/           how bytes get from rank to rank
 */
#pragma once

#include "comm/group/operation.h"
#include "comm/job/control.h"

typedef struct wfi_wire wfi_wire;
typedef struct wfi_works wfi_works;

struct wf_group {
    wf_context *ctx;
    wfi_pool pool; /* of the arrays */
    wf_job *job;
    int32_t rank, n;
    int32_t *job_rank;      /* [n] */
    wfi_reduce_step *steps; /* [n + 1] of a phase */
    /* [n] Memory for creating this group and splitting it, allocated before any rank waits for
     * another. Otherwise a rank without memory would leave the others waiting for its message. */
    wfi_control_numbers *cards;
    int32_t *place;

    const wfi_allreduce *how; /* "auto": selected for each call */
    int32_t n_roots;
    int64_t timeout_ms, stall_ms; /* deadline of every wait; time before a warning, 0: none */

    const wfi_wire *wire;
    void *state; /* owned by the wire */

    const char *site;      /* of the next call */
    uint64_t n_calls;      /* collectives so far */
    wf_traffic traffic;    /* atomic access: the works' thread adds, too */
    wfi_operation counted; /* the operation that counted_traffic belongs to */
    wf_traffic counted_traffic;
    wfi_works *works; /* NULL before the first work */
};

/* The algorithm of a sum of so many bytes. */
const wfi_allreduce *wfi_group_algorithm(const wf_group *group, const wfi_operation *operation,
                                         size_t bytes);
/* This rank's part in an operation, in phase 0. */
wfi_reduce_part wfi_group_part(const wf_group *group, const wfi_operation *operation);
/* Adds the traffic of an operation, or of the chunk that `part` describes. */
void wfi_group_count(wf_group *group, const wfi_operation *operation, const wfi_reduce_part *part);

void wfi_group_add_traffic(wf_group *group, wf_traffic more);

/* Runs one operation now, on the calling thread. */
wf_status wfi_group_run(wf_group *group, wfi_operation *operation);

/* work.c */
/* Queues the operation. */
wf_status wfi_works_add(wf_group *group, const wfi_operation *operation, wf_work **work_out);
/* Waits until all are done. */
void wfi_works_drain(wfi_works *works);
void wfi_works_destroy(wf_group *group);

/* The exchange of messages between ranks while a group is created. */
#define WFI_CARD_BYTES (WFI_CONTROL_NUMBERS * sizeof(int64_t))
typedef struct wfi_bootstrap {
    wf_context *ctx;
    /* Gathers WFI_CARD_BYTES of each into all[rank]; collective. */
    wf_status (*all_gather)(void *self, const void *own, void *all);
    void *self;
    int32_t *place;           /* the index in `all` of rank k of the new group */
    wfi_control_numbers *all; /* the messages; both arrays belong to a group */
} wfi_bootstrap;

/* ---- wires ---- */

struct wfi_wire {
    const char *name;
    bool pushes; /* a rank can write others' memory */
    /* Whether it reaches all ranks of the group. */
    bool (*reaches)(const wf_group *group);
    /* The reason why it has no engine, or NULL: it has one. No function: no group of this wire has
     * one. */
    const char *(*no_engine)(const wf_group *group);
    /* Collective: creates the group's shared memory with exactly one all-gather, also on failure.
     */
    wf_status (*open)(wf_group *group, wfi_bootstrap *bootstrap);
    /* Called after all ranks have called `open`; `by_all`: all succeeded. NULL: not needed. */
    void (*opened)(wf_group *group, bool by_all);
    /* Not collective. */
    void (*close)(wf_group *group);
    wf_status (*alloc)(wf_group *group, size_t bytes, void **block_out);
    void (*free)(wf_group *group, void *block);
    /* Runs the consistency check of the operation, then the operation. */
    wf_status (*run)(wf_group *group, const wfi_operation *operation);
    /* "send" and "recv". */
    wf_status (*pass)(wf_group *group, const wfi_operation *operation);
};

/* In order of preference, NULL-terminated. */
extern const wfi_wire *const wfi_wires[];
extern const wfi_wire wfi_wire_inproc, wfi_wire_shm, wfi_wire_mpi;
