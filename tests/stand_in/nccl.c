/* The stand-in for NCCL, on the driver's (stand_in.h): its ranks are processes, which share a memfd
 * that goes with them. What does not fit is refused, or loses the GPU: a send that meets a receive
 * of other bytes, in another group's place, or outside the GPU's memory; a call while another is
 * under way; two ranks of one GPU. Sums are in a ring's order, which begins elsewhere in each
 * slice.
 *
 *   STAND_IN_NCCL_VERSION  what it says it is; 22809
 *   STAND_IN_NCCL_STUCK    so many groups later none ends
 *   STAND_IN_NCCL_REFUSE   so many sends, receives and sums later none is taken
 *   STAND_IN_NCCL_STAYS    1: nobody's leave is ever taken
 *   STAND_IN_NCCL_ENDS     1: who ends without taking leave is said
 */
#include "stand_in_library.h"

#define WFI_NCCL_TYPES_ARE_DECLARED
typedef unsigned ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef CUstream cudaStream_t;
typedef struct wfi_nccl_config ncclConfig_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
enum { ncclSuccess, ncclInvalidArgument = 4, ncclInvalidUsage, ncclInProgress = 7 };
enum { ncclInt8 = 0, ncclFloat32 = 7, ncclSum = 0 };
#include "comm/wire/nccl_library.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT(result, name, parameters)                                                           \
    STAND_IN_API result name parameters;                                                           \
    result name parameters

#define MOST_RANKS 8
#define MOST_OPS   1024
#define MOST_SUMS  128
#define CHUNK      ((size_t)1 << 16)

/* From one rank to another, chunk by chunk. */
typedef struct channel {
    uint64_t n_sent, n_taken; /* atomic access: chunks */
    size_t bytes;             /* of the whole that the chunk is of */
    char data[CHUNK];
} channel;

typedef struct segment {
    int n_left;             /* atomic access: ranks that have taken leave */
    int device[MOST_RANKS]; /* atomic access: and one; 0: not come yet */
    channel channels[MOST_RANKS][MOST_RANKS];
} segment;

struct ncclComm {
    segment *shared;
    int rank, n_ranks, n_asked;
    int is_aborted, n_queued; /* atomic access */
    bool leaves;
    CUcontext context;
};

typedef struct op {
    bool sends;
    int peer;
    char *data;
    size_t bytes, done;
} op;

/* What the other ranks have comes into `all`, rank by rank. */
typedef struct sum {
    float *own, *all;
    size_t n;
} sum;

typedef struct group {
    ncclComm_t comm;
    int n, n_sums;
    sum sums[MOST_SUMS];
    bool is_stuck;
    op ops[MOST_OPS];
} group;

static _Thread_local group now;
static _Thread_local CUstream now_on;
static _Thread_local bool is_open;
static int n_comms; /* atomic access */
static long long n_groups;
static const char *last_error = "";

static ncclResult_t refuse(const char *why) {
    last_error = why;
    return ncclInvalidUsage;
}

EXPORT(ncclResult_t, ncclGetVersion, (int *version)) {
    *version = (int)stand_in_variable("STAND_IN_NCCL_VERSION", 22809);
    return ncclSuccess;
}

EXPORT(const char *, ncclGetErrorString, (ncclResult_t error)) {
    return error == ncclInvalidUsage ? "invalid usage" : "an error";
}

EXPORT(const char *, ncclGetLastError, (ncclComm_t comm)) {
    (void)comm;
    return last_error;
}

/* ---- communicators ---- */

EXPORT(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id)) {
    int fd = memfd_create("stand-in-nccl", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(segment))) return refuse("no shared memory");
    snprintf(id->internal, sizeof id->internal, "/proc/%d/fd/%d", (int)getpid(), fd);
    return ncclSuccess;
}

EXPORT(ncclResult_t, ncclCommInitRankConfig,
       (ncclComm_t * out, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t *config)) {
    if (config->size != sizeof *config || config->magic != WFI_NCCL_MAGIC ||
        config->version > 22809 || config->blocking)
        return refuse("a configuration that is none, or blocks");
    if (n_ranks > MOST_RANKS || rank < 0 || rank >= n_ranks || !current_context())
        return refuse("ranks, or no context");
    int fd = open(id.internal, O_RDWR | O_CLOEXEC);
    void *shared = fd < 0 ? MAP_FAILED
                          : mmap(NULL, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) return refuse("no such id");
    close(fd);
    *out = calloc(1, sizeof **out);
    **out = (struct ncclComm){
        .shared = shared, .rank = rank, .n_ranks = n_ranks, .context = current_context()};
    __atomic_fetch_add(&n_comms, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&(*out)->shared->device[rank], stand_in_device() + 1, __ATOMIC_RELEASE);
    return ncclInProgress;
}

