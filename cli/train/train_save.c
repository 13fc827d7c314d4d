/* Checkpoints, snapshots and tests of a run. */
#include "common/text.h"
#include "train/train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>

/* Why the folder cannot be written to is said once: the curve is not drawn any more. */
static exit_status cannot_save(run *r, wf_status status) {
    progress_clear(&r->bar);
    r->cannot_save = true;
    return complain_of(r->c, status);
}

/* The workers' files of other checkpoints go after their state has been replaced, also those that a
 * killed run left. `step`: of a state that --save-async is still replacing; -1: there is none. */
static void forget_others(const run *r, int64_t step) {
    if (r->updates.workers && r->saved_step >= 0) updates_forget(&r->updates, r->saved_step, step);
}

/* Waits until files that are written in the background are in their place. */
exit_status train_settle(run *r) {
    wf_status status = r->trainer ? wf_trainer_save_wait(r->trainer) : WF_OK;
    if (status != WF_OK) return cannot_save(r, status);
    forget_others(r, -1);
    return EXIT_DONE;
}

/* The last checkpoint, once it is in its place. */
exit_status train_keep(run *r) {
    const options *o = &r->c->o;
    bool is_best = o->keep_best && r->tests.best_step == r->saved_step;
    if (r->kept_step == r->saved_step || (!o->keep && !is_best)) return EXIT_DONE;
    exit_status bad = train_settle(r);
    if (!bad && r->c->is_root && o->keep) bad = checkpoint_keep_last(r->c, r->saved_step);
    if (!bad && r->c->is_root && is_best) bad = checkpoint_keep_best(r->c);
    r->kept_step = r->saved_step;
    return bad;
}

/* Compares the replicas, so that a differing one is not saved: a restart continues from
 * a good one. */
exit_status train_verify(run *r) {
    int64_t n_bytes;
    if (!r->c->o.verify || r->verified_step == r->n_done) return EXIT_DONE;
    wf_status status = wf_trainer_verify(r->trainer, &n_bytes);
    r->verified_step = r->n_done;
    if (status != WF_OK) progress_clear(&r->bar);
    if (status == WF_CORRUPT) {
        for (int image = 1; image <= 2 && r->c->snapshot; image++) /* they were not compared */
            snapshot_forget(r->c->snapshot, image);
        if (wf_trainer_is_faulty(r->trainer)) roster_report_fault(r->c);
        return complain(EXIT_RANK, "%s", wf_context_error(r->c->ctx));
    }
    if (status != WF_OK || n_bytes) return complain_of(r->c, status);
    const history *h = r->c->history;
    if (h && *h->roster.plan) return EXIT_DONE; /* --ranks A:B has left no replicas */
    return complain(
        EXIT_USAGE,
        "--verify has no effect here: with the plan %s no two ranks keep the same state",
        wf_plan_text(r->j.plan));
}

exit_status train_save(run *r) {
    if (!r->c->o.out || r->saved_step == r->n_done) return EXIT_DONE;
    TRY(train_verify(r));
    TRY(log_flush(&r->log));
    TRY(train_keep(r)); /* the files that an earlier save has written meanwhile */
    history_mark(train_history(r), r->n_done);
    wf_status status = WF_OK;
    if (r->updates.workers) status = updates_save(&r->updates, r->n_done);
    if (status == WF_OK && r->trainer)
        status = checkpoint_save(&r->j, r->trainer, r->next, &r->tests);
    history_mark(train_history(r), r->n_done);
    if (status != WF_OK) return cannot_save(r, status);
    int64_t before = r->c->o.save_async ? r->saved_step : -1;
    r->saved_step = r->n_done;
    forget_others(r, before);
    return r->c->o.save_async ? EXIT_DONE : train_keep(r);
}

/* Copies the state to memory, for a restart. Flushing the log first ensures that it contains the
 * steps of the snapshot. */
exit_status train_take_snapshot(run *r) {
    cli *c = r->c;
    exit_status bad = log_flush(&r->log);
    wf_status status = c->is_root && !bad ? job_hash_data(&r->j) : WF_OK;
    if (bad || status != WF_OK) return bad ? bad : complain_of(c, status);
    char *notes = c->is_root ? checkpoint_record(&r->j, r->next, &r->tests, r->n_done) : NULL;
    if (c->is_root && !notes) return complain(EXIT_FAILED, "no memory left");
    history_mark_snapshot(train_history(r), r->n_done);
    status = snapshot_write(c->snapshot, r->trainer, notes, r->n_done);
    free(notes);
    return complain_of(c, status);
}

