/* Programs of units that are spread from rank 0 over others: what lives where, what is moved, and
 * what the proof says where a collective is missing on all of its ranks.
 *
 * label: serial
 */
#include "broken_program.h"

#define N_MICRO 4 /* of two samples, see mixed_recipe */

static int count_blocks(const wf_program *p, int32_t rank, wfi_block_kind kind, bool is_state) {
    int n = 0;
    for (int32_t b = 0; b < p->n_blocks; b++)
        n += p->blocks[b].rank == rank && p->blocks[b].name.kind == kind &&
             p->blocks[b].is_state == is_state;
    return n;
}

static int count_kind(const wf_program *p, int32_t rank, wfi_instruction_kind kind) {
    int n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++)
        n += p->instructions[i].rank == rank && p->instructions[i].kind == kind;
    return n;
}

static int count_changes(const wf_program *p, int32_t rank, const char *name) {
    int n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++)
        n += p->instructions[i].rank == rank &&
             !strcmp(wfi_instruction_name(&p->instructions[i]), name);
    return n;
}

static size_t sum_units(const wf_program *p) {
    size_t bytes = 0;
    for (int32_t u = 0; u < p->graph->n_units; u++) bytes += p->graph->units[u].param_bytes;
    return bytes;
}

/* ---- what lives where ---- */

TEST(the_loss_is_a_unit) {
    scoped_program one = make_program(ctx, "", 4);
    scoped_program p = make_program(ctx, "dataparallel=4", 4);
    const wf_graph *g = p->graph;
    assert_int_equal(one->graph->loss_unit, -1);
    assert_int_equal(g->n_units, one->graph->n_units + 1);
    assert_int_equal(g->n_nodes, one->graph->n_nodes);
    assert_int_equal(g->loss_unit, g->n_units - 1);
    assert_string_equal(g->units[g->loss_unit].name, "loss");
    assert_int_equal(g->units[g->loss_unit].param_bytes, 0);
    for (int32_t n = 0; n < g->n_nodes; n++) {
        bool moved = g->nodes[n].unit != one->graph->nodes[n].unit;
        assert_true(!moved || g->nodes[n].unit == g->loss_unit);
        assert_ptr_equal(g->nodes[n].op, one->graph->nodes[n].op);
    }
}

/* The root has all state and the loss, the others copies and their microbatches. */
TEST(the_root_holds_everything) {
    scoped_program p = make_program(ctx, "dataparallel=4", 4);
    assert_int_equal(p->n_stages, 2);
    for (int32_t r = 0; r < 4; r++) {
        bool is_root = r == 0;
        wf_rank_summary s = wf_program_rank(p, r);
        assert_int_equal(count_blocks(p, r, WFI_BLOCK_PARAM, true), is_root ? 3 : 0);
        assert_int_equal(count_blocks(p, r, WFI_BLOCK_PARAM, false), is_root ? 0 : 3);
        assert_int_equal(count_blocks(p, r, WFI_BLOCK_STATE, true), is_root ? 3 : 0);
        assert_int_equal(count_blocks(p, r, WFI_BLOCK_BUFFER, true), is_root ? 1 : 0);
        assert_int_equal(s.state_bytes > 0, is_root);
        assert_int_equal(s.optimizer_bytes, is_root ? sum_units(p) : 0);
        assert_int_equal(s.copied_bytes, is_root ? 0 : sum_units(p));
        assert_int_equal(s.n_units, is_root ? 4 : 3);
        assert_int_equal(count_kind(p, r, WFI_LOAD), is_root ? 2 * N_MICRO : 0);
        assert_int_equal(count_kind(p, r, WFI_UPDATE), is_root ? 3 : 0);
        assert_int_equal(count_kind(p, r, WFI_FOLD_STATS), is_root ? 1 : 0);
        assert_int_equal(count_kind(p, r, WFI_REPORT), is_root ? 1 : 0);
        assert_int_equal(count_kind(p, r, WFI_FORWARD), is_root ? 3 + N_MICRO : 3);
        assert_int_equal(count_changes(p, r, "broadcast"), 3);
        if (!is_root) assert_true(s.peak_bytes < wf_program_rank(p, 0).peak_bytes);
    }
}

/* With dp each replica of the unit has all that belongs to it, and nothing else. */
TEST(replicas_hold_their_own) {
    scoped_program p = make_program(ctx, "middle:dp=2", 2);
    assert_int_equal(p->n_stages, 3); /* what is in front, the unit, what is behind */
    for (int s = 0; s < 3; s++) assert_int_equal(p->stages[s].n_replicas, 1 + (s == 1));
    size_t bytes = p->graph->units[1].param_bytes;
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(count_blocks(p, r, WFI_BLOCK_PARAM, true), r ? 1 : 3);
        assert_int_equal(count_blocks(p, r, WFI_BLOCK_PARAM, false), 0);
        assert_int_equal(count_blocks(p, r, WFI_BLOCK_BUFFER, true), 1);
        assert_int_equal(count_changes(p, r, "all_reduce"), 1);
        assert_int_equal(count_kind(p, r, WFI_UPDATE), r ? 1 : 3);
        assert_int_equal(count_kind(p, r, WFI_FORWARD), r ? 2 : 4 * N_MICRO - 2);
    }
    assert_int_equal(wf_program_rank(p, 1).optimizer_bytes, bytes);
}