/* Nothing is done at the first look. */
EXPORT(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error)) {
    *error = comm->n_asked++ ? ncclSuccess : ncclInProgress;
    for (int r = 0; r < comm->n_ranks; r++) {
        int device = __atomic_load_n(&comm->shared->device[r], __ATOMIC_ACQUIRE);
        if (!device) *error = ncclInProgress;
        if (r != comm->rank && device == comm->shared->device[comm->rank])
            *error = refuse("Duplicate GPU detected");
    }
    int n_stay = comm->n_ranks - __atomic_load_n(&comm->shared->n_left, __ATOMIC_ACQUIRE);
    if (comm->leaves && (n_stay || stand_in_variable("STAND_IN_NCCL_STAYS", 0)))
        *error = ncclInProgress;
    return ncclSuccess;
}

EXPORT(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
    if (comm->leaves || !comm->n_asked || comm->context != current_context())
        return refuse("a leave that is none");
    comm->leaves = true;
    comm->n_asked = 0;
    __atomic_fetch_add(&comm->shared->n_left, 1, __ATOMIC_RELEASE);
    return ncclInProgress;
}

static void release(ncclComm_t comm) {
    munmap(comm->shared, sizeof(segment));
    free(comm);
    __atomic_fetch_sub(&n_comms, 1, __ATOMIC_RELAXED);
}

EXPORT(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
    ncclResult_t error = ncclInProgress;
    if (comm->leaves && comm->n_asked) ncclCommGetAsyncError(comm, &error);
    if (error) fprintf(stderr, "stand-in: left: a communicator that others are in\n");
    release(comm);
    return ncclSuccess;
}

/* In a group it would be put off until that ends. */
EXPORT(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
    if (is_open) fprintf(stderr, "stand-in: left: a communicator that is ended in a group\n");
    if (!comm->leaves && stand_in_variable("STAND_IN_NCCL_ENDS", 0))
        fprintf(stderr, "stand-in: left: a communicator without leave\n");
    __atomic_store_n(&comm->is_aborted, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&comm->n_queued, __ATOMIC_ACQUIRE)) usleep(100);
    release(comm);
    return ncclSuccess;
}

/* ---- groups ---- */

EXPORT(ncclResult_t, ncclGroupStart, (void)) {
    if (is_open) return refuse("a group in a group");
    is_open = true;
    now = (group){0};
    return ncclSuccess;
}

static ncclResult_t add(ncclComm_t comm, CUstream stream, const op *new) {
    if (!is_open || now.n == MOST_OPS || !comm || new->peer == comm->rank || new->peer < 0 ||
        new->peer >= comm->n_ranks || !new->bytes ||
        (now.n && (now_on != stream || now.comm != comm)) || !comm->n_asked ||
        comm->context != current_context())
        return refuse("an operation that is none");
    now.ops[now.n++] = *new;
    now.comm = comm;
    now_on = stream;
    return ncclSuccess;
}

/* Where its memory is here; NULL, with a reason: it is not to be touched. */
static char *find(const void *data, size_t bytes, ncclDataType_t type, ncclDataType_t want) {
    static long long n_calls;
    long long refused = stand_in_variable("STAND_IN_NCCL_REFUSE", -1);
    if (type != want || !stand_in_reaches((CUdeviceptr)(uintptr_t)data, bytes))
        refuse("no memory of this GPU");
    else if (refused >= 0 && n_calls++ >= refused)
        refuse("a call, as ordered");
    else
        return STAND_IN_MEMORY((char *)(uintptr_t)data);
    return NULL;
}

EXPORT(ncclResult_t, ncclSend,
       (const void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
        cudaStream_t stream)) {
    char *from = find(data, n, type, ncclInt8);
    return from ? add(comm, stream, &(op){true, peer, from, n, 0}) : ncclInvalidUsage;
}

EXPORT(ncclResult_t, ncclRecv,
       (void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
        cudaStream_t stream)) {
    char *to = find(data, n, type, ncclInt8);
    return to ? add(comm, stream, &(op){false, peer, to, n, 0}) : ncclInvalidUsage;
}

