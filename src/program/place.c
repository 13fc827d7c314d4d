/* Where every value lives follows from who reads it: inside one segment it is part
 * of the workspace; from forward to backward of its unit it is saved; beyond its unit
 * it is a block of its own, which can also be sent to another rank.
 */
#include "program/program.h"

typedef struct value_use {
    bool r, b, w;   /* read in these phases of its own unit */
    bool elsewhere; /* read in another unit, or by the host */
} value_use;

static void record_use(const wf_graph *g, value_use *use, int32_t v, int32_t unit,
                       wfi_phase phase) {
    int32_t r = wfi_value_root(g, v);
    if (g->values[r].unit != unit)
        use[r].elsewhere = true;
    else if (phase != WFI_F)
        *(phase == WFI_R ? &use[r].r : phase == WFI_B ? &use[r].b : &use[r].w) = true;
}

static void find_uses(const wf_graph *g, value_use *use) {
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead) continue;
        for (int i = 0; i < node->n_in; i++)
            if (node->in[i] >= 0) record_use(g, use, node->in[i], node->unit, node->phase);
    }
    for (int32_t i = 0; i < g->n_weight_gradients; i++)
        record_use(g, use, g->weight_gradients[i].value, g->weight_gradients[i].unit, WFI_W);
    for (int32_t i = 0; i < g->n_outputs && !g->training; i++)
        use[wfi_value_root(g, g->outputs[i])].elsewhere = true;
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

static size_t *pooled_bytes(wfi_unit_code *unit, wfi_block_kind kind) {
    switch (kind) {
    case WFI_BLOCK_SAVED:
        return &unit->saved_bytes;
    case WFI_BLOCK_SAVED_W:
        return &unit->saved_w_bytes;
    case WFI_BLOCK_REMADE:
        return &unit->remade_bytes;
    case WFI_BLOCK_REMADE_W:
        return &unit->remade_w_bytes;
    case WFI_BLOCK_FOR_WEIGHT:
        return &unit->for_weight_bytes;
    case WFI_BLOCK_STATS:
        return &unit->stats_bytes;
    default:
        return NULL;
    }
}

/* Kernels decide how many bytes their outputs take. */
static size_t bytes_of_node_value(const wfi_code *code, wfi_kernel *const *kernels, int32_t r) {
    int32_t n = code->g->values[r].node;
    const wfi_node *node = &code->g->nodes[n];
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] == r && kernels[n]) return kernels[n]->bytes[node->n_in + i];
    return wfi_value_bytes(code->g, r);
}

wf_status wfi_code_place_values(wfi_code *code, wfi_kernel *const *kernels) {
    const wf_graph *g = code->g;
    value_use *use = wfi_alloc(code->ctx, (size_t)g->n_values, sizeof *use, "value uses");
    if (!use) return WF_NO_MEMORY;
    find_uses(g, use);
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        wfi_place *place = &code->place[v];
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
        case WFI_VALUE_NODE:
            break;
        }
        place->offset = 0;
        place->bytes = bytes_of_node_value(code, kernels, v);
        place->kind = v == g->record ? WFI_BLOCK_RECORD : kind_of_node_value(code, v, &use[v]);
        for (int32_t s = 0; s < g->n_stats && g->training; s++)
            if (g->stats[s].mean == v || g->stats[s].var == v) place->kind = WFI_BLOCK_STATS;
        size_t *pooled = pooled_bytes(&code->units[value->unit], place->kind);
        if (pooled) {
            place->offset = wfi_round_up(*pooled, WFI_ALIGN_BYTES) + code->gap_bytes;
            *pooled = place->offset + place->bytes;
        }
    }
    wfi_free(code->ctx, use);
    return WF_OK;
}
