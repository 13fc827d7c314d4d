/* The checker: proves that a program computes what one rank computes.
 *
 * 0. Inside each unit, kernels stay within their operands, and a temporary is read
 *    only while it holds what was written into it (check_code.c).
 * 1. The lists are sound (check_lists.c), and running them cannot deadlock (order.c).
 * 2. Every reference is exactly as large as what its instruction touches, and lies within its
 *    block (check_sizes.c).
 * 3. Any two accesses to the same bytes, one of them a write, are ordered by the
 *    dependencies. This covers races and every reuse of memory.
 * 4. Interpreted with terms instead of numbers, every instruction reads what the
 *    ideal step has there, and the state ends as the ideal's: each microbatch
 *    passed each unit, each gradient was summed once and in the recipe's order (over
 *    replicas in any, if the plan allows it).
 */
#include "program/check.h"
#include "program/term.h"

#include <stdlib.h>
#include <string.h>

typedef struct access_history {
    int32_t reads[WFI_N_STREAMS], writes[WFI_N_STREAMS]; /* positions + 1 of the latest */
} access_history;

/* A stretch of a rank's memory that no block's border divides. */
typedef struct stretch {
    size_t begin;
    access_history history;
    int32_t owner; /* the block that wrote it last, or -1 */
} stretch;

/* What the latest write of a block left there, in its bytes `begin` to `end`. */
typedef struct holding {
    wfi_term term;
    size_t begin, end;
} holding;

typedef struct checker {
    wf_program *p;
    wfi_ideal *ideal;
    holding *held;         /* [block] */
    stretch *stretches;    /* of all ranks, each rank's in order of addresses */
    int32_t *first, *last; /* [block] its stretches: first to last - 1 */
    bool *reported;        /* [n_micro] */
    bool *stored;          /* [n_outputs] */
    wfi_term *scratch;     /* large enough for any instruction's references, twice */
} checker;

static wf_status refuse(const checker *c, int32_t i, const char *what) {
    return wfi_check_refuse(c->p, i, what);
}

/* ---- 3. ordered accesses ---- */

static int compare_sizes(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* Index of the stretch of this rank that begins at `at`. */
static int32_t find_stretch(const checker *c, int32_t low, int32_t high, size_t at) {
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (c->stretches[middle].begin <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Divides each rank's memory at every border of a block. Memory is reused at the same
 * places, so there are far fewer stretches than blocks. */
static wf_status find_stretches(checker *c) {
    const wf_program *p = c->p;
    size_t *borders = wfi_alloc(p->ctx, 2 * (size_t)p->n_blocks, sizeof *borders, "the check");
    if (!borders) return WF_NO_MEMORY;
    int32_t n = 0;
    for (int32_t rank = 0; rank < p->n_ranks; rank++) {
        size_t n_borders = 0;
        int32_t begin = n;
        for (int32_t b = 0; b < p->n_blocks; b++) {
            if (p->blocks[b].rank != rank || !p->blocks[b].bytes) continue;
            borders[n_borders++] = p->blocks[b].offset;
            borders[n_borders++] = p->blocks[b].offset + p->blocks[b].bytes;
        }
        qsort(borders, n_borders, sizeof *borders, compare_sizes);
        for (size_t k = 0; k < n_borders; k++)
            if (k == 0 || borders[k] != borders[k - 1])
                c->stretches[n++] = (stretch){.begin = borders[k], .owner = -1};
        for (int32_t b = 0; b < p->n_blocks; b++) {
            const wfi_block *block = &p->blocks[b];
            if (block->rank != rank || !block->bytes) continue;
            c->first[b] = find_stretch(c, begin, n, block->offset);
            c->last[b] = find_stretch(c, begin, n, block->offset + block->bytes);
        }
    }
    wfi_free(p->ctx, borders);
    return WF_OK;
}

static bool is_ordered(const access_history *h, const int32_t *clock, wfi_stream own, bool writes) {
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        int32_t before = clock[s] - (s == (int)own);
        if (h->writes[s] > before || (writes && h->reads[s] > before)) return false;
    }
    return true;
}

static wf_status check_access(checker *c, int32_t i) {
    const wf_program *p = c->p;
    const wfi_instruction *now = &p->instructions[i];
    const int32_t *clock =
        p->clock + (size_t)i * (size_t)p->n_clocks + (size_t)now->rank * WFI_N_STREAMS;
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        bool writes = r->access & WFI_WRITE;
        for (int32_t at = c->first[r->block]; at < c->last[r->block]; at++)
            if (!is_ordered(&c->stretches[at].history, clock, now->stream, writes))
                return refuse(c, i,
                              "touches bytes that another stream or another block may be using (a "
                              "dependency is missing)");
    }
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        for (int32_t at = c->first[r->block]; at < c->last[r->block]; at++) {
            access_history *h = &c->stretches[at].history;
            if (r->access & WFI_READ) h->reads[now->stream] = now->position + 1;
            if (r->access & WFI_WRITE) h->writes[now->stream] = now->position + 1;
        }
    }
    return WF_OK;
}

