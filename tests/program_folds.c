/* Classes of ranks under random plans: what is planned, and what the proof says of a program that
 * is broken, is the same as if all ranks were lowered and broken alike.
 *
 * label: serial
 */
#include "compile/compile.h"
#include "equal_programs.h"
#include "test.h"

typedef struct dice {
    uint64_t state;
} dice;

static int roll(dice *d, int n) {
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (int)((d->state >> 33) % (uint64_t)n);
}

/* One of so many words that are divided by bars. */
static const char *pick(dice *d, const char *const *words, int n) {
    return words[roll(d, n)];
}
#define PICK(dice, ...)                                                                            \
    pick(dice, (const char *const[]){__VA_ARGS__},                                                 \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* ---- random plans ---- */

typedef struct subject {
    char plan[200];
    wf_recipe recipe;
    bool is_lstm;
    int64_t n_layers;
} subject;

static subject draw(dice *d) {
    subject s = {.recipe = WF_RECIPE_INIT, .is_lstm = roll(d, 6) == 0, .n_layers = 1 + roll(d, 3)};
    static const int widths[] = {1, 2, 4, 4, 4};
    int tp = widths[roll(d, 5)], dp = 1 << roll(d, 3), pp = 1 + roll(d, 3), zero = roll(d, 5);
    int n = snprintf(s.plan, sizeof s.plan, "dp=%d,pp=%d,tp=%d", dp, pp, tp);
    const char *rest[] = {
        pp > 1 ? PICK(d, "", ",schedule=gpipe", ",schedule=zb1", ",schedule=zb2",
                      ",schedule=interleaved", ",schedule=zbv")
               : "",
        dp > 1 && zero ? PICK(d, ",zero=1", ",zero=2", ",zero=3") : "",
        dp > 2 && zero && roll(d, 3) == 0 ? ",shard=2" : "",
        PICK(d, "", "", ",recompute=all"),
        PICK(d, "", "", "", ",offload=state", ",offload=params", ",offload=activations"),
        PICK(d, "", "", ",bucket=1"),
        dp > 1 && !zero ? PICK(d, "", "", ",allreduce=tree", ",allreduce=pairwise") : "",
        tp > 1 ? PICK(d, "", ",sp") : ""};
    for (size_t k = 0; k < WFI_COUNT(rest); k++)
        n += snprintf(s.plan + n, sizeof s.plan - (size_t)n, "%s", rest[k]);
    s.recipe.n_lanes = dp * (1 + roll(d, 2));
    s.recipe.n_micro = s.recipe.n_lanes * (1 + roll(d, 3));
    s.recipe.batch = s.recipe.n_micro + (roll(d, 4) == 0);
    s.recipe.n_slices = tp > 1 ? tp * (1 + roll(d, 2) * (tp < 4)) : 1;
    s.recipe.clip_norm = roll(d, 2);
    s.recipe.optimizer = roll(d, 2) ? WF_ADAM : WF_SGD;
    s.recipe.kernels = WF_KERNELS_REFERENCE;
    return s;
}

static wf_status make(wf_context *ctx, const subject *s, wfi_program_use use, wf_program **p_out) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    wf_plan *plan;
    config.n_classes = 22; /* slices of a vocabulary of 22 are not all equal */
    config.n_tokens = 8;
    config.n_layers = s->n_layers;
    config.hidden = 64;
    config.n_heads = s->is_lstm ? 0 : 4;
    scoped_model model = test_find_model(ctx, s->is_lstm ? "lstm" : "gpt", &config);
    wf_status status = wf_plan_parse(ctx, s->plan, &plan);
    if (status == WF_OK) {
        status = wfi_program_create(ctx, model, &s->recipe, plan, &wfi_backend_cpu,
                                    WF_PROGRAM_TRAIN, use, NULL, p_out);
        wf_plan_destroy(plan);
    }
    return status;
}

/* ---- breaking all ranks of a class alike ---- */

