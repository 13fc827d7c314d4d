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

/* A slot of a segment: columns of the term that it reads, and of the term that it makes; -1: they
 * are found by its name, or there is none. */
typedef struct slot_use {
    int32_t in, out;
} slot_use;

/* A row holds the terms of one microbatch, so terms that are read one after the other are close in
 * memory. Row 0 holds terms of the whole step. */
struct wfi_ideal {
    const wf_program *p;
    slot_use *uses;                             /* of the slots of all segments of microbatches */
    int32_t *first_use[WFI_MAX_MICRO_VARIANTS]; /* [n_units * WFI_N_PARTS] */
    int32_t n_uses;
    size_t use_capacity;
    int32_t *column[WFI_N_BLOCK_KINDS]; /* [owners][n_each] of a name in each row; -1: no such name
                                         */
    int32_t n_columns, n_rows;
    wfi_term *table;         /* [n_rows][n_columns] 0: not made */
    int32_t *row;            /* [n_micro] 0: it is not run */
    int64_t *micro;          /* [n_rows] of each row from 1 on */
    wfi_term *after[4];      /* [n_units] PARAM, BUFFER, STATE, and the sums of GRADIENT */
    wfi_term *lanes;         /* [n_units][n_lanes] sums of gradients */
    wfi_term *parts, *slots; /* [n_slices], [2 * most_slots] scratch */
    int32_t most_slots;
};

/* ---- names ---- */

static int32_t n_each(const wfi_ideal *ideal, wfi_block_kind kind) {
    return kind == WFI_BLOCK_VALUE    ? 1 + ideal->p->graph->n_slices
           : kind == WFI_BLOCK_PACKED ? (int32_t)WFI_N_PACKED
                                      : 1;
}

static int32_t *column_of(const wfi_ideal *ideal, wfi_name name) {
    bool is_value = name.kind == WFI_BLOCK_VALUE, is_packed = name.kind == WFI_BLOCK_PACKED;
    int32_t k = is_value ? name.accumulator : is_packed ? (int32_t)name.part : 0;
    return &ideal->column[name.kind][name.owner * n_each(ideal, name.kind) + k];
}

/* Its term, or NULL. */
static wfi_term *term_of(const wfi_ideal *ideal, wfi_name name) {
    int32_t column = *column_of(ideal, name), row = name.micro < 0 ? 0 : ideal->row[name.micro];
    bool is_run = column >= 0 && (name.micro < 0 || row > 0);
    return is_run ? &ideal->table[(size_t)row * (size_t)ideal->n_columns + (size_t)column] : NULL;
}

static void put(wfi_ideal *ideal, wfi_name name, wfi_term term) {
    *term_of(ideal, name) = term;
}

wfi_term wfi_ideal_find(const wfi_ideal *ideal, wfi_name name) {
    bool is_input = name.kind == WFI_BLOCK_INPUT, is_hidden = name.kind == WFI_BLOCK_HIDDEN;
    bool is_other = name.kind == WFI_BLOCK_STATS && !ideal->row[name.micro];
    if (is_input || is_other)
        return wfi_term_start(is_input ? (int)WFI_LOAD : (int)WFI_TERM_OTHER, name.owner,
                              name.micro);
    if (!is_hidden && name.kind != WFI_BLOCK_PARAM && name.kind != WFI_BLOCK_BUFFER &&
        name.kind != WFI_BLOCK_STATE) {
        const wfi_term *term = term_of(ideal, name);
        return term ? *term : 0;
    }
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
static void put_summand(wfi_ideal *ideal, int32_t value, int32_t slice, int64_t micro,
                        wfi_term term) {
    wfi_name name = wfi_named(WFI_BLOCK_VALUE, value, micro);
    int32_t n = ideal->p->graph->n_slices;
    put(ideal, wfi_slice_summand(name, slice), term);
    if (!wfi_ideal_find(ideal, wfi_slice_summand(name, slice ? 0 : n - 1))) return;
    for (int32_t k = n - 1; k >= 0; k--) {
        ideal->parts[k] = wfi_ideal_find(ideal, wfi_slice_summand(name, k));
        if (!ideal->parts[k]) return;
    }
    put(ideal, name, wfi_term_tree(ideal->parts, n));
}

static wfi_name name_of(const wfi_segment *segment, const wfi_slot *slot, int64_t micro) {
    wfi_name name = wfi_named(slot->kind, slot->id, micro);
    if (slot->kind != WFI_BLOCK_PACKED) return name;
    name.part = wfi_packed_part(segment);
    name.micro = -1;
    return name;
}

static bool is_made(const wfi_slot *slot) {
    return slot->access & WFI_WRITE && !(slot->access & WFI_SPOIL) &&
           slot->kind != WFI_BLOCK_WORKSPACE;
}

static int32_t slice_of(const wfi_ideal *ideal, const wfi_segment *segment) {
    return ideal->p->graph->units[segment->unit].slice;
}

/* ---- the parts of the step ---- */

/* uses [n_slots]; NULL: all are found by name. */
static void run_segment(wfi_ideal *ideal, const wfi_segment *segment, const slot_use *uses,
                        int64_t micro) {
    wfi_term *in = ideal->slots, *out = in + segment->n_slots;
    size_t at = micro < 0 ? 0 : (size_t)ideal->row[micro];
    wfi_term *row = &ideal->table[at * (size_t)ideal->n_columns];
    for (int32_t s = 0; s < segment->n_slots; s++)
        in[s] = uses && uses[s].in >= 0
                    ? row[uses[s].in]
                    : wfi_ideal_find(ideal, name_of(segment, &segment->slots[s], micro));
    wfi_term_segment(segment, micro, in, out);
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (uses && uses[s].out >= 0) row[uses[s].out] = out[s];
        if (!is_made(slot) || (uses && uses[s].out >= 0)) continue;
        if (slot->kind == WFI_BLOCK_BUFFER) /* caches; of a forward run's one microbatch */
            ideal->after[1][slot->id] = out[s];
        else if (wfi_gives_part(ideal->p, segment, slot))
            put_summand(ideal, slot->id, slice_of(ideal, segment), micro, out[s]);
        else
            put(ideal, name_of(segment, slot, micro), out[s]);
    }
}