/* Outputs are gathered there, and the labels with them; all else stays with the root. */
TEST(output_moves_the_loss) {
    for (int output = 0; output < 4; output++) {
        char plan[40];
        snprintf(plan, sizeof plan, "dataparallel=4,output=%d", output);
        scoped_program p = make_program(ctx, plan, 4);
        for (int32_t r = 0; r < 4; r++) {
            assert_int_equal(count_kind(p, r, WFI_REPORT), r == output);
            assert_int_equal(count_kind(p, r, WFI_FORWARD), r == output ? 3 + N_MICRO : 3);
            assert_int_equal(count_kind(p, r, WFI_UPDATE), r == 0 ? 3 : 0);
            assert_int_equal(count_kind(p, r, WFI_LOAD), r == 0 ? 2 * N_MICRO : 0);
        }
    }
}

/* Fewer microbatches than devices: the rest has nothing to do, and needs no memory. */
TEST(some_ranks_idle) {
    scoped_program p = make_program(ctx, "dataparallel=7", 4);
    assert_int_equal(p->n_ranks, 7);
    assert_int_equal(p->n_replicas, N_MICRO);
    for (int r = 0; r < 7; r++) {
        wf_rank_summary s = wf_program_rank(p, r);
        assert_int_equal(s.n_instructions > 0, r < N_MICRO);
        assert_int_equal(s.peak_bytes > 0, r < N_MICRO);
        assert_int_equal(s.sent_bytes > 0, r < N_MICRO);
    }
}

/* ---- what is moved ---- */

TEST(traffic_to_the_byte) {
    static const int64_t n_devices[] = {2, 4};
    for (int k = 0; k < 2; k++) {
        char plan[40];
        int64_t n = n_devices[k], each = N_MICRO / n, n_far = N_MICRO - each;
        snprintf(plan, sizeof plan, "dataparallel=%d,bucket=400", (int)n);
        scoped_program p = make_program(ctx, plan, 4);
        size_t params = sum_units(p), gradients = sum_units(p);
        size_t x = 2 * 8 * sizeof(float), logits = 2 * 5 * sizeof(float), stats = 0;
        for (int32_t u = 0; u < p->graph->n_units; u++)
            stats += p->code->units[u].bytes[WFI_BLOCK_STATS];
        size_t out = (size_t)(n - 1) * params + (size_t)n_far * (x + logits);
        size_t in = (size_t)(n - 1) * gradients + (size_t)n_far * (logits + stats);
        assert_true(stats > 0);
        assert_int_equal(wf_program_rank(p, 0).sent_bytes, out);
        assert_int_equal(wf_program_rank(p, 0).received_bytes, in);
        for (int r = 1; r < n; r++) {
            wf_rank_summary s = wf_program_rank(p, r);
            assert_int_equal(s.sent_bytes, in / (size_t)(n - 1));
            assert_int_equal(s.received_bytes, out / (size_t)(n - 1));
        }
    }
}

TEST(text_names_what_moves) {
    static const char *const words[] = {"broadcast first", "reduce late+middle+first",
                                        "send first input=x to=r1 m=2", "gather middle stats",
                                        "# rank 0: stage 0, replica 0, stage 1, replica 0,"};
    scoped_program p = make_program(ctx, "dataparallel=2", 2);
    char *text;
    TEST_OK(ctx, wf_program_text(p, &text));
    for (size_t k = 0; k < WFI_COUNT(words); k++)
        if (!strstr(text, words[k])) fail_msg("the text does not say '%s'", words[k]);
    wf_text_free(ctx, text);
}

/* ---- the order of transfers ---- */

/* What a makes first is read last, and by units on other stages. */
static void skips(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor early = wf_relu(wf_linear(wf_cut(x, "a"), "a1", 8));
    wf_tensor h = wf_cut(wf_relu(wf_linear(early, "a2", 8)), "b");
    h = wf_cut(wf_relu(wf_linear(wf_add(h, x), "b", 8)), "c");
    wf_tensor late = wf_relu(wf_linear(wf_add(h, early), "c", 8));
    h = wf_cut(wf_linear(wf_add(late, x), "c2", 8), "d");
    wf_loss(wf_cross_entropy(wf_linear(wf_add(wf_add(h, early), late), "d", 5), y));
}

