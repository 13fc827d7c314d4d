/* When each block is used: from the order and the clocks of the instructions that refer to it. */
#include "layout/places.h"
#include "program/clock.h"
#include "program/stage.h"

#include <string.h>

static void begin_life(const wf_program *p, wfi_life *l, int32_t i, int32_t order) {
    const wfi_instruction *first = &p->instructions[i];
    l->first = i;
    l->first_order = order;
    memcpy(l->before, wfi_clock_of(p, i), sizeof l->before);
    l->before[first->stream]--; /* it is not before itself */
}

static void find_spans(wfi_life *l, int64_t n) {
    for (int64_t k = 0; k < WFI_N_SPANS; k++) {
        int64_t begin = k * n / WFI_N_SPANS, end = (k + 1) * n / WFI_N_SPANS;
        if (begin == end || l->first_order >= end) continue;
        if (l->last_order >= begin || l->settled_order >= begin) l->reaches |= (uint64_t)1 << k;
        if (l->last_order < begin) continue;
        l->touches |= (uint64_t)1 << k;
        if (l->first_order <= begin && l->last_order >= end - 1) l->covers |= (uint64_t)1 << k;
    }
}

/* From the last place of the order backward: the instructions that do not happen before the one
 * there, and have not been found, are settled behind it. `n_left` [rank][stream]: those of each
 * stream that have not been found; `n_done` [rank]: those of the rank in front. */
static void find_settled(const wf_program *p, int32_t *settled, int32_t *n_left, int32_t *n_done) {
    for (int32_t k = p->n_instructions - 1; k >= 0; k--) {
        const wfi_instruction *now = &p->instructions[p->order[k]];
        const int32_t *clock = wfi_clock_of(p, p->order[k]);
        for (int s = 0; s < WFI_N_STREAMS; s++) {
            int32_t *left = &n_left[now->rank * WFI_N_STREAMS + s];
            int32_t before = clock[s] - (s == (int)now->stream);
            while (*left > before)
                settled[p->ranks[now->rank].stream[s][--*left]] = n_done[now->rank];
        }
        n_done[now->rank]--;
    }
}

static wf_status settle(const wf_program *p, wfi_life *lives) {
    size_t n_streams = (size_t)p->n_ranks * WFI_N_STREAMS;
    const char *what = "the memory plan";
    wfi_pool pool = {.ctx = p->ctx};
    int32_t *settled = wfi_pool_array(&pool, (size_t)p->n_instructions, sizeof *settled, what);
    int32_t *n_left = wfi_pool_array(&pool, n_streams, sizeof *n_left, what);
    int32_t *n_done = wfi_pool_array(&pool, (size_t)p->n_ranks, sizeof *n_done, what);
    bool ok = !pool.failed;
    for (size_t k = 0; k < n_streams && ok; k++) {
        n_left[k] = p->ranks[k / WFI_N_STREAMS].n_stream[k % WFI_N_STREAMS];
        n_done[k / WFI_N_STREAMS] += n_left[k];
    }
    if (ok) find_settled(p, settled, n_left, n_done);
    for (int32_t b = 0; b < p->n_blocks && ok; b++)
        for (int s = 0; s < WFI_N_STREAMS && lives[b].first >= 0; s++) {
            if (!lives[b].last[s]) continue;
            int32_t i = p->ranks[p->blocks[b].rank].stream[s][lives[b].last[s] - 1];
            if (settled[i] > lives[b].settled_order) lives[b].settled_order = settled[i];
        }
    wfi_pool_release(&pool);
    return ok ? WF_OK : WF_NO_MEMORY;
}

/* Gradients and batch statistics that are read after the run. */
static bool outlives_run(const wf_program *p, const wfi_block *block) {
    bool is_statistic = block->name.kind == WFI_BLOCK_STATS && wfi_properties_of(p->kind).keeps;
    return is_statistic || (wfi_keeps_gradients(p) && wfi_is_summed(p, block));
}

wf_status wfi_lives_find(const wf_program *p, wfi_life *lives, int32_t *n_order) {
    for (int32_t b = 0; b < p->n_blocks; b++) lives[b] = (wfi_life){.first = -1};
    for (int32_t k = 0; k < p->n_instructions; k++) {
        int32_t i = p->order[k];
        const wfi_instruction *now = &p->instructions[i];
        int32_t at = n_order[now->rank]++;
        for (int32_t r = 0; r < now->n_references; r++) {
            wfi_life *l = &lives[now->references[r].block];
            if (l->first < 0) begin_life(p, l, i, at);
            l->last_order = at;
            l->last[now->stream] = now->position + 1;
        }
    }
    if (p->use == WFI_USE_DRAFT) return WF_OK; /* the rest serves places */
    WF_TRY(settle(p, lives));
    for (int32_t b = 0; b < p->n_blocks; b++) {
        int32_t n = n_order[p->blocks[b].rank];
        if (outlives_run(p, &p->blocks[b])) {
            lives[b].last_order = n;
            lives[b].settled_order = INT32_MAX;
            for (int s = 0; s < WFI_N_STREAMS; s++) lives[b].last[s] = INT32_MAX;
        }
        if (lives[b].first >= 0) find_spans(&lives[b], n);
    }
    return WF_OK;
}