static void run_part(wfi_ideal *ideal, int32_t unit, wfi_part part, int32_t first, int32_t end) {
    int32_t k = unit * WFI_N_PARTS + (int32_t)part;
    for (int32_t row = first; row < end; row++) {
        int64_t m = ideal->micro[row];
        const wfi_micro_variant *v = wfi_program_variant(ideal->p, m);
        const wfi_segment *segment = v->code->units[unit].part[part];
        const slot_use *uses = ideal->uses + ideal->first_use[v - ideal->p->variants][k];
        if (segment) run_segment(ideal, segment, uses, m);
    }
}

/* Parameters are packed for each size of microbatches. */
static void run_packs(wfi_ideal *ideal, const wfi_code *code) {
    for (int32_t u = 0; u < ideal->p->graph->n_units; u++)
        for (int part = 0; part < WFI_N_PARTS; part++)
            if (code->units[u].pack[part]) run_segment(ideal, code->units[u].pack[part], NULL, -1);
}

/* Microbatches that run together. None reads a term of another, and the description of a segment
 * is read from memory once for all of them. */
#define N_TOGETHER 16

/* Of rows first to end - 1. */
static void run_some(wfi_ideal *ideal, int32_t first, int32_t end) {
    int32_t n_units = ideal->p->graph->n_units;
    bool splits = ideal->p->code->splits_weight, trains = wfi_differentiates(ideal->p);
    for (int32_t u = 0; u < n_units; u++) run_part(ideal, u, WFI_PART_F, first, end);
    for (int32_t u = n_units - 1; u >= 0 && trains; u--) {
        run_part(ideal, u, WFI_PART_R, first, end);
        run_part(ideal, u, splits ? WFI_PART_B : WFI_PART_BW, first, end);
    }
    for (int32_t u = n_units - 1; u >= 0 && trains && splits; u--)
        run_part(ideal, u, WFI_PART_W, first, end);
}

static void add_column(wfi_ideal *ideal, wfi_name name) {
    int32_t *column = column_of(ideal, name);
    if (*column < 0) *column = ideal->n_columns++;
}

static void add_columns(wfi_ideal *ideal, const wfi_segment *segment) {
    for (int32_t s = 0; segment && s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        wfi_name name = name_of(segment, slot, 0);
        if (!is_made(slot)) continue;
        if (wfi_gives_part(ideal->p, segment, slot))
            add_column(ideal, wfi_slice_summand(name, slice_of(ideal, segment)));
        add_column(ideal, name);
    }
    if (segment && segment->n_slots > ideal->most_slots) ideal->most_slots = segment->n_slots;
}

