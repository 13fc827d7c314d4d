/* --plan auto: the plan for all ranks that fits and is predicted to be the fastest. The recipe
 * stays, so the memory of the machine may change the plan, but no number. */
#include "job/progress.h"

#include <stdio.h>

static wf_status use_plan(job *j, const char *text) {
    wf_plan *plan;
    TRY(wf_plan_parse(j->c->ctx, text, &plan));
    wf_plan_destroy(j->plan);
    j->plan = plan;
    return job_use_devices(j->c, plan);
}

/* Creates the recipe's program for a plan to begin with. weft plan refuses the same plans as
 * weft train. */
static wf_status create_first(job *j, const char *text, wf_program **program_out) {
    wf_recipe recipe = job_recipe_of_a_step(j);
    wf_status status = use_plan(j, text);
    if (status == WF_OK) status = wf_recipe_resolve(j->c->ctx, &recipe, j->model, j->plan, &recipe);
    return status == WF_OK ? wf_program_create(j->c->ctx, j->model, &recipe, j->plan,
                                               WF_PROGRAM_TRAIN, program_out)
                           : status;
}

/* Finds the first mesh of all ranks that the recipe allows: the most replicas first, then the
 * smallest tp. Devices that cannot sum so many replicas at once sum them along a tree. If no mesh
 * is allowed, the error is that of as many replicas as the batch has samples for. */
static wf_status find_mesh(job *j, wf_program **program_out) {
    static const char *const sums[] = {"", ",allreduce=tree"};
    int n_ranks = wf_plan_n_ranks(j->plan);
    char text[96];
    for (int dp = n_ranks; dp > 0; dp--)
        for (int tp = 1; tp <= n_ranks / dp; tp++)
            for (size_t k = 0; k < sizeof sums / sizeof *sums && n_ranks % (dp * tp) == 0; k++) {
                if (k && dp == 1) continue;
                snprintf(text, sizeof text, "dp=%d,tp=%d,pp=%d%s", dp, tp, n_ranks / (dp * tp),
                         sums[k]);
                wf_status status = create_first(j, text, program_out);
                if (status != WF_INVALID_ARG && status != WF_UNSUPPORTED) return status;
            }
    int n_replicas = n_ranks;
    int64_t batch = job_recipe_of_a_step(j).batch;
    while (n_ranks % n_replicas || (batch > 0 && n_replicas > batch)) n_replicas--;
    snprintf(text, sizeof text, "dp=%d,pp=%d", n_replicas, n_ranks / n_replicas);
    wf_status status = create_first(j, text, program_out);
    if (status != WF_INVALID_ARG && status != WF_UNSUPPORTED) return status;
    char why[700];
    snprintf(why, sizeof why,
             "--plan auto: no plan for %d ranks suits the recipe; for example %s: %.500s", n_ranks,
             text, wf_context_error(j->c->ctx));
    return wf_context_fail(j->c->ctx, status, why);
}

/* Takes the first proposal for as many ranks: it is the fastest. */
static wf_status take_fastest(job *j, const wf_program *p) {
    const options *o = &j->c->o;
    wf_proposal *found;
    bool is_taken = false;
    int n;
    wf_status status = wf_program_propose(p, o->device_memory, o->host_memory, 1, &found, &n);
    for (int k = 0; k < n && status == WF_OK && !is_taken; k++) {
        wf_plan *plan;
        status = wf_plan_parse(j->c->ctx, found[k].plan, &plan);
        if (status != WF_OK) break;
        is_taken = wf_plan_n_ranks(plan) == wf_program_n_ranks(p);
        wf_plan_destroy(plan);
        if (is_taken) status = use_plan(j, found[k].plan);
    }
    wf_proposals_destroy(j->c->ctx, found, n);
    /* Where nothing fits, weft plan shows the first plan, which does not. */
    if (status != WF_OK || is_taken || j->c->command == FOR_PLAN) return status;
    status = wf_program_fits(p, o->device_memory, o->host_memory, &j->would_fit, &j->n_would_fit);
    if (status != WF_DOES_NOT_FIT) return status;
    if (o->recipe.n_micro == MICRO_AUTO) j->c->o.recipe.n_micro = 0;
    (void)job_resolve_steps(j, -1); /* for the report */
    return status;
}

wf_status job_choose_plan(job *j) {
    wf_program *p;
    progress waiting;
    progress_wait(j->c, &waiting);
    wf_status status = find_mesh(j, &p);
    if (status == WF_OK) {
        status = job_plan_tests(j, p);
        if (status == WF_OK) status = take_fastest(j, p);
        wf_program_destroy(p);
    }
    progress_wait_end(j->c);
    return status;
}
