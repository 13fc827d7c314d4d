/* The ideal step: one rank, one microbatch after the other, nothing reused, nothing overlapped. The
 * ideal step follows only the recipe and the compiled units; it knows nothing of schedules,
 * streams, blocks or ranks, so that it can judge them. (Only where the plan frees the order of sums
 * does it ask how many replicas there are.)
 *
 * No instruction reads a value of a microbatch that belongs only to ranks that are not lowered. The
 * ideal step does not run such microbatches. The sums of their lanes and their statistics have
 * terms of their own, and the checker takes the same terms for ranks that follow.
 */
#include "base/tree.h"
#include "program/stage.h"
#include "prove/term.h"

#include <string.h>

/* An open-addressing table from names to terms. */
typedef struct entry {
    uint64_t key; /* 0: empty */
    wfi_term term;
} entry;

struct wfi_ideal {
    const wf_program *p;
    entry *table;
    size_t n_entries, n_used;
    wfi_term *after[4]; /* [n_units] PARAM, BUFFER, STATE, and the sums of GRADIENT */
    wfi_term *lanes;    /* [n_units][n_lanes] sums of gradients */
    bool *runs;         /* [n_micro] */
};

static uint64_t key_of(wfi_name name) {
    return wfi_term_mix(wfi_term_start((int)name.kind + 300, name.owner, name.micro),
                        (uint64_t)name.accumulator << 16 | name.part);
}

/* The table has a power of two of entries. */
static entry *find_entry(const wfi_ideal *ideal, uint64_t key) {
    size_t last = ideal->n_entries - 1, at = key & last;
    while (ideal->table[at].key && ideal->table[at].key != key) at = (at + 1) & last;
    return &ideal->table[at];
}

static wf_status put(wfi_ideal *ideal, wfi_name name, wfi_term term) {
    if (2 * ideal->n_used >= ideal->n_entries) {
        wfi_ideal larger = *ideal;
        larger.n_entries = ideal->n_entries * 2;
        larger.table =
            wfi_alloc(ideal->p->ctx, larger.n_entries, sizeof *larger.table, "the program check");
        if (!larger.table) return WF_NO_MEMORY;
        for (size_t i = 0; i < ideal->n_entries; i++)
            if (ideal->table[i].key) *find_entry(&larger, ideal->table[i].key) = ideal->table[i];
        wfi_free(ideal->p->ctx, ideal->table);
        *ideal = larger;
    }
    entry *e = find_entry(ideal, key_of(name));
    ideal->n_used += !e->key;
    *e = (entry){key_of(name), term};
    return WF_OK;
}

wfi_term wfi_ideal_find(const wfi_ideal *ideal, wfi_name name) {
    bool is_input = name.kind == WFI_BLOCK_INPUT, is_hidden = name.kind == WFI_BLOCK_HIDDEN;
    bool is_other = name.kind == WFI_BLOCK_STATS && !ideal->runs[name.micro];
    if (is_input || is_other)
        return wfi_term_start(is_input ? (int)WFI_LOAD : (int)WFI_TERM_OTHER, name.owner,
                              name.micro);
    if (!is_hidden && name.kind != WFI_BLOCK_PARAM && name.kind != WFI_BLOCK_BUFFER &&
        name.kind != WFI_BLOCK_STATE)
        return find_entry(ideal, key_of(name))->term;
    wfi_term initial = wfi_term_start(WFI_TERM_INITIAL, name.owner, (int64_t)name.kind);
    return is_hidden ? wfi_term_mix(initial, (uint64_t)name.micro) : initial;
}

wfi_term wfi_ideal_after(const wfi_ideal *ideal, wfi_block_kind kind, int32_t unit, int64_t micro) {
    if (kind == WFI_BLOCK_HIDDEN)
        return wfi_ideal_find(ideal, wfi_named(WFI_BLOCK_NEXT_HIDDEN, unit, micro));
    if (kind == WFI_BLOCK_GRADIENT) return ideal->after[3][unit];
    return ideal->after[kind == WFI_BLOCK_PARAM ? 0 : kind == WFI_BLOCK_BUFFER ? 1 : 2][unit];
}

/* Stores a slice's summand. When all slices have theirs, it also stores the sum, or the value made
 * of all rows. */