/* Gives a column to each name that a segment makes, roughly in the order of their use. */
static wf_status find_columns(wfi_ideal *ideal) {
    const wf_program *p = ideal->p;
    const size_t n_owners[] = {
        [WFI_OWNER_UNIT] = (size_t)p->graph->n_units,
        [WFI_OWNER_VALUE] = (size_t)p->graph->n_values,
        [WFI_OWNER_USE] = (size_t)p->graph->n_weight_gradients,
    };
    for (int kind = 0; kind < WFI_N_BLOCK_KINDS; kind++) {
        size_t n =
            n_owners[wfi_block_types[kind].owner] * (size_t)n_each(ideal, (wfi_block_kind)kind);
        ideal->column[kind] = wfi_alloc(p->ctx, n, sizeof(int32_t), "the program check");
        if (!ideal->column[kind]) return WF_NO_MEMORY;
        memset(ideal->column[kind], -1, n * sizeof(int32_t));
    }
    for (int32_t v = 0; v < p->n_variants; v++)
        for (int32_t u = 0; u < p->graph->n_units; u++)
            for (int part = 0; part < WFI_N_PARTS; part++) {
                add_columns(ideal, p->variants[v].code->units[u].pack[part]);
                add_columns(ideal, p->variants[v].code->units[u].part[part]);
            }
    return WF_OK;
}

static wf_status add_uses(wfi_ideal *ideal, const wfi_segment *segment) {
    for (int32_t s = 0; segment && s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        wfi_block_kind kind = slot->kind;
        bool is_named = kind == WFI_BLOCK_INPUT || kind == WFI_BLOCK_HIDDEN || wfi_is_kept(kind) ||
                        kind == WFI_BLOCK_PACKED;
        int32_t column = is_named ? -1 : *column_of(ideal, name_of(segment, slot, 0));
        bool is_whole = is_made(slot) && !wfi_gives_part(ideal->p, segment, slot);
        WF_TRY(WFI_GROW(ideal->p->ctx, ideal->uses, ideal->n_uses, ideal->use_capacity,
                        "the program check"));
        ideal->uses[ideal->n_uses++] = (slot_use){column, is_whole ? column : -1};
    }
    return WF_OK;
}

/* Resolves names to columns once for all microbatches. */
static wf_status find_uses(wfi_ideal *ideal) {
    const wf_program *p = ideal->p;
    size_t n = (size_t)p->graph->n_units * WFI_N_PARTS;
    for (int32_t v = 0; v < p->n_variants; v++) {
        int32_t *first = wfi_alloc(p->ctx, n, sizeof *first, "the program check");
        ideal->first_use[v] = first;
        if (!first) return WF_NO_MEMORY;
        for (size_t k = 0; k < n; k++) {
            first[k] = ideal->n_uses;
            WF_TRY(
                add_uses(ideal, p->variants[v].code->units[k / WFI_N_PARTS].part[k % WFI_N_PARTS]));
        }
    }
    return WF_OK;
}

/* Gives a row to the microbatches of every replica that has a lowered rank. */
static void find_rows(wfi_ideal *ideal) {
    const wf_program *p = ideal->p;
    ideal->n_rows = 1;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t k = 0; k < p->stages[s].n_replicas; k++) {
            if (!wfi_rank_is_lowered(p, wfi_program_rank_of(p, k, s, 0))) continue;
            for (int64_t m = wfi_first_micro(p, s, k); m < wfi_first_micro(p, s, k + 1); m++)
                if (!ideal->row[m]) {
                    ideal->micro[ideal->n_rows] = m;
                    ideal->row[m] = ideal->n_rows++;
                }
        }
}

static wf_status run_microbatches(wfi_ideal *ideal) {
    const wf_program *p = ideal->p;
    const char *what = "the program check";
    WF_TRY(find_columns(ideal));
    WF_TRY(find_uses(ideal));
    find_rows(ideal);
    size_t n = (size_t)ideal->n_columns * (size_t)ideal->n_rows;
    ideal->table = wfi_alloc(p->ctx, n, sizeof *ideal->table, what);
    ideal->slots = wfi_alloc(p->ctx, 2 * (size_t)ideal->most_slots, sizeof *ideal->slots, what);
    if (!ideal->table || !ideal->slots) return WF_NO_MEMORY;
    for (int32_t v = 0; v < p->n_variants; v++) run_packs(ideal, p->variants[v].code);
    for (int32_t row = 1; row < ideal->n_rows; row += N_TOGETHER)
        run_some(ideal, row, (int32_t)wfi_min_i64(row + N_TOGETHER, ideal->n_rows));
    return WF_OK;
}

