/* Steps whose steady phase repeats: the memory plan does not depend on how often it does, except
 * for the records of losses. Each program is proved when it is made. WEFT_TEST_FULL=1 takes all
 * plans; otherwise each test takes every third one,
 * and every seventh under a sanitizer.
 *
 * label: serial
 */
#include "compile/compile.h"
#include "equal_programs.h"

/* Two of any period up to 4, or of 6 or 12 microbatches. */
#define N_MORE 24

static wf_program *make(wf_context *ctx, const char *text, int64_t n_lane, wfi_program_use use) {
    wf_recipe recipe = TEST_RECIPE(.n_lanes = 4);
    wf_program *p;
    recipe.n_micro = recipe.batch = 4 * n_lane;
    recipe.n_slices = 2;
    recipe.optimizer = WF_ADAM;
    recipe.kernels = WF_KERNELS_REFERENCE;
    scoped_model model = test_find_model(
        ctx, "gpt",
        &TEST_MODEL(.n_classes = 22, .n_tokens = 8, .n_layers = 3, .hidden = 64, .n_heads = 4));
    scoped_plan plan = test_plan(ctx, text);
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                    use, NULL, &p));
    return p;
}

/* Of the records of one more microbatch of each lane. */
static size_t record_bytes(const wf_program *p, int32_t rank) {
    int32_t k = p->ranks[rank].first_block;
    while (k < p->ranks[rank].end_block && p->blocks[k].name.kind != WFI_BLOCK_RECORD) k++;
    if (k == p->ranks[rank].end_block) return 0;
    return (size_t)(p->recipe.n_lanes / p->mesh.dp) *
           wfi_round_up(p->blocks[k].bytes, WFI_ALIGN_BYTES);
}

static bool repeats(wf_context *ctx, const char *text) {
    scoped_program p = make(ctx, text, 48, WFI_USE_LOOK_SHORT);
    bool does = p->shorter != NULL;
    return does;
}

static const char *const plans[] = {"",
                                    "dp=2",
                                    "pp=2",
                                    "pp=4",
                                    "pp=3,dp=2,zero=1",
                                    "dp=2,zero=3",
                                    "pp=2,dp=2,zero=3",
                                    "pp=2,tp=2",
                                    "pp=2,tp=2,sp,recompute=all",
                                    "pp=2,schedule=interleaved",
                                    "pp=2,schedule=zb1",
                                    "pp=2,schedule=zb2",
                                    "pp=2,schedule=zbv",
                                    "pp=3,schedule=vmin",
                                    "pp=2,offload=activations",
                                    "offload=state",
                                    "offload=activations+params",
                                    "pp=2,dp=2,offload=params,bucket=1"};

static size_t stride(void) {
    const char *full = getenv("WEFT_TEST_FULL");
    return full && !strcmp(full, "1") ? 1 : TEST_SAMPLE > 1 ? 7 : 3;
}

TEST(peak_of_any_length) {
    for (size_t k = 1; k < WFI_COUNT(plans); k += stride()) {
        scoped_program some = make(ctx, plans[k], 48, WFI_USE_LOOK);
        scoped_program all = make(ctx, plans[k], 48, WFI_USE_RUN);
        scoped_program more = make(ctx, plans[k], 48 + N_MORE, WFI_USE_RUN);
        /* What fits too badly is planned whole. */
        bool does = repeats(ctx, plans[k]);
        for (int32_t r = 0; r < all->n_ranks && does; r++)
            for (int s = 0; s < WFI_N_SPACES; s++) {
                wfi_arena_plan a = all->ranks[r].arenas[s], b = more->ranks[r].arenas[s];
                wfi_arena_plan c = some->ranks[r].arenas[s];
                size_t records = s == WFI_SPACE_DEVICE ? N_MORE * record_bytes(all, r) : 0;
                if (a.peak_bytes + records != b.peak_bytes || a.peak_bytes != c.peak_bytes ||
                    a.bound_bytes + records != b.bound_bytes || a.state_bytes != b.state_bytes)
                    fail_msg("plan '%s', rank %d: %zu, %zu and %zu bytes, records %zu", plans[k],
                             (int)r, c.peak_bytes, a.peak_bytes, b.peak_bytes, records);
            }
    }
}