/* ---- 4. meaning ---- */

/* A write of some of a block's bytes ends what it held in others. */
static void write_bytes(checker *c, int32_t block, size_t begin, size_t bytes, wfi_term term) {
    for (int32_t at = c->first[block]; at < c->last[block]; at++) c->stretches[at].owner = block;
    c->held[block] = (holding){term, begin, begin + bytes};
}

static void write_term(checker *c, const wfi_reference *r, wfi_term term) {
    write_bytes(c, r->block, r->offset, r->bytes, term);
}

/* The beginning of what was written stands for all of it: who reads less knows why. Any other
 * part is something else. */
static wfi_term read_term(const checker *c, const wfi_reference *r) {
    const holding *h = &c->held[r->block];
    if (!r->bytes || r->offset == h->begin) return r->bytes ? h->term : 0;
    return wfi_term_mix(h->term, WFI_TERM_PART + (uint64_t)(r->offset - h->begin));
}

/* Whether the block still holds, in these bytes, what was written into them. */
static bool is_whole(const checker *c, int32_t block, size_t begin, size_t bytes) {
    const holding *h = &c->held[block];
    for (int32_t at = c->first[block]; at < c->last[block]; at++)
        if (c->stretches[at].owner != block) return false;
    return h->term != 0 && h->begin <= begin && begin + bytes <= h->end;
}

static wf_status check_reads(checker *c, int32_t i) {
    const wfi_instruction *now = &c->p->instructions[i];
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        bool temporary = c->p->blocks[r->block].kind == WFI_BLOCK_FRAME;
        if (r->access & WFI_READ && r->bytes && !temporary &&
            !is_whole(c, r->block, r->offset, r->bytes))
            return refuse(c, i, "reads bytes that nobody has written, or that were overwritten");
    }
    return WF_OK;
}

static wf_status run_segment(checker *c, int32_t i) {
    const wf_program *p = c->p;
    const wfi_instruction *now = &p->instructions[i];
    wfi_term *in = c->scratch, *out = c->scratch + now->n_references;
    for (int32_t s = 0; s < now->n_references; s++) in[s] = read_term(c, &now->references[s]);
    wfi_term_segment(now->segment, now->micro, in, out);
    for (int32_t s = 0; s < now->n_references; s++) {
        const wfi_slot *slot = &now->segment->slots[s];
        if (!(slot->access & WFI_WRITE)) continue;
        const wfi_block *b = &p->blocks[now->references[s].block];
        if (slot->kind == WFI_BLOCK_GRADIENT) {
            wfi_term sum =
                wfi_term_mix(wfi_term_mix(wfi_term_start(WFI_TERM_ADD, 0, 0), in[s]), out[s]);
            write_term(c, &now->references[s], now->first ? out[s] : sum);
            continue;
        }
        write_term(c, &now->references[s], out[s]);
        if (slot->kind == WFI_BLOCK_FRAME) continue;
        if (out[s] != wfi_ideal_find(c->ideal, b->kind, b->id, b->depth, b->micro))
            return refuse(c, i,
                          "computes something else than one rank would (it read other values)");
    }
    return WF_OK;
}

