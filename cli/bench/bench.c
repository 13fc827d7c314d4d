/* weft bench train: an untimed step, then timed ones. */
#include "common/processor.h"
#include "common/text.h"
#include "common/tuned.h"
#include "draw/timeline_report.h"
#include "job/progress.h"
#include "job/report.h"

/* Waiting for a batch belongs to the step; setting up and the first step do not. */
static exit_status steps(cli *c, const job *j, wf_trainer *trainer, wf_loader *loader, record *r,
                         effort *begin) {
    for (int64_t n = 0; n < j->n_steps; n++) {
        const wf_batch *batch;
        wf_step_result result;
        if (interrupt_agreed(c)) return complain(interrupt_agreed(c), "interrupted");
        if (n == 1) wf_trainer_profile_reset(trainer);
        if (n == 1) *begin = effort_now();
        double start = now_seconds();
        TRY(complain_of(c, wf_loader_next(loader, &batch)));
        TRY(complain_of(c, job_step(j, trainer, batch, &result)));
        double ms = (now_seconds() - start) * 1e3;
        if (!record_add(r, result.loss, ms, job_items(j, batch->n_all)))
            return complain(EXIT_FAILED, "no memory left");
        say(c, "step %-3lld %9.2f ms   loss %.5f%s\n", (long long)n, ms, result.loss,
            n ? "" : "   (not timed)");
    }
    return EXIT_DONE;
}

static exit_status finish(cli *c, const job *j, wf_trainer *trainer, const record *r,
                          const effort *begin) {
    char median[TEXT_BYTES], fastest[TEXT_BYTES];
    json_t *report;
    tuned_place here;
    effort spent;
    wf_status measured = effort_since(c, begin, &spent);
    if (measured != WF_OK) return complain_of(c, measured);
    TRY(complain_of(c, report_create(j, trainer, r, 1, &report)));
    const char *key = j->is_tokens ? "tokens_per_second" : "images_per_second";
    say(c, "median  %.2f %s/s, %s a step; fastest step %s\n",
        json_number_value(json_object_get(report, key)), j->is_tokens ? "tokens" : "images",
        text_of_us(median, samples_median(&r->ms, 1) * 1e3),
        text_of_us(fastest, samples_least(&r->ms, 1) * 1e3));
    effort_say(c, &spent);
    effort_report(&spent, report);
    if (tuned_here(c, c->o.recipe.n_threads, &here) == WF_OK) {
        json_object_set_new(report, "device", json_string(here.processor));
        json_object_set_new(report, "device_library", json_string(here.library));
    }
    json_object_set_new(report, "cpu_ms", json_number(spent.cpu_s * 1e3 / (double)(r->ms.n - 1)));
    report_say_memory(c, trainer, true);
    if (c->o.profile) report_profile(c, trainer, report);
    exit_status traced = c->o.trace ? timeline_trace(c, j->plan, trainer, report) : EXIT_DONE;
    exit_status written = report_write(c, report);
    return traced ? traced : written;
}

static exit_status measure(cli *c, const job *j) {
    wf_trainer *trainer = NULL;
    wf_loader *loader = NULL;
    record r = {0};
    effort begin = {0};
    exit_status bad = EXIT_DONE;
    job_describe(j);
    wf_status status = job_trainer(j, &trainer);
    if (status != WF_OK) return job_complain_of_plan(j, status);
    if (c->o.init)
        status = wf_trainer_load_weights_but(trainer, c->o.init, c->o.init_skip.text, NULL);
    if (status == WF_OK) status = job_loader(j, WF_DATA_TRAIN, 0, 0, &loader);
    if (status != WF_OK) bad = complain_of(c, status);
    if (!bad) bad = steps(c, j, trainer, loader, &r, &begin);
    if (!bad) bad = finish(c, j, trainer, &r, &begin);
    wf_loader_destroy(loader);
    wf_trainer_destroy(trainer);
    record_release(&r);
    return bad;
}

exit_status run_bench(cli *c) {
    job j;
    if (!option_is_given(&c->o, OPT_repeat)) c->o.repeat = 5;
    if (c->o.repeat < 1 || c->o.repeat == INT64_MAX)
        return complain(EXIT_USAGE, "--repeat must be at least 1, and not too large");
    interrupt_watch();
    bool done;
    exit_status bad = processes_begin(c, &done);
    if (bad || done) return bad;
    TRY(report_check(c));
    TRY(timeline_check(c));
    TRY(job_open(c, c->o.repeat + 1, &j));
    bad = measure(c, &j);
    job_close(&j);
    return bad;
}
