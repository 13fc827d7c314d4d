/* Handles the end of ranks: finds the one that failed first, and stops the others. */
#include "comm/job/control.h"
#include "launch/process_group.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SETTLE_MS 100 /* within this time, failures may have one cause */
#define BLAMED_MS 500 /* the blamed rank may take this long to end, too */
#define LEAVE_MS  200 /* children of a rank may finish their lines */
#define GRACE_MS  2000
#define BLAMES    4 /* weft's exit status for "another rank has died" */

static void send(const wfi_process_group *group, int rank, int signal_number) {
    kill(-group->ranks[rank].pid, signal_number);
}

static void send_all(const wfi_process_group *group, int signal_number) {
    for (int rank = 0; rank < group->n_ranks; rank++)
        if (group->ranks[rank].state != WFI_RANK_GONE) send(group, rank, signal_number);
}

bool wfi_process_group_is_running(const wfi_process_group *group) {
    for (int rank = 0; rank < group->n_ranks; rank++)
        if (group->ranks[rank].state == WFI_RANK_RUNS) return true;
    return false;
}

bool wfi_process_group_is_alive(const wfi_process_group *group) {
    for (int rank = 0; rank < group->n_ranks; rank++)
        if (group->ranks[rank].state != WFI_RANK_GONE) return true;
    return wfi_renewal_is_pending(group);
}

static int64_t grace_of(const wfi_process_group *group) {
    return group->config->grace_ms ? group->config->grace_ms : GRACE_MS;
}

/* ---- stopping ---- */

static bool is_stopped(const wfi_rank_process *process) {
    return process->state == WFI_RANK_RUNS &&
           strstr(wfi_process_state(process->pid), "SIGCONT") != NULL;
}

void wfi_process_group_stop(wfi_process_group *group, int signal_number) {
    if (group->is_stopping) return;
    group->is_stopping = true;
    group->asked = group->still = wfi_wait_begin();
    if (group->config->replace) wfi_control_replace(group->segment_fd, false);
    for (int rank = 0; rank < group->n_ranks; rank++)
        group->ranks[rank].is_lost |= is_stopped(&group->ranks[rank]);
    send_all(group, signal_number);
    send_all(group, SIGCONT); /* a stopped process does not hear the other */
}

void wfi_rank_kill(wfi_process_group *group, int rank) {
    group->ranks[rank].is_killed = true;
    send(group, rank, SIGKILL);
}

void wfi_process_group_kill(wfi_process_group *group) {
    wfi_process_group_stop(group, SIGTERM);
    group->is_killing = true;
    for (int rank = 0; rank < group->n_ranks; rank++)
        if (group->ranks[rank].state == WFI_RANK_RUNS) wfi_rank_kill(group, rank);
}

/* Ctrl-Z: the ranks, in sessions of their own, do not hear the terminal's. By SIGSTOP, because none
 * of them has a shell that could continue it, and so the kernel would ignore SIGTSTP. */
static void suspend(const wfi_process_group *group) {
    send_all(group, SIGSTOP);
    kill(getpid(), SIGSTOP); /* until somebody continues us */
    send_all(group, SIGCONT);
}

void wfi_process_group_note(wfi_process_group *group, int signal_number) {
    int request = group->config->stop_signal;
    if (signal_number == request && group->stopped_by) return;
    if (request && group->interrupted_by == request) group->interrupted_by = signal_number;
    group->stopped_by = signal_number;
}

/* Whether the failed rank, about which nothing is decided yet, has ended by this signal. */
static bool ended_by(const wfi_process_group *group, int signal_number) {
    return group->failed_rank >= 0 && !group->is_decided &&
           group->ranks[group->failed_rank].exit_status == 128 + signal_number;
}

void wfi_process_group_interrupt(wfi_process_group *group, int signal_number) {
    if (signal_number == SIGTSTP) {
        suspend(group);
        return;
    }
    int request = group->config->stop_signal;
    bool is_mild = request && (signal_number == request || group->stopped_by == request);
    if (ended_by(group, signal_number)) { /* it has come to ranks and launcher alike */
        wfi_merge_put_first(&group->merge, group->failed_rank);
        group->failed_rank = -1;
    }
    if (group->failed_rank < 0 && !group->interrupted_by && group->status == WF_OK)
        group->interrupted_by = signal_number;
    wfi_process_group_note(group, signal_number);
    if (!group->is_stopping)
        wfi_process_group_stop(group, signal_number == SIGINT ? SIGINT : SIGTERM);
    else if (!is_mild)
        wfi_process_group_kill(group);
    if (!wfi_process_group_is_alive(group))
        wfi_merge_abandon(&group->merge); /* no reader takes the lines */
}

void wfi_process_group_fail(wfi_process_group *group, wf_status status) {
    if (group->status == WF_OK) group->status = status;
    wfi_merge_abandon(&group->merge);
    wfi_process_group_stop(group, SIGTERM);
}

