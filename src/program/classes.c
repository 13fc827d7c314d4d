/* Classes of equal ranks. Lowering emits one rank of each class, and the others follow it. Ranks
 * that differ only by their `dp` coordinate do the same work on other microbatches. Ranks that
 * differ only by their `tp` coordinate do the same work on other slices. The last of these does
 * more if gradients are clipped, because it measures those of units that are not divided; the first
 * one does more in programs that store outputs. Then it is a class of its own.
 *
 * A class combines a class of `dp` coordinates with a class of `tp` coordinates, and has all their
 * ranks along `pp`. So transfers along `pp` stay among lowered ranks. Only collectives have members
 * that follow: those of a stage's replicas, of ranks that divide slices, and of ranks that share a
 * norm. A proof for the lowered ranks holds for the others, because an exchange of two coordinates
 * of a class changes only the numbers of microbatches or of slices (alike.c compares everything
 * that lowering reads of slices):
 *
 * - A legal order of the lowered instructions, each done by all followers at once, is a legal order
 *   of all instructions. So there is no deadlock, and the order of events on a rank is the same.
 * - So memory is packed in the same way, and the same accesses are ordered. Where `sp` divides
 * rows, a follower accesses other rows of a block than the lowered rank. So the checker demands
 * that such a block shares no byte with another from its first access to its last one.
 * - If a lowered rank's part of a sum is the recipe's, so is a follower's, for its microbatches or
 *   slices. The lowered rank is in the same sum as its followers' parts, and the checker compares
 *   the sum (check.c). The same holds for a follower's piece of an all-gather. A norm is over all
 *   pieces. Neighbors of one class have equal pieces side by side, which lowered ranks move as one.
 * - By induction along the order: if the lowered rank has read only the ideal's values so far, so
 *   has a follower, under its own names. So it writes the ideal's values, too.
 */
#include "program/map.h"
#include "program/where.h"

static bool has_equal_bytes(const wfi_unit *a, const wfi_unit *b) {
    return a->param_bytes == b->param_bytes && a->trained_bytes == b->trained_bytes &&
           a->buffer_bytes == b->buffer_bytes;
}

/* Where ranks follow others, all units are divided in one way. Where small units rotate, the number
 * of a unit decides as well. */
static wf_status find_sizes(wf_program *p) {
    const wfi_unit *units = p->graph->units;
    size_t n_units = (size_t)p->graph->n_units;
    int32_t n = 0, *firsts = wfi_alloc(p->ctx, n_units, sizeof *firsts, "classes of ranks");
    p->size_like = wfi_pool_alloc(&p->pool, n_units, sizeof *p->size_like);
    bool ok = firsts && p->size_like;
    for (int32_t u = 0; u < p->graph->n_units && ok; u++) {
        int32_t k = p->rotates_small ? n : 0;
        while (k < n && !has_equal_bytes(&units[u], &units[firsts[k]])) k++;
        if (k == n) firsts[n++] = u;
        p->size_like[u] = firsts[k];
    }
    wfi_free(p->ctx, firsts);
    return ok ? WF_OK : WF_NO_MEMORY;
}

/* Segments read a unit's parameters from the first one on, but not always all: one that computes
 * norms again reads those of the norms. Finds the fewest bytes for all units of a size. */
static wf_status find_least_read(wf_program *p) {
    p->least_read = wfi_pool_alloc(&p->pool, (size_t)p->graph->n_units, sizeof *p->least_read);
    if (!p->least_read) return WF_NO_MEMORY;
    for (int32_t u = 0; u < p->graph->n_units; u++) p->least_read[u] = SIZE_MAX;
    for (int32_t u = 0; u < p->graph->n_units; u++)
        for (int part = 0; part < 2 * WFI_N_PARTS; part++) {
            const wfi_unit_code *unit = &p->code->units[u];
            const wfi_segment *segment = (part % 2 ? unit->pack : unit->part)[part / 2];
            for (int32_t s = 0; segment && s < segment->n_slots; s++) {
                const wfi_slot *slot = &segment->slots[s];
                if (slot->kind != WFI_BLOCK_PARAM) continue;
                size_t *least = &p->least_read[p->size_like[slot->id]];
                if (slot->begin + slot->bytes < *least) *least = slot->begin + slot->bytes;
            }
        }
    return WF_OK;
}

/* Whether two replicas have as much of everything that is divided, and their segments wait for
 * others' slices alike: one that reads no more than the first slice does not wait for any on the
 * rank that keeps it. Nothing else but the references' names depends on where a slice begins. */
static bool has_equal_slices(const wf_program *p, int32_t a, int32_t b) {
    static const wfi_block_kind kinds[] = {WFI_BLOCK_PARAM, WFI_BLOCK_STATE};
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        if (p->size_like[u] != u) continue;
        for (size_t k = 0; k < WFI_COUNT(kinds); k++) {
            wfi_extent x = wfi_kept_extent(p, kinds[k], u, wfi_unit_rank_of(p, a, u)),
                       y = wfi_kept_extent(p, kinds[k], u, wfi_unit_rank_of(p, b, u));
            bool is_one_first = (x.offset == 0) != (y.offset == 0);
            if (x.bytes != y.bytes ||
                (kinds[k] == WFI_BLOCK_PARAM && is_one_first && p->least_read[u] <= x.bytes))
                return false;
        }
    }
    return true;
}

