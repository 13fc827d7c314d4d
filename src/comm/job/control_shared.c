/* One segment that all processes of a machine map: a memfd from the launcher or from rank 0
 * (rendezvous.c). */
#include "base/clock.h"
#include "comm/job/control_kinds.h"
#include "comm/place/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNKNOWN (-1) /* has not joined yet */
#define GONE    (-2)
#define NAP_MS  50

size_t wfi_control_bytes(int n_ranks) {
    return sizeof(wfi_job_segment) + (size_t)n_ranks * sizeof(wfi_control_rank);
}

int wfi_control_room(int segment_fd) {
    struct stat about;
    size_t one = sizeof(wfi_control_rank);
    if (fstat(segment_fd, &about) || (size_t)about.st_size <= sizeof(wfi_job_segment)) return 0;
    size_t bytes = (size_t)about.st_size - sizeof(wfi_job_segment);
    return bytes % one || bytes / one > WFI_CONTROL_RANKS ? 0 : (int)(bytes / one);
}

wfi_job_segment *wfi_control_map(int segment_fd, size_t *bytes_out) {
    int n_ranks = wfi_control_room(segment_fd);
    *bytes_out = wfi_control_bytes(n_ranks);
    if (!n_ranks) return NULL;
    void *shared = mmap(NULL, *bytes_out, PROT_READ | PROT_WRITE, MAP_SHARED, segment_fd, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

void wfi_control_fail_segment(int segment_fd, const char *sentence) {
    size_t bytes;
    wfi_job_segment *shared = wfi_control_map(segment_fd, &bytes);
    if (!shared) return; /* its ranks detect the death themselves, a little later */
    wfi_failure_set(&shared->failure, WF_REMOTE, sentence);
    munmap(shared, bytes);
}

void wfi_control_peek(int segment_fd, wfi_failure *failure_out) {
    size_t bytes;
    wfi_job_segment *shared = wfi_control_map(segment_fd, &bytes);
    *failure_out = (wfi_failure){0};
    if (!shared) return;
    if (wfi_failure_first(&shared->failure)) *failure_out = shared->failure;
    munmap(shared, bytes);
}

static bool is_lost(const wfi_control *c, int rank) {
    if (wfi_control_pid_of(c, rank) < 0) return true;
    if (c->process_fd[rank] < 0) return c->process_fd[rank] == GONE;
    struct pollfd ended = {.fd = c->process_fd[rank], .events = POLLIN};
    return poll(&ended, 1, 0) == 1;
}

/* Watches the process of a rank that has joined. */
static void find_process(wfi_control *c, int rank) {
    int64_t pid = __atomic_load_n(&c->shared->ranks[rank].pid, __ATOMIC_ACQUIRE);
    if (c->process_fd[rank] != UNKNOWN || pid <= 0 || pid == getpid()) return;
    c->process_fd[rank] = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (c->process_fd[rank] < 0) c->process_fd[rank] = errno == ESRCH ? GONE : UNKNOWN;
}

/* ---- arenas ---- */

static void arena_publish(wfi_control *c, int trainer, int number, int fd) {
    int *own = &c->arena_fd[trainer][number];
    if (*own >= 0) close(*own);
    *own = fd;
    if (fd >= 0) wfi_control_part_of(c, c->rank, trainer)->arenas[number].fd = fd;
}

static void arena_forget(wfi_control *c, int trainer) {
    for (int k = 0; k < WFI_CONTROL_ARENAS; k++) arena_publish(c, trainer, k, -1);
}

static void *map(int fd, size_t bytes) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base != MAP_FAILED) madvise(base, bytes, MADV_HUGEPAGE);
    return base;
}

/* Keeps errno. */
static void close_quietly(int fd) {
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
}

void *wfi_shared_create(const char *name, size_t bytes, int *fd_out) {
    int fd = memfd_create(name, MFD_CLOEXEC);
    void *base = fd >= 0 && !ftruncate(fd, (off_t)bytes) ? map(fd, bytes) : MAP_FAILED;
    if (base == MAP_FAILED) close_quietly(fd);
    *fd_out = base == MAP_FAILED ? -1 : fd;
    return base;
}

static int open_foreign(int64_t pid, int foreign_fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)pid, foreign_fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

void *wfi_shared_open(int64_t pid, int foreign_fd, size_t bytes) {
    int fd = open_foreign(pid, foreign_fd);
    void *base = fd >= 0 ? map(fd, bytes) : MAP_FAILED;
    close_quietly(fd);
    return base;
}

