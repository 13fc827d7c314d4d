/* The courier: for processes that share no memory, a thread of each that carries what the
 * segment and the arenas would have shown the others. Private.
 *
 * It makes all calls of the mail and sleeps between them. Orders are given by the host's thread
 * and return at once:
 *
 *   state      what this rank says of itself (wfi_control_rank), to all; comes to the others'
 *              copies, as failures do
 *   promises   "when stream s here has done n tasks, rank r is told": every process issues the
 *              whole program, so the owner of a stream knows who waits for it
 *   parcels    bytes of an arena, sent when they are ready: as soon as the local streams have
 *              done what the reader has waited for. Both sides give their orders in the
 *              program's order, and that says which parcel is which
 *   words      what a group's rank says to another: heard in the order in which they were said
 *   letters    bytes of a group's collectives, straight from buffer to buffer
 */
#ifndef WFI_COURIER_H
#define WFI_COURIER_H

#include "comm/job/control.h"

typedef struct wfi_courier wfi_courier;

typedef struct wfi_courier_config {
    int rank, n_ranks;
    int64_t timeout_ms;
    wfi_failure *failure;    /* this process's copy: watched, and told to all */
    wfi_control_rank *ranks; /* [n_ranks] this process's copies; its own streams count in its own */
    wfi_mail mail;           /* is the courier's from here on */
} wfi_courier_config;

/* Returns when the mail has started: all have come. Errors: TIMEOUT, INVALID_ARG (MPI counts other
 * ranks), those of the mail. */
wf_status wfi_courier_create(wf_context *ctx, const wfi_courier_config *config,
                             wfi_courier **courier_out);
/* Waits until the others leave as well; after a failure only for a while. False: something is still
 * under way, and keeps its memory. */
bool wfi_courier_destroy(wfi_courier *courier);

/* This rank's words, as they are now, to all. */
void wfi_courier_publish(wfi_courier *courier);
/* The trainer's streams count anew, here and at the others: between two meetings. */
wf_status wfi_courier_reset(wfi_courier *courier, int trainer);
/* Tells `rank` (-1: all) when the trainer's local stream has done so many tasks. */
wf_status wfi_courier_promise(wfi_courier *courier, int rank, int trainer, int stream,
                              uint64_t epoch);

/* Streams of parcels: the tasks of that stream of the reader need them; HOST: nobody's. */
#define WFI_COURIER_HOST    WFI_CONTROL_STREAMS
#define WFI_COURIER_STREAMS (WFI_CONTROL_STREAMS + 1)

/* For whom bytes are, and when they are ready. */
typedef struct wfi_parcel {
    int to, trainer, stream; /* a task of that rank's stream of the trainer ... */
    uint64_t epoch;          /* ... its epoch-th */
    const uint64_t *need;    /* [WFI_CONTROL_STREAMS] tasks of the local streams; NULL: ready now */
} wfi_parcel;

/* Sends bytes once they are ready. They stay as they are until that task is done. */
wf_status wfi_courier_send(wfi_courier *courier, const wfi_parcel *parcel, const void *data,
                           size_t bytes);
/* Receives the bytes of the sender's next order that is for this rank. */
wf_status wfi_courier_receive(wfi_courier *courier, int from, int stream, void *data, size_t bytes);
/* Waits until all that was received and sent for the HOST has come and gone. Errors: TIMEOUT, or
 * the failure of another. */
wf_status wfi_courier_flush(wfi_courier *courier);
/* The event of all parcels that were ordered for that local stream so far. */
wfi_event wfi_courier_arrival(const wfi_courier *courier, int stream);

/* ---- groups: letters.c ---- */

#define WFI_COURIER_WORD_BYTES (WFI_SENTENCE_BYTES + 256)
#define WFI_COURIER_SLOTS      WFI_MAIL_ENGINES /* groups that a process can be in at once */

enum { WFI_LETTERS_RECEIVED, WFI_LETTERS_SENT };

/* A group, as the courier knows it. */
typedef struct wfi_courier_group {
    struct wfi_courier_group *next;
    uint64_t serial; /* the same on all of its ranks, and no other group's */
    /* On the courier's thread: rank `rank` of the job has said so. */
    void (*hear)(void *self, int rank, const void *word);
    void *self;
    wfi_shared_epoch done[2]; /* letters received and sent so far */
    bool is_recalled;         /* atomic access */
} wfi_courier_group;

typedef enum wfi_letter_kind {
    WFI_LETTER_RECEIVE,
    WFI_LETTER_SEND,
    WFI_LETTER_ENGINE, /* opens the network's own sums, counted as received */
    WFI_LETTER_SUM     /* one of them */
} wfi_letter_kind;

/* One message of a group's: stays where it is until it is counted as done. */
typedef struct wfi_letter {
    struct wfi_letter *next;
    wfi_courier_group *group;
    wfi_letter_kind kind;
    int peer, tag; /* of the job; from WFI_MAIL_PARCELS + 1 on. Sums: -1 and the engine */
    bool is_under_way, is_asked;
    bool is_done; /* atomic access */
    void *data;
    size_t bytes;
    wfi_mail_sum sum;
    wfi_mail_ticket ticket;
} wfi_letter;

/* Places that this process's groups have taken: one bit each. Each gives tags of its own. */
typedef struct wfi_courier_slots {
    uint64_t taken[WFI_COURIER_SLOTS / 64];
    uint64_t engines[WFI_COURIER_SLOTS / 64]; /* those that have opened one */
    uint64_t n_groups;                        /* ever made */
} wfi_courier_slots;
wfi_courier_slots *wfi_courier_slots_of(wfi_courier *courier);

/* Whether the network has sums of its own. */
bool wfi_courier_has_engine(const wfi_courier *courier);

/* From here on, until it departs, the group hears words. */
void wfi_courier_enter(wfi_courier *courier, wfi_courier_group *group);
void wfi_courier_depart(wfi_courier *courier, wfi_courier_group *group);
/* Says it to rank `to` of the job, if it is in a group of that serial. */
wf_status wfi_courier_say(wfi_courier *courier, uint64_t serial, int to, const void *word,
                          size_t bytes);
/* Letters of one tag between two ranks meet in the order in which they are posted. */
void wfi_courier_post(wfi_courier *courier, wfi_letter *letters, int32_t n);
/* Ends all letters of the group, if they can be within a moment. False: one that was sent is
 * still under way, so its bytes have to stay. */
bool wfi_courier_recall(wfi_courier *courier, wfi_courier_group *group);
/* Memory of malloc's, which is freed when nothing is under way any more. */
void wfi_courier_keep(wfi_courier *courier, void *block);
/* While somebody is in a collective, the courier looks without sleeping, for a while. */
void wfi_courier_hurry(wfi_courier *courier, bool begins);

#endif
