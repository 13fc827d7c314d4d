/* The launcher's report of an interruption, and the last use of a snapshot.
 *
 * A signal may come while ranks wait for the one that replaces a killed rank, or between two
 * attempts. No rank can save then, but a snapshot may be newer than the checkpoint. The launcher
 * starts the ranks once more; they read the snapshot, save it and end. */
#include "checkpoint/checkpoint.h"
#include "restart/snapshot.h"

#include <stdlib.h>

#define SAVED_BYTES 4700

/* "the last checkpoint is ..." */
static const char *describe_saved(const cli *c, int64_t step, char text[SAVED_BYTES]) {
    char path[4096];
    if (step >= 0)
        snprintf(text, SAVED_BYTES,
                 "the last checkpoint is %s, of step %lld: --resume goes on from there",
                 checkpoint_path(c, "state", path), (long long)step);
    else
        snprintf(text, SAVED_BYTES, "nothing has been saved%s",
                 c->o.out ? "" : ", because there is no --out");
    return text;
}

/* Starts the ranks to save the snapshot. Returns whether they have. */
static bool save(const cli *c, wf_launch_config *config, int number, wf_launch_result *result_out,
                 wf_status *status_out) {
    char text[32];
    history *h = c->history;
    snprintf(text, sizeof text, "%lld", (long long)h->n_restarts + 1);
    setenv(RESTART_ENV, text, 1);
    h->stop_signal = number;
    h->keeps_ranks = 0;
    config->stop_signal = 0;
    *status_out = wf_launch(c->ctx, config, result_out);
    return h->is_reported;
}

exit_status rescue(const cli *c, wf_launch_config *config, const wf_launch_result *result) {
    char saved[SAVED_BYTES];
    wf_launch_result last;
    wf_status ended;
    int image;
    exit_status status = (exit_status)(128 + result->interrupted_by);
    int64_t step = snapshot_newest(c->snapshot, &image), before = checkpoint_step(c);
    bool is_new = c->o.out && step > before;
    c->history->grace_s = c->o.grace - (double)result->stop_ms / 1000;
    bool is_late = c->o.grace > 0 && c->history->grace_s <= 0;
    if (!is_new || is_late)
        return complain(status, "%s; %s%s", result->sentence,
                        is_new ? "the grace has passed before a snapshot was saved; " : "",
                        describe_saved(c, before, saved));
    complain(status, "%s; saving the snapshot of step %lld", result->sentence, (long long)step);
    if (save(c, config, result->interrupted_by, &last, &ended)) return status;
    return complain(ended == WF_OK && last.exit_status == EXIT_FAILED ? EXIT_FAILED : status,
                    "the snapshot of step %lld has not been saved: %s; %s", (long long)step,
                    ended == WF_OK ? last.sentence : wf_context_error(c->ctx),
                    describe_saved(c, checkpoint_step(c), saved));
}
