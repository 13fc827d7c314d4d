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

void interrupt_watch(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = remember;
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART); /* the second one kills */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

exit_status interrupt_status(void) {
    int number = __atomic_load_n(&signal_seen, __ATOMIC_RELAXED);
    if (!number) return EXIT_DONE;
    return number == SIGTERM ? EXIT_TERMINATED : EXIT_INTERRUPTED;
}

exit_status interrupt_agreed(const cli *c) {
    if (!c->job) return interrupt_status();
    if (interrupt_status()) wf_job_request_stop(c->job, (int)interrupt_status());
    return c->stop;
}
