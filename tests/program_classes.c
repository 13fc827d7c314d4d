/* Ranks that follow others: what is said of them is what is said if all are lowered.
 *
 * label: serial
 */
#include "broken_program.h"
#include "compile/compile.h"
#include "equal_programs.h"
#include "program/map.h"
#include "program/stage.h"
#include "program/where.h"
#include "sharded_plan.h"
#include "small_models.h"
#include "wide_net.h"

typedef struct shape {
    wf_model_function function;
    int64_t batch, n_micro, n_lanes;
} shape;

static double clip_norm = 1;

static wf_program *make(wf_context *ctx, const shape *s, const char *plan_text,
                        wfi_program_use use) {
    wf_program *p;
    wf_recipe recipe = mixed_recipe(s->n_lanes);
    recipe.batch = s->batch;
    recipe.n_micro = s->n_micro;
    recipe.clip_norm = clip_norm;
    recipe.n_slices = strstr(plan_text, "tp=") ? atoi(strstr(plan_text, "tp=") + 3) : 1;
    wf_model *model = test_model(ctx, "small", s->function, NULL, 0);
    wf_plan *plan = test_plan(ctx, plan_text);
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                    use, NULL, &p));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return p;
}

/* Returns how many ranks are lowered where not all are. */
static int compare(const shape *s, const char *plan) {
    scoped_context ctx = test_context();
    scoped_program all = make(ctx, s, plan, WFI_USE_RUN);
    scoped_program some = make(ctx, s, plan, WFI_USE_LOOK);
    wf_dry_run a, b;
    assert_int_equal(all->n_lowered, all->n_ranks);
    TEST_OK(ctx, wf_program_check(some)); /* again: nothing of it has changed */
    same_summaries(all, some);
    same_timelines(ctx, all, some);
    TEST_OK(ctx, wf_program_dry_run(all, &a));
    TEST_OK(ctx, wf_program_dry_run(some, &b));
    assert_memory_equal(&a, &b, sizeof a);
    int n = some->n_lowered;
    return n;
}

TEST_CASE(same_figures) {
    static const char *const schedules[] = {"naive", "gpipe",       "1f1b", "zb1",
                                            "zb2",   "interleaved", "zbv",  "auto"};
    static const char *const sums[] = {"root", "tree", "pairwise", "direct", "ring,sums=free"};
    const shape shapes[] = {{mixed, 32, 16, 8}, {small_net, 32, 16, 16}, {plain_net, 16, 8, 8}};
    for (size_t k = 0; k < WFI_COUNT(schedules); k++)
        for (size_t a = 0; a < WFI_COUNT(sums); a++)
            for (int pp = 1; pp <= 2; pp++) {
                char plan[120];
                bool is_deep = wfi_schedule_find(schedules[k])->n_chunks > 1;
                if (pp > 1 && is_deep && (k + a) % 3 != 1) continue; /* that one has four units */
                snprintf(plan, sizeof plan, "dp=%d,pp=%d,schedule=%s,allreduce=%s,bucket=1",
                         8 >> k % 3, pp, pp > 1 ? schedules[k] : "1f1b", sums[a]);
                (void)compare(&shapes[(k + a) % 3], plan);
            }
}

/* Slices that are equal make replicas equal; the last ones, which have less, are lowered, too. */
TEST_CASE(slices) {
    const shape shapes[] = {{wide_net, 32, 16, 8}, {mixed, 32, 16, 16}, {small_net, 32, 16, 8}};
    for (int zero = 1; zero <= 3; zero++)
        for (size_t k = 0; k < WFI_COUNT(shapes); k++)
            for (int dp = 2; dp <= 8; dp *= 2)
                for (int pp = 1; pp <= 2; pp++) {
                    char plan[64];
                    snprintf(plan, sizeof plan, "dp=%d,pp=%d,zero=%d", dp, pp, zero);
                    int n = compare(&shapes[k], plan);
                    if (k == 0 && dp == 8) assert_true(n < dp * pp);
                    if (dp == 2) continue;
                    snprintf(plan, sizeof plan, "dp=%d,pp=%d,zero=%d,shard=2", dp, pp, zero);
                    n = compare(&shapes[k], plan);
                    if (k == 0) assert_true(n <= 2 * pp);
                }
}

/* Of 17 blocks the last of four replicas has fewer than the others. */
static void with_small_units(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(64)), y = wf_input(g, "y", WF_F32, WF_SHAPE(4));
    wf_tensor h = wf_cut(wf_linear(wf_linear(x, "wide", 4096), "down", 4), "small0");
    h = wf_cut(wf_linear(h, "fc0", 4), "small1");
    h = wf_cut(wf_linear(h, "fc1", 4), "small2");
    wf_loss(wf_mse(wf_linear(h, "fc2", 4), y));
}

