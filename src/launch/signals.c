/* Signals to the launcher wait to be read, so that nothing of it runs inside a handler. */
#include "launch/descriptor.h"
#include "launch/process_group.h"

#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

bool wfi_signal_is_ignored(int number) {
    struct sigaction action;
    return !sigaction(number, NULL, &action) && action.sa_handler == SIG_IGN;
}

/* The launcher always handles SIGINT and SIGTERM: scripts start background processes with SIGINT
 * ignored, and still send it. If nohup ignores SIGHUP, it stays ignored. */
static void wanted(const wf_launch_config *config, sigset_t *set) {
    sigemptyset(set);
    if (config->stop_signal) sigaddset(set, config->stop_signal);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    if (!wfi_signal_is_ignored(SIGHUP)) sigaddset(set, SIGHUP);
    if (!wfi_signal_is_ignored(SIGQUIT)) sigaddset(set, SIGQUIT);
    if (!wfi_signal_is_ignored(SIGTSTP)) sigaddset(set, SIGTSTP);
}

wf_status wfi_signals_catch(wfi_process_group *group) {
    struct sigaction action;
    sigset_t set;
    if (!sigaction(SIGCHLD, NULL, &action) &&
        (action.sa_handler == SIG_IGN || action.sa_flags & SA_NOCLDWAIT))
        return wfi_fail(group->ctx, WF_INVALID_ARG,
                        "launch: this process ignores SIGCHLD, so it cannot learn how ranks end; "
                        "set it to SIG_DFL");
    wanted(group->config, &set);
    WF_TRY(wfi_descriptor_high(group->ctx, signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK),
                               "signalfd", &group->signal_fd));
    sigaddset(&set, SIGPIPE); /* a reader that has gone away is an error of write(), and so is */
    sigaddset(&set, SIGXFSZ); /* a file that may grow no more */
    pthread_sigmask(SIG_BLOCK, &set, &group->old_mask);
    return WF_OK;
}

/* The next that has come, or 0. */
static int next(wfi_process_group *group) {
    struct signalfd_siginfo info;
    ssize_t n = read(group->signal_fd, &info, sizeof info);
    return n == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

void wfi_signals_handle(wfi_process_group *group) {
    for (int number; (number = next(group)) != 0;) wfi_process_group_interrupt(group, number);
}

void wfi_signals_restore(wfi_process_group *group) {
    if (group->signal_fd < 0) return;
    const struct timespec now = {0, 0};
    static const int own[] = {SIGPIPE, SIGXFSZ};
    for (int number; (number = next(group)) != 0;) /* all ranks are gone */
        if (number != SIGTSTP) wfi_process_group_note(group, number);
    for (size_t i = 0; i < WFI_COUNT(own); i++) {
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, own[i]);
        if (!sigismember(&group->old_mask, own[i])) (void)sigtimedwait(&only, NULL, &now);
    }
    pthread_sigmask(SIG_SETMASK, &group->old_mask, NULL);
    wfi_descriptor_close(&group->signal_fd);
}
