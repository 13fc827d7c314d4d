/* Strategies that live in tests train as one rank does, bit for bit: every rank's slice of every
 * parameter, after each step, with and without clipping, with tied weights and batch norm, under
 * stages and microbatches of two sizes, with forward runs between, while the happens-before checker
 * looks on. Each plan in some ways, with WEFT_TEST_FULL=1 in all.
 *
 * label: once serial long
 */
#include "api/trainer.h"
#include "sharded_plan.h"
#include "small_models.h"
#include "wide_net.h"

#include <stdlib.h>

#define N_STEPS 3

static wf_trainer *trainer_of(wf_context *ctx, const wf_recipe *recipe, const char *text,
                              const wfi_strategy *strategy) {
    wf_model *model;
    wf_trainer *t;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_plan *plan = sharded_plan(ctx, text, strategy);
    TEST_OK(ctx, wf_model_create(ctx, "wide", wide_net, NULL, 0, &model));
    TEST_OK(ctx, wf_trainer_create(ctx, model, recipe, plan, &config, &t));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return t;
}

static const char *memory_of(const wf_trainer *t, const wfi_block *b) {
    return t->ready[0]->executor->workers[b->rank].arenas->base + b->offset;
}

/* Every PARAM and BUFFER that a rank keeps, with the one rank's; returns how many are slices. */
static int compare_state(const wf_trainer *t, const wf_trainer *one, const char *what) {
    const wf_program *p = t->ready[0]->program, *q = one->ready[0]->program;
    int n_slices = 0;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *mine = &p->blocks[b];
        if (!mine->is_state || mine->name.kind == WFI_BLOCK_STATE) continue;
        for (int32_t k = 0; k < q->n_blocks; k++) {
            const wfi_block *whole = &q->blocks[k];
            if (!whole->is_state || whole->name.kind != mine->name.kind ||
                whole->name.owner != mine->name.owner)
                continue;
            n_slices += mine->bytes < whole->bytes;
            if (memcmp(memory_of(t, mine), memory_of(one, whole) + mine->begin, mine->bytes))
                fail_msg("%s: rank %d has another %s of unit %s", what, mine->rank,
                         wfi_block_kind_name(mine->name.kind),
                         p->graph->units[mine->name.owner].name);
        }
    }
    return n_slices;
}

static void run(const char *text, const wfi_strategy *strategy, int way) {
    wf_context *ctx = test_context();
    char what[128];
    wf_recipe recipe = small_recipe();
    recipe.n_micro = way & 1 ? 6 : 4;
    recipe.n_lanes = way & 1 ? 2 : 4;
    recipe.clip_norm = way & 2 ? 0.5 : 0;
    recipe.optimizer = way & 1 ? WF_ADAMW : WF_SGD;
    recipe.n_threads = 1;
    recipe.kernels = WF_KERNELS_REFERENCE;
    snprintf(what, sizeof what, "plan '%s', %s, way %d", text, strategy->name, way);
    wf_trainer *one = trainer_of(ctx, &recipe, "", &wfi_strategy_dp);
    wf_trainer *t = trainer_of(ctx, &recipe, text, strategy);
    bool is_divided = strategy->parameter == WFI_SHARD;
    for (int s = 0; s < N_STEPS; s++) {
        double want = small_step(ctx, one, s), loss = small_step(ctx, t, s);
        if (want != loss) fail_msg("%s: loss %.17g, one rank has %.17g", what, loss, want);
        assert_int_equal(compare_state(t, one, what) > 0, is_divided);
        TEST_OK(ctx, small_eval(one, 9 + s, 11, &want)); /* then training goes on */
        TEST_OK(ctx, small_eval(t, 9 + s, 11, &loss));
        if (want != loss) fail_msg("%s: test loss %.17g, one rank's %.17g", what, loss, want);
    }
    for (int k = 0; k < wf_program_n_ranks(wf_trainer_program(t)); k++) {
        wf_trainer_memory memory = wf_trainer_memory_of(t, k);
        assert_int_equal(memory.planned_peak_bytes, memory.measured_peak_bytes);
    }
    wf_trainer_destroy(t);
    wf_trainer_destroy(one);
    test_context_end(ctx);
}

TEST_CASE(bits_of_one_rank) {
    static const char *const plans[] = {"dp=2",
                                        "dp=2,pp=2",
                                        "dp=2,pp=3,schedule=zb1,bucket=1",
                                        "dp=2,schedule=breadth",
                                        "dp=2,overlap=off",
                                        "dp=2,pp=2,schedule=gpipe"};
    size_t stride = getenv("WEFT_TEST_FULL") ? 1 : 2 * TEST_SAMPLE + 1;
    for (size_t k = 0; k < WFI_COUNT(plans); k++)
        for (size_t s = 0; s < WFI_COUNT(sharded); s++)
            for (size_t way = (k + s) % stride; way < 4; way += stride)
                run(plans[k], sharded[s], (int)way);
    for (size_t s = 0; s < WFI_COUNT(sharded); s++) run("dp=4", sharded[s], 2);
    run("dp=4,zero=1,shard=2", &wfi_strategy_zero1, 2);
    run("dp=4,zero=2,shard=2,overlap=off", &wfi_strategy_zero2, 0);
    run("dp=4,zero=3,shard=2,bucket=1", &wfi_strategy_zero3, 2);
    for (int way = 0; way < 4; way += 3) {
        run("dp=2,zero=3,prefetch=0", &wfi_strategy_zero3, way);
        run("dp=2,zero=3,prefetch=3", &wfi_strategy_zero3, way);
    }
}

TEST_MAIN(test_check_events, NULL)
