/* A strategy that lives in tests: optimizer state and gradients are divided over replicas. Its
 * programs are compiled and proved like all others; what goes wrong with a slice is refused.
 *
 * label: serial
 */
#include "broken_program.h"
#include "program/change.h"
#include "sharded_plan.h"
#include "test_program.h"

/* Units of several blocks of the norm, a tied weight across units, batch norm. */
static void wide(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(64));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(64, 64), (wf_init){WF_INIT_NORMAL, 0.1f});
    wf_tensor none = {g, -1};
    wf_tensor h = wf_linear(wf_relu(wf_linear_with(x, tied, none)), "first", 64);
    h = wf_cut(wf_add(h, x), "middle");
    h = wf_relu(wf_batch_norm(wf_linear(h, "net1", 64), "bn"));
    h = wf_cut(h, "late");
    h = wf_linear_with(wf_add(h, x), tied, none);
    wf_loss(wf_cross_entropy(wf_linear(h, "head", 80), y));
}

/* A weight that four units use, the last two of them often on one stage. */
static void shared_by_many(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(64));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(64, 64), (wf_init){WF_INIT_NORMAL, 0.1f});
    wf_tensor none = {g, -1};
    wf_tensor h = wf_cut(wf_relu(wf_linear_with(x, tied, none)), "second");
    h = wf_cut(wf_relu(wf_linear_with(h, tied, none)), "third");
    h = wf_cut(wf_relu(wf_linear_with(h, tied, none)), "fourth");
    h = wf_linear_with(h, tied, none);
    wf_loss(wf_cross_entropy(wf_linear(h, "head", 8), y));
}

static wf_program *make_sharded(wf_context *ctx, wf_model_function function, const char *text,
                                const wfi_strategy *strategy, double clip_norm) {
    wf_program *p;
    wf_recipe recipe = mixed_recipe(4);
    recipe.clip_norm = clip_norm;
    recipe.optimizer = clip_norm > 0 ? WF_ADAMW : WF_SGD;
    wf_model *model = test_model(ctx, "wide", function, NULL, 0);
    wf_plan *plan = sharded_plan(ctx, text, strategy);
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return p;
}

TEST(proved_and_simulated) {
    static const char *const plans[] = {"dp=2",
                                        "dp=4",
                                        "dp=2,pp=2",
                                        "dp=4,pp=3,schedule=gpipe",
                                        "dp=4,bucket=1",
                                        "dp=2,pp=2,schedule=zb1",
                                        "dp=4,overlap=off"};
    for (size_t k = 0; k < WFI_COUNT(plans); k++)
        for (int way = 0; way < 16; way++) {
            scoped_program p = make_sharded(ctx, way & 1 ? mixed : wide, plans[k],
                                            sharded[way >> 2], way & 2 ? 1 : 0);
            scoped_timeline t;
            TEST_OK(ctx, wf_program_simulate(p, NULL, &t));
            size_t sent = 0, received = 0, kept = 0, whole = 0;
            for (int r = 0; r < p->n_ranks; r++) {
                wf_rank_summary s = wf_program_rank(p, r);
                sent += s.sent_bytes;
                received += s.received_bytes;
                kept += s.optimizer_bytes;
            }
            for (int32_t u = 0; u < p->graph->n_units; u++)
                whole += p->graph->units[u].param_bytes *
                         (size_t)wfi_recipe_n_states(wf_program_recipe(p));
            assert_int_equal(sent, received);
            assert_int_equal(kept, whole); /* over all ranks: once */
        }
}