/* Units of equal parameters. All but the first have a norm: frozen, trained or with statistics. */
static void with_equal_units(wf_graph *g, const void *config) {
    wf_tensor h = wf_input(g, "x", WF_F32, WF_SHAPE(64)),
              y = wf_input(g, "y", WF_F32, WF_SHAPE(64));
    for (int k = 0; k < 5; k++) {
        char unit[8], norm[8];
        snprintf(unit, sizeof unit, "u%d", k);
        snprintf(norm, sizeof norm, "n%d", k);
        h = wf_linear(wf_cut(h, unit), unit, 64);
        if (k) h = k == 4 ? wf_batch_norm(h, norm) : wf_layer_norm(h, norm);
    }
    wf_loss(wf_mse(h, y));
}

/* Units of one size have equal parts on all ranks. */
static void check_sizes(const char *plan_text, const char *freeze, int n_sizes) {
    static const wfi_block_kind kinds[] = {WFI_BLOCK_PARAM, WFI_BLOCK_STATE, WFI_BLOCK_BUFFER};
    scoped_context ctx = test_context();
    wf_recipe recipe = TEST_RECIPE(.batch = 32, .n_micro = 16, .n_lanes = 16, .optimizer = WF_ADAM);
    int n = 0;
    wf_program *p;
    strcpy(recipe.freeze.text, freeze);
    scoped_model model = test_model(ctx, "small", with_equal_units, NULL, 0);
    scoped_plan plan = test_plan(ctx, plan_text);
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                    WFI_USE_LOOK, NULL, &p));
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        int32_t first = p->size_like[u];
        n += first == u;
        assert_int_equal(p->size_like[first], first);
        for (size_t k = 0; k < WFI_COUNT(kinds) * (size_t)p->mesh.dp; k++) {
            wfi_block_kind kind = kinds[k % WFI_COUNT(kinds)];
            int32_t dp = (int32_t)(k / WFI_COUNT(kinds));
            assert_int_equal(wfi_kept_extent(p, kind, u, wfi_unit_rank_of(p, dp, u)).bytes,
                             wfi_kept_extent(p, kind, first, wfi_unit_rank_of(p, dp, first)).bytes);
        }
    }
    assert_int_equal(n, n_sizes);
    wf_program_destroy(p);
}

TEST_CASE(sizes) {
    check_sizes("dp=4,zero=1", "n1", 4);
    check_sizes("dp=16,zero=1", "n1", 5);
}

/* Where small units are a small share, the first replica has their state: by turns each replica
 * would be of a kind of its own. */
TEST_CASE(small_units_are_on_one) {
    const shape s = {with_small_units, 16, 8, 8};
    assert_int_equal(compare(&s, "dp=4,zero=1"), 3);
}

/* How many are lowered: as few as there are kinds. */
TEST_CASE(few_are_lowered) {
    const shape even = {mixed, 32, 16, 8}, uneven = {mixed, 35, 16, 8};
    assert_int_equal(compare(&even, "dp=8,pp=2"), 2);
    assert_int_equal(compare(&even, "dp=4,pp=3"), 3);
    /* 3 of 16 microbatches are larger: both of the first replica's, one of the second's. */
    assert_int_equal(compare(&uneven, "dp=8"), 3);
    assert_int_equal(compare(&uneven, "dp=4,pp=2"), 2 * 2);
    /* Replicas that differ are lowered each. */
    assert_int_equal(compare(&even, "dataparallel=4"), 4);
    assert_int_equal(compare(&even, "middle:dp=2,late:dataparallel=4"), 4);
    /* Replicas are equal, but the first rank loads for all. */
    assert_int_equal(compare(&even, "first:dp=4,middle:dp=4,late:dp=4,loss:dp=4"), 4);
}

/* The last rank along `tp` has less of a vocabulary that is not a multiple of the ranks, and
 * measures what all ranks have. The others are equal. */
TEST(the_last_one_measures) {
    wf_recipe recipe = mixed_recipe(1);
    scoped_program p;
    recipe.n_slices = 4;
    scoped_model model =
        test_find_model(ctx, "gpt2-tiny", &TEST_MODEL(.n_classes = 1001, .n_tokens = 16));
    scoped_plan plan = test_plan(ctx, "tp=4");
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    assert_int_equal(p->n_lowered, 2);
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].kind == WFI_NORM && !wfi_unit_is_divided(p, p->instructions[i].unit))
            assert_int_equal(p->instructions[i].rank, 3);
}

/* A multiple of 8 cache lines, but not of 8 blocks of a norm. */
static void with_even_unit(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(64));
    wf_loss(wf_mse(wf_linear(x, "fc", 4096 + 128), wf_input(g, "y", WF_F32, WF_SHAPE(4096 + 128))));
}

