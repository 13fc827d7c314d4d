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

/* What the member at place `at` of the order does. */
static void count_change(wf_program *p, int32_t at, wfi_reduce_step *steps) {
    const wfi_instruction *now = &p->instructions[p->order[at]];
    const wfi_group *group = &p->groups[now->group];
    wfi_reduce_part part = {.n = group->n, .own = wfi_group_find(group, now->rank)};
    int32_t n_phases = wfi_change_n_phases(p, now);
    for (int32_t r = 0; r < wfi_n_moved(p, now); r++)
        for (int32_t phase = 0; phase < n_phases; phase++) {
            int32_t n = wfi_change_steps(p, p->order + at - part.own, part.own, r, phase, steps);
            for (int32_t k = 0; k < n; k++) count_step(p, group, &part, &steps[k]);
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
        if (now->kind == WFI_CHANGE) count_change(p, at, steps);
    }
    wfi_free(p->ctx, steps);
    return WF_OK;
}
