/* The checker proves sizes: bytes and offsets of every reference of every instruction, and of
 * every block, are changed, one after the other and on all members of a collective at once. What
 * the executor would then touch is no longer what the program says, so each is refused.
 *
 * label: serial
 */
#include "broken_program.h"
#include "compile/compile.h"
#include "program/change.h"
#include "program/clock.h"
#include "small_models.h"

#define FURTHER 64 /* bytes; a cache line */

static const struct {
    const char *plan;
    int64_t lanes, n_micro;
    wf_model_function model; /* NULL: mixed, with plain kernels */
    wf_program_kind kind;
} programs[] = {
    {"", 1, 4, NULL, WF_PROGRAM_TRAIN},
    {"", 1, 3, NULL, WF_PROGRAM_TRAIN}, /* microbatches of two sizes */
    {"schedule=zb1,pp=2", 2, 4, NULL, WF_PROGRAM_TRAIN},
    {"dp=2", 4, 4, NULL, WF_PROGRAM_TRAIN},
    {"dp=4,allreduce=pairwise,bucket=400", 4, 4, NULL, WF_PROGRAM_TRAIN},
    {"dp=2,allreduce=root", 2, 4, NULL, WF_PROGRAM_TRAIN},
    {"pp=3,schedule=gpipe", 2, 4, NULL, WF_PROGRAM_TRAIN},
    {"dp=2,pp=2", 2, 4, NULL, WF_PROGRAM_TRAIN},
    {"dataparallel=2", 4, 4, NULL, WF_PROGRAM_TRAIN},
    {"dp=2,zero=1,offload=state+params:disk", 2, 4, NULL, WF_PROGRAM_TRAIN},
    {"middle:dp=2,late:dataparallel=2", 2, 4, NULL, WF_PROGRAM_TRAIN},
    {"dp=2,pp=2", 2, 4, small_net, WF_PROGRAM_TRAIN}, /* packed weights */
    {"schedule=zb1,pp=2,recompute=all", 2, 4, NULL, WF_PROGRAM_TRAIN},
    {"dp=2,recompute=selective", 2, 4, small_net, WF_PROGRAM_TRAIN},
    {"pp=2", 1, 1, small_net, WF_PROGRAM_FORWARD},
    {"dp=2,lanes=3+1", 4, 4, NULL, WF_PROGRAM_TRAIN},
    {"dp=2,zero=2", 2, 4, NULL, WF_PROGRAM_GRADIENT},
    {"pp=2", 2, 4, small_net, WF_PROGRAM_GRADIENT},
};
#define N_PROGRAMS (sizeof programs / sizeof *programs)

static wf_program *make_one(wf_context *ctx, size_t which) {
    scoped_model model;
    wf_program *p;
    wf_recipe recipe = mixed_recipe(programs[which].lanes);
    recipe.n_micro = programs[which].n_micro;
    wf_model_function function = programs[which].model ? programs[which].model : mixed;
    if (programs[which].model) recipe.kernels = WF_KERNELS_FAST;
    model = test_model(ctx, "a model", function, NULL, 0);
    scoped_plan plan = test_plan(ctx, programs[which].plan);
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu,
                                    programs[which].kind, WFI_USE_RUN, NULL, &p));
    return p;
}

/* ---- what is tried ---- */

typedef struct attempt {
    wf_program *p;
    wfi_instruction *now;
    wfi_reference *r;
    wfi_block *b;
} attempt;

/* Bytes that are nobody's, behind all others: what is wrong then is not where the block lies. */
static void move_away(const attempt *a, size_t more) {
    wfi_rank *rank = &a->p->ranks[a->b->rank];
    a->b->offset = wfi_round_up(rank->arenas->peak_bytes, WFI_ALIGN_BYTES);
    a->b->bytes += more;
    rank->arenas->peak_bytes = a->b->offset + a->b->bytes;
}

static bool few_bytes(const attempt *a) {
    if (a->r->bytes == sizeof(float)) return false;
    a->r->bytes = sizeof(float);
    move_away(a, sizeof(float));
    return true;
}

static bool one_byte_less(const attempt *a) {
    if (!a->r->bytes) return false;
    a->r->bytes--;
    return true;
}

static bool half(const attempt *a) {
    if (!a->r->bytes) return false;
    a->r->bytes /= 2;
    return true;
}

static bool more_than_the_block(const attempt *a) {
    a->r->bytes = a->b->bytes + 1;
    return true;
}

