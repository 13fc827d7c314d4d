/* What ranks send to and receive from each other in one step. A rank that reads another's
 * memory receives, and the other one sends, whatever the wire. */
#include "program/program.h"

static void count(wf_program *p, int32_t from, int32_t to, size_t bytes) {
    p->ranks[from].sent_bytes += bytes;
    p->ranks[to].received_bytes += bytes;
}

static void count_step(wf_program *p, const wfi_instruction *now, const wfi_reduce_step *step) {
    const wfi_rank *rank = &p->ranks[now->rank];
    size_t bytes = (size_t)(step->end - step->begin) * sizeof(float);
    bool from_all = step->kind == WFI_REDUCE_SUM;
    bool from_left = step->kind != WFI_REDUCE_SUM && step->kind != WFI_REDUCE_STAGED;
    bool from_right = step->kind == WFI_REDUCE_ADD;
    for (int32_t k = 0; k < p->n_replicas; k++) {
        if (k == rank->replica) continue;
        int32_t from = wfi_program_rank_of(p, k, rank->stage);
        if (from_all || (from_left && k == step->left)) count(p, from, now->rank, bytes);
        if (from_right && k == step->right) count(p, from, now->rank, bytes);
    }
}

static void count_all_reduce(wf_program *p, const wfi_instruction *now, wfi_reduce_step *steps) {
    const wfi_allreduce *how = p->plan->allreduce;
    wfi_reduce_part part = {.n = p->n_replicas, .own = p->ranks[now->rank].replica};
    for (int32_t r = 0; r < wfi_n_reduced(p, now); r++) {
        part.n_elem = (int64_t)(now->references[r].bytes / sizeof(float));
        for (part.phase = 0; part.phase < how->n_phases(part.n); part.phase++) {
            int32_t n_steps = how->steps(&part, steps);
            for (int32_t k = 0; k < n_steps; k++) count_step(p, now, &steps[k]);
        }
    }
}

/* What a rank lacks comes from the one that made it. */
static void count_gather(wf_program *p, const wfi_instruction *now) {
    const wfi_rank *rank = &p->ranks[now->rank];
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        const wfi_block *b = &p->blocks[r->block];
        if (r->access != WFI_WRITE) continue;
        bool by_stage = now->kind == WFI_GATHER_NORM;
        int32_t replica =
            by_stage ? rank->replica : (int32_t)(b->micro / wfi_program_micro_per_replica(p));
        int32_t stage = by_stage ? wfi_program_stage_of(p, b->id) : rank->stage;
        count(p, wfi_program_rank_of(p, replica, stage), now->rank, r->bytes);
    }
}

wf_status wfi_program_count_traffic(wf_program *p) {
    wfi_reduce_step *steps =
        wfi_alloc(p->ctx, (size_t)p->n_replicas, sizeof *steps, "counting bytes");
    if (!steps) return WF_NO_MEMORY;
    for (int32_t r = 0; r < p->n_ranks; r++)
        p->ranks[r].sent_bytes = p->ranks[r].received_bytes = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (now->kind == WFI_SEND) count(p, now->rank, now->peer, now->references[0].bytes);
        if (now->kind == WFI_ALL_REDUCE) count_all_reduce(p, now, steps);
        if (now->kind == WFI_GATHER_NORM || now->kind == WFI_GATHER_STATS) count_gather(p, now);
    }
    wfi_free(p->ctx, steps);
    return WF_OK;
}