/* Gradients of several uses are added in order of units, and a stage is sent the weight once. */
TEST(one_weight_of_many_units) {
    static const char *const plans[] = {"",
                                        "pp=2",
                                        "pp=3",
                                        "dp=2,pp=2",
                                        "pp=2,schedule=zb1",
                                        "pp=3,schedule=zb2", /* an owner's lane waits for others */
                                        "schedule=breadth",
                                        "dp=2,pp=2,schedule=gpipe"};
    for (size_t k = 0; k < WFI_COUNT(plans); k++)
        for (size_t s = 0; s <= WFI_COUNT(sharded); s++) {
            const wfi_strategy *strategy = s ? sharded[s - 1] : &wfi_strategy_dp;
            scoped_program p = make_sharded(ctx, shared_by_many, plans[k], strategy, 1);
            int n_sent[8] = {0};
            for (int32_t i = 0; i < p->n_instructions; i++) {
                const wfi_instruction *now = &p->instructions[i];
                bool is_weight = now->kind == WFI_SEND &&
                                 p->blocks[now->references[0].block].name.kind == WFI_BLOCK_PARAM;
                if (is_weight) assert_int_equal(n_sent[now->peer]++, 0);
            }
        }
}

/* ---- what may happen to a slice ---- */

/* Rank r's instruction of that name for the unit: the last. */
static int32_t find(const wf_program *p, int32_t rank, const char *name, int32_t unit) {
    for (int32_t i = p->n_instructions - 1; i >= 0; i--)
        if (p->instructions[i].rank == rank && p->instructions[i].unit == unit &&
            !strcmp(wfi_instruction_name(&p->instructions[i]), name))
            return i;
    fail_msg("rank %d has no %s of unit %d", rank, name, unit);
    return -1;
}

static void update_is_missing(breaker *b) {
    take_out(b->p, find(b->p, 1, "update", 2), b->spare); /* others wait for the first one */
}

/* In place of another unit's: that one is missing, this one is done twice. */
static void updated_twice(breaker *b) {
    const wfi_instruction *once = &b->p->instructions[find(b->p, 1, "update", 1)];
    wfi_instruction *twice = &b->p->instructions[find(b->p, 1, "update", 0)];
    twice->unit = once->unit;
    twice->references = once->references;
}

static void from_another_slice(breaker *b) {
    wfi_instruction *update = &b->p->instructions[find(b->p, 1, "update", 0)];
    memcpy(b->spare_references, update->references,
           (size_t)update->n_references * sizeof *update->references);
    b->spare_references[1].offset = 0;
    update->references = b->spare_references;
}

/* The other rank's slice, with its gradient. */
static void another_slice(breaker *b) {
    wfi_instruction *update = &b->p->instructions[find(b->p, 1, "update", 0)];
    from_another_slice(b);
    update->references[0].offset = 0;
}

static bool is_there(const wfi_instruction *now, int32_t i) {
    for (int32_t d = 0; d < now->n_depends; d++)
        if (now->depends[d] == i) return true;
    return false;
}

/* The gather no longer waits for the update; if `turned`, the update waits for it. */
static void gather_early(breaker *b, bool turned) {
    for (int32_t r = 0; r < b->p->n_ranks; r++) {
        int32_t i = find(b->p, r, "all_gather", 0), u = find(b->p, r, "update", 0), n = 0;
        wfi_instruction *gather = &b->p->instructions[i], *update = &b->p->instructions[u];
        int32_t *spare = b->spare + 8 * r;
        assert_true(is_there(gather, u));
        for (int32_t d = 0; d < gather->n_depends; d++)
            if (gather->depends[d] != u) spare[n++] = gather->depends[d];
        gather->depends = spare;
        gather->n_depends = n;
        if (!turned) continue;
        spare += n;
        memcpy(spare, update->depends, (size_t)update->n_depends * sizeof *spare);
        spare[update->n_depends] = i;
        update->depends = spare;
        update->n_depends++;
    }
}
static void gathered_beside_its_update(breaker *b) {
    gather_early(b, false);
}
static void gathered_before_its_update(breaker *b) {
    gather_early(b, true);
}

/* The last piece, on all members. */
static void lose_piece(breaker *b, const char *name, int32_t unit) {
    for (int32_t i = 0; i < b->p->n_instructions; i++) {
        wfi_instruction *now = &b->p->instructions[i];
        now->n_references -= now->unit == unit && !strcmp(wfi_instruction_name(now), name);
    }
}
static void a_slice_is_not_gathered(breaker *b) {
    lose_piece(b, "all_gather", 0);
}
static void a_slice_is_not_summed(breaker *b) {
    lose_piece(b, "reduce_scatter", 0);
}
static void a_slice_is_not_measured(breaker *b) {
    lose_piece(b, "all_gather", -1);
}

