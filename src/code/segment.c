/* Compiles a graph into segments: for each unit and part, kernels in order with the
 * addresses of their operands, temporaries packed into one workspace.
 */
#include "code/code.h"

#include <string.h>

/* ---- building one segment ---- */

typedef struct builder {
    wfi_code *code;
    wfi_segment *segment, *pack; /* pack: of the same unit and part */
    wfi_kernel **kernels;        /* [n_nodes], taken (set to NULL) as they are used */
    const wfi_format **formats;  /* [n_values] of gradients that a kernel gives packed */
    wfi_temporary *temporaries;
    int32_t n_temporaries;
    size_t temporary_capacity;
    const wfi_format **packed_format; /* [step of pack] */
    size_t packed_capacity;
    int32_t *sum_of;                   /* [n_values] */
    int32_t *first_node, *next_node;   /* [n_units], [n_nodes] each unit's nodes in order, or -1 */
    const wfi_kernel_options *options; /* [n_units] */
    int32_t workspace_slot;
} builder;

static wf_status find_part(builder *b, wfi_segment *segment, wfi_block_kind kind, int32_t id,
                           size_t begin, size_t end, int access, int32_t *slot_out) {
    int32_t s = 0;
    while (s < segment->n_slots && (segment->slots[s].kind != kind || segment->slots[s].id != id))
        s++;
    if (s == segment->n_slots) {
        WF_TRY(WFI_GROW(b->code->ctx, segment->slots, segment->n_slots, segment->slot_capacity,
                        "slots"));
        segment->slots[segment->n_slots++] = (wfi_slot){.kind = kind, .id = id, .begin = begin};
    }
    wfi_slot *slot = &segment->slots[s];
    slot->access |= access;
    if (begin < slot->begin)
        return wfi_fail(b->code->ctx, WF_BUG, "unit %s has rows of a value, and reads all of it",
                        b->code->g->units[segment->unit].name);
    if (end - slot->begin > slot->bytes) slot->bytes = end - slot->begin;
    *slot_out = s;
    return WF_OK;
}

static wf_status find_slot(builder *b, wfi_segment *segment, wfi_block_kind kind, int32_t id,
                           size_t end, int access, int32_t *slot_out) {
    return find_part(b, segment, kind, id, 0, end, access, slot_out);
}

static wf_status push_step(builder *b, wfi_segment *segment, wfi_kernel *kernel,
                           wfi_segment_step **step_out) {
    WF_TRY(
        WFI_GROW(b->code->ctx, segment->steps, segment->n_steps, segment->step_capacity, "steps"));
    wfi_segment_step *step = &segment->steps[segment->n_steps++];
    *step = (wfi_segment_step){.kernel = kernel, .scratch = {-1, 0}, .summand = -1};
    for (int i = 0; i < WFI_MAX_OPERANDS; i++) step->operand[i] = (wfi_address){-1, 0};
    segment->flops += kernel->flops;
    *step_out = step;
    return WF_OK;
}

static wf_status find_temporary(builder *b, int32_t value, size_t bytes, int32_t step,
                                int32_t *index_out) {
    int32_t t = 0;
    while (t < b->n_temporaries && (value < 0 || b->temporaries[t].value != value)) t++;
    if (t == b->n_temporaries) {
        WF_TRY(WFI_GROW(b->code->ctx, b->temporaries, b->n_temporaries, b->temporary_capacity,
                        "temporaries"));
        b->temporaries[b->n_temporaries++] = (wfi_temporary){value, step, step, bytes, 0};
    }
    if (step > b->temporaries[t].last) b->temporaries[t].last = step;
    *index_out = t;
    return WF_OK;
}

static bool part_has(wfi_part part, wfi_phase phase) {
    switch (part) {
    case WFI_PART_F:
        return phase == WFI_F;
    case WFI_PART_B:
        return phase == WFI_B;
    case WFI_PART_W:
        return phase == WFI_W;
    case WFI_PART_BW:
        return phase == WFI_B || phase == WFI_W;
    case WFI_PART_R:
        return phase == WFI_R;
    case WFI_N_PARTS:
        break;
    }
    return false;
}

