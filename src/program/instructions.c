/* The table of instructions. The number of references of each instruction, and the requirements for
 * each: which kind of block, which bytes, read or written. Lowering fills references with the needs
 * here, which come only from the graph, the compiled units, the recipe and the plan. The executor
 * touches only the bytes of the references, which check_sizes.c compares with the needs.
 */
#include "program/change.h"
#include "program/clock.h"
#include "program/need.h"
#include "program/rate.h"
#include "program/where.h"

size_t wfi_tensor_bytes(const wf_program *p, wfi_name name) {
    const wf_graph *g = p->graph;
    const wfi_code *code = wfi_program_code_of(p, name.micro);
    const int32_t n_owners[] = {[WFI_OWNER_UNIT] = g->n_units,
                                [WFI_OWNER_VALUE] = g->n_values,
                                [WFI_OWNER_USE] = g->n_weight_gradients};
    int32_t id = name.owner;
    if (id < 0 || id >= n_owners[wfi_block_types[name.kind].owner]) return 0;
    switch (name.kind) {
    case WFI_BLOCK_PARAM:
        return g->units[id].param_bytes;
    case WFI_BLOCK_BUFFER:
        return g->units[id].buffer_bytes;
    case WFI_BLOCK_GRADIENT:
        return g->units[id].trained_bytes;
    case WFI_BLOCK_TIED:
        return wfi_sum_bytes(g, id);
    case WFI_BLOCK_INPUT:
    case WFI_BLOCK_VALUE:
        return code->place[id].bytes;
    case WFI_BLOCK_RECORD:
        return code->place[g->record].bytes;
    case WFI_BLOCK_NORM:
        return wfi_norm_extent((wfi_extent){0, g->units[id].trained_bytes}).bytes;
    case WFI_BLOCK_TOTAL_NORM:
        return sizeof(double);
    default:
        return code->units[id]
            .bytes[name.kind == WFI_BLOCK_NEXT_HIDDEN ? WFI_BLOCK_HIDDEN : name.kind];
    }
}

static bool has_unit(const wf_program *p, const wfi_instruction *now) {
    return now->unit >= 0 && now->unit < p->graph->n_units;
}

/* ---- how many references; -1: it is no instruction that could be run ---- */

/* Not every row needs all of these. */
#define PROGRAM     __attribute__((unused)) const wf_program *p
#define INSTRUCTION __attribute__((unused)) const wfi_instruction *now

#define COUNT(name) static int32_t count_##name(PROGRAM, INSTRUCTION)

COUNT(one) {
    return 1;
}

COUNT(two) {
    return 2;
}

COUNT(load) {
    return now->micro >= 0 ? 1 : -1;
}

/* The executor finds the kernels by unit and part. */
COUNT(slots) {
    const wfi_segment *s = now->segment;
    if (!s || !has_unit(p, now) || now->part >= WFI_N_PARTS) return -1;
    const wfi_unit_code *unit = &p->variants[s->variant].code->units[now->unit];
    bool is_own = s == (s->is_pack ? unit->pack : unit->part)[now->part];
    return is_own ? s->n_slots : -1;
}

/* As many pieces as it names. The checks of other instructions find a missing piece. */
COUNT(pieces) {
    bool moves = wfi_change_name(now->from, now->to) && wfi_n_moved(p, now) > 0;
    return moves ? now->n_references : -1;
}

COUNT(norms) {
    return p->recipe.clip_norm > 0 ? p->graph->n_units + 1 : -1;
}

COUNT(update) {
    return 2 + (wfi_recipe_n_states(&p->recipe) > 0) + (p->recipe.clip_norm > 0);
}

COUNT(stats) {
    return (int32_t)p->recipe.n_micro + 1;
}

COUNT(records) {
    int32_t last = p->n_stages - 1, replica = wfi_stage_replica_on(p, last, now->rank);
    bool reports = p->graph->record >= 0 && replica >= 0;
    return reports ? (int32_t)wfi_replica_n_micro(p, last, replica) : -1;
}

/* ---- needs of each reference ---- */

