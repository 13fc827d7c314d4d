/* The launcher's side of restarts: decides whether a failure may pass, and waits before it starts
 * the ranks again. */
#include "restart/restart.h"

#include "common/clock.h"
#include "restart/snapshot.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_WAIT_S 0.1
#define LAST_WAIT_S  10.0

typedef struct supervisor {
    const cli *c;
    wf_launch_config *config;
    wf_launch_result *result;
    elastic *elastic;         /* NULL: all attempts have as many ranks */
    history *shared;          /* NULL: the program may not be weft train */
    int64_t number, n_most;   /* of restarts after failures */
    int64_t n_asked;          /* of restarts by SIGUSR1 */
    double wait_s, timeout_s; /* before the next; for the whole run, or 0 */
    double begun_s, attempt_s;
    history before; /* the latest start, of all ranks or of lost ones */
    int64_t outer;  /* restarts by an outer launcher */
} supervisor;

/* ---- failures ---- */

/* Returns whether the latest attempt removed the cause of its failure. */
static bool has_retry(const supervisor *s, const history *before) {
    return s->shared && s->shared->n_retries > before->n_retries;
}

/* Returns whether the latest attempt made more steps than those before, removed the cause of its
 * failure, or ran long enough. */
static bool has_progress(const supervisor *s, const history *before) {
    const history *now = s->shared;
    if (!now) return now_seconds() - s->attempt_s >= LAST_WAIT_S;
    int64_t first = now->first_step;
    return now->most_done > (before->most_done > first ? before->most_done : first) ||
           has_retry(s, before);
}

/* Returns whether a restart may help. A usage error repeats at once, and so does a plan that does
 * not fit. An interrupted rank has saved its work. Status 1 of weft train may pass only if the
 * attempt made new steps. */
static bool may_pass(const supervisor *s, wf_status status, bool is_further) {
    const wf_launch_result *r = s->result;
    if (status != WF_OK) return status == WF_REMOTE; /* the watchdog was killed */
    if (r->failed_rank < 0 || r->interrupted_by) return false;
    if (r->signal) return true;
    if (r->exit_status == EXIT_USAGE || r->exit_status == EXIT_DOES_NOT_FIT) return false;
    if (r->exit_status == EXIT_INTERRUPTED || r->exit_status == EXIT_TERMINATED ||
        r->exit_status == EXIT_HUNG_UP)
        return false;
    if (!s->shared) return true;
    return !s->shared->is_final && (r->exit_status == EXIT_RANK || is_further);
}

/* ---- waiting ---- */

/* The signal came between two attempts, or during the failed one, before a restart was printed. */
static bool is_interrupted(const supervisor *s, int number) {
    if (!number) return false;
    *s->result = (wf_launch_result){.failed_rank = -1, .interrupted_by = number};
    snprintf(s->result->sentence, sizeof s->result->sentence,
             "interrupted by signal %d (%s) before a restart; no rank ran", number,
             strsignal(number));
    return true;
}

static void double_wait(supervisor *s) {
    s->wait_s = 2 * s->wait_s < LAST_WAIT_S ? 2 * s->wait_s : LAST_WAIT_S;
}

/* ---- attempts ---- */

/* Passes the number to the ranks. The number includes the restarts of an outer launcher. */
static void set_number(const supervisor *s) {
    char text[32];
    int64_t number = s->outer + s->number + s->n_asked;
    snprintf(text, sizeof text, "%lld", (long long)number);
    setenv(RESTART_ENV, text, 1);
    if (s->shared) s->shared->n_restarts = number;
}

/* Cuts the timeout of the next attempt to the rest of the run's deadline. False: it has passed. */
static bool cut_timeout(supervisor *s) {
    if (!(s->timeout_s > 0)) return true;
    double left_s = s->timeout_s - (now_seconds() - s->begun_s + s->wait_s);
    s->config->timeout_ms = (int64_t)(left_s * 1000 + 0.999);
    return left_s > 0;
}

static void say_restart(const supervisor *s, wf_status status) {
    char with[300] = "";
    const char *why = status == WF_OK ? s->result->sentence : wf_context_error(s->c->ctx);
    if (s->elastic) elastic_say(s->elastic, with, sizeof with);
    complain(EXIT_DONE, "%s; restart %lld of %lld in %.1f s%s", why, (long long)s->number,
             (long long)s->n_most, s->wait_s, with);
}

