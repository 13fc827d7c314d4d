/* Ranks as processes or threads: starting them, and telling a process which rank it is. Linux.
 *
 * A launched process finds its place in its environment: RANK, WORLD_SIZE, LOCAL_RANK and
 * LOCAL_WORLD_SIZE as torchrun sets them, or the variables of Open MPI, MPICH or Slurm. On
 * one machine ranks need nothing else: wf_launch hands them a descriptor to meet over. Programs
 * that meet at a port, as PyTorch's do, find a free one of 127.0.0.1 in MASTER_ADDR and
 * MASTER_PORT.
 *
 *     char *const program[] = {"./train", "--fast", NULL};
 *     wf_launch_config config = WF_LAUNCH_CONFIG_INIT;
 *     wf_launch_result result;
 *     config.n_ranks = 4;
 *     config.argv = program;
 *     if (wf_launch(ctx, &config, &result)) return 1;
 *     if (result.failed_rank >= 0) fprintf(stderr, "%s\n", result.sentence);
 */
#ifndef WEFT_LAUNCH_H
#define WEFT_LAUNCH_H

#include <weft/job.h>

#define WF_LAUNCH_MAX_RANKS 1024 /* processes, or threads, on one machine */
/* The environment variable by which rank 0 learns that what it writes to standard error is shown
 * on a terminal, and how many columns that has; otherwise it is not set. Text that begins with a
 * carriage return and has no newline is then shown at once, in one place: a progress bar. */
#define WF_LAUNCH_TERMINAL "WEFT_TERMINAL"

/* A process's place in its job. */
typedef struct wf_place {
    int rank, n_ranks;             /* of the job; 0 of 1 if nothing was said */
    int local_rank, n_local_ranks; /* on this machine */
    const char *source;            /* "weft run", "torchrun" (or who sets its variables),
                                    * "Open MPI", "PMI", "Slurm" or ""; static */
    char job[96];                  /* the same in all processes of the job, and in no other
                                    * job of this machine; "" if it has one rank */
} wf_place;

typedef struct wf_launch_config {
    size_t struct_size;
    int n_ranks;
    const char *program; /* the file to run; NULL: argv[0], found in PATH */
    char *const *argv;   /* the program's arguments, its name first; NULL-terminated */
    int64_t timeout_ms;  /* the whole run; 0 = as long as it takes */
    int64_t grace_ms;    /* from asking ranks to stop to killing them; 0 = 2,000. See below for
                          * those that have joined a job */
    int out, err;        /* descriptors that the ranks' merged lines go to, usually 1 and 2 */
} wf_launch_config;

#define WF_LAUNCH_CONFIG_INIT                                                                      \
    { sizeof(wf_launch_config), 1, 0, 0, 0, 0, 1, 2 }

typedef struct wf_launch_result {
    int failed_rank;    /* the first that failed, or -1 */
    int exit_status;    /* its exit status, or 128 + signal; 0. Interrupted: that of the first rank
                         * which ended with one that is neither 0, 4, 130 nor 143 */
    int signal;         /* that killed it, or 0 */
    int interrupted_by; /* SIGINT, SIGTERM, ...: the launcher was told to stop; or 0 */
    char sentence[512]; /* what went wrong, or "" */
    int n_killed;       /* ranks that were asked to stop, and had to be killed */
} wf_launch_result;

/* What each rank of wf_spawn runs. The job is joined; it is left when this returns. */
typedef wf_status (*wf_rank_function)(wf_context *ctx, wf_job *job, void *arg);

typedef struct wf_rank_entry {
    const char *name; /* letters, digits, - and _ */
    wf_rank_function function;
} wf_rank_entry;

typedef enum wf_spawn_how {
    WF_SPAWN_THREADS,  /* of this process */
    WF_SPAWN_PROCESSES /* this program, started again: see wf_spawn_main */
} wf_spawn_how;

#define WF_SPAWN_MAX_ARG 32768

typedef struct wf_spawn_config {
    size_t struct_size;
    wf_spawn_how how;
    int n_ranks;
    const wf_rank_entry *entry; /* threads need no name */
    /* Threads get this pointer. Processes get a copy of what it points to, so that has to mean
     * something there: no addresses, no descriptors. At most WF_SPAWN_MAX_ARG bytes. */
    void *arg;
    size_t arg_bytes;
    int64_t timeout_ms; /* of waits within the job; 0 = WEFT_TIMEOUT_MS, or 600,000 */
    int out, err;       /* processes: descriptors for their merged lines */
} wf_spawn_config;