bool wfi_segment_makes(const wfi_segment *segment, const wf_graph *g, int32_t root) {
    int32_t producer = g->values[root].node;
    if (producer < 0 || !part_has(segment->part, g->nodes[producer].phase)) return false;
    int32_t unit = g->nodes[producer].unit, first = unit - g->units[unit].slice;
    if (wfi_is_made_by_slices(g, root)) /* each slice makes its part in its place */
        return segment->unit >= first && segment->unit < first + g->n_slices;
    return unit == segment->unit;
}

/* Address of value v as an operand; `end` is how far the kernel reaches into it. For
 * temporaries the offset is their index until the workspace is packed. */
static wf_status address_value(builder *b, int32_t v, size_t end, int access, wfi_address *out) {
    const wfi_code *code = b->code;
    int32_t root = wfi_value_root(code->g, v), r = wfi_place_home(code, root);
    const wfi_place *place = &code->place[r];
    int32_t id = place->unit;
    size_t rows = wfi_value_begin(code->g, v);
    bool has_some = place->kind == WFI_BLOCK_VALUE && !wfi_is_joined(code->g, b->segment->unit);
    size_t begin = has_some ? rows : 0;
    if (place->kind == WFI_BLOCK_INPUT || place->kind == WFI_BLOCK_VALUE) id = r;
    out->offset = place->offset + rows - begin;
    if (place->kind == WFI_BLOCK_WORKSPACE) {
        int32_t t;
        WF_TRY(find_temporary(b, r, place->bytes, b->segment->n_steps - 1, &t));
        out->slot = b->workspace_slot;
        out->offset = (size_t)t;
        return WF_OK;
    }
    /* A segment does not read its own values from outside. */
    if (wfi_segment_makes(b->segment, code->g, root)) access &= ~WFI_READ;
    bool is_cache = code->g->values[r].is_cache;
    if (access & WFI_WRITE && !is_cache && !wfi_segment_makes(b->segment, code->g, r))
        access |= WFI_SPOIL;
    WF_TRY(find_part(b, b->segment, place->kind, id, begin, begin + out->offset + end, access,
                     &out->slot));
    out->offset += begin - b->segment->slots[out->slot].begin;
    return WF_OK;
}

/* Packs run one after the other: one scratchpad serves all. */
static wf_status address_pack_scratch(builder *b, const wfi_kernel *kernel, wfi_address *out) {
    if (!kernel->scratch_bytes) return WF_OK;
    size_t end = b->code->gap_bytes + kernel->scratch_bytes;
    WF_TRY(find_slot(b, b->pack, WFI_BLOCK_WORKSPACE, b->pack->unit, end, WFI_READ | WFI_WRITE,
                     &out->slot));
    wfi_slot *slot = &b->pack->slots[out->slot];
    out->offset = b->code->gap_bytes;
    slot->workspace_bytes[0] = slot->workspace_bytes[1] = slot->bytes;
    return WF_OK;
}

/* The packed copy of parameter v that this part's kernels want in `format`. */
static wf_status address_packed(builder *b, int32_t v, const wfi_format *format, wfi_address *out) {
    wfi_code *code = b->code;
    wfi_segment *pack = b->pack;
    const wfi_place *place = &code->place[wfi_value_root(code->g, v)];
    int32_t slot, step = 0;
    size_t offset = 0;
    for (; step < pack->n_steps; step++) {
        const wfi_segment_step *s = &pack->steps[step];
        offset = wfi_round_up(s->operand[1].offset + s->kernel->bytes[1], WFI_ALIGN_BYTES) +
                 code->gap_bytes;
        if (s->operand[0].offset == place->offset &&
            pack->slots[s->operand[0].slot].id == place->unit &&
            wfi_format_equal(b->packed_format[step], format)) {
            offset = s->operand[1].offset;
            break;
        }
    }
    WF_TRY(find_slot(b, b->segment, WFI_BLOCK_PACKED, b->segment->unit, offset + format->bytes,
                     WFI_READ, &slot));
    *out = (wfi_address){slot, offset};
    if (step < pack->n_steps) return WF_OK;
    wfi_kernel *kernel;
    WF_TRY(wfi_kernel_create_pack(code->ctx, &b->options[b->segment->unit], format,
                                  &code->g->values[v].shape, &kernel));
    wfi_segment_step *s;
    wf_status status = push_step(b, pack, kernel, &s);
    if (status != WF_OK) {
        wfi_kernel_destroy(kernel);
        return status;
    }
    WF_TRY(WFI_GROW(code->ctx, b->packed_format, pack->n_steps - 1, b->packed_capacity, "formats"));
    b->packed_format[pack->n_steps - 1] = format;
    WF_TRY(address_pack_scratch(b, kernel, &s->scratch));
    WF_TRY(find_slot(b, pack, WFI_BLOCK_PARAM, place->unit, place->offset + kernel->bytes[0],
                     WFI_READ, &s->operand[0].slot));
    s->operand[0].offset = place->offset;
    WF_TRY(find_slot(b, pack, WFI_BLOCK_PACKED, pack->unit, offset + kernel->bytes[1], WFI_WRITE,
                     &s->operand[1].slot));
    s->operand[1].offset = offset;
    return WF_OK;
}