/* Any spread of the four units over 1, 2 or 4 ranks, alike or not: nobody waits for ever. */
TEST(no_spread_deadlocks) {
    static const char *const kinds[] = {"dp", "dataparallel"};
    wf_recipe recipe = mixed_recipe(4);
    recipe.n_micro = recipe.batch = 8;
    scoped_model model = test_model(ctx, "skips", skips, NULL, 0);
    for (int way = 0; way < 3 * 3 * 3 * 3; way++) {
        scoped_program p;
        wfi_text text;
        wfi_text_init(&text, ctx);
        for (int u = 0, rest = way; u < 4; u++, rest /= 3)
            wfi_text_add(&text, "%s%c:%s=%d", u ? "," : "", "abcd"[u], kinds[(way + u / 2) % 2],
                         1 << rest % 3);
        scoped_plan plan = test_plan(ctx, text.data);
        wf_status status = wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p);
        if (status != WF_OK) fail_msg("plan '%s': %s", text.data, wf_context_error(ctx));
        wfi_free(ctx, text.data);
    }
}

/* ---- the proof ---- */

/* Takes a collective from all of its ranks: nobody waits, but what it brings is missing. */
static void take_out_group(breaker *b, const char *name, wfi_block_kind kind, int32_t unit) {
    for (int32_t i = b->p->n_instructions - 1; i >= 0; i--)
        if (!strcmp(wfi_instruction_name(&b->p->instructions[i]), name) &&
            b->p->blocks[b->p->instructions[i].references[0].block].name.kind == kind &&
            b->p->instructions[i].unit == unit) {
            take_out(b->p, i, b->spare);
            for (int32_t k = 0; k < b->p->n_instructions; k++)
                b->spare += b->p->instructions[k].n_depends;
        }
}

TEST_CASE(collectives_are_needed) {
    static const struct {
        const char *plan;
        const char *name;
        wfi_block_kind kind;
        int32_t unit;
        const char *says;
    } cases[] = {
        {"dataparallel=2", "broadcast", WFI_BLOCK_PARAM, 1, "were never written"},
        {"dataparallel=4,bucket=1", "broadcast", WFI_BLOCK_PARAM, 0, "were never written"},
        {"dataparallel=2,bucket=1", "reduce", WFI_BLOCK_GRADIENT, 1, "than one rank would"},
        {"dataparallel=4,bucket=1", "reduce", WFI_BLOCK_GRADIENT, 2, "than one rank would"},
        {"middle:dataparallel=2", "broadcast", WFI_BLOCK_PARAM, 1, "were never written"},
        {"middle:dp=2", "all_reduce", WFI_BLOCK_GRADIENT, 1, "check: "},
        {"middle:dp=2", "all_gather", WFI_BLOCK_NORM, -1, "were never written"},
        {"middle:dp=2", "all_gather", WFI_BLOCK_STATS, 1, "were never written"},
    };
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        scoped_context ctx = test_context();
        scoped_breaker b = break_program(ctx, make_program(ctx, cases[k].plan, 4));
        int32_t *spare = b.spare, n_before = b.p->n_instructions;
        b.spare = test_malloc(64 * (size_t)n_before * sizeof *b.spare);
        int32_t *room = b.spare;
        take_out_group(&b, cases[k].name, cases[k].kind, cases[k].unit);
        assert_true(b.p->n_instructions < n_before);
        TEST_REFUSED(ctx, wf_program_check(b.p), WF_BUG, cases[k].says);
        b.spare = spare;
        test_free(room);
    }
}

/* ---- refused ---- */

static void refuse_of(wf_model_function function, const char *text, int64_t lanes,
                      const char *says) {
    wf_context *ctx = test_context();
    wf_program *p;
    wf_recipe recipe = mixed_recipe(lanes);
    recipe.n_micro = 12;
    recipe.batch = 24;
    wf_model *model = test_model(ctx, "a model", function, NULL, 0);
    wf_plan *plan = test_plan(ctx, text);
    TEST_REFUSED(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p),
                 WF_INVALID_ARG, says);
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    test_context_end(ctx);
}

static void refuse(const char *text, int64_t lanes, const char *says) {
    refuse_of(mixed, text, lanes, says);
}

static void blocks(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(8)), y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_cut(wf_linear(x, "a", 8), "block.0");
    h = wf_cut(wf_linear(h, "b", 8), "block.1");
    wf_loss(wf_cross_entropy(wf_linear(h, "c", 5), y));
}

TEST_CASE(what_does_not_go) {
    refuse("midle:dp=2", 2, "no unit is called 'midle' (position 1); the units are first, middle,");
    refuse("late:dp=2,mid:dp=2", 2, "'mid' (position 11)");
    refuse_of(blocks, "block.1:dp=2,block:dp=4", 4,
              "unit block.1 is named twice, as 'block.1' and as 'block' (position 14)");
    refuse("dataparallel=3", 4,
           "dataparallel=3 needs 3 lanes, and this recipe has 4; --lanes 3 is another");
    refuse("middle:dp=2,late:dp=3", 6, "suits both late:dp=3 and the plan");
    refuse("middle:dataparallel=2", 1,
           "middle:dataparallel=2 needs 2 lanes, and this recipe has 1; --lanes 2 is another");
}
