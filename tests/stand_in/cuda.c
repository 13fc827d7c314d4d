/* The stand-in for CUDA's driver, see stand_in.h. */
#include "stand_in.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT(name, parameters)                                                                   \
    STAND_IN_API wfi_cuda_enum name parameters;                                                    \
    wfi_cuda_enum name parameters

enum {
    FINE = WFI_CUDA_SUCCESS,
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    NO_PEER = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NO_TIMING = WFI_CUDA_NO_TIMING,
    ILLEGAL_STATE = 401,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_WRONG_THREAD = 908,
};

#define MOST_DEVICES     8
#define MOST_ALLOCATIONS 65536
#define PAGE             ((size_t)4096)
/* Of addresses, which are never given twice: what is used too late is seen. */
#define REGION_BYTES ((size_t)64 << 30)

typedef struct gpu {
    struct CUctx_st *context;
    int n_retained;
    size_t used_bytes;
    wfi_cuda_enum lost; /* atomic access */
    int hangs;          /* atomic access */
} gpu;

struct CUctx_st {
    int device;
    unsigned peers; /* atomic access */
};

struct CUmod_st {
    unsigned narrow;
    struct CUfunc_st *functions;
};

struct CUfunc_st {
    const stand_in_kernel *kernel;
    unsigned narrow;
    struct CUfunc_st *next;
};

/* An item of a stream's queue, with its argument behind it. */
typedef struct item {
    struct item *next;
    wfi_cuda_enum (*run)(void *argument);
    void *argument;
    size_t bytes;
    bool is_event; /* runs on a GPU that is lost, too */
} item;

/* What a stream was asked for while it captured. */
struct CUgraph_st {
    item *first, **last;
    wfi_cuda_enum error; /* what has ended the capture */
};

struct CUgraphExec_st {
    int device;
    CUgraph graph; /* a copy */
};

struct CUstream_st {
    int device;
    uint64_t random;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    item *first, **last;
    uint64_t n_queued, n_done, n_events; /* events: that are queued */
    bool ends;
    CUgraph captured; /* NULL: it does not capture; for the thread that has begun it */
};

struct CUevent_st {
    struct CUevent_st *next; /* of those that are destroyed */
    int device;
    unsigned flags;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t n_recorded, n_happened;
    struct timespec time;
};

typedef struct allocation {
    CUdeviceptr begin;
    size_t bytes;
    int device;
    int is_live; /* atomic access */
} allocation;

ptrdiff_t stand_in_shift;
static gpu gpus[MOST_DEVICES];
static int n_devices, capability;
static size_t capacity;
static long long lost_after, hang_after, n_launches; /* atomic access to what counts */
static bool has_begun;

/* What there is, and how much of it. Those who look an address up take no lock: it would order
 * what nothing else orders. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static allocation allocations[MOST_ALLOCATIONS];
static int n_allocations; /* atomic access */
static char *region;
static size_t region_used;
/* That were not given back. */
static int n_streams, n_modules, n_pinned, n_live, n_events, n_graphs;
/* Graphs that were launched, for tests; atomic access. */
extern STAND_IN_API long long stand_in_n_replayed;
long long stand_in_n_replayed;
static uint64_t most_in_flight; /* events of a stream; atomic access */
static uint64_t n_streams_made;

/* ---- contexts ---- */

static _Thread_local struct CUctx_st *stack[16];
static _Thread_local int depth;

static struct CUctx_st *current(void) {
    return depth ? stack[depth - 1] : NULL;
}

static _Thread_local CUstream capturing; /* by this thread */

/* Of what a thread must not ask for while it captures: the capture is over. */
static wfi_cuda_enum refuse_captured(void) {
    if (!capturing) return FINE;
    capturing->captured->error = CAPTURE_INVALIDATED;
    return CAPTURE_UNSUPPORTED;
}

/* What the GPU of the current context has come to. */
static wfi_cuda_enum check(void) {
    if (!has_begun) return NOT_INITIALIZED;
    if (!current()) return INVALID_CONTEXT;
    return __atomic_load_n(&gpus[current()->device].lost, __ATOMIC_RELAXED);
}

