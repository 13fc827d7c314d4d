/* The certificate of a program: everything that a proof needs, as JSON. scripts/check-certificate
 * proves it without this library. It lists names, the recipe's sums, what each compiled part of a
 * unit reads and writes, blocks of memory with their addresses, and instructions in the order of
 * their streams. It does not list the order that check.c found, nor any term.
 */
#include "program/change.h"
#include "program/where.h"

static void add_names(wfi_text *text, const char *key, const char *(*name_of)(int), int n) {
    wfi_text_add(text, "\"%s\": [", key);
    for (int k = 0; k < n; k++) wfi_text_add(text, "%s\"%s\"", k ? ", " : "", name_of(k));
    wfi_text_add(text, "],\n");
}

static const char *stream_name(int k) {
    return wfi_stream_name((wfi_stream)k);
}
static const char *kind_name(int k) {
    return wfi_block_kind_name((wfi_block_kind)k);
}
static const char *instruction_name(int k) {
    return wfi_instruction_types[k].name;
}
static const char *space_name(int k) {
    return wfi_space_name((wfi_space)k);
}

/* The number of a segment: of its variant, unit, part, and whether it packs. */
static int64_t segment_number(const wf_program *p, const wfi_segment *segment) {
    int64_t unit = (int64_t)segment->variant * p->graph->n_units + segment->unit;
    return (unit * WFI_N_PARTS + (int64_t)segment->part) * 2 + segment->is_pack;
}

/* Number, unit, part, whether it packs, variant; slots: kind, unit or value, access,
 * begin, bytes (of a workspace, of a part that adds, and of one that assigns). */
static void add_segment(const wf_program *p, const wfi_segment *segment, int32_t *n,
                        wfi_text *text) {
    static const char *const parts[] = {"F", "B", "W", "BW", "R"};
    if (!segment) return;
    wfi_text_add(text, "%s[%lld, %d, \"%s\", %d, %d, [", (*n)++ ? ",\n" : "",
                 (long long)segment_number(p, segment), segment->unit, parts[segment->part],
                 segment->is_pack, segment->variant);
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        bool is_workspace = slot->kind == WFI_BLOCK_WORKSPACE;
        wfi_text_add(text, "%s[%d, %d, %d, %zu, %zu", s ? ", " : "", (int)slot->kind, slot->id,
                     slot->access, slot->begin,
                     is_workspace ? slot->workspace_bytes[0] : slot->bytes);
        if (is_workspace) wfi_text_add(text, ", %zu", slot->workspace_bytes[1]);
        wfi_text_add(text, "]");
    }
    wfi_text_add(text, "]]");
}

static void add_segments(const wf_program *p, wfi_text *text) {
    int32_t n = 0;
    wfi_text_add(text, "\"segments\": [\n");
    for (int32_t v = 0; v < p->n_variants; v++)
        for (int32_t u = 0; u < p->graph->n_units; u++)
            for (int part = 0; part < WFI_N_PARTS; part++) {
                add_segment(p, p->variants[v].code->units[u].pack[part], &n, text);
                add_segment(p, p->variants[v].code->units[u].part[part], &n, text);
            }
    wfi_text_add(text, "],\n");
}

/* The uses of weights that units share: of each, one a slice, or one. */
static void add_ties(const wf_graph *g, const wfi_unit *unit, wfi_text *text) {
    for (int32_t k = unit->first_tied; k < unit->end_tied; k++) {
        int32_t n = wfi_is_slices_use(g, g->tied[k]) ? g->n_slices : 1;
        wfi_text_add(text, "%s[", k > unit->first_tied ? ", " : "");
        for (int32_t slice = 0; slice < n; slice++)
            wfi_text_add(text, "%s%d", slice ? ", " : "",
                         n > 1 ? wfi_use_of_slice(g, g->tied[k], slice) : g->tied[k]);
        wfi_text_add(text, "]");
    }
}

/* Name, bytes of parameters, of these trained, of buffers; whether it has batch statistics and
 * hidden state; slice, or -1; uses of its weights by other units. */
static void add_units(const wf_program *p, wfi_text *text) {
    const wf_graph *g = p->graph;
    wfi_text_add(text, "\"units\": [\n");
    for (int32_t u = 0; u < g->n_units; u++) {
        const wfi_unit *unit = &g->units[u];
        wfi_text_add(text, "%s[\"%s\", %zu, %zu, %zu, %d, %d, %d, [", u ? ",\n" : "", unit->name,
                     unit->param_bytes, unit->trained_bytes, unit->buffer_bytes,
                     p->code->units[u].bytes[WFI_BLOCK_STATS] > 0,
                     p->code->units[u].bytes[WFI_BLOCK_HIDDEN] > 0,
                     unit->is_slice ? unit->slice : -1);
        add_ties(g, unit, text);
        wfi_text_add(text, "]]");
    }
    wfi_text_add(text, "],\n\"slice_sums\": [");
    for (int32_t v = 0, n = 0; v < g->n_values; v++)
        if (wfi_is_slice_sum(g, v)) wfi_text_add(text, "%s%d", n++ ? ", " : "", v);
    wfi_text_add(text, "],\n");
}

