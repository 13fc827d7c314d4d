/* Ctrl-C: remembered, so that a step can end and files stay whole. */
#include "cli.h"

#include <signal.h>
#include <string.h>

/* The one mutable global: a signal handler has nowhere else to write. Atomic access, because any
 * thread may be the one that the signal interrupts. */
static int signal_seen;

static void remember(int number) {
    __atomic_store_n(&signal_seen, number, __ATOMIC_RELAXED);
}

static bool is_ignored(int number) {
    struct sigaction action;
    return !sigaction(number, NULL, &action) && action.sa_handler == SIG_IGN;
}

static void set(void (*handler)(int number), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, NULL); /* nohup means what it says */
}

void interrupt_watch(void) {
    set(remember, (int)(SA_RESETHAND | SA_RESTART)); /* the second one kills */
    signal(SIGPIPE, SIG_IGN); /* who reads what we say may go: the work goes on */
}

void interrupt_unwatch(void) {
    set(SIG_DFL, 0);
}

exit_status interrupt_status(void) {
    int number = __atomic_load_n(&signal_seen, __ATOMIC_RELAXED);
    return number ? (exit_status)(128 + number) : EXIT_DONE;
}

exit_status interrupt_agreed(const cli *c) {
    if (!c->job) return interrupt_status();
    if (interrupt_status()) wf_job_request_stop(c->job, (int)interrupt_status());
    return c->stop;
}
