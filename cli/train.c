/* weft train: steps, tests, checkpoints, log, picture and report. */
#include "agree.h"
#include "checkpoint.h"
#include "crew.h"
#include "draw/gnuplot.h"
#include "draw/timeline_report.h"
#include "log.h"
#include "processor.h"
#include "progress.h"
#include "report.h"
#include "snapshot.h"
#include "text.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    cli *c;
    job j;
    wf_trainer *trainer; /* NULL: another rank has the workers' state */
    wf_loader *loader;   /* NULL: workers read their data themselves */
    crew crew;           /* of --update async and local; otherwise empty */
    record record;
    run_log log;
    progress bar;
    resumed from;          /* contents of the checkpoint */
    int lock;              /* on --out */
    position next;         /* the batch after the last step */
    int64_t n_done;        /* steps, those before a resume included */
    int64_t saved_step;    /* of the last checkpoint; -1: there is none */
    int64_t verified_step; /* of the last comparison of replicas; -1 */
    int64_t kept_step;     /* of the last checkpoint that was kept; -1 */
    int64_t tested_step;   /* of the last test of this process; -1 */
    bool cannot_save;      /* to --out, which has been said */
    int64_t n_bad;         /* steps in a row that were not finite */
    int64_t n_left_out;    /* steps that the latest one leaves out */
    bool is_crowded;       /* by other programs, which has been said */
    double test_loss, test_accuracy;
    double begun_s, draw_s; /* the loop; and after how long the curve is drawn again */
    scores tests;
} run;

#define MOST_BAD     100 /* steps in a row that are not finite: the weights are to blame */
#define FIRST_DRAW_S 10
#define DRAW_AGAIN   1.5 /* times as long: a long run has no more pictures than it has use for */

/* Only rank 0 writes it. */
static history *history_of(const run *r) {
    return r->c->is_root ? r->c->history : NULL;
}

static exit_status check(const cli *c) {
    const options *o = &c->o;
    if (option_is_given(o, OPT_save_every) && (!o->out || o->save_every == 0))
        return complain(EXIT_USAGE, "--save-every needs --out and at least 1 step");
    if (option_is_given(o, OPT_grace) && (!o->out || !(o->grace > 0 && o->grace < 1e9)))
        return complain(EXIT_USAGE, "--grace needs --out, where the checkpoint goes, and more than "
                                    "0 seconds");
    if (o->on_nan == ON_NAN_REWIND && !o->out)
        return complain(EXIT_USAGE, "--on-nan rewind needs --out, where checkpoints go");
    if (o->snapshot && !c->snapshot)
        return complain(EXIT_USAGE,
                        "--snapshot needs --restarts N: a snapshot serves a rank that the launcher "
                        "starts again, in a run with --ranks N; ranks of mpirun continue from "
                        "the checkpoint in --out");
    if (o->snapshot && crew_is_needed(o))
        return complain(EXIT_USAGE,
                        "--snapshot has no effect here: workers of --update async and local have "
                        "parameters of their own, which only a checkpoint holds");
    if ((o->shard_bytes || o->save_async) && !o->out)
        return complain(EXIT_USAGE, "%s needs --out, where checkpoints go",
                        o->shard_bytes ? "--shard-size" : "--save-async");
    const struct {
        option_id id;
        int64_t value;
    } counts[] = {{OPT_test_every, o->test_every},
                  {OPT_patience, o->patience},
                  {OPT_keep, o->keep},
                  {OPT_snapshot, o->snapshot},
                  {OPT_verify, o->verify}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char name[TEXT_BYTES];
        if (option_is_given(o, counts[i].id) && !counts[i].value)
            return complain(EXIT_USAGE, "%s must be at least 1", option_name(name, counts[i].id));
    }
    if ((o->keep || o->keep_best) && !o->out)
        return complain(EXIT_USAGE, "%s needs --out, where checkpoints go",
                        o->keep ? "--keep" : "--keep-best");
    if (o->init && o->resume)
        return complain(EXIT_USAGE,
                        "--resume takes the weights from the checkpoint, not from --init");
    if (o->strict && !o->resume)
        return complain(EXIT_USAGE, "--strict has no effect here: there is no --resume");
    if (o->out && o->data && wf_text_valid(o->data, strlen(o->data)) != strlen(o->data))
        return complain(EXIT_USAGE,
                        "--data %s: the name is not UTF-8, and run.json in --out could not say it; "
                        "rename it",
                        o->data);
    if (o->config && o->resume)
        return complain(EXIT_USAGE,
                        "--resume takes the recipe from the checkpoint, not from --config");
    return EXIT_DONE;
}

