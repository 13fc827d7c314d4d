/* Ctrl-C: remembered, so that a step can end and files stay whole. */
#include "common/cli.h"

#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

/* ---- the grace ---- */

static timer_t timer; /* of the grace; static, because a signal handler reads it */
static double grace_s;

/* Runs in a signal handler, so all calls are async-signal-safe. */
static void end_now(int number) {
    static const char text[] =
        "weft: the grace has passed before a checkpoint was written; the last one is intact\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(128 + __atomic_load_n(&signal_seen, __ATOMIC_RELAXED));
}

static void remember_for(int number) {
    const time_t whole = (time_t)grace_s;
    const struct itimerspec at = {
        .it_value = {whole, (long)((grace_s - (double)whole) * 999999999.0) + 1}};
    remember(number);
    timer_settime(timer, 0, &at, NULL);
}

static void set(void (*handler)(int number), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (!is_ignored(SIGHUP)) sigaction(SIGHUP, &action, NULL); /* respects nohup */
    if (!is_ignored(SIGQUIT)) sigaction(SIGQUIT, &action, NULL);
}

void interrupt_watch(void) {
    set(remember, (int)(SA_RESETHAND | SA_RESTART)); /* the second one kills */
    signal(SIGPIPE, SIG_IGN); /* the work continues when the reader of our output ends */
}

exit_status interrupt_within(double seconds) {
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGALRM;
    bool has_timer = grace_s > 0; /* this process has begun anew after another rank's death */
    grace_s = seconds;
    signal(SIGALRM, end_now);
    if (!has_timer && timer_create(CLOCK_MONOTONIC, &event, &timer))
        return complain(EXIT_FAILED, "--grace: the system has no timer left");
    if (!interrupt_status()) set(remember_for, (int)(SA_RESETHAND | SA_RESTART));
    return EXIT_DONE;
}

void interrupt_assume(int number) {
    if (grace_s > 0)
        remember_for(number);
    else
        remember(number);
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
