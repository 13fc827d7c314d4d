/* The checker's part inside units.
 *
 * - Every kernel stays within the slots of its segment, and its operands share no bytes.
 * - Every value that a kernel reads has a producer. Values that the segment makes are read while
 *   they are there, others until they are overwritten. A value that other segments read is still
 *   there at the end.
 * - A kernel reads the parameter that its node names, or the packed copy of it, and adds the
 *   gradient of a parameter to that of the same parameter.
 * - Values that are computed again are those that were computed before.
 *
 * Values of other kinds are read where place.c has put them, which is not proved.
 */
#include "pass/pass.h"
#include "program/stage.h"

typedef struct range {
    size_t begin, end;
} range;

/* A value that the segment has written, and where. */
typedef struct written {
    range range;
    int32_t slot;
    int32_t value; /* -1: none of the graph's */
} written;

/* All of them that are not overwritten. */
typedef struct contents {
    written *live;
    size_t n, capacity;
} contents;

static wf_status refuse(const wfi_code *code, const wfi_segment *segment, const wfi_kernel *kernel,
                        const char *what) {
    return wfi_fail(code->ctx, WF_BUG, "check: unit %s, %s (%s): %s",
                    code->g->units[segment->unit].name, kernel->label, kernel->impl->name, what);
}

static bool overlap(range a, range b) {
    return a.begin < b.end && b.begin < a.end;
}

/* Whether a value can be read there: no other value overlaps it, and a value of the segment has
 * been made. */
static bool is_there(const contents *c, const written *w, bool from_outside) {
    bool found = from_outside;
    for (size_t k = 0; k < c->n; k++) {
        const written *other = &c->live[k];
        if (other->slot != w->slot || !overlap(other->range, w->range)) continue;
        found = other->range.begin <= w->range.begin && w->range.end <= other->range.end;
        if (!found || other->value != w->value) return false;
    }
    return found;
}

static wf_status add_written(const wfi_code *code, contents *c, written now) {
    size_t n = 0;
    for (size_t k = 0; k < c->n; k++)
        if (c->live[k].slot != now.slot || !overlap(c->live[k].range, now.range))
            c->live[n++] = c->live[k];
    c->n = n;
    WF_TRY(WFI_GROW(code->ctx, c->live, c->n, c->capacity, "the program check"));
    c->live[c->n++] = now;
    return WF_OK;
}

static range extent(const wfi_address *a, size_t bytes) {
    return (range){a->offset, a->offset + bytes};
}

static int32_t value_of(const wfi_code *code, const wfi_segment_step *step, int operand) {
    const wfi_node *node = step->kernel->node;
    if (operand >= step->kernel->n_operands) return -1;
    if (!node) return operand == 0 ? step->summand : -1;
    return wfi_value_root(code->g, wfi_node_operand(node, operand));
}

/* ---- parameters ---- */

static bool is_at(const wfi_segment *segment, const wfi_address *a, wfi_block_kind kind, int32_t id,
                  size_t offset) {
    const wfi_slot *slot = &segment->slots[a->slot];
    return slot->kind == kind && slot->id == id && a->offset == offset;
}

static bool is_parameter(const wfi_code *code, const wfi_segment *segment, const wfi_address *a,
                         int32_t v) {
    const wfi_value *param = wfi_value_at(code->g, wfi_value_root(code->g, v));
    return is_at(segment, a, WFI_BLOCK_PARAM, param->unit,
                 param->offset + wfi_value_begin(code->g, v));
}

/* Whether one pack alone writes these bytes, and packs that parameter. R reads F's packs. */
static bool is_packed(const wfi_code *code, const wfi_segment *segment, range read, int32_t v) {
    wfi_part part = segment->part == WFI_PART_R ? WFI_PART_F : segment->part;
    const wfi_segment *pack = code->units[segment->unit].pack[part];
    bool found = false;
    for (int32_t s = 0; pack && s < pack->n_steps; s++) {
        const wfi_segment_step *step = &pack->steps[s];
        range packed = extent(&step->operand[1], step->kernel->bytes[1]);
        if (!overlap(packed, read)) continue;
        if (found || packed.begin != read.begin || packed.end < read.end) return false;
        if (!is_parameter(code, pack, &step->operand[0], v)) return false;
        found = true;
    }
    return found;
}

/* Whether a weight gradient of the unit is that value, and is summed there. */
static bool is_sum_of(const wfi_code *code, const wfi_segment *segment, const wfi_address *a,
                      int32_t value) {
    const wf_graph *g = code->g;
    const wfi_unit *unit = &g->units[segment->unit];
    for (int32_t i = unit->first_gradient; i < unit->end_gradient; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        bool is_there =
            wfi_is_tied(g, i)
                ? is_at(segment, a, WFI_BLOCK_TIED, wfi_sum_home(g, i), wfi_sum_begin(g, i))
                : is_at(segment, a, WFI_BLOCK_GRADIENT, w->unit, wfi_value_at(g, w->param)->offset);
        if (is_there && wfi_value_root(g, w->value) == value) return true;
    }
    return false;
}

/* Whether an operand of a step is the value that its node names; NULL, or why not. */
static const char *find_mistake(const wfi_code *code, const wfi_segment *segment,
                                const wfi_segment_step *step, int i) {
    const wfi_kernel *kernel = step->kernel;
    const wfi_node *node = kernel->node;
    const wfi_address *a = &step->operand[i];
    const wfi_slot *slot = &segment->slots[a->slot];
    int32_t value = value_of(code, step, i);
    const wfi_value *v = value < 0 ? NULL : wfi_value_at(code->g, value);
    if (segment->is_pack) return NULL;
    if (wfi_is_sum(slot->kind))
        return is_sum_of(code, segment, a, node ? value : step->summand)
                   ? NULL
                   : "adds a gradient to that of another parameter";
    if (!v || kernel->writes[i]) return NULL;
    if (v->kind == WFI_VALUE_NODE && (v->node < 0 || code->g->nodes[v->node].dead))
        return "reads a value that no node makes";
    if (v->kind != WFI_VALUE_PARAM) return NULL;
    if (slot->kind == WFI_BLOCK_PACKED)
        return is_packed(code, segment, extent(a, kernel->bytes[i]), node->in[i])
                   ? NULL
                   : "reads the packed copy of another parameter";
    return is_parameter(code, segment, a, node->in[i]) ? NULL : "reads another parameter";
}

