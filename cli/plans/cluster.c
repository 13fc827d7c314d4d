/* --cluster: the time and memory of a plan by prediction, and the choice of --plan auto. */
#include "plans/cluster.h"
#include "common/text.h"
#include "draw/gnuplot.h"
#include "job/report.h"
#include "plans/choices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a prediction ---- */

exit_status cluster_predict(const job *j, wf_prediction *prediction_out) {
    wf_prediction_request q = job_request(j);
    return complain_of(j->c, wf_predict(j->c->ctx, &q, prediction_out));
}

exit_status cluster_begin(job *j, bool *is_predicted_out) {
    options *o = &j->c->o;
    wf_prediction p = WF_PREDICTION_INIT;
    *is_predicted_out = false;
    exit_status bad = j->cluster ? cluster_predict(j, &p) : EXIT_DONE;
    if (bad || !j->cluster) return bad;
    int64_t n_each = o->recipe.n_micro / wf_plan_dp(j->plan);
    *is_predicted_out =
        !o->proof && !o->certificate && (!p.fits || job_is_large(j, p.n_ranks, n_each));
    if (!o->device_memory) o->device_memory = (size_t)(p.memory_bytes - p.library_bytes);
    return EXIT_DONE;
}

char *cluster_title(const job *j, char text[CLUSTER_TITLE_BYTES]) {
    char n[TEXT_BYTES];
    snprintf(text, CLUSTER_TITLE_BYTES, "%.40s, batch %lld, cluster %.48s: %s device%s",
             j->c->o.model, (long long)j->c->o.recipe.batch, wf_cluster_name(j->cluster),
             text_of_thousands(n, wf_cluster_n_devices(j->cluster)),
             wf_cluster_n_devices(j->cluster) == 1 ? "" : "s");
    return gnuplot_plain(text);
}

void cluster_terms(const wf_prediction *p, cluster_term terms[CLUSTER_N_TERMS]) {
    const cluster_term all[CLUSTER_N_TERMS] = {
        {"forward", "forward", p->forward_ms},
        {"backward", "backward", p->backward_ms},
        {"recompute", "recomputation", p->recompute_ms},
        {"tp", "tensor-parallel communication", p->tp_ms},
        {"bubble", "pipeline bubble", p->bubble_ms},
        {"pp", "pipeline communication", p->pp_ms},
        {"dp", "data-parallel communication", p->dp_ms},
        {"optimizer", "optimizer", p->optimizer_ms},
        {"offload", "offload", p->offload_ms},
    };
    memcpy(terms, all, sizeof all);
}

char *cluster_why(const wf_prediction *fast, const wf_prediction *slow,
                  char text[CLUSTER_WHY_BYTES]) {
    cluster_term a[CLUSTER_N_TERMS], b[CLUSTER_N_TERMS];
    char time[TEXT_BYTES];
    int most = 0;
    cluster_terms(fast, a);
    cluster_terms(slow, b);
    for (int k = 1; k < CLUSTER_N_TERMS; k++)
        if (b[k].ms - a[k].ms > b[most].ms - a[most].ms) most = k;
    double ms = b[most].ms - a[most].ms;
    snprintf(text, CLUSTER_WHY_BYTES, "%s more of %s", text_of_us(time, 1e3 * ms), b[most].words);
    return text;
}

static bool lacks_on_device(const wf_prediction *p) {
    return !strcmp(p->lacks, "device memory");
}

char *cluster_missing(const wf_prediction *p, char text[CLUSTER_WHY_BYTES]) {
    char bytes[TEXT_BYTES];
    bool is_own = lacks_on_device(p);
    snprintf(text, CLUSTER_WHY_BYTES, "%s more %s%s", text_of_bytes(bytes, p->short_by_bytes),
             is_own ? "" : p->lacks, is_own ? "than a device has" : " than a device's share");
    return text;
}

static void say_times(const job *j, const wf_prediction *p) {
    cluster_term terms[CLUSTER_N_TERMS];
    char time[TEXT_BYTES];
    const char *separator = "";
    cluster_terms(p, terms);
    say(j->c, "%-8s", "");
    for (int k = 0; k < CLUSTER_N_TERMS; k++) {
        if (terms[k].ms < 1e-3 * p->step_ms) continue;
        say(j->c, "%s%s %s", separator, terms[k].words, text_of_us(time, 1e3 * terms[k].ms));
        separator = ", ";
    }
    say(j->c, "\n");
}