static wf_status put_summand(wfi_ideal *ideal, int32_t value, int32_t slice, int64_t micro,
                             wfi_term term) {
    const wf_program *p = ideal->p;
    wfi_name name = wfi_named(WFI_BLOCK_VALUE, value, micro);
    int32_t n = p->graph->n_slices;
    wfi_term *terms = wfi_alloc(p->ctx, (size_t)n, sizeof *terms, "the program check");
    if (!terms) return WF_NO_MEMORY;
    wf_status status = put(ideal, wfi_slice_summand(name, slice), term);
    bool is_whole = true;
    for (int32_t k = 0; k < n && status == WF_OK; k++) {
        terms[k] = wfi_ideal_find(ideal, wfi_slice_summand(name, k));
        is_whole &= terms[k] != 0;
    }
    if (status == WF_OK && is_whole) status = put(ideal, name, wfi_term_tree(terms, n));
    wfi_free(p->ctx, terms);
    return status;
}

static wfi_name name_of(const wfi_segment *segment, const wfi_slot *slot, int64_t micro) {
    wfi_name name = wfi_named(slot->kind, slot->id, micro);
    if (slot->kind != WFI_BLOCK_PACKED) return name;
    name.part = wfi_packed_part(segment);
    name.micro = -1;
    return name;
}

static wf_status run_segment(wfi_ideal *ideal, const wfi_segment *segment, int64_t micro) {
    if (!segment) return WF_OK;
    wfi_term *terms =
        wfi_alloc(ideal->p->ctx, (size_t)segment->n_slots, 2 * sizeof *terms, "the program check");
    if (!terms) return WF_NO_MEMORY;
    wfi_term *out = terms + segment->n_slots;
    for (int32_t s = 0; s < segment->n_slots; s++)
        terms[s] = wfi_ideal_find(ideal, name_of(segment, &segment->slots[s], micro));
    wfi_term_segment(segment, micro, terms, out);
    wf_status status = WF_OK;
    for (int32_t s = 0; s < segment->n_slots && status == WF_OK; s++) {
        const wfi_slot *slot = &segment->slots[s];
        bool is_made = slot->access & WFI_WRITE && !(slot->access & WFI_SPOIL);
        if (!is_made || slot->kind == WFI_BLOCK_WORKSPACE) continue;
        if (slot->kind == WFI_BLOCK_BUFFER) { /* caches; of a forward run's one microbatch */
            ideal->after[1][slot->id] = out[s];
            continue;
        }
        if (wfi_gives_part(ideal->p, segment, slot))
            status = put_summand(ideal, slot->id, ideal->p->graph->units[segment->unit].slice,
                                 micro, out[s]);
        else
            status = put(ideal, name_of(segment, slot, micro), out[s]);
    }
    wfi_free(ideal->p->ctx, terms);
    return status;
}

static wf_status run_part(wfi_ideal *ideal, int32_t unit, wfi_part part, int64_t micro) {
    return run_segment(ideal, wfi_program_code_of(ideal->p, micro)->units[unit].part[part], micro);
}

/* Parameters are packed for each size of microbatches. */
static wf_status run_packs(wfi_ideal *ideal, const wfi_code *code) {
    for (int32_t u = 0; u < ideal->p->graph->n_units; u++)
        for (int part = 0; part < WFI_N_PARTS; part++)
            WF_TRY(run_segment(ideal, code->units[u].pack[part], -1));
    return WF_OK;
}

static wf_status run_microbatch(wfi_ideal *ideal, int64_t m) {
    int32_t n_units = ideal->p->graph->n_units;
    bool splits = ideal->p->code->splits_weight, trains = wfi_differentiates(ideal->p);
    for (int32_t u = 0; u < n_units; u++) WF_TRY(run_part(ideal, u, WFI_PART_F, m));
    for (int32_t u = n_units - 1; u >= 0 && trains; u--) {
        WF_TRY(run_part(ideal, u, WFI_PART_R, m));
        WF_TRY(run_part(ideal, u, splits ? WFI_PART_B : WFI_PART_BW, m));
    }
    for (int32_t u = n_units - 1; u >= 0 && trains && splits; u--)
        WF_TRY(run_part(ideal, u, WFI_PART_W, m));
    return WF_OK;
}

/* Marks the microbatches of every replica that has a lowered rank. */
static void find_microbatches(const wf_program *p, bool *runs) {
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t k = 0; k < p->stages[s].n_replicas; k++) {
            bool is_lowered = wfi_rank_is_lowered(p, wfi_program_rank_of(p, k, s, 0));
            for (int64_t m = wfi_first_micro(p, s, k); m < wfi_first_micro(p, s, k + 1); m++)
                runs[m] |= is_lowered;
        }
}

static wf_status run_microbatches(wfi_ideal *ideal) {
    const wf_program *p = ideal->p;
    find_microbatches(p, ideal->runs);
    for (int32_t v = 0; v < p->n_variants; v++) WF_TRY(run_packs(ideal, p->variants[v].code));
    for (int64_t m = 0; m < p->recipe.n_micro; m++)
        if (ideal->runs[m]) WF_TRY(run_microbatch(ideal, m));
    return WF_OK;
}

