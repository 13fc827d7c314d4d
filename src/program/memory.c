/* The memory plan: an offset for every block. Two blocks share bytes only if the
 * last use of one happens before the first use of the other by the program's
 * dependencies. State comes first, in a fixed order; then largest first, each at
 * the lowest offset that is free.
 */
#include "program/program.h"

#include <string.h>

typedef struct life {
    int32_t first;                   /* instruction that touches it first */
    int32_t first_order, last_order; /* places in p->order */
    int32_t last[WFI_N_STREAMS];     /* positions + 1 of the latest use; 0 = none */
} life;

static void find_lives(const wf_program *p, life *lives) {
    for (int32_t b = 0; b < p->n_blocks; b++) lives[b] = (life){.first = -1};
    for (int32_t k = 0; k < p->n_instructions; k++) {
        int32_t i = p->order[k];
        const wfi_instruction *now = &p->instructions[i];
        for (int32_t r = 0; r < now->n_references; r++) {
            life *l = &lives[now->references[r].block];
            if (l->first < 0) {
                l->first = i;
                l->first_order = k;
            }
            l->last_order = k;
            l->last[now->stream] = now->position + 1;
        }
    }
    if (!p->keep_gradients) return;
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].kind == WFI_BLOCK_GRADIENT && p->blocks[b].depth == 0) {
            lives[b].last_order = p->n_instructions;
            for (int s = 0; s < WFI_N_STREAMS; s++) lives[b].last[s] = INT32_MAX;
        }
}

/* Whether every use of a happens before the first of b; both of one rank. */
static bool ends_before(const wf_program *p, const life *a, const life *b, int32_t rank) {
    const int32_t *clock =
        p->clock + (size_t)b->first * (size_t)p->n_clocks + (size_t)rank * WFI_N_STREAMS;
    const wfi_instruction *first = &p->instructions[b->first];
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        int32_t before = clock[s] - (s == (int)first->stream); /* b's first is not before itself */
        if (a->last[s] > before) return false;
    }
    return true;
}

static int by_size(const wf_program *p, int32_t a, int32_t b) {
    size_t x = p->blocks[a].bytes, y = p->blocks[b].bytes;
    return x != y ? (x < y) - (x > y) : (a > b) - (a < b);
}

static void sort_by_size(const wf_program *p, int32_t *list, int32_t n, int32_t *spare) {
    if (n < 2) return;
    int32_t half = n / 2, i = 0, j = half, k = 0;
    sort_by_size(p, list, half, spare);
    sort_by_size(p, list + half, n - half, spare);
    while (i < half || j < n) {
        bool left = j == n || (i < half && by_size(p, list[i], list[j]) <= 0);
        spare[k++] = left ? list[i++] : list[j++];
    }
    memcpy(list, spare, (size_t)n * sizeof *list);
}

/* `placed` holds n blocks in order of their offsets. */
static void place_block(wf_program *p, const life *lives, int32_t b, size_t base, int32_t *placed,
                        int32_t n) {
    wfi_block *block = &p->blocks[b];
    size_t offset = base;
    for (int32_t k = 0; k < n; k++) {
        const wfi_block *other = &p->blocks[placed[k]];
        if (other->offset >= offset + block->bytes) break;
        if (other->offset + other->bytes <= offset) continue;
        if (ends_before(p, &lives[placed[k]], &lives[b], block->rank) ||
            ends_before(p, &lives[b], &lives[placed[k]], block->rank))
            continue;
        offset = wfi_round_up(other->offset + other->bytes, WFI_ALIGN_BYTES);
    }
    block->offset = offset;
    int32_t k = n;
    for (; k > 0 && p->blocks[placed[k - 1]].offset > offset; k--) placed[k] = placed[k - 1];
    placed[k] = b;
}

/* Bytes alive at once: what no packing can go below. */
static void find_bound(wf_program *p, const life *lives, int32_t rank, size_t *alive) {
    wfi_rank *r = &p->ranks[rank];
    size_t n = (size_t)p->n_instructions;
    memset(alive, 0, (n + 1) * sizeof *alive);
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        if (block->rank != rank || block->is_state || lives[b].first < 0) continue;
        alive[lives[b].first_order] += block->bytes;
        alive[wfi_min_i64(lives[b].last_order + 1, p->n_instructions)] -= block->bytes;
    }
    size_t now = 0, most = 0;
    r->peak_instruction = p->n_instructions ? p->order[0] : -1;
    for (size_t k = 0; k < n; k++) {
        now += alive[k];
        if (now <= most) continue;
        most = now;
        r->peak_instruction = p->order[k];
    }
    r->bound_bytes = r->state_bytes + most;
}

static void place_rank(wf_program *p, const life *lives, int32_t rank, int32_t *list,
                       int32_t *spare) {
    wfi_rank *r = &p->ranks[rank];
    r->state_bytes = r->peak_bytes = 0;
    int32_t n = 0;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        wfi_block *block = &p->blocks[b];
        if (block->rank != rank) continue;
        if (!block->is_state) {
            if (lives[b].first >= 0) list[n++] = b;
            continue;
        }
        block->offset = wfi_round_up(r->state_bytes, WFI_ALIGN_BYTES);
        r->state_bytes = r->peak_bytes = block->offset + block->bytes;
    }
    sort_by_size(p, list, n, spare);
    size_t base = wfi_round_up(r->state_bytes, WFI_ALIGN_BYTES);
    for (int32_t k = 0; k < n; k++) {
        const wfi_block *block = &p->blocks[list[k]];
        place_block(p, lives, list[k], base, spare, k);
        if (block->offset + block->bytes > r->peak_bytes)
            r->peak_bytes = block->offset + block->bytes;
    }
}

wf_status wfi_program_place(wf_program *p) {
    size_t n_blocks = (size_t)p->n_blocks;
    life *lives = wfi_alloc(p->ctx, n_blocks, sizeof *lives, "the memory plan");
    int32_t *list = wfi_alloc(p->ctx, n_blocks, sizeof *list, "the memory plan");
    int32_t *spare = wfi_alloc(p->ctx, n_blocks, sizeof *spare, "the memory plan");
    size_t *alive =
        wfi_alloc(p->ctx, (size_t)p->n_instructions + 1, sizeof *alive, "the memory plan");
    bool ok = lives && list && spare && alive;
    if (ok) {
        find_lives(p, lives);
        for (int32_t r = 0; r < p->n_ranks; r++) {
            place_rank(p, lives, r, list, spare);
            find_bound(p, lives, r, alive);
        }
    }
    wfi_free(p->ctx, lives);
    wfi_free(p->ctx, list);
    wfi_free(p->ctx, spare);
    wfi_free(p->ctx, alive);
    return ok ? WF_OK : WF_NO_MEMORY;
}
