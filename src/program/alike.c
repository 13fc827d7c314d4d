/* The comparison of ranks along `tp`, which may be equal except for their slices (classes.c). The
 * comparison covers every property of a slice that lowering reads, against the slice at the same
 * place of the other rank: sizes, segments, uses of weights, costs, and the bytes that ranks keep.
 */
#include "program/map.h"
#include "program/need.h"
#include "program/where.h"

#include <string.h>

typedef struct comparison {
    const wf_program *p;
    int32_t a, b;         /* coordinates along `tp` */
    const wfi_code *code; /* of the microbatches' size at hand */
    int32_t *units; /* [n_units] the slice of b at the place of a slice of a; others: itself */
    int32_t *image; /* [n_values] value of b at the place of a value of a; -1: not seen yet */
} comparison;

static int32_t image_of(const comparison *c, int32_t unit) {
    return c->units[unit];
}

static void find_images(const comparison *c) {
    for (int32_t u = 0; u < c->p->graph->n_units; u++) {
        bool is_own = wfi_unit_is_divided(c->p, u) && wfi_tp_of(c->p, u) == c->a;
        c->units[u] = is_own ? u + (c->b - c->a) * wfi_n_local_slices(c->p, u) : u;
    }
}

/* A value of a slice has one image; ranks share all others, and those that slices make together. */
static bool is_value_image(const comparison *c, int32_t id, int32_t other) {
    const wfi_place *x = &c->code->place[id], *y = &c->code->place[other];
    bool is_shared = image_of(c, x->unit) == x->unit || wfi_is_made_by_slices(c->p->graph, id);
    if (is_shared) return other == id;
    if (c->image[id] < 0) c->image[id] = other;
    return c->image[id] == other && y->unit == image_of(c, x->unit) && x->kind == y->kind &&
           x->bytes == y->bytes && x->is_split == y->is_split;
}

static bool is_gradient_image(const comparison *c, int32_t i, int32_t other) {
    const wf_graph *g = c->p->graph;
    const wfi_weight_gradient *x = &g->weight_gradients[i], *y = &g->weight_gradients[other];
    return y->unit == image_of(c, x->unit) &&
           wfi_owner_of(g, other) == image_of(c, wfi_owner_of(g, i)) &&
           other - g->units[y->unit].first_gradient == i - g->units[x->unit].first_gradient &&
           wfi_tensor_bytes(c->p, wfi_of_unit(WFI_BLOCK_TIED, i)) ==
               wfi_tensor_bytes(c->p, wfi_of_unit(WFI_BLOCK_TIED, other));
}

/* Slices of rows begin as far apart as their ranks' parts of the value. */
static bool has_equal_begin(const comparison *c, const wfi_slot *x, const wfi_slot *y) {
    if (x->kind != WFI_BLOCK_VALUE || x->id != y->id) return x->begin == y->begin;
    size_t part = c->code->place[x->id].bytes / (size_t)c->p->mesh.tp;
    bool is_row = x->bytes < c->code->place[x->id].bytes;
    return y->begin == x->begin + is_row * part * (size_t)(c->b - c->a);
}

static bool is_slot_image(const comparison *c, const wfi_slot *x, const wfi_slot *y) {
    if (x->kind != y->kind || x->access != y->access || !has_equal_begin(c, x, y) ||
        x->bytes != y->bytes || x->workspace_bytes[0] != y->workspace_bytes[0] ||
        x->workspace_bytes[1] != y->workspace_bytes[1])
        return false;
    if (x->kind == WFI_BLOCK_INPUT) return x->id == y->id;
    if (x->kind == WFI_BLOCK_VALUE) return is_value_image(c, x->id, y->id);
    if (x->kind == WFI_BLOCK_TIED) return is_gradient_image(c, x->id, y->id);
    return y->id == image_of(c, x->id);
}

static bool is_segment_image(const comparison *c, const wfi_segment *x, const wfi_segment *y) {
    if (!x || !y) return x == y;
    bool is = x->n_slots == y->n_slots && x->part == y->part && x->is_pack == y->is_pack &&
              x->flops == y->flops;
    for (int32_t k = 0; k < x->n_slots && is; k++)
        is = is_slot_image(c, &x->slots[k], &y->slots[k]);
    return is;
}

static bool has_equal_code(const comparison *c, int32_t unit) {
    const wfi_unit_code *x = &c->code->units[unit], *y = &c->code->units[image_of(c, unit)];
    bool is = !memcmp(x->bytes, y->bytes, sizeof x->bytes);
    for (int part = 0; part < WFI_N_PARTS && is; part++)
        is = is_segment_image(c, x->part[part], y->part[part]) &&
             is_segment_image(c, x->pack[part], y->pack[part]);
    return is;
}