static wfi_term sum_lane(const wfi_ideal *ideal, wfi_block_kind kind, int32_t id, int64_t lane) {
    const wf_recipe *r = &ideal->p->recipe;
    int64_t n = r->n_micro / r->n_lanes;
    wfi_term sum = wfi_ideal_find(ideal, wfi_named(kind, id, lane * n));
    for (int64_t m = lane * n + 1; m < (lane + 1) * n; m++)
        sum = wfi_term_mix(wfi_term_mix(wfi_term_start(WFI_TERM_ADD, 0, 0), sum),
                           wfi_ideal_find(ideal, wfi_named(kind, id, m)));
    return sum;
}

/* A lane of a use of a weight, by n slices from the first on; of any other use: 1 from 0 on. */
static wfi_term sum_use(const wfi_ideal *ideal, int32_t i, int64_t lane, int32_t first, int32_t n) {
    int32_t left = n > 1 ? (int32_t)wfi_tree_split(n) : 0;
    if (n == 1)
        return sum_lane(ideal, WFI_BLOCK_TIED,
                        first ? wfi_use_of_slice(ideal->p->graph, i, first) : i, lane);
    return wfi_term_fold(sum_use(ideal, i, lane, first, left),
                         sum_use(ideal, i, lane, first + left, n - left));
}

wfi_term wfi_ideal_slices(const wfi_ideal *ideal, wfi_name name, int32_t first, int32_t n) {
    const wf_recipe *r = &ideal->p->recipe;
    int32_t left = n > 1 ? (int32_t)wfi_tree_split(n) : 0;
    if (name.kind == WFI_BLOCK_TIED)
        return sum_use(ideal, name.owner, name.micro / (r->n_micro / r->n_lanes), first, n);
    if (n == 1) return wfi_ideal_find(ideal, wfi_slice_summand(name, first));
    return wfi_term_fold(wfi_ideal_slices(ideal, name, first, left),
                         wfi_ideal_slices(ideal, name, first + left, n - left));
}

/* The gradient of a unit, summed along each lane; then come other units' uses of its weights. */
static void sum_lanes(const wfi_ideal *ideal, int32_t unit) {
    const wf_graph *g = ideal->p->graph;
    int64_t n_lanes = ideal->p->recipe.n_lanes, per_lane = ideal->p->recipe.n_micro / n_lanes;
    for (int64_t k = 0; k < n_lanes; k++) {
        wfi_term *lane = &ideal->lanes[unit * n_lanes + k];
        *lane = wfi_term_start(WFI_TERM_OTHER, unit, k);
        if (!ideal->runs[k * per_lane]) continue; /* nor the others of the lane */
        *lane = sum_lane(ideal, WFI_BLOCK_GRADIENT, unit, k);
        for (int32_t t = g->units[unit].first_tied; t < g->units[unit].end_tied; t++) {
            int32_t i = g->tied[t];
            int32_t n = wfi_is_slices_use(g, i) ? g->n_slices : 1;
            const wfi_term both[] = {*lane, sum_use(ideal, i, k, 0, n)};
            *lane = wfi_term_made(WFI_TIE, i, 0, both, 2);
        }
    }
}

wfi_term wfi_ideal_part(const wfi_ideal *ideal, int32_t unit, int32_t first, int32_t n) {
    const wf_program *p = ideal->p;
    int64_t n_lanes = p->recipe.n_lanes;
    const int64_t *home = p->stages[wfi_program_stage_of(p, unit)].shares.home;
    return wfi_term_tree(&ideal->lanes[unit * n_lanes + home[first]],
                         home[first + n] - home[first]);
}

/* The lanes are summed over their tree. If the plan lets replicas be summed in any order, only
 * over the subtrees that they own. */
static wfi_term sum_gradient(const wfi_ideal *ideal, int32_t unit, wfi_term *parts) {
    const wf_program *p = ideal->p;
    int64_t n_lanes = p->recipe.n_lanes;
    int32_t stage = wfi_program_stage_of(p, unit), n = p->stages[stage].n_replicas;
    sum_lanes(ideal, unit);
    if (!wfi_stage_rotates(p, stage)) return wfi_term_tree(&ideal->lanes[unit * n_lanes], n_lanes);
    for (int32_t k = 0; k < n; k++) parts[k] = wfi_ideal_part(ideal, unit, k, 1);
    return wfi_term_any_order(parts, n);
}

wfi_term wfi_ideal_norm(const wfi_ideal *ideal, int32_t unit) {
    return wfi_term_made(WFI_NORM, 0, 1, &ideal->after[3][unit], 1);
}

