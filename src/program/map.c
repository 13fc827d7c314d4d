/* Units that are placed alike are a stage; the ranks that it is on, and which ranks form groups. */
#include "program/map.h"
#include "optimizer/optimizer.h"
#include "program/change.h"

int32_t wfi_stage_member_on(const wf_program *p, int32_t stage, int32_t rank) {
    const wfi_stage *s = &p->stages[stage];
    int32_t member = wfi_mesh_at(&p->mesh, WFI_DP, rank) - s->first_dp;
    bool is_on =
        wfi_mesh_at(&p->mesh, WFI_PP, rank) == s->pp && member >= 0 && member < s->n_members;
    return is_on ? member : -1;
}

int32_t wfi_stage_replica_on(const wf_program *p, int32_t stage, int32_t rank) {
    int32_t member = wfi_stage_member_on(p, stage, rank);
    return member < p->stages[stage].n_replicas ? member : -1;
}

int32_t wfi_group_find(const wfi_group *group, int32_t rank) {
    int32_t low = 0, high = group->n;
    WFI_BISECT(low, high, middle, group->ranks[middle] < rank);
    return low < group->n && group->ranks[low] == rank ? low : -1;
}

int32_t wfi_stage_members(const wf_program *p, int32_t stage, int32_t rank) {
    return stage * wfi_mesh_n_groups(&p->mesh, WFI_STAGE_AXES) +
           wfi_mesh_group(&p->mesh, WFI_STAGE_AXES, rank);
}

/* The first group of some members of the stage, of those along the rank's stage axes. */
static int32_t first_some(const wf_program *p, const wfi_stage *s, int32_t rank) {
    int32_t n = s->n_members / s->n_parts + s->n_parts;
    return s->first_group + wfi_mesh_group(&p->mesh, WFI_STAGE_AXES, rank) * n;
}

int32_t wfi_stage_shards(const wf_program *p, int32_t stage, int32_t rank) {
    const wfi_stage *s = &p->stages[stage];
    bool is_all = s->first_group < 0;
    return is_all ? wfi_stage_members(p, stage, rank)
                  : first_some(p, s, rank) + wfi_stage_member_on(p, stage, rank) / s->n_parts;
}

int32_t wfi_stage_copies(const wf_program *p, int32_t stage, int32_t rank) {
    const wfi_stage *s = &p->stages[stage];
    if (s->first_group < 0) return -1;
    return first_some(p, s, rank) + s->n_members / s->n_parts +
           wfi_stage_member_on(p, stage, rank) % s->n_parts;
}

/* ---- where things of units are ---- */

bool wfi_stage_is_updated(const wf_program *p, int32_t stage, int32_t rank) {
    int32_t replica = wfi_stage_replica_on(p, stage, rank);
    return replica >= 0 && wfi_placement_has(p->stages[stage].strategy->state, replica, replica);
}

bool wfi_is_kept_apart(const wf_program *p, wfi_block_kind kind, int32_t unit) {
    const wfi_stage *stage = &p->stages[wfi_program_stage_of(p, unit)];
    bool is_slice =
        kind == WFI_BLOCK_PARAM && stage->strategy->parameter == WFI_SHARD && stage->n_parts > 1;
    return is_slice || wfi_is_offloaded(p, kind);
}

wfi_extent wfi_norm_extent(wfi_extent gradient) {
    const size_t block = WFI_NORM_BLOCK_ELEMENTS * sizeof(float);
    return (wfi_extent){gradient.offset / block * sizeof(double),
                        (gradient.bytes + block - 1) / block * sizeof(double)};
}

wfi_name wfi_summed_name(const wf_program *p, int32_t unit) {
    const wfi_stage *stage = &p->stages[wfi_program_stage_of(p, unit)];
    wfi_name name = wfi_of_unit(WFI_BLOCK_GRADIENT, unit);
    if (stage->strategy->frees_gradient && stage->n_parts > 1) name.copy = WFI_COPY_PART;
    return name;
}

/* At most as many stages as units. Groups are of each stage's members, of ranks that share a norm,
 * and of ranks that divide slices. */
