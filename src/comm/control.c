#include "comm/control.h"
#include "base/clock.h"
#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAGIC      UINT64_C(0x7765667431000004) /* changes with the layout */
#define NAP_MS     50
#define PAGE_BYTES 4096
#define UNKNOWN    (-1) /* has not come yet */
#define GONE       (-2)

typedef struct segment {
    uint64_t magic; /* atomic access; 0 until rank 0 has come */
    int32_t n_ranks;
    int32_t n_left; /* atomic access */
    wfi_failure failure;
    wfi_control_rank ranks[WFI_CONTROL_RANKS];
    double records[2][WFI_CONTROL_RECORDS][2];
} segment;

struct wf_job {
    wf_context *ctx;
    int rank, n_ranks;
    int64_t timeout_ms, stall_ms;
    bool has_place;  /* in the segment */
    uint64_t n_told; /* how often numbers were told: the halves take turns */
    segment *shared;
    uint64_t n_runs;                   /* of programs, begun */
    int stop;                          /* atomic access: this rank's reason to stop, or 0 */
    int arena_fd;                      /* of the arena published last, or -1 */
    int process_fd[WFI_CONTROL_RANKS]; /* readable when that process has ended; or: */
};

size_t wfi_control_bytes(void) {
    return sizeof(segment);
}

int wfi_control_rank_number(const wfi_control *c) {
    return c->rank;
}

int wfi_control_n_ranks(const wfi_control *c) {
    return c->n_ranks;
}

wf_context *wfi_control_context(const wfi_control *c) {
    return c->ctx;
}

int64_t wfi_control_timeout_ms(const wfi_control *c) {
    return c->timeout_ms;
}

bool wfi_control_is_here(const wfi_control *c, int rank) {
    return c->shared->ranks[rank].pid == c->shared->ranks[c->rank].pid;
}

wfi_control_rank *wfi_control_rank_at(const wfi_control *c, int rank) {
    return &c->shared->ranks[rank];
}

wfi_failure *wfi_control_failure(const wfi_control *c) {
    return &c->shared->failure;
}

double *wfi_control_records(const wfi_control *c, int half) {
    return &c->shared->records[half & 1][0][0];
}

/* ---- runs ---- */

/* A rank writes a half again two runs later, and by then all have read it: they have begun the
 * run between, or there would be nothing to read for it. */
void wfi_control_begin_run(wfi_control *c, const char *what) {
    wfi_control_rank *own = &c->shared->ranks[c->rank];
    snprintf(own->doing, sizeof own->doing, "%s", what);
    int stop = __atomic_load_n(&c->stop, __ATOMIC_RELAXED);
    __atomic_store_n(&own->stop[c->n_runs & 1], stop, __ATOMIC_RELEASE);
    __atomic_store_n(&own->n_runs, ++c->n_runs, __ATOMIC_RELEASE);
}

int wfi_control_stop_reason(const wfi_control *c) {
    int largest = 0;
    for (int r = 0; r < c->n_ranks && c->n_runs; r++) {
        const int32_t *stop = &c->shared->ranks[r].stop[(c->n_runs - 1) & 1];
        largest = (int)wfi_max_i64(largest, __atomic_load_n(stop, __ATOMIC_ACQUIRE));
    }
    return largest;
}

bool wfi_control_has_begun(const wfi_control *c, int rank) {
    return __atomic_load_n(&c->shared->ranks[rank].n_runs, __ATOMIC_ACQUIRE) >= c->n_runs;
}

void wfi_control_request_stop(wfi_control *c, int reason) {
    __atomic_store_n(&c->stop, reason, __ATOMIC_RELAXED);
}

void wfi_control_tell(int segment_fd, const char *sentence) {
    segment *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, segment_fd, 0);
    if (shared == MAP_FAILED) return; /* its ranks find out by themselves, a little later */
    wfi_failure_set(&shared->failure, WF_REMOTE, sentence);
    munmap(shared, sizeof *shared);
}

void wfi_control_peek(int segment_fd, wfi_failure *failure_out) {
    segment *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, segment_fd, 0);
    *failure_out = (wfi_failure){0};
    if (shared == MAP_FAILED) return;
    if (__atomic_load_n(&shared->failure.status, __ATOMIC_ACQUIRE)) *failure_out = shared->failure;
    munmap(shared, sizeof *shared);
}

/* ---- meeting ---- */

bool wfi_control_is_lost(const void *self, int rank) {
    const wfi_control *c = self;
    if (__atomic_load_n(&c->shared->ranks[rank].pid, __ATOMIC_ACQUIRE) < 0) return true;
    if (c->process_fd[rank] < 0) return c->process_fd[rank] == GONE;
    struct pollfd ended = {.fd = c->process_fd[rank], .events = POLLIN};
    return poll(&ended, 1, 0) == 1;
}

