/* A running launch: its ranks and their states. Private to src/launch. */
#pragma once

#include "base/clock.h"
#include "device/failure.h"
#include "launch/merge.h"
#include "launch/watchdog.h"

#include <signal.h>
#include <weft/launch.h>

#define WFI_END_MS 1000 /* how long a killed process may take to end */

typedef enum wfi_rank_state {
    WFI_RANK_GONE, /* or not started */
    WFI_RANK_RUNS,
    WFI_RANK_LEAVES /* a zombie: its children may still print, and its number is taken */
} wfi_rank_state;

typedef struct wfi_rank_process {
    wfi_rank_state state;
    pid_t pid; /* and number of its session and process group */
    int pidfd; /* -1: this kernel has none; it is asked now and then */
    int pipes[WFI_N_STREAMS];
    int exit_status, signal; /* once it leaves */
    int64_t leaves_ms;       /* when its group is killed at the latest */
    bool has_joined;         /* a job, as far as we have looked: when it is to stop */
    bool has_started;        /* a process that it started has joined one; the same */
    bool is_killed;          /* by us: it did not stop in time */
    bool is_lost;            /* it could not have continued */
} wfi_rank_process;

typedef struct wfi_process_group {
    wf_context *ctx;
    const wf_launch_config *config;
    int n_ranks;
    wfi_rank_process *ranks; /* [n_ranks] */
    wfi_merge merge;
    wfi_watchdog watchdog;
    int segment_fd, signal_fd; /* -1: not yet */
    int port;                  /* that rank 0 may listen at; 0: not chosen yet */
    sigset_t old_mask;

    int64_t stuck_ms;       /* a job in which nothing has moved for so long is given up */
    wfi_wait_clock running; /* since the start: the run's own deadline */
    int64_t oom_kills;      /* by the kernel, before the start */
    int failed_rank;        /* the first, as far as is known; -1 */
    int64_t decide_ms;      /* until then it may turn out to have been another */
    bool is_decided;
    bool others_stopped;    /* because it failed */
    bool is_stopping;       /* a rank that fails now was asked to stop */
    bool is_killing;        /* no rank is waited for any more */
    wfi_wait_clock asked;   /* since the ranks were asked to stop */
    wfi_wait_clock still;   /* since their job last moved after that */
    uint64_t moved;         /* wfi_control_progress at that time */
    int lost_rank;          /* the first that a signal has killed, and that is replaced; -1 */
    bool is_renewed;        /* ranks have been replaced */
    bool is_asked;          /* the caller has agreed to replace it ... */
    int64_t renew_ms;       /* ... at this time */
    wfi_wait_clock waiting; /* since a rank awaits a new segment without a death */
    int interrupted_by;
    int stopped_by;   /* the same, or a signal after a failure */
    int late_status;  /* of a rank that failed while it stopped; 0 */
    wf_status status; /* of the launch itself: TIMEOUT, IO, NO_MEMORY */
} wfi_process_group;

/* ---- launch.c ---- */

/* wf_launch; *failure_out (may be NULL) is the ranks' own first failure, if they shared one. */
wf_status wfi_launch(wf_context *ctx, const wf_launch_config *config, wf_launch_result *result_out,
                     wfi_failure *failure_out);

/* ---- signals.c ---- */

/* From here on signals to this process wait in group->signal_fd. Errors: DEVICE, INVALID_ARG. */
wf_status wfi_signals_catch(wfi_process_group *group);
/* Stores a signal that has come since in group->stopped_by. */
void wfi_signals_restore(wfi_process_group *group);
/* Reacts to those that have come. */
void wfi_signals_handle(wfi_process_group *group);
/* Whether this process ignores the signal. */
bool wfi_signal_is_ignored(int number);

/* ---- spawn.c ---- */

/* Starts the next rank, unless the launch is interrupted meanwhile. Errors: INVALID_ARG: there is
 * no such program; DEVICE; TIMEOUT: the system does not find out whether there is. */
wf_status wfi_rank_spawn(wfi_process_group *group, int rank);

/* ---- environment.c ---- */

/* The environment of `rank`: the launcher's, without the variables of other launchers. Free with
 * wfi_environment_free. NULL: no memory. */
char **wfi_environment_create(wfi_process_group *group, int rank);
void wfi_environment_free(wf_context *ctx, char **environment);

/* ---- stop.c ---- */

bool wfi_process_group_is_running(const wfi_process_group *group);
/* Some rank's process is there, be it as a zombie. */
bool wfi_process_group_is_alive(const wfi_process_group *group);
/* Looks whether the rank has ended, and decides the consequences for the other ranks. */
void wfi_process_group_look(wfi_process_group *group, int rank, int64_t now_ms);
/* Asks all ranks to stop by this signal. A rank that has joined no job is killed after the grace. A
 * job that was not stopped because of a failure may have work to save: it has as long as it moves,
 * also where scripts have started its ranks, and then they have the grace. */
void wfi_process_group_stop(wfi_process_group *group, int signal_number);
void wfi_process_group_kill(wfi_process_group *group);
/* The launcher got this signal. A second one kills, unless one of the two is config->stop_signal.
 */
void wfi_process_group_interrupt(wfi_process_group *group, int signal_number);
/* Stores the signal; any other one overrides config->stop_signal. */
void wfi_process_group_note(wfi_process_group *group, int signal_number);
/* The launch itself has failed, and said why. */
void wfi_process_group_fail(wfi_process_group *group, wf_status status);
/* Takes all actions that are due; returns when to call it again, INT64_MAX: only after an event. */
int64_t wfi_process_group_keep_time(wfi_process_group *group, int64_t now_ms);

/* A rank has failed: all others are going to be stopped. */
void wfi_process_group_record(wfi_process_group *group, int rank, int64_t now_ms);
/* Marks the rank as killed by the launcher, and kills it. */
void wfi_rank_kill(wfi_process_group *group, int rank);

/* ---- renew.c ---- */

/* Takes a rank that has ended as one to replace, if a signal has killed it. */
bool wfi_renewal_lose(wfi_process_group *group, int rank);
/* Returns whether a rank is going to be replaced. */
bool wfi_renewal_is_pending(const wfi_process_group *group);
/* Takes all actions that are due; returns when to call it again. */
int64_t wfi_renewal_keep_time(wfi_process_group *group, int64_t now_ms);

/* ---- reap.c ---- */

/* Reads the output of the rank; closes the stream at its end. */
void wfi_rank_read(wfi_process_group *group, int rank, int stream, int64_t now_ms);
/* Takes all that it has printed so far. */
void wfi_rank_drain(wfi_process_group *group, int rank, int64_t now_ms);
/* For a rank that leaves: kills its process group, reads its last lines, reaps it. */
void wfi_rank_reap(wfi_process_group *group, int rank, int64_t now_ms);
/* Kills a child that is not a rank, and reaps it. In a system call of a dead file system it does
 * not end; the wait has a limit for that. */
void wfi_process_end(pid_t pid);

/* ---- sentence.c ---- */

/* The kernel's count of processes killed for want of memory; -1: unknown. */
int64_t wfi_oom_kills(void);
/* "rank 2 (process 1234) was killed by ..." */
void wfi_say_end(const wfi_process_group *group, int rank, char *text, size_t bytes);
/* The same for the rank that failed first, and the fate of the others. */
void wfi_say_failure(const wfi_process_group *group, char *text, size_t bytes);
/* "rank 1" or "ranks 0, 2 and 3" of those that run, or of those that had to be killed. */
void wfi_say_running(const wfi_process_group *group, char *text, size_t bytes);
void wfi_say_killed(const wfi_process_group *group, char *text, size_t bytes);
