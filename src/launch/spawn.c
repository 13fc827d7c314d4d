/* Starting a rank: fork, a few system calls, exec.
 *
 * A process that has computed must not go on computing after fork (OpenMP's workers are not
 * copied, and are waited for). Between fork and exec, ours makes system calls only.
 */
#include "launch/descriptor.h"
#include "launch/process_group.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct start {
    const wfi_process_group *group;
    pid_t launcher;
    char **environment;
    int in;                   /* to become its standard input */
    int pipes[WFI_N_STREAMS]; /* its ends */
    int report;               /* where it writes errno if exec fails */
} start;

/* Discards signals that came to the launcher's process group before the rank left it (Ctrl-C,
 * Ctrl-Z): the launcher passes these on to the ranks. A rank must not start with a stop signal
 * ignored or blocked. */
static void forget_signals(sigset_t mask) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    for (size_t i = 0; i < WFI_COUNT(numbers); i++) {
        bool stays = i >= 2 && wfi_signal_is_ignored(numbers[i]);
        signal(numbers[i], SIG_IGN);
        if (!stays) signal(numbers[i], SIG_DFL);
        sigdelset(&mask, numbers[i]);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

static _Noreturn void become_rank(const start *s) {
    const wf_launch_config *config = s->group->config;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != s->launcher) _exit(127); /* it died before that was said */
    setsid(); /* own session: no terminal stops its reads or writes */
    bool is_ready = dup2(s->in, STDIN_FILENO) >= 0 &&
                    dup2(s->pipes[WFI_STREAM_OUT], STDOUT_FILENO) >= 0 &&
                    dup2(s->pipes[WFI_STREAM_ERR], STDERR_FILENO) >= 0 &&
                    fcntl(s->group->segment_fd, F_SETFD, 0) >= 0;
    forget_signals(s->group->old_mask);
    if (is_ready && config->program) execve(config->program, config->argv, s->environment);
    if (is_ready && !config->program) execvpe(config->argv[0], config->argv, s->environment);
    int number = errno;
    while (write(s->report, &number, sizeof number) < 0 && errno == EINTR) {
    }
    _exit(127);
}

static wf_status fail_exec(const wfi_process_group *group, int number) {
    const char *program = group->config->program ? group->config->program : group->config->argv[0];
    const char *where =
        group->config->program || strchr(program, '/') ? "" : " (it was looked for in PATH)";
    bool is_callers = number == ENOENT || number == EACCES || number == ENOEXEC ||
                      number == ENOTDIR || number == EISDIR || number == ELOOP;
    return wfi_fail(group->ctx, is_callers ? WF_INVALID_ARG : WF_DEVICE,
                    "launch: %.200s cannot be started%s: %s", program, where, strerror(number));
}

/* The pipe closes when exec succeeds, which may have to wait for a file system. Once somebody wants
 * the launch to end it gets a moment. *is_ready_out: false: it did not take place. */
static wf_status await_exec(const wfi_process_group *group, pid_t pid, int report,
                            bool *is_ready_out) {
    int number = 0;
    struct pollfd fds[] = {{.fd = report, .events = POLLIN},
                           {.fd = group->signal_fd, .events = POLLIN}};
    int64_t limit_ms = group->stuck_ms;
    wfi_wait_clock clock = wfi_wait_begin();
    while (!fds[0].revents && wfi_wait_ms(&clock) < limit_ms) {
        poll(fds, 2, WFI_WAIT_NAP_MS);
        if (!fds[1].revents) continue;
        fds[1] = (struct pollfd){.fd = -1};
        limit_ms = wfi_min_i64(limit_ms, WFI_END_MS);
    }
    ssize_t n = fds[0].revents ? read(report, &number, sizeof number) : -1;
    *is_ready_out = n == 0;
    if (n == 0) return WF_OK;
    wfi_process_end(pid);
    if (n > 0) return fail_exec(group, number);
    if (fds[1].fd < 0) return WF_OK;
    return wfi_fail(group->ctx, WF_TIMEOUT,
                    "launch: %.200s has not been started after %lld ms: the system has not found "
                    "out whether it exists",
                    group->config->program ? group->config->program : group->config->argv[0],
                    (long long)group->stuck_ms);
}

static wf_status open_input(const wfi_process_group *group, int rank, int *fd_out) {
    /* A terminal would stop a rank that reads from it: it belongs to another session. */
    if (rank == 0 && !isatty(STDIN_FILENO) && fcntl(STDIN_FILENO, F_GETFD) >= 0)
        return wfi_descriptor_high(group->ctx, fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), "dup",
                                   fd_out);
    return wfi_descriptor_high(group->ctx, open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null",
                               fd_out);
}

static int open_pidfd(pid_t pid) {
    int low = (int)syscall(SYS_pidfd_open, pid, 0), fd = low;
    if (low >= 0) fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
    if (low >= 0) close(low);
    return fd;
}

/* `ends` has read and write end of both streams and of the report. */
static wf_status start_process(wfi_process_group *group, int rank, start *s, int report) {
    wfi_rank_process *process = &group->ranks[rank];
    s->launcher = getpid();
    pid_t pid = fork();
    if (pid == 0) become_rank(s);
    if (pid < 0)
        return wfi_fail(group->ctx, WF_DEVICE, "launch: rank %d of %d could not be started: %s",
                        rank, group->n_ranks, strerror(errno));
    wfi_watchdog_watch(&group->watchdog, pid);
    wfi_descriptor_close(&s->report);
    bool is_ready;
    wf_status status = await_exec(group, pid, report, &is_ready);
    if (!is_ready) {
        wfi_watchdog_forget(&group->watchdog, pid);
        return status;
    }
    process->pid = pid;
    process->pidfd = open_pidfd(pid);
    process->state = WFI_RANK_RUNS;
    return WF_OK;
}

wf_status wfi_rank_spawn(wfi_process_group *group, int rank) {
    wfi_rank_process *process = &group->ranks[rank];
    int ends[WFI_N_STREAMS + 1][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    start s = {.group = group, .in = -1, .report = -1};
    wf_status status = open_input(group, rank, &s.in);
    for (int i = 0; i <= WFI_N_STREAMS && status == WF_OK; i++)
        status = wfi_descriptor_pipe(group->ctx, ends[i]);
    for (int i = 0; i < WFI_N_STREAMS; i++) s.pipes[i] = ends[i][1];
    s.report = ends[WFI_N_STREAMS][1];
    if (status == WF_OK) {
        s.environment = wfi_environment_create(group, rank);
        status =
            s.environment ? start_process(group, rank, &s, ends[WFI_N_STREAMS][0]) : WF_NO_MEMORY;
    }
    wfi_environment_free(group->ctx, s.environment);
    wfi_descriptor_close(&s.in);
    wfi_descriptor_close(&s.report);
    wfi_descriptor_close(&ends[WFI_N_STREAMS][0]);
    for (int i = 0; i < WFI_N_STREAMS; i++) {
        wfi_descriptor_close(&ends[i][1]);
        if (process->state != WFI_RANK_RUNS) wfi_descriptor_close(&ends[i][0]);
        process->pipes[i] = ends[i][0];
        if (ends[i][0] >= 0) fcntl(ends[i][0], F_SETFL, O_NONBLOCK);
    }
    return status;
}
