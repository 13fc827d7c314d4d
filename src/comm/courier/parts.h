/* The courier's insides. Private. */
#ifndef WFI_COURIER_PARTS_H
#define WFI_COURIER_PARTS_H

#include "comm/courier/courier.h"

#include <pthread.h>

/* ---- notes: what couriers tell each other ---- */

typedef enum wfi_courier_note_kind {
    WFI_NOTE_STATE,
    WFI_NOTE_EPOCHS,
    WFI_NOTE_FAILURE,
    WFI_NOTE_WORD,
    WFI_NOTE_BYE
} wfi_courier_note_kind;

/* What a rank says of itself: the same fields as in wfi_control_rank. */
typedef struct wfi_courier_state {
    uint64_t n_meetings, n_runs, run[2], host;
    int64_t numbers[2][WFI_CONTROL_NUMBERS];
    int64_t pid;
    int32_t stop[2];
    int64_t not_finite[2];
    char doing[WFI_CONTROL_DOING], purpose[2][WFI_CONTROL_DOING];
    struct {
        uint64_t peak_bytes, mirror_bytes, arena_bytes;
    } parts[WFI_CONTROL_TRAINERS];
} wfi_courier_state;

typedef struct wfi_courier_note {
    uint32_t magic;
    uint32_t kind;
    union {
        wfi_courier_state state;
        struct {
            uint64_t trainer, generation;
            uint64_t epochs[WFI_CONTROL_STREAMS];
        } streams;
        struct {
            int32_t status;
            char sentence[WFI_SENTENCE_BYTES];
        } failure;
        struct {
            uint64_t serial, n_bytes;
            char bytes[WFI_COURIER_WORD_BYTES];
        } word;
    };
} wfi_courier_note;

typedef struct wfi_courier_sent {
    struct wfi_courier_sent *next;
    wfi_mail_ticket ticket;
    wfi_courier_note note;
} wfi_courier_sent;

/* ---- orders ---- */

typedef enum wfi_order_kind {
    WFI_ORDER_SEND,
    WFI_ORDER_RECEIVE,
    WFI_ORDER_PROMISE,
    WFI_ORDER_RESET,
    WFI_ORDER_WORD
} wfi_order_kind;

typedef struct wfi_order {
    struct wfi_order *next;
    wfi_order_kind kind;
    int peer, trainer, stream, tag;
    uint64_t epoch;
    uint64_t need[WFI_CONTROL_STREAMS];
    char *data;
    size_t bytes;
    wfi_mail_ticket ticket;
    bool is_under_way;
    wfi_courier_sent *word;
} wfi_order;

typedef struct wfi_order_list {
    wfi_order *first, *last;
} wfi_order_list;

/* Memory that may still be read or written. */
typedef struct wfi_courier_kept {
    struct wfi_courier_kept *next;
    void *block;
} wfi_courier_kept;

/* What the courier has with one other rank for one trainer. */
typedef struct wfi_peer_part {
    wfi_order_list promises[WFI_CONTROL_STREAMS]; /* by epoch */
    uint64_t told[WFI_CONTROL_STREAMS];           /* of our streams */
    uint64_t heard[WFI_CONTROL_STREAMS];          /* of its streams */
} wfi_peer_part;

/* What the courier has with one other rank. Trainers run one after the other, and no parcel of a
 * run is under way when it is over. */
typedef struct wfi_peer {
    wfi_courier_note incoming;
    wfi_mail_ticket ticket; /* of the receive that waits for the next note */
    bool listens;
    wfi_courier_sent *notes_first, *notes_last;  /* under way */
    wfi_order_list parcels[WFI_COURIER_STREAMS]; /* for its streams; the oldest first */
    wfi_peer_part parts[WFI_CONTROL_TRAINERS];
    bool knows_failure, has_left;
    bool is_gone;                /* has left, and nothing of its is still to be shown */
    uint32_t n_sent, n_received; /* parcels ever ordered: their tags; the host's thread only */
} wfi_peer;

