/* The transport: between processes that share no memory, it brings what a segment and arenas of
 * shared memory would have shown the others. Private.
 *
 * A progress thread makes all calls of the network and sleeps between them. The host's threads post
 * requests, which return at once:
 *
 *   state      what this rank shows of itself (wfi_control_rank), to all; it is written into the
 *              others' copies, as failures are
 *   notify     "rank r is told when stream s here has done n tasks": every process has the
 *              whole program, so the owner of a stream knows who waits for it
 *   put        bytes of an arena, sent as soon as the local streams have done what the reader has
 *              waited for. Both sides post in the program's order, so the network's order says
 *              which message is which. That the reader has them does not mean that the network
 *              has let go of them: it is counted when it has
 *   tell       what a group's rank says to another, delivered in order
 *   post       bytes of a group's collectives, from buffer to buffer
 *
 * Requests stand in queues, and are done in the order in which they were posted to one; a count
 * that others can sleep for says how many are.
 */
#ifndef WFI_TRANSPORT_H
#define WFI_TRANSPORT_H

#include "comm/transport/network.h"
#include "comm/transport/state.h"
#include "device/device.h"

typedef struct wfi_transport wfi_transport;

typedef struct wfi_transport_config {
    int rank, n_ranks;
    int64_t timeout_ms;
    wfi_failure *failure;    /* this process's copy: watched, and told to all */
    wfi_control_rank *ranks; /* [n_ranks] this process's copies; its own streams count in its own */
    wfi_network network;     /* the transport ends it */
} wfi_transport_config;

/* Returns when the network has started: all have come. Errors: TIMEOUT, INVALID_ARG (MPI counts
 * other ranks), those of the network. */
wf_status wfi_transport_create(wf_context *ctx, const wfi_transport_config *config,
                               wfi_transport **transport_out);
/* Waits until the others leave as well; after a failure only for a while. False: something is still
 * under way, and keeps its memory. */
bool wfi_transport_destroy(wfi_transport *transport);

/* What this rank shows of itself, as it is now, to all. */
void wfi_transport_publish(wfi_transport *transport);
/* The trainer's streams count anew, here and at the others: between two barriers. */
wf_status wfi_transport_reset(wfi_transport *transport, int trainer);
/* Tells `rank` (-1: all) when the trainer's local stream has done so many tasks. */
wf_status wfi_transport_notify(wfi_transport *transport, int rank, int trainer, int stream,
                               uint64_t epoch);

/* ---- arenas ---- */

/* Puts are for tasks of one of the reader's streams; HOST: for none. */
#define WFI_TRANSPORT_HOST    WFI_CONTROL_STREAMS
#define WFI_TRANSPORT_STREAMS (WFI_CONTROL_STREAMS + 1)

/* For whom bytes are, and when they are ready. */
typedef struct wfi_put {
    int to, trainer, stream; /* a task of that rank's stream of the trainer */
    const uint64_t *need;    /* [WFI_CONTROL_STREAMS] tasks of the local streams; NULL: ready now */
} wfi_put;

/* Sends bytes once they are ready. They stay as they are until they have departed. */
wf_status wfi_transport_put(wfi_transport *transport, const wfi_put *put, const void *data,
                            size_t bytes);
/* Receives the bytes of the sender's next put for that stream of this rank. */
wf_status wfi_transport_receive(wfi_transport *transport, int from, int stream, void *data,
                                size_t bytes);
/* The event of all receives that were posted for that local stream so far. */
wfi_event wfi_transport_arrival(const wfi_transport *transport, int stream);
/* The event of all puts for that stream, of whichever rank, that were posted so far. */
wfi_event wfi_transport_departure(const wfi_transport *transport, int stream);

/* ---- groups ---- */

typedef enum wfi_request_kind {
    WFI_REQUEST_SEND,
    WFI_REQUEST_RECEIVE,
    WFI_REQUEST_OPEN_ENGINE, /* opens the network's own sums; `tag` is the engine, `peer` -1 */
    WFI_REQUEST_SUM,         /* one of them */
    WFI_REQUEST_NOTIFY,
    WFI_REQUEST_RESET
} wfi_request_kind;