static bool has_equal_uses(const comparison *c, int32_t unit) {
    const wf_graph *g = c->p->graph;
    const wfi_unit *x = &g->units[unit], *y = &g->units[image_of(c, unit)];
    int32_t n = x->end_tied - x->first_tied;
    bool is = y->end_tied - y->first_tied == n &&
              x->end_gradient - x->first_gradient == y->end_gradient - y->first_gradient;
    for (int32_t k = 0; k < n && is; k++)
        is = is_gradient_image(c, g->tied[x->first_tied + k], g->tied[y->first_tied + k]);
    return is;
}

/* Compares the costs that a simulation reads. */
static bool has_equal_costs(const comparison *c, int32_t unit) {
    const wf_unit_cost *x = &c->p->costs->units[unit], *y = &c->p->costs->units[image_of(c, unit)];
    return x->forward_us == y->forward_us && x->backward_us == y->backward_us &&
           x->weight_us == y->weight_us && x->backward_weight_us == y->backward_weight_us &&
           x->recompute_us == y->recompute_us;
}

/* Whether a pair of units like this one and its image has been compared. */
static bool is_known(const comparison *c, int32_t unit) {
    const int32_t *like = c->p->size_like;
    int32_t first = like[unit];
    return first < unit && image_of(c, first) != first &&
           like[image_of(c, first)] == like[image_of(c, unit)];
}

/* Compares the kept bytes on each rank of a `pp` coordinate. */
static bool are_kept_alike(const comparison *c, int32_t unit, int32_t pp) {
    static const wfi_block_kind kinds[] = {WFI_BLOCK_PARAM, WFI_BLOCK_STATE, WFI_BLOCK_BUFFER};
    const wf_program *p = c->p;
    const unsigned axes = WFI_ALONG(WFI_TP) | WFI_ALONG(WFI_PP);
    for (int32_t g = 0; g < wfi_mesh_n_groups(&p->mesh, axes); g++)
        for (size_t k = 0; k < WFI_COUNT(kinds); k++) {
            int32_t rank = wfi_mesh_move(&p->mesh, WFI_PP, wfi_mesh_first(&p->mesh, axes, g), pp);
            int32_t x = wfi_mesh_move(&p->mesh, WFI_TP, rank, c->a),
                    y = wfi_mesh_move(&p->mesh, WFI_TP, rank, c->b);
            if (wfi_kept_extent(p, kinds[k], unit, x).bytes !=
                wfi_kept_extent(p, kinds[k], image_of(c, unit), y).bytes)
                return false;
        }
    return true;
}

static bool has_equal_sizes(const comparison *c, int32_t unit) {
    const wf_program *p = c->p;
    int32_t own = wfi_program_stage_of(p, unit);
    const wfi_unit *x = &p->graph->units[unit], *y = &p->graph->units[image_of(c, unit)];
    bool is = x->param_bytes == y->param_bytes && x->trained_bytes == y->trained_bytes &&
              x->buffer_bytes == y->buffer_bytes && x->cache_bytes == y->cache_bytes &&
              (is_known(c, unit) || are_kept_alike(c, unit, p->stages[own].pp));
    for (int32_t k = p->first_reader[unit]; k < p->first_reader[unit + 1] && is; k++)
        is = p->readers[k] == own || are_kept_alike(c, unit, p->stages[p->readers[k]].pp);
    return is;
}

static bool are_alike(comparison *c) {
    const wf_program *p = c->p;
    bool is = true;
    for (int32_t u = 0; u < p->graph->n_units && is; u++)
        if (image_of(c, u) != u)
            is = has_equal_sizes(c, u) && has_equal_uses(c, u) && has_equal_costs(c, u);
    for (int32_t v = 0; v < p->n_variants && is; v++) {
        c->code = p->variants[v].code;
        for (int32_t i = 0; i < p->graph->n_values; i++) c->image[i] = -1;
        for (int32_t u = 0; u < p->graph->n_units && is; u++)
            if (image_of(c, u) != u) is = has_equal_code(c, u);
    }
    return is;
}

wf_status wfi_program_has_equal_slices(const wf_program *p, int32_t a, int32_t b, bool *is_out) {
    comparison c = {.p = p, .a = a, .b = b};
    size_t n_units = (size_t)p->graph->n_units, n_values = (size_t)p->graph->n_values;
    c.units = wfi_alloc(p->ctx, n_units + n_values, sizeof *c.units, "classes of ranks");
    if (!c.units) return WF_NO_MEMORY;
    c.image = c.units + n_units;
    find_images(&c);
    *is_out = are_alike(&c);
    wfi_free(p->ctx, c.units);
    return WF_OK;
}
