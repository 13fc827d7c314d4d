/* Workers and servers. Private to src/workers.
 *
 *     vector.c, image.c   parameters as one flat vector, in and out of a trainer
 *     channel.c           messages between a worker and a server
 *     record.c            the file with the order of an asynchronous run
 *     worker.c            one rank's workers: pull, compute, push
 *     order.c, bound.c    server 0: the order of pushes
 *     server.c            a server: applies pushes in that order
 *     async.c, local.c    runs of several steps
 *     create.c            their life: ranks.c trainers, links.c channels, place.c placement
 *     state.c, file.c     state between runs, and in files
 *     keep.c              the record of a run, and its file
 *     spans.c             timelines
 *     memory.c, report.c  memory and traffic of ranks, planned and measured
 */
#pragma once

#include "plan/workers.h"
#include "workers/channel.h"
#include "workers/image.h"
#include "workers/record.h"
#include "workers/vector.h"

#include <pthread.h>
#include <weft/workers.h>

/* A worker requests the next place in server 0's order. The answer is its ticket. With it the
 * worker sends its gradient to all servers, which answer with the parameters. */
typedef enum wfi_ask {
    WFI_ASK_PUSH,   /* apply the gradient, and send the parameters after it */
    WFI_ASK_START,  /* send the parameters: the first pull of a run */
    WFI_ASK_DROPPED /* the gradient came too late; send the parameters */
} wfi_ask;

/* The head of every message; 128 bytes. */
typedef struct wfi_note {
    int32_t worker;
    int32_t ask;     /* wfi_ask */
    int32_t ends;    /* of a ticket: the worker computes no further part in this run */
    int32_t is_last; /* of a ticket: the update is made of the pushes up to this one */
    int64_t number;  /* of a ticket: its place in the order, from 0 in each run */
    int64_t version; /* updates that the worker's parameters had */
    int64_t batch;   /* of the gradient */
    int64_t n_rows;  /* of the worker's part */
    int64_t step;    /* of a ticket: of the optimizer's rule */
    double lr;       /* of a ticket */
    double squares;  /* of the gradient: the square of its norm */
    int64_t n_hits;
    int64_t stops;  /* reason of the sender, or of one that it got a message from, to end the run */
    int64_t n_done; /* of a ticket: steps of the run that are done ... */
    double loss;    /* ... and the loss of the latest */
    int64_t unused[3];
} wfi_note;
_Static_assert(sizeof(wfi_note) == 128, "messages begin on a cache line");

/* The first pull of a run is no step's traffic. */
static inline bool wfi_note_counts(const wfi_note *note) {
    return note->ask != WFI_ASK_START;
}

typedef enum wfi_worker_stage {
    WFI_WORKER_READY,  /* has parameters */
    WFI_WORKER_ASKS,   /* waits for its ticket */
    WFI_WORKER_PUSHES, /* waits for all servers' answers */
    WFI_WORKER_ENDED   /* this run needs no further part of it */
} wfi_worker_stage;

/* One of the recipe's workers, on a rank of this process. */
typedef struct wfi_one_worker {
    int number;
    wfi_worker_stage stage;
    int64_t batch;   /* the next one */
    int64_t version; /* of its parameters */
    int64_t stops;   /* the servers' reasons to end the run */
    int64_t sent_ns; /* when its gradient went to the servers */
    wfi_note note;   /* of the gradient that it pushes */
    /* ASYNC: to server 0's order, and to each server. */
    wfi_channel asking, *pushing; /* [n_servers] */
    bool *has_answer;             /* [n_servers] */
    /* LOCAL: parameters, states and buffers between its turns; NULL: they are in the trainer. */
    char *image;
} wfi_one_worker;

/* A rank with workers. */
typedef struct wfi_worker_rank {
    struct wf_workers *all;
    int rank;
    wf_trainer *trainer;
    wfi_one_worker *workers; /* [n] neighbours */
    int n;
    pthread_t thread;
    bool has_thread;
} wfi_worker_rank;

/* The other side of a worker's channels, on a server. */
typedef struct wfi_served {
    int stage;                     /* see server.c */
    int64_t arrival;               /* of its request, among all */
    wfi_channel *asking, *pushing; /* the worker's, if it is in this process, or ... */
    wfi_channel own[2];            /* ... this side's */
} wfi_served;