static void say_bytes(const job *j, const wf_prediction *p) {
    const struct {
        const char *name;
        double bytes;
    } parts[] = {{"parameters", p->parameter_bytes}, {"gradients", p->gradient_bytes},
                 {"state", p->state_bytes},          {"activations", p->activation_bytes},
                 {"buffers", p->buffer_bytes},       {"libraries", p->library_bytes}};
    char bytes[TEXT_BYTES], all[TEXT_BYTES];
    const char *separator = ": ";
    say(j->c, "%-8s%s of %s a device", "memory", text_of_bytes(bytes, p->peak_bytes),
        text_of_bytes(all, p->memory_bytes));
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        if (parts[k].bytes < 1e-3 * p->peak_bytes) continue;
        say(j->c, "%s%s %s", separator, parts[k].name, text_of_bytes(bytes, parts[k].bytes));
        separator = ", ";
    }
    if (p->host_bytes > 0) say(j->c, "; host %s", text_of_bytes(bytes, p->host_bytes));
    if (p->disk_bytes > 0) say(j->c, "; disk %s", text_of_bytes(bytes, p->disk_bytes));
    say(j->c, "\n");
}

void cluster_say(const job *j, const wf_prediction *p) {
    char step[TEXT_BYTES], n[TEXT_BYTES], why[CLUSTER_WHY_BYTES];
    say(j->c, "%-8s%s: %s devices\n", "cluster", wf_cluster_name(j->cluster),
        text_of_thousands(n, wf_cluster_n_devices(j->cluster)));
    say(j->c, "%-8s%s predicted, bound by %s; MFU %.1f %%, HFU %.1f %%\n", "step",
        text_of_us(step, 1e3 * p->step_ms), p->bound, 100 * p->mfu, 100 * p->hfu);
    say_times(j, p);
    say_bytes(j, p);
    if (j->n_choices < 2 || !p->fits) return;
    const wf_choice *next = &j->choices[1];
    double longer = next->prediction.step_ms / p->step_ms - 1;
    if (longer < 5e-4) /* or shorter by less than a search distinguishes */
        say(j->c, "%-8s%s: as long\n", "next", next->plan);
    else
        say(j->c, "%-8s%s: %.1f %% longer, %s\n", "next", next->plan, 100 * longer,
            cluster_why(p, &next->prediction, why));
}

/* ---- the report ---- */

json_t *cluster_times_json(const wf_prediction *p) {
    cluster_term terms[CLUSTER_N_TERMS];
    json_t *times = json_object();
    cluster_terms(p, terms);
    for (int k = 0; k < CLUSTER_N_TERMS; k++)
        json_object_set_new(times, terms[k].name, json_real(terms[k].ms));
    return times;
}

static json_t *bytes_json(const wf_prediction *p) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "parameters", p->parameter_bytes,
                     "gradients", p->gradient_bytes, "state", p->state_bytes, "activations",
                     p->activation_bytes, "buffers", p->buffer_bytes, "libraries", p->library_bytes,
                     "host", p->host_bytes, "disk", p->disk_bytes);
}

void cluster_report(const job *j, const wf_prediction *p, json_t *report) {
    json_object_set_new(report, "cluster", json_string(wf_cluster_name(j->cluster)));
    json_object_set_new(report, "n_devices", json_integer(wf_cluster_n_devices(j->cluster)));
    json_object_set_new(report, "n_ranks", json_integer(p->n_ranks));
    json_object_set_new(report, "step_ms", json_real(p->step_ms));
    json_object_set_new(report, "bound", json_string(p->bound));
    json_object_set_new(report, "mfu", json_real(p->mfu));
    json_object_set_new(report, "hfu", json_real(p->hfu));
    json_object_set_new(report, "times_ms", cluster_times_json(p));
    json_object_set_new(report, "predicted_bytes", bytes_json(p));
    json_object_set_new(report, "predicted_peak_bytes", json_real(p->peak_bytes));
    json_object_set_new(report, "short_by_bytes", json_real(p->short_by_bytes));
}

