/* Replacement of dead ranks by the launcher: the job's segment gets a successor, through which the
 * surviving ranks join the job again.
 *
 * The launcher keeps each segment under the same descriptor, so /proc names the latest one. A rank
 * may be several segments behind. A segment that a killed rank was writing is never used again.
 */
#include "comm/job/control_kinds.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NAP_MS   20
#define EXTRA_MS 60000 /* the launcher has deadlines of its own */

/* Values of wfi_job_segment.renewal. */
enum { VALID, HAS_SUCCESSOR, HAS_NONE };

/* ---- the launcher ---- */

void wfi_control_promise(int segment_fd) {
    size_t bytes;
    wfi_job_segment *shared = wfi_control_map(segment_fd, &bytes);
    if (!shared) return;
    shared->launcher = getpid();
    munmap(shared, bytes);
}

void wfi_control_replace(int segment_fd, bool has_successor) {
    size_t bytes;
    wfi_job_segment *shared = wfi_control_map(segment_fd, &bytes);
    if (!shared) return;
    __atomic_store_n(&shared->renewal.epoch, has_successor ? HAS_SUCCESSOR : HAS_NONE,
                     __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&shared->renewal);
    munmap(shared, bytes);
}

bool wfi_control_awaits(int segment_fd, int rank) {
    size_t bytes;
    wfi_job_segment *shared = wfi_control_map(segment_fd, &bytes);
    if (!shared) return false;
    bool awaits = __atomic_load_n(&shared->ranks[rank].awaits, __ATOMIC_ACQUIRE);
    munmap(shared, bytes);
    return awaits;
}

/* ---- the ranks ---- */

/* Whether this process has been in the segment's job, or the job failed before this process joined.
 */
static bool is_spent(const wfi_job_segment *shared, int rank) {
    return shared->launcher && (__atomic_load_n(&shared->renewal.epoch, __ATOMIC_ACQUIRE) ||
                                wfi_failure_first(&shared->failure) ||
                                __atomic_load_n(&shared->ranks[rank].pid, __ATOMIC_ACQUIRE));
}

static wf_status await_successor(wf_context *ctx, wfi_job_segment *shared, int rank,
                                 int64_t timeout_ms) {
    wfi_wait_clock clock = wfi_wait_begin();
    uint64_t state;
    __atomic_store_n(&shared->ranks[rank].awaits, 1, __ATOMIC_RELEASE);
    while ((state = __atomic_load_n(&shared->renewal.epoch, __ATOMIC_ACQUIRE)) == VALID) {
        if (wfi_wait_ms(&clock) > timeout_ms + EXTRA_MS)
            return wfi_fail(ctx, WF_INTERRUPTED, "rank %d waited %lld ms for the launcher", rank,
                            (long long)(timeout_ms + EXTRA_MS));
        wfi_shared_epoch_sleep(&shared->renewal, VALID, NAP_MS);
    }
    if (state == HAS_SUCCESSOR) return WF_OK;
    const wfi_failure_entry *first = wfi_failure_first(&shared->failure);
    return wfi_fail(ctx, WF_INTERRUPTED, "%.*s", WFI_SENTENCE_BYTES - 1,
                    first ? first->sentence : "the launcher has stopped the run");
}

static wf_status open_successor(wf_context *ctx, int64_t launcher, int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)launcher, fd);
    int next = open(path, O_RDWR | O_CLOEXEC);
    int moved = next >= 0 ? dup3(next, fd, O_CLOEXEC) : -1, error = errno;
    if (next >= 0) close(next);
    if (moved >= 0) return WF_OK;
    return wfi_fail(ctx, WF_REMOTE, "the job cannot be joined anew: %s: %s", path, strerror(error));
}

wf_status wfi_control_follow(wf_context *ctx, int segment_fd, int rank, int64_t timeout_ms) {
    for (;;) {
        size_t bytes;
        wfi_job_segment *shared = wfi_control_map(segment_fd, &bytes);
        if (!shared || rank >= wfi_control_room(segment_fd)) return WF_OK; /* attaching fails */
        int64_t launcher = shared->launcher;
        bool goes_on = !is_spent(shared, rank);
        wf_status status = goes_on ? WF_OK : await_successor(ctx, shared, rank, timeout_ms);
        munmap(shared, bytes);
        if (goes_on || status != WF_OK) return status;
        WF_TRY(open_successor(ctx, launcher, segment_fd));
    }
}
