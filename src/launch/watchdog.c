/* The watchdog. After fork it calls only async-signal-safe functions: the launcher may be a process
 * with threads and locks. */
#include "launch/descriptor.h"
#include "launch/process_group.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct order {
    pid_t pgid;
    int is_alive;
} order;

/* Closes all descriptors of the launcher: pipes and terminals must not stay open after its
 * death. */
static void close_from(int first) {
#ifdef SYS_close_range
    if (!syscall(SYS_close_range, (unsigned)first, ~0u, 0u)) return;
#endif
    for (int fd = first; fd < 65536; fd++) close(fd);
}

static _Noreturn void watchdog(int fd) {
    pid_t pgids[WF_LAUNCH_MAX_RANKS] = {0};
    sigset_t all;
    order o;
    ssize_t n;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid(); /* a kill of the launcher's group must not end the watchdog */
    prctl(PR_SET_NAME, "weft-watchdog");
    if (fd != 0) dup2(fd, 0);
    close_from(1);
    while ((n = read(0, &o, sizeof o)) == (ssize_t)sizeof o || (n < 0 && errno == EINTR)) {
        if (n < 0) continue;
        int i = 0;
        while (i < WF_LAUNCH_MAX_RANKS - 1 && pgids[i] != (o.is_alive ? 0 : o.pgid)) i++;
        pgids[i] = o.is_alive ? o.pgid : 0;
    }
    for (int i = 0; i < WF_LAUNCH_MAX_RANKS; i++)
        if (pgids[i] > 0) kill(-pgids[i], SIGKILL);
    _exit(0);
}

wf_status wfi_watchdog_start(wf_context *ctx, wfi_watchdog *watchdog_out) {
    int ends[2];
    WF_TRY(wfi_descriptor_pipe(ctx, ends));
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0) watchdog(ends[0]);
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return wfi_fail(ctx, WF_DEVICE, "launch: no process could be started: %s", strerror(errno));
    }
    *watchdog_out = (wfi_watchdog){pid, ends[1], (int)syscall(SYS_pidfd_open, pid, 0)};
    return WF_OK;
}

/* A full pipe means that the watchdog is stopped. The launcher kills it, because groups of old
 * orders may have other processes' numbers by then. */
static void send_order(const wfi_watchdog *watchdog, order o) {
    ssize_t n = 0;
    do
        if (watchdog->pid) n = write(watchdog->fd, &o, sizeof o);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) kill(watchdog->pid, SIGKILL);
}

void wfi_watchdog_watch(const wfi_watchdog *watchdog, pid_t pgid) {
    send_order(watchdog, (order){pgid, 1});
}

void wfi_watchdog_forget(const wfi_watchdog *watchdog, pid_t pgid) {
    send_order(watchdog, (order){pgid, 0});
}

bool wfi_watchdog_is_lost(const wfi_watchdog *watchdog) {
    struct pollfd ended = {.fd = watchdog->pidfd, .events = POLLIN};
    return watchdog->pid && watchdog->pidfd >= 0 && poll(&ended, 1, 0) == 1;
}

void wfi_watchdog_end(wfi_watchdog *watchdog) {
    if (!watchdog->pid) return;
    close(watchdog->fd);
    if (watchdog->pidfd >= 0) close(watchdog->pidfd);
    wfi_process_end(watchdog->pid); /* all ranks are gone; and it may be stopped */
    watchdog->pid = 0;
}
