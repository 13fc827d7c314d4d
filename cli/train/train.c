/* weft train: the loop over steps, and the curve. */
#include "train/train.h"
#include "common/processor.h"
#include "draw/gnuplot.h"

#include <math.h>
#include <stdlib.h>

#define MOST_BAD     100 /* steps in a row that are not finite: the weights are to blame */
#define FIRST_DRAW_S 10
#define DRAW_AGAIN   1.5 /* times as long: a long run has no more pictures than it has use for */

/* ---- the curve ---- */

static void draw(run *r, bool is_last) {
    char title[200];
    const options *o = &r->c->o;
    if (!o->out || !r->c->is_root) return;
    snprintf(title, sizeof title, "%.40s on %.80s", o->model, o->data);
    /* The model is saved, all the same. */
    (void)plot_curve(r->c, r->log.lines.path, gnuplot_plain(title), is_last);
}

/* Draws the picture of the steps so far. */
static exit_status draw_at_times(run *r) {
    double seconds = now_seconds() - r->begun_s;
    if (seconds < r->draw_s) return EXIT_DONE;
    r->draw_s = DRAW_AGAIN * seconds;
    exit_status bad = log_flush(&r->log);
    if (!bad) draw(r, false);
    return bad;
}

/* ---- the loop ---- */

/* The result of the failed step is not saved. */
static exit_status not_finite(run *r) {
    char last[4200] = "nothing has been saved", why[600], path[4096];
    snprintf(why, sizeof why, "%s", wf_context_error(r->c->ctx));
    history_give_up(r->c->history);
    TRY(train_settle(r));
    if (r->saved_step >= 0)
        snprintf(last, sizeof last, "the last checkpoint is %s, of step %lld",
                 checkpoint_path(r->c, "state", path), (long long)r->saved_step);
    return complain(EXIT_FAILED, "%s; try a smaller --lr, --warmup or --clip-norm; %s", why, last);
}

static exit_status failed(run *r, wf_status status) {
    progress_clear(&r->bar);
    return status == WF_NOT_FINITE ? not_finite(r) : complain_of(r->c, status);
}

/* The state of the last checkpoint. */
static exit_status rewind_state(run *r) {
    char path[4096];
    TRY(train_settle(r));
    snprintf(path, sizeof path, "%.4000s/state.safetensors", r->c->o.out);
    return complain_of(r->c, wf_trainer_load_state(r->trainer, path));
}

/* The step counts, and leaves the state as it was before, or as it was at the last checkpoint. All
 * ranks come here after the same step. */
static exit_status leave_out(run *r) {
    char why[600], end[100] = "the step is left out";
    bool rewinds = r->c->o.on_nan == ON_NAN_REWIND;
    progress_clear(&r->bar);
    if (r->c->o.on_nan == ON_NAN_STOP) return not_finite(r);
    if (++r->n_bad > MOST_BAD) {
        complain(EXIT_DONE,
                 "%d steps in a row were not finite, so leaving out batches does not "
                 "help",
                 MOST_BAD);
        return not_finite(r);
    }
    snprintf(why, sizeof why, "%s", wf_context_error(r->c->ctx));
    TRY(rewinds ? rewind_state(r) : complain_of(r->c, wf_trainer_undo_step(r->trainer)));
    int64_t n = r->n_done + 1 - wf_trainer_n_steps(r->trainer);
    if (rewinds)
        snprintf(end, sizeof end, "going back to step %lld and leaving out %lld batches",
                 (long long)wf_trainer_n_steps(r->trainer), (long long)n);
    if (r->c->is_root) complain(EXIT_DONE, "%s; %s", why, end);
    r->record.n_skipped += r->n_left_out = n;
    return complain_of(r->c, wf_trainer_skip_steps(r->trainer, n));
}