/* Once it has come: keeps an eye on its process. */
static void find_process(wfi_control *c, int rank) {
    int64_t pid = __atomic_load_n(&c->shared->ranks[rank].pid, __ATOMIC_ACQUIRE);
    if (c->process_fd[rank] != UNKNOWN || pid <= 0 || pid == getpid()) return;
    c->process_fd[rank] = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (c->process_fd[rank] < 0) c->process_fd[rank] = errno == ESRCH ? GONE : UNKNOWN;
}

/* Says it to everybody. */
static wf_status fail_all(wfi_control *c, wf_status status) {
    wfi_failure_set(&c->shared->failure, status, wf_context_error(c->ctx));
    return status;
}

static wf_status absent(wfi_control *c, int rank, const char *what) {
    char text[256];
    wfi_control_say_absent(c, rank, "", text, sizeof text);
    return wfi_fail(c->ctx, WF_TIMEOUT, "rank %d waited %lld ms to %s, but %s", c->rank,
                    (long long)c->timeout_ms, what, text);
}

/* Before the deadline: a line to whoever looks on, when it is due; then less and less often. */
static void warn(const wfi_control *c, int rank, int64_t begin_ms, int64_t *due_ms) {
    char text[256], how_long[48];
    if (!*due_ms || wfi_now_ms() - begin_ms < *due_ms) return;
    snprintf(how_long, sizeof how_long, " for %g s", (double)*due_ms / 1000);
    wfi_control_say_absent(c, rank, how_long, text, sizeof text);
    wfi_log(c->ctx, WF_LOG_WARN, "wait", "%s", text);
    *due_ms *= 6;
}

/* Without coming to this meeting. */
static bool has_left(const wfi_control *c, int rank, uint64_t n_meetings) {
    const wfi_control_rank *other = &c->shared->ranks[rank];
    return __atomic_load_n(&other->pid, __ATOMIC_ACQUIRE) < 0 &&
           __atomic_load_n(&other->meetings.epoch, __ATOMIC_ACQUIRE) < n_meetings;
}

/* Who leaves because of a failure has said it before. */
static wf_status say_left(wfi_control *c, int rank) {
    const wfi_control_rank *other = &c->shared->ranks[rank];
    wf_status failed = wfi_failure_status(&c->shared->failure);
    if (failed != WF_OK) return wfi_fail(c->ctx, failed, "%s", c->shared->failure.sentence);
    return fail_all(c, wfi_fail(c->ctx, WF_REMOTE, "rank %d has left the job; it last came to %.*s",
                                rank, WFI_CONTROL_DOING, other->doing));
}

static wf_status wait_for(wfi_control *c, int rank, uint64_t n_meetings, const char *what,
                          int64_t begin_ms) {
    wfi_control_rank *other = &c->shared->ranks[rank];
    int64_t due_ms = c->stall_ms;
    for (;;) {
        uint64_t seen = __atomic_load_n(&other->meetings.epoch, __ATOMIC_ACQUIRE);
        if (seen >= n_meetings) return WF_OK;
        wf_status failed = wfi_failure_status(&c->shared->failure);
        if (failed != WF_OK) return wfi_fail(c->ctx, failed, "%s", c->shared->failure.sentence);
        find_process(c, rank);
        if (has_left(c, rank, n_meetings)) return say_left(c, rank);
        if (wfi_control_is_lost(c, rank) &&
            __atomic_load_n(&other->meetings.epoch, __ATOMIC_ACQUIRE) < n_meetings)
            return fail_all(c,
                            wfi_fail(c->ctx, WF_REMOTE,
                                     "rank %d (process %lld) has died; it last came to %.*s", rank,
                                     (long long)other->pid, WFI_CONTROL_DOING, other->doing));
        if (wfi_now_ms() - begin_ms > c->timeout_ms) return fail_all(c, absent(c, rank, what));
        warn(c, rank, begin_ms, &due_ms);
        wfi_shared_epoch_sleep(&other->meetings, seen, NAP_MS);
    }
}

wf_status wfi_control_meet(wfi_control *c, const char *what) {
    wfi_control_rank *own = &c->shared->ranks[c->rank];
    snprintf(own->doing, sizeof own->doing, "%s", what);
    uint64_t n = own->meetings.epoch + 1;
    __atomic_store_n(&own->meetings.epoch, n, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&own->meetings);
    int64_t begin_ms = wfi_now_ms();
    for (int r = 0; r < c->n_ranks; r++) WF_TRY(wait_for(c, r, n, what, begin_ms));
    return WF_OK;
}

