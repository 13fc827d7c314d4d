/* When ranks end: which of them failed first, and what becomes of the others. */
#include "comm/job/control.h"
#include "launch/crew.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SETTLE_MS 100 /* within this time, failures may have one cause */
#define BLAMED_MS 500 /* so long whom a rank blames may take to end, too */
#define LEAVE_MS  200 /* what a rank has started may finish its lines */
#define GRACE_MS  2000
#define BLAMES    4 /* weft's exit status for "another rank has died" */

static void send(const wfi_crew *crew, int rank, int signal_number) {
    kill(-crew->ranks[rank].pid, signal_number);
}

static void send_all(const wfi_crew *crew, int signal_number) {
    for (int rank = 0; rank < crew->n_ranks; rank++)
        if (crew->ranks[rank].state != WFI_RANK_GONE) send(crew, rank, signal_number);
}

static bool has_running(const wfi_crew *crew) {
    for (int rank = 0; rank < crew->n_ranks; rank++)
        if (crew->ranks[rank].state == WFI_RANK_RUNS) return true;
    return false;
}

bool wfi_crew_is_alive(const wfi_crew *crew) {
    for (int rank = 0; rank < crew->n_ranks; rank++)
        if (crew->ranks[rank].state != WFI_RANK_GONE) return true;
    return false;
}

/* ---- stopping ---- */

void wfi_crew_stop(wfi_crew *crew, int signal_number) {
    if (crew->is_stopping) return;
    crew->is_stopping = true;
    crew->asked = crew->still = wfi_wait_begin();
    send_all(crew, signal_number);
    send_all(crew, SIGCONT); /* a stopped process does not hear the other */
}

static void kill_rank(wfi_crew *crew, int rank) {
    crew->ranks[rank].is_killed = true;
    send(crew, rank, SIGKILL);
}

void wfi_crew_kill(wfi_crew *crew) {
    wfi_crew_stop(crew, SIGTERM);
    crew->is_killing = true;
    for (int rank = 0; rank < crew->n_ranks; rank++)
        if (crew->ranks[rank].state == WFI_RANK_RUNS) kill_rank(crew, rank);
}

/* Ctrl-Z: the ranks, in groups of their own, do not hear the terminal's. By SIGSTOP, because none
 * of them has a shell that could continue it, and so the kernel would ignore SIGTSTP. */
static void suspend(const wfi_crew *crew) {
    send_all(crew, SIGSTOP);
    kill(getpid(), SIGSTOP); /* until somebody continues us */
    send_all(crew, SIGCONT);
}

void wfi_crew_interrupt(wfi_crew *crew, int signal_number) {
    if (signal_number == SIGTSTP) {
        suspend(crew);
        return;
    }
    if (crew->failed_rank < 0 && !crew->interrupted_by && crew->status == WF_OK)
        crew->interrupted_by = signal_number;
    if (crew->is_stopping)
        wfi_crew_kill(crew);
    else
        wfi_crew_stop(crew, signal_number == SIGINT ? SIGINT : SIGTERM);
    if (!wfi_crew_is_alive(crew)) wfi_merge_abandon(&crew->merge); /* nobody takes the lines */
}

void wfi_crew_fail(wfi_crew *crew, wf_status status) {
    if (crew->status == WF_OK) crew->status = status;
    wfi_merge_abandon(&crew->merge);
    wfi_crew_stop(crew, SIGTERM);
}

static void time_out(wfi_crew *crew) {
    char who[300];
    wfi_say_running(crew, who, sizeof who);
    crew->status =
        wfi_fail(crew->ctx, WF_TIMEOUT,
                 "the run has not ended after %.3g s: %s still ran and had to be stopped",
                 (double)crew->config->timeout_ms / 1000, who);
    wfi_crew_stop(crew, SIGTERM);
}

/* ---- those that have been asked ---- */

/* The last who leaves a job leaves no trace of it, so this is remembered. */
static bool has_joined(wfi_crew *crew, int rank) {
    wfi_rank_process *process = &crew->ranks[rank];
    process->has_joined |= wfi_control_has_joined(crew->segment_fd, rank, process->pid);
    return process->has_joined;
}

/* What it has started is in a job now. */
static bool works_on(wfi_crew *crew, int rank) {
    wfi_rank_process *process = &crew->ranks[rank];
    bool does = wfi_control_has_started(crew->segment_fd, rank, process->pid);
    process->has_started |= does;
    return does;
}

/* What failed before somebody asked has nothing to save. */
static bool may_save(wfi_crew *crew, int rank) {
    return (has_joined(crew, rank) || works_on(crew, rank)) && crew->failed_rank < 0 &&
           (crew->status == WF_OK || crew->status == WF_TIMEOUT);
}

static bool is_late(wfi_crew *crew, int rank, int64_t grace_ms) {
    int64_t still_ms = wfi_wait_ms(&crew->still), asked_ms = wfi_wait_ms(&crew->asked);
    if (may_save(crew, rank)) return still_ms >= crew->stuck_ms;
    return (crew->ranks[rank].has_started ? still_ms : asked_ms) >= grace_ms;
}

/* It has ended, but not what it has started. */
static bool is_survived(wfi_crew *crew, int rank) {
    return crew->is_stopping && !crew->is_killing && works_on(crew, rank) && may_save(crew, rank) &&
           wfi_wait_ms(&crew->still) < crew->stuck_ms;
}

