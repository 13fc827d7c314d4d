/* The report of a run. */
#include "common/text.h"
#include "draw/timeline_report.h"
#include "train/train.h"

#include <math.h>

/* The number of restarts of the run, and their cost. */
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

exit_status train_finish(run *r) {
    const options *o = &r->c->o;
    char median[TEXT_BYTES];
    json_t *report = NULL;
    exit_status traced = EXIT_DONE;
    wf_status status =
        r->trainer ? report_create(&r->j, r->trainer, &r->record, 0, &report) : WF_OK;
    if (status == WF_OK && r->updates.workers) status = updates_report(&r->updates, report);
    if (status == WF_OK && r->updates.workers && o->trace)
        traced = timeline_trace_workers(r->c, r->j.plan, r->updates.workers, report);
    if (status != WF_OK || !report) return status == WF_OK ? traced : complain_of(r->c, status);
    report_restarts(r, report);
    json_object_set_new(report, "test_loss", json_number(r->test_loss));
    json_object_set_new(report, "test_accuracy", json_number(r->test_accuracy));
    if (r->j.is_tokens)
        json_object_set_new(report, "test_perplexity", json_number(exp(r->test_loss)));
    json_object_set_new(report, "tests", scores_json(&r->tests));
    json_object_set_new(report, "stopped_early",
                        json_boolean(r->n_done < r->j.n_steps && train_has_lost_patience(r)));
    if (o->save_async)
        json_object_set_new(
            report, "save_bytes",
            json_integer((json_int_t)wf_trainer_memory_of(r->trainer, 0).save_bytes));
    if (o->snapshot)
        json_object_set_new(
            report, "snapshot_bytes",
            json_integer((json_int_t)snapshot_bytes(wf_trainer_program(r->trainer))));
    if (o->profile) report_profile(r->c, r->trainer, report);
    if (o->trace && !r->updates.workers)
        traced = timeline_trace(r->c, r->j.plan, r->trainer, report);
    double rate = json_number_value(
        json_object_get(report, r->j.is_tokens ? "tokens_per_second" : "images_per_second"));
    if (r->n_done < r->j.n_steps)
        say(r->c, "stopped no test since step %lld had a lower loss than its %.4f\n",
            (long long)r->tests.best_step, r->tests.best_loss);
    if (r->record.loss.n)
        say(r->c, "done    step %lld, loss %.4f, %.1f %s/s, median step %s\n", (long long)r->n_done,
            r->record.loss.at[r->record.loss.n - 1], rate, r->j.is_tokens ? "tokens" : "images",
            text_of_us(median, samples_median(&r->record.ms, 0) * 1e3));
    if (r->updates.workers)
        updates_say(&r->updates);
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