/* A part that adds nothing only begins the sum. */
static bool adds(const wfi_ideal *ideal, wfi_block_kind kind, int32_t id) {
    const wfi_code *code = ideal->p->code;
    return kind != WFI_BLOCK_GRADIENT ||
           wfi_segment_adds(code->units[id].part[code->splits_weight ? WFI_PART_W : WFI_PART_BW]);
}

static wfi_term sum_lane(const wfi_ideal *ideal, wfi_block_kind kind, int32_t id, int64_t lane) {
    const wf_recipe *r = &ideal->p->recipe;
    int64_t n = r->n_micro / r->n_lanes;
    wfi_term sum = wfi_ideal_find(ideal, wfi_named(kind, id, lane * n));
    for (int64_t m = lane * n + 1; m < (lane + 1) * n && adds(ideal, kind, id); m++)
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

/* All uses of the unit have one term. */
static wfi_term sum_slices(const wfi_ideal *ideal, int32_t i, int64_t lane) {
    const wf_graph *g = ideal->p->graph;
    wfi_term sum = sum_lane(ideal, WFI_BLOCK_TIED, wfi_sum_home(g, i), lane);
    for (int32_t n = 1; n < g->n_slices; n *= 2) sum = wfi_term_fold(sum, sum);
    return sum;
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
        if (!ideal->row[k * per_lane]) continue; /* nor the others of the lane */
        *lane = sum_lane(ideal, WFI_BLOCK_GRADIENT, unit, k);
        for (int32_t t = g->units[unit].first_tied; t < g->units[unit].end_tied; t++) {
            int32_t i = g->tied[t];
            int32_t n = wfi_is_slices_use(g, i) ? g->n_slices : 1;
            bool is_one = wfi_has_one_sum(g, g->weight_gradients[i].unit);
            const wfi_term both[] = {*lane,
                                     is_one ? sum_slices(ideal, i, k) : sum_use(ideal, i, k, 0, n)};
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
    bool folds = p->code->units[unit].bytes[WFI_BLOCK_STATS] > 0;
    in[0] = wfi_ideal_find(ideal, wfi_named(WFI_BLOCK_BUFFER, unit, -1));
    for (int64_t m = 0; m < n_micro && folds; m++)
        in[1 + m] = wfi_ideal_find(ideal, wfi_named(WFI_BLOCK_STATS, unit, m));
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

static void *room(const wfi_ideal *ideal, size_t n, size_t n_bytes) {
    return wfi_alloc(ideal->p->ctx, n, n_bytes, "the program check");
}

wf_status wfi_ideal_create(const wf_program *p, wfi_ideal **ideal_out) {
    size_t n_units = (size_t)p->graph->n_units, n_micro = (size_t)p->recipe.n_micro;
    wfi_ideal *ideal = wfi_alloc(p->ctx, 1, sizeof *ideal, "the program check");
    if (!ideal) return WF_NO_MEMORY;
    ideal->p = p;
    ideal->lanes = room(ideal, n_units * (size_t)p->recipe.n_lanes, sizeof(wfi_term));
    ideal->row = room(ideal, n_micro, sizeof *ideal->row);
    ideal->parts = room(ideal, (size_t)p->graph->n_slices, sizeof *ideal->parts);
    ideal->micro = room(ideal, n_micro + 1, sizeof *ideal->micro);
    bool ok = ideal->lanes && ideal->row && ideal->micro && ideal->parts;
    for (size_t i = 0; i < WFI_COUNT(ideal->after); i++) {
        ideal->after[i] = room(ideal, n_units, sizeof(wfi_term));
        ok = ok && ideal->after[i];
    }
    wfi_term *scratch = room(ideal, n_units + n_micro + 1, sizeof *scratch);
    wf_status status = ok && scratch ? run_microbatches(ideal) : WF_NO_MEMORY;
    if (status == WF_OK && wfi_differentiates(p)) finish_step(ideal, scratch, scratch + n_units);
    wfi_free(p->ctx, scratch);
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
    wfi_free(ctx, ideal->row);
    wfi_free(ctx, ideal->micro);
    wfi_free(ctx, ideal->parts);
    wfi_free(ctx, ideal->slots);
    wfi_free(ctx, ideal->uses);
    for (int v = 0; v < WFI_MAX_MICRO_VARIANTS; v++) wfi_free(ctx, ideal->first_use[v]);
    for (int kind = 0; kind < WFI_N_BLOCK_KINDS; kind++) wfi_free(ctx, ideal->column[kind]);
    for (size_t i = 0; i < WFI_COUNT(ideal->after); i++) wfi_free(ctx, ideal->after[i]);
    wfi_free(ctx, ideal);
}
