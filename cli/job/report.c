/* The report of a run. Numbers are written with 17 digits: read back, they are the same. */
#include "job/report.h"
#include "common/fold.h"
#include "common/made_by.h"
#include "common/output.h"
#include "common/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *costs_text(const wf_program *program) {
    return wf_costs_is_measured(wf_program_costs(program)) ? "measured" : "computed";
}

void report_add_peaks(json_t *report, const wf_trainer_memory *m, int n_places) {
    const struct {
        const char *name;
        size_t planned, measured;
    } places[] = {{"peak_bytes", m->planned_peak_bytes, m->measured_peak_bytes},
                  {"host_peak_bytes", m->planned_host_peak_bytes, m->measured_host_peak_bytes},
                  {"disk_peak_bytes", m->planned_disk_peak_bytes, m->measured_disk_peak_bytes}};
    for (int k = 0; k < n_places; k++) {
        json_t *peaks = json_object_get(report, places[k].name);
        if (!peaks) {
            peaks = json_pack("{s:[], s:[]}", "planned", "measured");
            json_object_set_new(report, places[k].name, peaks);
        }
        json_array_append_new(json_object_get(peaks, "planned"),
                              json_integer((json_int_t)places[k].planned));
        json_array_append_new(json_object_get(peaks, "measured"),
                              m->is_measured ? json_integer((json_int_t)places[k].measured)
                                             : json_null());
    }
}

/* Bytes that each rank sends and receives in a step, from the program of the training step. */
static void add_traffic(const wf_program *step, json_t *report) {
    json_t *sent = json_array(), *received = json_array();
    for (int rank = 0; rank < wf_program_n_ranks(step); rank++) {
        wf_rank_summary of = wf_program_rank(step, rank);
        json_array_append_new(sent, json_integer((json_int_t)of.sent_bytes));
        json_array_append_new(received, json_integer((json_int_t)of.received_bytes));
    }
    json_object_set_new(report, "sent_bytes", sent);
    json_object_set_new(report, "received_bytes", received);
}

json_t *report_data(const job *j) {
    const wf_data_description *about = &j->about;
    json_t *data = json_pack("{s:I, s:I}", "n_train", (json_int_t)about->n_train, "n_test",
                             (json_int_t)about->n_test);
    if (*j->data_hash) json_object_set_new(data, "hash", json_string(j->data_hash));
    if (about->kind != WF_DATA_IMAGES || !strcmp(j->c->o.data, "synthetic")) return data;
    json_t *mean = json_array(), *std = json_array();
    for (int64_t k = 0; k < about->channels; k++) {
        json_array_append_new(mean, json_real(about->mean[k]));
        json_array_append_new(std, json_real(about->std[k]));
    }
    json_object_set_new(data, "mean", mean);
    json_object_set_new(data, "std", std);
    return data;
}

wf_status report_create(const job *j, wf_trainer *trainer, const record *r, size_t first,
                        json_t **report_out) {
    char sha[65], library[LIBRARY_BYTES];
    int n_ranks = wf_plan_n_ranks(j->plan);
    TRY(wf_trainer_weights_sha256(trainer, sha));
    json_t *report =
        json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:i, s:i, s:I, s:o}", "weft", WEFT_VERSION,
                  "library", made_by_library(j->c, library), "plan",
                  wf_program_plan(wf_trainer_program(trainer)), "recipe", options_recipe(&j->c->o),
                  "data", report_data(j), "costs", costs_text(wf_trainer_program(trainer)), "ranks",
                  n_ranks, "threads_counted", wf_trainer_n_threads(trainer), "steps",
                  (json_int_t)wf_trainer_n_steps(trainer), "losses", samples_json(&r->loss));
    double rate = r->seconds > 0 ? r->items / r->seconds : NAN;
    if (!r->seconds && r->ms.n) rate = job_items(j, j->c->o.recipe.batch) / r->ms.at[0] * 1e3;
    if (first) rate = job_items(j, j->c->o.recipe.batch) / samples_median(&r->ms, first) * 1e3;
    json_object_set_new(report, j->is_tokens ? "tokens_per_second" : "images_per_second",
                        json_number(rate));
    json_object_set_new(report, "step_ms",
                        json_pack("{s:o, s:o}", "median",
                                  json_number(samples_median(&r->ms, first)), "min",
                                  json_number(samples_least(&r->ms, first))));
    for (int rank = 0; rank < n_ranks; rank++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, rank);
        report_add_peaks(report, &memory, 3);
    }
    add_traffic(wf_trainer_program(trainer), report);
    json_object_set_new(report, "weights_sha256", json_string(sha));
    *report_out = report;
    return WF_OK;
}

