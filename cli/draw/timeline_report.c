#include "draw/timeline_report.h"
#include "common/fold.h"
#include "common/output.h"
#include "common/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How each rank spends the step. */
static void say_ranks(const cli *c, const wf_trace_part *part, const drawing_words *words) {
    double step = wf_timeline_step_us(part->timeline);
    int n_ranks = wf_timeline_n_ranks(part->timeline);
    char heading[200], **texts = calloc((size_t)n_ranks, sizeof *texts);
    snprintf(heading, sizeof heading, "%17s %18s %18s %18s  %.40s", "compute", "bubble", "transfer",
             "wait", part->name);
    for (int r = 0; r < n_ranks && texts; r++) {
        wf_rank_time time = wf_timeline_rank(part->timeline, r);
        const double us[] = {time.compute_us, time.bubble_us, time.transfer_us, time.wait_us};
        char line[200] = "", cell[TEXT_BYTES];
        for (int k = 0; k < 4; k++)
            TEXT_ADD(line, "%s%8s %5.1f %%", k ? "   " : "", text_of_us(cell, us[k]),
                     100 * us[k] / fmax(step, 1e-9));
        texts[r] = strdup(line);
    }
    if (words) {
        say(c, "%-8s %s\n", "", heading);
        for (int r = 0; r < n_ranks && texts; r++) {
            say(c, "%-8s %s\n", words->names[r], texts[r] ? texts[r] : "");
            free(texts[r]);
        }
        free(texts);
        return;
    }
    /* weft draw has no --verbose. */
    int most = c->command == FOR_DRAW ? n_ranks : FOLD_MOST_ROWS;
    say_by_rank(c, NULL, heading, texts, n_ranks, most);
}

void timeline_say(const cli *c, const drawing *d) {
    if (c->o.quiet) return;
    say(c, "\n");
    (void)draw_text(c->say, d, columns_of(c->say, 60, 200), has_color(c->say));
    say(c, "\n");
    for (int k = 0; k < d->n_parts; k++) say_ranks(c, &d->parts[k], d->words);
}

json_t *timeline_json(const wf_timeline *timeline) {
    json_t *ranks = json_array();
    for (int r = 0; r < wf_timeline_n_ranks(timeline); r++) {
        wf_rank_time time = wf_timeline_rank(timeline, r);
        json_array_append_new(ranks,
                              json_pack("{s:f, s:f, s:f, s:f}", "compute_ms", time.compute_us / 1e3,
                                        "bubble_ms", time.bubble_us / 1e3, "transfer_ms",
                                        time.transfer_us / 1e3, "wait_ms", time.wait_us / 1e3));
    }
    return json_pack("{s:f, s:o}", "step_ms", wf_timeline_step_us(timeline) / 1e3, "ranks", ranks);
}

json_t *timeline_bytes_json(const wf_timeline *timeline) {
    draw_peak peak = draw_find_peak(timeline);
    json_t *times = json_array(), *kinds[WF_N_MEMORY_KINDS];
    for (int k = 0; k < WF_N_MEMORY_KINDS; k++) kinds[k] = json_array();
    for (int i = 0; i < wf_timeline_n_moments(timeline, peak.rank); i++) {
        wf_memory_moment moment = wf_timeline_moment(timeline, peak.rank, i);
        json_array_append_new(times, json_real(moment.us / 1e3));
        for (int k = 0; k < WF_N_MEMORY_KINDS; k++)
            json_array_append_new(kinds[k], json_integer((json_int_t)moment.bytes[k]));
    }
    double peak_us = wf_timeline_moment(timeline, peak.rank, peak.moment).us;
    json_t *bytes = json_pack("{s:i, s:I, s:f, s:o}", "rank", peak.rank, "peak_bytes",
                              (json_int_t)peak.bytes, "peak_ms", peak_us / 1e3, "time_ms", times);
    for (int k = 0; k < WF_N_MEMORY_KINDS; k++)
        json_object_set_new(bytes, wf_memory_kind_name((wf_memory_kind)k), kinds[k]);
    return bytes;
}

/* "resnet50, batch 120 in 10 microbatches, dp=1,pp=2,..." */
static void describe(const cli *c, const wf_plan *plan, char *title, size_t bytes) {
    const wf_recipe *r = &c->o.recipe;
    snprintf(title, bytes, "%.40s, batch %lld in %lld microbatch%s, %.300s", c->o.model,
             (long long)r->batch, (long long)r->n_micro, r->n_micro == 1 ? "" : "es",
             wf_plan_text(plan));
}

exit_status timeline_plan(const cli *c, const wf_plan *plan, const wf_timeline *simulated,
                          const char *draw, json_t *report) {
    char title[400];
    exit_status bad = EXIT_DONE;
    describe(c, plan, title, sizeof title);
    const wf_trace_part part = {"simulated", simulated};
    drawing d = {title, plan, &part, 1, NULL};
    if (wf_timeline_n_ranks(simulated) > 1) timeline_say(c, &d);
    json_object_set_new(report, "simulated", timeline_json(simulated));
    json_object_set_new(report, "bytes_over_time",
                        json_pack("{s:o}", "planned", timeline_bytes_json(simulated)));
    if (c->o.trace) bad = complain_of(c, wf_trace_write(c->ctx, c->o.trace, title, &part, 1));
    if (!bad && draw) bad = draw_file(c, draw, &d);
    return bad;
}