/* Of the same ranks; but what they sum is no norm. */
static void group_of_norms(breaker *b) {
    for (int32_t i = 0; i < b->p->n_instructions; i++)
        if (wfi_is_reduction(&b->p->instructions[i])) b->p->instructions[i].group = b->p->n_stages;
}

static void copy_is_missing(breaker *b) {
    int32_t i = 0; /* rank 1's first one */
    while (b->p->instructions[i].rank != 1 || b->p->instructions[i].kind != WFI_COPY) i++;
    take_out(b->p, i, b->spare);
}

/* Rank 1's first instruction of that kind. */
static wfi_instruction *find_segment(const wf_program *p, wfi_instruction_kind kind, int32_t unit) {
    for (int32_t i = 0; i < p->n_instructions; i++) {
        wfi_instruction *now = &p->instructions[i];
        if (now->rank == 1 && now->kind == kind && now->unit == unit) return now;
    }
    fail_msg("rank 1 has no such instruction of unit %d", unit);
    return NULL;
}

/* The PARAM that a segment reads. */
static wfi_block *find_gathered(const wf_program *p, const wfi_instruction *now) {
    for (int32_t k = 0; k < now->n_references; k++) {
        wfi_block *b = &p->blocks[now->references[k].block];
        if (b->name.kind == WFI_BLOCK_PARAM && b->name.owner == now->unit) return b;
    }
    fail_msg("it reads no parameters of its own");
    return NULL;
}

static void used_beside_its_gather(breaker *b) {
    find_segment(b->p, WFI_FORWARD, 1)->n_depends = 0;
}

/* The next unit's parameters are gathered into the place of those that are still used. */
static void freed_too_early(breaker *b) {
    const wfi_block *in_use = find_gathered(b->p, find_segment(b->p, WFI_FORWARD, 0));
    find_gathered(b->p, find_segment(b->p, WFI_FORWARD, 1))->offset = in_use->offset;
}

/* Backward takes what was gathered for forward. */
static void used_after_it_was_freed(breaker *b) {
    wfi_instruction *backward = find_segment(b->p, WFI_BACKWARD_WEIGHT, 1);
    wfi_block *old = find_gathered(b->p, find_segment(b->p, WFI_FORWARD, 1));
    wfi_block *own = find_gathered(b->p, backward);
    old->offset = own->offset; /* so it has been overwritten, by the same values */
    for (int32_t k = 0; k < backward->n_references; k++)
        b->spare_references[k] = backward->references[k];
    for (int32_t k = 0; k < backward->n_references; k++)
        if (&b->p->blocks[backward->references[k].block] == own)
            b->spare_references[k].block = (int32_t)(old - b->p->blocks);
    backward->references = b->spare_references;
}

TEST_CASE(what_is_wrong_with_a_slice) {
    static const struct {
        void (*apply)(breaker *b);
        const char *plan, *says;
        bool all; /* parameters are divided, too */
    } cases[] = {
        {update_is_missing, "dp=2", "than one rank would", false},
        {updated_twice, "dp=2", "than one rank would", false},
        {from_another_slice, "dp=2", "of a grad", false},
        {another_slice, "dp=2", "it needs those from", false},
        {gathered_beside_its_update, "dp=2", "a dependency is missing", false},
        {gathered_before_its_update, "dp=2", "ends with another param of unit first", false},
        {a_slice_is_not_gathered, "dp=2", "ends with another param of unit first", false},
        {a_slice_is_not_gathered, "dp=2,pp=2", "reads slices of different values", false},
        {a_slice_is_not_summed, "dp=2,bucket=1", "reads slices of different values", false},
        {a_slice_is_not_measured, "dp=2", "were never written", false},
        {group_of_norms, "dp=2", "of a grad", false},
        {copy_is_missing, "dp=2", "all_gather first param: reads bytes that were never", true},
        {a_slice_is_not_gathered, "dp=2", "forward first m=0: reads bytes that were never", true},
        {update_is_missing, "dp=2", "than one rank would", true},
        {used_beside_its_gather, "dp=2", "forward middle m=2: touches bytes", true},
        {freed_too_early, "dp=2", "a dependency is missing", true},
        {used_after_it_was_freed, "dp=2", "were never written, or that were overwritten", true},
    };
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        scoped_context ctx = test_context();
        const wfi_strategy *strategy = cases[k].all ? &wfi_strategy_zero3 : &wfi_strategy_zero1;
        scoped_breaker b = break_program(ctx, make_sharded(ctx, wide, cases[k].plan, strategy, 1));
        cases[k].apply(&b);
        TEST_REFUSED(ctx, wf_program_check(b.p), WF_BUG, cases[k].says);
    }
}