/* These may differ between `dp` coordinates: the number of microbatches of the larger size, the
 * parts that their ranks keep, and the staging of other ranks' gradients. */
static bool is_like(const wf_program *p, int32_t a, int32_t b) {
    const wfi_allreduce *how = p->plan->allreduce;
    int64_t n_own = p->recipe.n_micro / p->mesh.dp, n_larger = p->recipe.batch % p->recipe.n_micro;
    if (wfi_max_i64(0, wfi_min_i64(n_own, n_larger - a * n_own)) !=
        wfi_max_i64(0, wfi_min_i64(n_own, n_larger - b * n_own)))
        return false;
    if (!has_equal_slices(p, a, b)) return false;
    for (int32_t u = 0; u < p->graph->n_units && how->n_staged; u++) {
        const wfi_stage *stage = &p->stages[wfi_program_stage_of(p, u)];
        int32_t n_each = stage->strategy->gradient == WFI_SHARD ? stage->n_parts : 1;
        int32_t n = p->mesh.dp / n_each;
        size_t bytes = wfi_kept_extent(p, WFI_BLOCK_GRADIENT, u, wfi_unit_rank_of(p, a, u)).bytes;
        int64_t n_elem = (int64_t)(bytes / sizeof(float));
        if (n > 1 && how->n_staged(n, a / n_each, n_elem) != how->n_staged(n, b / n_each, n_elem))
            return false;
    }
    return true;
}

/* Whether each `dp` coordinate is a replica of everything, and none is the root of anything. Where
 * several replicas have the same part, the lowered ranks must have all parts between them: so none
 * has larger microbatches than others. */
static bool has_equal_replicas(const wf_program *p) {
    bool is_even = !p->plan->shard || p->recipe.batch % p->recipe.n_micro == 0;
    bool is = !wf_plan_loads_at_root(p->plan) && is_even && !p->plan->lanes;
    for (int32_t s = 0; s < p->n_stages && is; s++) {
        const wfi_strategy *row = p->stages[s].strategy;
        is = p->stages[s].n_replicas == p->mesh.dp && row->parameter != WFI_AT &&
             row->gradient != WFI_AT && row->state != WFI_AT && row->buffer != WFI_AT;
    }
    return is;
}

/* Whether the ranks of the `dp` coordinate have nothing to do, as most have in a forward run. */
static bool is_idle(const wf_program *p, int32_t dp) {
    bool is = true;
    for (int32_t s = 0; s < p->n_stages && is; s++)
        is = dp < p->stages[s].first_dp || dp >= p->stages[s].first_dp + p->stages[s].n_members;
    return is;
}

/* Whether the ranks of two coordinates keep equal amounts of memory for other programs of their
 * arenas. */
static bool has_equal_state(const wf_program *p, int32_t a, int32_t b) {
    const wf_program *like = p->like;
    int32_t n_groups = like ? wfi_mesh_n_groups(&p->mesh, WFI_ALONG(WFI_DP)) : 0;
    bool is = true;
    for (int32_t g = 0; g < n_groups; g++) {
        int32_t rank = wfi_mesh_first(&p->mesh, WFI_ALONG(WFI_DP), g);
        const wfi_rank *x = &like->ranks[wfi_mesh_move(&p->mesh, WFI_DP, rank, a)],
                       *y = &like->ranks[wfi_mesh_move(&p->mesh, WFI_DP, rank, b)];
        for (int space = 0; space < WFI_N_SPACES; space++)
            is &= x->arenas[space].state_bytes == y->arenas[space].state_bytes;
    }
    return is;
}

/* Whether ranks of coordinate b can follow those of coordinate a < b. `is_whole`: no working rank
 * follows another. */
typedef wf_status compare(const wf_program *p, bool is_whole, int32_t a, int32_t b, bool *is_out);

static wf_status compare_replicas(const wf_program *p, bool is_whole, int32_t a, int32_t b,
                                  bool *is_out) {
    *is_out =
        is_idle(p, b) ? is_idle(p, a) && has_equal_state(p, a, b) : !is_whole && is_like(p, a, b);
    return WF_OK;
}

static wf_status compare_slices(const wf_program *p, bool is_whole, int32_t a, int32_t b,
                                bool *is_out) {
    bool measures = b + 1 == p->mesh.tp && p->recipe.clip_norm > 0,
         is_equal = !measures && (a || !wfi_properties_of(p->kind).stores);
    bool may = is_equal && !is_whole && !p->like && !p->plan->allreduce->n_staged;
    return may ? wfi_program_has_equal_slices(p, a, b, is_out) : WF_OK;
}

/* Along the other axes no rank follows another. */
static compare *const comparisons[WFI_N_AXES] = {
    [WFI_DP] = compare_replicas, [WFI_TP] = compare_slices};

