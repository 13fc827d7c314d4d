/* Ctrl-C: remembered, so that a step can end and files stay whole. */
#include "common/cli.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* The one mutable global: a signal handler has nowhere else to write. Atomic access, because any
 * thread may be the one that the signal interrupts. */
static int signal_seen;

static void remember(int number) {
    __atomic_store_n(&signal_seen, number, __ATOMIC_RELAXED);
}

/* Signals that interrupt; an ignored SIGHUP or SIGQUIT does not, because nohup ignores it. */
static sigset_t wanted(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (i < 2 || sigaction(numbers[i], NULL, &action) || action.sa_handler != SIG_IGN)
            sigaddset(&set, numbers[i]);
    return set;
}

/* ---- ends ---- */

/* Runs in a signal handler, so all calls are async-signal-safe. */
static void end_unsaved(int number) {
    static const char text[] = "\r\033[Kweft: interrupted; no results have been written\n";
    size_t n_erase = isatty(STDERR_FILENO) ? 0 : 4;
    (void)!write(STDERR_FILENO, text + n_erase, sizeof text - 1 - n_erase);
    _exit(128 + number);
}

static timer_t timer; /* of the grace; static, because a signal handler reads it */
static double grace_s;

/* The same. */
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
    const sigset_t all = wanted();
    for (int number = 1; number <= SIGTERM; number++)
        if (sigismember(&all, number)) sigaction(number, &action, NULL);
}

void interrupt_watch(void) {
    set(remember, (int)(SA_RESETHAND | SA_RESTART)); /* the second one kills */
    signal(SIGPIPE, SIG_IGN); /* the work continues when the reader of our output ends */
}

void interrupt_end(void) {
    set(end_unsaved, 0);
    signal(SIGPIPE, SIG_IGN); /* the same */
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

/* ---- launches ---- */

void interrupt_hold(sigset_t *before_out) {
    const sigset_t all = wanted();
    pthread_sigmask(SIG_BLOCK, &all, before_out);
}

int interrupt_wait(double seconds) {
    const sigset_t all = wanted();
    const struct timespec time = {(time_t)seconds,
                                  (long)((seconds - (double)(time_t)seconds) * 999999999.0)};
    int number = sigtimedwait(&all, NULL, &time);
    return number > 0 ? number : 0;
}

void interrupt_release(const sigset_t *before) {
    pthread_sigmask(SIG_SETMASK, before, NULL);
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