static wf_status allocate(wf_program *p) {
    size_t dp = (size_t)p->mesh.dp, n_shard = (size_t)wfi_max_i64(p->plan->shard, 1);
    size_t n_units = (size_t)p->graph->n_units,
           n_some = p->plan->shard ? dp / n_shard + n_shard : 0;
    size_t n_groups = n_units * (1 + n_some) * (size_t)wfi_mesh_n_groups(&p->mesh, WFI_STAGE_AXES) +
                      dp + (size_t)wfi_mesh_n_groups(&p->mesh, WFI_ALONG(WFI_TP));
    p->first_unit = wfi_pool_alloc(&p->pool, n_units + 1, sizeof *p->first_unit);
    p->stage_of = wfi_pool_alloc(&p->pool, n_units, sizeof *p->stage_of);
    p->stages = wfi_pool_alloc(&p->pool, n_units, sizeof *p->stages);
    p->ranks = wfi_pool_alloc(&p->pool, (size_t)p->n_ranks, sizeof *p->ranks);
    p->groups = wfi_pool_alloc(&p->pool, n_groups, sizeof *p->groups);
    return p->first_unit && p->stage_of && p->stages && p->ranks && p->groups ? WF_OK
                                                                              : WF_NO_MEMORY;
}

/* ---- stages ---- */

/* Where the pipeline is cut: first_unit[n_stages + 1]. */
static wf_status cut_pipeline(const wf_program *p, const wf_program *like, int32_t *first_unit) {
    int64_t n_micro = wfi_max_i64(p->recipe.n_micro / p->mesh.dp, 1);
    if (!like) return wfi_plan_stages(p->plan, p->graph, p->costs, (int)n_micro, first_unit);
    for (int32_t s = like->n_stages - 1; s >= 0; s--)
        first_unit[like->stages[s].number] = like->first_unit[s];
    first_unit[wfi_plan_n_stages(p->plan, p->graph->n_units)] = p->graph->n_units;
    return WF_OK;
}

static bool same_placement(const wfi_unit_placement *a, const wfi_unit_placement *b) {
    return a->strategy == b->strategy && a->stage == b->stage && a->first_dp == b->first_dp &&
           a->n_replicas == b->n_replicas && a->n_parts == b->n_parts;
}

/* How many ranks a forward run takes: it is that of one replica, but all that have a part of its
 * parameters bring it. */
static int32_t forward_width(const wfi_strategy *strategy, int32_t n_parts) {
    return strategy->parameter == WFI_SHARD ? n_parts : 1;
}

static void join_units(wf_program *p, wfi_unit_placement *units) {
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        bool is_divided = units[u].strategy->state == WFI_SHARD;
        if (!wfi_differentiates(p))
            units[u] =
                (wfi_unit_placement){.strategy = is_divided ? units[u].strategy : &wfi_strategy_dp,
                                     .stage = units[u].stage,
                                     .pp = units[u].pp,
                                     .n_replicas = 1,
                                     .n_parts = is_divided ? units[u].n_parts : 1};
        bool begins = !u || !same_placement(&units[u], &units[u - 1]);
        p->stage_of[u] = p->n_stages - !begins;
        if (!begins) continue;
        p->first_unit[p->n_stages] = u;
        p->stages[p->n_stages++] = (wfi_stage){.strategy = units[u].strategy,
                                               .number = units[u].stage,
                                               .pp = units[u].pp,
                                               .first_dp = units[u].first_dp,
                                               .n_replicas = units[u].n_replicas,
                                               .n_members = units[u].n_replicas,
                                               .n_parts = units[u].n_parts,
                                               .first_group = -1};
        if (!wfi_differentiates(p))
            p->stages[p->n_stages - 1].n_members =
                forward_width(units[u].strategy, units[u].n_parts);
        if (units[u].n_replicas > p->n_replicas) p->n_replicas = units[u].n_replicas;
    }
    p->first_unit[p->n_stages] = p->graph->n_units;
    for (int32_t u = 0; u < p->graph->n_units; u++)
        p->stages[p->stage_of[u]].is_trained |= p->graph->units[u].trained_bytes > 0;
}

/* A step of one microbatch divides state as the training step beside it does. */
static wf_status place_units(wf_program *p, const wf_program *like) {
    size_t n_units = (size_t)p->graph->n_units;
    size_t n_stages = (size_t)wfi_plan_n_stages(p->plan, p->graph->n_units);
    int32_t *first_unit = wfi_pool_alloc(&p->pool, n_stages + 1, sizeof *first_unit);
    wfi_unit_placement *units = wfi_pool_alloc(&p->pool, n_units, sizeof *units);
    if (!first_unit || !units) return WF_NO_MEMORY;
    WF_TRY(cut_pipeline(p, like, first_unit));
    WF_TRY(wfi_plan_place(p->plan, p->graph, first_unit, (like ? like : p)->recipe.n_micro, units));
    join_units(p, units);
    return WF_OK;
}

/* Replicas with equal parts are planned once (classes.c). So small tensors do not rotate among many
 * replicas, nor if they have less than this part of the bytes that a replica keeps. */
#define SMALL_SHARE 32

