#include "state/pieces.h"
#include "program/where.h"

#include <stdlib.h>
#include <string.h>

/* ---- members by a key, in ascending order ---- */

typedef struct chains {
    int32_t *first; /* [n_keys] -1: none */
    int32_t *next;  /* [n] -1: it is the last */
} chains;

static wf_status chains_create(wfi_pool *pool, int32_t n_keys, int32_t n, chains *chains_out) {
    chains *c = chains_out;
    c->first = wfi_pool_alloc(pool, (size_t)n_keys, sizeof *c->first);
    c->next = wfi_pool_alloc(pool, (size_t)n, sizeof *c->next);
    for (int32_t k = 0; c->first && k < n_keys; k++) c->first[k] = -1;
    return wfi_pool_status(pool);
}

/* Members come in descending order. */
static void chains_add(const chains *c, int32_t key, int32_t member) {
    c->next[member] = c->first[key];
    c->first[key] = member;
}

/* ---- which part of a unit's flat buffer a block has ---- */

typedef struct held {
    const wfi_block *block;
    wfi_extent extent; /* of the unit's flat buffer; STATE: of each of the optimizer's */
} held;

static bool is_wanted(const wf_program *p, const wfi_block *block, wfi_state_scope scope) {
    if (scope == WFI_STATE_GRADIENTS) return wfi_is_summed(p, block);
    bool is_weight = block->name.kind != WFI_BLOCK_STATE && block->name.kind != WFI_BLOCK_HIDDEN;
    return block->is_state && (is_weight || scope == WFI_STATE_ALL);
}

static wfi_extent find_extent(const wf_program *p, const wfi_block *block) {
    if (block->name.kind == WFI_BLOCK_HIDDEN) return (wfi_extent){0, block->bytes};
    if (block->name.kind != WFI_BLOCK_GRADIENT)
        return wfi_kept_extent(p, block->name.kind, block->name.owner, block->rank);
    if (wfi_stage_is_updated(p, wfi_program_stage_of(p, block->name.owner), block->rank))
        return wfi_kept_extent(p, WFI_BLOCK_GRADIENT, block->name.owner, block->rank);
    return (wfi_extent){0, 0};
}

static wf_status list_held(const wf_program *p, wfi_state_scope scope, wfi_pool *pool,
                           held **held_out, int32_t *n_out) {
    size_t n = 0;
    for (int32_t b = 0; b < p->n_blocks; b++) n += is_wanted(p, &p->blocks[b], scope);
    held *all = wfi_pool_alloc(pool, n, sizeof *all);
    if (!all) return WF_NO_MEMORY;
    *n_out = 0;
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (is_wanted(p, &p->blocks[b], scope))
            all[(*n_out)++] = (held){&p->blocks[b], find_extent(p, &p->blocks[b])};
    *held_out = all;
    return WF_OK;
}

/* ---- tensors ---- */

/* Whether the block, of the value's unit, is of the tensor's kind. */
static bool is_of(const held *from, const wfi_state_tensor *tensor, const wfi_value *value) {
    wfi_block_kind kind = from->block->name.kind;
    return (kind == WFI_BLOCK_STATE) == (tensor->state >= 0) &&
           (kind == WFI_BLOCK_BUFFER) == (value->kind == WFI_VALUE_BUFFER) &&
           (kind == WFI_BLOCK_HIDDEN) == (value->kind == WFI_VALUE_HIDDEN);
}

/* The part of the tensor in the block; it may have no elements. */
static wfi_state_piece cut(const held *from, int state, const wfi_value *value,
                           size_t value_bytes) {
    size_t size = wf_dtype_bytes(value->dtype), at = from->block->offset;
    wfi_extent part = wfi_extent_intersect(from->extent, (wfi_extent){value->offset, value_bytes});
    if (state >= 0) /* one after the other */
        at += (size_t)state * from->extent.bytes + part.offset - from->extent.offset;
    else
        at += part.offset - (size_t)from->block->begin;
    return (wfi_state_piece){.first = (int64_t)((part.offset - value->offset) / size),
                             .n = (int64_t)(part.bytes / size),
                             .rank = from->block->rank,
                             .space = from->block->space,
                             .at = at};
}

/* A microbatch's samples of hidden state, of which each has a block. */
static wfi_state_piece cut_samples(const wf_program *p, const held *from, int32_t v) {
    int64_t micro = from->block->name.micro;
    const wf_graph *g = wfi_program_graph_of(p, micro);
    int64_t n = wf_shape_n_elem(&g->values[v].shape);
    return (wfi_state_piece){.first = wfi_program_first_sample(p, micro) * (n / g->batch),
                             .n = n,
                             .rank = from->block->rank,
                             .space = from->block->space,
                             .at = from->block->offset +
                                   wfi_program_code_of(p, micro)->place[v].offset};
}