typedef struct copy {
    wf_program *p;
    wfi_instruction *instructions;
    wfi_reference **references;
    wfi_block *blocks;
    int32_t *streams; /* of all lowered ranks */
} copy;

static copy copy_of(wf_program *p) {
    copy c = {.p = p};
    size_t n = (size_t)p->n_instructions, n_blocks = (size_t)p->n_blocks;
    c.instructions = test_malloc(n * sizeof *c.instructions);
    c.references = test_malloc(n * sizeof *c.references);
    c.blocks = test_malloc(n_blocks * sizeof *c.blocks);
    c.streams = test_malloc(n * sizeof *c.streams);
    memcpy(c.instructions, p->instructions, n * sizeof *c.instructions);
    memcpy(c.blocks, p->blocks, n_blocks * sizeof *c.blocks);
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)p->instructions[i].n_references * sizeof **c.references;
        c.references[i] = test_malloc(bytes + 1);
        memcpy(c.references[i], p->instructions[i].references, bytes);
    }
    int32_t *at = c.streams;
    for (int32_t k = 0; k < p->n_lowered; k++)
        for (int s = 0; s < WFI_N_STREAMS; s++) {
            const wfi_rank *r = &p->ranks[p->lowered[k]];
            memcpy(at, r->stream[s], (size_t)r->n_stream[s] * sizeof *at);
            at += r->n_stream[s];
        }
    return c;
}

static void restore(const copy *c) {
    wf_program *p = c->p;
    memcpy(p->instructions, c->instructions, (size_t)p->n_instructions * sizeof *p->instructions);
    memcpy(p->blocks, c->blocks, (size_t)p->n_blocks * sizeof *p->blocks);
    for (int32_t i = 0; i < p->n_instructions; i++)
        memcpy(p->instructions[i].references, c->references[i],
               (size_t)p->instructions[i].n_references * sizeof **c->references);
    const int32_t *at = c->streams;
    for (int32_t k = 0; k < p->n_lowered; k++)
        for (int s = 0; s < WFI_N_STREAMS; s++) {
            const wfi_rank *r = &p->ranks[p->lowered[k]];
            memcpy(r->stream[s], at, (size_t)r->n_stream[s] * sizeof *at);
            at += r->n_stream[s];
        }
}

static void end_copy(copy *c) {
    for (int32_t i = 0; i < c->p->n_instructions; i++) test_free(c->references[i]);
    test_free(c->instructions);
    test_free(c->references);
    test_free(c->blocks);
    test_free(c->streams);
}

/* What is done to an instruction, which every rank of a class has at the same place. */
typedef struct breakage {
    int kind, stream, position, a, b;
} breakage;
enum { N_BREAKAGES = 10 };

static void swap_with_next(wf_program *p, int32_t rank, const breakage *how) {
    int32_t *list = p->ranks[rank].stream[how->stream], k = how->position, i = list[k];
    if (k + 1 >= p->ranks[rank].n_stream[how->stream]) return;
    list[k] = list[k + 1];
    list[k + 1] = i;
    p->instructions[list[k]].position = k;
    p->instructions[i].position = k + 1;
}

static void drop_dependency(wfi_instruction *now, int which) {
    if (now->n_depends) now->depends += which % 2; /* the first, or the last */
    if (now->n_depends) now->n_depends--;
}

static void break_rank(wf_program *p, int32_t rank, const breakage *how) {
    int32_t i = p->ranks[rank].stream[how->stream][how->position];
    wfi_instruction *now = &p->instructions[i];
    int32_t n = now->n_references;
    wfi_reference *r = n ? &now->references[how->a % n] : NULL;
    wfi_reference *other = n ? &now->references[how->b % n] : NULL;
    if (how->kind == 0) drop_dependency(now, how->a);
    if (how->kind == 1) now->first = !now->first;
    if (how->kind == 2) swap_with_next(p, rank, how);
    if (how->kind == 3 && n) r->block = other->block;
    if (how->kind == 4 && n) p->blocks[r->block].offset += 64 * (size_t)(how->b % 3);
    if (how->kind == 5 && n) p->blocks[r->block].offset = p->blocks[other->block].offset;
    if (how->kind == 6 && n && r->bytes) r->bytes -= 4;
    if (how->kind == 7 && n) r->access ^= 1 + how->b % 2;
    if (how->kind == 8 && now->micro >= 0) now->micro ^= 1;
    if (how->kind == 9 && n) r->block = p->ranks[rank].first_block + how->b % 7;
}

