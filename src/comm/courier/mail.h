/* Messages of bytes between the processes of a job: what a network has to bring. Private.
 *
 * One thread, the courier's, makes all calls. Nothing here waits: a message is under way until
 * `test` says that it is done. Messages of one tag between two processes arrive in the order in
 * which they were sent, and meet receives in the order in which those were posted.
 *
 *     wire/mpi_mail.c    by an MPI library that is found at run time
 *     tests/             between threads of one process
 */
#ifndef WFI_MAIL_H
#define WFI_MAIL_H

#include "base/base.h"

#include <weft/group.h>

/* What is under way, in the network's own words. */
typedef union wfi_mail_ticket {
    void *pointer;
    int number;
} wfi_mail_ticket;

/* The most bytes of one message, and the highest tag. Notes have tag 0, parcels those up to
 * WFI_MAIL_PARCELS, groups' letters the ones above. */
#define WFI_MAIL_BYTES   ((size_t)256 << 20)
#define WFI_MAIL_TAG     ((1 << 19) - 1)
#define WFI_MAIL_PARCELS ((1 << 18) - 1)

/* An all-reduce by what the network brings; `in` NULL: in place. */
typedef struct wfi_mail_sum {
    const void *in;
    void *out;
    int n_elem;
    wf_dtype dtype;  /* not BF16 */
    wf_reduction op; /* MEAN: the sum */
} wfi_mail_sum;
#define WFI_MAIL_ENGINES 448

typedef struct wfi_mail {
    const char *name;
    void *self;
    int seen; /* by wfi_rendezvous_by_mpi, until the mail has started; or -1 */
    /* Meets the others; may wait. Sentences are `ctx`'s from here on. */
    wf_status (*start)(void *self, wf_context *ctx, int *rank_out, int *n_ranks_out);
    wf_status (*send)(void *self, int to, int tag, const void *data, size_t bytes,
                      wfi_mail_ticket *ticket_out);
    wf_status (*receive)(void *self, int from, int tag, void *data, size_t bytes,
                         wfi_mail_ticket *ticket_out);
    wf_status (*test)(void *self, wfi_mail_ticket *ticket, bool *done_out);
    /* Asks that a message ends without having been carried; `test` says when it has ended. What is
     * sent may stay under way nevertheless. */
    void (*cancel)(void *self, wfi_mail_ticket *ticket);
    /* NULL: the network has no sums. All processes open the same engines (by number) in the same
     * order, once, and call the same sums of each; `test` says when they are done. */
    wf_status (*open_engine)(void *self, int engine, wfi_mail_ticket *ticket_out);
    wf_status (*sum)(void *self, int engine, const wfi_mail_sum *sum, wfi_mail_ticket *ticket_out);
    /* The last call, also after a start that failed. `together`: all processes are about to make
     * it, and nothing is under way. */
    void (*finish)(void *self, bool together);
} wfi_mail;

#endif
