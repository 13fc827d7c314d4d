/* What a group consists of. Private.
 *
 *     group.c         making, splitting and ending one
 *     calls.c         the collectives as callers see them: checks
 *     operation.c     what is compared
 *     work.c          calls that do not wait
 *     wire/           how bytes get from rank to rank
 */
#ifndef WFI_GROUP_H
#define WFI_GROUP_H

#include "comm/group/operation.h"
#include "comm/job/control.h"

typedef struct wfi_wire wfi_wire;
typedef struct wfi_works wfi_works;

struct wf_group {
    wf_context *ctx;
    wf_job *job;
    int32_t rank, n;
    int32_t *job_rank;      /* [n] */
    wfi_reduce_step *steps; /* [n + 1] of a phase */
    /* [n] What making this group needs, and a split of it: had before any rank waits for another,
     * so that none is without memory while the others wait for what it has to say. */
    wfi_control_numbers *cards;
    int32_t *place;

    const wfi_allreduce *how; /* "auto": the table decides */
    int32_t n_roots;
    int64_t timeout_ms, stall_ms; /* of every wait; after which it is told; 0: never */

    const wfi_wire *wire;
    void *state; /* the wire's */

    const char *site;      /* of the next call */
    uint64_t n_calls;      /* collectives so far */
    wf_traffic traffic;    /* atomic access: the works' thread adds, too */
    wfi_operation counted; /* whose traffic the next line has */
    wf_traffic counted_traffic;
    wfi_works *works; /* NULL before the first */
};

/* What a sum of so many bytes is made by. */
const wfi_allreduce *wfi_group_algorithm(const wf_group *group, const wfi_operation *operation,
                                         size_t bytes);
/* The rank's part in an operation; phase 0. */
wfi_reduce_part wfi_group_part(const wf_group *group, const wfi_operation *operation);
/* Adds what an operation moves, or the chunk of it that the part is. */
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

/* choose.c: what "auto" comes to. */
const wfi_allreduce *wfi_choose(wfi_collective collective, size_t bytes, int32_t n,
                                const char *wire);

/* A group's members, while it is made, tell each other so many bytes. */
#define WFI_CARD_BYTES (WFI_CONTROL_NUMBERS * sizeof(int64_t))
typedef struct wfi_bootstrap {
    wf_context *ctx;
    /* Gathers WFI_CARD_BYTES of each into all[rank]; collective. */
    wf_status (*all_gather)(void *self, const void *own, void *all);
    void *self;
    int32_t *place;           /* where rank k of the new group stands among them; */
    wfi_control_numbers *all; /* and what they told: these two are a group's */
} wfi_bootstrap;

/* ---- wires ---- */

struct wfi_wire {
    const char *name;
    bool pushes; /* a rank can write others' memory */
    /* Whether it reaches all ranks of the group. */
    bool (*reaches)(const wf_group *group);
    /* Why it cannot sum by itself, or NULL: it can. No function: none of its groups can. */
    const char *(*no_engine)(const wf_group *group);
    /* Collective: makes what the group shares, in exactly one all-gather, also if it fails. */
    wf_status (*open)(wf_group *group, wfi_bootstrap *bootstrap);
    /* All have come through open, and whether all of them have opened it; NULL: nothing to do. */
    void (*opened)(wf_group *group, bool by_all);
    /* Not collective. */
    void (*close)(wf_group *group);
    wf_status (*alloc)(wf_group *group, size_t bytes, void **block_out);
    void (*free)(wf_group *group, void *block);
    /* Compares the operation with the others', then does it. */
    wf_status (*run)(wf_group *group, const wfi_operation *operation);
    /* "send" and "recv". */
    wf_status (*pass)(wf_group *group, const wfi_operation *operation);
};

/* From the best on, NULL-terminated. */
extern const wfi_wire *const wfi_wires[];
extern const wfi_wire wfi_wire_inproc, wfi_wire_shm, wfi_wire_mpi;

#endif