static int compare_pieces(const void *a, const void *b) {
    const wfi_state_piece *x = a, *y = b;
    if (x->part != y->part) return x->part - y->part;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->rank - y->rank;
}

/* Number of elements of value v, a part of a tensor or all of it, that are contiguous in the
 * tensor. */
static int64_t count_run(const wf_graph *g, int32_t v) {
    const wfi_cut *cut = g->values[v].cut;
    const wf_shape *shape = &g->values[v].shape;
    int64_t n = wf_shape_n_elem(shape);
    for (int d = 0; cut && d < cut->dim; d++) n /= shape->dim[d];
    return cut ? n / cut->n_blocks : n;
}

static int32_t part_of(const wf_graph *g, int32_t v) {
    return g->values[v].cut ? g->units[g->values[v].unit].slice : 0;
}

/* Where the tensors' values and the blocks are. */
typedef struct sources {
    const wf_program *program;
    held *all;
    chains parts; /* values: parts of a tensor's value, or it itself */
    chains of;    /* indices in `all`, by unit */
} sources;

static wf_status find_runs(wfi_state_list *list, wfi_state_tensor *tensor, const chains *parts) {
    const wf_graph *g = list->graph;
    int32_t n = tensor->n_parts = g->values[tensor->value].kind == WFI_VALUE_CUT ? g->n_slices : 1;
    tensor->run_begin = wfi_pool_alloc(&list->pool, (size_t)n + 1, sizeof *tensor->run_begin);
    if (!tensor->run_begin) return WF_NO_MEMORY;
    for (int32_t v = parts->first[tensor->value]; v >= 0; v = parts->next[v])
        if (g->values[v].kind != WFI_VALUE_CUT)
            tensor->run_begin[part_of(g, v) + 1] = count_run(g, v);
    if (g->values[tensor->value].kind == WFI_VALUE_HIDDEN)
        tensor->run_begin[1] = wf_shape_n_elem(&tensor->shape);
    for (int32_t k = 0; k < n; k++) tensor->run_begin[k + 1] += tensor->run_begin[k];
    return WF_OK;
}

static wf_status add_pieces(wfi_state_list *list, const sources *from, wfi_state_tensor *tensor) {
    const wf_graph *g = list->graph;
    const chains *parts = &from->parts, *of = &from->of;
    size_t most = 0;
    WF_TRY(find_runs(list, tensor, parts));
    for (int32_t v = parts->first[tensor->value]; v >= 0; v = parts->next[v])
        for (int32_t k = of->first[g->values[v].unit]; k >= 0; k = of->next[k])
            most += is_of(&from->all[k], tensor, wfi_value_at(g, v));
    tensor->pieces = wfi_pool_alloc(&list->pool, most, sizeof *tensor->pieces);
    if (!tensor->pieces) return WF_NO_MEMORY;
    for (int32_t v = parts->first[tensor->value]; v >= 0; v = parts->next[v]) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind == WFI_VALUE_CUT) continue;
        for (int32_t k = of->first[value->unit]; k >= 0; k = of->next[k]) {
            const held *source = &from->all[k];
            if (!is_of(source, tensor, value)) continue;
            wfi_state_piece piece = value->kind == WFI_VALUE_HIDDEN
                                        ? cut_samples(from->program, source, v)
                                        : cut(source, tensor->state, value, wfi_value_bytes(g, v));
            piece.part = part_of(g, v);
            tensor->pieces[tensor->n_pieces] = piece;
            tensor->n_pieces += piece.n > 0;
        }
    }
    qsort(tensor->pieces, (size_t)tensor->n_pieces, sizeof *tensor->pieces, compare_pieces);
    return WF_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const wfi_state_tensor *)a)->name, ((const wfi_state_tensor *)b)->name);
}

static wf_status add_tensors(wfi_state_list *list, const sources *from, wfi_state_scope scope) {
    const wf_program *p = from->program;
    int n_states = scope == WFI_STATE_ALL ? wfi_recipe_n_states(&p->recipe) : 0;
    for (int32_t v = 0; v < list->graph->n_values; v++) {
        const wfi_value *value = wfi_value_at(list->graph, v);
        bool is_hidden = value->kind == WFI_VALUE_HIDDEN && scope == WFI_STATE_ALL;
        if (!wfi_value_is_state(value) && !is_hidden) continue;
        bool is_trained = value->kind != WFI_VALUE_BUFFER && !value->is_frozen && !is_hidden;
        for (int k = -1; k < (is_trained ? n_states : 0); k++) {
            wfi_state_tensor *tensor = &list->tensors[list->n_tensors++];
            *tensor = (wfi_state_tensor){
                .name = value->name, .value = v, .shape = value->shape, .state = k};
            if (is_hidden) {
                tensor->name = wfi_pool_format(&list->pool, "hidden.%s", value->name);
                tensor->shape.dim[0] = p->recipe.batch;
            }
            if (k >= 0)
                tensor->name = wfi_pool_format(&list->pool, "optimizer.%s.%s",
                                               wfi_recipe_state_name(&p->recipe, k), value->name);
            if (!tensor->name) return WF_NO_MEMORY;
            WF_TRY(add_pieces(list, from, tensor));
        }
    }
    qsort(list->tensors, (size_t)list->n_tensors, sizeof *list->tensors, compare_names);
    return WF_OK;
}