/* Of what must not be asked for while the thread captures. */
static wfi_cuda_enum check_idle(void) {
    wfi_cuda_enum error = refuse_captured();
    return error ? error : check();
}

static void lose(int device, wfi_cuda_enum error) {
    __atomic_store_n(&gpus[device].lost, error, __ATOMIC_RELAXED);
}

/* What the driver does when it takes something back: it waits for the GPU. */
static void wait_for_gpu(int device) {
    while (__atomic_load_n(&gpus[device].hangs, __ATOMIC_RELAXED)) pause();
}

EXPORT(cuInit, (unsigned flags)) {
    wfi_cuda_enum error = (wfi_cuda_enum)stand_in_variable("STAND_IN_INIT", FINE);
    n_devices = (int)stand_in_variable("STAND_IN_DEVICES", 2);
    if (flags || n_devices > MOST_DEVICES) return INVALID_VALUE;
    if (error || has_begun) return error;
    if (!n_devices) return WFI_CUDA_NO_DEVICE;
    capability = (int)stand_in_variable("STAND_IN_CAPABILITY", 90);
    capacity = (size_t)stand_in_variable("STAND_IN_MEMORY", (long long)8 << 30);
    lost_after = stand_in_variable("STAND_IN_LOST_AFTER", -1);
    hang_after = stand_in_variable("STAND_IN_HANG_AFTER", -1);
    region =
        mmap(NULL, 2 * REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) return WFI_CUDA_OUT_OF_MEMORY;
    stand_in_shift = (ptrdiff_t)REGION_BYTES;
    has_begun = true;
    return FINE;
}

EXPORT(cuDriverGetVersion, (int *version)) {
    *version = (int)stand_in_variable("STAND_IN_VERSION", 13000);
    return FINE;
}

