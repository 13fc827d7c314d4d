/* --cluster: opens the cluster, and chooses the plan of --plan auto on it. */
#include "job/fitting.h"

#include <math.h>
#include <stdlib.h>
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

wf_prediction_request job_request_within(const job *j) {
    wf_prediction_request q = job_request(j);
    q.device_bytes = (double)j->c->o.device_memory;
    q.host_bytes = (double)j->c->o.host_memory;
    return q;
}

/* Makes a choice the plan, with the recipe's fields that were not given. Other choices that are no
 * faster remain. */
static wf_status take(job *j, const wf_choice *choice) {
    wf_recipe *r = &j->c->o.recipe;
    wf_choice all[WF_MAX_PROPOSALS] = {*choice};
    wf_plan *plan;
    wf_status status = wf_plan_parse(j->c->ctx, choice->plan, &plan);
    int n = 1;
    if (status != WF_OK) return status;
    wf_plan_destroy(j->plan);
    j->plan = plan;
    for (int k = 0; k < j->n_choices && n < WF_MAX_PROPOSALS; k++) {
        const wf_choice *other = &j->choices[k];
        bool is_faster = (1 + TIE) * other->prediction.step_ms < choice->prediction.step_ms;
        bool is_same = !strcmp(other->plan, choice->plan);
        if (other->prediction.fits && !is_faster && !is_same) all[n++] = *other;
    }
    memcpy(j->choices, all, (size_t)n * sizeof *all);
    j->n_choices = n;
    r->n_micro = choice->n_micro;
    r->n_lanes = j->given.n_lanes ? j->given.n_lanes : choice->n_lanes;
    r->n_slices = j->given.n_slices ? j->given.n_slices : choice->n_slices;
    return WF_OK;
}

static bool take_next(job *j) {
    const wf_choice *next = fitting_next(j);
    return next && take(j, next) == WF_OK;
}

wf_status job_choose_on_cluster(job *j) {
    wf_prediction_request q = job_request_within(j);
    wf_recipe *r = &j->c->o.recipe;
    if (r->n_micro == MICRO_AUTO) r->n_micro = 0;
    j->given = *r;
    j->list = calloc(1, sizeof *j->list);
    if (!j->list) return WF_NO_MEMORY;
    j->list->j = j;
    j->list->is_limited = q.device_bytes > 0 || q.host_bytes > 0;
    j->choices[0] = (wf_choice)WF_CHOICE_INIT;
    wf_status status =
        wf_cluster_search(j->c->ctx, &q, WF_MAX_PROPOSALS, j->choices, &j->n_choices);
    wf_recipe own = job_recipe_of_a_step(j);
    if (status == WF_OK && !j->n_choices)
        status = wf_recipe_resolve(j->c->ctx, &own, j->model, NULL, &own);
    if (status == WF_OK && !j->n_choices)
        return wf_context_fail(j->c->ctx, WF_INVALID_ARG,
                               "--plan auto: no plan on this cluster suits the recipe");
    return status == WF_OK ? take(j, j->choices) : status;
}

/* The needs of the program as a share of the limits: at most 1 if it fits. */
static double needs_of(const job *j, const wf_program *p) {
    const options *o = &j->c->o;
    double most = 0;
    for (int r = 0; r < wf_program_n_ranks(p); r++) {
        wf_rank_summary rank = wf_program_rank(p, r);
        most = fmax(most, (double)rank.peak_bytes / (double)o->device_memory);
        if (o->host_memory)
            most = fmax(most, (double)rank.host_peak_bytes / (double)o->host_memory);
    }
    return most;
}

static bool is_refusal(wf_status status) {
    return status == WF_INVALID_ARG || status == WF_UNSUPPORTED;
}

bool job_take_another(job *j, wf_status *status, wf_program **program) {
    struct job_list *l = j->list;
    if (!j->n_choices || l->has_ended || (*status != WF_OK && !is_refusal(*status))) return false;
    double needs = *status == WF_OK ? needs_of(j, *program) : INFINITY;
    if (*status == WF_OK) fitting_remember(j, needs);
    if (needs <= 1 && fitting_is_fastest(l)) return false;
    if ((!l->items && !fitting_list(j, needs)) || !take_next(j)) return false;
    while (is_refusal(*status = job_resolve_steps(j, -1)) && take_next(j)) continue;
    wf_program_destroy(*program);
    *program = NULL;
    return true;
}