static bool more_than_is_needed(const attempt *a) {
    move_away(a, FURTHER);
    a->r->bytes += FURTHER;
    return true;
}

static bool beyond_the_block(const attempt *a) {
    a->r->offset = a->b->bytes - a->r->bytes + FURTHER;
    return true;
}

static bool off_a_cache_line(const attempt *a) {
    move_away(a, FURTHER);
    a->r->offset = 4;
    return true;
}

static bool before_the_block(const attempt *a) {
    a->r->offset = (size_t)0 - FURTHER;
    return true;
}

static bool the_rest_of_the_block(const attempt *a) {
    if (a->r->bytes <= FURTHER) return false;
    a->r->offset = FURTHER;
    a->r->bytes -= FURTHER;
    return true;
}

/* Within the block, and nobody else's; but its other readers and writers are elsewhere in it.
 * What is in frames and staging is of one instruction alone, so there it does not matter. */
static bool elsewhere_in_the_block(const attempt *a) {
    if (a->b->name.kind == WFI_BLOCK_WORKSPACE || a->b->name.kind == WFI_BLOCK_STAGING ||
        !a->r->bytes)
        return false;
    move_away(a, FURTHER);
    a->r->offset = FURTHER;
    return true;
}

static bool the_other_access(const attempt *a) {
    a->r->access = a->r->access == WFI_READ ? WFI_WRITE : WFI_READ;
    return true;
}

static bool no_access(const attempt *a) {
    if (!a->r->access) return false;
    a->r->access = 0;
    return true;
}

static bool another_kind(const attempt *a) {
    for (int32_t b = 0; b < a->p->n_blocks; b++)
        if (a->p->blocks[b].rank == a->b->rank && a->p->blocks[b].name.kind != a->b->name.kind &&
            a->p->blocks[b].bytes >= a->r->bytes) {
            a->r->block = b;
            return true;
        }
    return false;
}

static bool no_block(const attempt *a) {
    a->r->block = a->now->position % 2 ? -1 : a->p->n_blocks;
    return true;
}

static bool a_reference_less(const attempt *a) {
    a->now->n_references--;
    return true;
}

static bool smaller_block(const attempt *a) {
    if (!a->r->bytes) return false;
    a->b->bytes = a->r->bytes - 1;
    return true;
}

static bool block_of_a_line(const attempt *a) {
    if (a->r->bytes <= FURTHER) return false;
    a->b->bytes = FURTHER;
    return true;
}

static bool block_off_a_line(const attempt *a) {
    move_away(a, FURTHER);
    a->b->offset += 4;
    return true;
}

static bool block_outside_the_arena(const attempt *a) {
    if (!a->b->bytes) return false;
    a->b->offset = a->p->ranks[a->b->rank].arenas->peak_bytes - a->b->bytes + FURTHER;
    return true;
}

static const struct {
    const char *name;
    bool (*apply)(const attempt *a);
} attempts[] = {
    {"4 bytes", few_bytes},
    {"a byte less", one_byte_less},
    {"half", half},
    {"more than the block", more_than_the_block},
    {"more than is needed", more_than_is_needed},
    {"an offset beyond the block", beyond_the_block},
    {"an offset of 4", off_a_cache_line},
    {"a negative offset", before_the_block},
    {"the rest of the block", the_rest_of_the_block},
    {"elsewhere in the block", elsewhere_in_the_block},
    {"the other access", the_other_access},
    {"no access", no_access},
    {"a block of another kind", another_kind},
    {"no block", no_block},
    {"a reference less", a_reference_less},
    {"a block a byte too small", smaller_block},
    {"a block of one line", block_of_a_line},
    {"a block 4 bytes further", block_off_a_line},
    {"a block outside the arena", block_outside_the_arena},
};
#define N_ATTEMPTS (sizeof attempts / sizeof *attempts)

static int n_tried[N_ATTEMPTS][WFI_N_INSTRUCTION_KINDS];
static int n_unnoticed[N_ATTEMPTS];

