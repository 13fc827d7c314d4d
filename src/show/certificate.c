/* The certificate of a program: everything that a proof needs, as JSON. scripts/check-certificate
 * proves it without this library. It lists the recipe's sums, what each compiled part of a unit
 * reads and writes, blocks of memory with their addresses, and instructions in the order of
 * their streams. It does not list the order that check.c found, nor any term.
 */
#include "program/change.h"
#include "program/where.h"

/* The number of a segment: of its variant, unit, part, and whether it packs. */
static int64_t segment_number(const wf_program *p, const wfi_segment *segment) {
    int64_t unit = (int64_t)segment->variant * p->graph->n_units + segment->unit;
    return (unit * WFI_N_PARTS + (int64_t)segment->part) * 2 + segment->is_pack;
}

/* Whether an instruction has the segment of a number. NULL: no memory. */
static bool *find_run(const wf_program *p) {
    size_t n = (size_t)p->n_variants * (size_t)p->graph->n_units * WFI_N_PARTS * 2;
    bool *is_run = wfi_alloc(p->ctx, n, sizeof *is_run, "a certificate");
    for (int32_t i = 0; is_run && i < p->n_instructions; i++) {
        const wfi_segment *segment = p->instructions[i].segment;
        if (segment) is_run[segment_number(p, segment)] = true;
    }
    return is_run;
}

/* Unit, part, whether it packs, variant; slots: kind, unit or value, access, begin, bytes (two of a
 * workspace: of a part that adds, and of one that assigns). */
static void add_segment(const wf_program *p, const wfi_segment *segment, const bool *is_run,
                        int32_t *n, wfi_text *text) {
    static const char *const parts[] = {"F", "B", "W", "BW", "R"};
    if (!segment || !is_run[segment_number(p, segment)]) return;
    wfi_text_add(text, "%s[%d, \"%s\", %d, %d, [", (*n)++ ? ",\n" : "", segment->unit,
                 parts[segment->part], segment->is_pack, segment->variant);
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        bool is_workspace = slot->kind == WFI_BLOCK_WORKSPACE;
        size_t bytes = is_workspace                       ? slot->workspace_bytes[0]
                       : slot->kind == WFI_BLOCK_GRADIENT ? p->graph->units[slot->id].trained_bytes
                                                          : slot->bytes;
        wfi_text_add(text, "%s[\"%s\", %d, %d, %zu, [%zu", s ? ", " : "",
                     wfi_block_kind_name(slot->kind), slot->id, slot->access, slot->begin, bytes);
        if (is_workspace) wfi_text_add(text, ", %zu", slot->workspace_bytes[1]);
        wfi_text_add(text, "]]");
    }
    wfi_text_add(text, "]]");
}

static void add_segments(const wf_program *p, const bool *is_run, wfi_text *text) {
    int32_t n = 0;
    wfi_text_add(text, "\"segments\": [\n");
    for (int32_t v = 0; v < p->n_variants; v++)
        for (int32_t u = 0; u < p->graph->n_units; u++)
            for (int part = 0; part < WFI_N_PARTS; part++) {
                add_segment(p, p->variants[v].code->units[u].pack[part], is_run, &n, text);
                add_segment(p, p->variants[v].code->units[u].part[part], is_run, &n, text);
            }
    wfi_text_add(text, "],\n");
}

/* The uses of weights that units share: of each, one a slice, or one; the tied tensors in which
 * these are summed, and which bytes of it, once slices are summed, are the use's. */
static void add_ties(const wf_graph *g, const wfi_unit *unit, wfi_text *text) {
    for (int32_t k = unit->first_tied; k < unit->end_tied; k++) {
        int32_t i = g->tied[k], n = wfi_is_slices_use(g, i) ? g->n_slices : 1;
        wfi_text_add(text, "%s[%d, [", k > unit->first_tied ? ", " : "", i);
        for (int32_t slice = 0; slice < n; slice++)
            wfi_text_add(text, "%s%d", slice ? ", " : "",
                         wfi_sum_home(g, n > 1 ? wfi_use_of_slice(g, i, slice) : i));
        wfi_text_add(text, "], %zu, %zu]", wfi_sum_begin(g, i),
                     wfi_value_bytes(g, g->weight_gradients[i].param));
    }
}