static wfi_need need_extent(wfi_block_kind kind, wfi_extent extent, int access) {
    return (wfi_need){kind, extent, access, WFI_SPACE_DEVICE};
}
/* All of a tensor. */
static wfi_need need(const wf_program *p, wfi_block_kind kind, int32_t owner, int64_t micro,
                     int access) {
    size_t bytes = wfi_tensor_bytes(p, wfi_named(kind, owner, micro));
    return need_extent(kind, (wfi_extent){0, bytes}, access);
}

static const wfi_need nothing = {.kind = WFI_N_BLOCK_KINDS};

#define NEED(name)                                                                                 \
    static wfi_need need_##name(PROGRAM, INSTRUCTION, __attribute__((unused)) int32_t k)

NEED(input) {
    return need(p, WFI_BLOCK_INPUT, now->id, now->micro, WFI_WRITE);
}

NEED(output) {
    const wf_graph *g = p->graph;
    int32_t v = wfi_value_root(g, g->outputs[now->id]);
    const wfi_block *b = &p->blocks[now->references[k].block];
    if (b->name.owner != v || b->name.micro != now->micro) return nothing;
    return need(p, WFI_BLOCK_VALUE, v, now->micro, WFI_READ);
}

NEED(record) {
    return need(p, WFI_BLOCK_RECORD, 0, -1, WFI_READ);
}

/* A slice of parameters to where they are gathered, or of a gradient to where it is kept; hidden
 * state to where the next step reads it. */
NEED(copy) {
    const wfi_block *to = &p->blocks[now->references[1].block];
    int access = k ? WFI_WRITE : WFI_READ;
    if (to->name.kind == WFI_BLOCK_HIDDEN && now->micro >= 0 && to->name.micro == now->micro)
        return need(p, k ? WFI_BLOCK_HIDDEN : WFI_BLOCK_NEXT_HIDDEN, now->unit, now->micro, access);
    if (to->name.kind != WFI_BLOCK_GRADIENT)
        return need_extent(WFI_BLOCK_PARAM,
                           wfi_kept_extent(p, WFI_BLOCK_PARAM, now->unit, now->rank), access);
    if (to->name.copy != WFI_COPY_PART) return nothing;
    return need_extent(to->name.kind, wfi_kept_extent(p, WFI_BLOCK_GRADIENT, now->unit, now->rank),
                       access);
}

/* An offloaded tensor, at its storage and on the device; `is_kept`: at its storage. */
static wfi_need need_moved(const wf_program *p, const wfi_instruction *now, int32_t k,
                           bool is_kept) {
    wfi_block_kind kind = p->blocks[now->references[0].block].name.kind;
    bool is_value = wfi_block_types[kind].owner == WFI_OWNER_VALUE;
    int32_t unit = is_value ? p->graph->values[now->id].unit : now->unit;
    int32_t id = is_value ? now->id : now->unit;
    wfi_space space = wfi_kept_space(p, kind);
    if (space == WFI_SPACE_DEVICE || unit != now->unit ||
        p->blocks[now->references[k].block].name.owner != id)
        return nothing;
    wfi_need moved =
        need_extent(kind, wfi_moved_extent(p, wfi_named(kind, id, now->micro), now->rank),
                    k ? WFI_WRITE : WFI_READ);
    /* Untrained parameters have not changed. Before an update the updated slice is enough; an
     * instruction that reads more fails the proof, as those bytes were never written. */
    wfi_extent own = wfi_kept_extent(p, WFI_BLOCK_STATE, unit, now->rank);
    if (kind == WFI_BLOCK_PARAM && now->kind == WFI_FETCH && now->references[0].bytes == own.bytes)
        moved.extent = own;
    if (kind == WFI_BLOCK_PARAM && now->kind == WFI_EVICT)
        moved.extent = wfi_trained_extent(p, unit, moved.extent);
    if (is_kept) moved.space = space;
    return moved;
}

NEED(fetch) {
    return need_moved(p, now, k, k == 0);
}

NEED(evict) {
    return need_moved(p, now, k, k == 1);
}

/* Sums of slices' gradients: those of one use of a weight; or those of all uses of a unit, where
 * the fold adds as many slices as its `id` says to as many before them. */