typedef struct wfi_server {
    struct wf_workers *all;
    int number, rank;
    size_t first, end;  /* elements of the vector */
    float *parameters;  /* [end - first] */
    float *states;      /* [n_states][end - first] */
    char *buffers;      /* server 0: all */
    wfi_served *served; /* [n_workers] */
    int64_t next;       /* number of the push that is applied next */
    int64_t n_updates;  /* in this run, with staleness 0 */
    int64_t n_arrived;  /* requests */
    int64_t not_finite;
    pthread_t thread;
    bool has_thread;
} wfi_server;

/* Server 0's decisions. */
typedef struct wfi_order {
    int64_t first_version; /* updates before the run */
    int64_t n_granted;     /* pushes, without those dropped */
    int64_t n_started;     /* parts that workers compute or have computed in the run */
    int64_t n_tickets;     /* of any kind */
    int64_t n_wanted;      /* pushes of the run */
    int64_t stop_reason;
    int n_begun;      /* workers that have parameters */
    size_t replayed;  /* pushes of the record that have been repeated */
    int64_t *version; /* [n_workers] that each worker has read last */
    int32_t *readers; /* [n_readers] workers that compute, by version */
    int32_t n_readers;
    int64_t *next_batch;     /* [n_workers] */
    wf_step_result *results; /* of the run */
    double *records;         /* [n_workers][n_micro][2] of the step in hand */
    bool *is_in;             /* [n_workers] the step in hand */
} wfi_order;

/* Memory of a worker's part of a batch on a rank with the optimizer's state (`is_whole`) or without
 * it. */
typedef struct wfi_planned {
    bool is_whole;
    int64_t n_samples;
    size_t peaks[WFI_N_SPACES];
} wfi_planned;

/* A span of a rank's workers, or of a server. */
#define WFI_WORKER_SPANS 16
typedef struct wfi_worker_span {
    int64_t begin_ns, end_ns;
    int64_t number;       /* version of the parameters, or step; -1: neither */
    int32_t kind, stream; /* wf_span_kind, wfi_stream */
} wfi_worker_span;

/* The latest spans of one thread. */
typedef struct wfi_worker_row {
    wfi_worker_span spans[WFI_WORKER_SPANS];
    int64_t n;                      /* ever */
    int64_t free_ns[WFI_N_STREAMS]; /* end of a stream's latest span */
} wfi_worker_row;

struct wf_workers {
    wf_context *ctx;
    wfi_pool pool; /* of the arrays */
    wf_job *job;
    wf_plan *plan;
    wf_recipe recipe, own; /* of all; of one worker */
    wf_workers_config config;
    int n_workers, n_ranks, n_servers; /* n_ranks: those with workers */
    wf_program *program;    /* of a process without a trainer, or of a plan; otherwise NULL */
    wfi_planned planned[6]; /* [n_planned] of a plan */
    int n_planned;
    size_t test_peaks[WFI_N_SPACES]; /* of rank 0's tests */
    wfi_vector vector;
    wfi_worker_rank *ranks; /* [n_here] */
    int n_here;
    wfi_server *servers; /* [n_servers_here] */
    int n_servers_here;
    wfi_order order;
    bool *takes_part;     /* [n_workers] in the run */
    double *squares[2];   /* see norm.c; NULL: they are not needed */
    int64_t n_squares_in; /* atomic access: servers' shares of them, in the run */
    wf_group *world, **pairs, *among_servers; /* in a job; pairs [n_workers]: with the servers */
    wfi_failure failure;
    int64_t n_steps, timeout_ms;
    bool is_replicated; /* all have the state of rank 0's trainer since it changed */
    wfi_record record;  /* that is written, or repeated */
    unsigned char identity[WFI_IDENTITY_BYTES];
    bool records, replays;
    bool starts;         /* workers begin the run with the servers' parameters */
    bool has_parameters; /* workers have read some since the state changed */
    int64_t *staleness;  /* [n_staleness] */
    size_t n_staleness, staleness_capacity;
    size_t *host_bytes;          /* [ranks of the plan] of vectors and messages, of those here */
    int64_t n_run;               /* steps that this process has run */
    wf_traffic averages, before; /* LOCAL: of averages; and of the group before a round */
    int64_t n_round;             /* LOCAL: steps of the round in hand */
    double *numbers;             /* [n_workers][n_round][3]: see local.c */
    float *common, *momentum;    /* LOCAL: the common parameters, and the outer momentum */
    wfi_worker_row *rows;        /* [n_ranks + n_servers]; NULL: no trace */
    int64_t shown;               /* steps that the progress has shown */
};

