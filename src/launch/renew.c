/* Replacing ranks that a signal has killed, while the others keep their processes.
 *
 * All ranks learn of the death at once, because the job's segment reports it. They abandon their
 * work and wait for a successor of the segment. The launcher creates the successor when all lost
 * ranks are reaped and the caller agrees. A rank that keeps the others waiting is killed, and
 * replaced as well. */
#include "comm/job/control.h"
#include "launch/descriptor.h"
#include "launch/process_group.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define LOOK_MS 100 /* between looks for ranks that await a successor */

/* ---- lost ranks ---- */

bool wfi_renewal_is_pending(const wfi_process_group *group) {
    return group->lost_rank >= 0 && !group->is_stopping && group->failed_rank < 0;
}

bool wfi_renewal_lose(wfi_process_group *group, int rank) {
    const wfi_rank_process *process = &group->ranks[rank];
    if (!group->config->replace || !process->signal || group->is_stopping ||
        group->failed_rank >= 0)
        return false;
    if (group->lost_rank < 0) group->lost_rank = rank;
    return true;
}

/* ---- ranks that await a successor ---- */

/* Counts running ranks, and those of them that await one. */
static int count_waiting(const wfi_process_group *group, int *n_running_out) {
    int n_waiting = 0;
    *n_running_out = 0;
    for (int rank = 0; rank < group->n_ranks; rank++) {
        if (group->ranks[rank].state != WFI_RANK_RUNS) continue;
        ++*n_running_out;
        n_waiting += wfi_control_awaits(group->segment_fd, rank);
    }
    return n_waiting;
}

/* The job has failed without a death. Its failure was shared, so a rank that works on stalls. */
static void kill_stalled(wfi_process_group *group) {
    for (int rank = 0; rank < group->n_ranks; rank++)
        if (group->ranks[rank].state == WFI_RANK_RUNS &&
            !wfi_control_awaits(group->segment_fd, rank))
            wfi_rank_kill(group, rank);
}

/* Returns whether all running ranks await a successor. */
static bool has_failed(wfi_process_group *group) {
    int n_running, n_waiting = count_waiting(group, &n_running);
    int64_t grace_ms = wfi_min_i64(group->config->grace_ms, group->stuck_ms);
    if (!n_waiting) group->waiting = wfi_wait_begin();
    if (n_waiting && n_waiting < n_running && wfi_wait_ms(&group->waiting) >= grace_ms)
        kill_stalled(group);
    return n_waiting && n_waiting == n_running;
}

/* ---- the renewal ---- */

static void describe(const wfi_process_group *group, char *text, size_t bytes) {
    wfi_failure failure;
    if (group->lost_rank >= 0 && !group->ranks[group->lost_rank].is_killed) {
        wfi_say_end(group, group->lost_rank, text, bytes);
        return;
    }
    wfi_control_peek(group->segment_fd, &failure);
    snprintf(text, bytes, "%s",
             failure.first ? wfi_failure_first(&failure)->sentence : "the ranks have given up");
}

/* The latest segment always has the same descriptor. */
static wf_status replace_segment(wfi_process_group *group) {
    int next = -1, old = fcntl(group->segment_fd, F_DUPFD_CLOEXEC, 3);
    wf_status status = wfi_control_segment(group->ctx, group->n_ranks, &next);
    if (status == WF_OK && (old < 0 || dup3(next, group->segment_fd, O_CLOEXEC) < 0))
        status = wfi_fail(group->ctx, WF_DEVICE, "launch: the job's segment cannot be replaced");
    if (status == WF_OK) {
        wfi_control_promise(group->segment_fd);
        wfi_control_replace(old, true);
    }
    wfi_descriptor_close(&old);
    wfi_descriptor_close(&next);
    return status;
}

/* Starts the ranks that have ended in an earlier segment. One that had finished there is needed
 * again, because the others repeat steps. */
static wf_status start_again(wfi_process_group *group) {
    for (int rank = 0; rank < group->n_ranks && !group->is_stopping; rank++) {
        wfi_rank_process *process = &group->ranks[rank];
        if (process->state != WFI_RANK_GONE ||
            wfi_control_has_joined(group->segment_fd, rank, process->pid))
            continue;
        *process = (wfi_rank_process){.pidfd = -1, .pipes = {-1, -1}};
        WF_TRY(wfi_rank_spawn(group, rank));
    }
    return WF_OK;
}

static wf_status renew(wfi_process_group *group) {
    WF_TRY(replace_segment(group));
    group->lost_rank = -1;
    group->is_asked = false;
    group->is_renewed = true;
    group->waiting = wfi_wait_begin();
    return start_again(group);
}

/* Asks the caller; *ms_out: how long to wait first. */
static bool is_wanted(wfi_process_group *group, int64_t now_ms) {
    char text[WFI_SENTENCE_BYTES];
    if (group->is_asked) return true;
    describe(group, text, sizeof text);
    int64_t wait_ms = group->config->replace(group->config->replace_self, text);
    group->is_asked = true;
    group->renew_ms = now_ms + wait_ms;
    if (wait_ms >= 0) return true;
    if (group->lost_rank >= 0)
        wfi_process_group_record(group, group->lost_rank, now_ms);
    else
        wfi_process_group_fail(group, wfi_fail(group->ctx, WF_TIMEOUT, "%s", text));
    return false;
}

static bool are_reaped(const wfi_process_group *group) {
    for (int rank = 0; rank < group->n_ranks; rank++)
        if (group->ranks[rank].state == WFI_RANK_LEAVES) return false;
    return true;
}

int64_t wfi_renewal_keep_time(wfi_process_group *group, int64_t now_ms) {
    if (!group->config->replace || group->is_stopping || group->failed_rank >= 0) return INT64_MAX;
    wf_status status = WF_OK;
    bool is_due = group->lost_rank >= 0 || has_failed(group);
    bool is_late = !is_due && group->is_renewed && wfi_process_group_is_running(group);
    if (is_late) status = start_again(group);
    if (status != WF_OK) wfi_process_group_fail(group, status);
    if (!is_due) return now_ms + LOOK_MS;
    if (!is_wanted(group, now_ms)) return now_ms;
    if (!are_reaped(group)) return INT64_MAX; /* their last lines and their end wake us */
    if (now_ms < group->renew_ms) return group->renew_ms;
    status = renew(group);
    if (status != WF_OK) wfi_process_group_fail(group, status);
    return now_ms;
}