/* All ranks that follow one rank of `some` are broken in `all`, too. */
static void break_alike(wf_program *all, wf_program *some, int32_t rank, const breakage *how) {
    break_rank(some, rank, how);
    for (int32_t r = 0; r < all->n_ranks; r++)
        if (some->ranks[r].like == rank) break_rank(all, r, how);
}

static breakage draw_breakage(dice *d, const wf_program *p, int32_t rank) {
    breakage how = {.kind = roll(d, N_BREAKAGES), .a = roll(d, 1000), .b = roll(d, 1000)};
    do how.stream = roll(d, WFI_N_STREAMS);
    while (!p->ranks[rank].n_stream[how.stream]);
    how.position = roll(d, p->ranks[rank].n_stream[how.stream]);
    return how;
}

/* A rank of a stage without units has none. */
static bool has_instructions(const wf_program *p, int32_t rank) {
    bool has = false;
    for (int s = 0; s < WFI_N_STREAMS; s++) has |= p->ranks[rank].n_stream[s] > 0;
    return has;
}

/* Returns how many breakages are refused. */
static int compare_broken(dice *d, const subject *s, wf_program *all, wf_program *some, int n) {
    copy of_all = copy_of(all), of_some = copy_of(some);
    int n_refused = 0;
    for (int k = 0; k < n; k++) {
        int32_t rank = some->lowered[roll(d, some->n_lowered)];
        if (!has_instructions(some, rank)) continue;
        breakage how = draw_breakage(d, some, rank);
        break_alike(all, some, rank, &how);
        wf_status a = wf_program_check(all), b = wf_program_check(some);
        if ((a == WF_OK) != (b == WF_OK))
            fail_msg("%s, lanes %d, micro %d, batch %d, slices %d, layers %d: breakage %d of %s.%d "
                     "with %d and %d on rank %d: all: %s, some: %s, %s",
                     s->plan, (int)s->recipe.n_lanes, (int)s->recipe.n_micro, (int)s->recipe.batch,
                     (int)s->recipe.n_slices, (int)s->n_layers, how.kind,
                     wfi_stream_name((wfi_stream)how.stream), how.position, how.a, how.b, rank,
                     wf_status_name(a), wf_status_name(b), wf_context_error(some->ctx));
        n_refused += a != WF_OK;
        restore(&of_all);
        restore(&of_some);
    }
    TEST_OK(all->ctx, wf_program_check(all));
    TEST_OK(some->ctx, wf_program_check(some));
    end_copy(&of_all);
    end_copy(&of_some);
    return n_refused;
}

/* ---- the test ---- */

typedef struct count {
    int n_plans, n_folded, n_slices, n_broken, n_refused;
} count;

static void compare(dice *d, const subject *s, int n_broken, count *total) {
    scoped_context ctx = test_context();
    wf_program *all, *some;
    wf_status status = make(ctx, s, WFI_USE_LOOK, &some);
    wf_dry_run a, b;
    if (status == WF_BUG) fail_msg("%s: %s", s->plan, wf_context_error(ctx));
    if (status == WF_OK) {
        TEST_OK(ctx, make(ctx, s, WFI_USE_RUN, &all));
        assert_int_equal(all->n_lowered, all->n_ranks);
        same_summaries(all, some);
        same_timelines(ctx, all, some);
        TEST_OK(ctx, wf_program_dry_run(all, &a));
        TEST_OK(ctx, wf_program_dry_run(some, &b));
        assert_memory_equal(&a, &b, sizeof a);
        total->n_plans++;
        total->n_folded += some->n_lowered < some->n_ranks;
        for (int32_t r = 0; r < some->n_ranks; r++)
            total->n_slices += wfi_mesh_at(&some->mesh, WFI_TP, r) !=
                               wfi_mesh_at(&some->mesh, WFI_TP, some->ranks[r].like);
        total->n_broken += n_broken;
        total->n_refused += compare_broken(d, s, all, some, n_broken);
        wf_program_destroy(all);
        wf_program_destroy(some);
    }
}

