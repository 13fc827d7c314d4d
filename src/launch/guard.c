/* The guard. After fork it calls only what a signal handler may: the launcher may be a process
 * with threads and locks. */
#include "launch/guard.h"
#include "launch/descriptor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_GROUPS 64

typedef struct order {
    pid_t group;
    int is_alive;
} order;

/* Whatever the launcher has open (pipes that others read, a terminal) must end with it. */
static void close_from(int first) {
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, (unsigned)first, ~0u, 0u)) return;
#endif
    for (int fd = first; fd < 65536; fd++) close(fd);
}

static _Noreturn void guard(int fd) {
    pid_t groups[MAX_GROUPS] = {0};
    sigset_t all;
    order o;
    ssize_t n;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid(); /* who kills the launcher's whole group does not mean us */
    prctl(PR_SET_NAME, "weft-guard");
    if (fd != 0) dup2(fd, 0);
    close_from(1);
    while ((n = read(0, &o, sizeof o)) == (ssize_t)sizeof o || (n < 0 && errno == EINTR)) {
        if (n < 0) continue;
        int i = 0;
        while (i < MAX_GROUPS - 1 && groups[i] != (o.is_alive ? 0 : o.group)) i++;
        groups[i] = o.is_alive ? o.group : 0;
    }
    for (int i = 0; i < MAX_GROUPS; i++)
        if (groups[i] > 0) kill(-groups[i], SIGKILL);
    _exit(0);
}

wf_status wfi_guard_start(wf_context *ctx, wfi_guard *guard_out) {
    int ends[2];
    WF_TRY(wfi_descriptor_pipe(ctx, ends));
    pid_t pid = fork();
    if (pid == 0) guard(ends[0]);
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return wfi_fail(ctx, WF_DEVICE, "launch: no process could be started: %s", strerror(errno));
    }
    *guard_out = (wfi_guard){pid, ends[1], (int)syscall(SYS_pidfd_open, pid, 0)};
    return WF_OK;
}

static void send_order(const wfi_guard *guard, order o) {
    while (guard->pid && write(guard->fd, &o, sizeof o) < 0 && errno == EINTR) {
    }
}

void wfi_guard_watch(const wfi_guard *guard, pid_t group) {
    send_order(guard, (order){group, 1});
}

void wfi_guard_forget(const wfi_guard *guard, pid_t group) {
    send_order(guard, (order){group, 0});
}

bool wfi_guard_is_lost(const wfi_guard *guard) {
    struct pollfd ended = {.fd = guard->pidfd, .events = POLLIN};
    return guard->pid && guard->pidfd >= 0 && poll(&ended, 1, 0) == 1;
}

void wfi_guard_end(wfi_guard *guard) {
    if (!guard->pid) return;
    close(guard->fd);
    if (guard->pidfd >= 0) close(guard->pidfd);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    guard->pid = 0;
}