static wf_status arena_create(wfi_control *c, int trainer, int number, size_t bytes,
                              void **base_out) {
    int fd;
    *base_out = wfi_shared_create("weft-arena", bytes, &fd);
    if (*base_out == MAP_FAILED)
        return wfi_fail(c->ctx, WF_NO_MEMORY, "the system refused %zu shared bytes for rank %d: %s",
                        bytes, c->rank, strerror(errno));
    arena_publish(c, trainer, number, fd);
    return WF_OK;
}

static wf_status arena_open(wfi_control *c, int rank, int trainer, int number, size_t bytes,
                            void **base_out) {
    const wfi_control_part *other = wfi_control_part_of(c, rank, trainer);
    *base_out = wfi_shared_open(wfi_control_pid_of(c, rank), (int)other->arenas[number].fd, bytes);
    if (*base_out != MAP_FAILED) return WF_OK;
    return wfi_fail(c->ctx, errno == ENOENT ? WF_REMOTE : WF_DEVICE, /* the process may be gone */
                    "rank %d cannot access rank %d's memory: %s", c->rank, rank, strerror(errno));
}

wf_status wfi_control_file_publish(wfi_control *c, int trainer, int number, int fd, size_t bytes) {
    if (c->transport) return WF_OK;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return wfi_fail(c->ctx, WF_DEVICE, "rank %d cannot share its file: %s", c->rank,
                        strerror(errno));
    arena_publish(c, trainer, number, own);
    wfi_control_part_of(c, c->rank, trainer)->arenas[number].bytes = bytes;
    return WF_OK;
}

wf_status wfi_control_file_open(wfi_control *c, int rank, int trainer, int number,
                                size_t *bytes_out, int *fd_out) {
    const wfi_control_part *other = wfi_control_part_of(c, rank, trainer);
    *bytes_out = c->transport ? 0 : other->arenas[number].bytes;
    *fd_out = -1;
    if (!*bytes_out) return WF_OK;
    *fd_out = open_foreign(wfi_control_pid_of(c, rank), (int)other->arenas[number].fd);
    if (*fd_out >= 0) return WF_OK;
    return wfi_fail(c->ctx, errno == ENOENT ? WF_REMOTE : WF_DEVICE,
                    "rank %d cannot access rank %d's file: %s", c->rank, rank, strerror(errno));
}

/* ---- joining and leaving ---- */

static void reset(wfi_control_rank *rank) {
    size_t first = offsetof(wfi_control_rank, left) + sizeof rank->left;
    memset((char *)rank + first, 0, sizeof *rank - first);
}

/* The last rank that leaves resets the segment and then advances `rounds`; until then no rank joins
 * the next job. Only the rank itself writes its `pid`. If the launcher replaces ranks, the next job
 * has another segment, and the launcher reads this one's failure. */
static void leave_slot(wfi_control *c) {
    wfi_job_segment *shared = c->shared;
    wfi_control_rank *own = &shared->ranks[c->rank];
    __atomic_store_n(&own->left, c->round, __ATOMIC_RELAXED);
    __atomic_store_n(&own->pid, -own->pid, __ATOMIC_RELEASE);
    wfi_shared_epoch_wake(&own->barriers);
    wfi_shared_epoch_wake(&own->runs);
    if (__atomic_add_fetch(&shared->n_left, 1, __ATOMIC_ACQ_REL) != shared->n_ranks ||
        shared->launcher)
        return;
    __atomic_store_n(&shared->magic, 0, __ATOMIC_RELAXED);
    shared->n_left = 0;
    wfi_failure_clear(&shared->failure);
    for (int r = 0; r < shared->n_ranks; r++) reset(&shared->ranks[r]);
    __atomic_store_n(&shared->rounds.epoch, c->round + 1, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&shared->rounds);
}

static void leave(wfi_control *c) {
    if (c->has_slot) leave_slot(c);
    for (int t = 0; t < WFI_CONTROL_TRAINERS; t++) arena_forget(c, t);
    for (int r = 0; r < c->n_ranks; r++)
        if (c->process_fd[r] >= 0) close(c->process_fd[r]);
    munmap(c->shared, c->shared_bytes);
}

const wfi_control_kind wfi_control_shared = {
    .find_process = find_process,
    .is_lost = is_lost,
    .arena_create = arena_create,
    .arena_open = arena_open,
    .arena_forget = arena_forget,
    .leave = leave,
};

/* The descriptor inherited from the launcher; -1: none. */
static wf_status inherited(wf_context *ctx, int *fd_out) {
    const char *text = getenv(WFI_CONTROL_ENV);
    *fd_out = -1;
    if (!text || !*text) return WF_OK;
    char *end;
    long fd = strtol(text, &end, 10);
    if (*end || fd < 0 || fd > 1 << 20 || !wfi_control_room((int)fd))
        return wfi_fail(
            ctx, WF_INVALID_ARG,
            "environment: " WFI_CONTROL_ENV
            "='%.40s' is not a segment of this version's launcher; start ranks by weft run",
            text);
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    *fd_out = (int)fd;
    return WF_OK;
}