exit_status report_check(const cli *c) {
    return c->o.json ? output_check("the report", c->o.json) : EXIT_DONE;
}

exit_status report_put(const cli *c, const json_t *report, const char *what, const char *path) {
    output out;
    TRY(output_begin(&out, c, what, path));
    /* In ASCII: a terminal may be at the other end, and obeys more than C0. */
    if (!json_dumpf(report, out.stream, JSON_INDENT(1) | JSON_ENSURE_ASCII) &&
        fputc('\n', out.stream) != EOF)
        return output_end(&out);
    output_drop(&out);
    return complain(EXIT_FAILED, "no memory left");
}

exit_status report_write(const cli *c, json_t *report) {
    exit_status bad =
        c->o.json && report ? report_put(c, report, "the report", c->o.json) : EXIT_DONE;
    json_decref(report);
    return bad;
}

static char *memory_text(const wf_trainer_memory *m, bool has_run) {
    char line[300], bytes[TEXT_BYTES];
    const struct {
        const char *before, *after;
        size_t bytes;
    } more[] = {{", ", " measured", has_run && m->is_measured ? m->measured_peak_bytes : 0},
                {", on the host ", "", m->planned_host_peak_bytes},
                {", on disk ", "", m->planned_disk_peak_bytes}};
    snprintf(line, sizeof line, "%s planned", text_of_bytes(bytes, (double)m->planned_peak_bytes));
    for (size_t k = 0; k < sizeof more / sizeof *more; k++)
        if (more[k].bytes)
            TEXT_ADD(line, "%s%s%s", more[k].before, text_of_bytes(bytes, (double)more[k].bytes),
                     more[k].after);
    return strdup(line);
}

/* Before the run, of the rank that needs most. */
static void say_largest(const cli *c, wf_trainer *trainer, int n_ranks) {
    wf_trainer_memory most = wf_trainer_memory_of(trainer, 0);
    char limit[TEXT_BYTES];
    int largest = 0;
    bool is_even = true;
    for (int r = 1; r < n_ranks; r++) {
        wf_trainer_memory own = wf_trainer_memory_of(trainer, r);
        is_even &= own.planned_peak_bytes == most.planned_peak_bytes;
        if (own.planned_peak_bytes > most.planned_peak_bytes) most = own, largest = r;
    }
    say(c, "%-8s", "peak");
    if (n_ranks > 1 && is_even) say(c, "each rank: ");
    if (n_ranks > 1 && !is_even) say(c, "rank %d, the largest: ", largest);
    char *text = memory_text(&most, false);
    say(c, "%s", text ? text : "");
    free(text);
    if (c->o.device_memory) say(c, "; limit %s", text_of_bytes(limit, (double)c->o.device_memory));
    say(c, "\n");
}

void report_say_memory(const cli *c, wf_trainer *trainer, bool has_run) {
    int n_ranks = wf_program_n_ranks(wf_trainer_program(trainer));
    if (!has_run && !c->o.verbose) {
        say_largest(c, trainer, n_ranks);
        return;
    }
    char **texts = calloc((size_t)n_ranks, sizeof *texts);
    for (int r = 0; r < n_ranks && texts; r++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, r);
        texts[r] = memory_text(&memory, has_run);
    }
    say_by_rank(c, "peak", NULL, texts, n_ranks, FOLD_MOST_ROWS);
}