static void propose(const job *j, json_t *report) {
    json_t *proposals = json_array(), *would_fit = json_array();
    for (int k = 0; k < j->n_choices; k++) {
        const wf_choice *choice = &j->choices[k];
        if (!choice->prediction.fits) continue;
        json_array_append_new(would_fit, json_string(choice->plan));
        json_array_append_new(
            proposals, json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "plan", choice->plan, "micro",
                                 (json_int_t)choice->n_micro, "lanes", (json_int_t)choice->n_lanes,
                                 "slices", (json_int_t)choice->n_slices, "peak_bytes",
                                 (json_int_t)choice->prediction.peak_bytes, "step_ms",
                                 choice->prediction.step_ms));
    }
    json_object_set_new(report, "proposals", proposals);
    json_object_set_new(report, "would_fit", would_fit);
}

/* ---- the plans of a search as a picture ---- */

#define LONGEST     3 /* times the best step */
#define MOST_POINTS (1 << 18)

typedef struct points {
    choice_point *items;
    size_t n, capacity;
} points;

/* Adds a plan; beyond the capacity plans are left out. */
static void add_point(void *self, const wf_choice *choice) {
    points *p = self;
    if (p->n == p->capacity) {
        size_t more = p->capacity ? 2 * p->capacity : 1024;
        void *items = more <= MOST_POINTS ? realloc(p->items, more * sizeof *p->items) : NULL;
        if (!items) return;
        p->items = items;
        p->capacity = more;
    }
    choice_point *to = &p->items[p->n++];
    *to = (choice_point){choice->prediction.step_ms, choice->prediction.peak_bytes,
                         choice->prediction.fits, choice->n_micro, ""};
    memcpy(to->plan, choice->plan, sizeof to->plan);
}

bool cluster_draws_search(const options *o) {
    return o->cluster && !o->proof && !strcmp(o->plan, "auto");
}

exit_status cluster_draw_search(const job *j) {
    wf_prediction_request q = job_request_within(j);
    const wf_prediction *best = &j->choices->prediction;
    char title[CLUSTER_TITLE_BYTES];
    points p = {NULL, 0, 0};
    q.recipe = &j->given;
    exit_status bad = complain_of(
        j->c, wf_cluster_each(j->c->ctx, &q, LONGEST * best->step_ms, 0, add_point, &p));
    double room = fmin(best->memory_bytes, q.device_bytes + best->library_bytes);
    if (!bad)
        bad = choices_draw_front(j->c, j->c->o.draw, cluster_title(j, title), p.items, p.n, room);
    free(p.items);
    return bad;
}

/* ---- a plan that is not lowered ---- */

static exit_status refuse(const job *j, const wf_prediction *p) {
    char needs[TEXT_BYTES], missing[CLUSTER_WHY_BYTES];
    bool is_own = lacks_on_device(p);
    double bytes = is_own                             ? p->peak_bytes
                   : !strcmp(p->lacks, "host memory") ? p->host_bytes
                                                      : p->disk_bytes;
    text_of_bytes(needs, bytes);
    exit_status bad = is_own ? complain(EXIT_DOES_NOT_FIT, "a device needs %s, %s more than it has",
                                        needs, text_of_bytes(missing, p->short_by_bytes))
                             : complain(EXIT_DOES_NOT_FIT, "a device needs %s of %s: %s", needs,
                                        p->lacks, cluster_missing(p, missing));
    say(j->c, "%-8sno\n", "fits");
    return bad;
}

exit_status cluster_check_shares(const job *j) {
    wf_prediction p = WF_PREDICTION_INIT;
    exit_status bad = j->cluster ? cluster_predict(j, &p) : EXIT_DONE;
    if (bad || !j->cluster || p.fits || lacks_on_device(&p)) return bad;
    return refuse(j, &p);
}

/* Sets the proposal's predicted step. False: the cluster has too few devices or bytes for it. */
static bool fits_cluster(const job *j, wf_proposal *proposal) {
    wf_prediction_request q = job_request(j);
    wf_prediction p = WF_PREDICTION_INIT;
    wf_recipe recipe = *q.recipe;
    wf_plan *plan;
    recipe.n_micro = proposal->n_micro;
    recipe.n_lanes = proposal->n_lanes;
    recipe.n_slices = proposal->n_slices;
    q.recipe = &recipe;
    if (wf_plan_parse(j->c->ctx, proposal->plan, &plan) != WF_OK) return false;
    q.plan = plan;
    bool fits = wf_predict(j->c->ctx, &q, &p) == WF_OK && p.fits;
    wf_plan_destroy(plan);
    proposal->step_us = 1e3 * p.step_ms;
    return fits;
}