/* Everybody sends all to all, and adds what has come. */
EXPORT(ncclResult_t, ncclAllReduce,
       (const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t how, ncclComm_t comm,
        cudaStream_t stream)) {
    size_t bytes = n * sizeof(float);
    char *own = find(out, bytes, type, ncclFloat32);
    if (!own || in != out || how != ncclSum || !comm || now.n_sums == MOST_SUMS)
        return own ? refuse("a sum that is none") : ncclInvalidUsage;
    float *all = malloc((size_t)comm->n_ranks * bytes);
    now.sums[now.n_sums++] = (sum){(float *)(void *)own, all, n};
    for (int r = 0; r < comm->n_ranks; r++) {
        if (r == comm->rank) continue;
        ncclResult_t error = add(comm, stream, &(op){true, r, own, bytes, 0});
        if (!error)
            error = add(comm, stream, &(op){false, r, (char *)(all + (size_t)r * n), bytes, 0});
        if (error) return error;
    }
    return ncclSuccess;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* One chunk, if it can go. False: what is sent is not what is received. */
static bool advance(const group *g, op *o) {
    segment *shared = g->comm->shared;
    channel *c = o->sends ? &shared->channels[g->comm->rank][o->peer]
                          : &shared->channels[o->peer][g->comm->rank];
    uint64_t n_sent = __atomic_load_n(&c->n_sent, __ATOMIC_ACQUIRE),
             n_taken = __atomic_load_n(&c->n_taken, __ATOMIC_ACQUIRE);
    size_t n = least(o->bytes - o->done, CHUNK);
    if (o->sends ? n_sent != n_taken : n_sent == n_taken) return true;
    if (o->sends) {
        c->bytes = o->bytes;
        memcpy(c->data, o->data + o->done, n);
        __atomic_store_n(&c->n_sent, n_sent + 1, __ATOMIC_RELEASE);
    } else {
        if (c->bytes != o->bytes) return false;
        memcpy(o->data + o->done, c->data, n);
        __atomic_store_n(&c->n_taken, n_taken + 1, __ATOMIC_RELEASE);
    }
    o->done += n;
    return true;
}

/* Of those with one peer in one direction, the first that is not done. */
static bool is_next(const group *g, int k) {
    for (int i = 0; i < k; i++)
        if (g->ops[i].peer == g->ops[k].peer && g->ops[i].sends == g->ops[k].sends &&
            g->ops[i].done < g->ops[i].bytes)
            return false;
    return g->ops[k].done < g->ops[k].bytes;
}

static wfi_cuda_enum run_ops(group *g) {
    for (bool has_more = true; has_more || g->is_stuck;) {
        if (__atomic_load_n(&g->comm->is_aborted, __ATOMIC_RELAXED)) return WFI_CUDA_SUCCESS;
        has_more = false;
        for (int k = 0; k < g->n; k++) {
            if (is_next(g, k) && !g->is_stuck && !advance(g, &g->ops[k])) {
                fprintf(stderr,
                        "stand-in: NCCL: rank %d receives %zu bytes that rank %d has not sent\n",
                        g->comm->rank, g->ops[k].bytes, g->ops[k].peer);
                return 719;
            }
            has_more |= g->ops[k].done < g->ops[k].bytes;
        }
        if (has_more) usleep(20);
    }
    return WFI_CUDA_SUCCESS;
}

/* Slice k of n begins with rank k + 1. */
static void add_up(const ncclComm_t comm, const sum *s) {
    size_t n_ranks = (size_t)comm->n_ranks;
    memcpy(s->all + (size_t)comm->rank * s->n, s->own, s->n * sizeof(float));
    for (size_t i = 0; i < s->n; i++) {
        size_t first = i * n_ranks / s->n + 1;
        float total = s->all[first % n_ranks * s->n + i];
        for (size_t k = 1; k < n_ranks; k++) total += s->all[(first + k) % n_ranks * s->n + i];
        s->own[i] = total;
    }
}

static wfi_cuda_enum run_group(void *argument) {
    group *g = argument;
    int *n_queued = &g->comm->n_queued;
    wfi_cuda_enum error = run_ops(g);
    for (int k = 0; k < g->n_sums; k++) {
        if (!error && !__atomic_load_n(&g->comm->is_aborted, __ATOMIC_RELAXED))
            add_up(g->comm, &g->sums[k]);
        free(g->sums[k].all);
    }
    __atomic_fetch_sub(n_queued, 1, __ATOMIC_RELEASE);
    return error;
}

/* One communicator's groups are not given while one before is under way. */
EXPORT(ncclResult_t, ncclGroupEnd, (void)) {
    long long stuck = stand_in_variable("STAND_IN_NCCL_STUCK", -1);
    bool was_open = is_open;
    is_open = false;
    if (!was_open || !now.n) return refuse("a group of nothing");
    if (__atomic_fetch_add(&now.comm->n_queued, 1, __ATOMIC_RELAXED))
        return refuse("a group while another is under way");
    now.is_stuck = stuck >= 0 && n_groups++ >= stuck;
    now.comm->n_asked = 0;
    size_t bytes = offsetof(group, ops) + (size_t)now.n * sizeof *now.ops;
    if (stand_in_queue(now_on, run_group, &now, bytes))
        return refuse("the driver does not queue it");
    return ncclInProgress;
}

__attribute__((destructor)) static void say_what_is_left(void) {
    if (n_comms) fprintf(stderr, "stand-in: left: %d communicators\n", n_comms);
}