/* Parts that clipping measures are whole blocks of a norm, and so less equal than others. */
TEST_CASE(parts_are_equal_without_clipping) {
    const shape s = {with_even_unit, 16, 8, 8};
    assert_int_equal(compare(&s, "dp=8,zero=1"), 2);
    clip_norm = 0;
    assert_int_equal(compare(&s, "dp=8,zero=1"), 1);
    clip_norm = 1;
}

/* To compute a unit again needs the first norm alone: half of its parameters. */
static void with_norms(wf_graph *g, const void *config) {
    wf_tensor h = wf_input(g, "x", WF_F32, WF_SHAPE(4096)),
              y = wf_input(g, "y", WF_F32, WF_SHAPE(4096));
    for (int k = 0; k < 6; k++) {
        char first[8], second[8];
        snprintf(first, sizeof first, "a%d", k);
        snprintf(second, sizeof second, "b%d", k);
        h = wf_layer_norm(wf_layer_norm(wf_cut(h, first), first), second);
    }
    wf_loss(wf_mse(h, y));
}

/* A rank that keeps all that a segment reads does not wait for others' slices. */
TEST_CASE(ranks_wait_alike) {
    const shape s = {with_norms, 16, 8, 8};
    clip_norm = 0;
    assert_int_equal(compare(&s, "dp=2,zero=3,recompute=selective"), 2);
    assert_int_equal(compare(&s, "dp=2,zero=3,recompute=a3:selective"), 2);
    assert_int_equal(compare(&s, "dp=4,zero=3,recompute=selective"), 1);
    assert_int_equal(compare(&s, "dp=4,zero=3,shard=2,recompute=selective"), 2);
    assert_int_equal(compare(&s, "dp=2,zero=3"), 1);
    assert_int_equal(compare(&s, "dp=2,zero=1,recompute=selective"), 1);
    clip_norm = 1;
}

/* Followers stand beside, between and behind those that they follow. */
TEST_CASE(axes_in_any_order) {
    static const char *const orders[] = {"tp+dp+pp", "dp+tp+pp", "pp+dp", "dp+pp"};
    static const char *const keys[] = {"", ",zero=1", ",zero=3,shard=2", ",schedule=zb1"};
    const shape s = {mixed, 32, 16, 8}, slices = {plain_net, 16, 8, 8};
    for (size_t k = 0; k < WFI_COUNT(orders); k++) {
        char plan[80];
        snprintf(plan, sizeof plan, "dp=4,pp=2,axes=%s%s", orders[k], keys[k]);
        int n = compare(&s, plan);
        snprintf(plan, sizeof plan, "dp=4,pp=2%s", keys[k]);
        assert_int_equal(n, compare(&s, plan));
        snprintf(plan, sizeof plan, "dp=4,tp=2,axes=%s%s", orders[k], k < 2 ? keys[k] : "");
        n = compare(&slices, plan);
        if (k == 0) assert_int_equal(n, 2);
        snprintf(plan, sizeof plan, "dp=2,tp=4,pp=2,axes=%s%s", orders[k], k < 2 ? keys[k] : "");
        n = compare(&slices, plan);
        if (k == 0) assert_int_equal(n, 4);
    }
    (void)compare(&slices, "dp=2,tp=4,allreduce=tree,bucket=1");
}

/* In a forward run all but one replica are idle: one stands for all that keep as much for steps. */
TEST_CASE(the_idle_are_one) {
    static const char *const plans[] = {"dp=8,pp=2", "dp=8,pp=2,axes=dp+pp",
                                        "dp=8,pp=2,zero=3,shard=2,axes=dp+pp"};
    const shape s = {mixed, 32, 16, 8}, slices = {plain_net, 16, 8, 8};
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        scoped_context ctx = test_context();
        scoped_program p = make(ctx, &s, plans[k], WFI_USE_RUN);
        scoped_program test;
        TEST_OK(ctx, wf_program_create_like(p, WF_PROGRAM_FORWARD, 2, &test));
        assert_int_equal(test->n_ranks, 16);
        assert_int_equal(test->n_lowered, k == 2 ? 8 : 4);
        for (int r = 0; r < 16; r++) {
            bool works = wf_program_rank(test, r).n_instructions > 0;
            assert_int_equal(works, wfi_mesh_at(&test->mesh, WFI_DP, r) < (k == 2 ? 2 : 1));
            assert_int_equal(wf_program_rank(test, r).state_bytes,
                             wf_program_rank(p, r).state_bytes);
        }
    }
    scoped_context ctx = test_context();
    scoped_program p = make(ctx, &slices, "tp=4,pp=2", WFI_USE_LOOK);
    scoped_program test;
    TEST_OK(ctx, wf_program_create_like(p, WF_PROGRAM_FORWARD, 2, &test));
    assert_int_equal(test->n_lowered, 8);
}