/* Evaluates the weights' average, if there is one: the trainer goes on with the weights. */
static wf_status eval_here(run *r) {
    bool averages = r->c->o.recipe.ema > 0;
    TRY(averages ? wf_trainer_use_average(r->trainer, 1) : WF_OK);
    wf_status status = job_eval(&r->j, r->trainer, WF_DATA_TEST, &r->test_loss, &r->test_accuracy);
    bool goes_on = status == WF_OK || status == WF_INTERRUPTED;
    wf_status back = averages && goes_on ? wf_trainer_use_average(r->trainer, 0) : WF_OK;
    return back == WF_OK ? status : back;
}

/* A rank that has not been asked stops because rank 0 was. */
static exit_status interrupted_exit(run *r) {
    exit_status why = interrupt_agreed(r->c);
    if (!why) why = r->c->stop = (exit_status)(128 + SIGTERM);
    return why;
}

/* Rank 0 has the workers' weights, and tells the others. */
static wf_status eval(run *r) {
    struct {
        double loss, accuracy;
        int64_t status;
    } told = {0};
    if (!r->updates.workers || !r->c->job) return eval_here(r);
    if (r->trainer) {
        told.status = eval_here(r);
        told.loss = r->test_loss;
        told.accuracy = r->test_accuracy;
        if (told.status != WF_OK && told.status != WF_INTERRUPTED) return (wf_status)told.status;
    }
    wf_status status = wf_job_broadcast(r->c->job, &told, sizeof told);
    r->test_loss = told.loss;
    r->test_accuracy = told.accuracy;
    return status == WF_OK ? (wf_status)told.status : status;
}

/* Loss and accuracy on the test split, if there is one. */
exit_status train_test(run *r, int64_t epoch) {
    if (!r->j.about.n_test || r->tested_step == r->n_done) return EXIT_DONE;
    wf_status status = eval(r);
    progress_clear(&r->bar);
    if (status == WF_INTERRUPTED) return interrupted_exit(r);
    if (status != WF_OK) return complain_of(r->c, status);
    r->tested_step = r->n_done;
    char perplexity[TEXT_BYTES] = "";
    if (r->j.is_tokens)
        snprintf(perplexity, sizeof perplexity, ", perplexity %.2f", exp(r->test_loss));
    say(r->c, "epoch %-3lld step %-7lld test loss %.4f, accuracy %.2f %%%s\n", (long long)epoch + 1,
        (long long)r->n_done, r->test_loss, 100 * r->test_accuracy, perplexity);
    return log_test(&r->log, r->n_done, epoch, r->test_loss, r->test_accuracy);
}

/* The test that is due after the steps since `before`, unless it counts already; the best one is
 * saved. */
exit_status train_score(run *r, int64_t before) {
    const options *o = &r->c->o;
    int64_t every = o->test_every ? o->test_every : r->j.n_epoch;
    bool is_due = r->n_done && train_passes(before, r->n_done, every);
    if (!is_due || r->tests.last_step == r->n_done) return EXIT_DONE;
    exit_status bad = train_test(r, r->next.sample ? r->next.epoch : r->next.epoch - 1);
    if (bad || r->tested_step != r->n_done) return bad;
    if (r->trainer) wf_trainer_evaluated(r->trainer, r->test_loss);
    bool is_best = scores_add(&r->tests, r->n_done, r->test_loss);
    return is_best && o->keep_best ? train_save(r) : EXIT_DONE;
}

/* The launcher stops all ranks when one ends, so workers and servers wait here until rank 0 has
 * received its data from them. */
static exit_status wait_for_root(run *r) {
    if (!r->updates.workers || !r->c->job) return EXIT_DONE;
    return complain_of(r->c, wf_job_barrier(r->c->job));
}

/* All ranks stop here; the steps done so far are saved. */
exit_status train_interrupted(run *r) {
    exit_status why = interrupt_agreed(r->c), bad = r->n_done ? train_save(r) : EXIT_DONE;
    if (!bad) bad = wait_for_root(r);
    if (!bad) bad = train_settle(r);
    if (!bad) bad = train_keep(r);
    progress_clear(&r->bar);
    if (bad) return bad;
    if (!r->c->is_root) return why;
    history_report(r->c->history);
    if (r->saved_step < 0)
        return complain(why, "interrupted after step %lld; nothing has been saved",
                        (long long)r->n_done);
    char path[4096];
    return complain(
        why,
        "interrupted after step %lld; the last checkpoint is %s, of step %lld: --resume "
        "goes on from there",
        (long long)r->n_done, checkpoint_path(r->c, "state", path), (long long)r->saved_step);
}
