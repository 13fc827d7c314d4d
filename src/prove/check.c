/* The checker: proves that a program computes the same result as one rank.
 *
 * 0. Inside each unit, kernels stay within their operands, every value that they read has a
 *    producer and is still there, and parameters are those that the graph names (check_code.c).
 * 1. The lists are sound (check_lists.c), and running them cannot deadlock (order.c).
 * 2. Every reference has exactly the size that its instruction touches, has the type that it adds,
 *    and lies within its block (check_sizes.c).
 * 3. Any two accesses to the same bytes, one of them a write, are ordered by the dependencies. This
 *    covers races and every reuse of memory (access.c).
 * 4. Interpreted with terms instead of numbers, every instruction reads the term that the ideal
 *    step has there, and the state ends as the ideal's: each microbatch passed each unit, each
 *    gradient was summed once and in the recipe's order (over replicas in any, if the plan allows
 *    it). The host gets each output under its own name. The steps of a collective implement its
 *    meaning (check_steps.c).
 *
 * docs/architecture.md lists the assumptions.
 *
 * All of it for the ranks that are lowered; classes.c says why that is enough for those that follow
 * them.
 */
#include "prove/check.h"
#include "layout/layout.h"
#include "program/change.h"
#include "program/clock.h"
#include "program/where.h"
#include "prove/access.h"
#include "prove/prove.h"
#include "prove/term.h"

#include <stdlib.h>
#include <string.h>

#define TOLD_EVERY 100000 /* instructions */

typedef struct checker {
    wf_program *p;
    wfi_ideal *ideal;
    wfi_accesses accesses;
    bool *reported; /* [n_micro][n_each], by each rank along other axes than those of stages */
    int32_t n_each;
    bool *stored;       /* [n_outputs] */
    wfi_term *scratch;  /* large enough for any instruction's references, twice, ... */
    wfi_term *summands; /* ... and for the members of any group */
} checker;

static wf_status refuse(const checker *c, int32_t i, const char *what) {
    return wfi_check_refuse(c->p, i, what);
}

/* ---- 4. meaning ---- */

static void write_range(checker *c, int32_t block, wfi_stretches written, wfi_term term) {
    for (int32_t at = written.first; at < written.end; at++) {
        c->accesses.stretches[at].owner = block;
        c->accesses.stretches[at].term = term;
    }
}

/* The term is that of the whole, and the reference may be to a part of it, if every element is made
 * of those at the same place. */
static void write_term(checker *c, const wfi_instruction *now, int32_t k, wfi_term term) {
    const wfi_reference *r = &now->references[k];
    wfi_instruction_class class = wfi_type_of(now)->class;
    bool reads_all =
        class == WFI_CLASS_HOST || class == WFI_CLASS_SEGMENT || class == WFI_CLASS_WHOLE;
    size_t begin = wfi_reference_begin(c->p, r);
    if (begin && reads_all) term = wfi_term_mix(term, WFI_TERM_PART + begin);
    write_range(c, r->block, wfi_range_of(&c->accesses, r), term);
}

static wfi_term read_term(const checker *c, const wfi_reference *r) {
    wfi_stretches read = wfi_range_of(&c->accesses, r);
    return read.first < read.end ? c->accesses.stretches[read.first].term : 0;
}

/* Whether the block still holds the value that was written, in all of the range. */
static bool is_whole(const checker *c, int32_t block, wfi_stretches read) {
    for (int32_t at = read.first; at < read.end; at++)
        if (c->accesses.stretches[at].owner != block || !c->accesses.stretches[at].term)
            return false;
    return true;
}
static bool is_one(const checker *c, wfi_stretches read) {
    for (int32_t at = read.first; at < read.end; at++)
        if (c->accesses.stretches[at].term != c->accesses.stretches[read.first].term) return false;
    return true;
}