/* ---- saving and testing ---- */

/* Why the folder cannot be written to is said once: the curve is not drawn any more. */
static exit_status cannot_save(run *r, wf_status status) {
    progress_clear(&r->bar);
    r->cannot_save = true;
    return complain_of(r->c, status);
}

/* The workers' files of other checkpoints go after their state has been replaced, also those that a
 * killed run left. `step`: of a state that --save-async is still replacing; -1: there is none. */
static void forget_others(const run *r, int64_t step) {
    if (r->crew.workers && r->saved_step >= 0) crew_forget(&r->crew, r->saved_step, step);
}

/* What is written in the background is in its place afterwards. */
static exit_status settle(run *r) {
    wf_status status = r->trainer ? wf_trainer_save_wait(r->trainer) : WF_OK;
    if (status != WF_OK) return cannot_save(r, status);
    forget_others(r, -1);
    return EXIT_DONE;
}

/* The last checkpoint, once it is in its place. */
static exit_status keep(run *r) {
    const options *o = &r->c->o;
    bool is_best = o->keep_best && r->tests.best_step == r->saved_step;
    if (r->kept_step == r->saved_step || (!o->keep && !is_best)) return EXIT_DONE;
    exit_status bad = settle(r);
    if (!bad && r->c->is_root && o->keep) bad = checkpoint_keep_last(r->c, r->saved_step);
    if (!bad && r->c->is_root && is_best) bad = checkpoint_keep_best(r->c);
    r->kept_step = r->saved_step;
    return bad;
}

/* Compares the replicas, so that a differing one is not saved: a restart continues from
 * a good one. */