static void choose_small(wf_program *p) {
    size_t all = 0, small = 0;
    int32_t most = 1;
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        int32_t n = p->stages[p->stage_of[u]].n_parts;
        size_t bytes = p->graph->units[u].param_bytes;
        all += bytes;
        if (wfi_placement_is_small(bytes, n)) small += bytes;
        if (n > most) most = n;
    }
    p->rotates_small = most <= WFI_MOST_ROTATING && small > all / (size_t)most / SMALL_SHARE;
}

/* Lists each stage once for each unit that it reads parameters of: those of unit u come from
 * readers[first[u]] on, which goes to their end; without `readers` they are counted, in first[u +
 * 2]. */
static void list_readers(const wf_program *p, int32_t *last, int32_t *first, int32_t *readers) {
    for (int32_t u = 0; u < p->graph->n_units; u++) last[u] = -1;
    for (int32_t k = 0; k < p->graph->n_units; k++)
        for (int part = 0; part < 2 * WFI_N_PARTS; part++) {
            const wfi_unit_code *unit = &p->code->units[k];
            const wfi_segment *segment = (part % 2 ? unit->pack : unit->part)[part / 2];
            for (int32_t s = 0; segment && s < segment->n_slots; s++) {
                int32_t u = segment->slots[s].id;
                if (segment->slots[s].kind != WFI_BLOCK_PARAM || last[u] == p->stage_of[k])
                    continue;
                last[u] = p->stage_of[k];
                if (readers) readers[first[u]] = last[u];
                first[readers ? u : u + 2]++;
            }
        }
}

static wf_status find_readers(wf_program *p) {
    size_t n = (size_t)p->graph->n_units;
    int32_t *first = wfi_pool_alloc(&p->pool, n + 2, sizeof *first);
    int32_t *last = wfi_pool_alloc(&p->pool, n, sizeof *last);
    if (!first || !last) return WF_NO_MEMORY;
    list_readers(p, last, first, NULL);
    for (size_t u = 0; u < n; u++) first[u + 2] += first[u + 1];
    p->first_reader = first;
    p->readers = wfi_pool_alloc(&p->pool, (size_t)first[n + 1], sizeof *p->readers);
    if (p->readers) list_readers(p, last, first + 1, p->readers);
    return p->readers ? WF_OK : WF_NO_MEMORY;
}

/* A weight that is divided goes slice by slice to other stages that use it: rank by rank. */
static wf_status check_tied(const wf_program *p) {
    const wf_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        int32_t user = g->weight_gradients[i].unit, owner = wfi_owner_of(g, i);
        const wfi_stage *a = &p->stages[wfi_program_stage_of(p, owner)];
        const wfi_stage *b = &p->stages[wfi_program_stage_of(p, user)];
        bool is_divided = a->strategy->state == WFI_SHARD || b->strategy->state == WFI_SHARD;
        bool is_alike = a->strategy == b->strategy && a->n_replicas == b->n_replicas;
        if (is_divided && !is_alike)
            return wfi_fail(p->ctx, WF_INVALID_ARG,
                            "plan: units %s and %s share a weight, so they need the same strategy "
                            "over the same number of ranks",
                            g->units[owner].name, g->units[user].name);
    }
    return WF_OK;
}

/* Whether the lanes of the stage may be complete later than they are filled: where weight gradients
 * wait, another stage's use of a weight may come after the weight's own. */
static bool waits_for_ties(const wf_program *p, int32_t stage) {
    const wf_graph *g = p->graph;
    bool waits = false;
    for (int32_t i = 0; i < g->n_weight_gradients && p->plan->schedule->splits_weight; i++)
        waits |= wfi_program_stage_of(p, wfi_owner_of(g, i)) == stage &&
                 wfi_program_stage_of(p, g->weight_gradients[i].unit) != stage;
    return waits;
}

static bool is_uneven(const wf_program *p, const wfi_stage *stage) {
    return p->plan->lanes && stage->n_replicas > 1;
}

/* Which microbatches each replica has: its lanes. */
static wf_status share_lanes(wf_program *p, wfi_stage *stage) {
    size_t n = (size_t)stage->n_replicas;
    stage->first_micro = wfi_pool_alloc(&p->pool, n + 1, sizeof *stage->first_micro);
    stage->sums = wfi_pool_alloc(&p->pool, n, sizeof *stage->sums);
    if (!stage->first_micro || !stage->sums) return WF_NO_MEMORY;
    WF_TRY(wfi_lanes_share(&p->pool, p->recipe.n_lanes, stage->n_replicas,
                           is_uneven(p, stage) ? p->plan->lanes : NULL, &stage->shares));
    for (size_t k = 0; k <= n; k++)
        stage->first_micro[k] = stage->shares.first[k] * (p->recipe.n_micro / p->recipe.n_lanes);
    return WF_OK;
}