/* Not what a strategy is called, but what its row says. */
TEST(rows_decide) {
    wfi_strategy row = wfi_strategy_dp;
    row.name = "another";
    for (int is_divided = 0; is_divided < 2; is_divided++) {
        wf_recipe recipe = mixed_recipe(4);
        scoped_program p;
        scoped_model model = test_model(ctx, "small", mixed, NULL, 0);
        if (is_divided) row.state = WFI_SHARD;
        scoped_plan plan = sharded_plan(ctx, "dp=4", &row);
        TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
        assert_int_equal(p->n_lowered, is_divided ? 4 : 1);
    }
}

/* ---- broken ones ---- */

/* The first of that kind that has something to do with gradients of several replicas. */
static wfi_instruction *find(wf_program *p, wfi_instruction_kind kind) {
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].kind == kind) return &p->instructions[i];
    fail_msg("there is no instruction of kind %d", (int)kind);
    return NULL;
}

/* What the lowered rank does wrong, all that follow it do: none of their sums is the recipe's. */
TEST(wrong_parts_are_refused) {
    const shape s = {mixed, 32, 16, 4};
    scoped_program p = make(ctx, &s, "dp=4", WFI_USE_LOOK);
    assert_int_equal(p->n_lowered, 1);
    wfi_instruction *weight = find(p, WFI_BACKWARD_WEIGHT);
    while (weight->first || weight->kind != WFI_BACKWARD_WEIGHT) weight++;
    weight->first = true; /* a lane's later microbatch assigns: the earlier ones are lost */
    assert_int_equal(wf_program_check(p), WF_BUG);
    weight->first = false;
    TEST_OK(ctx, wf_program_check(p));
    /* A report that is missing is missing for all. */
    wfi_instruction *report = find(p, WFI_REPORT);
    p->ranks[report->rank].n_stream[WFI_STREAM_COPY]--;
    assert_int_equal(wf_program_check(p), WF_BUG);
    p->ranks[report->rank].n_stream[WFI_STREAM_COPY]++;
    TEST_OK(ctx, wf_program_check(p));
}

/* A fold that adds another accumulator to itself would be found by no other rank. */
TEST(wrong_folds_are_refused) {
    const shape s = {mixed, 32, 16, 16};
    scoped_program p = make(ctx, &s, "dp=2", WFI_USE_LOOK);
    wfi_instruction *fold = find(p, WFI_FOLD);
    int32_t from = fold->references[1].block;
    fold->references[1].block = fold->references[0].block;
    assert_int_equal(wf_program_check(p), WF_BUG);
    fold->references[1].block = from;
    TEST_OK(ctx, wf_program_check(p));
}

/* A slice that uses other bytes than the slice at its place of another rank is of another class. */
TEST(slots_are_compared) {
    const shape s = {plain_net, 16, 8, 8};
    scoped_program p = make(ctx, &s, "tp=2", WFI_USE_LOOK);
    bool is_equal;
    int n = 0;
    TEST_OK(ctx, wfi_program_has_equal_slices(p, 0, 1, &is_equal));
    assert_true(is_equal);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        wfi_segment *segment = p->code->units[u].part[WFI_PART_F];
        for (int32_t k = 0; p->graph->units[u].slice && segment && k < segment->n_slots; k++)
            for (int field = 0; field < 4; field++, n++) {
                wfi_slot *slot = &segment->slots[k], kept = *slot;
                if (field == 0) slot->begin += 64;
                if (field == 1) slot->bytes += 64;
                if (field == 2) slot->access ^= WFI_WRITE;
                if (field == 3) slot->workspace_bytes[1] += 64;
                TEST_OK(ctx, wfi_program_has_equal_slices(p, 0, 1, &is_equal));
                if (is_equal) fail_msg("unit %d, slot %d: field %d is not compared", u, k, field);
                *slot = kept;
            }
    }
    assert_true(n > 8);
}

/* Small tensors lie with the first of many replicas, and the others follow one. Those that follow
 * have one piece of each tensor between two lowered ones. */
TEST_CASE(many_replicas) {
    const shape of_many = {wide_net, 96, 96, 96};
    assert_in_range(compare(&of_many, "dp=96,zero=1"), 2, 6);
    scoped_context ctx = test_context();
    scoped_program p = make(ctx, &of_many, "dp=96,zero=3", WFI_USE_LOOK);
    int32_t n_gathers = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (now->kind != WFI_CHANGE) continue;
        if (p->blocks[now->references[0].block].name.kind != WFI_BLOCK_PARAM) continue;
        assert_in_range(now->n_references, 1, 2 * p->n_lowered + 1);
        n_gathers++;
    }
    assert_true(n_gathers > 0);
}