static void add_recipe(const wf_program *p, wfi_text *text) {
    bool is_free = false;
    for (int32_t s = 0; s < p->n_stages; s++) is_free |= wfi_stage_rotates(p, s);
    wfi_text_add(text,
                 "\"weft_certificate\": 1,\n\"plan\": \"%s\",\n\"n_ranks\": %d,\n"
                 "\"microbatches\": %lld,\n\"lanes\": %lld,\n\"slices\": %d,\n\"states\": %d,\n"
                 "\"clips\": %d,\n\"reports\": %d,\n\"free_sums\": %d,\n\"variants\": [",
                 wf_program_plan(p), p->n_ranks, (long long)p->recipe.n_micro,
                 (long long)p->recipe.n_lanes, p->graph->n_slices, wfi_recipe_n_states(&p->recipe),
                 p->recipe.clip_norm > 0,
                 p->graph->record >= 0 ? wfi_mesh_n_groups(&p->mesh, WFI_STAGE_AXES) : 0, is_free);
    for (int32_t v = 0; v < p->n_variants; v++)
        wfi_text_add(text, "%s%lld", v ? ", " : "", (long long)p->variants[v].first_micro);
    wfi_text_add(text, "],\n");
}

static void add_groups(const wf_program *p, wfi_text *text) {
    wfi_text_add(text, "\"groups\": [");
    for (int32_t k = 0; k < p->n_groups; k++) {
        wfi_text_add(text, "%s[", k ? ", " : "");
        for (int32_t m = 0; m < p->groups[k].n; m++)
            wfi_text_add(text, "%s%d", m ? ", " : "", p->groups[k].ranks[m]);
        wfi_text_add(text, "]");
    }
    wfi_text_add(text, "],\n\"peaks\": [");
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

/* Rank, space, offset and bytes; then the name: kind, unit or value, microbatch, and the byte of
 * the named tensor (of state: of the parameters) that is the block's first; whether it is state. */
static void add_blocks(const wf_program *p, wfi_text *text) {
    wfi_text_add(text, "\"blocks\": [\n");
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        bool is_state = block->name.kind == WFI_BLOCK_STATE;
        size_t begin =
            is_state ? wfi_kept_extent(p, block->name.kind, block->name.owner, block->rank).offset
                     : (size_t)block->begin;
        wfi_text_add(text, "%s[%d, %d, %zu, %zu, %d, %d, %lld, %zu, %d]", b ? ",\n" : "",
                     block->rank, (int)block->space, block->offset, block->bytes,
                     (int)block->name.kind, block->name.owner, (long long)block->name.micro, begin,
                     block->is_state);
    }
    wfi_text_add(text, "],\n");
}

/* Kind, rank, stream, unit, microbatch, peer, group, whether it sums over members, whether it
 * assigns, segment, id; references (block, offset, bytes, access); instructions that it waits for.
 */
static void add_instruction(const wf_program *p, const wfi_instruction *now, wfi_text *text) {
    wfi_text_add(text, "[%d, %d, %d, %d, %lld, %d, %d, %d, %d, %lld, %d, [", (int)now->kind,
                 now->rank, (int)now->stream, now->unit, (long long)now->micro, now->peer,
                 now->group, wfi_is_reduction(now), now->first,
                 now->segment ? (long long)segment_number(p, now->segment) : -1LL, now->id);
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        wfi_text_add(text, "%s[%d, %zu, %zu, %d]", k ? ", " : "", r->block, r->offset, r->bytes,
                     r->access);
    }
    wfi_text_add(text, "], [");
    for (int32_t d = 0; d < now->n_depends; d++)
        wfi_text_add(text, "%s%d", d ? ", " : "", now->depends[d]);
    wfi_text_add(text, "]]");
}

static void add_instructions(const wf_program *p, wfi_text *text) {
    wfi_text_add(text, "\"instructions\": [\n");
    for (int32_t i = 0; i < p->n_instructions; i++) {
        if (i) wfi_text_add(text, ",\n");
        add_instruction(p, &p->instructions[i], text);
    }
    wfi_text_add(text, "],\n\"streams\": [");
    for (int32_t r = 0; r < p->n_ranks; r++)
        for (int s = 0; s < WFI_N_STREAMS; s++) {
            wfi_text_add(text, "%s[", r || s ? ",\n" : "");
            for (int32_t k = 0; k < p->ranks[r].n_stream[s]; k++)
                wfi_text_add(text, "%s%d", k ? ", " : "", p->ranks[r].stream[s][k]);
            wfi_text_add(text, "]");
        }
    wfi_text_add(text, "]}\n");
}

wf_status wf_program_certificate(const wf_program *p, char **text_out) {
    for (int32_t r = 0; r < p->n_ranks; r++)
        if (!wfi_rank_is_lowered(p, r) || p->kind != WF_PROGRAM_TRAIN)
            return wfi_fail(p->ctx, WF_INVALID_ARG,
                            "a certificate needs a training program with the instructions of every "
                            "rank (wf_program_create_full)");
    wfi_text text = {.ctx = p->ctx};
    wfi_text_add(&text, "{");
    add_recipe(p, &text);
    add_names(&text, "stream_names", stream_name, WFI_N_STREAMS);
    add_names(&text, "space_names", space_name, WFI_N_SPACES);
    add_names(&text, "kind_names", kind_name, WFI_N_BLOCK_KINDS);
    add_names(&text, "instruction_names", instruction_name, WFI_N_INSTRUCTION_KINDS);
    add_units(p, &text);
    add_segments(p, &text);
    add_groups(p, &text);
    add_blocks(p, &text);
    add_instructions(p, &text);
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK)
        *text_out = text.data;
    else
        wfi_free(p->ctx, text.data);
    return status;
}