/* The replicas of the stage that has most work at the same time, and so do those of a stage's lanes
 * that go to another of them. */
static wf_status sum_lanes(wf_program *p) {
    for (int32_t s = 0; s < p->n_stages; s++) {
        wfi_stage *stage = &p->stages[s];
        if (p->n_replicas % stage->n_replicas)
            return wfi_fail(p->ctx, WF_INVALID_ARG,
                            "plan: units have %d and %d replicas; the smaller number has to divide "
                            "the larger",
                            stage->n_replicas, p->n_replicas);
        WF_TRY(share_lanes(p, stage));
        for (int32_t k = 0; k < (is_uneven(p, stage) ? stage->n_replicas : 1); k++) {
            int64_t n_lanes = stage->shares.first[k + 1] - stage->shares.first[k];
            int64_t n_groups = waits_for_ties(p, s) ? n_lanes : p->n_replicas / stage->n_replicas;
            WF_TRY(wfi_lanes_sum(&p->pool, &stage->shares, k, n_groups, &stage->sums[k]));
        }
    }
    return WF_OK;
}

/* ---- groups ---- */

static wf_status add_group(wf_program *p, int32_t most, wfi_group **group_out) {
    wfi_group *group = &p->groups[p->n_groups++];
    *group = (wfi_group){.stage = -1, .n_each = 1, .part = -1};
    group->ranks = wfi_pool_alloc(&p->pool, (size_t)most, sizeof *group->ranks);
    *group_out = group;
    return group->ranks ? WF_OK : WF_NO_MEMORY;
}

/* Every `step`th member of the stage, in group `at` along the stage axes. */
static wf_status group_members(wf_program *p, int32_t stage, int32_t at, int32_t first, int32_t n,
                               int32_t step, int32_t part) {
    int32_t rank = wfi_mesh_first(&p->mesh, WFI_STAGE_AXES, at);
    wfi_group *group;
    WF_TRY(add_group(p, n, &group));
    group->stage = stage;
    group->first = part < 0 ? first : 0;
    group->n_each = step;
    group->part = part;
    for (; group->n < n; group->n++)
        group->ranks[group->n] = wfi_program_rank_of(p, first + group->n * step, stage, rank);
    return WF_OK;
}

/* Replicas with the same part have already summed within their group. */
static wf_status group_replicas(wf_program *p) {
    int32_t n = wfi_mesh_n_groups(&p->mesh, WFI_STAGE_AXES);
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t at = 0; at < n; at++)
            WF_TRY(group_members(p, s, at, 0, p->stages[s].n_members, 1, -1));
    for (int32_t s = 0; s < p->n_stages; s++) {
        wfi_stage *stage = &p->stages[s];
        int32_t n_parts = stage->n_parts, n_copies = stage->n_members / n_parts;
        /* A forward run may have fewer members than there are parts: it updates none. */
        if (n_parts >= stage->n_members || stage->strategy->state != WFI_SHARD) continue;
        stage->first_group = p->n_groups;
        for (int32_t at = 0; at < n; at++) {
            for (int32_t k = 0; k < n_copies; k++)
                WF_TRY(group_members(p, s, at, k * n_parts, n_parts, 1, -1));
            for (int32_t k = 0; k < n_parts; k++)
                WF_TRY(group_members(p, s, at, k, n_copies, n_parts, k));
        }
    }
    return WF_OK;
}

/* The number of trained stages of which the rank updates a part. */
static int32_t n_updated(const wf_program *p, int32_t rank) {
    int32_t n = 0;
    for (int32_t s = 0; s < p->n_stages; s++)
        n += p->stages[s].is_trained && wfi_stage_is_updated(p, s, rank);
    return n;
}

/* Whether ranks of `width` neighbouring `dp` coordinates update all of the model between them,
 * once; or nothing. */
static bool is_updated_by(const wf_program *p, int32_t width) {
    int32_t n_stages = 0, n_groups = wfi_mesh_n_groups(&p->mesh, WFI_ALONG(WFI_DP));
    for (int32_t s = 0; s < p->n_stages; s++) n_stages += p->stages[s].is_trained;
    bool is = p->mesh.dp % width == 0;
    for (int32_t first = 0; first < p->mesh.dp && is; first += width) {
        int32_t n = 0;
        for (int32_t dp = first; dp < first + width; dp++)
            for (int32_t g = 0; g < n_groups; g++) {
                int32_t rank = wfi_mesh_first(&p->mesh, WFI_ALONG(WFI_DP), g);
                n += n_updated(p, wfi_mesh_move(&p->mesh, WFI_DP, rank, dp));
            }
        is = n == 0 || n == n_stages * width * wfi_mesh_n_groups(&p->mesh, WFI_STAGE_AXES);
    }
    return is;
}

