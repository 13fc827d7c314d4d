/* The plans that would fit where the one that was given does not. */
#include "common/text.h"
#include "job/progress.h"

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
    if (found[0].n_layers)
        fprintf(out, "with the first, a model of %lld layer%s would fit, too\n",
                (long long)found[0].n_layers, found[0].n_layers == 1 ? "" : "s");
    if (!fclose(out) && to_stderr) fputs(text, stderr);
    if (text && !to_stderr) say(c, "%s", text);
    free(text);
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
    if (status == WF_DOES_NOT_FIT && j->c->is_root) would_fit_say(j->c, found, n, true);
    if (status == WF_DOES_NOT_FIT) wf_proposals_destroy(j->c->ctx, found, n);
    wf_program_destroy(p);
    return status;
}

exit_status job_complain_of_plan(const job *j, wf_status status) {
    if (status == WF_DOES_NOT_FIT) job_say_cap(j->c);
    exit_status bad = complain_of(j->c, status);
    if (status == WF_DOES_NOT_FIT && strcmp(j->c->o.plan, "auto") != 0)
        (void)say_found(j);
    else if (status == WF_DOES_NOT_FIT && j->c->is_root)
        would_fit_say(j->c, j->would_fit, j->n_would_fit, true);
    return bad;
}