/* Members of a collective stand side by side in the order. Returns how many. */
static int32_t count_members(const checker *c, int32_t at) {
    const wf_program *p = c->p;
    const wfi_instruction *now = &p->instructions[p->order[at]];
    int32_t n = p->groups[now->group].n, found = 0;
    while (found < n && at + found < p->n_instructions &&
           wfi_same_collective(p, now, &p->instructions[p->order[at + found]]))
        found++;
    return found;
}

/* What reference k of the n members holds when the collective is through. */
static wfi_term collective_term(const checker *c, int32_t at, int32_t n, int32_t k) {
    const wf_program *p = c->p;
    const wfi_instruction *first = &p->instructions[p->order[at]];
    wfi_block_kind kind = p->blocks[first->references[k].block].kind;
    wfi_term *leaves = c->scratch, whole = 0;
    for (int32_t m = 0; m < n; m++) {
        const wfi_instruction *member = &p->instructions[p->order[at + m]];
        const wfi_reference *r = &member->references[k];
        if (wfi_is_reduction(first))
            leaves[wfi_group_find(&p->groups[first->group], member->rank)] = read_term(c, r);
        if (r->access & WFI_READ) whole = read_term(c, r);
    }
    if (kind == WFI_BLOCK_STAGING) return wfi_term_start(WFI_CHANGE, first->unit, 0);
    if (!wfi_is_reduction(first)) return whole;
    return first->to == WFI_REPLICATE && wfi_stage_rotates(p, first->group)
               ? wfi_term_any_order(leaves, n)
               : wfi_term_tree(leaves, n);
}

static void run_collective(checker *c, int32_t at, int32_t n) {
    const wf_program *p = c->p;
    const wfi_instruction *first = &p->instructions[p->order[at]];
    for (int32_t k = 0; k < first->n_references; k++) {
        wfi_term whole = collective_term(c, at, n, k);
        for (int32_t m = 0; m < n; m++) {
            const wfi_reference *r = &p->instructions[p->order[at + m]].references[k];
            if (r->access & WFI_WRITE) write_term(c, r, whole);
        }
    }
}

/* A send and its receive stand side by side, in either order. */
static const wfi_instruction *partner(const checker *c, int32_t at) {
    const wf_program *p = c->p;
    const wfi_instruction *now = &p->instructions[p->order[at]];
    for (int32_t k = at > 0 ? at - 1 : 0; k <= at + 1 && k < p->n_instructions; k++) {
        const wfi_instruction *other = &p->instructions[p->order[k]];
        if (other != now && other->kind == WFI_SEND && other->peer == now->rank &&
            other->id == now->id && other->micro == now->micro)
            return other;
    }
    return NULL;
}

static wf_status run_update(checker *c, const wfi_instruction *now) {
    const wf_program *p = c->p;
    bool has_state = wfi_recipe_n_states(&p->recipe) > 0;
    const wfi_reference *r = now->references;
    wfi_term param = read_term(c, &r[0]), gradient = read_term(c, &r[1]);
    wfi_term state = has_state ? read_term(c, &r[2]) : 0;
    int32_t n_norms = now->n_references - 2 - has_state;
    for (int32_t k = 0; k < n_norms; k++) c->scratch[k] = read_term(c, &r[2 + has_state + k]);
    write_term(
        c, &r[0],
        wfi_term_update(WFI_BLOCK_PARAM, now->unit, param, gradient, state, c->scratch, n_norms));
    if (has_state)
        write_term(c, &r[2],
                   wfi_term_update(WFI_BLOCK_STATE, now->unit, param, gradient, state, c->scratch,
                                   n_norms));
    return WF_OK;
}

