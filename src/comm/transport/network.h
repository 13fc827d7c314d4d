/* Messages of bytes between the processes of a job: what a network has to bring. Private.
 *
 * The progress thread alone makes all calls. Nothing here waits: a message is under way until
 * `test` says that it is done. Messages of one tag between two processes arrive in the order in
 * which they were sent, and match receives in the order in which those were posted.
 *
 *     mpi_network.c      by an MPI library that is found at run time
 *     tests/             between threads of one process
 */
#ifndef WFI_NETWORK_H
#define WFI_NETWORK_H

#include "base/base.h"

#include <weft/group.h>

/* What is under way, in the network's own words. */
typedef union wfi_network_handle {
    void *pointer;
    int number;
} wfi_network_handle;

/* The most bytes of one message. */
#define WFI_NETWORK_BYTES ((size_t)256 << 20)

/* An all-reduce by what the network brings; `in` NULL: in place. */
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
    /* A descriptor by which ranks that go another way find this one until the network has started,
     * and the first that has, or -1. */
    int seen;
    int (*refused_by)(int seen);
    /* Waits until all have come. Sentences are `ctx`'s from here on. */
    wf_status (*start)(void *self, wf_context *ctx, int *rank_out, int *n_ranks_out);
    wf_status (*send)(void *self, int to, int tag, const void *data, size_t bytes,
                      wfi_network_handle *handle_out);
    wf_status (*receive)(void *self, int from, int tag, void *data, size_t bytes,
                         wfi_network_handle *handle_out);
    wf_status (*test)(void *self, wfi_network_handle *handle, bool *done_out);
    /* Asks that a message ends undelivered; `test` says when it has ended. What is sent may stay
     * under way nevertheless. */
    void (*cancel)(void *self, wfi_network_handle *handle);
    /* NULL: the network has no sums. All processes open the same engines (by number) in the same
     * order, once, and call the same sums of each; `test` says when they are done. */
    wf_status (*open_engine)(void *self, int engine, wfi_network_handle *handle_out);
    wf_status (*sum)(void *self, int engine, const wfi_network_sum *sum,
                     wfi_network_handle *handle_out);
    /* The last call, also after a start that failed. `is_clean`: all processes are about to make
     * it, and nothing is under way. */
    void (*finish)(void *self, bool is_clean);
} wfi_network;

#endif