/* The buffers stay where they are until the request is counted as done. */
typedef struct wfi_request {
    struct wfi_request *next;
    struct wfi_queue *queue;
    wfi_request_kind kind;
    int peer, tag; /* of the job */
    char *data;
    size_t bytes;
    wfi_network_sum sum;
    /* A put waits for local streams. A notification is for an epoch of a local stream. */
    int trainer, stream;
    uint64_t epoch, need[WFI_CONTROL_STREAMS];
    uint64_t number; /* of a put among those for that stream of whichever rank, from 1 */
    bool owns_data;  /* freed with it */
    bool is_under_way, is_cancelled;
    wfi_network_handle handle;
} wfi_request;

typedef struct wfi_queue {
    struct wfi_queue *next;    /* of those with requests */
    wfi_request *first, *last; /* in order; on the progress thread */
    uint64_t n_posted;         /* by the one thread that posts */
    uint64_t n_done;           /* atomic access */
    wfi_shared_epoch *done;    /* the same, for whom sleeps for it; or NULL */
    int awaited;               /* atomic access: the peer of the first; -1: unknown */
    uint64_t oldest;           /* atomic access: the first's number; 0: there is none */
    bool is_cancelled;         /* atomic access */
    bool stops_at_failure;     /* of the job */
    int departs;               /* what is done here are puts for that stream; or -1 */
} wfi_queue;

#define WFI_TRANSPORT_BYTES (WFI_SENTENCE_BYTES + 256) /* of what is told at once */
#define WFI_TRANSPORT_SLOTS WFI_NETWORK_ENGINES        /* groups that a process can be in at once */

/* Tags: 0 is the transport's own, then come streams; every slot has two. */
#define WFI_TAG_GROUPS (1 + WFI_TRANSPORT_STREAMS)

enum { WFI_QUEUE_RECEIVED, WFI_QUEUE_SENT, WFI_N_QUEUES };

/* A group, as the transport knows it. */
typedef struct wfi_transport_group {
    struct wfi_transport_group *next;
    uint64_t serial; /* the same on all of its ranks, and no other group's */
    /* On the progress thread: rank `rank` of the job has told this. */
    void (*hear)(void *self, int rank, const void *data);
    void *self;
    wfi_queue queues[WFI_N_QUEUES];
    wfi_shared_epoch done[WFI_N_QUEUES];
} wfi_transport_group;

/* A group's buffer for what it receives to sum: of no context, as it may outlive one. */
typedef struct wfi_bounce {
    char *data;
    size_t bytes;
} wfi_bounce;

/* Places that this process's groups have taken: one bit each. */
typedef struct wfi_transport_slots {
    uint64_t taken[WFI_TRANSPORT_SLOTS / 64];
    uint64_t engines[WFI_TRANSPORT_SLOTS / 64]; /* those that have opened one */
    uint64_t n_groups;                          /* ever made */
    wfi_bounce bounce[WFI_TRANSPORT_SLOTS];     /* freed with the transport */
} wfi_transport_slots;
wfi_transport_slots *wfi_transport_slots_of(wfi_transport *transport);

/* Whether the network has sums of its own. */
bool wfi_transport_has_engine(const wfi_transport *transport);

/* From here on, until it departs, the group hears what is told. */
void wfi_transport_enter(wfi_transport *transport, wfi_transport_group *group);
void wfi_transport_depart(wfi_transport *transport, wfi_transport_group *group);
/* Tells rank `to` of the job, if it is in a group of that serial. */
wf_status wfi_transport_tell(wfi_transport *transport, uint64_t serial, int to, const void *data,
                             size_t bytes);
/* Adds a copy of the request to the end of the queue, in several if it has many bytes. */
wf_status wfi_transport_post(wfi_transport *transport, wfi_queue *queue,
                             const wfi_request *request);
/* Ends all requests of the group, if they can be within a moment. False: one that was sent is
 * still under way, so its bytes have to stay. */
bool wfi_transport_cancel(wfi_transport *transport, wfi_transport_group *group);
/* While a collective runs, the progress thread polls without sleeping, for a while. */
void wfi_transport_poll(wfi_transport *transport, bool begins);

#endif
