/* Ranks as processes or threads on one Linux machine, and the rank of this process.
 *
 * A launched process finds its rank in the environment: RANK, WORLD_SIZE, LOCAL_RANK and
 * LOCAL_WORLD_SIZE as torchrun sets them, or the variables of Open MPI, MPICH or Slurm. On one
 * machine, ranks of wf_launch rendezvous over an inherited descriptor and need no configuration.
 * Programs that rendezvous at a port, such as PyTorch's, find a free one of 127.0.0.1 in
 * MASTER_ADDR and MASTER_PORT.
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
/* An environment variable that wf_launch sets for rank 0 if its standard error is shown on a
 * terminal; the value is the number of columns. Text that begins with a carriage return, without a
 * newline, is then shown at once and in place, as a progress bar. */
#define WF_LAUNCH_TERMINAL "WEFT_TERMINAL"

/* The position of a process in its job. */
typedef struct wf_place {
    int rank, n_ranks;             /* of the job; 0 of 1 if the environment does not name them */
    int local_rank, n_local_ranks; /* on this machine */
    const char *source;            /* "weft run", "torchrun" (or a program that sets its variables),
                                    * "Open MPI", "PMI", "Slurm" or ""; static */
    char job[96];                  /* the job's name: equal in all its processes, and different from
                                    * other jobs of this machine; "" if it has one rank */
} wf_place;

/* Decides whether to replace ranks that a signal has killed, or that stall in a job that has
 * failed. `sentence` is the cause. Returns the milliseconds to wait first, or a negative number:
 * then all ranks are stopped, as without such a function. */
typedef int64_t (*wf_launch_replace)(void *self, const char *sentence);

typedef struct wf_launch_config {
    size_t struct_size;
    int n_ranks;
    const char *program; /* the file to run; NULL: argv[0], found in PATH */
    char *const *argv;   /* the program's arguments, its name first; NULL-terminated */
    int64_t timeout_ms;  /* for the whole run; 0 = unlimited */
    int64_t grace_ms;    /* between the request to stop and SIGKILL; 0 = 2,000. Other rules
                          * apply to ranks that have joined a job: see wf_launch */
    int out, err;        /* descriptors for the ranks' merged lines, usually 1 and 2 */
    int stop_signal;     /* another signal that interrupts, such as SIGUSR1; 0: none */
    /* [n_ranks], or NULL. 1 for each rank that was lost: a signal killed it that the launcher had
     * not sent, it did not stop on request, it was stopped (SIGSTOP), or it failed first, with a
     * status other than 4. */
    unsigned char *lost;
    /* NULL: a failure stops all ranks. Otherwise a rank that is killed is started again alone, and
     * the other processes go on: their calls on the job return REMOTE, and wf_job_join by env://
     * then joins the job anew, with the replaced ranks. */
    wf_launch_replace replace;
    void *replace_self; /* its first argument */
} wf_launch_config;

#define WF_LAUNCH_CONFIG_INIT                                                                      \
    { sizeof(wf_launch_config), 1, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0 }

typedef struct wf_launch_result {
    int failed_rank; /* the first rank that failed, or -1 */
    int exit_status; /* of that rank: its exit status, or 128 + signal; 0 if none failed. After an
                      * interruption: the first status of a rank that is not 0, 4, 130 or
                      * 143 */
    int signal;      /* the signal that killed it, or 0 */
    int interrupted_by; /* the signal that interrupted the launcher: SIGINT, SIGTERM, ...; or 0 */
    char sentence[512]; /* the error, or "" */
    int n_killed;       /* number of ranks that did not stop on request and were killed */
    int stopped_by;     /* interrupted_by, or a signal that came after a rank had failed; or 0 */
    int64_t stop_ms;    /* from the first request to stop to the end of all ranks; or 0 */
} wf_launch_result;

/* The function of each rank of wf_spawn. The job is joined before the call and left after it. */
typedef wf_status (*wf_rank_function)(wf_context *ctx, wf_job *job, void *arg);

typedef struct wf_rank_entry {
    const char *name; /* letters, digits, - and _ */
    wf_rank_function function;
} wf_rank_entry;

typedef enum wf_spawn_how {
    WF_SPAWN_THREADS,  /* threads of this process */
    WF_SPAWN_PROCESSES /* this program, started again: see wf_spawn_main */
} wf_spawn_how;

#define WF_SPAWN_MAX_ARG 32768