static const struct {
    wfi_cuda_enum error;
    const char *name, *means;
} errors[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {WFI_CUDA_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {WFI_CUDA_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"}};

EXPORT(cuGetErrorName, (wfi_cuda_enum error, const char **text)) {
    for (size_t i = 0; i < WFI_COUNT(errors); i++)
        if (errors[i].error == error) return *text = errors[i].name, FINE;
    return INVALID_VALUE;
}

EXPORT(cuGetErrorString, (wfi_cuda_enum error, const char **text)) {
    for (size_t i = 0; i < WFI_COUNT(errors); i++)
        if (errors[i].error == error) return *text = errors[i].means, FINE;
    return INVALID_VALUE;
}

EXPORT(cuDeviceGetCount, (int *n)) {
    *n = n_devices;
    return has_begun ? FINE : NOT_INITIALIZED;
}

EXPORT(cuDeviceGet, (CUdevice * device, int ordinal)) {
    *device = 100 + ordinal; /* no ordinal */
    return ordinal >= 0 && ordinal < n_devices ? FINE : INVALID_DEVICE;
}

static bool is_device(CUdevice device) {
    return device >= 100 && device < 100 + n_devices;
}

EXPORT(cuDeviceGetName, (char *name, int bytes, CUdevice device)) {
    if (!is_device(device)) return INVALID_DEVICE;
    snprintf(name, (size_t)bytes, "Stand-in %d", device - 100);
    return FINE;
}

EXPORT(cuDeviceGetAttribute, (int *value, wfi_cuda_enum attribute, CUdevice device)) {
    if (!is_device(device)) return INVALID_DEVICE;
    if (attribute == WFI_CUDA_CAPABILITY_MAJOR)
        *value = capability / 10;
    else if (attribute == WFI_CUDA_CAPABILITY_MINOR)
        *value = capability % 10;
    else
        return INVALID_VALUE;
    return FINE;
}

EXPORT(cuDeviceCanAccessPeer, (int *can, CUdevice device, CUdevice other)) {
    if (!is_device(device) || !is_device(other)) return INVALID_DEVICE;
    *can = device != other && stand_in_variable("STAND_IN_PEER", 1);
    return FINE;
}

EXPORT(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) {
    if (!is_device(device)) return INVALID_DEVICE;
    gpu *g = &gpus[device - 100];
    pthread_mutex_lock(&lock);
    if (!g->n_retained++) {
        g->context = calloc(1, sizeof *g->context);
        g->context->device = device - 100;
        g->context->peers = 1u << (device - 100);
    }
    *context = g->context;
    pthread_mutex_unlock(&lock);
    return FINE;
}

EXPORT(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) {
    if (!is_device(device) || !gpus[device - 100].n_retained) return INVALID_CONTEXT;
    wait_for_gpu(device - 100);
    pthread_mutex_lock(&lock);
    if (!--gpus[device - 100].n_retained) free(gpus[device - 100].context);
    pthread_mutex_unlock(&lock);
    return FINE;
}

EXPORT(cuCtxPushCurrent_v2, (CUcontext context)) {
    if (!context || depth == WFI_COUNT(stack)) return INVALID_CONTEXT;
    stack[depth++] = context;
    return FINE;
}

EXPORT(cuCtxPopCurrent_v2, (CUcontext * context)) {
    if (!depth) return INVALID_CONTEXT;
    *context = stack[--depth];
    return FINE;
}

EXPORT(cuCtxSetCurrent, (CUcontext context)) {
    if (depth) depth--;
    if (context) stack[depth++] = context;
    return FINE;
}

EXPORT(cuCtxEnablePeerAccess, (CUcontext other, unsigned flags)) {
    wfi_cuda_enum error = check();
    if (error || flags) return error ? error : INVALID_VALUE;
    if (!stand_in_variable("STAND_IN_PEER", 1)) return NO_PEER;
    unsigned bit = 1u << other->device;
    return __atomic_fetch_or(&current()->peers, bit, __ATOMIC_RELAXED) & bit ? WFI_CUDA_PEER_ALREADY
                                                                             : FINE;
}

/* ---- memory ---- */

static allocation *find(CUdeviceptr address, size_t bytes) {
    int n = __atomic_load_n(&n_allocations, __ATOMIC_ACQUIRE);
    for (int i = n - 1; i >= 0; i--) {
        allocation *a = &allocations[i];
        if (address < a->begin || address + bytes > a->begin + a->bytes) continue;
        return __atomic_load_n(&a->is_live, __ATOMIC_RELAXED) ? a : NULL;
    }
    return NULL;
}

static bool reaches(const struct CUctx_st *context, CUdeviceptr address, size_t bytes) {
    const allocation *a = find(address, bytes);
    return a && __atomic_load_n(&context->peers, __ATOMIC_RELAXED) >> a->device & 1;
}

int stand_in_device(void) {
    return current() ? current()->device : -1;
}

bool stand_in_reaches(CUdeviceptr address, size_t bytes) {
    return current() && reaches(current(), address, bytes);
}

EXPORT(cuMemGetInfo_v2, (size_t * n_free, size_t *n_total)) {
    wfi_cuda_enum error = check();
    if (error) return error;
    pthread_mutex_lock(&lock);
    *n_free = capacity - gpus[current()->device].used_bytes;
    *n_total = capacity;
    pthread_mutex_unlock(&lock);
    return FINE;
}

/* What is in new memory is nobody's. */
static wfi_cuda_enum allocate(CUdeviceptr *address, size_t bytes) {
    gpu *g = &gpus[current()->device];
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    if (bytes > capacity - g->used_bytes || region_used + whole + PAGE > REGION_BYTES ||
        n_allocations == MOST_ALLOCATIONS)
        return WFI_CUDA_OUT_OF_MEMORY;
    char *at = region + region_used;
    if (mprotect(at + stand_in_shift, whole, PROT_READ | PROT_WRITE)) return WFI_CUDA_OUT_OF_MEMORY;
    memset(at + stand_in_shift, 0xa5, whole);
    region_used += whole + PAGE;
    g->used_bytes += bytes;
    n_live++;
    *address = (CUdeviceptr)(uintptr_t)at;
    allocations[n_allocations] = (allocation){*address, bytes, current()->device, 1};
    __atomic_store_n(&n_allocations, n_allocations + 1, __ATOMIC_RELEASE);
    return FINE;
}

EXPORT(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes)) {
    wfi_cuda_enum error = check_idle();
    if (error || !bytes) return error ? error : INVALID_VALUE;
    pthread_mutex_lock(&lock);
    error = allocate(address, bytes);
    pthread_mutex_unlock(&lock);
    return error;
}

EXPORT(cuMemFree_v2, (CUdeviceptr address)) {
    wfi_cuda_enum error = check_idle();
    allocation *a = find(address, 1);
    if (!a || a->begin != address) return INVALID_VALUE;
    wait_for_gpu(a->device);
    size_t whole = (a->bytes + PAGE - 1) / PAGE * PAGE;
    pthread_mutex_lock(&lock);
    __atomic_store_n(&a->is_live, 0, __ATOMIC_RELAXED);
    gpus[a->device].used_bytes -= a->bytes;
    n_live--;
    madvise(STAND_IN_MEMORY(address), whole, MADV_DONTNEED);
    mprotect(STAND_IN_MEMORY(address), whole, PROT_NONE);
    pthread_mutex_unlock(&lock);
    return error;
}

typedef struct pinned {
    struct pinned *next;
    const char *at;
    size_t bytes;
} pinned;
static pinned *all_pinned;

static bool is_pinned(const void *address) {
    pthread_mutex_lock(&lock);
    const pinned *p = all_pinned;
    while (p && ((const char *)address < p->at || (const char *)address >= p->at + p->bytes))
        p = p->next;
    pthread_mutex_unlock(&lock);
    return p;
}

static void pin(const char *at, size_t bytes) {
    pinned *new = malloc(sizeof *new);
    pthread_mutex_lock(&lock);
    *new = (pinned){all_pinned, at, bytes};
    all_pinned = new;
    pthread_mutex_unlock(&lock);
}

static void unpin(const char *at) {
    pthread_mutex_lock(&lock);
    pinned **p = &all_pinned;
    while (*p && (*p)->at != at) p = &(*p)->next;
    pinned *old = *p;
    if (old) *p = old->next;
    pthread_mutex_unlock(&lock);
    free(old);
}

EXPORT(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags)) {
    wfi_cuda_enum error = check_idle();
    if (error || flags != WFI_CUDA_PORTABLE) return error ? error : INVALID_VALUE;
    if (posix_memalign(address, PAGE, bytes)) return WFI_CUDA_OUT_OF_MEMORY;
    memset(*address, 0xa5, bytes);
    pin(*address, bytes);
    __atomic_fetch_add(&n_pinned, 1, __ATOMIC_RELAXED);
    return FINE;
}

EXPORT(cuMemFreeHost, (void *address)) {
    if (current()) wait_for_gpu(current()->device);
    unpin(address);
    free(address);
    __atomic_fetch_sub(&n_pinned, 1, __ATOMIC_RELAXED);
    return check();
}

/* ---- streams ---- */

static uint64_t draw(struct CUstream_st *stream) {
    uint64_t x = stream->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return stream->random = x;
}

/* One of eight comes late. */
static void delay(struct CUstream_st *stream) {
    long long most = stand_in_variable("STAND_IN_DELAY_US", 100);
    uint64_t drawn = draw(stream);
    if (most <= 0 || drawn % 8) return;
    struct timespec time = {0, (long)(drawn / 8 % (uint64_t)most) * 1000};
    nanosleep(&time, NULL);
}

/* ---- events: the n-th time that one is recorded ---- */

typedef struct moment {
    CUevent event;
    uint64_t n;
} moment;

static wfi_cuda_enum run_record(void *argument) {
    const moment *m = argument;
    pthread_mutex_lock(&m->event->lock);
    m->event->n_happened = m->n;
    clock_gettime(CLOCK_MONOTONIC, &m->event->time);
    pthread_cond_broadcast(&m->event->changed);
    pthread_mutex_unlock(&m->event->lock);
    return FINE;
}

static wfi_cuda_enum run_wait(void *argument) {
    const moment *m = argument;
    pthread_mutex_lock(&m->event->lock);
    while (m->event->n_happened < m->n) pthread_cond_wait(&m->event->changed, &m->event->lock);
    pthread_mutex_unlock(&m->event->lock);
    return FINE;
}

EXPORT(cuEventCreate, (CUevent * out, unsigned flags)) {
    wfi_cuda_enum error = check_idle();
    if (error || flags & ~(unsigned)NO_TIMING) return error ? error : INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    (*out)->device = current()->device;
    (*out)->flags = flags;
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_cond_init(&(*out)->changed, NULL);
    __atomic_fetch_add(&n_events, 1, __ATOMIC_RELAXED);
    return FINE;
}

/* It may still be queued somewhere, as where a GPU is lost: none is given back before the end. */
static CUevent destroyed;

EXPORT(cuEventDestroy_v2, (CUevent event)) {
    pthread_mutex_lock(&lock);
    event->next = destroyed;
    destroyed = event;
    pthread_mutex_unlock(&lock);
    __atomic_fetch_sub(&n_events, 1, __ATOMIC_RELAXED);
    return check();
}

EXPORT(cuEventRecord, (CUevent event, CUstream stream)) {
    if (!event || !stream || event->device != stream->device) return INVALID_HANDLE;
    if (refuse_captured()) return CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&event->lock);
    const moment m = {event, ++event->n_recorded};
    pthread_mutex_unlock(&event->lock);
    return stand_in_queue(stream, run_record, &m, sizeof m);
}