static wf_status run_host(checker *c, int32_t i) {
    const wf_program *p = c->p;
    const wfi_instruction *now = &p->instructions[i];
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_block *b = &p->blocks[now->references[k].block];
        if (read_term(c, &now->references[k]) !=
            wfi_ideal_find(c->ideal, b->kind, b->id, 0, b->micro))
            return refuse(c, i, "gives the host something else than one rank would");
        if (now->kind == WFI_REPORT) c->reported[b->micro] = true;
    }
    if (now->kind == WFI_STORE) c->stored[now->id] = true;
    return WF_OK;
}

/* Runs the instruction at place `at` of the order; *n_out: how many it stands for. */
static wf_status run_one(checker *c, int32_t at, int32_t *n_out) {
    const wf_program *p = c->p;
    int32_t i = p->order[at];
    const wfi_instruction *now = &p->instructions[i];
    const wfi_reference *r = now->references;
    *n_out = 1;
    switch (now->kind) {
    case WFI_LOAD:
        write_term(c, &r[0], wfi_term_start(WFI_LOAD, now->id, now->micro));
        break;
    case WFI_PACK:
    case WFI_FORWARD:
    case WFI_BACKWARD:
    case WFI_WEIGHT:
    case WFI_BACKWARD_WEIGHT:
        return run_segment(c, i);
    case WFI_FOLD:
        write_term(c, &r[0], wfi_term_fold(read_term(c, &r[0]), read_term(c, &r[1])));
        break;
    case WFI_CHANGE:
        *n_out = count_members(c, at);
        run_collective(c, at, *n_out);
        break;
    case WFI_TIE:
        write_term(c, &r[0], wfi_term_tie(read_term(c, &r[0]), read_term(c, &r[1]), now->id));
        break;
    case WFI_NORM:
        write_term(c, &r[1], wfi_term_norm(read_term(c, &r[0]), now->unit));
        break;
    case WFI_UPDATE:
        return run_update(c, now);
    case WFI_FOLD_STATS:
        for (int32_t k = 1; k < now->n_references; k++) c->scratch[k - 1] = read_term(c, &r[k]);
        write_term(c, &r[0],
                   wfi_term_statistics(read_term(c, &r[0]), c->scratch, now->n_references - 1));
        break;
    case WFI_SEND:
        break;
    case WFI_RECEIVE: {
        const wfi_instruction *send = partner(c, at);
        if (!send) return refuse(c, i, "has no send to receive from");
        if (send->references[0].bytes != r[0].bytes)
            return refuse(c, i, "receives another number of bytes than is sent");
        write_term(c, &r[0], read_term(c, &send->references[0]));
        break;
    }
    case WFI_REPORT:
    case WFI_STORE:
        return run_host(c, i);
    case WFI_N_INSTRUCTION_KINDS:
        break;
    }
    return WF_OK;
}

static wf_status run_all(checker *c) {
    const wf_program *p = c->p;
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].is_state)
            write_bytes(c, b, 0, p->blocks[b].bytes,
                        wfi_ideal_find(c->ideal, p->blocks[b].kind, p->blocks[b].id, 0, -1));
    for (int32_t at = 0, n = 1; at < p->n_instructions; at += n) {
        int32_t i = p->order[at];
        int32_t members = p->instructions[i].stream == WFI_STREAM_REDUCE ? count_members(c, at) : 1;
        for (int32_t m = 0; m < members; m++) {
            WF_TRY(check_access(c, p->order[at + m]));
            WF_TRY(check_reads(c, p->order[at + m]));
        }
        WF_TRY(run_one(c, at, &n));
    }
    return WF_OK;
}