static void time_out(wfi_process_group *group) {
    char who[300];
    wfi_say_running(group, who, sizeof who);
    group->status =
        wfi_fail(group->ctx, WF_TIMEOUT,
                 "the run has not ended after %.3g s: %s still ran and had to be stopped",
                 (double)group->config->timeout_ms / 1000, who);
    wfi_process_group_stop(group, SIGTERM);
}

/* ---- those that have been asked ---- */

/* The last rank that leaves a job leaves no trace of it, so this is remembered. */
static bool has_joined(wfi_process_group *group, int rank) {
    wfi_rank_process *process = &group->ranks[rank];
    process->has_joined |= wfi_control_has_joined(group->segment_fd, rank, process->pid);
    return process->has_joined;
}

/* Whether a process that the rank has started is in a job now. */
static bool works_on(wfi_process_group *group, int rank) {
    wfi_rank_process *process = &group->ranks[rank];
    bool does = wfi_control_has_started(group->segment_fd, rank, process->pid);
    process->has_started |= does;
    return does;
}

/* A run that failed before it was asked to stop has nothing to save. */
static bool may_save(wfi_process_group *group, int rank) {
    return (has_joined(group, rank) || works_on(group, rank)) && group->failed_rank < 0 &&
           (group->status == WF_OK || group->status == WF_TIMEOUT);
}

static bool is_late(wfi_process_group *group, int rank, int64_t grace_ms) {
    int64_t still_ms = wfi_wait_ms(&group->still), asked_ms = wfi_wait_ms(&group->asked);
    if (may_save(group, rank)) return still_ms >= group->stuck_ms;
    return (group->ranks[rank].has_started ? still_ms : asked_ms) >= grace_ms;
}

/* Whether the rank has ended, but a process that it has started still works. */
static bool is_survived(wfi_process_group *group, int rank) {
    return group->is_stopping && !group->is_killing && works_on(group, rank) &&
           may_save(group, rank) && wfi_wait_ms(&group->still) < group->stuck_ms;
}

/* Kills the ranks that are out of time; returns when to look again. */
static int64_t see_them_end(wfi_process_group *group, int64_t now_ms) {
    uint64_t moved = wfi_control_progress(group->segment_fd);
    if (moved != group->moved) group->still = wfi_wait_begin();
    group->moved = moved;
    int64_t grace_ms = grace_of(group);
    for (int rank = 0; rank < group->n_ranks; rank++)
        if (group->ranks[rank].state == WFI_RANK_RUNS &&
            (group->is_killing || is_late(group, rank, grace_ms)))
            wfi_rank_kill(group, rank);
    /* A reader of the lines of a failure may take the time; after a stop by hand lines do not wait.
     */
    bool is_over = !wfi_process_group_is_alive(group) &&
                   (wfi_wait_ms(&group->asked) >= grace_ms || group->is_killing);
    if (is_over && !group->is_decided) wfi_merge_abandon(&group->merge);
    return now_ms + WFI_WAIT_NAP_MS;
}

/* ---- ending ---- */

/* Weighs failures at about the same time: the heaviest is the likeliest cause. */
static int weight(const wfi_rank_process *process) {
    bool is_asked = process->signal == SIGINT || process->signal == SIGTERM;
    return process->signal && !is_asked ? 2 : process->exit_status != BLAMES;
}

/* Whether the job's segment names a rank that failed first, by its own work, and still runs. It may
 * take as long to end as a rank that is asked to stop. */
static bool awaits_cause(const wfi_process_group *group) {
    wfi_failure failure;
    wfi_control_peek(group->segment_fd, &failure);
    const wfi_failure_entry *first = wfi_failure_first(&failure);
    bool has_cause = first && first->status != WF_REMOTE && first->status != WF_TIMEOUT,
         runs = false;
    for (int rank = 0; rank < group->n_ranks && has_cause; rank++)
        runs |= group->ranks[rank].state == WFI_RANK_RUNS && group->ranks[rank].pid == first->pid;
    return runs;
}

/* Weft's own ranks share a cell that all of their waits look at. */
static void tell_ranks(const wfi_process_group *group, int rank) {
    char text[300];
    wfi_say_end(group, rank, text, sizeof text);
    wfi_control_fail_segment(group->segment_fd, text);
}

void wfi_process_group_record(wfi_process_group *group, int rank, int64_t now_ms) {
    int64_t settled_ms = now_ms + (weight(&group->ranks[rank]) ? SETTLE_MS
                                   : awaits_cause(group)       ? grace_of(group)
                                                               : BLAMED_MS);
    if (group->failed_rank < 0) {
        group->failed_rank = rank;
        group->decide_ms = settled_ms;
        wfi_merge_delay(&group->merge);
    } else if (!group->is_decided &&
               weight(&group->ranks[rank]) > weight(&group->ranks[group->failed_rank])) {
        group->failed_rank = rank;
        group->decide_ms = wfi_min_i64(group->decide_ms, settled_ms);
    }
}