static void try_reference(wf_context *ctx, wf_program *p, size_t program, int32_t i, int32_t k,
                          size_t which) {
    wfi_instruction *now = &p->instructions[i], kept_now = *now;
    wfi_reference *r = &now->references[k], kept = *r;
    wfi_block *b = &p->blocks[r->block], kept_block = *b;
    size_t kept_peak = p->ranks[b->rank].arenas->peak_bytes;
    int32_t rank = b->rank;
    if (attempts[which].apply(&(attempt){p, now, r, b})) {
        n_tried[which][now->kind]++;
        if (wf_program_check(p) == WF_OK) {
            if (!n_unnoticed[which]++)
                print_message(
                    "plan '%s', instruction %d (%s), reference %d (%s): %s: it is right\n",
                    programs[program].plan, i, wfi_instruction_name(now), k,
                    wfi_block_kind_name(b->name.kind), attempts[which].name);
        } else {
            const char *sentence = wf_context_error(ctx);
            assert_true(strstr(sentence, "check: ") || strstr(sentence, "deadlocks"));
        }
    }
    *now = kept_now;
    *r = kept;
    *b = kept_block;
    p->ranks[rank].arenas->peak_bytes = kept_peak;
}

TEST(every_reference) {
    int n = 0, n_passed = 0;
    for (size_t program = 0; program < N_PROGRAMS; program++) {
        scoped_program p = make_one(ctx, program);
        for (size_t which = 0; which < N_ATTEMPTS; which++)
            for (int32_t i = 0; i < p->n_instructions; i++)
                for (int32_t k = 0; k < p->instructions[i].n_references; k++)
                    try_reference(ctx, p, program, i, k, which);
        TEST_OK(ctx, wf_program_check(p));
    }
    for (size_t which = 0; which < N_ATTEMPTS; which++) {
        int n_kinds = 0, n_here = 0;
        for (int kind = 0; kind < WFI_N_INSTRUCTION_KINDS; kind++) {
            n_here += n_tried[which][kind];
            n_kinds += n_tried[which][kind] > 0;
        }
        print_message("%s: %d tried on %d kinds of instructions, %d unnoticed\n",
                      attempts[which].name, n_here, n_kinds, n_unnoticed[which]);
        assert_true(n_kinds >= WFI_N_INSTRUCTION_KINDS - 3); /* a norm is too small for some */
        n += n_here;
        n_passed += n_unnoticed[which];
    }
    print_message("%d tried, %d unnoticed\n", n, n_passed);
    assert_int_equal(n_passed, 0);
}

/* ---- on all sides at once ---- */

/* Breaks every program: `try` counts what it tries and what the check does not notice. */
static void expect_noticed(const char *what, void (*try)(wf_program *p, int *n, int *n_passed)) {
    int n = 0, n_passed = 0;
    for (size_t program = 0; program < N_PROGRAMS; program++) {
        scoped_context ctx = test_context();
        scoped_program p = make_one(ctx, program);
        try(p, &n, &n_passed);
        TEST_OK(ctx, wf_program_check(p));
    }
    print_message("%s: %d tried, %d unnoticed\n", what, n, n_passed);
    assert_true(n > 100);
    assert_int_equal(n_passed, 0);
}

static bool takes_part(const wf_program *p, const wfi_instruction *now,
                       const wfi_instruction *other) {
    if (now->kind != WFI_SEND) return other == now || wfi_same_collective(p, now, other);
    return other == now ||
           (other->kind == WFI_RECEIVE && other->rank == now->peer && other->peer == now->rank &&
            other->id == now->id && other->micro == now->micro);
}

/* Those that run together with `now`. */
static int find_all(wf_program *p, const wfi_instruction *now, wfi_instruction **all) {
    int n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (takes_part(p, now, &p->instructions[i])) all[n++] = &p->instructions[i];
    assert_true(n > 1);
    return n;
}

/* On those that have a part in it. */
static void change_all(wfi_instruction **all, int n, int32_t k, size_t offset, size_t bytes) {
    for (int m = 0; m < n; m++) {
        if (!all[m]->references[k].access) continue;
        all[m]->references[k].offset = offset;
        all[m]->references[k].bytes = bytes;
    }
}

/* 52 of 52 once: an all-reduce that moves 4 bytes of 512 on all ranks. */
static void try_all_members_move_less(wf_program *p, int *n, int *n_passed) {
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        wfi_instruction *all[WFI_MAX_RANKS];
        if (now->stream != WFI_STREAM_REDUCE && now->kind != WFI_SEND) continue;
        int n_all = find_all(p, now, all);
        for (int32_t k = 0; k < now->n_references; k++) {
            size_t bytes = now->references[k].bytes;
            if (p->blocks[now->references[k].block].name.kind == WFI_BLOCK_STAGING) continue;
            const size_t less[][2] = {{0, 4}, {0, bytes / 2}, {64, bytes - 64}, {0, 0}};
            for (int which = 0; which < 4 && bytes > 64; which++, ++*n) {
                change_all(all, n_all, k, less[which][0], less[which][1]);
                *n_passed += wf_program_check(p) == WF_OK;
                change_all(all, n_all, k, 0, bytes);
            }
        }
    }
}

