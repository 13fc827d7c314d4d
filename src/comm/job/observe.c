/* The launcher's view of its ranks' job, read from the segment. */
#include "comm/job/control_kinds.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t n_done(const wfi_shared_epoch *epochs) {
    uint64_t n = 0;
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
        n += __atomic_load_n(&epochs[s].epoch, __ATOMIC_RELAXED);
    return n;
}

uint64_t wfi_control_progress(int segment_fd) {
    size_t bytes;
    wfi_job_segment *shared = wfi_control_map(segment_fd, &bytes);
    int n_ranks = wfi_control_room(segment_fd);
    uint64_t n = 0;
    if (!shared) return 0;
    for (int r = 0; r < n_ranks; r++) {
        const wfi_control_rank *rank = &shared->ranks[r];
        if (!__atomic_load_n(&rank->pid, __ATOMIC_RELAXED)) continue;
        n += __atomic_load_n(&rank->runs.epoch, __ATOMIC_RELAXED);
        n += __atomic_load_n(&rank->barriers.epoch, __ATOMIC_RELAXED);
        for (int t = 0; t < WFI_CONTROL_TRAINERS; t++) n += n_done(rank->epochs[t]);
    }
    munmap(shared, bytes);
    return n;
}

static int64_t process_of(int segment_fd, int rank) {
    size_t bytes;
    wfi_job_segment *shared = wfi_control_map(segment_fd, &bytes);
    if (!shared) return 0;
    int64_t pid = __atomic_load_n(&shared->ranks[rank].pid, __ATOMIC_ACQUIRE);
    munmap(shared, bytes);
    return pid;
}

bool wfi_control_has_joined(int segment_fd, int rank, int64_t pid) {
    int64_t there = process_of(segment_fd, rank);
    return there == pid || there == -pid; /* a negative pid: it has left */
}

/* A rank's process leads a session, so its descendants are found by their session. */
bool wfi_control_has_started(int segment_fd, int rank, int64_t leader) {
    int64_t pid = process_of(segment_fd, rank);
    if (pid <= 0 || pid == leader || getsid((pid_t)pid) != (pid_t)leader) return false;
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0), .events = POLLIN};
    if (ended.fd < 0) return false;
    bool has_ended = poll(&ended, 1, 0) == 1; /* it may be a zombie */
    close(ended.fd);
    return !has_ended;
}