/* Records a rank that ended after it was asked to stop. Others may wait for its unfinished work. */
static void record_late(wfi_process_group *group, int rank) {
    const wfi_rank_process *process = &group->ranks[rank];
    bool has_come = has_joined(group, rank) || process->has_started;
    if (!is_survived(group, rank) && (process->signal || !has_come)) tell_ranks(group, rank);
    bool is_expected = process->exit_status == 128 + SIGINT ||
                       process->exit_status == 128 + SIGTERM || process->exit_status == BLAMES;
    if (!process->signal && !is_expected && !group->late_status)
        group->late_status = process->exit_status; /* or 0 */
}

void wfi_process_group_look(wfi_process_group *group, int rank, int64_t now_ms) {
    wfi_rank_process *process = &group->ranks[rank];
    siginfo_t info;
    memset(&info, 0, sizeof info);
    if (process->state != WFI_RANK_RUNS) return;
    if (waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
        if (errno == EINTR) return;
        info.si_code = CLD_EXITED; /* the program around us has reaped it; nothing good is known */
        info.si_status = 1;
    } else if (!info.si_pid) {
        return;
    }
    process->state = WFI_RANK_LEAVES;
    process->leaves_ms = now_ms + LEAVE_MS;
    process->signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    process->exit_status = process->signal ? 128 + process->signal : info.si_status;
    bool is_asked = group->is_stopping && (process->signal == SIGINT || process->signal == SIGTERM);
    process->is_lost |= process->signal && !is_asked;
    if (process->exit_status && !group->is_stopping) {
        tell_ranks(group, rank);
        if (!wfi_renewal_lose(group, rank)) wfi_process_group_record(group, rank, now_ms);
    } else if (group->is_stopping) {
        record_late(group, rank);
    }
}

static void decide(wfi_process_group *group, int64_t now_ms) {
    char end[300], dead[WFI_CONTROL_DEAD];
    group->is_decided = true;
    group->ranks[group->failed_rank].is_lost |=
        group->ranks[group->failed_rank].exit_status != BLAMES;
    group->others_stopped = wfi_process_group_is_running(group) && group->status == WF_OK;
    wfi_rank_drain(group, group->failed_rank, now_ms);
    wfi_merge_put_first(&group->merge, group->failed_rank);
    wfi_say_end(group, group->failed_rank, end, sizeof end);
    wfi_merge_know(&group->merge, end);
    /* A rank that noticed the death before it was told has said so in fewer words. */
    wfi_control_say_dead(group->failed_rank, group->ranks[group->failed_rank].pid, dead);
    wfi_merge_know(&group->merge, dead);
    wfi_process_group_stop(group, SIGTERM);
}

/* The run's own deadline; returns when to look again. */
static int64_t see_run(wfi_process_group *group, int64_t now_ms) {
    int64_t left_ms = group->config->timeout_ms - wfi_wait_ms(&group->running);
    if (left_ms <= 0) time_out(group);
    return now_ms + wfi_min_i64(wfi_max_i64(1, left_ms), WFI_WAIT_NAP_MS);
}

int64_t wfi_process_group_keep_time(wfi_process_group *group, int64_t now_ms) {
    int64_t next = INT64_MAX;
    if (group->failed_rank >= 0 && !group->is_decided) {
        bool may_change = wfi_process_group_is_running(group) || ended_by(group, SIGINT) ||
                          ended_by(group, SIGTERM);
        if (now_ms >= group->decide_ms || group->is_stopping || !may_change)
            decide(group, now_ms);
        else
            next = group->decide_ms;
    }
    if (wfi_process_group_is_running(group) && !group->is_stopping && group->config->timeout_ms)
        next = wfi_min_i64(next, see_run(group, now_ms));
    if (group->is_stopping) next = wfi_min_i64(next, see_them_end(group, now_ms));
    for (int rank = 0; rank < group->n_ranks; rank++) {
        wfi_rank_process *process = &group->ranks[rank];
        bool is_silent = process->pipes[WFI_STREAM_OUT] < 0 && process->pipes[WFI_STREAM_ERR] < 0;
        if (process->state != WFI_RANK_LEAVES) continue;
        if (is_survived(group, rank))
            next = wfi_min_i64(next, now_ms + WFI_WAIT_NAP_MS);
        else if (is_silent || now_ms >= process->leaves_ms)
            wfi_rank_reap(group, rank, now_ms);
        else
            next = wfi_min_i64(next, process->leaves_ms);
    }
    next = wfi_min_i64(next, wfi_renewal_keep_time(group, now_ms));
    if (!wfi_process_group_is_alive(group)) wfi_merge_flush(&group->merge);
    return next;
}