/* Clipping needs the norm of the whole model. Ranks that together update all of it share the
 * measuring; if there are none, all ranks that update anything do. */
static wf_status group_updaters(wf_program *p) {
    int32_t width = 1;
    for (int32_t s = 0; s < p->n_stages; s++)
        if (p->stages[s].strategy->state == WFI_SHARD && p->stages[s].n_parts > width)
            width = p->stages[s].n_parts;
    if (!is_updated_by(p, width)) width = p->mesh.dp;
    p->first_norm_group = p->n_groups;
    int32_t n = p->mesh.dp / width;
    wfi_group *group;
    for (int32_t k = 0; k < n; k++) WF_TRY(add_group(p, p->n_ranks / n, &group));
    for (int32_t rank = 0; rank < p->n_ranks; rank++) {
        group = &p->groups[p->first_norm_group + wfi_mesh_at(&p->mesh, WFI_DP, rank) / width];
        if (n_updated(p, rank)) group->ranks[group->n++] = rank;
    }
    return WF_OK;
}

static wf_status group_slices(wf_program *p) {
    int32_t n = p->mesh.tp;
    p->first_slice_group = p->n_groups;
    for (int32_t k = 0; k < p->n_ranks / n && n > 1; k++) {
        wfi_group *group;
        int32_t first = wfi_mesh_first(&p->mesh, WFI_ALONG(WFI_TP), k);
        WF_TRY(add_group(p, n, &group));
        for (; group->n < n; group->n++)
            group->ranks[group->n] = wfi_mesh_move(&p->mesh, WFI_TP, first, group->n);
    }
    for (int k = 0; k < 2; k++) {
        wfi_lane_shares slices;
        WF_TRY(wfi_lanes_share(&p->pool, p->graph->n_slices / (k ? n : 1), 1, NULL, &slices));
        WF_TRY(wfi_lanes_sum(&p->pool, &slices, 0, 1, &p->slice_sums[k]));
    }
    return WF_OK;
}

/* One code serves all ranks of a stage. */
static wf_status check_kinds(const wf_program *p) {
    for (int32_t r = 0; r < p->n_ranks; r++)
        for (int32_t s = 0; s < p->n_stages; s++) {
            int32_t first = wfi_program_rank_of(p, 0, s, 0);
            const wfi_device_class *kind = wfi_plan_device(p->plan, r).kind,
                                   *other = wfi_plan_device(p->plan, first).kind;
            if (wfi_stage_member_on(p, s, r) >= 0 && kind != other)
                return wfi_fail(p->ctx, WF_UNSUPPORTED,
                                "ranks %d and %d share unit %s, but are on %s and on %s devices, "
                                "which round differently; ranks of different kinds are for stages "
                                "of a pipeline (pp)",
                                first, r, p->graph->units[p->first_unit[s]].name, other->name,
                                kind->name);
        }
    return WF_OK;
}

static bool has_one_memory(const wf_plan *plan, const wfi_group *group) {
    int32_t m = 1;
    while (m < group->n && wfi_plan_is_near(plan, group->ranks[0], group->ranks[m])) m++;
    return m >= group->n;
}

wf_status wfi_program_map(wf_program *p, const wf_program *like) {
    p->mesh = wfi_plan_mesh(p->plan);
    p->n_ranks = wfi_mesh_n_groups(&p->mesh, 0);
    WF_TRY(allocate(p));
    WF_TRY(place_units(p, like));
    choose_small(p);
    WF_TRY(find_readers(p));
    for (int32_t s = 0; s < p->n_stages; s++)
        WF_TRY(wfi_strategy_check(p->ctx, p->stages[s].strategy));
    WF_TRY(check_tied(p));
    WF_TRY(sum_lanes(p));
    WF_TRY(group_replicas(p));
    WF_TRY(group_updaters(p));
    WF_TRY(group_slices(p));
    int32_t most = 1;
    for (int32_t g = 0; g < p->n_groups; g++) {
        p->groups[g].is_near = has_one_memory(p->plan, &p->groups[g]);
        most = (int32_t)wfi_max_i64(most, p->groups[g].n);
    }
    p->steps = wfi_pool_alloc(&p->pool, (size_t)(WFI_STEPS_A_MEMBER * most), sizeof *p->steps);
    return p->steps ? check_kinds(p) : WF_NO_MEMORY;
}