/* ---- kernels ---- */

/* Operands that have bytes in common, one of them written: only an input and the first output of an
 * op that overwrites it may, and then all. */
static bool may_share(const wfi_kernel *kernel, int a, int b, range x, range y) {
    const wfi_node *node = kernel->node;
    bool overwrites = node && a < node->n_in && b == node->n_in && node->op->overwrites >> a & 1;
    return overwrites && x.begin == y.begin && x.end == y.end;
}

/* Whether bytes exceed the workspace if sums are assigned, or added to. */
static bool beyond(const wfi_segment *segment, const wfi_address *a, size_t bytes, int assigns) {
    return bytes && a->offset + bytes > segment->slots[a->slot].workspace_bytes[assigns];
}

static wf_status check_step(const wfi_code *code, const wfi_segment *segment,
                            const wfi_segment_step *step, contents *c) {
    const wfi_kernel *kernel = step->kernel;
    written all[WFI_MAX_OPERANDS + 1];
    bool writes[WFI_MAX_OPERANDS + 1];
    int operand[WFI_MAX_OPERANDS + 1], n = 0;
    const wfi_kernel *adding = step->kernel_add ? step->kernel_add : kernel;
    size_t assigned = kernel->scratch_bytes, added = adding->scratch_bytes;
    for (int i = 0; i <= kernel->n_operands; i++) {
        bool is_scratch = i == kernel->n_operands;
        const wfi_address *a = is_scratch ? &step->scratch : &step->operand[i];
        size_t bytes = !is_scratch ? kernel->bytes[i] : assigned > added ? assigned : added;
        if (!bytes) continue;
        if (a->slot < 0 || a->slot >= segment->n_slots ||
            a->offset + bytes > segment->slots[a->slot].bytes)
            return refuse(code, segment, kernel, "an operand reaches beyond its slot");
        const char *mistake = is_scratch ? NULL : find_mistake(code, segment, step, i);
        if (mistake) return refuse(code, segment, kernel, mistake);
        if (segment->slots[a->slot].kind == WFI_BLOCK_WORKSPACE &&
            (beyond(segment, a, is_scratch ? added : bytes, 0) ||
             beyond(segment, a, is_scratch ? assigned : bytes, 1)))
            return refuse(code, segment, kernel, "an operand reaches beyond the workspace");
        all[n] = (written){extent(a, bytes), a->slot, value_of(code, step, i)};
        operand[n] = i;
        writes[n] = is_scratch || kernel->writes[i];
        bool from_outside =
            segment->slots[a->slot].kind != WFI_BLOCK_WORKSPACE &&
            (all[n].value < 0 || !wfi_segment_makes(segment, code->g, all[n].value));
        if (!writes[n] && !is_there(c, &all[n], from_outside))
            return refuse(code, segment, kernel, "reads a value that no longer exists");
        for (int k = 0; k < n; k++)
            if (all[k].slot == all[n].slot && overlap(all[k].range, all[n].range) &&
                (writes[k] || writes[n]) &&
                !may_share(kernel, operand[k], i, all[k].range, all[n].range))
                return refuse(code, segment, kernel, "two of its operands share bytes");
        n++;
    }
    for (int k = 0; k < n; k++)
        if (writes[k]) WF_TRY(add_written(code, c, all[k]));
    return WF_OK;
}

/* Other segments read an output of a step that is not a temporary. */
static bool is_left(const wfi_code *code, const wfi_segment_step *step, const contents *c) {
    const wfi_kernel *kernel = step->kernel;
    for (int i = kernel->node ? kernel->node->n_in : kernel->n_operands; i < kernel->n_operands;
         i++) {
        const wfi_address *a = &step->operand[i];
        if (!kernel->bytes[i]) continue;
        written made = {extent(a, kernel->bytes[i]), a->slot, value_of(code, step, i)};
        bool stays = code->place[made.value].kind != WFI_BLOCK_WORKSPACE;
        if (stays && !is_there(c, &made, false)) return false;
    }
    return true;
}

static wf_status check_segment(const wfi_code *code, const wfi_segment *segment) {
    if (!segment) return WF_OK;
    contents c = {NULL, 0, 0};
    wf_status status = WF_OK;
    for (int32_t s = 0; s < segment->n_steps && status == WF_OK; s++)
        status = check_step(code, segment, &segment->steps[s], &c);
    for (int32_t s = 0; s < segment->n_steps && status == WF_OK; s++)
        if (!is_left(code, &segment->steps[s], &c))
            status = refuse(code, segment, segment->steps[s].kernel,
                            "makes a value that does not exist at the end");
    wfi_free(code->ctx, c.live);
    return status;
}

wf_status wfi_code_check(const wfi_code *code) {
    WF_TRY(wfi_graph_check_recompute(code->g));
    for (int32_t u = 0; u < code->g->n_units; u++)
        for (int part = 0; part < WFI_N_PARTS; part++) {
            WF_TRY(check_segment(code, code->units[u].pack[part]));
            WF_TRY(check_segment(code, code->units[u].part[part]));
        }
    return WF_OK;
}