#define WF_SPAWN_CONFIG_INIT                                                                       \
    { sizeof(wf_spawn_config), WF_SPAWN_THREADS, 1, 0, 0, 0, 0, 1, 2 }

#ifdef __cplusplus
extern "C" {
#endif

/* Where this process stands, from its environment. Several launchers may have left their
 * variables: RANK and its like count before Open MPI's, those before PMI's, those before Slurm's
 * (of a job step: those of an allocation say nothing about a process). All must agree. Errors:
 * INVALID_ARG: variables are incomplete, no numbers, out of range, or contradict each other; the
 * sentence names them and what they say. */
WF_API WF_NODISCARD wf_status wf_launch_place(wf_context *ctx, wf_place *place_out);

/* Starts n_ranks processes and waits for all of them. When this returns, no process, descriptor
 * or segment of theirs is left, whatever happened:
 *
 *  - Each rank leads a session and process group; what it has started, and has not itself left
 *    the group, ends with it. Rank 0 has this process's standard input, unless that is a
 *    terminal; the others have /dev/null.
 *  - Their lines are merged: whole lines, cut at 64 KiB, in the order in which they come, a few
 *    hundredths of a second late. A line that several ranks print within 2 s, with at most 512
 *    others in between, is printed once.
 *  - If a rank fails (a status other than 0, or a signal), the others are sent SIGTERM, and
 *    SIGKILL when grace_ms have gone; what the failed rank had printed last goes first. Of ranks
 *    that fail within a tenth of a second, one killed by a signal counts as the first; one that
 *    ends with status 4 ("another rank ...") as the last, and of the next half second.
 *  - Ranks that have joined a job (weft/job.h) are told of a failed one: their waits end at once.
 *  - If this process gets SIGINT, SIGTERM, SIGHUP or SIGQUIT (the last two unless they are
 *    ignored), the ranks get SIGINT or SIGTERM; at the second, SIGKILL. Ranks that have joined a
 * job may have work to save: they are killed only when nothing in it has moved for WEFT_TIMEOUT_MS;
 *    others when grace_ms have gone. So it is at timeout_ms, too. Other threads had better block
 *    these signals.
 *  - SIGTSTP (Ctrl-Z) stops the ranks and this process; SIGCONT continues all.
 *  - If their lines cannot be written, ranks find their ends of the pipes broken (EPIPE, SIGPIPE).
 *  - If this process dies, all ranks and their process groups are killed.
 *
 * A failed rank and an interruption are no errors of this function: look at the result. Errors:
 * INVALID_ARG (also: there is no such program); TIMEOUT: the ranks were stopped after timeout_ms,
 * or the system has not started the program after WEFT_TIMEOUT_MS; IO: the ranks have ended, but
 * lines of theirs could not be written; DEVICE: a process could not be started.
 */
WF_API WF_NODISCARD wf_status wf_launch(wf_context *ctx, const wf_launch_config *config,
                                        wf_launch_result *result_out);

/* Runs a function of one's own as the ranks of a job, and returns when all have ended. The first
 * failure becomes this function's: its status, and its sentence with the rank in front; *failed_
 * rank_out (may be NULL) is that rank, or -1. The others are told: their next wait for it fails;
 * processes are stopped as wf_launch stops them. Processes never go on from a fork, which a
 * program that has computed does not survive: they begin at main.
 *
 *     static const wf_rank_entry functions[] = {{"train", train}};
 *     int main(int argc, char **argv) {
 *         int status;
 *         if (wf_spawn_main(argc, argv, functions, 1, &status)) return status;
 *         ...
 *         config.entry = &functions[0];
 *         if (wf_spawn(ctx, &config, NULL)) fprintf(stderr, "%s\n", wf_context_error(ctx));
 *
 * Errors: INVALID_ARG, those of wf_launch, those of the function. */
WF_API WF_NODISCARD wf_status wf_spawn(wf_context *ctx, const wf_spawn_config *config,
                                       int *failed_rank_out);

/* The first line of main of a program that spawns processes. If this process is one of them,
 * runs its function and returns 1: main then returns *status_out (0; 4: another rank is to blame;
 * 1). If not, returns 0 at once. */
WF_API int wf_spawn_main(int argc, char **argv, const wf_rank_entry *table, int n_entries,
                         int *status_out);

#ifdef __cplusplus
}
#endif
#endif
