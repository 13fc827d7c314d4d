/* What offload= keeps elsewhere trains as one rank does, bit for bit, with planned bytes measured
 * in each space; its state goes into and comes from files of any other plan; evaluation, too. All
 * while the happens-before checker looks on.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "data_folder.h"
#include "small_models.h"
#include "wide_net.h"

#include <setjmp.h>

#define N_STEPS 3

/* With clipping units are updated when all gradients are there, without as soon as their own is. A
 * plain descent has no state. */
enum { LARGE = 1, CLIPS = 2, PLAIN = 4 };

static wf_recipe make_recipe(int kind) {
    wf_recipe recipe = small_recipe();
    recipe.n_micro = recipe.n_lanes = 4;
    if (kind & LARGE) recipe.n_micro = 8;
    recipe.clip_norm = kind & CLIPS ? 0.5 : 0;
    recipe.optimizer = kind & (LARGE | PLAIN) ? WF_SGD : WF_ADAMW;
    if (kind & PLAIN) recipe.momentum = 0;
    recipe.n_threads = 1;
    recipe.kernels = WF_KERNELS_REFERENCE;
    return recipe;
}

static wf_trainer *make_trainer(const folder *f, const char *plan_text, int kind) {
    wf_recipe recipe = make_recipe(kind);
    return folder_trainer(f->ctx, f->path, wide_net, &recipe, plan_text, 0);
}

static void expect_same(const folder *f, wf_trainer *t, wf_trainer *one, const char *plan) {
    char mine[65], want[65];
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, mine));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(one, want));
    if (strcmp(mine, want) != 0) fail_msg("plan '%s': not one rank's bits", plan);
}

static void expect_planned(const wf_trainer *t, const char *plan) {
    size_t elsewhere = 0;
    small_expect_planned(t, plan);
    for (int r = 0; r < wf_program_n_ranks(wf_trainer_program(t)); r++) {
        wf_trainer_memory m = wf_trainer_memory_of(t, r);
        elsewhere += m.planned_host_peak_bytes + m.planned_disk_peak_bytes;
    }
    assert_true(elsewhere > 0);
}

static double evaluate(const folder *f, wf_trainer *t) {
    static small_batch batch;
    wf_step_result result;
    small_batch_fill(&batch, 99);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    TEST_OK(f->ctx, wf_trainer_eval(t, feeds, 2, SMALL_BATCH, &result));
    return result.loss;
}

static void run(const folder *f, const char *plan, int kind) {
    wf_trainer *one = make_trainer(f, "", kind), *t = make_trainer(f, plan, kind);
    assert_int_equal(folder_count((folder *)f, 0), 0);
    for (int s = 0; s < N_STEPS; s++) {
        double want = small_step(f->ctx, one, s), loss = small_step(f->ctx, t, s);
        if (want != loss) fail_msg("%s: loss %.17g, one rank has %.17g", plan, loss, want);
        expect_same(f, t, one, plan);
    }
    expect_planned(t, plan);
    assert_true(evaluate(f, t) == evaluate(f, one));
    expect_same(f, t, one, plan);
    wf_trainer_destroy(t);
    wf_trainer_destroy(one);
}

#define N_OFFLOADS 8
static const char *const offloads[N_OFFLOADS] = {
    "state",      "params:disk",      "activations", "params+state:disk",
    "state:disk", "activations:disk", "params",      "activations+params:disk+state"};

TEST_IN_FOLDER(bits_of_one_rank) {
    static const char *const plans[] = {"",
                                        "dp=2,",
                                        "dp=2,zero=1,prefetch=0,",
                                        "dp=4,zero=2,",
                                        "dp=2,zero=3,prefetch=3,",
                                        "dp=2,pp=2,",
                                        "dp=2,pp=2,zero=3,schedule=zb1,",
                                        "dp=2,zero=3,schedule=breadth,",
                                        "dp=2,zero=2,overlap=off,",
                                        "dp=2,zero=3,recompute=all,"};
    size_t stride = test_is_full() ? 1 : TEST_SAMPLE == 1 ? 3 : 7;
    for (size_t k = 0; k < WFI_COUNT(plans); k++)
        for (size_t o = k % stride; o < N_OFFLOADS; o += stride) {
            char plan[128];
            snprintf(plan, sizeof plan, "%soffload=%s", plans[k], offloads[o]);
            run(*state, plan, (k % 2 ? LARGE : 0) | (o / 3 % 2 ? CLIPS : 0));
        }
}

TEST_IN_FOLDER(without_state) {
    run(*state, "offload=params:disk+state:disk", PLAIN);
    run(*state, "dp=2,zero=3,offload=params+state", PLAIN);
}

/* Saved under one plan, resumed under another, and the bits of a run that never stopped. */
TEST_IN_FOLDER(state_in_files) {
    static const char *const pairs[][2] = {
        {"offload=state", "dp=2"},
        {"dp=2,zero=2", "dp=2,zero=2,offload=state:disk"},
        {"dp=4,zero=3,offload=state:disk+params", "pp=2,offload=state"},
        {"pp=2,offload=params:disk", "dp=2,zero=3,offload=params+state:disk"}};
    folder *f = *state;
    char path[400];
    snprintf(path, sizeof path, "%s/state", f->path);
    for (size_t k = 0; k < WFI_COUNT(pairs); k++) {
        wf_trainer *one = make_trainer(f, "", k % 2 ? CLIPS : 0);
        wf_trainer *from = make_trainer(f, pairs[k][0], k % 2 ? CLIPS : 0);
        wf_trainer *to = make_trainer(f, pairs[k][1], k % 2 ? CLIPS : 0);
        for (int s = 0; s < 4; s++) small_step(f->ctx, one, s);
        for (int s = 0; s < 2; s++) small_step(f->ctx, from, s);
        TEST_OK(f->ctx, wf_trainer_save_state(from, path, NULL, 0));
        TEST_OK(f->ctx, wf_trainer_load_state(to, path));
        for (int s = 2; s < 4; s++) small_step(f->ctx, to, s);
        expect_same(f, to, one, pairs[k][1]);
        wf_trainer_destroy(one);
        wf_trainer_destroy(from);
        wf_trainer_destroy(to);
    }
    assert_int_equal(folder_count(f, 1), 1);
}

TEST_MAIN(test_check_events, NULL)