static void update(wfi_ideal *ideal, int32_t unit, wfi_term gradient, wfi_term total_norm) {
    const wf_recipe *r = &ideal->p->recipe;
    wfi_term in[4] = {wfi_ideal_find(ideal, wfi_named(WFI_BLOCK_PARAM, unit, -1)), gradient};
    int32_t n = 2;
    if (wfi_recipe_n_states(r))
        in[n++] = wfi_ideal_find(ideal, wfi_named(WFI_BLOCK_STATE, unit, -1));
    if (r->clip_norm > 0) in[n++] = total_norm;
    ideal->after[0][unit] = wfi_term_made(WFI_UPDATE, 0, 0, in, n);
    ideal->after[2][unit] = wfi_term_made(WFI_UPDATE, 0, 2, in, n);
}

/* in [1 + n_micro] */
static void fold_statistics(wfi_ideal *ideal, int32_t unit, wfi_term *in) {
    const wf_program *p = ideal->p;
    int64_t n_micro = p->recipe.n_micro;
    in[0] = wfi_ideal_find(ideal, wfi_named(WFI_BLOCK_BUFFER, unit, -1));
    for (int64_t m = 0; m < n_micro; m++)
        in[1 + m] = wfi_ideal_find(ideal, wfi_named(WFI_BLOCK_STATS, unit, m));
    bool folds = p->code->units[unit].stats_bytes > 0;
    ideal->after[1][unit] =
        folds ? wfi_term_made(WFI_FOLD_STATS, 0, 0, in, 1 + (int32_t)n_micro) : in[0];
}

/* norms [n_units], micro [1 + n_micro] */
static void finish_step(wfi_ideal *ideal, wfi_term *norms, wfi_term *micro) {
    const wf_graph *g = ideal->p->graph;
    wfi_term *gradient = ideal->after[3];
    for (int32_t u = 0; u < g->n_units; u++)
        gradient[u] = g->units[u].trained_bytes ? sum_gradient(ideal, u, micro) : 0;
    for (int32_t u = 0; u < g->n_units; u++)
        norms[u] = g->units[u].trained_bytes ? wfi_ideal_norm(ideal, u) : 0;
    wfi_term total_norm = wfi_term_made(WFI_TOTAL_NORM, 0, 0, norms, g->n_units);
    for (int32_t u = 0; u < g->n_units; u++) {
        if (wfi_updates(ideal->p)) update(ideal, u, gradient[u], total_norm);
        fold_statistics(ideal, u, micro);
    }
}

wf_status wfi_ideal_create(const wf_program *p, wfi_ideal **ideal_out) {
    wf_context *ctx = p->ctx;
    size_t n_units = (size_t)p->graph->n_units, n_micro = (size_t)p->recipe.n_micro;
    wfi_ideal *ideal = wfi_alloc(ctx, 1, sizeof *ideal, "the program check");
    if (!ideal) return WF_NO_MEMORY;
    ideal->p = p;
    ideal->n_entries = 256;
    ideal->table = wfi_alloc(ctx, ideal->n_entries, sizeof *ideal->table, "the program check");
    ideal->lanes =
        wfi_alloc(ctx, n_units * (size_t)p->recipe.n_lanes, sizeof(wfi_term), "the program check");
    ideal->runs = wfi_alloc(ctx, n_micro, sizeof *ideal->runs, "the program check");
    bool ok = ideal->table && ideal->lanes && ideal->runs;
    for (size_t i = 0; i < WFI_COUNT(ideal->after); i++) {
        ideal->after[i] = wfi_alloc(ctx, n_units, sizeof(wfi_term), "the program check");
        ok = ok && ideal->after[i];
    }
    wfi_term *scratch = wfi_alloc(ctx, n_units + n_micro + 1, sizeof *scratch, "the program check");
    wf_status status = ok && scratch ? run_microbatches(ideal) : WF_NO_MEMORY;
    if (status == WF_OK && wfi_differentiates(p)) finish_step(ideal, scratch, scratch + n_units);
    wfi_free(ctx, scratch);
    if (status != WF_OK) {
        wfi_ideal_destroy(ideal);
        return status;
    }
    *ideal_out = ideal;
    return WF_OK;
}

void wfi_ideal_destroy(wfi_ideal *ideal) {
    if (!ideal) return;
    wf_context *ctx = ideal->p->ctx;
    wfi_free(ctx, ideal->table);
    wfi_free(ctx, ideal->lanes);
    wfi_free(ctx, ideal->runs);
    for (size_t i = 0; i < WFI_COUNT(ideal->after); i++) wfi_free(ctx, ideal->after[i]);
    wfi_free(ctx, ideal);
}
