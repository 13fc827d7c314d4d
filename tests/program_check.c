/* The checker refuses every broken program.
 *
 * Instructions are taken out, neighbours in a stream are swapped, dependencies are
 * dropped. Whether a break matters is decided here by brute force, over all pairs of
 * instructions, in another way than the checker works: neither by clocks nor by terms.
 *
 * label: serial
 */
#include "broken_program.h"
#include "happens_before.h"
#include "layout/layout.h"
#include "program/clock.h"

static const struct {
    const char *plan;
    int64_t lanes;
    wfi_program_use use;
    wf_program_kind kind;
} programs[] = {
    {"", 1, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"schedule=gpipe", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=2", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=2,allreduce=pairwise,bucket=400", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=4,allreduce=engine,sums=free", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"pp=2", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"pp=3,schedule=gpipe", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=2,pp=2", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=4,pp=2,schedule=gpipe", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dataparallel=2", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dataparallel=2,output=1", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"first:dataparallel=2", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"middle:dp=2,late:dataparallel=2", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"late:dp=2", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"pp=2,recompute=all", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=2,recompute=middle+late:selective", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"tp=2", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"tp=2,pp=2,recompute=all", 1, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=2,tp=2,zero=3", 2, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=4", 4, WFI_USE_LOOK, WF_PROGRAM_TRAIN}, /* one rank is lowered */
    {"dp=2,pp=2,allreduce=pairwise,bucket=400", 4, WFI_USE_LOOK, WF_PROGRAM_TRAIN},
    {"dp=2,tp=2,allreduce=pairwise", 2, WFI_USE_LOOK, WF_PROGRAM_TRAIN},
    {"dp=4,allreduce=engine,sums=free", 4, WFI_USE_LOOK, WF_PROGRAM_TRAIN},
    {"", 4, WFI_USE_RUN, WF_PROGRAM_GRADIENT},
    {"dp=2,zero=2", 2, WFI_USE_RUN, WF_PROGRAM_GRADIENT},
    {"dp=2,tp=2,zero=3", 2, WFI_USE_RUN, WF_PROGRAM_GRADIENT},
    {"dp=2,pp=2,schedule=zb1,allreduce=tree", 2, WFI_USE_RUN, WF_PROGRAM_GRADIENT},
    {"dataparallel=2", 2, WFI_USE_RUN, WF_PROGRAM_GRADIENT},
    {"dp=4", 4, WFI_USE_LOOK, WF_PROGRAM_GRADIENT},
    {"dp=2,lanes=3+1", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=3,lanes=1+2+1,allreduce=ring,sums=free", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=3,lanes=1+2+1,zero=2,bucket=400", 4, WFI_USE_RUN, WF_PROGRAM_TRAIN},
    {"dp=2,pp=2,lanes=1+3,schedule=zb1", 4, WFI_USE_LOOK, WF_PROGRAM_TRAIN},
};

static wf_program *make_one(wf_context *ctx, size_t which) {
    wf_recipe recipe = mixed_recipe(programs[which].lanes);
    return make_program_of_kind(ctx, programs[which].plan, &recipe, programs[which].kind,
                                programs[which].use);
}

/* ---- brute force ---- */

/* `swapped`: whether it matters which of the two runs first. Two workspaces may share
 * bytes then, because nothing is left in one. */
static bool conflict(const wf_program *p, const wfi_instruction *a, const wfi_instruction *b,
                     bool swapped) {
    for (int32_t i = 0; i < a->n_references; i++)
        for (int32_t j = 0; j < b->n_references; j++) {
            const wfi_reference *r = &a->references[i], *s = &b->references[j];
            const wfi_block *x = &p->blocks[r->block], *y = &p->blocks[s->block];
            if (!((r->access | s->access) & WFI_WRITE)) continue;
            if (swapped && x->name.kind == WFI_BLOCK_WORKSPACE &&
                y->name.kind == WFI_BLOCK_WORKSPACE)
                continue;
            if (x->rank == y->rank && x->offset < y->offset + y->bytes &&
                y->offset < x->offset + x->bytes)
                return true;
        }
    return false;
}

static bool has_race(const wf_program *p) {
    happens_before hb = hb_find(p);
    bool found = false;
    for (int32_t i = 0; i < p->n_instructions && !found; i++)
        for (int32_t j = 0; j < i && !found; j++)
            found = !hb_is_before(&hb, i, j) && !hb_is_before(&hb, j, i) &&
                    conflict(p, &p->instructions[i], &p->instructions[j], false);
    hb_free(&hb);
    return found;
}

