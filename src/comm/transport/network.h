/* The interface of a network: messages of bytes between the processes of a job. Private.
 *
 * Only the progress thread calls these functions. None of them blocks: a message is under way until
 * `test` reports its completion. Messages of one tag between two processes arrive in the order of
 * their sends and match receives in the order of their posting.
 *
 *     mpi_network.c      over an MPI library that is found at run time
 *     tests/             between threads of one process
 */
#pragma once

#include "base/base.h"

#include <weft/group.h>

/* The network's own handle of an operation that is under way. */
typedef union wfi_network_handle {
    void *pointer;
    int number;
} wfi_network_handle;

/* The limit of one message's size. */
#define WFI_NETWORK_BYTES ((size_t)256 << 20)

/* The network's own all-reduce; `in` NULL: in place. */
typedef struct wfi_network_sum {
    const void *in;
    void *out;
    int n_elem;
    wf_dtype dtype;  /* not BF16 */
    wf_reduction op; /* MEAN: the sum */
} wfi_network_sum;
#define WFI_NETWORK_ENGINES 448

typedef struct wfi_network {
    const char *name;
    void *self;
    /* `seen`: a descriptor through which ranks that join by shared memory find this rank until the
     * network has started, or -1. `refused_by`: the first such rank, or -1. */
    int seen;
    int (*refused_by)(int seen);
    /* Waits until all ranks have joined. From here on errors are reported in `ctx`. */
    wf_status (*start)(void *self, wf_context *ctx, int *rank_out, int *n_ranks_out);
    wf_status (*send)(void *self, int to, int tag, const void *data, size_t bytes,
                      wfi_network_handle *handle_out);
    wf_status (*receive)(void *self, int from, int tag, void *data, size_t bytes,
                         wfi_network_handle *handle_out);
    wf_status (*test)(void *self, wfi_network_handle *handle, bool *done_out);
    /* Requests the cancellation of a message; `test` reports its end. A send may stay under way
     * nevertheless. */
    void (*cancel)(void *self, wfi_network_handle *handle);
    /* NULL: the network has no all-reduce. All processes open the same engines (by number) once and
     * in the same order, and call the same sums on each; `test` reports completion. */
    wf_status (*open_engine)(void *self, int engine, wfi_network_handle *handle_out);
    wf_status (*sum)(void *self, int engine, const wfi_network_sum *sum,
                     wfi_network_handle *handle_out);
    /* The last call, also after a failed start. `is_clean`: all processes are about to make this
     * call and nothing is under way. */
    void (*finish)(void *self, bool is_clean);
} wfi_network;
