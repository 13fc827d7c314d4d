/* The plans that would fit where the one that was given does not. */
#include "job.h"
#include "text.h"

#include <string.h>

/* Lanes are named, as another number of microbatches would have others by default. */
void would_fit_say(const wf_proposal *found, int n) {
    char peak[TEXT_BYTES], slices[TEXT_BYTES];
    if (!n)
        complain(EXIT_DOES_NOT_FIT,
                 "none of the other plans and numbers of microbatches that were tried would fit");
    if (n) fprintf(stderr, "these would fit:\n%11s %12s\n", "peak", "step");
    for (int k = 0; k < n; k++) {
        snprintf(slices, sizeof slices, " --slices %lld", (long long)found[k].n_slices);
        fprintf(stderr, "%11s %9.1f ms  --plan %s --micro %lld --lanes %lld%s\n",
                text_of_bytes(peak, (double)found[k].peak_bytes), found[k].step_us / 1e3,
                found[k].plan, (long long)found[k].n_micro, (long long)found[k].n_lanes,
                found[k].n_slices > 1 ? slices : "");
    }
    if (n && found[0].n_layers)
        fprintf(stderr, "with the first, a model of %lld layer%s would fit, too\n",
                (long long)found[0].n_layers, found[0].n_layers == 1 ? "" : "s");
}

/* Every process searches, so that they end at about the same time; rank 0 prints. */
static wf_status say_found(const job *j) {
    const options *o = &j->c->o;
    wf_program *p;
    wf_proposal *found;
    int n;
    wf_status status =
        wf_program_create(j->c->ctx, j->model, &o->recipe, j->plan, WF_PROGRAM_TRAIN, &p);
    if (status != WF_OK) return status;
    status = job_plan_tests(j, p);
    if (status == WF_OK) status = wf_program_fits(p, o->device_memory, o->host_memory, &found, &n);
    if (status == WF_DOES_NOT_FIT && j->c->is_root) would_fit_say(found, n);
    if (status == WF_DOES_NOT_FIT) wf_proposals_destroy(j->c->ctx, found, n);
    wf_program_destroy(p);
    return status;
}

exit_status job_complain_of_plan(const job *j, wf_status status) {
    exit_status bad = complain_of(j->c, status);
    if (status == WF_DOES_NOT_FIT && strcmp(j->c->o.plan, "auto") != 0)
        (void)say_found(j);
    else if (status == WF_DOES_NOT_FIT && j->c->is_root)
        would_fit_say(j->would_fit, j->n_would_fit);
    return bad;
}