/* Figures, times and spans are those of the program that has all instructions. */
TEST(short_is_whole) {
    int n_short = 0, n = 0;
    for (size_t k = 0; k < WFI_COUNT(plans); k += stride(), n++) {
        scoped_program some = make(ctx, plans[k], 53, WFI_USE_LOOK_SHORT);
        scoped_program all = make(ctx, plans[k], 53, WFI_USE_RUN);
        wf_dry_run a, b;
        n_short += some->shorter != NULL;
        same_summaries(all, some);
        same_timelines(ctx, all, some);
        TEST_OK(ctx, wf_program_dry_run(all, &a));
        TEST_OK(ctx, wf_program_dry_run(some, &b));
        assert_true(a.n_instructions == b.n_instructions && a.sent_bytes == b.sent_bytes);
        assert_true(a.flops == b.flops);
    }
    assert_true(n_short > n / 2);
}

/* One microbatch in flight: with a period of one, the block of a transfer would live for longer
 * than two, and the proof would refuse the step. */
TEST(one_is_in_flight) {
    scoped_model model = test_find_model(
        ctx, "mlp", &TEST_MODEL(.n_classes = 10, .channels = 1, .height = 28, .width = 28));
    scoped_plan plan = test_plan(ctx, "pp=2,schedule=auto,hold=1,recompute=all");
    for (int64_t n = 16; n <= 48; n += 8) {
        const wf_recipe recipe = TEST_RECIPE(.batch = n, .n_micro = n, .n_lanes = 1);
        scoped_program p = NULL;
        TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    }
}

/* Blocks that outlive a period take turns in two places. In periods that the short form leaves out,
 * they are alive with blocks with which they are not in it. Each program is proved whole.
 */
TEST(turns_of_two) {
    static const struct {
        const char *model, *plan;
        wf_model_config config;
        int64_t n_micro, n_slices;
        wf_dtype dtype;
    } cases[] = {
        {"gpt", "",
         TEST_MODEL(.n_classes = 101, .n_tokens = 96, .n_layers = 1, .hidden = 96, .n_heads = 12),
         20, 4, WF_BF16},
        {"llama", "tp=4",
         TEST_MODEL(.n_classes = 96, .n_tokens = 96, .n_layers = 1, .hidden = 48, .n_heads = 4), 16,
         4, WF_BF16},
        {"llama", "tp=6,schedule=zb1",
         TEST_MODEL(.n_classes = 64, .n_tokens = 32, .n_layers = 1, .hidden = 96, .n_heads = 12),
         16, 6, WF_F32},
        {"mlp", "pp=2,schedule=zb1,recompute=selective,offload=state",
         TEST_MODEL(.n_classes = 10, .channels = 1, .height = 5, .width = 5), 24, 4, WF_BF16}};
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        wf_recipe recipe = TEST_RECIPE(.n_lanes = 1, .n_slices = cases[k].n_slices);
        scoped_program p = NULL;
        recipe.n_micro = recipe.batch = cases[k].n_micro;
        recipe.dtype = cases[k].dtype;
        scoped_model model = test_find_model(ctx, cases[k].model, &cases[k].config);
        scoped_plan plan = test_plan(ctx, cases[k].plan);
        TEST_OK(ctx, wf_program_create_full(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    }
}

/* The shortest lane, and the least part of it that is left out. In the last case the first period's
 * memory is not tight, so the second of two tries is taken. n_period 0: the step is not folded. */
TEST(limits) {
    static const struct {
        const char *plan;
        int64_t n_lane, n_period;
    } cases[] = {{"dp=2", 15, 0},
                 {"dp=2", 16, 1},
                 {"pp=4", 21, 0},
                 {"pp=4", 28, 4},
                 {"pp=3,offload=activations", 21, 4}};
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        scoped_program p = make(ctx, cases[k].plan, cases[k].n_lane, WFI_USE_LOOK_SHORT);
        assert_int_equal(p->shorter ? p->shorter->n_period : 0, cases[k].n_period);
    }
}