static exit_status verify(run *r) {
    int64_t n_bytes;
    if (!r->c->o.verify || r->verified_step == r->n_done) return EXIT_DONE;
    wf_status status = wf_trainer_verify(r->trainer, &n_bytes);
    r->verified_step = r->n_done;
    if (status != WF_OK) progress_clear(&r->bar);
    if (status == WF_CORRUPT) {
        snapshot_forget(r->c->snapshot); /* they were not compared */
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

static exit_status save(run *r) {
    if (!r->c->o.out || r->saved_step == r->n_done) return EXIT_DONE;
    exit_status bad = verify(r);
    if (!bad) bad = log_flush(&r->log);
    if (!bad) bad = keep(r); /* what an earlier save has written meanwhile */
    if (bad) return bad;
    history_mark(history_of(r), r->n_done);
    wf_status status = WF_OK;
    if (r->crew.workers) status = crew_save(&r->crew, r->n_done);
    if (status == WF_OK && r->trainer)
        status = checkpoint_save(&r->j, r->trainer, r->next, &r->tests);
    history_mark(history_of(r), r->n_done);
    if (status != WF_OK) return cannot_save(r, status);
    int64_t before = r->c->o.save_async ? r->saved_step : -1;
    r->saved_step = r->n_done;
    forget_others(r, before);
    return r->c->o.save_async ? EXIT_DONE : keep(r);
}

/* Copies the state to memory, for a restart. What the log counts as done is in it then. */
static exit_status take_snapshot(run *r) {
    cli *c = r->c;
    exit_status bad = log_flush(&r->log);
    wf_status status = c->is_root && !bad ? job_hash_data(&r->j) : WF_OK;
    if (bad || status != WF_OK) return bad ? bad : complain_of(c, status);
    char *notes = c->is_root ? checkpoint_record(&r->j, r->next, &r->tests, r->n_done) : NULL;
    if (c->is_root && !notes) return complain(EXIT_FAILED, "no memory left");
    history_mark_snapshot(history_of(r), r->n_done);
    status = snapshot_write(c->snapshot, r->trainer, notes, r->n_done);
    free(notes);
    if (status == WF_OK) history_mark_snapshot(history_of(r), r->n_done);
    return complain_of(c, status);
}

/* Evaluates the weights' average, if there is one: the trainer goes on with the weights. */
static wf_status eval_here(run *r) {
    bool averages = r->c->o.recipe.ema > 0;
    wf_status status = averages ? wf_trainer_use_average(r->trainer, 1) : WF_OK;
    if (status != WF_OK) return status;
    status = job_eval(&r->j, r->trainer, WF_DATA_TEST, &r->test_loss, &r->test_accuracy);
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
    if (!r->crew.workers || !r->c->job) return eval_here(r);
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
static exit_status test(run *r, int64_t epoch) {
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

/* Returns whether a multiple of `every` is above `before` and at most `now`. */
static bool passes(int64_t before, int64_t now, int64_t every) {
    return now / every > before / every;
}

/* The test that is due after the steps since `before`, unless it counts already; the best one is
 * saved. */
static exit_status score(run *r, int64_t before) {
    const options *o = &r->c->o;
    int64_t every = o->test_every ? o->test_every : r->j.n_epoch;
    bool is_due = r->n_done && passes(before, r->n_done, every);
    if (!is_due || r->tests.last_step == r->n_done) return EXIT_DONE;
    exit_status bad = test(r, r->next.sample ? r->next.epoch : r->next.epoch - 1);
    if (bad || r->tested_step != r->n_done) return bad;
    if (r->trainer) wf_trainer_evaluated(r->trainer, r->test_loss);
    bool is_best = scores_add(&r->tests, r->n_done, r->test_loss);
    return is_best && o->keep_best ? save(r) : EXIT_DONE;
}

/* The launcher stops all ranks when one ends, so workers and servers wait here until rank 0 has
 * what it needs of them. */
static exit_status wait_for_root(run *r) {
    if (!r->crew.workers || !r->c->job) return EXIT_DONE;
    return complain_of(r->c, wf_job_barrier(r->c->job));
}

/* All ranks stop here; what has been done is saved. */
static exit_status interrupted(run *r) {
    exit_status why = interrupt_agreed(r->c), bad = r->n_done ? save(r) : EXIT_DONE;
    if (!bad) bad = wait_for_root(r);
    if (!bad) bad = settle(r);
    if (!bad) bad = keep(r);
    progress_clear(&r->bar);
    if (bad) return bad;
    if (!r->c->is_root) return why;
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

/* ---- the curve ---- */

static void draw(run *r, bool is_last) {
    char title[200];
    const options *o = &r->c->o;
    if (!o->out || !r->c->is_root) return;
    snprintf(title, sizeof title, "%.40s on %.80s", o->model, o->data);
    /* The model is saved, all the same. */
    (void)plot_curve(r->c, r->log.lines.path, gnuplot_plain(title), is_last);
}

/* Of the steps so far. */
static exit_status draw_at_times(run *r) {
    double seconds = now_seconds() - r->begun_s;
    if (seconds < r->draw_s) return EXIT_DONE;
    r->draw_s = DRAW_AGAIN * seconds;
    exit_status bad = log_flush(&r->log);
    if (!bad) draw(r, false);
    return bad;
}

/* ---- the loop ---- */

/* What the step has left is not saved. */
static exit_status not_finite(run *r) {
    char last[4200] = "nothing has been saved", why[600], path[4096];
    snprintf(why, sizeof why, "%s", wf_context_error(r->c->ctx));
    history_give_up(r->c->history);
    exit_status bad = settle(r);
    if (bad) return bad;
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
    exit_status bad = settle(r);
    if (bad) return bad;
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
    exit_status bad =
        rewinds ? rewind_state(r) : complain_of(r->c, wf_trainer_undo_step(r->trainer));
    if (bad) return bad;
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
    history_step(history_of(r), ++r->n_done);
    if (r->c->is_root)
        snapshot_add_step(r->c->snapshot, r->n_done, result->loss, ms, items, r->n_left_out);
    if (!record_add(&r->record, result->loss, ms, items))
        return complain(EXIT_FAILED, "no memory left");
    exit_status bad = log_step(&r->log, r->n_done, epoch, result, ms, has_labels, r->n_left_out);
    if (bad) return bad;
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
    wf_status status = wf_loader_next(r->loader, &batch);
    if (status != WF_OK) return complain_of(r->c, status);
    status = job_step(&r->j, r->trainer, batch, &result);
    r->n_left_out = 0;
    if (status == WF_OK)
        r->n_bad = 0;
    else if (status != WF_NOT_FINITE)
        return failed(r, status);
    exit_status bad = status == WF_OK ? EXIT_DONE : leave_out(r);
    if (bad) return bad;
    r->next = batch->last_of_epoch ? (position){batch->epoch + 1, 0}
                                   : (position){batch->epoch, batch->first_sample + batch->n_all};
    return note_step(r, &result, batch->epoch, batch->n_all, (now_seconds() - start) * 1e3);
}

/* Workers' steps to the next test or checkpoint. */
static exit_status stretch(run *r) {
    int64_t n = crew_stretch(&r->j, r->n_done), n_ran = 0, batch = r->c->o.recipe.batch;
    wf_step_result *results = calloc((size_t)n, sizeof *results);
    double *ms = calloc((size_t)n, sizeof *ms);
    exit_status bad = EXIT_DONE;
    wf_status status = WF_OK;
    if (!results || !ms) bad = complain(EXIT_FAILED, "no memory left");
    if (!bad) status = crew_run(&r->crew, r->n_done, n, results, ms, &n_ran);
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

/* Whether the tests say that it is not worth going on. */
static bool has_lost_patience(const run *r) {
    return r->c->o.patience && r->tests.n_since >= r->c->o.patience;
}

/* The steps begin, perhaps again. */
static void begin_steps(run *r) {
    int64_t n_before = r->c->history ? r->c->history->n_repeated : 0;
    double lost_s, all_s;
    r->c->has_begun = true;
    r->begun_s = now_seconds();
    history_begin(history_of(r), r->n_done);
    if (!history_of(r) || !restart_number()) return;
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
    begin_steps(r);
    r->draw_s = FIRST_DRAW_S;
    bad = verify(r);
    if (!bad && r->saved_step < 0 && o->on_nan == ON_NAN_REWIND) bad = save(r);
    if (!bad) bad = score(r, r->n_done - 1); /* which a run that was stopped may owe */
    while (!bad && r->n_done < r->j.n_steps && !has_lost_patience(r)) {
        int64_t before = r->n_done;
        if (interrupt_agreed(r->c)) return interrupted(r);
        bad = r->crew.workers ? stretch(r) : step(r);
        if (!bad) look_for_others(r, &begin);
        if (!bad && o->verify && passes(before, r->n_done, o->verify)) bad = verify(r);
        if (!bad) bad = score(r, before);
        bool saves = passes(before, r->n_done, o->save_every ? o->save_every : r->j.n_epoch);
        if (!bad && saves) bad = save(r);
        bool copies = r->c->snapshot && passes(before, r->n_done, o->snapshot);
        if (!bad && copies) bad = take_snapshot(r);
        if (!bad) bad = draw_at_times(r);
    }
    if (!bad) bad = save(r);
    if (!bad) bad = test(r, r->next.sample ? r->next.epoch : r->next.epoch - 1);
    if (!bad) bad = keep(r);
    return bad && bad == interrupt_agreed(r->c) ? interrupted(r) : bad;
}

/* ---- before and after ---- */

/* From here on the folder is this run's, and what is in it is what a run goes on from, or nothing.
 */
static exit_status own_folder(run *r) {
    const options *o = &r->c->o;
    if (!o->out || !r->c->is_root) return EXIT_DONE;
    exit_status bad = r->lock < 0 ? checkpoint_lock(r->c, &r->lock) : EXIT_DONE;
    return bad || o->resume ? bad : checkpoint_refuse_old(r->c);
}

static exit_status make_folder(run *r) {
    if (!r->c->o.out || !r->c->is_root) return EXIT_DONE;
    exit_status bad = checkpoint_folder(r->c);
    return bad ? bad : own_folder(r);
}

/* Between the parts of the set-up, each of which may take long. A rank that has been asked leaves;
 * the others find that out, if they have not been asked as well. */
static exit_status interrupted_early(const run *r) {
    exit_status why = interrupt_status();
    if (!why || !r->c->is_root) return why;
    return complain(why, "interrupted before the first step; nothing has been lost");
}

static wf_status load_init(run *r) {
    const options *o = &r->c->o;
    char *skipped = NULL;
    wf_status status =
        wf_trainer_load_weights_but(r->trainer, o->init, o->init_skip.text, &skipped);
    if (status == WF_OK && *skipped) say(r->c, "init    %s begin anew\n", skipped);
    if (skipped) wf_text_free(r->c->ctx, skipped);
    return status;
}

static wf_status create_trainer(run *r) {
    if (!crew_is_needed(&r->c->o)) return job_trainer(&r->j, &r->trainer);
    wf_status status = crew_open(&r->j, &r->bar, &r->crew);
    if (status == WF_OK) r->trainer = wf_workers_trainer(r->crew.workers);
    return status == WF_OK && r->trainer ? job_describe_trainer(&r->j, r->trainer) : status;
}

/* The steps of earlier attempts. */
static exit_status read_record(run *r) {
    int64_t first = r->c->history->first_step;
    if (!r->c->snapshot) return log_read(&r->log, &r->j, first, r->n_done, &r->record);
    if (!r->c->is_root || snapshot_read_steps(r->c->snapshot, first, r->n_done, &r->record))
        return EXIT_DONE;
    return complain(EXIT_FAILED, "no memory left");
}

/* A restart must not continue from the checkpoint of another run, which may have taken the folder
 * between two attempts. */
static exit_status check_run(const run *r) {
    const cli *c = r->c;
    char *recipe = checkpoint_recipe(&c->o);
    bool is_same = recipe && history_is_same_run(c->history, recipe, r->j.data_hash);
    free(recipe);
    if (is_same) return EXIT_DONE;
    return complain(EXIT_USAGE,
                    "the checkpoint in %s is of another run: it has another recipe or other data "
                    "than this one began with; give each run a folder of its own",
                    c->o.out);
}

static exit_status prepare(run *r) {
    const options *o = &r->c->o;
    exit_status bad = check(r->c);
    if (bad) return bad;
    bad = o->grace > 0 ? interrupt_within(o->grace) : EXIT_DONE;
    if (!bad) bad = checkpoint_resume_after_restart(r->c);
    if (bad) return bad;
    bool is_again = o->resume && restart_number();
    bad = own_folder(r);
    if (o->resume) bad = checkpoint_read(r->c, bad, &r->from);
    if (!bad) bad = crew_check(r->c);
    if (!bad) bad = job_open(r->c, -1, &r->j);
    if (!bad) roster_keep_recipe(r->c);
    bool is_plateau = o->recipe.lr_schedule == WF_LR_PLATEAU;
    if (!bad && !r->j.about.n_test && (o->test_every || o->patience || o->keep_best || is_plateau))
        bad = complain(EXIT_USAGE, "%s has no effect here: the data has no test split",
                       o->test_every ? "--test-every"
                       : o->patience ? "--patience"
                       : is_plateau  ? "--lr-schedule plateau"
                                     : "--keep-best");
    if (!bad && (o->on_nan != ON_NAN_STOP || o->verify) && crew_is_needed(o))
        bad = complain(EXIT_USAGE,
                       o->verify ? "--verify has no effect here: workers of --update async and "
                                   "local have parameters of their own"
                                 : "--on-nan has no effect here: workers of --update async and "
                                   "local stop at a step that is not finite");
    if (!bad) bad = make_folder(r);
    if (!bad) bad = report_check(r->c);
    if (!bad) bad = timeline_check(r->c);
    if (!bad) bad = crew_check_record(r->c);
    if (!bad) bad = interrupted_early(r);
    if (bad) return bad;
    if (!is_again) job_describe(&r->j);
    wf_status status = create_trainer(r);
    if (status != WF_OK) return job_complain_of_plan(&r->j, status);
    bad = interrupted_early(r);
    if (!bad && r->c->snapshot) bad = snapshot_open(r->c, wf_trainer_program(r->trainer));
    if (bad) return bad;
    if (r->trainer) status = job_prepare_eval(&r->j, r->trainer, WF_DATA_TEST);
    if (status != WF_OK) return job_complain_of_eval(&r->j, status, JOB_EVAL_ADVICE);
    if (o->init && !o->resume && r->trainer) status = load_init(r);
    if (status != WF_OK) return complain_of(r->c, status);
    if (o->resume) {
        if (r->trainer) bad = checkpoint_load(&r->j, r->trainer, &r->from);
        if (!bad && r->crew.workers) bad = complain_of(r->c, crew_load(&r->crew, r->from.n_steps));
        if (bad) return bad;
        if (r->crew.workers) crew_warn(&r->crew, r->from.n_steps);
        r->next = r->from.next;
        r->n_done = r->saved_step = r->from.n_steps;
        if (r->c->image) r->saved_step = r->c->saved_step;
        r->tests = r->from.tests;
        if (!is_again)
            say(r->c, "resume  step %lld of %lld\n", (long long)r->n_done, (long long)r->j.n_steps);
        if (o->recipe.lr_schedule == WF_LR_COSINE && r->j.n_steps > o->recipe.schedule_steps)
            say(r->c, "lr      0 from step %lld on, where the run's cosine ends\n",
                (long long)o->recipe.schedule_steps);
    }
    if (!r->crew.workers)
        status = job_loader(&r->j, WF_DATA_TRAIN, r->next.epoch, r->next.sample, &r->loader);
    if (status != WF_OK) return complain_of(r->c, status);
    bad = interrupted_early(r);
    if (bad) return bad;
    bad = agree_on_place(&r->j, r->n_done, r->next.epoch, r->next.sample);
    if (bad) return bad;
    if (o->out && r->c->is_root) {
        status = job_hash_data(&r->j);
        bad = status == WF_OK ? check_run(r) : complain_of(r->c, status);
        if (!bad) bad = checkpoint_describe(&r->j);
        if (!bad) bad = checkpoint_describe_model(&r->j);
        if (bad) return bad;
    }
    bad = log_open(&r->log, r->c, r->c->is_root ? o->out : NULL, r->n_done);
    if (!bad && is_again && r->c->history && r->c->history->first_step >= 0) bad = read_record(r);
    if (bad) return bad;
    if (!r->crew.workers && !is_again) report_say_memory(r->c, r->trainer, false);
    return EXIT_DONE;
}

/* How often the run was started again, and what that has cost. */
static void report_restarts(run *r, json_t *report) {
    const history *h = r->c->history;
    double lost_s, all_s;
    history_seconds(h, &lost_s, &all_s);
    double effective = h && all_s > 0 ? 1 - lost_s / all_s : h || !restart_number() ? 1 : NAN;
    json_object_set_new(report, "restarts", json_integer(restart_number()));
    json_object_set_new(report, "effective", json_number(effective));
    json_object_set_new(report, "skipped_steps", json_integer(r->record.n_skipped));
    json_object_set_new(report, "repeated_steps", json_integer(h ? h->n_repeated : 0));
    roster_report(r->c, report);
    if (!h || !restart_number()) return;
    say(r->c, "lost    %.1f of %.1f s in %lld restarts, which repeated %lld steps\n", lost_s, all_s,
        (long long)restart_number(), (long long)h->n_repeated);
}

static exit_status finish(run *r) {
    const options *o = &r->c->o;
    char median[TEXT_BYTES];
    json_t *report = NULL;
    exit_status traced = EXIT_DONE;
    wf_status status =
        r->trainer ? report_create(&r->j, r->trainer, &r->record, 0, &report) : WF_OK;
    if (status == WF_OK && r->crew.workers) status = crew_report(&r->crew, report);
    if (status == WF_OK && r->crew.workers && o->trace)
        traced = timeline_trace_workers(r->c, r->j.plan, r->crew.workers, report);
    if (status != WF_OK || !report) return status == WF_OK ? traced : complain_of(r->c, status);
    report_restarts(r, report);
    json_object_set_new(report, "test_loss", json_number(r->test_loss));
    json_object_set_new(report, "test_accuracy", json_number(r->test_accuracy));
    if (r->j.is_tokens)
        json_object_set_new(report, "test_perplexity", json_number(exp(r->test_loss)));
    json_object_set_new(report, "tests", scores_json(&r->tests));
    json_object_set_new(report, "stopped_early",
                        json_boolean(r->n_done < r->j.n_steps && has_lost_patience(r)));
    if (o->save_async)
        json_object_set_new(
            report, "save_bytes",
            json_integer((json_int_t)wf_trainer_memory_of(r->trainer, 0).save_bytes));
    if (o->snapshot)
        json_object_set_new(
            report, "snapshot_bytes",
            json_integer((json_int_t)snapshot_bytes(wf_trainer_program(r->trainer))));
    if (o->profile) report_profile(r->c, r->trainer, report);
    if (o->trace && !r->crew.workers) traced = timeline_trace(r->c, r->j.plan, r->trainer, report);
    double rate = json_number_value(
        json_object_get(report, r->j.is_tokens ? "tokens_per_second" : "images_per_second"));
    if (r->n_done < r->j.n_steps)
        say(r->c, "stopped no test since step %lld had a lower loss than its %.4f\n",
            (long long)r->tests.best_step, r->tests.best_loss);
    if (r->record.loss.n)
        say(r->c, "done    step %lld, loss %.4f, %.1f %s/s, median step %s\n", (long long)r->n_done,
            r->record.loss.at[r->record.loss.n - 1], rate, r->j.is_tokens ? "tokens" : "images",
            text_of_us(median, samples_median(&r->record.ms, 0) * 1e3));
    if (r->crew.workers)
        crew_say(&r->crew);
    else
        report_say_memory(r->c, r->trainer, true);
    char path[4096];
    if (o->out)
        say(r->c, "saved   %s\n",
            checkpoint_path(r->c, o->recipe.ema > 0 ? "model_ema" : "model", path));
    exit_status written = EXIT_DONE;
    if (o->out && r->c->is_root) {
        snprintf(path, sizeof path, "%.4000s/report.json", o->out);
        written = report_put(r->c, report, "the report", path);
    }
    exit_status told = report_write(r->c, report);
    return traced ? traced : written ? written : told;
}

/* Everything is done and saved; but for what was interrupted, such as the picture. */
static exit_status interrupted_late(const run *r) {
    exit_status why = interrupt_status();
    if (!why || !r->c->is_root) return why;
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
    bad = prepare(&r);
    if (!bad) {
        progress_begin(&r.bar, &r.j, r.n_done);
        bad = loop(&r);
        if (!bad) bad = settle(&r);
        progress_clear(&r.bar);
        if (!log_close(&r.log) && !r.cannot_save && !has_lost_rank(c)) draw(&r, true);
    }
    if (!bad) bad = finish(&r);
    if (!bad) bad = interrupted_late(&r);
    log_close(&r.log);
    wf_loader_destroy(r.loader);
    if (!r.crew.workers) wf_trainer_destroy(r.trainer);
    crew_close(&r.crew);
    job_close(&r.j);
    record_release(&r.record);
    checkpoint_unlock(r.lock);
    return bad;
}