EXPORT(cuEventQuery, (CUevent event)) {
    if (!event || refuse_captured()) return event ? CAPTURE_UNSUPPORTED : INVALID_HANDLE;
    pthread_mutex_lock(&event->lock);
    bool has_happened = event->n_happened == event->n_recorded;
    pthread_mutex_unlock(&event->lock);
    wfi_cuda_enum error = check();
    return error || has_happened ? error : WFI_CUDA_NOT_READY;
}

EXPORT(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) {
    if (!event || flags) return INVALID_HANDLE;
    if (refuse_captured()) return CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&event->lock);
    const moment m = {event, event->n_recorded};
    pthread_mutex_unlock(&event->lock);
    return stand_in_queue(stream, run_wait, &m, sizeof m);
}

EXPORT(cuEventElapsedTime, (float *ms, CUevent begin, CUevent end)) {
    if (begin->flags || end->flags) return INVALID_HANDLE;
    if (cuEventQuery(begin) || cuEventQuery(end)) return WFI_CUDA_NOT_READY;
    *ms = (float)((double)(end->time.tv_sec - begin->time.tv_sec) * 1e3 +
                  (double)(end->time.tv_nsec - begin->time.tv_nsec) / 1e6);
    return FINE;
}

/* ---- a stream's thread ---- */

