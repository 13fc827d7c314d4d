/* The transport: it replaces the shared segment and shared arenas between processes that share no
 * memory. Private.
 *
 * A progress thread makes all calls of the network and sleeps between them. Host threads post
 * requests, which return at once:
 *
 *   state      the rank's published state (wfi_control_rank), sent to all ranks, which write it to
 *              their copies; failures likewise
 *   notify     "send rank r a message when stream s here has completed n tasks": every process
 *              has the whole program, so the owner of a stream knows the ranks that wait for it
 *   put        bytes of an arena, sent when a stream of their owner is as far as the put, and
 *              received in the reader's arena when its stream is. Both sides post in program
 *              order, so the network's order matches messages. A put departs when the network
 *              releases its buffer, which may be later than its arrival at the reader
 *   send       a message between two ranks of a group, delivered in order
 *   post       bytes of a group's collectives, from buffer to buffer
 *
 * A queue completes its requests in the order of posting. A counter of completed requests wakes the
 * threads that sleep on it.
 */
#pragma once

#include "comm/transport/network.h"
#include "comm/transport/state.h"
#include "device/device.h"

typedef struct wfi_transport wfi_transport;

typedef struct wfi_transport_config {
    int rank, n_ranks;
    int64_t timeout_ms;
    wfi_failure *failure;    /* this process's copy: watched, and sent to all ranks */
    wfi_control_rank *ranks; /* [n_ranks] copies; local streams count in the own entry */
    wfi_network network;     /* owned: the transport finishes it */
    /* Whether no more bytes come from the rank, by the job; NULL: unknown. */
    bool (*is_lost)(const void *job, int rank);
    const void *job;
} wfi_transport_config;

/* Returns when the network has started, that is, when all ranks have joined. Errors: TIMEOUT,
 * INVALID_ARG (MPI counts other ranks), those of the network. */
wf_status wfi_transport_create(wf_context *ctx, const wfi_transport_config *config,
                               wfi_transport **transport_out);
/* Waits until the other ranks leave as well; after a failure only for LEAVE_MS. False: a message is
 * still under way, so the transport keeps its memory. */
bool wfi_transport_destroy(wfi_transport *transport);

/* Sends the current state of this rank to all ranks. */
void wfi_transport_publish(wfi_transport *transport);
/* Resets the counters of the trainer's streams, here and on the other ranks: between two barriers.
 */
wf_status wfi_transport_reset(wfi_transport *transport, int trainer);
/* Notifies `rank` (-1: all) when the trainer's local stream has completed `epoch` tasks. */
wf_status wfi_transport_notify(wfi_transport *transport, int rank, int trainer, int stream,
                               uint64_t epoch);

/* ---- arenas ---- */

/* A put belongs to a task of one of the reader's streams; HOST: to no task. */
#define WFI_TRANSPORT_HOST    WFI_CONTROL_STREAMS
#define WFI_TRANSPORT_STREAMS (WFI_CONTROL_STREAMS + 1)

/* One end of a copy between two ranks. It begins when local stream `stream` has done `epoch` tasks.
 */
typedef struct wfi_route {
    int peer, trainer;
    int reads_in; /* the reader's stream */
    int stream;
    uint64_t epoch;
} wfi_route;

/* Sends the bytes. The caller keeps them unchanged until they have departed. */
wf_status wfi_transport_put(wfi_transport *transport, const wfi_route *route, const void *data,
                            size_t bytes);
/* Receives the bytes of the peer's next put for that stream of this rank. */
wf_status wfi_transport_receive(wfi_transport *transport, const wfi_route *route, void *data,
                                size_t bytes);
/* The event of all receives posted so far for that local stream. */
wfi_event wfi_transport_arrival(const wfi_transport *transport, int stream);
/* The event of all puts posted so far for that stream, to any rank. */
wfi_event wfi_transport_departure(const wfi_transport *transport, int stream);

/* ---- groups ---- */

typedef enum wfi_request_kind {
    WFI_REQUEST_SEND,
    WFI_REQUEST_RECEIVE,
    WFI_REQUEST_OPEN_ENGINE, /* opens the network's own sums; `tag` is the engine, `peer` -1 */
    WFI_REQUEST_SUM,         /* one sum */
    WFI_REQUEST_NOTIFY,
    WFI_REQUEST_RESET
} wfi_request_kind;

