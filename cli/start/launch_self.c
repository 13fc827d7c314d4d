/* --ranks N: this very program, N times. */
#include "checkpoint/checkpoint.h"
#include "restart/snapshot.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* After a failure of another a rank may still have to notice that. */
#define GRACE_MS 10000
/* A single rank joins no job. Its grace is long, because it may save a large checkpoint. */
#define ALONE_MS 600000

char *const *program_words;

/* Ranks have already reported their saves, unless they were killed. One that could not save has
 * failed. */
static exit_status tell_interrupted(const cli *c, wf_launch_config *config,
                                    const wf_launch_result *result) {
    exit_status status = (exit_status)(128 + result->interrupted_by);
    bool has_failed = result->exit_status == EXIT_FAILED;
    if (c->history && !c->history->is_reported && !has_failed) return rescue(c, config, result);
    if (result->n_killed) return complain(status, "%s", result->sentence);
    return has_failed ? EXIT_FAILED : status;
}

/* The failing rank has already reported its error, unless it was killed. */
static exit_status tell(const cli *c, wf_launch_config *config, const wf_launch_result *result) {
    if (result->failed_rank < 0)
        return result->interrupted_by ? tell_interrupted(c, config, result) : EXIT_DONE;
    exit_status status = result->signal ? EXIT_RANK : (exit_status)result->exit_status;
    if (result->signal || status == EXIT_FAILED || status == EXIT_RANK)
        return complain(status, "%s", result->sentence);
    return status;
}

static void pass_on(const char *variable, int fd) {
    char text[32];
    snprintf(text, sizeof text, "%d", fd);
    setenv(variable, text, 1);
}

/* Creates memory that outlives all ranks. The ranks inherit the descriptors, and the end of this
 * process closes them. */
static exit_status make_memories(cli *c) {
    int fd;
    unsetenv(HISTORY_ENV);
    unsetenv(SNAPSHOT_ENV);
    if (!c->o.restarts) return EXIT_DONE;
    c->history = history_create(&fd);
    if (!c->history)
        return complain(EXIT_FAILED, "the memory for the history of restarts is refused: %s",
                        strerror(errno));
    pass_on(HISTORY_ENV, fd);
    if (!c->o.snapshot) return EXIT_DONE;
    c->snapshot = snapshot_create(&fd);
    if (!c->snapshot)
        return complain(EXIT_FAILED, "the memory for --snapshot is refused: %s", strerror(errno));
    pass_on(SNAPSHOT_ENV, fd);
    return EXIT_DONE;
}

/* OpenMP's waiting threads spin by default. With more threads than cores they would take the time
 * of those that compute. OpenMP reads the variable before main, so the ranks inherit it. */
static void sleep_while_waiting(const options *o) {
    if (o->recipe.n_threads > 1 && o->ranks * o->recipe.n_threads > wf_info_limits().n_cores)
        setenv("OMP_WAIT_POLICY", "passive", 0);
}

exit_status launch_self(cli *c) {
    wf_launch_config config = WF_LAUNCH_CONFIG_INIT;
    wf_launch_result result;
    elastic e;
    bool is_elastic = c->o.ranks_least > 0;
    held_folder held;
    sigset_t before;
    if (c->o.ranks < 1 || c->o.ranks > WF_LAUNCH_MAX_RANKS)
        return complain(EXIT_USAGE, "--ranks %lld: there can be 1 to %d", (long long)c->o.ranks,
                        WF_LAUNCH_MAX_RANKS);
    if (is_elastic) TRY(elastic_open(c->ctx, &c->o, true, &e));
    config.n_ranks = (int)c->o.ranks;
    config.program = "/proc/self/exe";
    config.argv = program_words;
    config.grace_ms = config.n_ranks > 1 ? GRACE_MS : ALONE_MS;
    sleep_while_waiting(&c->o);
    signal(SIGCHLD, SIG_DFL);
    exit_status bad = checkpoint_hold(c, &held);
    interrupt_hold(&before);
    if (!bad && interrupt_status())
        bad = complain(interrupt_status(), "interrupted; no rank has been started");
    if (!bad) bad = make_memories(c);
    wf_status status = bad ? WF_OK : restart_launch(c, &config, is_elastic ? &e : NULL, &result);
    if (!bad) bad = status == WF_OK ? tell(c, &config, &result) : complain_of(c, status);
    checkpoint_release(c, &held);
    interrupt_release(&before);
    return bad;
}