/* Bytes of parameters and of buffers; uses of its weights by other units. */
static void add_units(const wf_program *p, wfi_text *text) {
    const wf_graph *g = p->graph;
    wfi_text_add(text, "\"units\": [\n");
    for (int32_t u = 0; u < g->n_units; u++) {
        const wfi_unit *unit = &g->units[u];
        wfi_text_add(text, "%s[%zu, %zu, [", u ? ",\n" : "", unit->param_bytes, unit->buffer_bytes);
        add_ties(g, unit, text);
        wfi_text_add(text, "]]");
    }
    wfi_text_add(text, "],\n");
}

static void add_recipe(const wf_program *p, wfi_text *text) {
    bool is_free = false;
    for (int32_t s = 0; s < p->n_stages; s++) is_free |= wfi_stage_rotates(p, s);
    wfi_text_add(text,
                 "\"weft_certificate\": 3,\n\"microbatches\": %lld,\n\"lanes\": %lld,\n"
                 "\"states\": %d,\n\"clips\": %d,\n\"reports\": %d,\n\"free_sums\": %d,\n"
                 "\"variants\": [",
                 (long long)p->recipe.n_micro, (long long)p->recipe.n_lanes,
                 wfi_recipe_n_states(&p->recipe), p->recipe.clip_norm > 0,
                 p->graph->record >= 0 ? wfi_mesh_n_groups(&p->mesh, WFI_STAGE_AXES) : 0, is_free);
    for (int32_t v = 0; v < p->n_variants; v++)
        wfi_text_add(text, "%s%lld", v ? ", " : "", (long long)p->variants[v].first_micro);
    wfi_text_add(text, "],\n");
}

static void add_peaks(const wf_program *p, wfi_text *text) {
    wfi_text_add(text, "\"peaks\": [");
    for (int32_t r = 0; r < p->n_ranks; r++)
        for (int space = 0; space < WFI_N_SPACES; space++)
            wfi_text_add(text, "%s%zu%s",
                         space ? ", "
                         : r   ? ",\n["
                               : "[",
                         p->ranks[r].arenas[space].peak_bytes,
                         space == WFI_N_SPACES - 1 ? "]" : "");
    wfi_text_add(text, "],\n");
}

/* The numbers of the blocks that instructions use or that keep state, from 1 on; 0: of the others.
 * NULL: no memory. */
static int32_t *number_blocks(const wf_program *p) {
    int32_t n = 0;
    int32_t *numbers = wfi_alloc(p->ctx, (size_t)p->n_blocks, sizeof *numbers, "a certificate");
    for (int32_t i = 0; numbers && i < p->n_instructions; i++)
        for (int32_t k = 0; k < p->instructions[i].n_references; k++)
            numbers[p->instructions[i].references[k].block] = 1;
    for (int32_t b = 0; numbers && b < p->n_blocks; b++)
        if (numbers[b] || p->blocks[b].is_state) numbers[b] = ++n;
    return numbers;
}

/* Rank, space, offset and bytes; then the name: kind, unit or value, microbatch (of a sum: -1), and
 * the byte of the named tensor (of state: of the parameters) that is the block's first; whether it
 * is state. */
static void add_blocks(const wf_program *p, const int32_t *numbers, wfi_text *text) {
    wfi_text_add(text, "\"blocks\": [\n");
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        bool is_state = block->name.kind == WFI_BLOCK_STATE;
        size_t begin =
            is_state ? wfi_kept_extent(p, block->name.kind, block->name.owner, block->rank).offset
                     : (size_t)block->begin;
        int64_t micro = block->name.kind == WFI_BLOCK_TIED ? -1 : block->name.micro;
        if (!numbers[b]) continue;
        wfi_text_add(text, "%s[%d, %d, %zu, %zu, \"%s\", %d, %lld, %zu, %d]",
                     numbers[b] > 1 ? ",\n" : "", block->rank, (int)block->space, block->offset,
                     block->bytes, wfi_block_kind_name(block->name.kind), block->name.owner,
                     (long long)micro, begin, block->is_state);
    }
    wfi_text_add(text, "],\n");
}

