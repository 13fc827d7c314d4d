/* Changes of placement: a collective is one instruction, which moves pieces of tensors between
 * members of a group. For each piece only its readers and writers matter:
 *
 * - Something that is placed AT or SHARD is *copied*: a piece's owner reads it, members that get
 *   it write it.
 * - A PARTIAL tensor is *summed*, over a tree of all members: each reads its summand, and those
 *   that get the sum write it in the same place.
 *
 * A member that has no part in a piece names it with no bytes.
 */
#include "program/change.h"

#include "program/clock.h"
#include "program/need.h"
#include "program/where.h"

#include <string.h>

/* ---- pieces ---- */

static bool is_divided(const wfi_instruction *now) {
    return now->from == WFI_SHARD || now->to == WFI_SHARD;
}

static const wfi_stage *stage_of(const wf_program *p, int32_t unit) {
    return &p->stages[wfi_program_stage_of(p, unit)];
}

int32_t wfi_count_pieces(const wf_program *p, const wfi_instruction *now, wfi_name name) {
    if (name.kind == WFI_BLOCK_STATS) return 1;
    if (name.kind == WFI_BLOCK_NORM)
        return stage_of(p, name.owner)->strategy->state == WFI_SHARD
                   ? stage_of(p, name.owner)->n_parts
                   : 1;
    return is_divided(now) ? p->groups[now->group].n_runs : 1;
}

/* Each part of a gradient is measured where it is updated; if it is on several of the group's
 * ranks, on the first of them, but the last along `tp`: the last one has less of what slices do not
 * divide evenly, and so is a class of its own (classes.c) more often. */
static wfi_piece find_measured(const wf_program *p, const wfi_group *group, int32_t unit,
                               int32_t k) {
    const wfi_stage *stage = stage_of(p, unit);
    bool is_part = stage->strategy->state == WFI_SHARD;
    wfi_extent part =
        wfi_placement_extent(stage->strategy->state, p->graph->units[unit].param_bytes,
                             stage->n_parts, k, wfi_division_of(p, unit));
    wfi_piece piece = {
        .extent = wfi_norm_extent(wfi_trained_extent(p, unit, part)), .owner = -1, .n_owners = 1};
    for (; piece.owner < 0 && k < stage->n_replicas; k += is_part ? stage->n_parts : 1) {
        int32_t rank = wfi_unit_rank_of(p, k, unit);
        if (!wfi_unit_is_divided(p, unit))
            rank = wfi_mesh_move(&p->mesh, WFI_TP, rank, p->mesh.tp - 1);
        piece.owner = wfi_group_find(group, rank);
    }
    return piece;
}

/* The bytes of a tensor that member k owns, or all. */
static wfi_extent find_part(const wf_program *p, const wfi_instruction *now, wfi_name name,
                            int32_t k) {
    const wfi_group *group = &p->groups[now->group];
    int32_t id = name.owner, n = is_divided(now) ? group->n : 1;
    if (name.kind == WFI_BLOCK_VALUE) { /* rows of slices are equal parts */
        size_t bytes = wfi_tensor_bytes(p, name) / (size_t)n;
        return (wfi_extent){(size_t)k * bytes, bytes};
    }
    if (name.kind != WFI_BLOCK_PARAM && name.kind != WFI_BLOCK_GRADIENT)
        return (wfi_extent){0, wfi_tensor_bytes(p, name)};
    if (n == 1 && group->part >= 0) {
        n = p->stages[group->stage].n_parts;
        k = group->part;
    }
    wfi_extent part =
        wfi_placement_extent(n > 1 ? WFI_SHARD : WFI_REPLICATE, p->graph->units[id].param_bytes, n,
                             k, wfi_division_of(p, id));
    /* An untrained parameter has no gradient and need not be updated. */
    bool is_update = is_divided(now) && stage_of(p, id)->strategy->parameter != WFI_SHARD;
    bool is_trained = name.kind == WFI_BLOCK_GRADIENT || is_update;
    return is_trained ? wfi_trained_extent(p, id, part) : part;
}