/* Counts a step of a batch of that epoch. */
static exit_status note_step(run *r, const wf_step_result *result, int64_t epoch, int64_t n_samples,
                             double ms) {
    bool has_labels = r->j.about.targets == WF_TARGETS_LABELS || r->j.is_tokens;
    double items = job_items(&r->j, n_samples);
    history_step(train_history(r), ++r->n_done);
    if (r->c->is_root)
        snapshot_add_step(r->c->snapshot, r->n_done, result->loss, ms, items, r->n_left_out);
    if (!record_add(&r->record, result->loss, ms, items))
        return complain(EXIT_FAILED, "no memory left");
    TRY(log_step(&r->log, r->n_done, epoch, result, ms, has_labels, r->n_left_out));
    bool has_hits = has_labels && result->n_rows;
    progress_step(&r->bar, r->n_done, epoch, isfinite(result->loss) ? result->loss : r->bar.loss,
                  has_hits ? (double)result->n_hits / (double)result->n_rows : NAN, items);
    return EXIT_DONE;
}

/* Waiting for the batch belongs to the step. */
static exit_status step(run *r) {
    const wf_batch *batch;
    wf_step_result result = {.loss = NAN};
    double start = now_seconds();
    TRY(complain_of(r->c, wf_loader_next(r->loader, &batch)));
    wf_status status = job_step(&r->j, r->trainer, batch, &result);
    r->n_left_out = 0;
    if (status == WF_OK)
        r->n_bad = 0;
    else if (status != WF_NOT_FINITE)
        return failed(r, status);
    if (status != WF_OK) TRY(leave_out(r));
    r->next = batch->last_of_epoch ? (position){batch->epoch + 1, 0}
                                   : (position){batch->epoch, batch->first_sample + batch->n_all};
    return note_step(r, &result, batch->epoch, batch->n_all, (now_seconds() - start) * 1e3);
}

/* Workers' steps to the next test or checkpoint. */
static exit_status stretch(run *r) {
    int64_t n = updates_stretch(&r->j, r->n_done), n_ran = 0, batch = r->c->o.recipe.batch;
    wf_step_result *results = calloc((size_t)n, sizeof *results);
    double *ms = calloc((size_t)n, sizeof *ms);
    exit_status bad = EXIT_DONE;
    wf_status status = WF_OK;
    if (!results || !ms) bad = complain(EXIT_FAILED, "no memory left");
    if (!bad) status = updates_run(&r->updates, r->n_done, n, results, ms, &n_ran);
    if (status != WF_OK) bad = failed(r, status);
    for (int64_t k = 0; k < n_ran && !bad; k++) {
        int64_t n_before = r->n_done % r->j.n_epoch * batch, n_left = r->j.about.n_train - n_before;
        bad = note_step(r, &results[k], r->n_done / r->j.n_epoch, n_left < batch ? n_left : batch,
                        ms[k]);
    }
    if (!bad && n_ran) r->c->stop = (exit_status)results[n_ran - 1].stop_reason;
    r->next = (position){r->n_done / r->j.n_epoch, r->n_done % r->j.n_epoch * batch};
    free(results);
    free(ms);
    return bad;
}

/* Says once that other programs slow the threads down, after 2, 4, 8, ... steps. The CPU time of
 * ranks in other processes is not known here. */
static void look_for_others(run *r, const effort *begin) {
    int64_t n = r->n_done - r->bar.first_step;
    effort spent;
    if (r->c->job || r->is_crowded || n < 2 || n & (n - 1)) return;
    if (effort_since(r->c, begin, &spent) != WF_OK) return;
    r->is_crowded = effort_is_crowded(&spent, wf_trainer_n_threads(r->trainer));
    if (!r->is_crowded) return;
    progress_clear(&r->bar);
    say(r->c, "cores   other programs take %.0f %% of your cores: try --threads 1\n",
        100 * effort_of_others(&spent));
}