/* like_out [size of the axis]: the coordinate that each coordinate follows. */
static wf_status find_like(wf_program *p, bool is_whole, wfi_axis axis, int32_t **like_out) {
    int32_t n = p->mesh.size[axis], *like = wfi_pool_alloc(&p->pool, (size_t)n, sizeof *like);
    if (!like) return WF_NO_MEMORY;
    for (int32_t b = 0; b < n; b++) {
        like[b] = b;
        for (int32_t a = 0; a < b && like[b] == b && comparisons[axis]; a++) {
            bool is_alike = false;
            if (like[a] == a) WF_TRY(comparisons[axis](p, is_whole, a, b, &is_alike));
            if (is_alike) like[b] = a;
        }
    }
    *like_out = like;
    return WF_OK;
}

static wf_status find_runs(wf_program *p, wfi_group *group) {
    group->runs = wfi_pool_alloc(&p->pool, (size_t)group->n + 1, sizeof *group->runs);
    if (!group->runs) return WF_NO_MEMORY;
    for (int32_t k = 0; k < group->n; k++) {
        const int32_t *rank = &group->ranks[k];
        bool is_lowered = wfi_rank_is_lowered(p, *rank);
        bool begins = k == 0 || is_lowered || p->ranks[rank[-1]].like != p->ranks[*rank].like ||
                      wfi_rank_is_lowered(p, rank[-1]);
        if (begins) group->runs[group->n_runs++] = k;
        group->n_lowered += is_lowered;
    }
    group->runs[group->n_runs] = group->n;
    return WF_OK;
}

wf_status wfi_program_find_classes(wf_program *p) {
    bool is_whole =
        p->use > WFI_USE_LOOK || !has_equal_replicas(p) || !wfi_plan_is_one_memory(p->plan);
    p->lowered = wfi_pool_alloc(&p->pool, (size_t)p->n_ranks, sizeof *p->lowered);
    if (!p->lowered) return WF_NO_MEMORY;
    WF_TRY(find_sizes(p));
    WF_TRY(find_least_read(p));
    for (int32_t r = 0; r < p->n_ranks; r++) p->ranks[r].like = r;
    for (int a = 0; a < WFI_N_AXES; a++) {
        wfi_axis axis = (wfi_axis)a;
        int32_t *like;
        WF_TRY(find_like(p, is_whole, axis, &like));
        for (int32_t r = 0; r < p->n_ranks; r++)
            p->ranks[r].like = wfi_mesh_move(&p->mesh, axis, p->ranks[r].like,
                                             like[wfi_mesh_at(&p->mesh, axis, r)]);
    }
    for (int32_t r = 0; r < p->n_ranks; r++) p->ranks[p->ranks[r].like].n_like++;
    for (int32_t r = 0; r < p->n_ranks; r++) {
        if (p->ranks[r].like != r) continue;
        p->ranks[r].row = p->n_lowered;
        p->lowered[p->n_lowered++] = r;
    }
    for (int32_t g = 0; g < p->n_groups; g++) WF_TRY(find_runs(p, &p->groups[g]));
    return WF_OK;
}

bool wfi_rank_has_other_slices(const wf_program *p, int32_t rank) {
    return wfi_mesh_at(&p->mesh, WFI_TP, rank) !=
           wfi_mesh_at(&p->mesh, WFI_TP, p->ranks[rank].like);
}

int32_t wfi_rank_unit(const wf_program *p, int32_t rank, int32_t unit) {
    int32_t like = p->ranks[rank].like;
    if (unit < 0 || !wfi_unit_is_divided(p, unit) || !wfi_unit_is_on(p, unit, like)) return unit;
    int32_t apart = wfi_mesh_at(&p->mesh, WFI_TP, rank) - wfi_mesh_at(&p->mesh, WFI_TP, like);
    return unit + apart * wfi_n_local_slices(p, unit);
}

bool wfi_moves_all_slices(const wf_program *p, const wfi_instruction *now) {
    wfi_instruction_class class = wfi_type_of(now)->class;
    if (now->kind == WFI_CHANGE) return now->group >= p->first_slice_group;
    if (class != WFI_CLASS_COPY && class != WFI_CLASS_TRANSFER) return false;
    wfi_name name = p->blocks[now->references[0].block].name;
    if (name.kind == WFI_BLOCK_TIED) return wfi_is_slices_use(p->graph, name.owner);
    return wfi_block_types[name.kind].owner == WFI_OWNER_VALUE &&
           wfi_is_made_by_slices(p->graph, name.owner);
}

int32_t wfi_rank_named_unit(const wf_program *p, int32_t rank, const wfi_instruction *now) {
    return wfi_moves_all_slices(p, now) ? now->unit : wfi_rank_unit(p, rank, now->unit);
}

void wfi_program_share(wf_program *p) {
    for (int32_t r = 0; r < p->n_ranks; r++) {
        int32_t like = p->ranks[r].like;
        if (like == r) continue;
        p->ranks[r] = p->ranks[like];
        p->ranks[r].like = like;
    }
}