static wfi_need need_slices(const wf_program *p, const wfi_name *name, const wfi_instruction *now,
                            int32_t k, int access) {
    const wf_graph *g = p->graph;
    if (!wfi_has_one_sum(g, g->weight_gradients[name->owner].unit))
        return need(p, WFI_BLOCK_TIED, name->owner, now->micro, access);
    size_t bytes = (size_t)now->id * (wfi_tensor_bytes(p, *name) / (size_t)g->n_slices);
    return need_extent(WFI_BLOCK_TIED, (wfi_extent){(size_t)k * bytes, bytes}, access);
}

/* Lanes of a gradient, slices' summands, or their uses of a weight. */
NEED(fold) {
    const wfi_block *into = &p->blocks[now->references[0].block];
    const wfi_block *b = &p->blocks[now->references[k].block];
    int access = k ? WFI_READ : WFI_READ | WFI_WRITE;
    bool is_alike = b->name.owner == into->name.owner && b->name.micro == into->name.micro;
    if (into->name.kind == WFI_BLOCK_VALUE && now->micro >= 0 && is_alike &&
        b->name.micro == now->micro && wfi_is_slice_sum(p->graph, b->name.owner))
        return need(p, WFI_BLOCK_VALUE, b->name.owner, now->micro, access);
    if (into->name.kind == WFI_BLOCK_TIED && is_alike)
        return need_slices(p, &b->name, now, k, access);
    if (b->name.owner != now->unit) return nothing;
    return need(p, WFI_BLOCK_GRADIENT, now->unit, -1, access);
}

NEED(stats) {
    return k ? need(p, WFI_BLOCK_STATS, now->unit, k - 1, WFI_READ)
             : need(p, WFI_BLOCK_BUFFER, now->unit, -1, WFI_READ | WFI_WRITE);
}

/* A lane's first segment assigns the gradient; the gaps between parameters become zero, too. */
NEED(slot) {
    const wfi_slot *slot = &now->segment->slots[k];
    size_t bytes = slot->bytes;
    if (slot->kind == WFI_BLOCK_GRADIENT) bytes = p->graph->units[slot->id].trained_bytes;
    if (slot->kind == WFI_BLOCK_WORKSPACE) bytes = slot->workspace_bytes[now->first];
    return need_extent(slot->kind, (wfi_extent){slot->begin, bytes},
                       now->first && wfi_is_sum(slot->kind) ? WFI_WRITE : slot->access);
}

/* The piece that begins where the reference does; norms are shared by groups of their own. */
NEED(piece) {
    const wfi_block *b = &p->blocks[now->references[k].block];
    bool is_slices =
        b->name.kind == WFI_BLOCK_TIED ||
        (b->name.kind == WFI_BLOCK_VALUE && wfi_is_made_by_slices(p->graph, b->name.owner));
    bool is_own = b->name.kind != WFI_BLOCK_NORM && !is_slices;
    int32_t unit = b->name.kind == WFI_BLOCK_NORM ? -1 : is_own ? b->name.owner : now->unit;
    bool moves = p->groups[now->group].stage >= 0
                     ? b->name.kind == WFI_BLOCK_PARAM || b->name.kind == WFI_BLOCK_GRADIENT ||
                           b->name.kind == WFI_BLOCK_STATS
                 : now->group < p->first_slice_group ? b->name.kind == WFI_BLOCK_NORM
                                                     : is_slices;
    int32_t member = wfi_group_find(&p->groups[now->group], now->rank);
    if (k == 0 && unit != now->unit) return nothing;
    if (k == wfi_n_moved(p, now))
        return need_extent(WFI_BLOCK_STAGING, (wfi_extent){0, wfi_change_staged_bytes(p, now)},
                           WFI_WRITE);
    wfi_piece piece = moves ? wfi_named_piece(p, now, k) : (wfi_piece){.owner = -1};
    if (piece.owner < 0) return nothing;
    int access = wfi_piece_access(now, member, &piece);
    if (!access) piece.extent.bytes = 0;
    return need_extent(b->name.kind, piece.extent, access);
}