wf_status wfi_control_agree(wfi_control *c, uint64_t fingerprint) {
    c->shared->ranks[c->rank].fingerprint = fingerprint;
    WF_TRY(wfi_control_meet(c, "compare programs"));
    for (int r = 1; r < c->n_ranks; r++)
        if (c->shared->ranks[r].fingerprint != c->shared->ranks[0].fingerprint)
            return fail_all(
                c,
                wfi_fail(c->ctx, WF_REMOTE,
                         "rank %d runs another program, recipe, library or processor than rank 0 "
                         "(%016llx and %016llx); all ranks need the same command line",
                         r, (unsigned long long)c->shared->ranks[r].fingerprint,
                         (unsigned long long)c->shared->ranks[0].fingerprint));
    return wfi_control_meet(c, "begin");
}

/* Nobody begins to tell for the second time from now before all have read this time's. */
wf_status wfi_control_exchange(wfi_control *c, const char *what,
                               const int64_t own[WFI_CONTROL_NUMBERS],
                               int64_t (*all_out)[WFI_CONTROL_NUMBERS]) {
    int half = (int)(c->n_told++ & 1);
    memcpy(c->shared->ranks[c->rank].numbers[half], own, sizeof *all_out);
    WF_TRY(wfi_control_meet(c, what));
    for (int r = 0; r < c->n_ranks; r++)
        memcpy(all_out[r], c->shared->ranks[r].numbers[half], sizeof *all_out);
    return WF_OK;
}

/* ---- arenas ---- */

wf_status wfi_control_arena_create(wfi_control *c, size_t bytes, void **base_out) {
    size_t size = bytes ? bytes : 1;
    int fd = memfd_create("weft-arena", MFD_CLOEXEC);
    void *base = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
        base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        int error = errno;
        if (fd >= 0) close(fd);
        return wfi_fail(c->ctx, WF_NO_MEMORY, "the system refused %zu shared bytes for rank %d: %s",
                        bytes, c->rank, strerror(error));
    }
    madvise(base, size, MADV_HUGEPAGE);
    for (size_t at = 0; at < size; at += PAGE_BYTES) ((volatile char *)base)[at] = 0;
    if (c->arena_fd >= 0) close(c->arena_fd);
    c->arena_fd = fd;
    c->shared->ranks[c->rank].arena_fd = fd;
    c->shared->ranks[c->rank].arena_bytes = size;
    *base_out = base;
    return WF_OK;
}

wf_status wfi_control_arena_open(wfi_control *c, int rank, size_t *bytes_out, void **base_out) {
    const wfi_control_rank *other = &c->shared->ranks[rank];
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)other->pid, other->arena_fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *base = MAP_FAILED;
    if (fd >= 0) base = mmap(NULL, other->arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    if (fd >= 0) close(fd);
    if (base == MAP_FAILED)
        return wfi_fail(c->ctx, WF_DEVICE, "rank %d cannot see rank %d's memory (%s): %s", c->rank,
                        rank, path, strerror(error));
    *bytes_out = other->arena_bytes;
    *base_out = base;
    return WF_OK;
}

/* ---- joining and leaving ---- */

/* The descriptor that the launcher left open for us; -1 if there is none. */
static wf_status inherited(wf_context *ctx, int *fd_out) {
    const char *text = getenv(WFI_CONTROL_ENV);
    *fd_out = -1;
    if (!text || !*text) return WF_OK;
    char *end;
    long fd = strtol(text, &end, 10);
    struct stat about;
    if (*end || fd < 0 || fd > 1 << 20 || fstat((int)fd, &about) ||
        (size_t)about.st_size != sizeof(segment))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: " WFI_CONTROL_ENV "='%.40s' is no segment of this version's "
                        "launcher; start ranks by weft run",
                        text);
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    *fd_out = (int)fd;
    return WF_OK;
}

/* A segment that ranks have inherited serves one job after the other: who joins again may have
 * to wait until the last has left the one before. */
