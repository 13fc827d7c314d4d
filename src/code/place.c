/* The readers of a value decide its place: inside one segment it is part of the workspace; from
 * forward to backward of its unit it is saved; beyond its unit it is a block of its own, which can
 * also be sent to another rank.
 *
 * An op that may write over an input (graph/op.h) does so where it is the last to read that: then
 * two values have one place. Temporaries lie where the value will be that leaves the segment, or
 * where one was that the segment has read.
 */
#include "code/code.h"

typedef struct value_use {
    bool r, b, w;           /* read in these phases of its own unit */
    bool elsewhere;         /* read in another unit, or by the host */
    bool stays;             /* not only nodes of one unit read it */
    bool by_rows, as_whole; /* slices read rows of it; somebody reads all */
    int32_t last;           /* the node that is the last to read it, or -1 */
} value_use;

static void record_use(const wf_graph *g, value_use *use, int32_t v, int32_t unit,
                       wfi_phase phase) {
    int32_t r = wfi_value_root(g, v);
    if (g->values[r].unit != unit)
        use[r].elsewhere = true;
    else if (phase != WFI_F)
        *(phase == WFI_R ? &use[r].r : phase == WFI_B ? &use[r].b : &use[r].w) = true;
}

/* Which of a unit's segments a phase is a part of, in the order in which they run. */
static int order_of(const wfi_code *code, wfi_phase phase) {
    return phase == WFI_W && !code->splits_weight ? (int)WFI_B : (int)phase;
}

/* A unit's nodes stand in their order in each segment. */
static void record_reader(const wfi_code *code, value_use *use, int32_t v, int32_t n) {
    const wfi_node *nodes = code->g->nodes;
    int32_t root = wfi_value_root(code->g, v);
    value_use *u = &use[root];
    bool is_part = wfi_value_bytes(code->g, v) < wfi_value_bytes(code->g, root);
    if (!wfi_node_is_alias(code->g, &nodes[n])) *(is_part ? &u->by_rows : &u->as_whole) = true;
    if (u->last >= 0 && nodes[u->last].unit != nodes[n].unit) u->stays = true;
    if (u->last < 0 || order_of(code, nodes[n].phase) >= order_of(code, nodes[u->last].phase))
        u->last = n;
}

static void find_uses(const wfi_code *code, value_use *use) {
    const wf_graph *g = code->g;
    for (int32_t v = 0; v < g->n_values; v++) use[v].last = -1;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        bool reads = !node->dead && !(node->op->flags & WFI_OP_SLICES);
        for (int i = 0; i < node->n_in && reads; i++) {
            if (node->in[i] < 0) continue;
            record_use(g, use, node->in[i], node->unit, node->phase);
            record_reader(code, use, node->in[i], n);
        }
    }
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        record_use(g, use, g->weight_gradients[i].value, g->weight_gradients[i].unit, WFI_W);
        use[wfi_value_root(g, g->weight_gradients[i].value)].stays = true;
        use[wfi_value_root(g, g->weight_gradients[i].value)].as_whole = true;
    }
    for (int32_t i = 0; i < g->n_outputs && !g->training; i++)
        use[wfi_value_root(g, g->outputs[i])].elsewhere =
            use[wfi_value_root(g, g->outputs[i])].stays = true;
}

static wfi_phase phase_of(const wf_graph *g, int32_t r) {
    return g->nodes[g->values[r].node].phase;
}

static wfi_block_kind kind_of_node_value(const wfi_code *code, int32_t r, const value_use *use) {
    const wf_graph *g = code->g;
    if (use->elsewhere) return WFI_BLOCK_VALUE;
    switch (phase_of(g, r)) {
    case WFI_F:
        if (use->w && code->splits_weight) return WFI_BLOCK_SAVED_W;
        return use->r || use->b || use->w ? WFI_BLOCK_SAVED : WFI_BLOCK_WORKSPACE;
    case WFI_R:
        if (use->w && code->splits_weight) return WFI_BLOCK_REMADE_W;
        return use->b || use->w ? WFI_BLOCK_REMADE : WFI_BLOCK_WORKSPACE;
    case WFI_B:
        return use->w && code->splits_weight ? WFI_BLOCK_FOR_WEIGHT : WFI_BLOCK_WORKSPACE;
    case WFI_W:
        break;
    }
    return WFI_BLOCK_WORKSPACE;
}

/* Kernels decide how many bytes their outputs take. */
static size_t bytes_of_node_value(const wfi_code *code, wfi_kernel *const *kernels, int32_t r) {
    int32_t n = code->g->values[r].node;
    const wfi_node *node = &code->g->nodes[n];
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] == r && kernels[n]) return kernels[n]->bytes[node->n_in + i];
    return wfi_value_bytes(code->g, r);
}