static void *run_stream(void *argument) {
    struct CUstream_st *stream = argument;
    stack[depth++] = gpus[stream->device].context;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !stream->ends) pthread_cond_wait(&stream->changed, &stream->lock);
        item *now = stream->first;
        if (!now) break;
        pthread_mutex_unlock(&stream->lock);
        delay(stream);
        wfi_cuda_enum error = check();
        if (!error || now->is_event) error = now->run(now->argument);
        if (error) lose(stream->device, error);
        pthread_mutex_lock(&stream->lock);
        if (now->run == run_record) stream->n_events--;
        stream->first = now->next;
        if (!stream->first) stream->last = &stream->first;
        stream->n_done++;
        pthread_cond_broadcast(&stream->changed);
        free(now);
    }
    pthread_mutex_unlock(&stream->lock);
    stand_in_free_groups();
    return NULL;
}

static void count_event(CUstream stream) {
    uint64_t n = ++stream->n_events, most = __atomic_load_n(&most_in_flight, __ATOMIC_RELAXED);
    while (n > most && !__atomic_compare_exchange_n(&most_in_flight, &most, n, false,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static item *new_item(wfi_cuda_enum (*run)(void *), const void *argument, size_t bytes) {
    size_t head = (sizeof(item) + 63) / 64 * 64;
    item *new = malloc(head + bytes);
    *new = (item){NULL, run, (char *)new + head, bytes, run == run_record || run == run_wait};
    memcpy(new->argument, argument, bytes);
    return new;
}

/* ---- graphs: only the thread that has begun a capture may ask its stream for anything ---- */

static void append(CUgraph graph, item *new) {
    *graph->last = new;
    graph->last = &new->next;
}

static wfi_cuda_enum keep(CUstream stream, item *new) {
    append(stream->captured, new);
    if (stream != capturing || !stand_in_variable("STAND_IN_CAPTURE", 1))
        stream->captured->error = CAPTURE_INVALIDATED;
    return stream->captured->error;
}

static CUgraph new_graph(void) {
    CUgraph graph = calloc(1, sizeof *graph);
    graph->last = &graph->first;
    __atomic_fetch_add(&n_graphs, 1, __ATOMIC_RELAXED);
    return graph;
}

EXPORT(cuStreamBeginCapture_v2, (CUstream stream, wfi_cuda_enum mode)) {
    wfi_cuda_enum error = check();
    if (error || mode != WFI_CUDA_THREAD_LOCAL) return error ? error : INVALID_VALUE;
    if (!stream || stream->captured || capturing) return ILLEGAL_STATE;
    capturing = stream;
    stream->captured = new_graph();
    return FINE;
}

EXPORT(cuGraphDestroy, (CUgraph graph)) {
    for (item *next, *now = graph->first; now; now = next) {
        next = now->next;
        free(now);
    }
    free(graph);
    __atomic_fetch_sub(&n_graphs, 1, __ATOMIC_RELAXED);
    return FINE;
}

EXPORT(cuStreamEndCapture, (CUstream stream, CUgraph *out)) {
    *out = NULL;
    if (!stream || !stream->captured) return ILLEGAL_STATE;
    if (stream != capturing) return CAPTURE_WRONG_THREAD;
    CUgraph graph = stream->captured;
    wfi_cuda_enum error = graph->error;
    stream->captured = NULL;
    capturing = NULL;
    if (error)
        cuGraphDestroy(graph);
    else
        *out = graph;
    return error;
}

EXPORT(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph graph, unsigned long long flags)) {
    wfi_cuda_enum error = check_idle();
    if (error || flags) return error ? error : INVALID_VALUE;
    *out = malloc(sizeof **out);
    **out = (struct CUgraphExec_st){current()->device, new_graph()};
    for (const item *i = graph->first; i; i = i->next)
        append((*out)->graph, new_item(i->run, i->argument, i->bytes));
    return FINE;
}

EXPORT(cuGraphLaunch, (CUgraphExec exec, CUstream stream)) {
    wfi_cuda_enum error = check_idle();
    if (!error && (!stream || exec->device != stream->device)) error = INVALID_HANDLE;
    for (const item *i = exec->graph->first; i && !error; i = i->next)
        error = stand_in_queue(stream, i->run, i->argument, i->bytes);
    __atomic_fetch_add(&stand_in_n_replayed, 1, __ATOMIC_RELAXED);
    return error;
}

EXPORT(cuGraphExecDestroy, (CUgraphExec exec)) {
    wfi_cuda_enum error = check_idle();
    wait_for_gpu(exec->device);
    cuGraphDestroy(exec->graph);
    free(exec);
    return error;
}

wfi_cuda_enum stand_in_queue(CUstream stream, wfi_cuda_enum (*run)(void *argument),
                             const void *argument, size_t bytes) {
    wfi_cuda_enum error = check();
    if (error) return error;
    if (!stream || stream->device != current()->device) return INVALID_HANDLE;
    item *new = new_item(run, argument, bytes);
    if (stream->captured) return keep(stream, new);
    pthread_mutex_lock(&stream->lock);
    *stream->last = new;
    stream->last = &new->next;
    stream->n_queued++;
    if (run == run_record) count_event(stream);
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return FINE;
}

EXPORT(cuStreamCreate, (CUstream * out, unsigned flags)) {
    wfi_cuda_enum error = check_idle();
    if (error || flags != WFI_CUDA_NON_BLOCKING) return error ? error : INVALID_VALUE;
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    stream->device = current()->device;
    stream->last = &stream->first;
    stream->random = ((uint64_t)stand_in_variable("STAND_IN_SEED", 1) * 1000003 +
                      __atomic_add_fetch(&n_streams_made, 1, __ATOMIC_RELAXED)) *
                     UINT64_C(0x9E3779B97F4A7C15);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (pthread_create(&stream->thread, NULL, run_stream, stream)) return WFI_CUDA_OUT_OF_MEMORY;
    __atomic_fetch_add(&n_streams, 1, __ATOMIC_RELAXED);
    *out = stream;
    return FINE;
}

EXPORT(cuStreamDestroy_v2, (CUstream stream)) {
    pthread_mutex_lock(&stream->lock);
    stream->ends = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
    __atomic_fetch_sub(&n_streams, 1, __ATOMIC_RELAXED);
    return check();
}

EXPORT(cuStreamQuery, (CUstream stream)) {
    if (refuse_captured()) return CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&stream->lock);
    bool is_done = stream->n_done == stream->n_queued;
    pthread_mutex_unlock(&stream->lock);
    return is_done ? check() : WFI_CUDA_NOT_READY;
}

/* As the driver does before it copies memory that is not pinned. */
static void wait_for_stream(CUstream stream) {
    if (!stream) return;
    pthread_mutex_lock(&stream->lock);
    while (stream->n_done < stream->n_queued) pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

/* ---- copies ---- */

typedef struct copying {
    void *to;
    const void *from;
    int byte;
    size_t bytes;
} copying;

static wfi_cuda_enum run_copy(void *argument) {
    const copying *c = argument;
    if (c->from)
        memmove(c->to, c->from, c->bytes);
    else
        memset(c->to, c->byte, c->bytes);
    return FINE;
}

/* Of one's own GPU, or, as the driver copies that by way of the host, of another. */
static void *memory_of(CUdeviceptr address, size_t bytes) {
    return find(address, bytes) ? STAND_IN_MEMORY(address) : NULL;
}

static wfi_cuda_enum queue_copy(CUstream stream, void *to, const void *from, size_t bytes) {
    const copying c = {to, from, 0, bytes};
    return to && from ? stand_in_queue(stream, run_copy, &c, sizeof c) : INVALID_VALUE;
}

EXPORT(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) {
    return queue_copy(stream, memory_of(to, bytes), memory_of(from, bytes), bytes);
}

EXPORT(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream)) {
    if (refuse_captured()) return CAPTURE_UNSUPPORTED;
    if (!is_pinned(from)) wait_for_stream(stream);
    return queue_copy(stream, memory_of(to, bytes), from, bytes);
}

EXPORT(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream)) {
    if (refuse_captured()) return CAPTURE_UNSUPPORTED;
    if (!is_pinned(to)) wait_for_stream(stream);
    return queue_copy(stream, to, memory_of(from, bytes), bytes);
}