/* Takes the rank's slot if it is free. *pid_out is then 0, otherwise the process in the slot (< 0:
 * it has left this round). */
static bool take(wfi_control *c, int64_t *pid_out) {
    wfi_control_rank *own = &c->shared->ranks[c->rank];
    int64_t pid = __atomic_load_n(&own->pid, __ATOMIC_ACQUIRE);
    *pid_out = pid;
    if (pid > 0 || (pid < 0 && own->left == c->round)) return false;
    return __atomic_compare_exchange_n(&own->pid, pid_out, (int64_t)getpid(), false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* An inherited segment serves one job after the other, so a rank that joins again waits until the
 * last rank has left the job before. A round cannot end without this rank once it has taken its
 * slot. */
static wf_status enter(wfi_control *c) {
    wfi_shared_epoch *rounds = &c->shared->rounds;
    int64_t deadline_ms = wfi_now_ms() + c->timeout_ms, pid;
    for (;;) {
        c->round = __atomic_load_n(&rounds->epoch, __ATOMIC_ACQUIRE);
        c->has_slot = take(c, &pid);
        if (c->has_slot) return WF_OK;
        if (pid > 0)
            return wfi_fail(c->ctx, WF_INVALID_ARG,
                            "two processes (%lld and %lld) claim to be rank %d", (long long)pid,
                            (long long)getpid(), c->rank);
        wf_status failed = wfi_failure_check(c->ctx, &c->shared->failure);
        if (failed != WF_OK)
            return wfi_fail_at(c->ctx, failed, "an earlier job of these ranks has failed");
        if (wfi_now_ms() > deadline_ms)
            return wfi_fail(c->ctx, WF_TIMEOUT,
                            "rank %d waited %lld ms, but not all ranks have left the earlier job",
                            c->rank, (long long)c->timeout_ms);
        wfi_shared_epoch_sleep(rounds, c->round, NAP_MS);
    }
}

/* Takes this rank's slot in the segment. */
static wf_status take_slot(wfi_control *c) {
    WF_TRY(enter(c));
    if (c->rank == 0) {
        c->shared->n_ranks = c->n_ranks;
        __atomic_store_n(&c->shared->magic, WFI_CONTROL_MAGIC, __ATOMIC_RELEASE);
    }
    WF_TRY(wfi_control_barrier(c, "start"));
    if (__atomic_load_n(&c->shared->magic, __ATOMIC_ACQUIRE) != WFI_CONTROL_MAGIC ||
        c->shared->n_ranks != c->n_ranks)
        return wfi_control_fail_all(
            c,
            wfi_fail(c->ctx, WF_REMOTE, "rank %d is one of %d, rank 0 of %d, or of another version",
                     c->rank, c->n_ranks, c->shared->n_ranks));
    for (int r = 0; r < c->n_ranks; r++) find_process(c, r);
    return WF_OK;
}

wf_status wfi_control_attach(wf_context *ctx, int fd, int rank, int n_ranks, int64_t timeout_ms,
                             wfi_control **control_out) {
    wfi_control *c;
    if (n_ranks > wfi_control_room(fd))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "rank %d is one of %d, but the job was started for %d ranks", rank, n_ranks,
                        wfi_control_room(fd));
    WF_TRY(wfi_control_create(ctx, &wfi_control_shared, rank, n_ranks, timeout_ms, &c));
    c->process_fd = wfi_alloc(ctx, (size_t)n_ranks, sizeof *c->process_fd, "a job's control");
    if (!c->process_fd) {
        wfi_control_destroy(c);
        return WF_NO_MEMORY;
    }
    memset(c->arena_fd, -1, sizeof c->arena_fd);
    for (int r = 0; r < n_ranks; r++) c->process_fd[r] = UNKNOWN;
    c->shared = wfi_control_map(fd, &c->shared_bytes);
    if (!c->shared) {
        int error = errno;
        wfi_control_destroy(c);
        return wfi_fail(ctx, WF_DEVICE, "the job's segment cannot be mapped: %s", strerror(error));
    }
    wf_status status = take_slot(c);
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
    if (inherited_fd >= 0) WF_TRY(wfi_control_follow(ctx, inherited_fd, rank, timeout_ms));
    if (inherited_fd >= 0)
        return wfi_control_attach(ctx, inherited_fd, rank, n_ranks, timeout_ms, control_out);
    WF_TRY(wfi_rendezvous(ctx, name, rank, n_ranks, timeout_ms, &fd));
    wf_status status = wfi_control_attach(ctx, fd, rank, n_ranks, timeout_ms, control_out);
    close(fd);
    return status;
}
