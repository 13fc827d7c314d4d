/* The report of a run. Numbers are written with 17 digits: read back, they are the same. */
#include "report.h"
#include "output.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool record_add(record *r, double loss, double ms, double items) {
    if (r->n_steps == r->capacity) {
        size_t more = r->capacity ? 2 * r->capacity : 1024;
        double *a = realloc(r->loss, more * sizeof *a);
        if (a) r->loss = a;
        double *b = realloc(r->ms, more * sizeof *b);
        if (b) r->ms = b;
        if (!a || !b) return false;
        r->capacity = more;
    }
    if (r->n_steps) {
        r->items += items;
        r->seconds += ms / 1e3;
    }
    r->loss[r->n_steps] = loss;
    r->ms[r->n_steps++] = ms;
    return true;
}

void record_release(record *r) {
    free(r->loss);
    free(r->ms);
    memset(r, 0, sizeof *r);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double record_median_ms(const record *r, size_t first) {
    size_t n = r->n_steps > first ? r->n_steps - first : 0;
    double *sorted = n ? malloc(n * sizeof *sorted) : NULL;
    if (!sorted) return NAN;
    memcpy(sorted, r->ms + first, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    double median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    free(sorted);
    return median;
}

double record_min_ms(const record *r, size_t first) {
    double least = NAN;
    for (size_t i = first; i < r->n_steps; i++) least = fmin(least, r->ms[i]);
    return least;
}

const char *costs_text(const wf_program *program) {
    return wf_costs_is_measured(wf_program_costs(program)) ? "measured" : "computed";
}

json_t *json_number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *memory_of(wf_trainer *trainer, int n_ranks) {
    json_t *planned = json_array(), *measured = json_array(), *wire = json_array();
    for (int rank = 0; rank < n_ranks; rank++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, rank);
        json_array_append_new(planned, json_integer((json_int_t)memory.planned_peak_bytes));
        json_array_append_new(measured, json_integer((json_int_t)memory.measured_peak_bytes));
        json_array_append_new(wire, json_integer((json_int_t)memory.wire_bytes));
    }
    return json_pack("{s:o, s:o, s:o}", "planned", planned, "measured", measured, "wire", wire);
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
    char sha[65];
    int n_ranks = wf_plan_n_ranks(j->plan);
    wf_status status = wf_trainer_weights_sha256(trainer, sha);
    if (status != WF_OK) return status;
    json_t *losses = json_array();
    for (size_t i = 0; i < r->n_steps; i++) json_array_append_new(losses, json_number(r->loss[i]));
    json_t *report = json_object();
    json_object_set_new(report, "weft", json_string(WEFT_VERSION));
    json_object_set_new(report, "library", json_string(wf_info_library(0)));
    json_object_set_new(report, "plan", json_string(wf_plan_text(j->plan)));
    json_object_set_new(report, "recipe", options_recipe(&j->c->o));
    json_object_set_new(report, "data", report_data(j));
    json_object_set_new(report, "costs", json_string(costs_text(wf_trainer_program(trainer))));
    json_object_set_new(report, "ranks", json_integer(n_ranks));
    json_object_set_new(report, "threads_counted", json_integer(wf_trainer_n_threads(trainer)));
    json_object_set_new(report, "steps", json_integer((json_int_t)wf_trainer_n_steps(trainer)));
    json_object_set_new(report, "losses", losses);
    double rate = r->seconds > 0 ? r->items / r->seconds : NAN;
    if (!r->seconds && r->n_steps) rate = job_items(j, j->c->o.recipe.batch) / r->ms[0] * 1e3;
    if (first) rate = job_items(j, j->c->o.recipe.batch) / record_median_ms(r, first) * 1e3;
    json_object_set_new(report, j->is_tokens ? "tokens_per_second" : "images_per_second",
                        json_number(rate));
    json_object_set_new(report, "step_ms",
                        json_pack("{s:o, s:o}", "median", json_number(record_median_ms(r, first)),
                                  "min", json_number(record_min_ms(r, first))));
    json_object_set_new(report, "peak_bytes", memory_of(trainer, n_ranks));
    json_object_set_new(report, "weights_sha256", json_string(sha));
    *report_out = report;
    return WF_OK;
}

exit_status report_check(const cli *c) {
    return c->o.json ? output_check("the report", c->o.json) : EXIT_DONE;
}

/* In ASCII, because a terminal may be at the other end, and obeys more than C0. */
exit_status report_write(const cli *c, json_t *report) {
    output out;
    exit_status bad = EXIT_DONE;
    if (c->o.json && report) {
        bad = output_begin(&out, c, "the report", c->o.json);
        if (!bad && (json_dumpf(report, out.stream, JSON_INDENT(1) | JSON_ENSURE_ASCII) ||
                     fputc('\n', out.stream) == EOF)) {
            output_drop(&out);
            bad = complain(EXIT_FAILED, "no memory left");
        }
        if (!bad) bad = output_end(&out);
    }
    json_decref(report);
    return bad;
}

void report_say_memory(const cli *c, wf_trainer *trainer, bool has_run) {
    int n_ranks = wf_program_n_ranks(wf_trainer_program(trainer));
    for (int rank = 0; rank < n_ranks; rank++) {
        char planned[TEXT_BYTES], measured[TEXT_BYTES];
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, rank);
        say(c, "%-8s", rank ? "" : "peak");
        if (n_ranks > 1) say(c, "rank %d: ", rank);
        say(c, "%s planned", text_of_bytes(planned, (double)memory.planned_peak_bytes));
        if (has_run)
            say(c, ", %s measured", text_of_bytes(measured, (double)memory.measured_peak_bytes));
        if (memory.wire_bytes)
            say(c, ", beside it %s of other ranks",
                text_of_bytes(measured, (double)memory.wire_bytes));
        say(c, "\n");
    }
}
