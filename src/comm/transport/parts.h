/* Internals of the transport. Private. */
#pragma once

#include "comm/transport/remote.h"
#include "comm/transport/transport.h"

#include <pthread.h>

/* ---- messages between transports ---- */

typedef enum wfi_message_kind {
    WFI_MESSAGE_STATE,
    WFI_MESSAGE_EPOCHS,
    WFI_MESSAGE_FAILURE,
    WFI_MESSAGE_GROUP,
    WFI_MESSAGE_LEAVE
} wfi_message_kind;

typedef struct wfi_message_state {
    uint64_t n_barriers, n_runs;
    int64_t pid;
    wfi_control_state state;
} wfi_message_state;

typedef struct wfi_message {
    uint32_t magic;
    uint32_t kind;
    union {
        wfi_message_state state;
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
            char bytes[WFI_TRANSPORT_BYTES];
        } group;
    };
} wfi_message;

/* ---- the transport ---- */

/* The connection to one other rank for one trainer. */
typedef struct wfi_peer_part {
    wfi_queue notify[WFI_CONTROL_STREAMS]; /* by epoch */
    uint64_t sent[WFI_CONTROL_STREAMS];    /* epochs of this rank's streams that were sent last */
} wfi_peer_part;

/* The connection to one other rank. Trainers run one after the other, and no put of a run is under
 * way after the run. */
typedef struct wfi_peer {
    wfi_message incoming;
    wfi_network_handle handle; /* of the posted receive for the next message */
    bool listens;
    wfi_queue messages;
    wfi_queue puts[WFI_TRANSPORT_STREAMS]; /* by the reader's stream */
    wfi_peer_part parts[WFI_CONTROL_TRAINERS];
    bool knows_failure, has_left;
} wfi_peer;

/* Counters of messages that have arrived or departed. Each posted message is a task of a remote
 * stream, so streams can wait for it. */
typedef struct wfi_transport_count {
    wfi_remote remote;
    wfi_stream_queue *streams[WFI_TRANSPORT_STREAMS];
    wfi_shared_epoch done[WFI_TRANSPORT_STREAMS];
} wfi_transport_count;

struct wfi_transport {
    wf_context *ctx; /* the host's */
    wf_context *own; /* the thread's, for all memory of the transport: it may outlive `ctx` */
    wfi_transport_config config;
    wfi_transport_count arrivals, departures;
    int n_polling;             /* atomic access: running collectives */
    uint64_t n_looks;          /* atomic access: polls of the progress thread so far */
    wfi_transport_slots slots; /* the host's */

    pthread_mutex_t queues_lock; /* of the members below; taken before `lock` */
    wfi_peer *peers;             /* [n_ranks] */
    wfi_queue receives[WFI_TRANSPORT_STREAMS];
    uint64_t last_departed[WFI_TRANSPORT_STREAMS]; /* the highest number of a departed put */
    wfi_queue *active;                             /* the queues with requests */
    wfi_request *lost; /* under way, but no group waits for them any more */
    wfi_transport_group *groups;
    uint64_t generation[WFI_CONTROL_TRAINERS]; /* grows when a trainer's streams are reset */
    int n_parts;                               /* trainers below this number have had streams */
    bool is_broken;                            /* the network has failed */
    bool is_leaving;                           /* this rank has sent its last message */

    pthread_t thread;
    pthread_mutex_t lock; /* of the members below */
    pthread_cond_t changed;
    wfi_request *posted, *last_posted, *unused;
    wfi_message_state state;
    bool is_state_due, ends, is_started, is_given_up, sleeps;
    wf_status start_status;
    char start_sentence[WFI_SENTENCE_BYTES];
    bool is_clean; /* set when the thread ends: nothing is left under way */
};

/* Records a network failure as the failure of all ranks; nothing more is sent. */
void wfi_transport_break(wfi_transport *t, wf_status status);
/* Wakes the progress thread if it sleeps. Called with `lock`. */
void wfi_transport_wake(wfi_transport *t);

/* ---- queue.c; called with queues_lock ---- */

void wfi_queue_init(wfi_queue *queue, wfi_shared_epoch *done);
/* Appends a copy of the request at once. */
bool wfi_queue_add(wfi_transport *t, wfi_queue *queue, const wfi_request *request);
/* Drops the queue's requests; none of them is under way. */
void wfi_queue_clear(wfi_transport *t, wfi_queue *queue);
/* Moves the host's posts to their queues. Returns whether there were any. */
bool wfi_transport_take_posted(wfi_transport *t);
/* Begins and completes requests. Returns whether it did any. */
bool wfi_transport_progress(wfi_transport *t);
/* After the last poll: completes the requests under way. `cancels`: cancels them first. Returns
 * whether all have ended. */
bool wfi_transport_drain(wfi_transport *t, bool cancels);
void wfi_transport_free_requests(wfi_transport *t);

/* ---- messages.c; on the progress thread. Each returns whether anything happened. ---- */

bool wfi_transport_send_all(wfi_transport *t, const wfi_message *message);
bool wfi_transport_send_failure(wfi_transport *t);
/* Sends the epochs of this rank's streams: to the rank of a notification, or all changes to all
 * ranks. */
void wfi_transport_send_epoch(wfi_transport *t, const wfi_request *notification);
bool wfi_transport_send_epochs(wfi_transport *t);
bool wfi_transport_receive_messages(wfi_transport *t);
void wfi_transport_reset_streams(wfi_transport *t, int trainer);
bool wfi_transport_drain_receives(wfi_transport *t, bool cancels);