static wf_status find_sources(wfi_pool *pool, const wf_program *p, wfi_state_scope scope,
                              sources *sources_out) {
    sources *s = sources_out;
    const wf_graph *g = p->graph;
    int32_t n;
    *s = (sources){.program = p};
    WF_TRY(list_held(p, scope, pool, &s->all, &n));
    WF_TRY(chains_create(pool, g->n_values, g->n_values, &s->parts));
    WF_TRY(chains_create(pool, g->n_units, n, &s->of));
    for (int32_t v = g->n_values - 1; v >= 0; v--)
        chains_add(&s->parts, g->values[v].cut ? g->values[v].cut->whole : v, v);
    for (int32_t k = n - 1; k >= 0; k--) chains_add(&s->of, s->all[k].block->name.owner, k);
    return WF_OK;
}

wf_status wfi_state_list_create(const wf_program *p, wfi_state_scope scope,
                                wfi_state_list *list_out) {
    wfi_state_list *list = list_out;
    size_t most = (size_t)p->graph->n_values * (1 + (size_t)wfi_recipe_n_states(&p->recipe));
    wfi_pool pool;
    sources from;
    *list = (wfi_state_list){.graph = p->graph};
    wfi_pool_init(&list->pool, p->ctx);
    list->tensors = wfi_pool_alloc(&list->pool, most, sizeof *list->tensors);
    if (!list->tensors) return WF_NO_MEMORY;
    wfi_pool_init(&pool, p->ctx);
    wf_status status = find_sources(&pool, p, scope, &from);
    if (status == WF_OK) status = add_tensors(list, &from, scope);
    wfi_pool_release(&pool);
    return status;
}

void wfi_state_list_release(wfi_state_list *list) {
    wfi_pool_release(&list->pool);
}

/* ---- looking into it ---- */

const wfi_state_tensor *wfi_state_find(const wfi_state_list *list, const char *name) {
    const wfi_state_tensor wanted = {.name = name};
    return bsearch(&wanted, list->tensors, (size_t)list->n_tensors, sizeof wanted, compare_names);
}

size_t wfi_state_element_bytes(const wfi_state_list *list, const wfi_state_tensor *tensor) {
    return wf_dtype_bytes(wfi_value_at(list->graph, tensor->value)->dtype);
}

const wfi_state_piece *wfi_state_piece_of(const wfi_state_tensor *tensor, int32_t part,
                                          int64_t element) {
    int32_t low = 0, high = tensor->n_pieces;
    while (low < high) {
        const wfi_state_piece *middle = &tensor->pieces[low + (high - low) / 2];
        if (middle->part < part || (middle->part == part && middle->first + middle->n <= element))
            low = (int32_t)(middle - tensor->pieces) + 1;
        else
            high = (int32_t)(middle - tensor->pieces);
    }
    return &tensor->pieces[low];
}

int32_t wfi_state_n_equal(const wfi_state_tensor *tensor, const wfi_state_piece *piece) {
    const wfi_state_piece *end = tensor->pieces + tensor->n_pieces, *next = piece;
    while (next < end && next->part == piece->part && next->first == piece->first) next++;
    return (int32_t)(next - piece);
}

/* ---- initial values ---- */

void wfi_state_draw(const wfi_state_list *list, const wfi_state_tensor *tensor, uint64_t seed,
                    int64_t first, int64_t n, void *out) {
    const wfi_value *value = wfi_value_at(list->graph, tensor->value);
    wf_init init = value->init;
    wfi_random_key key = {seed, wfi_random_name(value->name)};
    float *floats = out;
    int64_t *integers = out;
    if (value->dtype == WF_I64) {
        for (int64_t i = 0; i < n; i++) integers[i] = (int64_t)init.value;
        return;
    }
    switch (init.kind) {
    case WF_INIT_CONSTANT:
        for (int64_t i = 0; i < n; i++) floats[i] = init.value;
        break;
    case WF_INIT_UNIFORM:
        wfi_random_fill_uniform(key, 0, (uint64_t)first, n, floats);
        for (int64_t i = 0; i < n; i++) floats[i] = (2 * floats[i] - 1) * init.value;
        break;
    case WF_INIT_NORMAL:
        wfi_random_fill_normal(key, 0, (uint64_t)first, init.value, n, floats);
        break;
    }
}