TEST_CASE(all_members_move_less) {
    expect_noticed("all members", try_all_members_move_less);
}

/* A block and all who use it, cut to a line. */
static void try_cut_blocks(wf_program *p, int *n, int *n_passed) {
    for (int32_t b = 0; b < p->n_blocks; b++) {
        wfi_block kept = p->blocks[b];
        wfi_reference *cut[256];
        size_t bytes[256];
        int n_cut = 0;
        if (kept.bytes <= FURTHER) continue;
        p->blocks[b].bytes = FURTHER;
        for (int32_t i = 0; i < p->n_instructions; i++)
            for (int32_t k = 0; k < p->instructions[i].n_references && n_cut < 256; k++) {
                wfi_reference *r = &p->instructions[i].references[k];
                if (r->block != b || r->bytes <= FURTHER) continue;
                cut[n_cut] = r;
                bytes[n_cut++] = r->bytes;
                r->bytes = FURTHER;
            }
        ++*n;
        *n_passed += wf_program_check(p) == WF_OK;
        for (int k = 0; k < n_cut; k++) cut[k]->bytes = bytes[k];
        p->blocks[b] = kept;
    }
}

TEST_CASE(cut_blocks) {
    expect_noticed("blocks cut", try_cut_blocks);
}

/* ---- what an instruction is about ---- */

/* The executor finds kernels, statistics and offsets by them. */
static void try_units_parts_and_microbatches(wf_program *p, int *n, int *n_passed) {
    for (int32_t i = 0; i < p->n_instructions; i++) {
        wfi_instruction *now = &p->instructions[i], kept = *now;
        bool moves = now->kind == WFI_LOAD || now->kind == WFI_SEND || now->kind == WFI_RECEIVE ||
                     wfi_is_reduction(now);
        /* What moves is named by its block: the unit is there to be read. */
        for (int32_t u = 0; u <= p->graph->n_units && !moves && kept.unit >= 0; u++) {
            if (u == kept.unit) continue;
            now->unit = u;
            ++*n;
            *n_passed += wf_program_check(p) == WF_OK;
        }
        now->unit = kept.unit;
        for (int part = 0; part <= WFI_N_PARTS && kept.segment; part++) {
            if (part == (int)kept.part) continue;
            now->part = (wfi_part)part;
            ++*n;
            *n_passed += wf_program_check(p) == WF_OK;
        }
        *now = kept;
        /* Masks are drawn for the microbatch that the instruction is of. */
        for (int64_t micro = 0; micro < p->recipe.n_micro && kept.segment; micro++) {
            if (micro == kept.micro || kept.segment->is_pack) continue;
            now->micro = micro;
            ++*n;
            *n_passed += wf_program_check(p) == WF_OK;
        }
        *now = kept;
    }
}

TEST_CASE(units_parts_and_microbatches) {
    expect_noticed("units, parts and microbatches", try_units_parts_and_microbatches);
}

/* ---- offsets that are right ---- */

/* A block that begins earlier, and all who use it find what they need elsewhere in it: nothing has
 * changed, and nothing is refused. */
TEST(offsets_are_honoured) {
    int n_moved = 0;
    for (size_t program = 0; program < N_PROGRAMS; program++) {
        scoped_program p = make_one(ctx, program);
        for (int32_t b = 0; b < p->n_blocks; b++) {
            if (p->blocks[b].is_state) continue;
            move_away(&(attempt){.p = p, .b = &p->blocks[b]}, FURTHER);
            p->blocks[b].begin = -FURTHER;
            for (int32_t i = 0; i < p->n_instructions; i++)
                for (int32_t k = 0; k < p->instructions[i].n_references; k++)
                    if (p->instructions[i].references[k].block == b)
                        p->instructions[i].references[k].offset = FURTHER;
            n_moved++;
        }
        TEST_OK(ctx, wf_program_check(p));
    }
    assert_true(n_moved > 100);
}