static wf_status check_reads(checker *c, int32_t i) {
    const wfi_instruction *now = &c->p->instructions[i];
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        bool temporary = c->p->blocks[r->block].name.kind == WFI_BLOCK_WORKSPACE;
        wfi_stretches read = wfi_range_of(&c->accesses, r);
        if (!(r->access & WFI_READ) || temporary) continue;
        if (!is_whole(c, r->block, read))
            return refuse(c, i, "reads bytes that were never written, or that were overwritten");
        if (!is_one(c, read))
            return refuse(c, i,
                          "reads slices of different values (one was changed more often than "
                          "another, or has not been gathered)");
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
        if (wfi_is_sum(slot->kind)) {
            wfi_term sum =
                wfi_term_mix(wfi_term_mix(wfi_term_start(WFI_TERM_ADD, 0, 0), in[s]), out[s]);
            write_term(c, now, s, now->first ? out[s] : sum);
            continue;
        }
        if (slot->access & WFI_SPOIL) {
            write_range(c, now->references[s].block,
                        wfi_range_of(&c->accesses, &now->references[s]), 0);
            continue;
        }
        write_term(c, now, s, out[s]);
        if (slot->kind == WFI_BLOCK_WORKSPACE) continue;
        wfi_name name = wfi_named(b->name.kind, b->name.owner, b->name.micro);
        name.part = b->name.part;
        bool is_part = wfi_gives_part(p, now->segment, slot);
        if (is_part && !wfi_is_slice_sum(p->graph, b->name.owner)) /* these rows, made by slices */
            write_range(c, now->references[s].block,
                        wfi_range_of(&c->accesses, &now->references[s]),
                        wfi_ideal_find(c->ideal, name));
        if (is_part) name = wfi_slice_summand(name, p->graph->units[now->unit].slice);
        bool is_cache = b->name.kind == WFI_BLOCK_BUFFER;
        if (out[s] != (is_cache ? wfi_ideal_after(c->ideal, b->name.kind, b->name.owner, -1)
                                : wfi_ideal_find(c->ideal, name)))
            return refuse(c, i,
                          "computes another value than one rank would (it read other values)");
    }
    return WF_OK;
}

/* Members of a collective stand side by side in the order. Returns how many. */
static int32_t count_members(const checker *c, int32_t at) {
    const wf_program *p = c->p;
    const wfi_instruction *now = &p->instructions[p->order[at]];
    int32_t n = p->groups[now->group].n_lowered, found = 0;
    while (found < n && at + found < p->n_instructions &&
           wfi_same_collective(p, now, &p->instructions[p->order[at + found]]))
        found++;
    return found;
}

/* Returns the part of a member of a sum that is not lowered: the term that one rank would have for
 * its microbatches or slices. If the rank that it follows has another term, the sum differs. */
static wfi_term part_of(const checker *c, const wfi_instruction *now, int32_t k, int32_t member) {
    const wf_program *p = c->p;
    const wfi_group *group = &p->groups[now->group];
    const wfi_block *b = &p->blocks[now->references[k].block];
    int32_t n_slices = p->graph->n_slices / p->mesh.tp;
    if (group->stage < 0) return wfi_ideal_slices(c->ideal, b->name, member * n_slices, n_slices);
    return wfi_ideal_part(c->ideal, b->name.owner, group->first + member * group->n_each,
                          group->n_each);
}

/* Returns the piece of an owner that is not lowered. The rank that it follows has its own piece of
 * that tensor, and slices of one value have one term. Each statistic is of one microbatch. An owner
 * with other slices than the rank that it follows has the term that one rank would have. */
static wfi_term piece_of(const checker *c, int32_t at, int32_t n, int32_t k) {
    const wf_program *p = c->p;
    const wfi_instruction *first = &p->instructions[p->order[at]];
    const wfi_block *b = &p->blocks[first->references[k].block];
    const wfi_group *group = &p->groups[first->group];
    int32_t owner = wfi_named_piece(p, first, k).owner;
    if (b->name.kind == WFI_BLOCK_STATS || owner < 0)
        return wfi_ideal_find(c->ideal, wfi_named(b->name.kind, b->name.owner, b->name.micro));
    if (wfi_rank_has_other_slices(p, group->ranks[owner]) && b->name.kind == WFI_BLOCK_NORM)
        return wfi_ideal_norm(c->ideal, b->name.owner);
    if (wfi_rank_has_other_slices(p, group->ranks[owner]) && b->name.kind == WFI_BLOCK_VALUE)
        return wfi_ideal_find(c->ideal, wfi_named(b->name.kind, b->name.owner, b->name.micro));
    int32_t like = wfi_group_find(group, p->ranks[group->ranks[owner]].like);
    for (int32_t m = 0; m < n; m++) {
        const wfi_instruction *member = &p->instructions[p->order[at + m]];
        if (wfi_group_find(group, member->rank) != like) continue;
        for (int32_t r = 0; r < member->n_references; r++) {
            const wfi_reference *piece = &member->references[r];
            const wfi_block *other = &p->blocks[piece->block];
            bool is_own = piece->access & WFI_READ && wfi_named_piece(p, member, r).owner == like;
            if (is_own && other->name.kind == b->name.kind && other->name.owner == b->name.owner)
                return read_term(c, piece);
        }
    }
    return 0;
}

