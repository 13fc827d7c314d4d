/* --cluster: opens the cluster, and chooses the plan of --plan auto on it. */
#include "job/job.h"

#include <math.h>
#include <string.h>

exit_status job_open_cluster(job *j) {
    const options *o = &j->c->o;
    if (!o->cluster && option_is_given(o, OPT_nodes))
        return complain(EXIT_USAGE, "--nodes has no effect here: --cluster is not given");
    if (!o->cluster) return EXIT_DONE;
    wf_status status = wf_cluster_load(j->c->ctx, o->cluster, &j->cluster);
    if (status == WF_CORRUPT) return complain(EXIT_USAGE, "%s", wf_context_error(j->c->ctx));
    if (status == WF_OK && option_is_given(o, OPT_nodes))
        status = wf_cluster_set_nodes(j->cluster, o->nodes);
    return complain_of(j->c, status);
}

wf_prediction_request job_request(const job *j) {
    wf_prediction_request q = WF_PREDICTION_REQUEST_INIT;
    q.cluster = j->cluster;
    q.model = j->model;
    q.recipe = &j->c->o.recipe;
    q.plan = j->plan;
    return q;
}

/* Makes choice k the plan, with the recipe's fields that were not given, and drops those before. */
static wf_status take(job *j, int k) {
    wf_recipe *r = &j->c->o.recipe;
    wf_plan *plan;
    wf_status status = wf_plan_parse(j->c->ctx, j->choices[k].plan, &plan);
    if (status != WF_OK) return status;
    wf_plan_destroy(j->plan);
    j->plan = plan;
    j->n_choices -= k;
    memmove(j->choices, j->choices + k, (size_t)j->n_choices * sizeof *j->choices);
    r->n_micro = j->choices->n_micro;
    r->n_lanes = j->given.n_lanes ? j->given.n_lanes : j->choices->n_lanes;
    r->n_slices = j->given.n_slices ? j->given.n_slices : j->choices->n_slices;
    return WF_OK;
}

wf_status job_choose_on_cluster(job *j) {
    wf_prediction_request q = job_request(j);
    wf_recipe *r = &j->c->o.recipe;
    if (r->n_micro == MICRO_AUTO) r->n_micro = 0;
    j->given = *r;
    j->choices[0] = (wf_choice)WF_CHOICE_INIT;
    wf_status status =
        wf_cluster_search(j->c->ctx, &q, WF_MAX_PROPOSALS, j->choices, &j->n_choices);
    wf_recipe own = job_recipe_of_a_step(j);
    if (status == WF_OK && !j->n_choices)
        status = wf_recipe_resolve(j->c->ctx, &own, j->model, NULL, &own);
    if (status == WF_OK && !j->n_choices)
        return wf_context_fail(j->c->ctx, WF_INVALID_ARG,
                               "--plan auto: no plan on this cluster suits the recipe");
    return status == WF_OK ? take(j, 0) : status;
}

/* ---- another choice ---- */

#define MOST_TRIES 6

/* Bytes that a rank needs more than it has. */
static double missing_bytes(const job *j, const wf_program *p) {
    size_t most = 0;
    for (int r = 0; r < wf_program_n_ranks(p); r++) {
        size_t peak = wf_program_rank(p, r).peak_bytes;
        if (peak > most) most = peak;
    }
    return most > j->c->o.device_memory ? (double)(most - j->c->o.device_memory) : 0;
}

/* Searches plans with a peak that is smaller by so much. False: nothing fits so. */
static bool search_smaller(job *j, double missing) {
    wf_prediction_request q = job_request(j);
    const wf_prediction *p = &j->choices->prediction;
    wf_choice found[WF_MAX_PROPOSALS] = {WF_CHOICE_INIT};
    int n;
    q.recipe = &j->given;
    q.device_bytes = fmax(1, p->peak_bytes - p->library_bytes - missing);
    if (wf_cluster_search(j->c->ctx, &q, WF_MAX_PROPOSALS, found, &n) != WF_OK) return false;
    if (!n || !found->prediction.fits) return false;
    memcpy(j->choices, found, (size_t)n * sizeof *found);
    j->n_choices = n;
    return take(j, 0) == WF_OK;
}

bool job_take_another(job *j, wf_status *status, wf_program **program) {
    double missing = *status == WF_OK ? missing_bytes(j, *program) : 0;
    bool is_refused = *status == WF_INVALID_ARG || *status == WF_UNSUPPORTED;
    if (!j->n_choices || ++j->n_tries == MOST_TRIES) return false;
    if (is_refused ? j->n_choices == 1 || take(j, 1) != WF_OK
                   : missing <= 0 || !search_smaller(j, missing))
        return false;
    wf_program_destroy(*program);
    *program = NULL;
    *status = job_resolve_steps(j, -1);
    return true;
}
