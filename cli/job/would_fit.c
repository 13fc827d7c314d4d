/* The plans that would fit where the one that was given does not. */
#include "common/text.h"
#include "job/progress.h"
#include "job/report.h"

#include <stdlib.h>
#include <string.h>

/* A line of the table. Lanes are named, as another number of microbatches would have others by
 * default. */
static void write_proposal(const cli *c, FILE *out, const wf_proposal *by) {
    char peak[TEXT_BYTES], step[TEXT_BYTES];
    wf_plan *plan;
    int n_ranks = 0;
    if (wf_plan_parse(c->ctx, by->plan, &plan) == WF_OK) {
        n_ranks = wf_plan_n_ranks(plan);
        wf_plan_destroy(plan);
    }
    fprintf(out, "%11s %9s %5d  --plan %s --micro %lld --lanes %lld",
            text_of_bytes(peak, (double)by->peak_bytes), text_of_us(step, by->step_us), n_ranks,
            by->plan, (long long)by->n_micro, (long long)by->n_lanes);
    if (by->n_slices > 1) fprintf(out, " --slices %lld", (long long)by->n_slices);
    fputc('\n', out);
}

/* Saved weights are of a model of one size. */
static bool is_larger(const options *o, int64_t n_layers) {
    int64_t n = o->layers ? o->layers : wf_model_registry_find(o->model)->n_layers;
    return n_layers > n && !o->init && !o->resume;
}

void would_fit_say(const cli *c, const wf_proposal *found, int n, bool to_stderr) {
    char *text = NULL;
    size_t n_bytes;
    if (!n) {
        complain(EXIT_DOES_NOT_FIT,
                 "none of the other plans and numbers of microbatches that were tried would fit");
        return;
    }
    FILE *out = open_memstream(&text, &n_bytes);
    if (!out) return;
    fprintf(out, "these would fit:\n%11s %9s %5s\n", "peak", "step", "ranks");
    for (int k = 0; k < n; k++) write_proposal(c, out, &found[k]);
    if (is_larger(&c->o, found[0].n_layers))
        fprintf(out, "with the first, a model of %lld layers would fit, too\n",
                (long long)found[0].n_layers);
    if (!fclose(out) && to_stderr) fputs(text, stderr);
    if (text && !to_stderr) say(c, "%s", text);
    free(text);
}

void would_fit_report(json_t *report, bool fits, const wf_proposal *found, int n) {
    json_t *proposals = json_array(), *would_fit = json_array();
    for (int k = 0; k < n; k++) {
        json_array_append_new(would_fit, json_string(found[k].plan));
        json_array_append_new(
            proposals,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", "plan", found[k].plan, "micro",
                      (json_int_t)found[k].n_micro, "lanes", (json_int_t)found[k].n_lanes, "slices",
                      (json_int_t)found[k].n_slices, "peak_bytes", (json_int_t)found[k].peak_bytes,
                      "step_ms", found[k].step_us / 1e3));
    }
    json_object_set_new(report, "fits", json_boolean(fits));
    json_object_set_new(report, "would_fit", would_fit);
    json_object_set_new(report, "proposals", proposals);
}

/* Prints and reports the plans that would fit instead of that of a training. */
static void refuse(const job *j, const wf_proposal *found, int n) {
    if (!j->c->is_root) return;
    would_fit_say(j->c, found, n, true);
    json_t *report = json_pack("{s:s, s:s, s:o, s:I}", "weft", WEFT_VERSION, "plan",
                               wf_plan_text(j->plan), "recipe", options_recipe(&j->c->o),
                               "device_memory", (json_int_t)j->c->o.device_memory);
    would_fit_report(report, false, found, n);
    (void)report_write(j->c, report);
}

/* Every process searches, so that they end at about the same time; rank 0 prints. */
static wf_status say_found(const job *j) {
    const options *o = &j->c->o;
    wf_program *p;
    wf_proposal *found;
    int n;
    progress waiting;
    progress_wait(j->c, &waiting);
    wf_status status =
        wf_program_create(j->c->ctx, j->model, &o->recipe, j->plan, WF_PROGRAM_TRAIN, &p);
    bool is_planned = status == WF_OK;
    if (is_planned) status = job_plan_tests(j, p);
    if (status == WF_OK) status = wf_program_fits(p, o->device_memory, o->host_memory, &found, &n);
    progress_wait_end(j->c);
    if (!is_planned) return status;
    if (status == WF_DOES_NOT_FIT) refuse(j, found, n);
    if (status == WF_DOES_NOT_FIT) wf_proposals_destroy(j->c->ctx, found, n);
    wf_program_destroy(p);
    return status;
}

exit_status job_complain_of_plan(const job *j, wf_status status) {
    if (status == WF_DOES_NOT_FIT) job_say_cap(j->c);
    exit_status bad = complain_of(j->c, status);
    if (status == WF_DOES_NOT_FIT && strcmp(j->c->o.plan, "auto") != 0)
        (void)say_found(j);
    else if (status == WF_DOES_NOT_FIT)
        refuse(j, j->would_fit, j->n_would_fit);
    return bad;
}