static wf_status address_scratch(builder *b, const wfi_kernel *kernel, wfi_segment_step *step) {
    if (!kernel->scratch_bytes) return WF_OK;
    int32_t t;
    WF_TRY(find_temporary(b, -1, kernel->scratch_bytes, b->segment->n_steps - 1, &t));
    step->scratch = (wfi_address){b->workspace_slot, (size_t)t};
    return WF_OK;
}

/* Where weight gradient i is summed. */
static wf_status address_sum(builder *b, int32_t i, size_t bytes, wfi_address *out) {
    const wf_graph *g = b->code->g;
    const wfi_weight_gradient *w = &g->weight_gradients[i];
    bool is_tied = wfi_is_tied(g, i);
    out->offset = is_tied ? wfi_sum_begin(g, i) : g->values[w->param].offset;
    return find_slot(b, b->segment, is_tied ? WFI_BLOCK_TIED : WFI_BLOCK_GRADIENT,
                     is_tied ? wfi_sum_home(g, i) : w->unit,
                     is_tied ? wfi_sum_bytes(g, i) : out->offset + bytes, WFI_READ | WFI_WRITE,
                     &out->slot);
}

static wf_status add_accumulate(builder *b, int32_t i) {
    const wf_graph *g = b->code->g;
    const wfi_weight_gradient *w = &g->weight_gradients[i];
    const wf_shape *shape = &g->values[w->param].shape;
    const wfi_format *format = b->formats[wfi_value_root(g, w->value)];
    const wfi_kernel_options *options = &b->options[b->segment->unit];
    wfi_kernel *assign, *add;
    wfi_segment_step *step;
    WF_TRY(wfi_kernel_create_accumulate(b->code->ctx, options, format, shape, false, &assign));
    wf_status status = push_step(b, b->segment, assign, &step);
    if (status != WF_OK) {
        wfi_kernel_destroy(assign);
        return status;
    }
    WF_TRY(wfi_kernel_create_accumulate(b->code->ctx, options, format, shape, true, &add));
    step->kernel_add = add;
    step->summand = wfi_value_root(g, w->value);
    int32_t at = b->segment->n_steps - 1;
    WF_TRY(address_value(b, w->value, assign->bytes[0], WFI_READ, &step->operand[0]));
    WF_TRY(address_sum(b, i, assign->bytes[1], &step->operand[1]));
    step = &b->segment->steps[at];
    const wfi_kernel *larger = add->scratch_bytes > assign->scratch_bytes ? add : assign;
    return address_scratch(b, larger, step);
}

/* Accumulates the weight gradients that node n has produced; n < 0: those that
 * came from an earlier segment. */
static wf_status add_accumulates(builder *b, int32_t n) {
    const wf_graph *g = b->code->g;
    wfi_part part = b->segment->part;
    if (part != WFI_PART_W && part != WFI_PART_BW) return WF_OK;
    const wfi_unit *unit = &g->units[b->segment->unit];
    for (int32_t i = unit->first_gradient; i < unit->end_gradient; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        int32_t producer = g->values[wfi_value_root(g, w->value)].node;
        bool earlier = (part == WFI_PART_W && g->nodes[producer].phase == WFI_B) ||
                       g->nodes[producer].unit != w->unit;
        if (n < 0 ? earlier : producer == n && !earlier) WF_TRY(add_accumulate(b, i));
    }
    return WF_OK;
}

