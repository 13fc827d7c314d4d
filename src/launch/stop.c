/* When ranks end: which of them failed first, and what becomes of the others. */
#include "comm/job/control.h"
#include "launch/crew.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#define SETTLE_MS 100 /* within this time, failures may have one cause */
#define BLAMED_MS 500 /* so long whom a rank blames may take to end, too */
#define LEAVE_MS  200 /* what a rank has started may finish its lines */
#define AGAIN_MS  1000
#define BLAMES    4 /* weft's exit status for "another rank has died" */

static void send_all(const wfi_crew *crew, int signal_number) {
    for (int rank = 0; rank < crew->n_ranks; rank++)
        if (crew->ranks[rank].state != WFI_RANK_GONE) {
            kill(-crew->ranks[rank].pid, signal_number);
            kill(-crew->ranks[rank].pid, SIGCONT); /* a stopped process does not hear the other */
        }
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

void wfi_crew_stop(wfi_crew *crew, int signal_number, int64_t now_ms) {
    if (crew->is_stopping) return;
    crew->is_stopping = true;
    crew->kill_ms = now_ms + (crew->config->grace_ms ? crew->config->grace_ms : 2000);
    send_all(crew, signal_number);
}

void wfi_crew_kill(wfi_crew *crew) {
    crew->is_stopping = true;
    crew->kill_ms = INT64_MAX;
    send_all(crew, SIGKILL);
}

void wfi_crew_interrupt(wfi_crew *crew, int signal_number, int64_t now_ms) {
    if (crew->failed_rank < 0 && !crew->interrupted_by && crew->status == WF_OK)
        crew->interrupted_by = signal_number;
    if (crew->is_stopping)
        wfi_crew_kill(crew);
    else
        wfi_crew_stop(crew, signal_number == SIGINT ? SIGINT : SIGTERM, now_ms);
    if (!wfi_crew_is_alive(crew)) wfi_merge_abandon(&crew->merge); /* nobody takes the lines */
}

void wfi_crew_fail(wfi_crew *crew, wf_status status, int64_t now_ms) {
    if (crew->status == WF_OK) crew->status = status;
    wfi_merge_abandon(&crew->merge);
    wfi_crew_stop(crew, SIGTERM, now_ms);
}

static void time_out(wfi_crew *crew, int64_t now_ms) {
    char who[300];
    wfi_say_running(crew, who, sizeof who);
    crew->status =
        wfi_fail(crew->ctx, WF_TIMEOUT,
                 "the run has not ended after %.3g s: %s still ran and had to be stopped",
                 (double)crew->config->timeout_ms / 1000, who);
    wfi_crew_stop(crew, SIGTERM, now_ms);
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
    }
}

static void decide(wfi_crew *crew, int64_t now_ms) {
    crew->is_decided = true;
    crew->others_stopped = has_running(crew) && crew->status == WF_OK;
    wfi_rank_drain(crew, crew->failed_rank, now_ms);
    wfi_merge_put_first(&crew->merge, crew->failed_rank);
    wfi_crew_stop(crew, SIGTERM, now_ms);
}

int64_t wfi_crew_keep_time(wfi_crew *crew, int64_t now_ms) {
    int64_t next = INT64_MAX;
    if (crew->failed_rank >= 0 && !crew->is_decided) {
        if (now_ms >= crew->decide_ms || crew->is_stopping || !has_running(crew))
            decide(crew, now_ms);
        else
            next = crew->decide_ms;
    }
    if (has_running(crew) && !crew->is_stopping) {
        if (now_ms >= crew->deadline_ms) time_out(crew, now_ms);
        next = wfi_min_i64(next, crew->deadline_ms);
    }
    if (now_ms >= crew->kill_ms) {
        wfi_crew_kill(crew);
        crew->kill_ms = now_ms + AGAIN_MS;
        /* Who reads the lines of a failure may take the time; who has stopped the run may not. */
        if (!wfi_crew_is_alive(crew) && !crew->is_decided) wfi_merge_abandon(&crew->merge);
    }
    next = wfi_min_i64(next, crew->kill_ms);
    for (int rank = 0; rank < crew->n_ranks; rank++) {
        wfi_rank_process *process = &crew->ranks[rank];
        bool is_silent = process->pipes[WFI_STREAM_OUT] < 0 && process->pipes[WFI_STREAM_ERR] < 0;
        if (process->state != WFI_RANK_LEAVES) continue;
        if (is_silent || now_ms >= process->leaves_ms)
            wfi_rank_reap(crew, rank, now_ms);
        else
            next = wfi_min_i64(next, process->leaves_ms);
    }
    if (!wfi_crew_is_alive(crew)) wfi_merge_hurry(&crew->merge);
    return next;
}
