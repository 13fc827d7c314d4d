/* schedule=auto: whether each rank has one stage, or several. Each choice is judged by cheap
 * figures: its lists, with the times of its stages. */
#include "lower/schedule.h"
#include "plan/schedule/timing.h"

#include <math.h>

/* More stages a rank are more transfers, which cost more than is simulated: they have to be worth
 * it. */
#define LEAST_GAIN 0.01

typedef struct choice {
    const wfi_schedule *schedule;
    int chunks;
    double makespan;
} choice;

/* A number of stages that the plan or the model speaks of. */
static bool is_cut(const wf_program *p) {
    const char *cut = p->plan->cut;
    int n_marked = 1;
    for (int32_t u = 1; u < p->graph->n_units; u++) n_marked += p->graph->units[u].begins_stage;
    return cut ? strcmp(cut, WFI_CUT_BALANCED) != 0 : n_marked == p->plan->pp;
}

static wf_status simulate(const wf_program *p, wfi_pool *pool, choice *c) {
    wfi_schedule_request request;
    wfi_action_list *lists = NULL;
    wfi_timing timing = {0};
    int n_micro = (int)wfi_max_i64(p->recipe.n_micro / p->plan->dp, 1);
    size_t n_stages = (size_t)wfi_plan_n_stages(p->plan, p->graph->n_units);
    int32_t *first_unit = wfi_pool_alloc(pool, n_stages + 1, sizeof *first_unit);
    if (!first_unit) return WF_NO_MEMORY;
    WF_TRY(wfi_plan_stages(p->plan, p->graph, p->costs, n_micro, first_unit));
    WF_TRY(wfi_program_request(p, first_unit, pool, &request));
    WF_TRY(wfi_timing_init(p->ctx, &request, &timing));
    wf_status status = wfi_schedule_make(p->ctx, p->plan->schedule, &request, &lists);
    if (status == WF_OK) status = wfi_timing_run(&request, lists, &timing);
    c->makespan = timing.makespan;
    for (int d = 0; d < request.n_devices && status == WF_OK; d++)
        if (timing.peak[d] > request.hold) c->makespan = INFINITY;
    wfi_schedule_free(p->ctx, lists, request.n_devices);
    wfi_timing_release(&timing);
    return status;
}

wf_status wfi_program_choose_chunks(const wf_program *p) {
    wf_plan *plan = p->plan;
    choice best = {plan->schedule, 0, INFINITY};
    wf_status status = WF_OK;
    for (int k = 0; k < WFI_N_AUTO_CHOICES && !is_cut(p) && status == WF_OK; k++) {
        wfi_pool pool;
        plan->schedule = wfi_auto_choices[k].schedule;
        plan->chunks = wfi_auto_choices[k].n_chunks;
        choice c = {plan->schedule, plan->chunks, INFINITY};
        if (wfi_plan_n_stages(plan, p->graph->n_units) > p->graph->n_units) break;
        wfi_pool_init(&pool, p->ctx);
        status = simulate(p, &pool, &c);
        wfi_pool_release(&pool);
        /* Not every unit may begin a stage: there are fewer stages than units. */
        if (status == WF_INVALID_ARG && plan->pp > 1 && best.makespan < INFINITY) status = WF_OK;
        if (c.makespan < best.makespan * (1 - (k ? LEAST_GAIN : 0))) best = c;
    }
    plan->schedule = best.schedule;
    plan->chunks = best.chunks > 1 ? best.chunks : 0;
    if (plan->schedule != &wfi_schedule_auto) plan->hold = 0; /* it holds no more */
    return status == WF_OK ? wfi_plan_complete(plan) : status;
}
