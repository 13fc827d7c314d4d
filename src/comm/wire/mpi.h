/* A group of ranks that share no memory. Private to mpi.c, mpi_letters.c and mpi_engine.c. */
#ifndef WFI_WIRE_MPI_H
#define WFI_WIRE_MPI_H

#include "comm/courier/courier.h"
#include "comm/wire/run.h"

/* What a phase reads of another rank, and where it has been brought. */
typedef struct wfi_brought {
    int32_t rank;
    wfi_window in;
    int64_t begin, end;
    size_t elem_bytes;
    char *data;
} wfi_brought;

typedef struct wfi_mpi_group {
    wfi_courier *courier;
    wfi_courier_group known; /* as the courier knows it */
    int32_t slot;
    bool has_entered, has_told; /* the failure */
    bool is_torn;               /* something is still under way */
    wfi_letter *letters;        /* of the phase */
    int32_t n_letters;
    size_t letter_capacity;
    wfi_brought *brought;
    int32_t n_brought;
    size_t brought_capacity;
    wfi_reduce_step *steps; /* [n + 1] of another rank, in a phase */
    uint64_t n_posted[2];   /* received, sent: ever */
    char *landing; /* where reads land that are summed; of no context: it may outlive one */
    size_t landing_bytes;
} wfi_mpi_group;

static inline wfi_mpi_group *wfi_mpi_of(const wfi_memory *m) {
    return m->own;
}

/* The letters: see wfi_carriage. */
wf_status wfi_mpi_begin(wfi_run *run, const wfi_reduce_step *steps, int32_t n_steps);
wf_status wfi_mpi_end(wfi_run *run);
char *wfi_mpi_find(const wfi_run *run, int32_t rank, wfi_window which, int64_t at);
wf_status wfi_mpi_pass(wfi_memory *m, const wfi_operation *operation);
/* After all have come; of an all-reduce. */
wf_status wfi_mpi_engine(wfi_run *run);
int32_t wfi_mpi_awaited(const wfi_memory *m, const wfi_shared_epoch *done);

/* Of the next call of post; and waits until all of a kind, WFI_LETTERS_*, are done. */
wf_status wfi_mpi_put(wfi_memory *m, wfi_letter letter);
void wfi_mpi_post(wfi_mpi_group *g);
wf_status wfi_mpi_wait(wfi_memory *m, int which);
wf_status wfi_mpi_grow_landing(wfi_memory *m, size_t bytes);

/* When all ranks of the job make a group that sums by it. */
wf_status wfi_mpi_open_engine(wfi_memory *m);

#endif