EXPORT(cuMemsetD8Async, (CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream)) {
    const copying c = {memory_of(to, bytes), NULL, byte, bytes};
    return c.to ? stand_in_queue(stream, run_copy, &c, sizeof c) : INVALID_VALUE;
}

/* ---- kernels ---- */

EXPORT(cuModuleLoadData, (CUmodule * out, const void *image)) {
    wfi_cuda_enum error = check_idle();
    char kind[16];
    int target;
    unsigned narrow;
    if (error) return error;
    if (sscanf(image, "stand-in %15[a-z]_%d %x", kind, &target, &narrow) != 3) return INVALID_IMAGE;
    if (strcmp(kind, "sm") == 0 ? target != capability : target > capability) return NO_BINARY;
    *out = calloc(1, sizeof **out);
    (*out)->narrow = narrow;
    __atomic_fetch_add(&n_modules, 1, __ATOMIC_RELAXED);
    return FINE;
}

EXPORT(cuModuleUnload, (CUmodule module)) {
    if (current()) wait_for_gpu(current()->device);
    for (CUfunction next, now = module->functions; now; now = next) {
        next = now->next;
        free(now);
    }
    free(module);
    __atomic_fetch_sub(&n_modules, 1, __ATOMIC_RELAXED);
    return check();
}

