/* What ranks send to and receive from each other in one step. A rank that reads another's
 * memory receives, and the other one sends, whatever the wire. */
#include "program/program.h"

static void count(wf_program *p, int32_t from, int32_t to, size_t bytes) {
    p->ranks[from].sent_bytes += bytes;
    p->ranks[to].received_bytes += bytes;
}

static void count_step(wf_program *p, const wfi_group *group, const wfi_reduce_part *part,
                       const wfi_reduce_step *step) {
    wfi_access a;
    for (int32_t i = 0; wfi_reduce_access(part, step, i, &a); i++)
        if (a.rank != part->own && !a.writes)
            count(p, group->ranks[a.rank], group->ranks[part->own], (size_t)a.n * sizeof(float));
}

static void count_reduction(wf_program *p, const wfi_instruction *now, wfi_reduce_step *steps) {
    const wfi_allreduce *how = wfi_reduction_of(p, now);
    const wfi_group *group = &p->groups[now->group];
    wfi_reduce_part part = {.n = group->n, .own = wfi_group_find(group, now->rank)};
    for (int32_t r = 0; r < wfi_n_reduced(p, now); r++) {
        part.n_elem = (int64_t)(now->references[r].bytes / sizeof(float));
        for (part.phase = 0; part.phase < how->n_phases(part.n); part.phase++) {
            int32_t n_steps = how->steps(&part, steps);
            for (int32_t k = 0; k < n_steps; k++) count_step(p, group, &part, &steps[k]);
        }
    }
}

/* What ranks lack comes from the first that has it; `at` is the place of the first in the order. */
static void count_gather(wf_program *p, int32_t at) {
    const wfi_instruction *first = &p->instructions[p->order[at]];
    int32_t n = p->groups[first->group].n;
    for (int32_t k = 0; k < first->n_references; k++) {
        int32_t from = -1;
        for (int32_t m = n - 1; m >= 0; m--) {
            const wfi_instruction *member = &p->instructions[p->order[at + m]];
            if (member->references[k].access & WFI_READ) from = member->rank;
        }
        for (int32_t m = 0; m < n && from >= 0; m++) {
            const wfi_instruction *member = &p->instructions[p->order[at + m]];
            const wfi_reference *r = &member->references[k];
            if (r->access == WFI_WRITE) count(p, from, member->rank, r->bytes);
        }
    }
}

wf_status wfi_program_count_traffic(wf_program *p) {
    wfi_reduce_step *steps = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *steps, "counting bytes");
    if (!steps) return WF_NO_MEMORY;
    for (int32_t r = 0; r < p->n_ranks; r++)
        p->ranks[r].sent_bytes = p->ranks[r].received_bytes = 0;
    for (int32_t at = 0; at < p->n_instructions; at++) {
        const wfi_instruction *now = &p->instructions[p->order[at]];
        if (now->kind == WFI_SEND) count(p, now->rank, now->peer, now->references[0].bytes);
        if (wfi_is_reduction(now)) count_reduction(p, now, steps);
        bool gathers = now->stream == WFI_STREAM_REDUCE && !wfi_is_reduction(now);
        if (gathers && p->groups[now->group].ranks[0] == now->rank) count_gather(p, at);
    }
    wfi_free(p->ctx, steps);
    return WF_OK;
}