TEST(tied_units_are_placed_alike) {
    scoped_program p;
    scoped_program forward;
    wf_recipe recipe = mixed_recipe(4);
    scoped_model model = test_model(ctx, "wide", wide, NULL, 0);
    scoped_plan plan = test_plan(ctx, "first:dp=2,late:dp=2");
    plan->rules[0].strategy = &wfi_strategy_zero1;
    TEST_REFUSED(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p),
                 WF_INVALID_ARG, "units first and late share a weight");
    plan->rules[1].strategy = &wfi_strategy_zero1;
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    /* A forward run has one microbatch, and finds its state where training has it. */
    TEST_OK(ctx, wf_program_create_like(p, WF_PROGRAM_FORWARD, 3, &forward));
}

/* A forward run on one rank makes groups for no parts of others. */
TEST(forward_runs_have_few_groups) {
    const char *const plans[] = {"dp=5,zero=1,schedule=breadth", "dp=6,zero=2,shard=3",
                                 "dp=5,zero=3"};
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        scoped_program p;
        scoped_program forward;
        int64_t n_lanes = k == 1 ? 6 : 5;
        wf_recipe recipe = mixed_recipe(n_lanes);
        recipe.n_micro = n_lanes;
        recipe.batch = 4 * n_lanes;
        scoped_model model = test_model(ctx, "wide", wide, NULL, 0);
        p = test_program(ctx, model, &recipe, plans[k]);
        TEST_OK(ctx, wf_program_create_like(p, WF_PROGRAM_FORWARD, 3, &forward));
        for (int32_t g = 0; g < forward->n_groups; g++)
            for (int32_t r = 0; r < forward->groups[g].n; r++)
                assert_in_range(forward->groups[g].ranks[r], 0, forward->n_ranks - 1);
    }
}

/* Every row there can be is refused with a sentence, or its program is proved. */
TEST_CASE(rows) {
    int n_made = 0;
    for (int k = 0; k < WFI_N_PLACEMENTS << 6; k++) {
        scoped_context ctx = test_context();
        scoped_program p = NULL;
        wf_recipe recipe = mixed_recipe(4);
        const wfi_strategy row = {.name = "test",
                                  .parameter = (wfi_placement)(k & 3),
                                  .gradient = (wfi_placement)(k >> 2 & 3),
                                  .state = (wfi_placement)(k >> 4 & 3),
                                  .buffer = (wfi_placement)(k >> 6)};
        scoped_model model = test_model(ctx, "mixed", mixed, NULL, 0);
        scoped_plan plan = sharded_plan(ctx, "dp=2", &row);
        wf_status status = wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p);
        bool is_refused =
            status == WF_UNSUPPORTED &&
            strstr(wf_context_error(ctx), "strategy test: a replica updates the part");
        if (status && !is_refused)
            fail_msg("parameter %d, gradient %d, state %d, buffer %d: %s", (int)row.parameter,
                     (int)row.gradient, (int)row.state, (int)row.buffer, wf_context_error(ctx));
        n_made += status == WF_OK;
    }
    assert_int_equal(n_made, 18);
}
