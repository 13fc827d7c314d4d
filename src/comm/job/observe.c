/* What the launcher sees of the job that its ranks have joined, in the segment they share. */
#include "comm/job/control_kinds.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const wfi_job_segment *map(int segment_fd) {
    const wfi_job_segment *shared =
        mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, segment_fd, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

static void unmap(const wfi_job_segment *shared) {
    munmap((void *)(uintptr_t)shared, sizeof *shared);
}

static uint64_t n_done(const wfi_control_part *part) {
    uint64_t n = 0;
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
        n += __atomic_load_n(&part->epochs[s].epoch, __ATOMIC_RELAXED);
    return n;
}

uint64_t wfi_control_progress(int segment_fd) {
    const wfi_job_segment *shared = map(segment_fd);
    uint64_t n = 0;
    if (!shared) return 0;
    for (int r = 0; r < WFI_CONTROL_RANKS; r++) {
        const wfi_control_rank *rank = &shared->ranks[r];
        if (!__atomic_load_n(&rank->pid, __ATOMIC_RELAXED)) continue;
        n += __atomic_load_n(&rank->runs.epoch, __ATOMIC_RELAXED);
        n += __atomic_load_n(&rank->meetings.epoch, __ATOMIC_RELAXED);
        for (int t = 0; t < WFI_CONTROL_TRAINERS; t++) n += n_done(&rank->parts[t]);
    }
    unmap(shared);
    return n;
}

static int64_t process_of(int segment_fd, int rank) {
    const wfi_job_segment *shared = map(segment_fd);
    if (!shared) return 0;
    int64_t pid = __atomic_load_n(&shared->ranks[rank].pid, __ATOMIC_ACQUIRE);
    unmap(shared);
    return pid;
}

bool wfi_control_has_joined(int segment_fd, int rank, int64_t pid) {
    int64_t there = process_of(segment_fd, rank);
    return there == pid || there == -pid; /* it has left */
}

/* A rank's process leads a session, so what it has started is known by that. */
bool wfi_control_has_started(int segment_fd, int rank, int64_t leader) {
    int64_t pid = process_of(segment_fd, rank);
    if (pid <= 0 || pid == leader || getsid((pid_t)pid) != (pid_t)leader) return false;
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0), .events = POLLIN};
    if (ended.fd < 0) return false;
    bool has_ended = poll(&ended, 1, 0) == 1; /* it may be a zombie */
    close(ended.fd);
    return !has_ended;
}
