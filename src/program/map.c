/* Which rank is on which stage, and which ranks form groups. */
#include "program/program.h"

#include <string.h>

int32_t wfi_stage_replica_on(const wf_program *p, int32_t stage, int32_t rank) {
    const wfi_stage *s = &p->stages[stage];
    int32_t distance = rank - s->first_rank;
    if (distance < 0 || distance % s->rank_step) return -1;
    return distance / s->rank_step < s->n_replicas ? distance / s->rank_step : -1;
}

int32_t wfi_group_find(const wfi_group *group, int32_t rank) {
    for (int32_t k = 0; k < group->n; k++)
        if (group->ranks[k] == rank) return k;
    return -1;
}

int32_t wfi_program_kernel_set(const wf_program *p, int32_t rank) {
    return rank / p->stages[0].rank_step;
}

bool wfi_stage_is_held(const wf_program *p, int32_t stage, int32_t rank) {
    int32_t replica = wfi_stage_replica_on(p, stage, rank);
    return replica == 0 || (replica > 0 && !p->stages[stage].is_rooted);
}

/* Stages, and as many groups more. */
static wf_status allocate(wf_program *p, int32_t n_stages, int32_t n_more) {
    p->n_stages = n_stages;
    p->n_groups = n_stages + n_more;
    p->first_unit = wfi_pool_alloc(&p->pool, (size_t)n_stages + 1, sizeof *p->first_unit);
    p->stages = wfi_pool_alloc(&p->pool, (size_t)n_stages, sizeof *p->stages);
    p->ranks = wfi_pool_alloc(&p->pool, (size_t)p->n_ranks, sizeof *p->ranks);
    p->groups = wfi_pool_alloc(&p->pool, (size_t)p->n_groups, sizeof *p->groups);
    if (!p->first_unit || !p->stages || !p->ranks || !p->groups) return WF_NO_MEMORY;
    for (int32_t k = 0; k < p->n_groups; k++) {
        p->groups[k].ranks = wfi_pool_alloc(&p->pool, (size_t)p->n_ranks, sizeof(int32_t));
        if (!p->groups[k].ranks) return WF_NO_MEMORY;
    }
    return WF_OK;
}

static void join_group(wf_program *p, int32_t group, int32_t rank) {
    p->groups[group].ranks[p->groups[group].n++] = rank;
}

/* ---- replicas of a pipeline ---- */

/* Those of a stage sum, those of a pipeline share the norm. */
static wf_status map_pipeline(wf_program *p, const wf_program *like) {
    int32_t n_stages = p->plan->pp;
    p->n_replicas = p->kind == WF_PROGRAM_TRAIN ? p->plan->dp : 1;
    p->n_ranks = n_stages * p->n_replicas;
    WF_TRY(allocate(p, n_stages, p->n_replicas));
    for (int32_t s = 0; s < n_stages; s++) {
        p->stages[s] = (wfi_stage){p->n_replicas, s, n_stages, {0}, false};
        WF_TRY(wfi_lanes_sum(&p->pool, p->recipe.n_lanes / p->n_replicas, 1, &p->stages[s].sums));
    }
    for (int32_t rank = 0; rank < p->n_ranks; rank++) {
        join_group(p, rank % n_stages, rank);
        join_group(p, n_stages + rank / n_stages, rank);
    }
    if (!like)
        return wfi_plan_stages(p->plan, p->graph, p->costs, (int)wfi_stage_n_micro(p, 0),
                               p->first_unit);
    memcpy(p->first_unit, like->first_unit, ((size_t)n_stages + 1) * sizeof *p->first_unit);
    return WF_OK;
}

/* ---- units that are spread from rank 0 over others ---- */

/* A stage is a run of units that are spread alike. */
static void cut_stages(wf_program *p, const int32_t *spread_of) {
    const wf_plan *plan = p->plan;
    p->n_stages = 0;
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        if (u > 0 && spread_of[u] == spread_of[u - 1]) continue;
        const wfi_spread *spread = spread_of[u] < 0 ? NULL : &plan->spreads[spread_of[u]];
        wfi_stage *stage = &p->stages[p->n_stages];
        p->first_unit[p->n_stages++] = u;
        *stage = (wfi_stage){.n_replicas = 1, .rank_step = 1};
        if (p->kind != WF_PROGRAM_TRAIN) continue; /* forward runs are rank 0's */
        if (spread) {
            stage->n_replicas = wfi_spread_width(spread, p->recipe.n_micro);
            stage->is_rooted = spread->is_rooted;
        } else if (u == p->graph->loss_unit) {
            stage->first_rank = plan->output;
        }
    }
    p->first_unit[p->n_stages] = p->graph->n_units;
}

/* The replicas of the stage that has most work at the same time, and so do those of its lanes
 * that go to another of them. */
static wf_status sum_lanes(wf_program *p) {
    for (int32_t s = 0; s < p->n_stages; s++)
        if (p->stages[s].n_replicas > p->n_replicas) p->n_replicas = p->stages[s].n_replicas;
    for (int32_t s = 0; s < p->n_stages; s++) {
        wfi_stage *stage = &p->stages[s];
        if (p->n_replicas % stage->n_replicas)
            return wfi_fail(p->ctx, WF_INVALID_ARG,
                            "plan: units are spread over %d and over %d ranks; the smaller number "
                            "has to divide the larger",
                            stage->n_replicas, p->n_replicas);
        WF_TRY(wfi_lanes_sum(&p->pool, p->recipe.n_lanes / stage->n_replicas,
                             p->n_replicas / stage->n_replicas, &stage->sums));
    }
    return WF_OK;
}

/* The norm is shared by all that update. */
static wf_status map_spreads(wf_program *p) {
    p->is_spread = true;
    p->n_ranks = p->kind == WF_PROGRAM_TRAIN ? wf_plan_n_ranks(p->plan) : 1;
    int32_t *spread_of = wfi_pool_alloc(&p->pool, (size_t)p->graph->n_units, sizeof *spread_of);
    if (!spread_of) return WF_NO_MEMORY;
    WF_TRY(wfi_plan_find_spreads(p->plan, p->graph, spread_of));
    WF_TRY(allocate(p, p->graph->n_units, 1));
    cut_stages(p, spread_of);
    p->n_groups = p->n_stages + 1;
    WF_TRY(sum_lanes(p));
    for (int32_t rank = 0; rank < p->n_ranks; rank++) {
        bool updates = false;
        for (int32_t s = 0; s < p->n_stages; s++) {
            if (wfi_stage_replica_on(p, s, rank) >= 0) join_group(p, s, rank);
            updates |= wfi_stage_is_held(p, s, rank) && s + 1 < p->n_stages;
        }
        if (updates) join_group(p, p->n_stages, rank);
    }
    return WF_OK;
}

wf_status wfi_program_map(wf_program *p, const wf_program *like) {
    return p->plan->n_spreads ? map_spreads(p) : map_pipeline(p, like);
}