/* The steps begin, perhaps again. */
static void begin_steps(run *r) {
    int64_t n_before = r->c->history ? r->c->history->n_repeated : 0;
    double lost_s, all_s;
    r->c->has_begun = true;
    r->begun_s = now_seconds();
    history_begin(train_history(r), r->n_done);
    if (!train_history(r) || !restart_number()) return;
    history_seconds(r->c->history, &lost_s, &all_s);
    say(r->c,
        "restart %lld after step %lld of %lld%s, %.2f s after the failure; steps repeated: %lld; "
        "lost so far: %.1f s\n",
        (long long)restart_number(), (long long)r->n_done, (long long)r->j.n_steps,
        r->c->image ? " from memory" : "", now_seconds() - r->c->history->failed_s,
        (long long)(r->c->history->n_repeated - n_before), lost_s);
}

static exit_status loop(run *r) {
    const options *o = &r->c->o;
    exit_status bad = EXIT_DONE;
    const effort begin = effort_now();
    if (train_is_rescue(r->c)) return train_interrupted(r);
    begin_steps(r);
    r->draw_s = FIRST_DRAW_S;
    bad = train_verify(r);
    if (!bad && r->saved_step < 0 && o->on_nan == ON_NAN_REWIND) bad = train_save(r);
    if (!bad) bad = train_score(r, r->n_done - 1); /* which a run that was stopped may owe */
    while (!bad && r->n_done < r->j.n_steps && !train_has_lost_patience(r)) {
        int64_t before = r->n_done;
        if (interrupt_agreed(r->c)) return train_interrupted(r);
        bad = r->updates.workers ? stretch(r) : step(r);
        if (!bad) look_for_others(r, &begin);
        if (!bad && o->verify && train_passes(before, r->n_done, o->verify)) bad = train_verify(r);
        if (!bad) bad = train_score(r, before);
        bool saves = train_passes(before, r->n_done, o->save_every ? o->save_every : r->j.n_epoch);
        if (!bad && saves) bad = train_save(r);
        bool copies = r->c->snapshot && train_passes(before, r->n_done, o->snapshot);
        if (!bad && copies) bad = train_take_snapshot(r);
        if (!bad) bad = draw_at_times(r);
    }
    if (!bad) bad = train_save(r);
    if (!bad) bad = train_test(r, r->next.sample ? r->next.epoch : r->next.epoch - 1);
    if (!bad) bad = train_keep(r);
    return bad && bad == interrupt_agreed(r->c) ? train_interrupted(r) : bad;
}

/* Everything is done and saved, except interrupted work such as the picture. */
static exit_status interrupted_late(const run *r) {
    exit_status why = interrupt_status();
    if (!why || !r->c->is_root) return why;
    history_report(r->c->history);
    return complain(why, "interrupted after the last step, %lld%s", (long long)r->n_done,
                    r->c->o.out ? ", which is saved" : "");
}

/* The run begins anew at once, and a picture would delay it. */
static bool has_lost_rank(const cli *c) {
    return c->lost && *c->lost;
}

exit_status run_train(cli *c) {
    run r = {.c = c,
             .lock = -1,
             .saved_step = -1,
             .verified_step = -1,
             .kept_step = -1,
             .tested_step = -1,
             .tests = scores_none(),
             .test_loss = NAN,
             .test_accuracy = NAN};
    interrupt_watch();
    bool done;
    exit_status bad = processes_begin(c, &done);
    if (bad || done) return bad;
    bad = train_prepare(&r);
    if (!bad) {
        progress_begin(&r.bar, &r.j, r.n_done);
        bad = loop(&r);
        if (!bad) bad = train_settle(&r);
        progress_clear(&r.bar);
        if (!log_close(&r.log) && !r.cannot_save && !has_lost_rank(c)) draw(&r, true);
    }
    if (!bad) bad = train_finish(&r);
    if (!bad) bad = interrupted_late(&r);
    log_close(&r.log);
    wf_loader_destroy(r.loader);
    if (!r.updates.workers) wf_trainer_destroy(r.trainer);
    updates_close(&r.updates);
    job_close(&r.j);
    record_release(&r.record);
    checkpoint_unlock(r.lock);
    return train_is_rescue(c) && bad == interrupt_status() ? EXIT_DONE : bad;
}