static wf_status check_end(const checker *c) {
    const wf_program *p = c->p;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        if (!block->is_state) continue;
        wfi_term want = p->kind == WF_PROGRAM_TRAIN
                            ? wfi_ideal_after(c->ideal, block->kind, block->id)
                            : wfi_ideal_find(c->ideal, block->kind, block->id, 0, -1);
        size_t bytes = block->bytes;
        if (c->held[b].term != want || c->held[b].begin || !is_whole(c, b, 0, bytes))
            return wfi_fail(
                p->ctx, WF_BUG,
                "check: rank %d ends with another %s of unit %s than one rank would (an "
                "instruction is missing, doubled or out of order)",
                block->rank, wfi_block_kind_name(block->kind), p->graph->units[block->id].name);
    }
    for (int32_t b = 0; b < p->n_blocks && p->keep_gradients; b++)
        if (p->blocks[b].kind == WFI_BLOCK_GRADIENT && p->blocks[b].depth == 0 &&
            !is_whole(c, b, 0, p->code->units[p->blocks[b].id].gradient_bytes))
            return wfi_fail(p->ctx, WF_BUG, "check: the gradient of unit %s is not kept",
                            p->graph->units[p->blocks[b].id].name);
    for (int64_t m = 0; m < p->recipe.n_micro && p->graph->record >= 0; m++)
        if (!c->reported[m])
            return wfi_fail(p->ctx, WF_BUG, "check: the loss of microbatch %lld is never reported",
                            (long long)m);
    for (int32_t k = 0; k < p->graph->n_outputs && p->kind == WF_PROGRAM_FORWARD; k++)
        if (!c->stored[k])
            return wfi_fail(p->ctx, WF_BUG, "check: output '%s' is never stored",
                            p->graph->values[p->graph->outputs[k]].name);
    return WF_OK;
}

static wf_status check_all(checker *c) {
    WF_TRY(wfi_code_check(c->p->code));
    if (c->p->rest_code) WF_TRY(wfi_code_check(c->p->rest_code));
    WF_TRY(wfi_check_lists(c->p));
    WF_TRY(wfi_program_order(c->p));
    WF_TRY(wfi_check_sizes(c->p));
    WF_TRY(wfi_ideal_create(c->p, &c->ideal));
    WF_TRY(find_stretches(c));
    WF_TRY(run_all(c));
    return check_end(c);
}

wf_status wf_program_check(const wf_program *program) {
    wf_program *p = (wf_program *)program; /* order.c rewrites the same order */
    checker c = {.p = p};
    wf_context *ctx = p->ctx;
    int32_t most = p->n_ranks;
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].n_references > most) most = p->instructions[i].n_references;
    size_t n_blocks = (size_t)p->n_blocks;
    c.held = wfi_alloc(ctx, n_blocks, sizeof *c.held, "the program check");
    c.stretches = wfi_alloc(ctx, 2 * n_blocks, sizeof *c.stretches, "the program check");
    c.first = wfi_alloc(ctx, n_blocks, sizeof *c.first, "the program check");
    c.last = wfi_alloc(ctx, n_blocks, sizeof *c.last, "the program check");
    c.reported = wfi_alloc(ctx, (size_t)p->recipe.n_micro, sizeof(bool), "the program check");
    c.stored = wfi_alloc(ctx, (size_t)p->graph->n_outputs, sizeof(bool), "the program check");
    c.scratch = wfi_alloc(ctx, 2 * (size_t)most, sizeof *c.scratch, "the program check");
    bool ok = c.held && c.stretches && c.first && c.last && c.reported && c.stored && c.scratch;
    wf_status status = ok ? check_all(&c) : WF_NO_MEMORY;
    wfi_ideal_destroy(c.ideal);
    wfi_free(ctx, c.held);
    wfi_free(ctx, c.stretches);
    wfi_free(ctx, c.first);
    wfi_free(ctx, c.last);
    wfi_free(ctx, c.reported);
    wfi_free(ctx, c.stored);
    wfi_free(ctx, c.scratch);
    return status;
}