/* The term in reference k of the n members after the collective. */
static wfi_term collective_term(const checker *c, int32_t at, int32_t n, int32_t k) {
    const wf_program *p = c->p;
    const wfi_instruction *first = &p->instructions[p->order[at]];
    const wfi_group *group = &p->groups[first->group];
    wfi_term *leaves = c->scratch, whole = 0;
    if (k == wfi_n_moved(p, first)) return wfi_term_start(WFI_CHANGE, first->unit, 0);
    if (n < group->n && !wfi_is_reduction(first)) whole = piece_of(c, at, n, k);
    for (int32_t m = 0; m < group->n && n < group->n && wfi_is_reduction(first); m++)
        leaves[m] = part_of(c, first, k, m);
    for (int32_t m = 0; m < n; m++) {
        const wfi_instruction *member = &p->instructions[p->order[at + m]];
        const wfi_reference *r = &member->references[k];
        if (wfi_is_reduction(first)) leaves[wfi_group_find(group, member->rank)] = read_term(c, r);
        if (r->access & WFI_READ) whole = read_term(c, r);
    }
    if (!wfi_is_reduction(first)) return whole;
    return first->to == WFI_REPLICATE && wfi_stage_rotates(p, group->stage)
               ? wfi_term_any_order(leaves, group->n)
               : wfi_term_tree(leaves, group->n);
}

/* Whether piece k of a sum has the summands of the piece before it, as pieces of one tensor mostly
 * have; they are in c->summands. */
static bool has_equal_summands(checker *c, int32_t at, int32_t n, int32_t k) {
    const wf_program *p = c->p;
    bool has = k > 0;
    for (int32_t m = 0; m < n; m++) {
        const wfi_reference *r = &p->instructions[p->order[at + m]].references[k];
        wfi_term term = read_term(c, r);
        has = has && r[0].block == r[-1].block && term == c->summands[m];
        c->summands[m] = term;
    }
    return has && wfi_is_reduction(&p->instructions[p->order[at]]);
}

/* Returns how many references from k on are the pieces of one tensor, each once; 0: they are not.
 * Pieces that only members without instructions read or write are compared with nothing, so none
 * may be missing. */
static int32_t count_pieces(const wf_program *p, const wfi_instruction *now, int32_t k) {
    const wfi_reference *r = &now->references[k], *end = now->references + wfi_n_moved(p, now);
    wfi_name name = p->blocks[r->block].name;
    int32_t block = r->block, n = 0, n_pieces = wfi_count_pieces(p, now, name);
    for (int32_t i = 0; i < n_pieces; i++) {
        wfi_extent piece = wfi_find_piece(p, now, name, i).extent;
        if (!piece.bytes) continue;
        bool is_there = r < end && r->block == block && wfi_reference_begin(p, r) == piece.offset;
        if (!is_there) return 0;
        n++;
        r++;
    }
    return n;
}

static wf_status run_collective(checker *c, int32_t at, int32_t n) {
    const wf_program *p = c->p;
    WF_TRY(wfi_check_steps(p, p->order + at, n));
    const wfi_instruction *first = &p->instructions[p->order[at]];
    wfi_term whole = 0;
    bool is_compared = n == p->groups[first->group].n;
    for (int32_t k = 0, next = 0; k < first->n_references; k++) {
        if (k == next && !is_compared && k < wfi_n_moved(p, first)) {
            next += count_pieces(p, first, k);
            if (next == k)
                return refuse(c, p->order[at], "does not move all pieces of a tensor together");
        }
        if (!has_equal_summands(c, at, n, k)) whole = collective_term(c, at, n, k);
        for (int32_t m = 0; m < n; m++) {
            const wfi_instruction *member = &p->instructions[p->order[at + m]];
            if (member->references[k].access & WFI_WRITE) write_term(c, member, k, whole);
        }
    }
    return WF_OK;
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

static wf_status run_local(checker *c, const wfi_instruction *now) {
    int32_t n = 0, id = wfi_type_of(now)->id == WFI_ID_TIED ? now->id : 0;
    for (int32_t k = 0; k < now->n_references; k++)
        if (now->references[k].access & WFI_READ)
            c->scratch[n++] = read_term(c, &now->references[k]);
    for (int32_t k = 0; k < now->n_references; k++)
        if (now->references[k].access & WFI_WRITE)
            write_term(c, now, k, wfi_term_made(now->kind, id, k, c->scratch, n));
    return WF_OK;
}

/* By the rank and those that follow it. */
static void mark_reported(checker *c, int32_t rank, int64_t micro) {
    for (int32_t r = 0; r < c->p->n_ranks; r++)
        if (c->p->ranks[r].like == rank)
            c->reported[wfi_rank_micro(c->p, r, micro) * c->n_each +
                        wfi_mesh_group(&c->p->mesh, WFI_STAGE_AXES, r)] = true;
}

static wf_status run_host(checker *c, int32_t i) {
    const wf_program *p = c->p;
    const wfi_instruction *now = &p->instructions[i];
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_block *b = &p->blocks[now->references[k].block];
        wfi_term ideal =
            wfi_ideal_find(c->ideal, wfi_named(b->name.kind, b->name.owner, b->name.micro));
        if (now->references[k].access & WFI_WRITE)
            write_term(c, now, k, wfi_term_start((int)now->kind, now->id, now->micro));
        else if (!ideal || read_term(c, &now->references[k]) != ideal)
            return refuse(c, i, "gives the host another value than one rank would");
        if (now->kind == WFI_REPORT) mark_reported(c, now->rank, b->name.micro);
    }
    if (now->kind == WFI_STORE) c->stored[now->id] = true;
    return WF_OK;
}

