/* However gradients are summed over replicas, in whatever buckets, during backward or after it:
 * the bits are those of one rank, the planned peak is the measured one, and no task touches what
 * no event has released to it. Also under random delays.
 */
#include "api/trainer.h"
#include "small_models.h"

#include <math.h>
#include <stdlib.h>

#define N_STEPS 2

/* What a plan is put together from. Lanes have to allow dp; six microbatches of 16 samples are
 * uneven: 3, 3, 3, 3, 2, 2. */
static const struct {
    const char *grid;
    int64_t lanes, micro;
} grids[] = {
    {"dp=2", 4, 8},
    {"dp=3", 3, 6},
    {"dp=4", 4, 8},
    {"dp=2,pp=2", 2, 6},
    {"dp=2,pp=2,schedule=zb1", 2, 4},
    {"dp=3,pp=2,schedule=gpipe", 3, 6},
};
static const char *const algorithms[] = {"root", "tree", "pairwise", "direct", "auto"};
/* small_net has 28 KB of gradients in 4 units. */
static const char *const variants[] = {
    ",bucket=1KiB",  ",bucket=1KiB,overlap=off",   ",bucket=12KiB", ",bucket=12KiB,overlap=off",
    ",bucket=100KB", ",bucket=100KiB,overlap=off", ",bucket=100MB", "",
};
#define N_GRIDS      (sizeof grids / sizeof *grids)
#define N_ALGORITHMS (sizeof algorithms / sizeof *algorithms)
#define N_VARIANTS   (sizeof variants / sizeof *variants)

static wf_recipe reduce_recipe(size_t grid) {
    wf_recipe recipe = small_recipe();
    recipe.n_lanes = grids[grid].lanes;
    recipe.n_micro = grids[grid].micro;
    recipe.clip_norm = 0.5;
    recipe.n_threads = 1;
    recipe.kernels = WF_KERNELS_REFERENCE;
    return recipe;
}

/* What a run ends with. */
typedef struct result {
    char hex[65];
    double losses[N_STEPS];
} result;

/* All replicas of a stage hold the same weights, bit for bit. */
static void replicas_agree(const wf_trainer *t, const char *plan) {
    const wf_program *p = t->ready[0]->program;
    const wfi_executor *e = t->ready[0]->executor;
    for (int32_t a = 0; a < p->n_blocks; a++)
        for (int32_t b = 0; b < a; b++) {
            const wfi_block *x = &p->blocks[a], *y = &p->blocks[b];
            if (!x->is_state || x->name.kind != y->name.kind || x->name.owner != y->name.owner)
                continue;
            if (memcmp(e->workers[x->rank].arenas->base + x->offset,
                       e->workers[y->rank].arenas->base + y->offset, x->bytes))
                fail_msg("plan '%s': ranks %d and %d hold another %s of unit %d", plan, x->rank,
                         y->rank, wfi_block_kind_name(x->name.kind), x->name.owner);
        }
}

static result run(const char *plan, size_t grid) {
    wf_context *ctx = test_context();
    wf_recipe recipe = reduce_recipe(grid);
    wf_trainer *t = planned_trainer(ctx, small_net, &recipe, plan, NULL, 0);
    result r;
    for (int s = 0; s < N_STEPS; s++) r.losses[s] = small_step(ctx, t, s);
    TEST_OK(ctx, wf_trainer_weights_sha256(t, r.hex));
    assert_non_null(t->ready[0]->executor->happens);
    replicas_agree(t, plan);
    for (int k = 0; k < wf_program_n_ranks(wf_trainer_program(t)); k++) {
        wf_trainer_memory memory = wf_trainer_memory_of(t, k);
        if (memory.planned_peak_bytes != memory.measured_peak_bytes)
            fail_msg("plan '%s', rank %d: %zu bytes planned, %zu measured", plan, k,
                     memory.planned_peak_bytes, memory.measured_peak_bytes);
    }
    wf_trainer_destroy(t);
    test_context_end(ctx);
    return r;
}

static void same_bits(const char *plan, size_t grid, const result *want) {
    result got = run(plan, grid);
    if (strcmp(got.hex, want->hex) || memcmp(got.losses, want->losses, sizeof got.losses))
        fail_msg("plan '%s': loss %.17g, one rank has %.17g", plan, got.losses[N_STEPS - 1],
                 want->losses[N_STEPS - 1]);
}

/* Every algorithm on every grid, each with another variant; with WEFT_TEST_FULL=1 with all. */
TEST_CASE(bits_of_one_rank) {
    const char *full = getenv("WEFT_TEST_FULL");
    bool all = full && !strcmp(full, "1");
    char plan[128];
    for (size_t g = 0; g < N_GRIDS; g++) {
        result one = run("", g);
        for (size_t a = 0; a < N_ALGORITHMS; a++)
            for (size_t v = 0; v < N_VARIANTS; v++) {
                if (!all && v != (3 * a + g) % N_VARIANTS) continue;
                if ((a + g) % TEST_SAMPLE) continue;
                snprintf(plan, sizeof plan, "%s,allreduce=%s%s", grids[g].grid, algorithms[a],
                         variants[v]);
                same_bits(plan, g, &one);
            }
    }
}

TEST_CASE(bits_of_every_variant) {
    char plan[128];
    result one = run("", 3);
    for (size_t v = 0; v < N_VARIANTS; v++) {
        snprintf(plan, sizeof plan, "%s,allreduce=%s%s", grids[3].grid, algorithms[v % 4],
                 variants[v]);
        same_bits(plan, 3, &one);
    }
}

/* The ring rotates the order beyond two replicas: other bits than one rank's, but the same on
 * all ranks and every time. */
TEST_CASE(ring_is_a_sum) {
    char plan[128];
    for (size_t g = 0; g < N_GRIDS; g++) {
        result one = run("", g);
        bool two = !strncmp(grids[g].grid, "dp=2", 4);
        snprintf(plan, sizeof plan, "%s,allreduce=ring%s%s", grids[g].grid, two ? "" : ",sums=free",
                 variants[g]);
        if (two) {
            same_bits(plan, g, &one);
            continue;
        }
        result first = run(plan, g);
        snprintf(plan, sizeof plan, "%s,allreduce=ring,sums=free%s", grids[g].grid, variants[g]);
        same_bits(plan, g, &first);
        double far = fabs(first.losses[N_STEPS - 1] - one.losses[N_STEPS - 1]);
        assert_true(far < 1e-5 * fabs(one.losses[N_STEPS - 1]));
    }
}

static int turn_on(void **state) {
    return setenv("WEFT_CHECK_EVENTS", "1", 1) || setenv("WEFT_DELAY_US", "60", 1);
}

TEST_MAIN(turn_on, NULL)