wfi_piece wfi_find_piece(const wf_program *p, const wfi_instruction *now, wfi_name name,
                         int32_t k) {
    const wfi_group *group = &p->groups[now->group];
    wfi_piece piece = {.n_owners = 1};
    if (name.kind == WFI_BLOCK_NORM) return find_measured(p, group, name.owner, k);
    if (name.kind == WFI_BLOCK_STATS)
        piece.owner = wfi_stage_replica_of(p, wfi_program_stage_of(p, name.owner), name.micro);
    if (is_divided(now) && name.kind != WFI_BLOCK_STATS) {
        piece.owner = group->runs[k];
        piece.n_owners = group->runs[k + 1] - piece.owner;
    }
    piece.extent = find_part(p, now, name, is_divided(now) ? piece.owner : k);
    piece.extent.bytes *= (size_t)piece.n_owners;
    return piece;
}

/* The run that has the member. */
static int32_t find_run(const wfi_group *group, int32_t member) {
    int32_t low = 0, high = group->n_runs - 1;
    while (low < high) {
        int32_t middle = high - (high - low) / 2;
        if (group->runs[middle] <= member)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

wfi_piece wfi_named_piece(const wf_program *p, const wfi_instruction *now, int32_t r) {
    const wfi_reference *reference = &now->references[r];
    const wfi_block *b = &p->blocks[reference->block];
    bool is_norm = b->name.kind == WFI_BLOCK_NORM;
    int32_t n_pieces = wfi_count_pieces(p, now, b->name);
    int32_t n = is_norm ? n_pieces : p->groups[now->group].n;
    size_t begin = wfi_reference_begin(p, reference), at = begin;
    if (is_norm) at = begin / sizeof(double) * WFI_NORM_BLOCK_ELEMENTS * sizeof(float);
    int32_t k = 0;
    if (n_pieces > 1 && b->name.kind == WFI_BLOCK_VALUE)
        k = (int32_t)(begin / find_part(p, now, b->name, 0).bytes);
    else if (n_pieces > 1)
        k = wfi_placement_owner(p->graph->units[b->name.owner].param_bytes, n, at,
                                wfi_division_of(p, b->name.owner));
    if (n_pieces > 1 && !is_norm) k = find_run(&p->groups[now->group], k);
    wfi_piece piece = wfi_find_piece(p, now, b->name, k);
    if (!piece.extent.bytes || piece.extent.offset != begin) piece.owner = -1;
    return piece;
}

wfi_extent wfi_measured_extent(const wf_program *p, const wfi_group *group, int32_t unit,
                               int32_t rank) {
    const wfi_stage *stage = stage_of(p, unit);
    wfi_extent own = wfi_kept_extent(p, WFI_BLOCK_STATE, unit, rank);
    int32_t member = wfi_stage_member_on(p, (int32_t)(stage - p->stages), rank);
    bool is_part = stage->strategy->state == WFI_SHARD && member >= 0;
    int32_t owner = find_measured(p, group, unit, is_part ? member % stage->n_parts : 0).owner;
    if (owner < 0 || group->ranks[owner] != rank) own.bytes = 0;
    return own;
}

int wfi_piece_access(const wfi_instruction *now, int32_t member, const wfi_piece *piece) {
    bool has = wfi_placement_has(now->from, member, piece->owner);
    bool gets = wfi_placement_has(now->to, member, piece->owner);
    return has * WFI_READ + (gets && (!has || now->from == WFI_PARTIAL)) * WFI_WRITE;
}

/* ---- steps ---- */

static int64_t count_elements(const wfi_instruction *now, int32_t r) {
    return (int64_t)(now->references[r].bytes / sizeof(float));
}

int32_t wfi_change_n_phases(const wf_program *p, const wfi_instruction *now) {
    const wfi_allreduce *how = wfi_change_algorithm(p, now);
    return how ? how->n_phases(p->groups[now->group].n) : 1;
}

/* The steps of a change between ranks that see each other's memory. */
static int32_t list_steps(const wf_program *p, const wfi_instruction *now,
                          const wfi_reduce_part *part, int32_t r, wfi_reduce_step *steps) {
    const wfi_allreduce *how = wfi_change_algorithm(p, now);
    if (how) return how->steps(part, steps);
    wfi_piece piece = wfi_named_piece(p, now, r);
    wfi_reduce_step step = {.kind = wfi_is_reduction(now) ? WFI_REDUCE_SUM : WFI_REDUCE_COPY,
                            .end = part->n_elem};
    if (!(wfi_piece_access(now, part->own, &piece) & WFI_WRITE)) return 0;
    if (now->from == WFI_SHARD) step.left = piece.owner;
    return wfi_reduce_push(steps, 0, step);
}

/* A member of a group, and the members in whose memory its kernels read. */
typedef struct viewer {
    const wf_program *p;
    const wfi_group *group;
    int32_t own;
} viewer;

static bool is_near(const void *self, int32_t member) {
    const viewer *v = self;
    return wfi_plan_is_near(v->p->plan, v->group->ranks[v->own], v->group->ranks[member]);
}

bool wfi_change_stages(const wf_program *p, const wfi_instruction *now) {
    const wfi_allreduce *how = wfi_change_algorithm(p, now);
    if (!wfi_is_reduction(now) || how == &wfi_allreduce_engine) return false;
    return (how && how->n_staged) || !p->groups[now->group].is_near;
}

int32_t wfi_change_steps(const wf_program *p, const wfi_instruction *now, int32_t own, int32_t r,
                         int32_t phase, wfi_reduce_step *steps) {
    const viewer v = {p, &p->groups[now->group], own};
    const wfi_reduce_part part = {
        .n = v.group->n, .own = own, .phase = phase, .n_elem = count_elements(now, r)};
    int32_t n = list_steps(p, now, &part, r, steps), n_all = 0;
    if (!wfi_change_stages(p, now)) return n;
    /* A step becomes three, or the only sum as many as there are members. */
    wfi_reduce_step *given = steps + (WFI_STEPS_A_MEMBER - 1) * part.n;
    memmove(given, steps, (size_t)n * sizeof *steps);
    for (int32_t k = 0; k < n; k++) {
        const wfi_reduce_step step = given[k];
        n_all += wfi_reduce_stage(&part, &step, is_near, &v, steps + n_all);
    }
    return n_all;
}

static int64_t staged_end(const wfi_reduce_step *step) {
    return (step->slot + 1) * (step->end - step->begin);
}

/* The staging is free again after the sum that reads it. */
int64_t wfi_change_staged_by(const wf_program *p, const wfi_reduce_step *steps, int32_t k) {
    bool is_last =
        k > 0 && steps[k].kind != WFI_REDUCE_STAGE && steps[k - 1].kind == WFI_REDUCE_STAGE;
    return p->plan->stages_at_once && is_last ? staged_end(&steps[k - 1]) : 0;
}

size_t wfi_change_staged_bytes(const wf_program *p, const wfi_instruction *now) {
    wfi_reduce_step *steps = p->steps;
    int32_t own = wfi_group_find(&p->groups[now->group], now->rank);
    int64_t most = 0;
    for (int32_t phase = 0; phase < wfi_change_n_phases(p, now); phase++) {
        int64_t begin = 0;
        for (int32_t r = 0; r < wfi_n_moved(p, now); r++) {
            int32_t n = wfi_change_steps(p, now, own, r, phase, steps);
            for (int32_t k = 0; k < n; k++) {
                if (steps[k].kind == WFI_REDUCE_STAGE)
                    most = wfi_max_i64(most, begin + staged_end(&steps[k]));
                begin += wfi_change_staged_by(p, steps, k);
            }
        }
    }
    return (size_t)most * sizeof(float);
}