/* For each value the weight gradient that it is; -1 if it has another use or is none. */
static void find_sums(const wf_graph *g, int32_t *sum_of) {
    const int32_t nothing = -1, several = -2;
    for (int32_t v = 0; v < g->n_values; v++) sum_of[v] = nothing;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        int32_t *sum = &sum_of[wfi_value_root(g, g->weight_gradients[i].value)];
        *sum = *sum == nothing ? i : several;
    }
    for (int32_t k = 0; k < g->n_nodes; k++)
        for (int i = 0; i < g->nodes[k].n_in && !g->nodes[k].dead; i++)
            if (g->nodes[k].in[i] >= 0) sum_of[wfi_value_root(g, g->nodes[k].in[i])] = several;
}

static void list_nodes(const wf_graph *g, int32_t *first, int32_t *next) {
    for (int32_t u = 0; u < g->n_units; u++) first[u] = -1;
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead) continue;
        next[n] = first[node->unit];
        first[node->unit] = n;
    }
}

static wf_status create_kernel(const builder *b, const wfi_node *node, bool adds,
                               wfi_kernel **kernel_out) {
    const wfi_code *code = b->code;
    const wfi_kernel_options *options = &b->options[node->unit];
    if (code->descriptions)
        return wfi_descriptions_kernel(code->descriptions, node, options, adds, kernel_out);
    return adds ? wfi_kernel_create_adding(code->ctx, code->g, node, options, kernel_out)
                : wfi_kernel_create(code->ctx, code->g, node, options, kernel_out);
}

/* A kernel that adds all that the node makes to where it is summed, NULL if there is none: then the
 * node's own assigns there, too, and nothing lies in between. */
static wf_status find_adding(const builder *b, int32_t n, wfi_kernel **adding_out) {
    const wf_graph *g = b->code->g;
    const wfi_node *node = &g->nodes[n];
    const wfi_kernel *kernel = b->kernels[n];
    *adding_out = NULL;
    if (!(node->op->flags & WFI_OP_WEIGHT_GRADIENT)) return WF_OK;
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] >= 0 && (kernel->format[node->n_in + i] || b->sum_of[node->out[i]] < 0))
            return WF_OK;
    return create_kernel(b, node, true, adding_out);
}

static wf_status add_node(builder *b, int32_t n) {
    const wf_graph *g = b->code->g;
    const wfi_node *node = &g->nodes[n];
    wfi_kernel *kernel = b->kernels[n], *adding;
    if (!kernel) return WF_OK; /* an alias */
    WF_TRY(find_adding(b, n, &adding));
    wfi_segment_step *step;
    wf_status status = push_step(b, b->segment, kernel, &step);
    if (status != WF_OK) {
        wfi_kernel_destroy(adding);
        return status;
    }
    step->kernel_add = adding;
    b->kernels[n] = NULL;
    for (int i = 0; i < kernel->n_operands; i++) {
        int32_t v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (v < 0 || kernel->bytes[i] == 0) continue;
        const wfi_value *root = wfi_value_at(g, wfi_value_root(g, v));
        const wfi_format *format = kernel->format[i];
        if (i >= node->n_in && adding) {
            WF_TRY(address_sum(b, b->sum_of[v], kernel->bytes[i], &step->operand[i]));
            continue;
        } else if (i >= node->n_in) {
            b->formats[wfi_value_root(g, v)] = format;
        } else if (format && root->kind == WFI_VALUE_PARAM) {
            WF_TRY(address_packed(b, v, format, &step->operand[i]));
            continue;
        } else if (format || b->formats[wfi_value_root(g, v)]) {
            return wfi_fail(b->code->ctx, WF_UNSUPPORTED,
                            "op %s in unit %s reads a value that a library has in a format of its "
                            "own (a weight used twice in one unit?)",
                            node->op->name, g->units[node->unit].name);
        }
        int access = kernel->writes[i] ? WFI_WRITE : WFI_READ;
        if (i < node->n_in && node->op->roles.cache_in & 1 << i) access = WFI_READ | WFI_WRITE;
        WF_TRY(address_value(b, v, kernel->bytes[i], access, &step->operand[i]));
    }
    bool adds_more = adding && adding->scratch_bytes > kernel->scratch_bytes;
    WF_TRY(address_scratch(b, adds_more ? adding : kernel, step));
    return adding ? WF_OK : add_accumulates(b, n);
}