struct wfi_courier {
    wf_context *ctx; /* the host's */
    wf_context *own; /* the thread's, with all of its memory: it may outlive the other */
    wfi_courier_config config;
    wfi_peer *peers;                              /* [n_ranks] */
    wfi_order_list arrivals[WFI_COURIER_STREAMS]; /* parcels that are awaited */
    wfi_shared_epoch arrived[WFI_COURIER_STREAMS];
    int awaited_from[WFI_COURIER_STREAMS]; /* whose parcel is the next; atomic access */
    int64_t n_host_sends;                  /* not gone yet; atomic access */
    wfi_device *device;                    /* whose streams are those counters */
    wfi_stream_queue *streams[WFI_COURIER_STREAMS];
    uint64_t generation[WFI_CONTROL_TRAINERS]; /* grows when a trainer's streams count anew */
    int n_parts;     /* trainers whose streams have ever counted: those before it */
    bool is_broken;  /* the mail has failed */
    bool is_leaving; /* has said farewell: the last note */

    /* letters.c */
    pthread_mutex_t groups_lock; /* of the groups and of their letters */
    wfi_courier_group *groups;
    wfi_letter *letters, *letters_last; /* under way */
    wfi_letter *lost;                   /* under way, and nobody waits for them any more */
    wfi_courier_kept *kept;
    int n_hurried;           /* atomic access: collectives that somebody is in */
    wfi_courier_slots slots; /* the host's */

    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    wfi_order_list orders, unused;
    wfi_letter *posted, *posted_last; /* not under way yet */
    wfi_courier_state state;
    bool is_state_due, ends, is_started, is_given_up, sleeps;
    wf_status start_status;
    char start_sentence[WFI_SENTENCE_BYTES];
    bool is_clean; /* of the thread that has ended: nothing was left under way */
};

/* orders.c */
void wfi_order_put(wfi_order_list *list, wfi_order *order);
wfi_order *wfi_order_take(wfi_order_list *list); /* NULL: empty */
/* Back among the unused. */
void wfi_courier_reuse(wfi_courier *c, wfi_order *order);
void wfi_courier_free_orders(wfi_courier *c, wfi_order_list *list);
/* The mail has failed: everybody's failure, and nothing more is sent. */
void wfi_courier_break(wfi_courier *c, wf_status status);

/* Looks, if it sleeps. With the lock. */
void wfi_courier_wake(wfi_courier *c);
/* An order of the host's. */
wf_status wfi_courier_give(wfi_courier *c, const wfi_order *what);

/* notes.c; each returns whether anything happened. */
bool wfi_courier_tell_sent(wfi_courier *c, int peer, wfi_courier_sent *sent);
bool wfi_courier_tell(wfi_courier *c, int peer, const wfi_courier_note *note);
bool wfi_courier_tell_all(wfi_courier *c, const wfi_courier_note *note);
bool wfi_courier_hear(wfi_courier *c);
bool wfi_courier_tell_failure(wfi_courier *c);
bool wfi_courier_keep_promises(wfi_courier *c, bool all_that_is_new);
bool wfi_courier_finish_notes(wfi_courier *c);
void wfi_courier_add_promise(wfi_courier *c, wfi_order *order);
void wfi_courier_forget_streams(wfi_courier *c, int trainer);
/* What peer's streams of the trainer are known to have done, as far as our own parcels to them have
 * left. */
bool wfi_courier_show_epochs(wfi_courier *c, int peer, int trainer);

/* parcels.c */
bool wfi_courier_move_parcels(wfi_courier *c);
void wfi_courier_see_off(wfi_courier *c);
bool wfi_courier_has_parcels(const wfi_courier *c);
/* After the last order: nobody waits any more for what is under way. `ask`: cancels it. Returns
 * whether all of it has ended. */
bool wfi_courier_drop_parcels(wfi_courier *c, bool ask);
bool wfi_courier_drop_notes(wfi_courier *c, bool ask);

/* letters.c */
bool wfi_courier_move_letters(wfi_courier *c);
void wfi_courier_hear_word(wfi_courier *c, int peer, const wfi_courier_note *note);
bool wfi_courier_drop_letters(wfi_courier *c, bool ask);
void wfi_courier_free_kept(wfi_courier *c);

#endif