NEED(update) {
    int has_state = wfi_recipe_n_states(&p->recipe) > 0;
    wfi_extent own = wfi_kept_extent(p, WFI_BLOCK_STATE, now->unit, now->rank);
    if (k == 0) return need_extent(WFI_BLOCK_PARAM, own, WFI_READ | WFI_WRITE);
    if (k == 1) return need_extent(WFI_BLOCK_GRADIENT, own, WFI_READ);
    if (k == 2 && has_state)
        return need_extent(WFI_BLOCK_STATE,
                           wfi_moved_extent(p, wfi_of_unit(WFI_BLOCK_STATE, now->unit), now->rank),
                           WFI_READ | WFI_WRITE);
    return need(p, WFI_BLOCK_TOTAL_NORM, 0, -1, WFI_READ);
}

NEED(norm) {
    wfi_extent own = wfi_kept_extent(p, WFI_BLOCK_STATE, now->unit, now->rank);
    return k ? need_extent(WFI_BLOCK_NORM, wfi_norm_extent(own), WFI_WRITE)
             : need_extent(WFI_BLOCK_GRADIENT, own, WFI_READ);
}

/* The sums of every unit, in order of units. */
NEED(total_norm) {
    return k ? need(p, WFI_BLOCK_NORM, k - 1, -1, WFI_READ)
             : need(p, WFI_BLOCK_TOTAL_NORM, 0, -1, WFI_WRITE);
}

/* A send carries all bytes that the rank has of the block's tensor; both sides name it. */
NEED(transfer) {
    const wfi_name *what = &p->blocks[now->references[k].block].name;
    bool is_flat = what->kind == WFI_BLOCK_PARAM ||
                   (what->kind == WFI_BLOCK_GRADIENT && what->owner == now->unit);
    bool is_sent = is_flat || what->kind == WFI_BLOCK_TIED || what->kind == WFI_BLOCK_INPUT;
    wfi_name name = wfi_named(is_sent ? what->kind : WFI_BLOCK_VALUE, is_flat ? now->unit : now->id,
                              is_flat ? -1 : now->micro);
    wfi_extent extent = wfi_moved_extent(p, name, now->rank);
    if (is_flat) extent = wfi_trained_extent(p, now->unit, extent);
    return need_extent(name.kind, extent, now->kind == WFI_SEND ? WFI_READ : WFI_WRITE);
}

NEED(tie) {
    wfi_extent sum = {wfi_sum_begin(p->graph, now->id),
                      wfi_value_bytes(p->graph, p->graph->weight_gradients[now->id].param)};
    return k ? need_extent(WFI_BLOCK_TIED, sum, WFI_READ)
             : need(p, WFI_BLOCK_GRADIENT, now->unit, -1, WFI_READ | WFI_WRITE);
}

/* ---- arguments as text ---- */

#define ARGUMENTS(name)                                                                            \
    static void add_##name(PROGRAM, INSTRUCTION, __attribute__((unused)) wfi_text *text)

ARGUMENTS(none) {}

ARGUMENTS(input) {
    wfi_text_add(text, " input=%s", p->graph->values[now->id].name);
}

ARGUMENTS(output) {
    wfi_text_add(text, " output=%s", p->graph->values[p->graph->outputs[now->id]].name);
}

ARGUMENTS(pack) {
    wfi_text_add(text, " for=%s", now->part == WFI_PART_F ? "forward" : "backward");
}

ARGUMENTS(copy) {
    wfi_text_add(text, " %s", wfi_block_kind_name(p->blocks[now->references[0].block].name.kind));
}

ARGUMENTS(moved) {
    add_copy(p, now, text);
    wfi_text_add(text, now->kind == WFI_FETCH ? " from=%s" : " to=%s",
                 wfi_space_name(wfi_moved_space(p, now)));
}

ARGUMENTS(accumulator) {
    wfi_text_add(text, " accumulator=%d", now->id);
}

ARGUMENTS(sum) {
    wfi_text_add(text, " %s", now->first ? "assign" : "add");
    add_accumulator(p, now, text);
}

