/* A group of ranks that share no memory. Private to mpi.c, mpi_phase.c and mpi_engine.c. */
#pragma once

#include "comm/transport/transport.h"
#include "comm/wire/run.h"

/* A range that a phase reads from another rank, and the address where it is received. */
typedef struct wfi_brought {
    int32_t rank;
    wfi_window in;
    int64_t begin, end;
    size_t elem_bytes;
    char *data;
} wfi_brought;

typedef struct wfi_mpi_group {
    wfi_transport *transport;
    wfi_transport_group known; /* the transport's view of the group */
    int32_t slot;
    bool has_sent_failure; /* whether the failure was sent */
    bool is_torn;          /* a message is still under way */
    wfi_brought *brought;
    int32_t n_brought;
    size_t brought_capacity;
    wfi_reduce_step *steps; /* [n + 1] of another rank in a phase */
    wfi_bounce *bounce;     /* of the slot */
} wfi_mpi_group;

static inline wfi_mpi_group *wfi_mpi_of(const wfi_memory *m) {
    return m->own;
}

/* See wfi_message_ops. */
wf_status wfi_mpi_begin(wfi_run *run, const wfi_reduce_step *steps, int32_t n_steps);
wf_status wfi_mpi_end(wfi_run *run);
char *wfi_mpi_find(const wfi_run *run, int32_t rank, wfi_window which, int64_t at);
wf_status wfi_mpi_pass(wfi_memory *m, const wfi_operation *operation);
/* An all-reduce inside MPI, after the arrival of all ranks. */
wf_status wfi_mpi_engine(wfi_run *run);
int32_t wfi_mpi_awaited(const wfi_memory *m, const wfi_shared_epoch *done);

/* Waits until all requests of that queue are done. */
wf_status wfi_mpi_wait(wfi_memory *m, int which);
wf_status wfi_mpi_grow_bounce(wfi_memory *m, size_t bytes);

/* Opens the engine; called when all ranks of the job create a group with this algorithm. */
wf_status wfi_mpi_open_engine(wfi_memory *m);
