/* Lower bounds of memory. Strategies and offloads change neither the passes nor their order on a
 * rank. So these blocks are on the device while a pass runs:
 *
 * - blocks that the pass accesses;
 * - blocks that both earlier and later passes access, but for those that may leave in between:
 *   offloaded activations, and parameters that are fetched or gathered, with their packed copies;
 * - of a forward that waits for no copy, offloaded activations of the forward before it: their
 *   eviction may still run;
 * - summed gradients, if no unit is updated before the last pass and they are not freed;
 * - state that is not offloaded. Of n replicas that divide it, one has a part of 1/n or more.
 */
#include "sim/needs.h"
#include "program/stage.h"

#include <string.h>

typedef enum block_class { ACTIVATION, PARAMETER, GRADIENT, OTHER, N_CLASSES } block_class;

typedef struct passes {
    const wf_program *p;
    uint64_t shape;
    int32_t n;                   /* so far, on the rank at hand */
    int32_t *first, *last;       /* [n_blocks] the passes that access it; last -1: none */
    int64_t *alive[N_CLASSES];   /* [n] how many bytes more than at the previous pass */
    int64_t *used[N_CLASSES];    /* [n] bytes that the pass accesses */
    const wfi_instruction **now; /* [n] */
} passes;

static block_class class_of(const wfi_block *block) {
    if (block->name.kind == WFI_BLOCK_GRADIENT && !block->name.accumulator) return GRADIENT;
    if (wfi_is_activation(block->name.kind)) return ACTIVATION;
    bool is_parameter = block->name.kind == WFI_BLOCK_PARAM || block->name.kind == WFI_BLOCK_PACKED;
    return is_parameter ? PARAMETER : OTHER;
}

static void mix(passes *s, uint64_t more) {
    s->shape = (s->shape ^ more) * UINT64_C(0x9E3779B97F4A7C15);
    s->shape ^= s->shape >> 32;
}

static void add_pass(passes *s, const wfi_instruction *now) {
    int32_t k = s->n++;
    mix(s, (uint64_t)now->kind << 32 | (uint32_t)now->unit);
    mix(s, (uint64_t)now->micro);
    s->now[k] = now;
    for (int c = 0; c < N_CLASSES; c++) s->alive[c][k + 1] = s->used[c][k] = 0;
    for (int32_t r = 0; r < now->n_references; r++) {
        int32_t b = now->references[r].block;
        mix(s, (uint64_t)s->p->blocks[b].name.kind << 56 | now->references[r].bytes);
        if (s->last[b] == k) continue;
        if (s->last[b] < 0) s->first[b] = k;
        s->last[b] = k;
        s->used[class_of(&s->p->blocks[b])][k] += (int64_t)s->p->blocks[b].bytes;
    }
}

static void add_block(const passes *s, int32_t b, wfi_needs *needs) {
    const wfi_block *block = &s->p->blocks[b];
    size_t *bytes = block->name.kind == WFI_BLOCK_STATE   ? &needs->optimizer_bytes
                    : block->name.kind == WFI_BLOCK_PARAM ? &needs->parameter_bytes
                                                          : &needs->other_bytes;
    if (block->is_state)
        *bytes += block->bytes;
    else if (s->last[b] >= 0) {
        s->alive[class_of(block)][s->first[b]] += (int64_t)block->bytes;
        s->alive[class_of(block)][s->last[b] + 1] -= (int64_t)block->bytes;
    }
}

static bool reads_input(const passes *s, const wfi_instruction *now) {
    bool does = false;
    for (int32_t r = 0; r < now->n_references; r++)
        does |= s->p->blocks[now->references[r].block].name.kind == WFI_BLOCK_INPUT;
    return does;
}

/* Bytes of activations that pass k does not access, but may still be evicted. A pass that waits for
 * a copy waits for earlier evictions, too. */
static int64_t evicted_bytes(const passes *s, int32_t k) {
    const wfi_instruction *now = s->now[k], *before = k ? s->now[k - 1] : now;
    int64_t bytes = 0;
    bool may_be = k && before->kind == WFI_FORWARD && now->kind == WFI_FORWARD &&
                  s->p->plan->overlaps && !reads_input(s, now);
    for (int32_t r = 0; may_be && r < before->n_references; r++) {
        int32_t b = before->references[r].block;
        bool is_used = false;
        for (int32_t i = 0; i < now->n_references; i++) is_used |= now->references[i].block == b;
        for (int32_t i = 0; i < r; i++) is_used |= before->references[i].block == b;
        if (class_of(&s->p->blocks[b]) == ACTIVATION && s->last[b] > k && !is_used)
            bytes += (int64_t)s->p->blocks[b].bytes;
    }
    return bytes;
}