/* Ranks that the instruction meets. */
static void add_others(const wf_program *p, const wfi_instruction *now, wfi_text *text) {
    if (now->peer >= 0) wfi_text_add(text, "%d", now->peer);
    for (int32_t m = 0; now->group >= 0 && m < p->groups[now->group].n; m++)
        wfi_text_add(text, "%s%d", m ? ", " : "", p->groups[now->group].ranks[m]);
}

/* Kind; the microbatch of a load or a part, or -1; the segment, the input, or the use of tied
 * weights, or -1; whether it sums over members, or assigns sums; ranks that it meets; references
 * (block, offset, bytes, access); instructions that it waits for. */
static void add_instruction(const wf_program *p, const wfi_instruction *now, const int32_t *numbers,
                            wfi_text *text) {
    bool is_load = now->kind == WFI_LOAD, adds = false, has_micro = is_load || now->segment;
    for (int32_t k = 0; k < now->n_references; k++) {
        wfi_block_kind kind = p->blocks[now->references[k].block].name.kind;
        adds |= now->segment && (kind == WFI_BLOCK_GRADIENT || kind == WFI_BLOCK_TIED);
    }
    wfi_text_add(text, "[\"%s\", %lld, %lld, %d, [", wfi_instruction_types[now->kind].name,
                 has_micro ? (long long)now->micro : -1LL,
                 now->segment                      ? (long long)segment_number(p, now->segment)
                 : is_load || now->kind == WFI_TIE ? now->id
                                                   : -1LL,
                 wfi_is_reduction(now) || (adds && now->first));
    add_others(p, now, text);
    wfi_text_add(text, "], [");
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        wfi_text_add(text, "%s[%d, %zu, %zu, %d]", k ? ", " : "", numbers[r->block] - 1, r->offset,
                     r->bytes, r->access);
    }
    wfi_text_add(text, "], [");
    for (int32_t d = 0; d < now->n_depends; d++)
        wfi_text_add(text, "%s%d", d ? ", " : "", now->depends[d]);
    wfi_text_add(text, "]]");
}

static void add_instructions(const wf_program *p, const int32_t *numbers, wfi_text *text) {
    wfi_text_add(text, "\"instructions\": [\n");
    for (int32_t i = 0; i < p->n_instructions; i++) {
        if (i) wfi_text_add(text, ",\n");
        add_instruction(p, &p->instructions[i], numbers, text);
    }
    wfi_text_add(text, "],\n\"streams\": [");
    for (int32_t r = 0; r < p->n_ranks; r++)
        for (int s = 0; s < WFI_N_STREAMS; s++) {
            wfi_text_add(text, "%s[", s ? ",\n" : r ? "],\n[" : "[");
            for (int32_t k = 0; k < p->ranks[r].n_stream[s]; k++)
                wfi_text_add(text, "%s%d", k ? ", " : "", p->ranks[r].stream[s][k]);
            wfi_text_add(text, "]");
        }
    wfi_text_add(text, "]]}\n");
}

static void add_all(const wf_program *p, const bool *is_run, const int32_t *numbers,
                    wfi_text *text) {
    wfi_text_add(text, "{");
    add_recipe(p, text);
    add_units(p, text);
    add_segments(p, is_run, text);
    add_peaks(p, text);
    add_blocks(p, numbers, text);
    add_instructions(p, numbers, text);
}

wf_status wf_program_certificate(const wf_program *p, char **text_out) {
    for (int32_t r = 0; r < p->n_ranks; r++)
        if (!wfi_rank_is_lowered(p, r) || p->kind != WF_PROGRAM_TRAIN)
            return wfi_fail(p->ctx, WF_INVALID_ARG,
                            "a certificate needs a training program with the instructions of every "
                            "rank (wf_program_create_full)");
    bool *is_run = find_run(p);
    int32_t *numbers = number_blocks(p);
    wfi_text text = {.ctx = p->ctx};
    bool has_memory = is_run && numbers;
    if (has_memory) add_all(p, is_run, numbers, &text);
    wfi_free(p->ctx, is_run);
    wfi_free(p->ctx, numbers);
    wf_status status = has_memory ? wfi_text_status(&text) : WF_NO_MEMORY;
    if (status == WF_OK)
        *text_out = text.data;
    else
        wfi_free(p->ctx, text.data);
    return status;
}