/* Kills those whose time is up; returns when to look again. */
static int64_t see_them_end(wfi_crew *crew, int64_t now_ms) {
    uint64_t moved = wfi_control_progress(crew->segment_fd);
    if (moved != crew->moved) crew->still = wfi_wait_begin();
    crew->moved = moved;
    int64_t grace_ms = crew->config->grace_ms ? crew->config->grace_ms : GRACE_MS;
    for (int rank = 0; rank < crew->n_ranks; rank++)
        if (crew->ranks[rank].state == WFI_RANK_RUNS &&
            (crew->is_killing || is_late(crew, rank, grace_ms)))
            kill_rank(crew, rank);
    /* Who reads the lines of a failure may take the time; who has stopped the run may not. */
    bool is_over =
        !wfi_crew_is_alive(crew) && (wfi_wait_ms(&crew->asked) >= grace_ms || crew->is_killing);
    if (is_over && !crew->is_decided) wfi_merge_abandon(&crew->merge);
    return now_ms + WFI_WAIT_NAP_MS;
}

/* ---- ending ---- */

/* Of failures at about the same time, how likely one is the cause. */
static int weight(const wfi_rank_process *process) {
    return process->signal ? 2 : process->exit_status != BLAMES;
}

/* Weft's own ranks share a cell that all of their waits look at. */
static void tell_ranks(const wfi_crew *crew, int rank) {
    char text[300];
    wfi_say_end(crew, rank, text, sizeof text);
    wfi_control_tell(crew->segment_fd, text);
}

static void note_failure(wfi_crew *crew, int rank, int64_t now_ms) {
    int64_t settled_ms = now_ms + (weight(&crew->ranks[rank]) ? SETTLE_MS : BLAMED_MS);
    if (crew->failed_rank < 0) {
        crew->failed_rank = rank;
        crew->decide_ms = settled_ms;
        wfi_merge_hold(&crew->merge);
    } else if (!crew->is_decided &&
               weight(&crew->ranks[rank]) > weight(&crew->ranks[crew->failed_rank])) {
        crew->failed_rank = rank;
        crew->decide_ms = wfi_min_i64(crew->decide_ms, settled_ms);
    }
}

/* It was asked to stop. Others may wait for what it would have done before. */
static void note_late(wfi_crew *crew, int rank) {
    const wfi_rank_process *process = &crew->ranks[rank];
    bool has_come = has_joined(crew, rank) || process->has_started;
    if (!is_survived(crew, rank) && (process->signal || !has_come)) tell_ranks(crew, rank);
    bool is_answer = process->exit_status == 128 + SIGINT ||
                     process->exit_status == 128 + SIGTERM || process->exit_status == BLAMES;
    if (!process->signal && !is_answer && !crew->late_status)
        crew->late_status = process->exit_status; /* or 0 */
}

void wfi_crew_look(wfi_crew *crew, int rank, int64_t now_ms) {
    wfi_rank_process *process = &crew->ranks[rank];
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
    if (process->exit_status && !crew->is_stopping) {
        tell_ranks(crew, rank);
        note_failure(crew, rank, now_ms);
    } else if (crew->is_stopping) {
        note_late(crew, rank);
    }
}

static void decide(wfi_crew *crew, int64_t now_ms) {
    char end[300];
    crew->is_decided = true;
    crew->others_stopped = has_running(crew) && crew->status == WF_OK;
    wfi_rank_drain(crew, crew->failed_rank, now_ms);
    wfi_merge_put_first(&crew->merge, crew->failed_rank);
    wfi_say_end(crew, crew->failed_rank, end, sizeof end);
    wfi_merge_know(&crew->merge, end);
    wfi_crew_stop(crew, SIGTERM);
}

/* The run's own deadline; returns when to look again. */
static int64_t see_run(wfi_crew *crew, int64_t now_ms) {
    int64_t left_ms = crew->config->timeout_ms - wfi_wait_ms(&crew->running);
    if (left_ms <= 0) time_out(crew);
    return now_ms + wfi_min_i64(wfi_max_i64(1, left_ms), WFI_WAIT_NAP_MS);
}

int64_t wfi_crew_keep_time(wfi_crew *crew, int64_t now_ms) {
    int64_t next = INT64_MAX;
    if (crew->failed_rank >= 0 && !crew->is_decided) {
        if (now_ms >= crew->decide_ms || crew->is_stopping || !has_running(crew))
            decide(crew, now_ms);
        else
            next = crew->decide_ms;
    }
    if (has_running(crew) && !crew->is_stopping && crew->config->timeout_ms)
        next = wfi_min_i64(next, see_run(crew, now_ms));
    if (crew->is_stopping) next = wfi_min_i64(next, see_them_end(crew, now_ms));
    for (int rank = 0; rank < crew->n_ranks; rank++) {
        wfi_rank_process *process = &crew->ranks[rank];
        bool is_silent = process->pipes[WFI_STREAM_OUT] < 0 && process->pipes[WFI_STREAM_ERR] < 0;
        if (process->state != WFI_RANK_LEAVES) continue;
        if (is_survived(crew, rank))
            next = wfi_min_i64(next, now_ms + WFI_WAIT_NAP_MS);
        else if (is_silent || now_ms >= process->leaves_ms)
            wfi_rank_reap(crew, rank, now_ms);
        else
            next = wfi_min_i64(next, process->leaves_ms);
    }
    if (!wfi_crew_is_alive(crew)) wfi_merge_hurry(&crew->merge);
    return next;
}