/* The workspace that an operand of a step needs, or, after the operands, its scratchpad. */
static size_t needed_bytes(const wfi_temporary *t, const wfi_segment_step *step, int operand,
                           bool assigns) {
    const wfi_kernel *kernel = step->kernel_add && !assigns ? step->kernel_add : step->kernel;
    size_t bytes = operand < WFI_MAX_OPERANDS ? t->bytes : kernel->scratch_bytes;
    return bytes ? t->offset + bytes : 0;
}

/* Turns indices of temporaries into offsets. */
static wf_status finish_workspace(builder *b) {
    wfi_segment *segment = b->segment;
    if (b->n_temporaries == 0) return WF_OK;
    size_t bytes;
    WF_TRY(wfi_workspace_pack(b->code->ctx, b->temporaries, b->n_temporaries, b->code->gap_bytes,
                              &bytes));
    int32_t n;
    WF_TRY(
        find_slot(b, segment, WFI_BLOCK_WORKSPACE, segment->unit, bytes, WFI_READ | WFI_WRITE, &n));
    wfi_slot *slot = &segment->slots[n];
    for (int32_t s = 0; s < segment->n_steps; s++) {
        wfi_segment_step *step = &segment->steps[s];
        for (int i = 0; i <= WFI_MAX_OPERANDS; i++) {
            wfi_address *address = i < WFI_MAX_OPERANDS ? &step->operand[i] : &step->scratch;
            if (address->slot != b->workspace_slot) continue;
            const wfi_temporary *t = &b->temporaries[address->offset];
            for (int assigns = 0; assigns < 2; assigns++) {
                size_t needed = needed_bytes(t, step, i, assigns);
                size_t *most = &slot->workspace_bytes[assigns];
                if (needed > *most) *most = needed;
            }
            *address = (wfi_address){n, t->offset};
        }
    }
    return WF_OK;
}

/* ---- all segments ---- */

static void segment_destroy(wf_context *ctx, wfi_segment *segment) {
    if (!segment) return;
    for (int32_t s = 0; s < segment->n_steps; s++) {
        wfi_kernel_destroy(segment->steps[s].kernel);
        wfi_kernel_destroy(segment->steps[s].kernel_add);
    }
    wfi_free(ctx, segment->slots);
    wfi_free(ctx, segment->steps);
    wfi_free(ctx, segment);
}

static wf_status new_segment(const wfi_code *code, int32_t unit, wfi_part part, bool is_pack,
                             wfi_segment **segment_out) {
    wfi_segment *segment = *segment_out = wfi_alloc(code->ctx, 1, sizeof *segment, "a segment");
    if (!segment) return WF_NO_MEMORY;
    segment->unit = unit;
    segment->part = part;
    segment->is_pack = is_pack;
    segment->variant = code->variant;
    return WF_OK;
}

static void drop_empty(wf_context *ctx, wfi_segment **segment) {
    if (!*segment || (*segment)->n_steps || (*segment)->n_slots) return;
    segment_destroy(ctx, *segment);
    *segment = NULL;
}

/* The gradient of a unit begins with its own part of the backward, also of weights that other units
 * alone use: then it is zero. */
static wf_status add_gradient(builder *b) {
    int32_t unit = b->segment->unit, ignored;
    bool sums = b->segment->part == WFI_PART_W || b->segment->part == WFI_PART_BW;
    if (!sums || !b->code->g->units[unit].trained_bytes) return WF_OK;
    return find_slot(b, b->segment, WFI_BLOCK_GRADIENT, unit, 0, WFI_READ | WFI_WRITE, &ignored);
}

/* R follows F, and reads the parameters packed for it. */
static wf_status build_segment(wfi_code *code, builder *b, int32_t unit, wfi_part part) {
    const wf_graph *g = code->g;
    wfi_unit_code *u = &code->units[unit];
    WF_TRY(new_segment(code, unit, part, false, &u->part[part]));
    if (part != WFI_PART_R) WF_TRY(new_segment(code, unit, part, true, &u->pack[part]));
    b->segment = u->part[part];
    b->pack = u->pack[part == WFI_PART_R ? WFI_PART_F : part];
    b->n_temporaries = 0;
    b->workspace_slot = INT32_MAX; /* stands for the workspace until its size is known */
    WF_TRY(add_accumulates(b, -1));
    for (int32_t n = b->first_node[unit]; n >= 0; n = b->next_node[n])
        if (part_has(part, g->nodes[n].phase)) WF_TRY(add_node(b, n));
    WF_TRY(add_gradient(b));
    return finish_workspace(b);
}

