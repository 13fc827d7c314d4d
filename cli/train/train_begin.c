/* The set-up of a run: options, folder, trainer, checkpoint, data, log. */
#include "common/text.h"
#include "draw/timeline_report.h"
#include "job/agree.h"
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

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
    if (o->snapshot && updates_need_workers(o))
        return complain(EXIT_USAGE,
                        "--snapshot has no effect here: workers of --update async and local have "
                        "parameters of their own, which only a checkpoint holds");
    if ((o->shard_size || o->save_async) && !o->out)
        return complain(EXIT_USAGE, "%s needs --out, where checkpoints go",
                        o->shard_size ? "--shard-size" : "--save-async");
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

/* All ranks save the state that they have read and stop. */
static void begin_rescue(cli *c) {
    interrupt_assume(c->history->stop_signal);
    c->stop = interrupt_status();
}

/* From here on the folder belongs to this run, and contains the checkpoint that the run continues
 * from, or nothing. */
static exit_status own_folder(run *r) {
    const options *o = &r->c->o;
    if (!o->out || !r->c->is_root) return EXIT_DONE;
    exit_status bad = r->lock < 0 ? checkpoint_lock(r->c, &r->lock) : EXIT_DONE;
    return bad || o->resume ? bad : checkpoint_refuse_old(r->c);
}

static exit_status make_folder(run *r) {
    if (!r->c->o.out || !r->c->is_root) return EXIT_DONE;
    TRY(checkpoint_folder(r->c));
    return own_folder(r);
}

/* Between the parts of the set-up, each of which may take long. A rank that has been asked leaves;
 * the others find that out, if they have not been asked as well. */
static exit_status interrupted_early(const run *r) {
    exit_status why = train_is_rescue(r->c) ? EXIT_DONE : interrupt_status();
    if (why && r->c->job) wf_job_request_stop(r->c->job, (int)why);
    if (!why || !r->c->is_root) return why;
    if (r->c->history && restart_number()) return why; /* the launcher knows the last checkpoint */
    history_report(r->c->history);
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
    if (!updates_need_workers(&r->c->o)) return job_trainer(&r->j, &r->trainer);
    wf_status status = updates_open(&r->j, &r->bar, &r->updates);
    if (status == WF_OK) r->trainer = wf_workers_trainer(r->updates.workers);
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

/* Refuses options that have no effect with the data or the kind of update. */
static exit_status check_use(const run *r) {
    const options *o = &r->c->o;
    bool is_plateau = o->recipe.lr_schedule == WF_LR_PLATEAU;
    if (!r->j.about.n_test && (o->test_every || o->patience || o->keep_best || is_plateau))
        return complain(EXIT_USAGE, "%s has no effect here: the data has no test split",
                        o->test_every ? "--test-every"
                        : o->patience ? "--patience"
                        : is_plateau  ? "--lr-schedule plateau"
                                      : "--keep-best");
    if ((o->on_nan != ON_NAN_STOP || o->verify) && updates_need_workers(o))
        return complain(EXIT_USAGE,
                        o->verify ? "--verify has no effect here: workers of --update async and "
                                    "local have parameters of their own"
                                  : "--on-nan has no effect here: workers of --update async and "
                                    "local stop at a step that is not finite");
    return EXIT_DONE;
}

static exit_status load_checkpoint(run *r) {
    const options *o = &r->c->o;
    if (r->trainer) TRY(checkpoint_load(&r->j, r->trainer, &r->from));
    if (r->updates.workers) {
        TRY(complain_of(r->c, updates_load(&r->updates, r->from.n_steps)));
        updates_warn(&r->updates, r->from.n_steps);
    }
    r->next = r->from.next;
    r->n_done = r->saved_step = r->from.n_steps;
    if (r->c->image) r->saved_step = r->c->saved_step;
    r->tests = r->from.tests;
    if (!restart_number())
        say(r->c, "resume  step %lld of %lld\n", (long long)r->n_done, (long long)r->j.n_steps);
    if (o->recipe.lr_schedule == WF_LR_COSINE && r->j.n_steps > o->recipe.schedule_steps)
        say(r->c, "lr      0 from step %lld on, where the run's cosine ends\n",
            (long long)o->recipe.schedule_steps);
    return EXIT_DONE;
}

exit_status train_prepare(run *r) {
    const options *o = &r->c->o;
    TRY(check(r->c));
    bool is_rescue = train_is_rescue(r->c);
    if (o->grace > 0) TRY(interrupt_within(is_rescue ? r->c->history->grace_s : o->grace));
    if (is_rescue) begin_rescue(r->c);
    TRY(checkpoint_resume_after_restart(r->c));
    bool is_again = o->resume && restart_number();
    exit_status bad = own_folder(r);
    TRY(o->resume ? checkpoint_read(r->c, bad, &r->from) : bad);
    TRY(updates_check(r->c));
    TRY(job_open(r->c, -1, &r->j));
    roster_keep_recipe(r->c);
    TRY(check_use(r));
    TRY(make_folder(r));
    TRY(report_check(r->c));
    TRY(timeline_check(r->c));
    TRY(updates_check_record(r->c));
    TRY(interrupted_early(r));
    if (!is_again) job_describe(&r->j);
    wf_status status = create_trainer(r);
    if (status != WF_OK) return job_complain_of_plan(&r->j, status);
    TRY(interrupted_early(r));
    if (r->c->snapshot) TRY(snapshot_open(r->c, wf_trainer_program(r->trainer)));
    if (r->trainer) status = job_prepare_eval(&r->j, r->trainer, WF_DATA_TEST);
    if (status != WF_OK) return job_complain_of_eval(&r->j, status, JOB_EVAL_ADVICE);
    if (o->init && !o->resume && r->trainer) TRY(complain_of(r->c, load_init(r)));
    if (o->resume) TRY(load_checkpoint(r));
    if (!r->updates.workers)
        status = job_loader(&r->j, WF_DATA_TRAIN, r->next.epoch, r->next.sample, &r->loader);
    if (status != WF_OK) return complain_of(r->c, status);
    TRY(interrupted_early(r));
    TRY(agree_on_place(&r->j, r->n_done, r->next.epoch, r->next.sample));
    if (o->out && r->c->is_root) {
        TRY(complain_of(r->c, job_hash_data(&r->j)));
        TRY(check_run(r));
        TRY(checkpoint_describe(&r->j));
        TRY(checkpoint_describe_model(&r->j));
    }
    TRY(log_open(&r->log, r->c, r->c->is_root ? o->out : NULL, r->n_done));
    if (is_again && r->c->history && r->c->history->first_step >= 0) TRY(read_record(r));
    if (!r->updates.workers && !is_again) report_say_memory(r->c, r->trainer, false);
    return EXIT_DONE;
}