/* Sends stand for nothing by themselves. */
static wf_status run_transfer(checker *c, int32_t at) {
    const wf_program *p = c->p;
    int32_t i = p->order[at];
    const wfi_instruction *now = &p->instructions[i], *send = partner(c, at);
    const wfi_reference *to = &now->references[0], *from = send ? &send->references[0] : NULL;
    if (now->kind == WFI_SEND) return WF_OK;
    if (!send) return refuse(c, i, "has no send to receive from");
    if (from->bytes != to->bytes || wfi_reference_begin(p, from) != wfi_reference_begin(p, to))
        return refuse(c, i, "receives other bytes than are sent");
    write_term(c, now, 0, read_term(c, from));
    return WF_OK;
}

/* Runs the instruction at place `at` of the order: n instructions, if it is a collective. */
static wf_status run_one(checker *c, int32_t at, int32_t n) {
    int32_t i = c->p->order[at];
    const wfi_instruction *now = &c->p->instructions[i];
    switch (wfi_type_of(now)->class) {
    case WFI_CLASS_HOST:
        return run_host(c, i);
    case WFI_CLASS_SEGMENT:
        return run_segment(c, i);
    case WFI_CLASS_ELEMENTWISE:
    case WFI_CLASS_WHOLE:
        return run_local(c, now);
    case WFI_CLASS_COPY:
        write_term(c, now, 1, read_term(c, &now->references[0]));
        return WF_OK;
    case WFI_CLASS_TRANSFER:
        return run_transfer(c, at);
    case WFI_CLASS_CHANGE:
        break;
    }
    return run_collective(c, at, n);
}

static wf_status run_all(checker *c) {
    const wf_program *p = c->p;
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].is_state)
            write_range(c, b, c->accesses.ranges[b], wfi_ideal_find(c->ideal, p->blocks[b].name));
    for (int32_t at = 0, told = 0, n; at < p->n_instructions; at += n) {
        if (at >= told) WFI_PROGRESS(p->ctx, "proving instruction %d of %d", at, p->n_instructions);
        if (at >= told) told += TOLD_EVERY;
        n = p->instructions[p->order[at]].kind == WFI_CHANGE ? count_members(c, at) : 1;
        for (int32_t m = 0; m < n; m++) {
            WF_TRY(wfi_accesses_check(&c->accesses, p->order[at + m]));
            WF_TRY(check_reads(c, p->order[at + m]));
        }
        WF_TRY(run_one(c, at, n));
    }
    return WF_OK;
}

/* Whether the rank keeps its part of a unit's gradient, summed as one rank would, in that block. */
static bool keeps_gradient(const checker *c, int32_t b) {
    const wfi_block *block = &c->p->blocks[b];
    wfi_extent kept = wfi_kept_extent(c->p, WFI_BLOCK_GRADIENT, block->name.owner, block->rank);
    wfi_stretches all =
        wfi_range_of(&c->accesses,
                     &(wfi_reference){b, kept.offset - (size_t)block->begin, kept.bytes, WFI_READ});
    wfi_term sum = wfi_ideal_after(c->ideal, WFI_BLOCK_GRADIENT, block->name.owner, -1);
    return is_whole(c, b, all) && is_one(c, all) &&
           (all.first == all.end || c->accesses.stretches[all.first].term == sum);
}