/* The same program with the measured times of its units in this run. */
static wf_status simulate_like(const wf_trainer *trainer, wf_timeline **timeline_out) {
    wf_costs *costs;
    TRY(wf_trainer_costs(trainer, &costs));
    wf_status status = wf_program_simulate(wf_trainer_program(trainer), costs, timeline_out);
    wf_costs_destroy(costs);
    return status;
}

exit_status timeline_check(const cli *c) {
    return c->o.trace ? output_check_file("the trace", c->o.trace) : EXIT_DONE;
}

/* Adds a measured timeline to the output and the report. */
static json_t *tell(const cli *c, const drawing *d, json_t *report) {
    const wf_timeline *measured = d->parts[0].timeline;
    json_t *bytes = json_pack("{s:o}", "measured", timeline_bytes_json(measured));
    timeline_say(c, d);
    say(c, "trace   %s\n", c->o.trace);
    json_object_set_new(report, "timeline", timeline_json(measured));
    json_object_set_new(report, "bytes_over_time", bytes);
    return bytes;
}

exit_status timeline_trace(const cli *c, const wf_plan *plan, const wf_trainer *trainer,
                           json_t *report) {
    wf_timeline *measured = NULL, *simulated = NULL;
    char title[400];
    wf_status status = wf_trainer_timeline(trainer, &measured);
    if (status == WF_INVALID_ARG) {
        /* Nothing ran: a resumed run that was over, or no full batch. */
        say(c, "trace   none: %s\n", wf_context_error(c->ctx));
        return EXIT_DONE;
    }
    /* A run of one step has no costs to simulate with: its first step does not count. */
    if (status == WF_OK && simulate_like(trainer, &simulated) == WF_NO_MEMORY)
        status = WF_NO_MEMORY;
    describe(c, plan, title, sizeof title);
    const wf_trace_part parts[] = {{"measured", measured}, {"simulated", simulated}};
    int n_parts = simulated ? 2 : 1;
    if (status == WF_OK && c->is_root)
        status = wf_trace_write(c->ctx, c->o.trace, title, parts, n_parts);
    if (status == WF_OK) {
        drawing d = {title, plan, parts, n_parts, NULL};
        json_t *bytes = tell(c, &d, report);
        if (simulated) {
            json_object_set_new(report, "simulated", timeline_json(simulated));
            json_object_set_new(bytes, "planned", timeline_bytes_json(simulated));
        }
    }
    wf_timeline_destroy(measured);
    wf_timeline_destroy(simulated);
    return status == WF_OK ? EXIT_DONE : complain_of(c, status);
}

/* ---- workers ---- */

#define NAME_BYTES 24
#define ASYNC_PART "async workers"
#define LOCAL_PART "local workers"

const char **timeline_worker_names(const char *word, int n_workers, int n_rows) {
    size_t n = (size_t)n_rows;
    const char **names = malloc(n * (sizeof *names + NAME_BYTES) + 1);
    char *text = names ? (char *)(names + n) : NULL;
    for (int r = 0; r < n_rows && names; r++, text += NAME_BYTES) {
        bool works = r < n_workers;
        snprintf(text, NAME_BYTES, "%s %d", works ? word : "server", works ? r : r - n_workers);
        names[r] = text;
    }
    return names;
}

/* Servers only update. */
static int count_ranks(const wf_timeline *t) {
    int n = 0;
    for (int64_t i = 0; i < wf_timeline_n_spans(t); i++) {
        wf_span span = wf_timeline_span(t, i);
        if (span.kind != WF_SPAN_UPDATE && span.rank >= n) n = span.rank + 1;
    }
    return n;
}

const char **timeline_words(const wf_trace_part *part, drawing_words *words_out) {
    bool is_async = !strcmp(part->name, ASYNC_PART);
    if (!is_async && strcmp(part->name, LOCAL_PART)) return NULL;
    int n_rows = wf_timeline_n_ranks(part->timeline);
    const char **names = timeline_worker_names("rank", count_ranks(part->timeline), n_rows);
    *words_out =
        (drawing_words){names, "measured: the latest steps",
                        is_async ? "version of the parameters" : "step", "forward and backward"};
    return names;
}

exit_status timeline_trace_workers(const cli *c, const wf_plan *plan, wf_workers *workers,
                                   json_t *report) {
    wf_timeline *measured;
    drawing_words words;
    char title[400];
    wf_status status = wf_workers_timeline(workers, &measured);
    if (status == WF_INVALID_ARG && report)
        say(c, "trace   none: %s\n", wf_context_error(c->ctx)); /* a resumed run that was over */
    if (status == WF_INVALID_ARG) return EXIT_DONE;
    if (status != WF_OK) return complain_of(c, status);
    bool is_async = wf_workers_recipe(workers)->update == WF_UPDATE_ASYNC;
    wf_trace_part part = {is_async ? ASYNC_PART : LOCAL_PART, measured};
    const char **names = timeline_words(&part, &words);
    describe(c, plan, title, sizeof title);
    drawing d = {title, plan, &part, 1, &words};
    if (!names) status = wf_context_fail(c->ctx, WF_NO_MEMORY, "no memory left");
    if (status == WF_OK && report) status = wf_trace_write(c->ctx, c->o.trace, title, &part, 1);
    if (status == WF_OK && report) (void)tell(c, &d, report);
    free((void *)names);
    wf_timeline_destroy(measured);
    return complain_of(c, status);
}