/* Whether the node may write its first output over its input i: same size, and no later reader. */
static bool can_overwrite(const wfi_code *code, const wfi_kernel *kernel, int32_t n, int i,
                          const value_use *use) {
    const wf_graph *g = code->g;
    const wfi_node *node = &g->nodes[n];
    if (!(node->op->overwrites >> i & 1) || node->in[i] < 0) return false;
    int32_t from = wfi_value_root(g, node->in[i]), to = node->out[0];
    if (g->values[from].kind != WFI_VALUE_NODE || use[from].stays || use[from].last != n)
        return false;
    for (int k = 0; k < node->n_in; k++)
        if (k != i && node->in[k] >= 0 && wfi_value_root(g, node->in[k]) == from) return false;
    size_t bytes = code->place[to].bytes;
    return code->place[from].bytes == bytes && kernel->bytes[i] == bytes &&
           kernel->bytes[node->n_in] == bytes;
}

/* One of the two has to be a temporary. The backward reads saved values after the recomputed ones,
 * and reads all of them: it is not spoiled before. */
static bool join(wfi_code *code, wfi_phase phase, int32_t from, int32_t to) {
    int32_t home = wfi_place_home(code, from);
    bool from_inside = code->place[home].kind == WFI_BLOCK_WORKSPACE;
    bool to_inside = code->place[to].kind == WFI_BLOCK_WORKSPACE;
    if (to_inside && (from_inside || phase != WFI_R))
        code->place[to].home = home;
    else if (from_inside)
        code->place[home].home = to;
    else
        return false;
    return true;
}

static void overwrite(wfi_code *code, wfi_kernel *const *kernels, const value_use *use) {
    const wf_graph *g = code->g;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        bool joined = !kernels[n];
        for (int i = 0; i < node->n_in && !joined; i++)
            if (can_overwrite(code, kernels[n], n, i, use))
                joined = join(code, node->phase, wfi_value_root(g, node->in[i]), node->out[0]);
    }
}

/* The next hidden state has the same place in its block as the hidden state in the other. */
static void place_next_hidden(wfi_code *code, value_use *use) {
    for (int32_t k = 0; k < code->g->n_hidden; k++) {
        const wfi_hidden *h = &code->g->hidden[k];
        code->place[h->after].kind = WFI_BLOCK_NEXT_HIDDEN;
        code->place[h->after].unit = code->place[h->before].unit;
        code->place[h->after].offset = code->place[h->before].offset;
        use[h->after].stays = true;
    }
}

/* Counts for the summaries of units. */
static void count_values(wfi_code *code) {
    const wf_graph *g = code->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        const wfi_place *place = &code->place[v];
        bool is_given = value->kind == WFI_VALUE_NODE && wfi_value_root(g, v) == v &&
                        place->kind == WFI_BLOCK_VALUE && value->node >= 0 &&
                        g->nodes[value->node].phase == WFI_F;
        if (is_given) code->units[place->unit].given_bytes += place->bytes;
        if (value->kind == WFI_VALUE_PARAM)
            code->units[value->unit].n_parameters += wf_shape_n_elem(&value->shape);
    }
}

wf_status wfi_code_place_values(wfi_code *code, wfi_kernel *const *kernels) {
    const wf_graph *g = code->g;
    value_use *use = wfi_alloc(code->ctx, (size_t)g->n_values, sizeof *use, "value uses");
    if (!use) return WF_NO_MEMORY;
    find_uses(code, use);
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        wfi_place *place = &code->place[v];
        place->home = v;
        if (wfi_value_root(g, v) != v || (value->kind == WFI_VALUE_NODE && value->node < 0))
            continue;
        place->unit = value->unit;
        place->offset = value->offset;
        place->bytes = wfi_value_bytes(g, v);
        switch (value->kind) {
        case WFI_VALUE_INPUT:
            place->kind = WFI_BLOCK_INPUT;
            continue;
        case WFI_VALUE_PARAM:
            place->kind = WFI_BLOCK_PARAM;
            continue;
        case WFI_VALUE_BUFFER:
            place->kind = WFI_BLOCK_BUFFER;
            continue;
        case WFI_VALUE_CUT:
            continue;
        case WFI_VALUE_HIDDEN:
            place->kind = WFI_BLOCK_HIDDEN;
            break;
        case WFI_VALUE_NODE:
            place->bytes = bytes_of_node_value(code, kernels, v);
            place->is_split = use[v].by_rows && !use[v].as_whole;
            place->kind = v == g->record ? WFI_BLOCK_RECORD : kind_of_node_value(code, v, &use[v]);
            break;
        }
        place->offset = 0;
        for (int32_t s = 0; s < g->n_stats && g->training; s++)
            if (g->stats[s].mean == v || g->stats[s].var == v) place->kind = WFI_BLOCK_STATS;
        size_t *pooled = &code->units[value->unit].bytes[place->kind];
        use[v].stays |= place->kind == WFI_BLOCK_STATS || place->kind == WFI_BLOCK_RECORD;
        if (place->kind != WFI_BLOCK_VALUE && place->kind != WFI_BLOCK_WORKSPACE &&
            place->kind != WFI_BLOCK_RECORD) {
            place->offset = wfi_round_up(*pooled, WFI_ALIGN_BYTES) + code->gap_bytes;
            *pooled = place->offset + place->bytes;
        }
    }
    place_next_hidden(code, use);
    overwrite(code, kernels, use);
    count_values(code);
    wfi_free(code->ctx, use);
    return WF_OK;
}