/* Pairs of one rank that the checker's clocks and the search order alike, also through other ranks;
 * fails at one that they do not. */
static int64_t compare_orders(const wf_program *p, const char *plan) {
    happens_before hb = hb_find(p);
    int64_t n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++)
        for (int32_t j = 0; j < p->n_instructions; j++) {
            if (p->instructions[i].rank != p->instructions[j].rank) continue;
            if (hb_is_before(&hb, i, j) != wfi_happens_before(p, i, j))
                fail_msg("plan '%s': by the clocks instruction %d does%s happen before %d", plan, i,
                         wfi_happens_before(p, i, j) ? "" : " not", j);
            n++;
        }
    hb_free(&hb);
    return n;
}

/* ---- breaking ---- */

static breaker make_breaker(wf_context *ctx, size_t which) {
    return break_program(ctx, make_one(ctx, which));
}

TEST_CASE(every_instruction_matters) {
    for (size_t which = 0; which < sizeof programs / sizeof *programs; which++) {
        scoped_context ctx = test_context();
        scoped_breaker b = make_breaker(ctx, which);
        for (int32_t i = 0; i < b.saved.n_instructions; i++) {
            restore(b.p, &b.saved, b.instructions, b.streams);
            take_out(b.p, i, b.spare);
            if (wf_program_check(b.p) == WF_OK)
                fail_msg("plan '%s': without instruction %d (%s, rank %d) the check still passes",
                         programs[which].plan, i, wfi_instruction_name(&b.instructions[i]),
                         b.instructions[i].rank);
            assert_true(strlen(wf_context_error(ctx)) > 20);
        }
    }
}

TEST(every_order_that_matters) {
    for (size_t which = 0; which < sizeof programs / sizeof *programs; which++) {
        scoped_breaker b = make_breaker(ctx, which);
        for (int32_t r = 0; r < b.p->n_ranks; r++)
            for (int s = 0; s < WFI_N_STREAMS; s++)
                for (int32_t k = 0; k + 1 < b.p->ranks[r].n_stream[s]; k++) {
                    restore(b.p, &b.saved, b.instructions, b.streams);
                    int32_t *list = b.p->ranks[r].stream[s], first = list[k];
                    const wfi_instruction *x = &b.p->instructions[first],
                                          *y = &b.p->instructions[list[k + 1]];
                    bool matters = conflict(b.p, x, y, true);
                    list[k] = list[k + 1];
                    list[k + 1] = first;
                    renumber(b.p, r, (wfi_stream)s);
                    bool passes = wf_program_check(b.p) == WF_OK;
                    if (passes && matters)
                        fail_msg(
                            "plan '%s', rank %d: %s and %s swapped, and the check still passes",
                            programs[which].plan, r, wfi_instruction_name(x),
                            wfi_instruction_name(y));
                    if (passes) assert_false(has_race(b.p));
                    b.n_refused += !passes;
                    b.n_accepted += passes;
                }
        assert_true(b.n_refused > 10);
    }
}

TEST_CASE(every_dependency_that_matters) {
    int n_refused = 0;
    int64_t n_compared = 0;
    for (size_t which = 0; which < sizeof programs / sizeof *programs; which++) {
        scoped_context ctx = test_context();
        scoped_breaker b = make_breaker(ctx, which);
        for (int32_t i = 0; i < b.saved.n_instructions; i++)
            for (int32_t d = 0; d < b.instructions[i].n_depends; d++) {
                restore(b.p, &b.saved, b.instructions, b.streams);
                wfi_instruction *now = &b.p->instructions[i];
                int32_t n = 0;
                for (int32_t k = 0; k < now->n_depends; k++)
                    if (k != d) b.spare[n++] = now->depends[k];
                now->depends = b.spare;
                now->n_depends = n;
                bool passes = wf_program_check(b.p) == WF_OK;
                bool races = wfi_program_order(b.p) == WF_OK && has_race(b.p);
                n_compared += compare_orders(b.p, programs[which].plan);
                if (passes && races)
                    fail_msg(
                        "plan '%s': instruction %d (%s) without its dependency %d races, and the "
                        "check still passes",
                        programs[which].plan, i, wfi_instruction_name(now), d);
                if (!passes && !races)
                    fail_msg("plan '%s': instruction %d (%s): refused without a reason: %s",
                             programs[which].plan, i, wfi_instruction_name(now),
                             wf_context_error(ctx));
                n_refused += !passes;
            }
    }
    assert_true(n_refused > 100);
    print_message("%lld pairs compared\n", (long long)n_compared);
}

