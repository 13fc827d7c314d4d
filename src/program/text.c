/* The program as text: one instruction a line, as `weft plan --program` prints it. */
#include "program/text.h"
#include "program/change.h"

void wfi_units_text(const wf_program *p, const wfi_instruction *now, int32_t rank, wfi_text *text) {
    const wfi_unit *units = p->graph->units;
    bool exists = now->unit >= 0 && now->unit < p->graph->n_units; /* the proof refuses others */
    if (exists) wfi_text_add(text, "%s", units[wfi_rank_named_unit(p, rank, now)].name);
    for (int32_t k = 1; wfi_is_reduction(now) && k < wfi_n_moved(p, now); k++) {
        const wfi_block *b = &p->blocks[now->references[k].block];
        bool is_next = b->name.owner != p->blocks[now->references[k - 1].block].name.owner;
        if (b->name.kind == WFI_BLOCK_VALUE) continue; /* of no unit's own */
        if (b->name.kind != WFI_BLOCK_GRADIENT)
            wfi_text_add(text, "+?");
        else if (is_next)
            wfi_text_add(text, "+%s", units[wfi_rank_unit(p, rank, b->name.owner)].name);
    }
}

void wfi_instruction_text(const wf_program *p, int32_t i, wfi_text *text) {
    const wfi_instruction *now = &p->instructions[i];
    wfi_text_add(text, "r%d %s.%d %s", now->rank, wfi_stream_name(now->stream), now->position,
                 wfi_instruction_name(now));
    if (now->unit >= 0) wfi_text_add(text, " ");
    wfi_units_text(p, now, now->rank, text);
    wfi_type_of(now)->arguments(p, now, text);
    if (now->micro >= 0) wfi_text_add(text, " m=%lld", (long long)now->micro);
}

static void references_text(const wf_program *p, const wfi_instruction *now, wfi_text *text) {
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        const wfi_block *b = &p->blocks[r->block];
        const char *access = r->access == WFI_READ ? "" : r->access == WFI_WRITE ? "=" : "+";
        wfi_text_add(text, " %s%s@%zu:%zu", access, wfi_block_kind_name(b->name.kind),
                     b->offset + r->offset, r->bytes);
    }
}

/* Adds the differences: "as rank 1 with microbatch 8 for 0 and slice 4 for 2". */
static void add_like(const wf_program *p, int32_t rank, wfi_text *text) {
    int32_t like = p->ranks[rank].like, n_slices = p->graph->n_slices / p->mesh.tp;
    int32_t tp = wfi_mesh_at(&p->mesh, WFI_TP, rank), other = wfi_mesh_at(&p->mesh, WFI_TP, like);
    int64_t micro = wfi_rank_micro(p, rank, 0);
    wfi_text_add(text, ", as rank %d with", like);
    if (micro || tp == other) wfi_text_add(text, " microbatch %lld for 0", (long long)micro);
    if (micro && tp != other) wfi_text_add(text, " and");
    if (tp != other) wfi_text_add(text, " slice %d for %d", tp * n_slices, other * n_slices);
}

wf_status wf_program_text(const wf_program *program, char **text_out) {
    const wf_program *p = wfi_emitted_of(program);
    wfi_text text = {.ctx = p->ctx};
    wfi_text_add(
        &text,
        "# rank stream.position instruction | after: other streams | memory: kind@offset:bytes, "
        "= written, + updated\n");
    for (int32_t r = 0; r < p->n_ranks; r++) {
        wfi_text_add(&text, "# rank %d:", r);
        for (int32_t s = 0; s < p->n_stages; s++) {
            int32_t replica = wfi_stage_replica_on(p, s, r);
            if (replica >= 0) wfi_text_add(&text, " stage %d, replica %d,", s, replica);
        }
        wfi_text_add(&text, " %zu bytes", p->ranks[r].arenas[WFI_SPACE_DEVICE].peak_bytes);
        if (!wfi_rank_is_lowered(p, r)) add_like(p, r, &text);
        wfi_text_add(&text, "\n");
        for (int32_t k = 0; k < p->n_instructions; k++) {
            int32_t i = p->order[k];
            const wfi_instruction *now = &p->instructions[i];
            if (now->rank != r) continue;
            wfi_instruction_text(p, i, &text);
            if (now->n_depends) wfi_text_add(&text, " | after");
            for (int32_t d = 0; d < now->n_depends; d++) {
                const wfi_instruction *before = &p->instructions[now->depends[d]];
                wfi_text_add(&text, " %s.%d", wfi_stream_name(before->stream), before->position);
            }
            wfi_text_add(&text, " |");
            references_text(p, now, &text);
            wfi_text_add(&text, "\n");
        }
    }
    wf_status status = wfi_text_status(&text);
    if (status != WF_OK) {
        wfi_free(p->ctx, text.data);
        return status;
    }
    *text_out = text.data;
    return WF_OK;
}

void wf_text_free(wf_context *ctx, char *text) {
    wfi_free(ctx, text);
}