TEST_CASE(folded_and_full_agree) {
    int n_plans = test_is_full()    ? 1000
                  : TEST_SAMPLE > 1 ? 20
                                    : 40,
        n_broken = test_is_full() ? 20 : 6;
    dice d = {getenv("WEFT_TEST_SEED") ? strtoull(getenv("WEFT_TEST_SEED"), NULL, 10) : 1};
    count total = {0};
    for (int k = 0; k < 3 * n_plans && total.n_plans < n_plans; k++) {
        subject s = draw(&d);
        compare(&d, &s, n_broken, &total);
    }
    print_message("%d plans, %d with classes, %d ranks with other slices; %d broken, %d refused\n",
                  total.n_plans, total.n_folded, total.n_slices, total.n_broken, total.n_refused);
    assert_int_equal(total.n_plans, n_plans);
    assert_true(total.n_folded > n_plans / 4 && total.n_slices > n_plans / 2);
    assert_true(total.n_refused > total.n_broken / 4 && total.n_refused < total.n_broken);
}

/* Of three stages for two units with parameters one has no bytes, so no unit is at its peak. */
TEST(a_rank_without_bytes_has_no_peak) {
    subject s = {.plan = "pp=3,tp=2", .recipe = WF_RECIPE_INIT, .is_lstm = true, .n_layers = 1};
    s.recipe.n_slices = 2;
    for (int k = 0; k < 2; k++) {
        scoped_program p;
        int n_empty = 0;
        TEST_OK(ctx, make(ctx, &s, k ? WFI_USE_RUN : WFI_USE_LOOK, &p));
        for (int r = 0; r < wf_program_n_ranks(p); r++) {
            wf_rank_summary rank = wf_program_rank(p, r);
            assert_int_equal(rank.peak_bytes > 0, *rank.peak_unit != 0);
            n_empty += !rank.peak_bytes;
        }
        assert_int_equal(n_empty, 2);
    }
}

static subject with_rows(const char *plan) {
    subject s = {.recipe = WF_RECIPE_INIT, .n_layers = 2};
    snprintf(s.plan, sizeof s.plan, "tp=4,pp=2%s", plan);
    s.recipe.n_slices = 4;
    return s;
}

/* The slices of 22 words are of two sizes, and others of one: with and without sp, half of the
 * ranks follow. */
TEST(ranks_with_rows_follow) {
    for (int k = 0; k < 2; k++) {
        subject s = with_rows(k ? ",sp" : "");
        scoped_program p;
        TEST_OK(ctx, make(ctx, &s, WFI_USE_LOOK, &p));
        assert_int_equal(p->n_lowered, 4);
    }
}

/* The block of a value that comes from another stage has room for the rank's rows alone. */
TEST(received_rows_are_ones_own) {
    subject s = with_rows(",sp,cut=h.0.sum1");
    scoped_program p = NULL;
    int n_rows = 0;
    TEST_OK(ctx, make(ctx, &s, WFI_USE_RUN, &p));
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_reference *r = p->instructions[i].references;
        const wfi_block *b = &p->blocks[r->block];
        if (p->instructions[i].kind != WFI_RECEIVE || b->name.kind != WFI_BLOCK_VALUE) continue;
        assert_int_equal(b->bytes, r->bytes);
        n_rows += b->begin > 0;
    }
    assert_true(n_rows > 0);
}