ARGUMENTS(change) {
    const wfi_allreduce *how = wfi_change_algorithm(p, now);
    wfi_block_kind kind = p->blocks[now->references[0].block].name.kind;
    if (how) wfi_text_add(text, " by=%s", how->alias ? how->alias : how->name);
    if (kind != WFI_BLOCK_GRADIENT) wfi_text_add(text, " %s", wfi_block_kind_name(kind));
}

ARGUMENTS(transfer) {
    wfi_block_kind kind = p->blocks[now->references[0].block].name.kind;
    if (kind == WFI_BLOCK_INPUT && now->id >= 0 && now->id < p->graph->n_values)
        add_input(p, now, text);
    else
        wfi_text_add(text, kind == WFI_BLOCK_TIED ? " tied%d" : " v%d", now->id);
    wfi_text_add(text, now->kind == WFI_SEND ? " to=r%d" : " from=r%d", now->peer);
}

/* ---- the table ---- */

const wfi_instruction_type wfi_instruction_types[] = {
#define ROW(kind, name, stream, class, span, cost, unit, id, count, need, arguments)               \
    [WFI_##kind] = {name,           WFI_STREAM_##stream, WFI_CLASS_##class,                        \
                    WF_SPAN_##span, WFI_COST_##cost,     WFI_UNIT_##unit,                          \
                    WFI_ID_##id,    count_##count,       need_##need,                              \
                    add_##arguments},
    WFI_INSTRUCTION_LIST(ROW)
#undef ROW
};

const char *wfi_stream_name(wfi_stream stream) {
    static const char *const names[] = {"compute", "copy", "send", "receive", "reduce"};
    return (unsigned)stream < WFI_N_STREAMS ? names[stream] : "?";
}

const char *wfi_instruction_name(const wfi_instruction *now) {
    const char *change = wfi_change_name(now->from, now->to);
    if ((unsigned)now->kind >= WFI_N_INSTRUCTION_KINDS) return "?";
    return now->kind == WFI_CHANGE && change ? change : wfi_type_of(now)->name;
}

int32_t wfi_n_references_needed(const wf_program *p, const wfi_instruction *now) {
    bool exists = (unsigned)now->kind < WFI_N_INSTRUCTION_KINDS;
    return exists ? wfi_type_of(now)->n_references(p, now) : -1;
}

/* Whether the objects that the instruction names exist. */
static bool is_sound(const wf_program *p, const wfi_instruction *now) {
    const wf_graph *g = p->graph;
    const wfi_instruction_type *type = wfi_type_of(now);
    const int32_t n_ids[] = {[WFI_ID_NONE] = INT32_MAX,
                             [WFI_ID_ACCUMULATOR] = INT32_MAX,
                             [WFI_ID_VALUE] = g->n_values,
                             [WFI_ID_OUTPUT] = g->n_outputs,
                             [WFI_ID_TIED] = g->n_weight_gradients};
    if (now->micro < -1 || now->micro >= p->recipe.n_micro) return false;
    if (type->unit != WFI_UNIT_NONE && !has_unit(p, now)) return false;
    if (type->unit == WFI_UNIT_OWN && p->blocks[now->references[0].block].name.owner != now->unit)
        return false;
    return now->id >= 0 && now->id < n_ids[type->id];
}

bool wfi_reference_needs(const wf_program *p, const wfi_instruction *now, int32_t k,
                         wfi_need *need_out) {
    if (!is_sound(p, now)) return false;
    *need_out = wfi_type_of(now)->need(p, now, k);
    return true;
}

bool wfi_same_collective(const wf_program *p, const wfi_instruction *a, const wfi_instruction *b) {
    if (b->stream != WFI_STREAM_REDUCE || a->kind != b->kind || a->unit != b->unit ||
        a->from != b->from || a->to != b->to || a->group != b->group ||
        a->n_references != b->n_references)
        return false;
    for (int32_t k = 0; k < a->n_references; k++) {
        const wfi_block *x = &p->blocks[a->references[k].block],
                        *y = &p->blocks[b->references[k].block];
        if (wfi_reference_begin(p, &a->references[k]) != wfi_reference_begin(p, &b->references[k]))
            return false;
        if (!wfi_same_name(x->name, y->name)) return false;
    }
    return true;
}