/* SIGUSR1 has stopped the ranks, which have saved: all places are used again. */
static bool has_renewed(supervisor *s, wf_status status) {
    if (!s->elastic || status != WF_OK || !elastic_was_asked(s->elastic, s->result)) return false;
    elastic_renew(s->elastic);
    s->n_asked++;
    complain(EXIT_DONE, "SIGUSR1: starting again with all %d ranks", s->elastic->n_most);
    return true;
}

/* wf_launch_replace: the other ranks stay. A rank that dies again before a new step waits. */
static int64_t replace(void *self, const char *sentence) {
    supervisor *s = self;
    double wait_s = s->wait_s;
    if (s->number == s->n_most || s->shared->is_final) return -1;
    if (has_progress(s, &s->before)) s->wait_s = FIRST_WAIT_S / 2, wait_s = 0;
    s->before = *s->shared;
    s->shared->failed_s = now_seconds();
    s->number++;
    set_number(s);
    complain(EXIT_DONE, "%s; restart %lld of %lld in %.1f s%s", sentence, (long long)s->number,
             (long long)s->n_most, wait_s,
             s->config->n_ranks > 1 ? ", and the other ranks stay" : "");
    double_wait(s);
    return (int64_t)(wait_s * 1000);
}

static wf_status run_attempts(supervisor *s) {
    for (;;) {
        if (s->shared) s->shared->is_reported = 0;
        s->before = s->shared ? *s->shared : (history){0};
        set_number(s);
        if (s->elastic) elastic_start(s->elastic, s->config);
        s->attempt_s = now_seconds();
        const history before = s->before; /* replacements move s->before */
        wf_status status = wf_launch(s->c->ctx, s->config, s->result);
        if (s->shared) s->shared->failed_s = now_seconds();
        bool is_further = has_progress(s, &before);
        if (is_further) s->wait_s = FIRST_WAIT_S;
        if (has_renewed(s, status) && cut_timeout(s)) continue;
        bool is_short = s->elastic && status == WF_OK && elastic_is_short(s->elastic, s->result);
        if (!is_short && !may_pass(s, status, is_further)) return status;
        if (s->number == s->n_most) {
            complain(EXIT_DONE, "no restart is left: --restarts %lld", (long long)s->n_most);
            return status;
        }
        bool is_asked = s->elastic && s->result->stopped_by == SIGUSR1;
        if (!is_asked && is_interrupted(s, s->result->stopped_by)) return WF_OK;
        if (!cut_timeout(s)) return status;
        s->number++;
        if (is_short || is_asked)
            elastic_renew(s->elastic);
        else if (s->elastic && status == WF_OK && !has_retry(s, &before))
            elastic_lose(s->elastic);
        say_restart(s, status);
        if (is_interrupted(s, interrupt_wait(s->wait_s))) return WF_OK;
        if (s->elastic && elastic_is_asked()) elastic_renew(s->elastic);
        double_wait(s);
    }
}

/* By default SIGUSR1 would end the launcher, and thus the ranks. */
static void refuse_request(int number) {
    static const char text[] = "weft: SIGUSR1 has no effect here: it starts lost ranks again in a "
                               "run with --ranks A:B\n";
    int before = errno;
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    errno = before;
}

wf_status restart_launch(const cli *c, wf_launch_config *config, elastic *e,
                         wf_launch_result *result_out) {
    supervisor s = {.c = c,
                    .config = config,
                    .elastic = e,
                    .shared = c->history,
                    .result = result_out,
                    .n_most = c->o.restarts,
                    .wait_s = FIRST_WAIT_S,
                    .timeout_s = (double)config->timeout_ms / 1000,
                    .begun_s = now_seconds(),
                    .outer = restart_number()};
    const struct sigaction refuse = {.sa_handler = refuse_request, .sa_flags = SA_RESTART};
    sigset_t before;
    sigaction(SIGUSR1, &refuse, NULL);
    if (!s.n_most) return wf_launch(c->ctx, config, result_out);
    if (e) elastic_begin(e, s.shared ? &s.shared->roster : NULL);
    if (c->snapshot && !e) {
        config->replace = replace;
        config->replace_self = &s;
        s.shared->keeps_ranks = true;
    }
    interrupt_hold(&before);
    wf_status status = run_attempts(&s);
    interrupt_release(&before);
    config->replace = NULL;
    if (e) elastic_end(e);
    return status;
}