static void find_most(const passes *s, wfi_needs *needs) {
    int64_t alive[N_CLASSES] = {0}, summed = 0;
    for (int32_t k = 0; k < s->n; k++) {
        int64_t used = s->used[ACTIVATION][k], evicted = evicted_bytes(s, k);
        for (int c = 0; c < N_CLASSES; c++) alive[c] += s->alive[c][k];
        summed += wfi_max_i64(0, s->alive[GRADIENT][k]);
        for (int i = 0; i < 8; i++) {
            bool a = i & 1, w = i & 2, early = i & 4;
            int64_t bytes = alive[OTHER] + (a ? used + (w ? 0 : evicted) : alive[ACTIVATION]) +
                            (w ? s->used[PARAMETER][k] : alive[PARAMETER]) +
                            (early ? alive[GRADIENT] : summed);
            size_t *most = &needs->pass_bytes[a][w][early];
            *most = (size_t)wfi_max_i64((int64_t)*most, bytes);
        }
    }
}

static void find_needs(passes *s, const wfi_rank *rank, wfi_needs *needs) {
    *needs = (wfi_needs){0};
    s->n = 0;
    for (int c = 0; c < N_CLASSES; c++) s->alive[c][0] = 0;
    for (int32_t at = 0; at < rank->n_stream[WFI_STREAM_COMPUTE]; at++) {
        const wfi_instruction *now = &s->p->instructions[rank->stream[WFI_STREAM_COMPUTE][at]];
        if (wfi_type_of(now)->span <= WF_SPAN_RECOMPUTE) add_pass(s, now);
    }
    for (int32_t b = rank->first_block; b < rank->end_block; b++) add_block(s, b, needs);
    find_most(s, needs);
}

wf_status wfi_find_needs(const wf_program *p, wfi_needs *needs, uint64_t *shape_out) {
    passes s = {.p = wfi_emitted_of(p)};
    wfi_pool pool = {.ctx = p->ctx};
    const char *what = "bounds of memory";
    size_t n = (size_t)s.p->n_instructions + 1, n_blocks = (size_t)s.p->n_blocks;
    s.first = wfi_pool_array(&pool, n_blocks, sizeof *s.first, what);
    s.last = wfi_pool_array(&pool, n_blocks, sizeof *s.last, what);
    for (int c = 0; c < N_CLASSES; c++) {
        s.alive[c] = wfi_pool_array(&pool, n, sizeof *s.alive[c], what);
        s.used[c] = wfi_pool_array(&pool, n, sizeof *s.used[c], what);
    }
    s.now = wfi_pool_array(&pool, n, sizeof *s.now, what);
    wf_status status = wfi_pool_status(&pool);
    if (status == WF_OK) memset(s.last, -1, n_blocks * sizeof *s.last);
    for (int32_t k = 0; k < p->n_stages; k++) mix(&s, (uint64_t)p->first_unit[k]);
    for (int32_t k = 0; k < p->n_lowered && status == WF_OK; k++)
        find_needs(&s, &s.p->ranks[p->lowered[k]], &needs[k]);
    *shape_out = s.shape;
    wfi_pool_release(&pool);
    return status;
}

size_t wfi_needs_least(const wfi_needs *needs, int32_t n, const wfi_saving *saving) {
    size_t most = 0, n_states = (size_t)(saving->zero ? saving->n_parts : 1);
    bool gathers = saving->zero == 3;
    for (int32_t k = 0; k < n; k++) {
        const wfi_needs *x = &needs[k];
        bool is_early = saving->state || saving->zero > 1;
        size_t bytes = x->other_bytes +
                       x->pass_bytes[saving->activations][saving->params || gathers][is_early];
        if (!saving->state) bytes += x->optimizer_bytes / n_states;
        if (!saving->params) bytes += x->parameter_bytes / (gathers ? n_states : 1);
        if (bytes > most) most = bytes;
    }
    return most;
}
