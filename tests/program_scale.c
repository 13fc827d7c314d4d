/* Programs of many stages and microbatches: made, proved and walked on the null device,
 * under every schedule, in a time that grows with their size and not faster. What is made for twice
 * as many layers is counted, too: instructions, references, and all memory that is asked for.
 *
 * WEFT_TEST_FULL=1 runs the whole grid up to 64 stages x 256 microbatches.
 *
 * label: once long
 */
#include "plan/schedule/schedule.h"
#include "program/program.h"
#include "test_program.h"

#define N_UNITS 66

/* As little as possible in each unit: what counts is how many there are. */
static void chain(wf_graph *g, const void *config) {
    wf_tensor h = wf_input(g, "x", WF_F32, WF_SHAPE(4));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    for (int u = 0; u < N_UNITS; u++) {
        char name[16];
        snprintf(name, sizeof name, "unit%d", u);
        h = wf_linear(wf_cut(h, name), name, 4);
    }
    wf_loss(wf_cross_entropy(h, y));
}

static void make(const char *schedule, int n_stages, int n_micro) {
    scoped_context ctx = test_context();
    wf_recipe recipe = TEST_RECIPE(.batch = n_micro, .n_micro = n_micro, .n_lanes = 1,
                                   .kernels = WF_KERNELS_REFERENCE);
    scoped_program p;
    wf_dry_run run;
    char text[64];
    snprintf(text, sizeof text, "pp=%d,schedule=%s", n_stages, schedule);
    scoped_model model = test_model(ctx, "chain", chain, NULL, 0);
    scoped_plan plan = test_plan(ctx, text);
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    TEST_OK(ctx, wf_program_check(p));
    TEST_OK(ctx, wf_program_dry_run(p, &run));
    assert_true(run.n_instructions >= 2 * (int64_t)n_stages * n_micro);
    /* Twice as much would be clocks of all ranks for every instruction. */
    if (wf_context_memory(ctx).peak_bytes > (size_t)100 << 20)
        fail_msg("plan '%s', %d microbatches: %zu bytes of host memory", text, n_micro,
                 wf_context_memory(ctx).peak_bytes);
}

static const int stages[] = {1, 2, 3, 8, 33, 64}, micros[] = {1, 2, 7, 64, 256};

TEST_CASE(grid) {
    const char *full = getenv("WEFT_TEST_FULL");
    int most = full && !strcmp(full, "1") ? 64 * 256 : 600;
    for (int s = 0; wfi_schedules[s]; s++)
        for (size_t p = 0; p < sizeof stages / sizeof *stages; p++)
            for (size_t m = 0; m < sizeof micros / sizeof *micros; m++)
                if (stages[p] * micros[m] <= most &&
                    stages[p] * wfi_schedule_n_chunks(wfi_schedules[s], 0) <= N_UNITS)
                    make(wfi_schedules[s]->name, stages[p], micros[m]);
}

TEST_CASE(largest) {
    make("zb1", 64, 256);
}

/* ---- layers ---- */

/* Bytes are counted as they are asked for, also those that are free again. */
typedef struct counts {
    size_t instructions, references, allocated_bytes, peak_bytes;
} counts;

static void *count_alloc(void *self, size_t bytes) {
    ((counts *)self)->allocated_bytes += bytes;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void count_free(void *self, void *block) {
    free(block);
}

static counts count_gpt(const char *plan_text, wf_dtype dtype, int64_t n_layers) {
    counts n = {0};
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    wf_model_config gpt = TEST_MODEL(.n_classes = 64, .n_tokens = 32);
    wf_recipe recipe =
        TEST_RECIPE(.batch = 4, .n_micro = 4, .n_lanes = 4, .n_slices = 4, .clip_norm = 1);
    scoped_context ctx;
    config.allocator = (wf_allocator){count_alloc, count_free, &n};
    assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
    gpt.n_layers = n_layers;
    gpt.hidden = 64;
    gpt.n_heads = 4;
    recipe.dtype = dtype;
    scoped_model model = test_find_model(ctx, "gpt", &gpt);
    scoped_program p = test_program(ctx, model, &recipe, plan_text);
    n.instructions = (size_t)p->n_instructions;
    for (int32_t i = 0; i < p->n_instructions; i++)
        n.references += (size_t)p->instructions[i].n_references;
    n.peak_bytes = wf_context_memory(ctx).peak_bytes;
    return n;
}

static void expect_linear(const char *plan, const char *what, size_t n, size_t of_twice) {
    if (10 * of_twice >= 23 * n)
        fail_msg("plan '%s': %s: %zu, and %zu for twice as many layers", plan, what, n, of_twice);
}

TEST_CASE(twice_as_many_layers) {
    static const struct {
        const char *plan;
        wf_dtype dtype;
    } some[] = {{"tp=4,sp", WF_F32}, {"tp=2,pp=2,recompute=all", WF_BF16}};
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        counts n = count_gpt(some[k].plan, some[k].dtype, 24),
               twice = count_gpt(some[k].plan, some[k].dtype, 48);
        expect_linear(some[k].plan, "instructions", n.instructions, twice.instructions);
        expect_linear(some[k].plan, "references", n.references, twice.references);
        expect_linear(some[k].plan, "bytes asked for", n.allocated_bytes, twice.allocated_bytes);
        expect_linear(some[k].plan, "bytes at once", n.peak_bytes, twice.peak_bytes);
    }
}
