/* What the launcher sees of the job that its ranks have joined, in the segment they share. */
#include "comm/job/control_kinds.h"

#include <sys/mman.h>

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

bool wfi_control_has_joined(int segment_fd, int rank, int64_t pid) {
    const wfi_job_segment *shared = map(segment_fd);
    if (!shared) return false;
    int64_t there = __atomic_load_n(&shared->ranks[rank].pid, __ATOMIC_ACQUIRE);
    unmap(shared);
    return there == pid || there == -pid; /* it has left */
}