/* By its name among what this library exports. */
EXPORT(cuModuleGetFunction, (CUfunction * out, CUmodule module, const char *name)) {
    char symbol[128];
    Dl_info own;
    snprintf(symbol, sizeof symbol, "stand_in_%s", name);
    if (!dladdr(&gpus, &own)) return NOT_FOUND;
    void *library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    const stand_in_kernel *kernel = library ? dlsym(library, symbol) : NULL;
    if (library) dlclose(library);
    if (!kernel) return NOT_FOUND;
    *out = malloc(sizeof **out);
    pthread_mutex_lock(&lock);
    **out = (struct CUfunc_st){kernel, module->narrow, module->functions};
    module->functions = *out;
    pthread_mutex_unlock(&lock);
    return FINE;
}

typedef struct launching {
    const stand_in_kernel *kernel;
    unsigned narrow;
    long n_groups;
    char *memories[9];
    int *words;
    stand_in_arguments arguments;
} launching;

/* Operands that are there are memory that the GPU reaches. */
static wfi_cuda_enum run_launch(void *argument) {
    launching *l = argument;
    long long n = __atomic_add_fetch(&n_launches, 1, __ATOMIC_RELAXED);
    if (hang_after >= 0 && n > hang_after)
        __atomic_store_n(&gpus[current()->device].hangs, 1, __ATOMIC_RELAXED);
    wait_for_gpu(current()->device);
    if (lost_after >= 0 && n > lost_after)
        return (wfi_cuda_enum)stand_in_variable("STAND_IN_LOST", 719);
    for (size_t i = 0; i < WFI_COUNT(l->arguments.at); i++)
        if (l->arguments.at[i] != UINT64_MAX && !reaches(current(), l->arguments.at[i], 1))
            return ILLEGAL_ADDRESS;
    stand_in_run_groups(l->kernel, l->narrow, l->n_groups, l->memories, l->words, &l->arguments);
    return FINE;
}

