/* Which rank is on which stage, and which ranks form groups. */
#include "program/program.h"

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

static wf_status allocate_groups(wf_program *p, int32_t n_groups) {
    p->n_groups = n_groups;
    p->groups = wfi_pool_alloc(&p->pool, (size_t)n_groups, sizeof *p->groups);
    if (!p->groups) return WF_NO_MEMORY;
    for (int32_t k = 0; k < n_groups; k++) {
        p->groups[k].ranks = wfi_pool_alloc(&p->pool, (size_t)p->n_ranks, sizeof(int32_t));
        if (!p->groups[k].ranks) return WF_NO_MEMORY;
    }
    return WF_OK;
}

static void join_group(wf_program *p, int32_t group, int32_t rank) {
    p->groups[group].ranks[p->groups[group].n++] = rank;
}

/* dp replicas of a pipeline: those of a stage sum, those of a pipeline share the norm. */
wf_status wfi_program_map(wf_program *p) {
    WF_TRY(allocate_groups(p, p->n_stages + p->n_replicas));
    for (int32_t s = 0; s < p->n_stages; s++) {
        wfi_stage *stage = &p->stages[s];
        stage->n_replicas = p->n_replicas;
        stage->first_rank = s;
        stage->rank_step = p->n_stages;
        WF_TRY(wfi_lanes_sum(&p->pool, p->recipe.n_lanes / p->n_replicas, 1, &stage->sums));
    }
    for (int32_t rank = 0; rank < p->n_ranks; rank++) {
        join_group(p, rank % p->n_stages, rank);
        join_group(p, p->n_stages + rank / p->n_stages, rank);
    }
    return WF_OK;
}