/* A request borrows its buffers until it is counted as done. */
typedef struct wfi_request {
    struct wfi_request *next;
    struct wfi_queue *queue;
    wfi_request_kind kind;
    int peer, tag; /* of the job */
    char *data;
    size_t bytes;
    wfi_network_sum sum;
    /* Begins when the trainer's local stream has done so many tasks. */
    int trainer, stream;
    uint64_t epoch;
    uint64_t number; /* of a put among those for that stream, to any rank, from 1 */
    bool owns_data;  /* freed with it */
    bool is_under_way, is_cancelled;
    wfi_network_handle handle;
} wfi_request;

typedef struct wfi_queue {
    struct wfi_queue *next;    /* in the list of queues with requests */
    wfi_request *first, *last; /* in order; on the progress thread */
    uint64_t n_posted;         /* written by the one thread that posts */
    uint64_t n_done;           /* atomic access */
    wfi_shared_epoch *done;    /* the same count, for threads that sleep on it; or NULL */
    int awaited;               /* atomic access: the peer of the first; -1: unknown */
    uint64_t oldest;           /* atomic access: the first's number; 0: there is none */
    bool is_cancelled;         /* atomic access */
    bool stops_at_failure;     /* of the job */
    int departs;               /* the queue has puts for that stream; or -1 */
} wfi_queue;

#define WFI_TRANSPORT_BYTES (WFI_SENTENCE_BYTES + 256) /* of one message of a group */
#define WFI_TRANSPORT_SLOTS WFI_NETWORK_ENGINES        /* groups of one process at once */

/* Tags: the transport uses 0, each stream one, and each slot two. */
#define WFI_TAG_GROUPS (1 + WFI_TRANSPORT_STREAMS)

enum { WFI_QUEUE_RECEIVED, WFI_QUEUE_SENT, WFI_N_QUEUES };

/* The transport's view of a group. */
typedef struct wfi_transport_group {
    struct wfi_transport_group *next;
    uint64_t serial; /* equal on all of its ranks, unique among groups */
    /* Called on the progress thread for a message of rank `rank` of the job. */
    void (*receive)(void *self, int rank, const void *data);
    void *self;
    wfi_queue queues[WFI_N_QUEUES];
    wfi_shared_epoch done[WFI_N_QUEUES];
} wfi_transport_group;

/* A group's staging buffer for received summands. No context owns it, as it may outlive one. */
typedef struct wfi_bounce {
    char *data;
    size_t bytes;
} wfi_bounce;

/* The slots of this process's groups: one bit each. */
typedef struct wfi_transport_slots {
    uint64_t taken[WFI_TRANSPORT_SLOTS / 64];
    uint64_t engines[WFI_TRANSPORT_SLOTS / 64]; /* slots with an open engine */
    uint64_t n_groups;                          /* created so far */
    wfi_bounce bounce[WFI_TRANSPORT_SLOTS];     /* freed with the transport */
} wfi_transport_slots;
wfi_transport_slots *wfi_transport_slots_of(wfi_transport *transport);

/* Whether the network has an all-reduce of its own. */
bool wfi_transport_has_engine(const wfi_transport *transport);

/* The group receives messages between these two calls. */
void wfi_transport_enter(wfi_transport *transport, wfi_transport_group *group);
void wfi_transport_depart(wfi_transport *transport, wfi_transport_group *group);
/* Sends a message to rank `to` of the job; a rank without a group of that serial ignores it. */
wf_status wfi_transport_send(wfi_transport *transport, uint64_t serial, int to, const void *data,
                             size_t bytes);
/* Appends a copy of the request to the queue; a large one as several requests. */
wf_status wfi_transport_post(wfi_transport *transport, wfi_queue *queue,
                             const wfi_request *request);
/* Cancels all requests of the group, within CANCEL_MS. False: a send is still under way, so its
 * buffer must stay valid. */
bool wfi_transport_cancel(wfi_transport *transport, wfi_transport_group *group);
/* While a collective runs, the progress thread polls for a while before it sleeps. */
void wfi_transport_poll(wfi_transport *transport, bool begins);
