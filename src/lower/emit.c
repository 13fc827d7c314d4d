/* Blocks and instructions of the rank at hand. */
#include "lower/emit.h"
#include "program/stage.h"

#include <string.h>

bool wfi_take_stage(wfi_lowering *l, int32_t stage) {
    int32_t replica = wfi_stage_replica_on(l->p, stage, l->rank);
    l->stage = stage;
    l->replica = replica;
    l->first_unit = l->p->first_unit[stage];
    l->end_unit = l->p->first_unit[stage + 1];
    return replica >= 0;
}

int32_t wfi_action_unit(const wfi_lowering *l, const wfi_action *action, int32_t k) {
    const wfi_unit *units = l->p->graph->units;
    int32_t u = action->kind == WFI_ACTION_F ? l->first_unit + k : l->end_unit - 1 - k;
    if (action->kind == WFI_ACTION_F || !units[u].is_slice) return u;
    return u - 2 * units[u].slice + l->p->graph->n_slices - 1;
}

void wfi_drop_packed(wfi_lowering *l, int32_t unit) {
    l->n_packs[unit]++;
    for (int k = 0; k < WFI_N_PACKED; k++) l->packed[WFI_N_PACKED * unit + k] = false;
}

static size_t hash_of(wfi_name name) {
    uint64_t words[3], x;
    memcpy(words, &name, sizeof words);
    x = words[0] * 0x9E3779B97F4A7C15u ^ words[1] * 0xBF58476D1CE4E5B9u ^
        words[2] * 0x94D049BB133111EBu;
    return (size_t)(x ^ x >> 32);
}

/* Where the block of that name stands in the table, or would. */
static int32_t *find_entry(const wfi_lowering *l, wfi_name name) {
    size_t at = hash_of(name) % l->n_table;
    while (l->table[at] && !wfi_same_name(l->p->blocks[l->table[at] - 1].name, name))
        at = (at + 1) % l->n_table;
    return &l->table[at];
}

static wf_status grow_table(wfi_lowering *l) {
    if (l->n_table > 2 * l->n_named) return WF_OK;
    wf_context *ctx = l->p->ctx;
    wfi_lowering larger = *l;
    larger.n_table = l->n_table ? 2 * l->n_table : 256;
    larger.table = wfi_alloc(ctx, larger.n_table, sizeof *larger.table, "lowering");
    if (!larger.table) return WF_NO_MEMORY;
    for (size_t k = 0; k < l->n_table; k++) {
        if (!l->table[k]) continue;
        *find_entry(&larger, l->p->blocks[l->table[k] - 1].name) = l->table[k];
    }
    wfi_free(ctx, l->table);
    *l = larger;
    return WF_OK;
}

wf_status wfi_find_block(wfi_lowering *l, wfi_name name, size_t bytes, int32_t *block_out) {
    wf_program *p = l->p;
    WF_TRY(grow_table(l));
    int32_t *entry = find_entry(l, name);
    if (*entry) {
        wfi_block *block = &p->blocks[*entry - 1];
        if (bytes > block->bytes) block->bytes = bytes;
        *block_out = *entry - 1;
        return WF_OK;
    }
    WF_TRY(WFI_GROW(p->ctx, p->blocks, p->n_blocks, p->block_capacity, "blocks"));
    p->blocks[p->n_blocks] = (wfi_block){
        .rank = l->rank,
        .space = name.copy == WFI_COPY_KEPT ? wfi_kept_space(p, name.kind) : WFI_SPACE_DEVICE,
        .name = name,
        .is_state = l->adds_state,
        .bytes = bytes};
    *block_out = p->n_blocks++;
    *entry = p->n_blocks;
    l->n_named++;
    return WF_OK;
}

wf_status wfi_emit(wfi_lowering *l, wfi_instruction instruction, int32_t n_references,
                   int32_t *index_out) {
    wf_program *p = l->p;
    WF_TRY(WFI_GROW(p->ctx, p->instructions, p->n_instructions, p->instruction_capacity,
                    "instructions"));
    instruction.rank = l->rank;
    instruction.references =
        wfi_pool_alloc(&p->pool, (size_t)n_references, sizeof *instruction.references);
    if (!instruction.references) return WF_NO_MEMORY;
    instruction.n_references = n_references;
    p->instructions[p->n_instructions] = instruction;
    if (instruction.stream == WFI_STREAM_COMPUTE) l->last_compute = p->n_instructions;
    *index_out = p->n_instructions++;
    return WF_OK;
}

wfi_instruction wfi_make(wfi_instruction_kind kind, int32_t unit, int32_t id, int64_t micro) {
    return (wfi_instruction){.kind = kind,
                             .stream = wfi_instruction_types[kind].stream,
                             .unit = unit,
                             .id = id,
                             .micro = micro,
                             .peer = -1,
                             .group = -1};
}

wf_status wfi_refer(wfi_lowering *l, int32_t instruction, int32_t k, wfi_name name,
                    wfi_extent extent, int access) {
    int32_t block;
    WF_TRY(wfi_find_block(l, name, 0, &block));
    wfi_block *b = &l->p->blocks[block];
    bool is_part = name.copy == WFI_COPY_PART || wfi_keeps_own_rows(l->p, name);
    if (is_part && !b->bytes) b->begin = (int64_t)extent.offset;
    size_t offset = extent.offset - (size_t)b->begin;
    if (extent.bytes && offset + extent.bytes > b->bytes) b->bytes = offset + extent.bytes;
    l->p->instructions[instruction].references[k] =
        (wfi_reference){block, offset, extent.bytes, access};
    return WF_OK;
}

wf_status wfi_add_name(wfi_lowering *l, wfi_name name) {
    WF_TRY(WFI_GROW(l->p->ctx, l->names, l->n_names, l->name_capacity, "lowering"));
    l->names[l->n_names++] = name;
    return WF_OK;
}

/* A need may depend on the blocks of all references. */
wf_status wfi_emit_named(wfi_lowering *l, wfi_instruction instruction, int32_t n,
                         const wfi_name *names) {
    int32_t i;
    WF_TRY(wfi_emit(l, instruction, n, &i));
    const wfi_instruction *now = &l->p->instructions[i];
    for (int32_t k = 0; k < n; k++)
        WF_TRY(wfi_find_block(l, names[k], 0, &now->references[k].block));
    for (int32_t k = 0; k < n; k++) {
        wfi_need need = wfi_type_of(now)->need(l->p, now, k);
        WF_TRY(wfi_refer(l, i, k, names[k], need.extent, need.access));
    }
    return WF_OK;
}

wf_status wfi_emit_added(wfi_lowering *l, wfi_instruction instruction) {
    int32_t n = l->n_names;
    l->n_names = 0;
    return wfi_emit_named(l, instruction, n, l->names);
}

wf_status wfi_depend_on(wfi_lowering *l, int32_t instruction, int32_t earlier) {
    wfi_instruction *i = &l->p->instructions[instruction];
    if (earlier < 0) return WF_OK;
    int32_t *depends = wfi_pool_alloc(&l->p->pool, (size_t)i->n_depends + 1, sizeof *depends);
    if (!depends) return WF_NO_MEMORY;
    for (int32_t k = 0; k < i->n_depends; k++) depends[k] = i->depends[k];
    depends[i->n_depends++] = earlier;
    i->depends = depends;
    return WF_OK;
}

wf_status wfi_depend_on_lookahead(wfi_lowering *l, int32_t instruction) {
    return wfi_depend_on(l, instruction, l->lookahead[0]);
}