TEST(clocks_are_right) {
    int64_t n_compared = 0;
    for (size_t which = 0; which < sizeof programs / sizeof *programs; which++) {
        scoped_program p = make_one(ctx, which);
        n_compared += compare_orders(p, programs[which].plan);
    }
    print_message("%lld pairs compared\n", (long long)n_compared);
    assert_true(n_compared > 50000);
}

/* Whether an instruction writes bytes that it touches by another reference, too. A workspace that
 * only later microbatches need has none. */
static bool overlaps_itself(const wf_program *p) {
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        for (int32_t k = 0; k < now->n_references; k++)
            for (int32_t j = 0; j < k; j++) {
                const wfi_reference *a = &now->references[j], *b = &now->references[k];
                if (!a->bytes || !b->bytes) continue;
                size_t a_begin = p->blocks[a->block].offset + a->offset;
                size_t b_begin = p->blocks[b->block].offset + b->offset;
                if (((a->access | b->access) & WFI_WRITE) && a_begin < b_begin + b->bytes &&
                    b_begin < a_begin + a->bytes)
                    return true;
            }
    }
    return false;
}

/* Two blocks moved onto each other while both are in use. */
TEST(every_overlap_is_proved) {
    scoped_program p = make_program(ctx, "dp=2,pp=2", 2);
    int n_refused = 0;
    for (int32_t a = 0; a < p->n_blocks; a++)
        for (int32_t b = 0; b < a; b++) {
            if (p->blocks[a].rank != p->blocks[b].rank || p->blocks[a].bytes > p->blocks[b].bytes)
                continue;
            size_t kept = p->blocks[a].offset;
            p->blocks[a].offset = p->blocks[b].offset;
            bool passes = wf_program_check(p) == WF_OK;
            if (passes) assert_false(has_race(p) || overlaps_itself(p));
            n_refused += !passes;
            p->blocks[a].offset = kept;
        }
    assert_true(n_refused > 100);
    TEST_OK(ctx, wf_program_check(p));
}

/* The null device walks every program, and counts the same forward and backward
 * work under every plan (packing, once a rank, has no FLOPs), and what is done again. */
TEST(walks) {
    double flops = 0;
    for (size_t which = 0; which < sizeof programs / sizeof *programs; which++) {
        scoped_program p = make_one(ctx, which);
        wf_dry_run run;
        TEST_OK(ctx, wf_program_dry_run(p, &run));
        int64_t n = 0; /* of all ranks, lowered or not */
        for (int32_t r = 0; r < p->n_ranks; r++)
            for (int k = 0; k < WFI_N_STREAMS; k++) n += p->ranks[r].n_stream[k];
        assert_int_equal(run.n_instructions, n);
        if (which == 0) flops = run.flops;
        const char *plan = programs[which].plan;
        bool more = strstr(plan, "recompute") || strstr(plan, "tp="); /* what is no slice, on all */
        assert_true(flops > 0 && (more ? run.flops > flops : run.flops == flops));
        assert_true((run.sent_bytes > 0) == (p->n_ranks > 1));
    }
}

/* What is known of a rank's blocks is forgotten before the next rank, whose blocks have the same
 * numbers from its first on. */
TEST(ranks_depend_apart) {
    wfi_reference parts[] = {{.block = 0, .offset = 8, .bytes = 8, .access = WFI_WRITE},
                             {.block = 1, .offset = 8, .bytes = 8, .access = WFI_WRITE},
                             {.block = 1, .offset = 0, .bytes = 16, .access = WFI_READ}};
    wfi_instruction instructions[3] = {{.rank = 0}, {.rank = 1}, {.rank = 1}};
    wfi_rank ranks[2] = {{.first_block = 0, .end_block = 1}, {.first_block = 1, .end_block = 2}};
    int32_t lowered[] = {0, 1};
    wf_program p = {.ctx = ctx,
                    .ranks = ranks,
                    .lowered = lowered,
                    .n_lowered = 2,
                    .instructions = instructions,
                    .n_instructions = 3};
    wfi_pool_init(&p.pool, ctx);
    for (int k = 0; k < 3; k++) {
        instructions[k].stream = k < 2 ? WFI_STREAM_COMPUTE : WFI_STREAM_SEND;
        instructions[k].references = &parts[k];
        instructions[k].n_references = 1;
    }
    TEST_OK(ctx, wfi_program_depend(&p));
    assert_int_equal(instructions[1].n_depends, 0);
    assert_int_equal(instructions[2].n_depends, 1);
    assert_int_equal(instructions[2].depends[0], 1);
    wfi_pool_release(&p.pool);
}