typedef struct wf_spawn_config {
    size_t struct_size;
    wf_spawn_how how;
    int n_ranks;
    const wf_rank_entry *entry; /* threads do not need a name */
    /* Threads get this pointer. Processes get a copy of the bytes, which must not contain addresses
     * or descriptors. At most WF_SPAWN_MAX_ARG bytes. */
    void *arg;
    size_t arg_bytes;
    int64_t timeout_ms; /* for waits within the job; 0 = WEFT_TIMEOUT_MS, or 600,000 */
    int out, err;       /* processes: descriptors for their merged lines */
} wf_spawn_config;

#define WF_SPAWN_CONFIG_INIT                                                                       \
    { sizeof(wf_spawn_config), WF_SPAWN_THREADS, 1, 0, 0, 0, 0, 1, 2 }

#ifdef __cplusplus
extern "C" {
#endif

/* Finds this process's rank in the environment. If several launchers have set variables, the first
 * of these applies: RANK and its companions, Open MPI's, PMI's, Slurm's. Slurm's count only in a
 * job step; an allocation's do not describe a process. All must agree. Errors: INVALID_ARG
 * (variables are incomplete, not numbers, out of range or contradictory; the sentence shows their
 * names and values). */
WF_API WF_NODISCARD wf_status wf_launch_place(wf_context *ctx, wf_place *place_out);

/* Starts n_ranks processes and waits for all of them. When this call returns, all their processes,
 * descriptors and memory segments are gone, in every case:
 *
 *  - Sessions: each rank leads a session and a process group. Its children end with it, unless
 *    they have left the group.
 *  - Input: rank 0 has this process's standard input, unless that is a terminal; other ranks have
 *    /dev/null.
 *  - Output: the launcher merges whole lines in order of arrival, cut at 64 KiB, with a delay of a
 *    few hundredths of a second. A line that several ranks print within 2 s, with at most
 *    512 other lines between, is printed once.
 *  - Failure: if a rank fails (a status other than 0, or a signal), the launcher prints that rank's
 *    last output first. The other ranks get SIGTERM, and SIGKILL after grace_ms. Ranks that have
 *    joined a job (weft/job.h) also get the failure from the job: their waits end at once.
 *  - First failure: among ranks that fail within a tenth of a second, one that a signal killed
 *    counts as the first. One with status 4 ("another rank ...") counts as the last, also after
 *    failures of the next half second, or of grace_ms if the job knows which rank failed first.
 *  - Interruption: on SIGINT, SIGTERM, SIGHUP or SIGQUIT (the last two unless they are ignored),
 *    the ranks get SIGINT or SIGTERM; on a second signal, SIGKILL. A signal that the caller blocks
 *    interrupts, too, and the ranks do not inherit the block. Other threads of this process should
 *    block these signals.
 *  - Grace: interrupted ranks get SIGKILL after grace_ms. Ranks that have joined a job may have
 *    work to save, so they get it only after WEFT_TIMEOUT_MS without progress in the job. The same
 *    applies at timeout_ms.
 *  - SIGTSTP (Ctrl-Z) stops the ranks and this process; SIGCONT continues all.
 *  - If the launcher cannot write the lines, ranks find their pipes broken (EPIPE, SIGPIPE).
 *  - If this process dies, all ranks and their process groups are killed.
 *
 * A failed rank and an interruption are reported in the result, not as errors. The result of a call
 * that fails has a signal that came meanwhile in stopped_by. Errors: INVALID_ARG
 * (also: the program does not exist); TIMEOUT (the ranks were stopped at timeout_ms, or the system
 * has not started the program within WEFT_TIMEOUT_MS); IO (the ranks have ended, but some of their
 * lines could not be written); DEVICE (the system refused a process). */
WF_API WF_NODISCARD wf_status wf_launch(wf_context *ctx, const wf_launch_config *config,
                                        wf_launch_result *result_out);

/* Runs a function as the ranks of a job, and returns when all have ended. If ranks fail, this call
 * returns the first failure: its status, and its sentence with the rank as a prefix.
 * *failed_rank_out (may be NULL) is that rank, or -1. The next wait of other ranks for the failed
 * one fails; processes are stopped as wf_launch stops them. Spawned processes begin at main and
 * never continue from a fork, which is unsafe after a program has computed.
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

/* Call this first in the main of a program that spawns processes. In a spawned process it runs the
 * process's function and returns 1; main must then return *status_out: 0, 1 (this rank failed) or 4
 * (another rank failed). In other processes it returns 0 at once. */
WF_API int wf_spawn_main(int argc, char **argv, const wf_rank_entry *table, int n_entries,
                         int *status_out);

#ifdef __cplusplus
}
#endif
#endif