static inline bool wfi_workers_is_async(const wf_workers *w) {
    return w->recipe.update == WF_UPDATE_ASYNC;
}
/* Returns whether this process has rank 0. */
static inline bool wfi_workers_is_root(const wf_workers *w) {
    return !w->job || wf_job_rank(w->job) == 0;
}
static inline bool wfi_workers_sums(const wf_workers *w) {
    return w->recipe.staleness == 0;
}
static inline int wfi_workers_first(const wf_workers *w, int rank) {
    return (int)((int64_t)rank * w->n_workers / w->n_ranks);
}
static inline wfi_failure *wfi_workers_failure(wf_workers *w) {
    return w->job ? wfi_control_failure(w->job) : &w->failure;
}

/* The reason of this process to end the run; 0: none. */
static inline int wfi_workers_stops(const wf_workers *w) {
    return w->config.stops ? w->config.stops(w->config.self) : 0;
}

/* ---- place.c ---- */

/* The worker of that number; NULL: it is in another process. */
wfi_one_worker *wfi_workers_find(const wf_workers *w, int number);
int wfi_workers_rank_of(const wf_workers *w, int worker);
int wfi_workers_server_rank(const wf_workers *w, int server);
/* Returns whether the rank is in this process. */
bool wfi_workers_is_here(const wf_workers *w, int rank);

/* ---- ranks.c, links.c: parts of the creation and of the end ---- */

wf_status wfi_workers_create_ranks(wf_workers *w, const wf_model *model, const wf_plan *plan);
wf_status wfi_workers_create_vector(wf_workers *w, const wf_model *model, const wf_plan *plan);
wf_status wfi_workers_create_groups(wf_workers *w);
wf_status wfi_workers_create_servers(wf_workers *w);
void wfi_workers_destroy_worker(wf_workers *w, wfi_one_worker *one);
void wfi_workers_destroy_server(wfi_server *s);
void wfi_workers_destroy_groups(wf_workers *w);

/* ---- state.c, keep.c, memory.c ---- */

/* state.c: copies the state of rank 0's trainer to all workers and servers, and back. */
wf_status wfi_workers_replicate_weights(wf_workers *w);
wf_status wfi_workers_replicate(wf_workers *w);
wf_status wfi_workers_collect(wf_workers *w);
/* Between processes, multiples of 4 bytes: rank `from` tells all others, or rank `to`. */
wf_status wfi_workers_tell(wf_workers *w, int from, void *data, size_t bytes);
wf_status wfi_workers_tell_staleness(wf_workers *w, int from);
wf_status wfi_workers_pass(wf_workers *w, int from, int to, void *data, size_t bytes);

/* Host memory of a rank's workers and servers: allocations of create.c and local.c. */
size_t wfi_workers_host_bytes(const wf_workers *w, int rank);
/* Returns the bytes that a rank sends to others in a step, without the first pull of a run. */
uint64_t wfi_workers_sent_bytes(const wf_workers *w, int rank);

/* keep.c: at creation; after a run; and after a load. */
wf_status wfi_workers_open_record(wf_workers *w);
wf_status wfi_workers_write_record(wf_workers *w);
wf_status wfi_workers_resume_record(wf_workers *w);

/* Finds the largest reason to stop of any rank; 0: none. Collective. */
wf_status wfi_workers_agree_to_stop(wf_workers *w, int *reason_out);

/* ---- spans.c ---- */

wf_status wfi_workers_create_spans(wf_workers *w);
/* Returns the present time for a span; 0: there is no trace. */
int64_t wfi_workers_now(const wf_workers *w);
/* Adds a span that ends now. Rows: ranks with workers, then servers; each has one thread. */
void wfi_workers_note(wf_workers *w, int row, int64_t begin_ns, int64_t number, wf_span_kind kind,
                      wfi_stream stream);

wf_status wfi_local_create(wf_workers *w);
/* Returns whether an outer step also averages this value of the graph: running statistics. */
static inline bool wfi_local_averages(const wfi_value *value) {
    return value->kind == WFI_VALUE_BUFFER && value->dtype == WF_F32;
}
/* memory.c: returns the bytes that a rank sends for one average. */
uint64_t wfi_local_average_bytes(const wf_workers *w);
/* The optimizer's states of a worker on a rank with several. */
float *wfi_local_states(const wf_workers *w, const wfi_one_worker *one);

/* A run of each kind. */
wf_status wfi_async_run(wf_workers *w, int64_t n_steps, wf_step_result *results,
                        int64_t *n_done_out);
wf_status wfi_local_run(wf_workers *w, int64_t n_steps, wf_step_result *results,
                        int64_t *n_done_out);