static int compare_steps(const void *a, const void *b) {
    double x = ((const wf_proposal *)a)->step_us, y = ((const wf_proposal *)b)->step_us;
    return (x > y) - (x < y);
}

int cluster_keep_fitting(const job *j, wf_proposal *found, int n) {
    int n_kept = 0;
    if (!j->cluster) return n;
    for (int k = 0; k < n; k++) {
        wf_proposal x = found[k];
        if (!fits_cluster(j, &x)) continue;
        found[k] = found[n_kept];
        found[n_kept++] = x;
    }
    if (n_kept) qsort(found, (size_t)n_kept, sizeof *found, compare_steps);
    return n_kept;
}

/* If the given plan does not fit, j->choices are plans that do. */
static exit_status find_fitting(job *j) {
    wf_prediction_request q = job_request_within(j);
    wf_recipe recipe = j->c->o.recipe;
    if (!option_is_given(&j->c->o, OPT_n_micro)) recipe.n_micro = 0;
    if (!option_is_given(&j->c->o, OPT_n_lanes)) recipe.n_lanes = 0;
    if (!option_is_given(&j->c->o, OPT_n_slices)) recipe.n_slices = 0;
    q.recipe = &recipe;
    j->choices[0] = (wf_choice)WF_CHOICE_INIT;
    return complain_of(
        j->c, wf_cluster_search(j->c->ctx, &q, WF_MAX_PROPOSALS, j->choices, &j->n_choices));
}

static void say_fitting(const job *j) {
    char step[TEXT_BYTES], peak[TEXT_BYTES];
    for (int k = 0; k < j->n_choices; k++) {
        const wf_choice *choice = &j->choices[k];
        if (!choice->prediction.fits) continue;
        if (!k) say(j->c, "these would fit:\n%11s %9s %5s\n", "peak", "step", "ranks");
        say(j->c, "%11s %9s %5d  --plan %s --micro %lld\n",
            text_of_bytes(peak, choice->prediction.peak_bytes),
            text_of_us(step, 1e3 * choice->prediction.step_ms), choice->prediction.n_ranks,
            choice->plan, (long long)choice->n_micro);
    }
}

static exit_status check_shown(const job *j) {
    const options *o = &j->c->o;
    if (o->program || (o->draw && !cluster_draws_search(o)) || o->trace)
        return complain(EXIT_USAGE, "--program, --draw and --trace need the program, and this plan "
                                    "is only predicted; --proof full makes it");
    return EXIT_DONE;
}

static json_t *begin_report(const job *j) {
    return json_pack("{s:s, s:s, s:s, s:o, s:b}", "weft", WEFT_VERSION, "costs", "predicted",
                     "plan", wf_plan_text(j->plan), "recipe", options_recipe(&j->c->o), "proved",
                     0);
}

exit_status cluster_show(job *j) {
    wf_prediction p = WF_PREDICTION_INIT;
    wf_prediction_request q = job_request_within(j);
    exit_status fits = EXIT_DONE;
    TRY(check_shown(j));
    TRY(complain_of(j->c, wf_predict(j->c->ctx, &q, &p)));
    if (!p.fits && !j->n_choices) TRY(find_fitting(j));
    if (!p.fits) fits = refuse(j, &p);
    if (!p.fits) say_fitting(j);
    cluster_say(j, &p);
    job_describe(j);
    say(j->c, "the plan is predicted, not lowered: no proof (--proof full lowers and proves it)\n");
    json_t *report = begin_report(j);
    cluster_report(j, &p, report);
    json_object_set_new(report, "fits", json_boolean(p.fits));
    json_object_set_new(report, "recipe_needed", job_needed_json(j));
    propose(j, report);
    exit_status drawn = j->c->o.draw ? cluster_draw_search(j) : EXIT_DONE;
    exit_status written = report_write(j->c, report);
    return fits ? fits : drawn ? drawn : written;
}