/* Whether a block of state equals one rank's after the step. Parts that a step does not change keep
 * their term. */
static bool ends_well(const checker *c, int32_t b) {
    const wfi_block *block = &c->p->blocks[b];
    wfi_term before = wfi_ideal_find(c->ideal, block->name), want;
    size_t changed_bytes = wfi_changed_part(c->p, block).bytes;
    wfi_stretches all = c->accesses.ranges[b];
    bool ends = is_whole(c, b, all);
    for (int32_t at = all.first; at < all.end && ends; at++) {
        bool is_changed = c->accesses.stretches[at].begin < block->offset + changed_bytes;
        want = is_changed ? wfi_ideal_after(c->ideal, block->name.kind, block->name.owner,
                                            block->name.micro)
                          : before;
        ends = c->accesses.stretches[at].term == want;
    }
    return ends;
}

static wf_status check_end(const checker *c) {
    const wf_program *p = c->p;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        if (block->is_state && !ends_well(c, b))
            return wfi_fail(
                p->ctx, WF_BUG,
                "check: rank %d ends with another %s of unit %s than one rank would (an "
                "instruction is missing, doubled or out of order)",
                block->rank, wfi_block_kind_name(block->name.kind),
                p->graph->units[block->name.owner].name);
    }
    for (int32_t b = 0; b < p->n_blocks && wfi_keeps_gradients(p); b++)
        if (wfi_is_summed(p, &p->blocks[b]) && !keeps_gradient(c, b))
            return wfi_fail(p->ctx, WF_BUG,
                            "check: the gradient of unit %s is not kept on rank %d as one rank "
                            "sums it",
                            p->graph->units[p->blocks[b].name.owner].name, p->blocks[b].rank);
    int64_t n_reports = p->graph->record < 0 ? 0 : p->recipe.n_micro * c->n_each;
    for (int64_t k = 0; k < n_reports; k++)
        if (!c->reported[k])
            return wfi_fail(p->ctx, WF_BUG,
                            "check: a rank does not report the loss of microbatch %lld",
                            (long long)(k / c->n_each));
    for (int32_t k = 0; k < p->graph->n_outputs && wfi_properties_of(p->kind).stores; k++)
        if (!c->stored[k])
            return wfi_fail(p->ctx, WF_BUG, "check: output '%s' is never stored",
                            p->graph->values[p->graph->outputs[k]].name);
    return WF_OK;
}

static wf_status check_all(checker *c, bool is_ordered) {
    for (int32_t v = 0; v < c->p->n_variants; v++) WF_TRY(wfi_code_check(c->p->variants[v].code));
    WF_TRY(wfi_check_lists(c->p));
    if (!is_ordered) WF_TRY(wfi_program_order(c->p));
    WF_TRY(wfi_check_sizes(c->p));
    WF_TRY(wfi_ideal_create(c->p, &c->ideal));
    WF_TRY(wfi_accesses_find(c->p, &c->accesses));
    WF_TRY(run_all(c));
    return check_end(c);
}

static wf_status check(wf_program *p, bool is_ordered) {
    checker c = {.p = p, .n_each = wfi_mesh_n_groups(&p->mesh, WFI_STAGE_AXES)};
    wf_context *ctx = p->ctx;
    int32_t most = p->n_ranks;
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].n_references > most) most = p->instructions[i].n_references;
    c.reported = wfi_alloc(ctx, (size_t)p->recipe.n_micro * (size_t)c.n_each, sizeof *c.reported,
                           "the program check");
    c.stored = wfi_alloc(ctx, (size_t)p->graph->n_outputs, sizeof(bool), "the program check");
    c.scratch = wfi_alloc(ctx, 3 * (size_t)most, sizeof *c.scratch, "the program check");
    if (c.scratch) c.summands = c.scratch + 2 * (size_t)most;
    bool ok = c.reported && c.stored && c.scratch;
    wf_status status = ok ? check_all(&c, is_ordered) : WF_NO_MEMORY;
    wfi_ideal_destroy(c.ideal);
    wfi_accesses_release(&c.accesses);
    wfi_free(ctx, c.reported);
    wfi_free(ctx, c.stored);
    wfi_free(ctx, c.scratch);
    return status;
}

wf_status wf_program_check(const wf_program *p) {
    return check((wf_program *)wfi_emitted_of(p), false); /* order.c rewrites the same order */
}

wf_status wfi_program_check_ordered(wf_program *p) {
    return check(p, true);
}