EXPORT(cuLaunchKernel,
       (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
        unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra)) {
    launching l = {.kernel = function->kernel, .narrow = function->narrow, .n_groups = gx};
    CUdeviceptr at;
    if (!gx || gy != 1 || gz != 1 || bx != STAND_IN_GROUP || by != 1 || bz != 1 || shared || extra)
        return INVALID_VALUE;
    for (int i = 0; i < l.kernel->n_memories; i++) {
        memcpy(&at, parameters[i], sizeof at);
        l.memories[i] = STAND_IN_MEMORY(at);
    }
    memcpy(&at, parameters[l.kernel->n_memories], sizeof at);
    l.words = memory_of(at, 4 * sizeof *l.words);
    memcpy(&l.arguments, parameters[l.kernel->n_memories + 1], sizeof l.arguments);
    return l.words ? stand_in_queue(stream, run_launch, &l, sizeof l) : INVALID_VALUE;
}

/* ---- the end ---- */

__attribute__((destructor)) static void say_what_is_left(void) {
    int n_retained = 0;
    for (int i = 0; i < MOST_DEVICES; i++) {
        if (__atomic_load_n(&gpus[i].hangs, __ATOMIC_RELAXED)) return;
        n_retained += gpus[i].n_retained;
    }
    if (stand_in_variable("STAND_IN_COUNT", 0))
        fprintf(stderr, "stand-in: %llu events in flight\nstand-in: %lld graphs launched\n",
                (unsigned long long)most_in_flight, stand_in_n_replayed);
    if (n_live || n_pinned || n_streams || n_events || n_modules || n_retained || n_graphs)
        fprintf(stderr,
                "stand-in: left: %d allocations, %d of pinned memory, %d streams, %d events, "
                "%d modules, %d contexts, %d graphs\n",
                n_live, n_pinned, n_streams, n_events, n_modules, n_retained, n_graphs);
}