static wf_status enter(wfi_control *c) {
    wfi_control_rank *own = &c->shared->ranks[c->rank];
    const struct timespec nap = {0, 1000000};
    int64_t deadline_ms = wfi_now_ms() + c->timeout_ms;
    for (;;) {
        int64_t pid = 0;
        c->has_place = __atomic_compare_exchange_n(&own->pid, &pid, (int64_t)getpid(), false,
                                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        if (c->has_place) return WF_OK;
        if (pid > 0)
            return wfi_fail(c->ctx, WF_INVALID_ARG,
                            "two processes (%lld and %lld) say that they are rank %d",
                            (long long)pid, (long long)getpid(), c->rank);
        wf_status failed = wfi_failure_status(&c->shared->failure);
        if (failed != WF_OK)
            return wfi_fail(c->ctx, failed, "an earlier job of these ranks has failed: %s",
                            c->shared->failure.sentence);
        if (wfi_now_ms() > deadline_ms)
            return wfi_fail(c->ctx, WF_TIMEOUT,
                            "rank %d waited %lld ms, but not all ranks have left the earlier job",
                            c->rank, (long long)c->timeout_ms);
        nanosleep(&nap, NULL);
    }
}

/* Takes this rank's place in the segment. */
static wf_status take_place(wfi_control *c) {
    WF_TRY(enter(c));
    if (c->rank == 0) {
        c->shared->n_ranks = c->n_ranks;
        __atomic_store_n(&c->shared->magic, MAGIC, __ATOMIC_RELEASE);
    }
    WF_TRY(wfi_control_meet(c, "start"));
    if (__atomic_load_n(&c->shared->magic, __ATOMIC_ACQUIRE) != MAGIC ||
        c->shared->n_ranks != c->n_ranks)
        return fail_all(c, wfi_fail(c->ctx, WF_REMOTE,
                                    "rank %d is one of %d, rank 0 of %d, or of another version",
                                    c->rank, c->n_ranks, c->shared->n_ranks));
    for (int r = 0; r < c->n_ranks; r++) find_process(c, r);
    return WF_OK;
}

wf_status wfi_control_attach(wf_context *ctx, int fd, int rank, int n_ranks, int64_t timeout_ms,
                             wfi_control **control_out) {
    int64_t stall_ms;
    WF_TRY(wfi_env_count(ctx, WFI_WEFT_STALL_MS, &stall_ms));
    wfi_control *c = wfi_alloc(ctx, 1, sizeof *c, "a job's control");
    if (!c) return WF_NO_MEMORY;
    *c = (wfi_control){.ctx = ctx,
                       .rank = rank,
                       .n_ranks = n_ranks,
                       .timeout_ms = timeout_ms,
                       .stall_ms = stall_ms,
                       .arena_fd = -1};
    for (int r = 0; r < WFI_CONTROL_RANKS; r++) c->process_fd[r] = UNKNOWN;
    void *shared = mmap(NULL, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED) {
        int error = errno;
        wfi_free(ctx, c);
        return wfi_fail(ctx, WF_DEVICE, "the job's segment cannot be mapped: %s", strerror(error));
    }
    c->shared = shared;
    wf_status status = take_place(c);
    if (status != WF_OK) {
        wfi_control_leave(c);
        return status;
    }
    *control_out = c;
    return WF_OK;
}

wf_status wfi_control_join(wf_context *ctx, const char *name, int rank, int n_ranks,
                           int64_t timeout_ms, wfi_control **control_out) {
    int fd, inherited_fd;
    WF_TRY(inherited(ctx, &inherited_fd));
    if (inherited_fd >= 0)
        return wfi_control_attach(ctx, inherited_fd, rank, n_ranks, timeout_ms, control_out);
    WF_TRY(wfi_rendezvous(ctx, name, rank, n_ranks, timeout_ms, &fd));
    wf_status status = wfi_control_attach(ctx, fd, rank, n_ranks, timeout_ms, control_out);
    close(fd);
    return status;
}

/* The last who leaves makes the segment as it was in the beginning, a rank's number at last. */
static void give_up_place(wfi_control *c) {
    segment *shared = c->shared;
    wfi_control_rank *own = &shared->ranks[c->rank];
    __atomic_store_n(&own->pid, -own->pid, __ATOMIC_RELEASE);
    wfi_shared_epoch_wake(&own->meetings);
    if (__atomic_add_fetch(&shared->n_left, 1, __ATOMIC_ACQ_REL) != shared->n_ranks) return;
    __atomic_store_n(&shared->magic, 0, __ATOMIC_RELAXED);
    shared->n_left = 0;
    shared->failure = (wfi_failure){0};
    memset(shared->records, 0, sizeof shared->records);
    int n_ranks = shared->n_ranks;
    for (int r = 0; r < n_ranks; r++) {
        int64_t pid = shared->ranks[r].pid;
        shared->ranks[r] = (wfi_control_rank){.pid = pid};
    }
    for (int r = 0; r < n_ranks; r++) __atomic_store_n(&shared->ranks[r].pid, 0, __ATOMIC_RELEASE);
}

void wfi_control_leave(wfi_control *c) {
    if (!c) return;
    if (c->has_place) give_up_place(c);
    if (c->arena_fd >= 0) close(c->arena_fd);
    for (int r = 0; r < WFI_CONTROL_RANKS; r++)
        if (c->process_fd[r] >= 0) close(c->process_fd[r]);
    munmap(c->shared, sizeof(segment));
    wfi_free(c->ctx, c);
}

void wfi_control_abandon(wfi_control *c) {
    c->has_place = false;
    wfi_control_leave(c);
}