static wf_status build_unit(wfi_code *code, builder *b, int32_t unit) {
    static const wfi_part joined[] = {WFI_PART_F, WFI_PART_R, WFI_PART_BW},
                          split[] = {WFI_PART_F, WFI_PART_R, WFI_PART_B, WFI_PART_W};
    size_t n_parts = !code->g->training ? 1 : code->splits_weight ? 4 : 3;
    for (size_t i = 0; i < n_parts; i++)
        WF_TRY(build_segment(code, b, unit, (code->splits_weight ? split : joined)[i]));
    for (int part = 0; part < WFI_N_PARTS; part++) {
        drop_empty(code->ctx, &code->units[unit].part[part]);
        drop_empty(code->ctx, &code->units[unit].pack[part]);
    }
    return WF_OK;
}

static wf_status create_kernels(builder *b) {
    const wf_graph *g = b->code->g;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead) continue;
        if (wfi_node_is_alias(g, node)) continue;
        WF_TRY(create_kernel(b, node, false, &b->kernels[n]));
        b->code->n_tuned += b->kernels[n]->is_tuned;
    }
    return WF_OK;
}

static wf_status build_all(wfi_code *code, builder *b) {
    const wf_graph *g = code->g;
    WF_TRY(create_kernels(b));
    WF_TRY(wfi_code_place_values(code, b->kernels));
    for (int32_t u = 0; u < g->n_units; u++) WF_TRY(build_unit(code, b, u));
    return WF_OK;
}

wf_status wfi_code_create(wf_context *ctx, const wf_graph *g, bool splits_weight, bool is_run,
                          int32_t variant, size_t gap_bytes, const wfi_kernel_options *options,
                          wfi_code **code_out) {
    wfi_code *code = wfi_alloc(ctx, 1, sizeof *code, "a program's code");
    if (!code) return WF_NO_MEMORY;
    code->ctx = ctx;
    code->g = g;
    code->splits_weight = splits_weight;
    code->variant = variant;
    code->gap_bytes = gap_bytes;
    builder b = {.code = code, .options = options};
    wfi_pool pool = {.ctx = ctx};
    code->units = wfi_alloc(ctx, (size_t)g->n_units, sizeof *code->units, "units");
    code->place = wfi_alloc(ctx, (size_t)g->n_values, sizeof *code->place, "places");
    b.kernels = wfi_pool_array(&pool, (size_t)g->n_nodes, sizeof *b.kernels, "kernels");
    b.formats = wfi_pool_array(&pool, (size_t)g->n_values, sizeof *b.formats, "formats");
    b.sum_of = wfi_pool_array(&pool, (size_t)g->n_values, sizeof *b.sum_of, "sums");
    b.first_node = wfi_pool_array(&pool, (size_t)g->n_units, sizeof *b.first_node, "units");
    b.next_node = wfi_pool_array(&pool, (size_t)g->n_nodes, sizeof *b.next_node, "units");
    bool ok = code->units && code->place && !pool.failed;
    if (ok) find_sums(g, b.sum_of);
    if (ok) list_nodes(g, b.first_node, b.next_node);
    wf_status status = ok ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK && !is_run) status = wfi_descriptions_create(g, &code->descriptions);
    if (status == WF_OK) status = build_all(code, &b);
    for (int32_t n = 0; n < g->n_nodes && b.kernels; n++) wfi_kernel_destroy(b.kernels[n]);
    wfi_pool_release(&pool);
    wfi_free(ctx, b.temporaries);
    wfi_free(ctx, b.packed_format);
    if (status != WF_OK) {
        wfi_code_destroy(code);
        return status;
    }
    *code_out = code;
    return WF_OK;
}

void wfi_code_destroy(wfi_code *code) {
    if (!code) return;
    for (int32_t u = 0; u < code->g->n_units && code->units; u++)
        for (int part = 0; part < WFI_N_PARTS; part++) {
            segment_destroy(code->ctx, code->units[u].part[part]);
            segment_destroy(code->ctx, code->units[u].pack[part]);
        }
    wfi_descriptions_destroy(code->descriptions);
    wfi_free(code->ctx, code->units);
    wfi_free(code->ctx, code->place);
    wfi_free(code->ctx, code);
}