/* Returns how often a collective that names one piece of another tensor is refused. */
static int break_pieces(wf_program *p, wfi_block_kind kind) {
    int n_broken = 0;
    for (int32_t i = 0; i < p->n_instructions; i++)
        for (int32_t k = 0; k < p->instructions[i].n_references; k++) {
            wfi_reference *r = &p->instructions[i].references[k];
            int32_t kept = r->block;
            const wfi_block *b = &p->blocks[kept];
            if (p->instructions[i].kind != WFI_CHANGE || b->name.kind != kind) continue;
            for (r->block = 0; r->block < p->n_blocks; r->block++) {
                const wfi_block *other = &p->blocks[r->block];
                if (other->name.kind != kind || other->bytes != b->bytes || other == b) continue;
                assert_int_equal(wf_program_check(p), WF_BUG);
                n_broken++;
            }
            r->block = kept;
        }
    return n_broken;
}

/* The pieces that a lowered rank sends its followers are of the same tensor as its own. */
TEST(followers_get_pieces_of_one_tensor) {
    static const struct {
        const char *plan;
        wfi_block_kind kind;
        bool is_lstm;
    } cases[] = {{"tp=2,sp", WFI_BLOCK_VALUE, false},
                 {"dp=2,zero=1", WFI_BLOCK_PARAM, true},
                 {"dp=2,zero=2", WFI_BLOCK_GRADIENT, true},
                 {"dp=2,zero=2", WFI_BLOCK_PARAM, true}};
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        subject s = {.recipe = WF_RECIPE_INIT, .is_lstm = cases[k].is_lstm, .n_layers = 2};
        scoped_program p;
        snprintf(s.plan, sizeof s.plan, "%s", cases[k].plan);
        s.recipe.n_slices = s.is_lstm ? 1 : 4;
        s.recipe.batch = s.recipe.n_micro = s.recipe.n_lanes = 2;
        TEST_OK(ctx, make(ctx, &s, WFI_USE_LOOK, &p));
        assert_int_equal(p->n_lowered, 1);
        assert_true(break_pieces(p, cases[k].kind) > 0);
        TEST_OK(ctx, wf_program_check(p));
    }
}

/* Moves a block of each rank to one half of another block, and checks the program. */
static wf_status check_overlap(wf_program *p, int32_t moved, int32_t fixed, bool is_second_half) {
    size_t kept = p->blocks[moved].offset;
    for (int32_t k = 0; k < p->n_lowered; k++) {
        wfi_block *b = &p->blocks[p->ranks[p->lowered[k]].first_block];
        b[moved].offset = b[fixed].offset + is_second_half * (b[fixed].bytes / 2);
    }
    wf_status status = wf_program_check(p);
    for (int32_t k = 0; k < p->n_lowered; k++)
        p->blocks[p->ranks[p->lowered[k]].first_block + moved].offset = kept;
    return status;
}

/* Ranks that follow access other rows of a value. A block that overlaps these alone is refused. */
TEST(rows_share_no_bytes) {
    subject s = {.plan = "tp=2,sp", .recipe = WF_RECIPE_INIT, .n_layers = 1};
    wf_program *all, *some;
    int n_refused = 0, n_accepted = 0;
    s.recipe.n_slices = 2;
    s.recipe.batch = s.recipe.n_micro = s.recipe.n_lanes = 1;
    TEST_OK(ctx, make(ctx, &s, WFI_USE_RUN, &all));
    TEST_OK(ctx, make(ctx, &s, WFI_USE_LOOK, &some));
    for (int32_t k = 0; k < 2 * some->n_blocks * some->n_blocks; k++) {
        int32_t moved = k / 2 / some->n_blocks, fixed = k / 2 % some->n_blocks;
        if (some->blocks[fixed].name.kind != WFI_BLOCK_VALUE || moved == fixed) continue;
        wf_status status = check_overlap(all, moved, fixed, k % 2);
        assert_int_equal(status, check_overlap(some, moved, fixed, k % 2));
        n_refused += status != WF_OK;
        n_accepted += status == WF_OK;
    }
    assert_true(n_refused && n_accepted);
    wf_program_destroy(all);
    wf_program_destroy(some);
}
