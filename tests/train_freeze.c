/* Parameters that are frozen stay as they are, and all others go where they would go beside them:
 * the gradients are those of a run that trains all, from the same weights. Under every plan it is
 * one rank's bits, with planned bytes measured, from state to state; what is frozen has no gradient
 * and no state, and backward stops where nothing is trained. While the happens-before checker looks
 * on.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "data_folder.h"
#include "small_models.h"
#include "wide_net.h"

#include <math.h>

#define N_STEPS 3

/* Parts of units, whole units, a tied weight, and what stands behind all that is trained. */
static const char *const frozen[] = {
    "conv1",    "conv1+bn1+conv2+bn2", "tied", "fc1.weight,bn2.bias,fc2.bias", "fc1+tied+fc2+fc",
    "bn1+conv2"};

static wf_recipe recipe_of(const char *names, bool clips) {
    wf_recipe recipe =
        SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .n_threads = 1, .kernels = WF_KERNELS_REFERENCE,
                     .optimizer = clips ? WF_ADAMW : WF_SGD, .lr = 0.01, .weight_decay = 0.1,
                     .clip_norm = clips ? 0.5 : 0);
    snprintf(recipe.freeze.text, sizeof recipe.freeze.text, "%s", names);
    return recipe;
}

static wf_trainer *trainer_of(const folder *f, const wf_recipe *recipe, const char *plan_text) {
    return folder_trainer(f->ctx, f->path, wide_net, recipe, plan_text, !*plan_text);
}

static float *read_tensor(const folder *f, wf_trainer *t, const wfi_value *value) {
    size_t bytes = (size_t)wf_shape_n_elem(&value->shape) * wf_dtype_bytes(value->dtype);
    float *data = malloc(bytes);
    assert_non_null(data);
    TEST_OK(f->ctx, wf_trainer_read(t, value->name, data, bytes));
    return data;
}

/* ---- against a run that trains all ---- */

/* Every parameter and buffer: what is frozen is `other`'s, of the step before. */
static void compare(const folder *f, wf_trainer *t, wf_trainer *all, wf_trainer *before) {
    const wf_graph *g = wfi_trainer_graph(t);
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind != WFI_VALUE_PARAM && value->kind != WFI_VALUE_BUFFER) continue;
        float *mine = read_tensor(f, t, value);
        float *want = read_tensor(f, value->is_frozen ? before : all, value);
        if (memcmp(mine, want, wfi_value_bytes(g, v)))
            fail_msg("frozen %s: %s is not as it should be", t->recipe.freeze.text, value->name);
        free(mine);
        free(want);
    }
}

static double norm_of(const folder *f, wf_trainer *t) {
    const wf_graph *g = wfi_trainer_graph(t);
    double sum = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        size_t bytes = wfi_value_bytes(g, v);
        if (value->kind != WFI_VALUE_PARAM) continue;
        float *data = malloc(bytes);
        if (value->is_frozen)
            TEST_REFUSED(f->ctx, wf_trainer_read_gradient(t, value->name, data, bytes),
                         WF_INVALID_ARG, "is frozen");
        else
            TEST_OK(f->ctx, wf_trainer_read_gradient(t, value->name, data, bytes));
        for (size_t i = 0; i < bytes / sizeof *data && !value->is_frozen; i++)
            sum += (double)data[i] * data[i];
        free(data);
    }
    return sqrt(sum);
}

TEST_IN_FOLDER(others_train) {
    char path[400];
    snprintf(path, sizeof path, "%s/weights", f->path);
    for (size_t k = 0; k < WFI_COUNT(frozen); k++) {
        wf_recipe recipe = recipe_of(frozen[k], false), full = recipe_of("", false);
        recipe.momentum = full.momentum = 0;
        scoped_trainer t = trainer_of(f, &recipe, "");
        scoped_trainer all = trainer_of(f, &full, "");
        scoped_trainer before = trainer_of(f, &full, "");
        for (int s = 0; s < N_STEPS; s++) {
            TEST_OK(f->ctx, wf_trainer_save(t, path));
            TEST_OK(f->ctx, wf_trainer_load_weights(all, path));
            TEST_OK(f->ctx, wf_trainer_load_weights(before, path));
            assert_true(small_step(f->ctx, t, s) == small_step(f->ctx, all, s));
            compare(f, t, all, before);
        }
    }
}

/* Clipping measures what is trained. */
TEST_IN_FOLDER(norms) {
    for (size_t k = 0; k < WFI_COUNT(frozen); k++) {
        wf_recipe recipe = recipe_of(frozen[k], true);
        scoped_trainer t = trainer_of(f, &recipe, "");
        static small_batch batch;
        wf_step_result result;
        small_batch_fill(&batch, 0);
        wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
        TEST_OK(f->ctx, wf_trainer_step(t, feeds, 2, SMALL_BATCH, &result));
        double want = norm_of(f, t), relative = result.gradient_norm / want - 1;
        if (!(fabs(relative) < 1e-6))
            fail_msg("frozen %s: norm %.9g, gradients have %.9g", frozen[k], result.gradient_norm,
                     want);
    }
}

/* ---- under every plan ---- */

/* No rank has anything for what is frozen but the parameters. */
static void expect_no_state(const wf_trainer *t, const char *what) {
    const wf_program *p = t->ready[0]->program;
    size_t n_states = (size_t)wfi_recipe_n_states(&p->recipe);
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        size_t times = block->name.kind == WFI_BLOCK_STATE      ? n_states
                       : block->name.kind == WFI_BLOCK_GRADIENT ? 1
                                                                : 0;
        if (times && block->bytes > times * p->graph->units[block->name.owner].trained_bytes)
            fail_msg("%s: rank %d has a %s of %zu bytes for unit %s", what, block->rank,
                     wfi_block_kind_name(block->name.kind), block->bytes,
                     p->graph->units[block->name.owner].name);
    }
}

static const char *const plans[] = {"dp=2",
                                    "dp=4,allreduce=pairwise,bucket=1",
                                    "pp=2",
                                    "pp=4,schedule=zb1",
                                    "dp=2,pp=2",
                                    "dp=2,zero=1",
                                    "dp=4,zero=1,shard=2,overlap=off",
                                    "dp=2,zero=2,bucket=1",
                                    "dp=2,pp=2,zero=2",
                                    "dp=2,zero=3",
                                    "dp=4,zero=3,shard=2",
                                    "dp=2,pp=3,zero=3,schedule=zb2",
                                    "dp=2,zero=3,schedule=breadth,recompute=all",
                                    "recompute=selective",
                                    "schedule=breadth,offload=params",
                                    "dp=2,zero=1,offload=params+state:disk",
                                    "dp=2,zero=3,offload=state+params:disk+activations",
                                    "pp=2,offload=params+activations:disk",
                                    "dataparallel=4",
                                    "block:dp=2",
                                    "head:dataparallel=2",
                                    "dp=2,offload=state",
                                    "dp=2,pp=2,schedule=interleaved,zero=1,offload=state",
                                    "pp=4,offload=state+params"};

static void run(const folder *f, const wf_recipe *recipe, const char *plan, const char *want) {
    char sha[65], what[1200];
    scoped_trainer t = trainer_of(f, recipe, plan);
    snprintf(what, sizeof what, "frozen %s, plan '%s'", recipe->freeze.text, plan);
    for (int s = 0; s < N_STEPS; s++) small_step(f->ctx, t, s);
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, sha));
    if (strcmp(sha, want) != 0) fail_msg("%s: not one rank's bits", what);
    small_expect_planned(t, what);
    expect_no_state(t, what);
}

TEST_IN_FOLDER(bits_of_one_rank) {
    size_t stride = test_is_full() ? 1 : TEST_SAMPLE == 1 ? 3 : 13;
    for (size_t k = 0; k < WFI_COUNT(frozen); k++)
        for (int clips = 0; clips < 2; clips++) {
            wf_recipe recipe = recipe_of(frozen[k], clips);
            char want[65];
            wf_trainer *one = trainer_of(f, &recipe, "");
            for (int s = 0; s < N_STEPS; s++) small_step(f->ctx, one, s);
            TEST_OK(f->ctx, wf_trainer_weights_sha256(one, want));
            wf_trainer_destroy(one);
            for (size_t i = (k + (size_t)clips) % stride; i < WFI_COUNT(plans); i += stride)
                run(f, &recipe, plans[i], want);
        }
}

/* Saved under one plan, resumed under another; the file has no state for what is frozen. */
TEST_IN_FOLDER(state_in_files) {
    static const char *const pairs[][2] = {{"", "dp=2,zero=3"},
                                           {"dp=2,zero=3,offload=params:disk", "pp=2"},
                                           {"dp=2,pp=2,zero=1", "dataparallel=2"}};
    char path[400], want[65], sha[65];
    snprintf(path, sizeof path, "%s/state", f->path);
    for (size_t k = 0; k < WFI_COUNT(pairs); k++) {
        wf_recipe recipe = recipe_of("conv1+tied+fc1.bias", true);
        scoped_trainer one = trainer_of(f, &recipe, "");
        scoped_trainer from = trainer_of(f, &recipe, pairs[k][0]);
        scoped_trainer to = trainer_of(f, &recipe, pairs[k][1]);
        wf_safetensors *file;
        for (int s = 0; s < 4; s++) small_step(f->ctx, one, s);
        for (int s = 0; s < 2; s++) small_step(f->ctx, from, s);
        TEST_OK(f->ctx, wf_trainer_save_state(from, path, NULL, 0));
        TEST_OK(f->ctx, wf_safetensors_open(f->ctx, path, &file));
        assert_true(wf_safetensors_find(file, "conv1.weight") >= 0);
        assert_true(wf_safetensors_find(file, "optimizer.first_moment.fc1.weight") >= 0);
        assert_int_equal(wf_safetensors_find(file, "optimizer.first_moment.conv1.weight"), -1);
        assert_int_equal(wf_safetensors_find(file, "optimizer.second_moment.tied"), -1);
        assert_int_equal(wf_safetensors_find(file, "optimizer.first_moment.fc1.bias"), -1);
        wf_safetensors_close(file);
        TEST_OK(f->ctx, wf_trainer_load_state(to, path));
        for (int s = 2; s < 4; s++) small_step(f->ctx, to, s);
        TEST_OK(f->ctx, wf_trainer_weights_sha256(one, want));
        TEST_OK(f->ctx, wf_trainer_weights_sha256(to, sha));
        assert_string_equal(sha, want);
    }
}

/* ---- backward ---- */

/* A frozen trunk has no backward at all: nothing is saved for it, and nothing goes there. */
TEST_IN_FOLDER(backward_stops) {
    wf_recipe recipe = recipe_of("conv1+bn1+conv2+bn2", false);
    scoped_trainer t = trainer_of(f, &recipe, "pp=2,cut=head");
    const wf_program *p = t->ready[0]->program;
    int n_back = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        bool is_back = now->segment && now->part != WFI_PART_F;
        n_back += is_back;
        if ((is_back || now->kind == WFI_UPDATE) && now->unit < 2)
            fail_msg("unit %s has a backward", p->graph->units[now->unit].name);
        assert_false(now->kind == WFI_RECEIVE && now->rank == 0);
    }
    assert_true(n_back > 0);
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].rank == 0) assert_false(p->blocks[b].name.kind == WFI_BLOCK_SAVED);
}

TEST_IN_FOLDER(bad_names) {
    static const struct {
        const char *names, *says;
    } bad[] = {{"conv3", "no parameter is called 'conv3'"},
               {"conv1+conv", "no parameter is called 'conv'"},
               {"conv1+", "a name is missing in 'conv1+'"},
               {"bn1.running_mean", "no parameter is called 'bn1.running_mean'"},
               {"conv1+bn1+conv2+bn2+fc1+tied+fc2+fc", "leaves nothing to train"}};
    scoped_model model = test_model(f->ctx, "wide", wide_net, NULL, 0);
    for (size_t k = 0; k < WFI_COUNT(bad); k++) {
        wf_recipe recipe = recipe_of(bad[k].names, false);
        wf_program *program;
        scoped_plan plan = test_plan(f->ctx, "");
        TEST_REFUSED(f->ctx,
                     wf_program_create(f->ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &program),
                     WF_INVALID_ARG, bad[k].says);
    }
}

/* ---- groups ---- */

/* After a step, matrices are those of a run with weight decay, biases and weights of norms those of
 * one without. */
TEST_IN_FOLDER(no_bias_decay) {
    static const char *const of[] = {"", "dp=2,zero=2", "pp=2", "dp=4,zero=3"};
    for (size_t k = 0; k < WFI_COUNT(of); k++) {
        wf_trainer *t[3]; /* decays all, none, matrices */
        int n_differ = 0;
        for (int i = 0; i < 3; i++) {
            wf_recipe recipe = recipe_of("conv2", true);
            if (i == 1) recipe.weight_decay = 0;
            recipe.no_bias_decay = i == 2;
            t[i] = trainer_of(f, &recipe, of[k]);
            (void)small_step(f->ctx, t[i], 0);
        }
        const wf_graph *g = wfi_trainer_graph(t[0]);
        for (int32_t v = 0; v < g->n_values; v++) {
            const wfi_value *value = wfi_value_at(g, v);
            if (value->kind != WFI_VALUE_PARAM) continue;
            bool is_matrix = value->shape.n_dims > 1;
            float *mine = read_tensor(f, t[2], value);
            float *want = read_tensor(f, t[is_matrix ? 0 : 1], value);
            float *other = read_tensor(f, t[is_matrix ? 1 : 0], value);
            if (memcmp(mine, want, wfi_value_bytes(g, v)))
                fail_msg("plan '%s': %s is not as it should be", of[k], value->name);
            n_differ += !is_matrix && memcmp(mine, other, wfi_value_bytes(g, v));
            free(mine);
            free(want);
            free(other);
        }
        assert_true(n_differ > 4);
        for (int i = 0; i < 3; i++) wf_trainer_destroy(t[i]);
    }
}

/* After a step, named parameters are as in a run with four times the rate, all others as without.
 * bn2.weight and bn2.bias are neighbours in their unit, both vectors, and differ in their rates. */
TEST_IN_FOLDER(lr_scale) {
    static const char *const of[] = {"", "dp=2,zero=2", "pp=2", "dp=4,zero=3"};
    for (size_t k = 0; k < WFI_COUNT(of); k++) {
        wf_trainer *t[3]; /* slow, fast, both */
        for (int i = 0; i < 3; i++) {
            wf_recipe recipe = recipe_of("", true);
            recipe.lr = i == 1 ? 0.25 : 0.0625;
            if (i == 2) strcpy(recipe.lr_scale.text, "conv2=7+fc=1+conv2=4+fc.weight=4+bn2.bias=4");
            t[i] = trainer_of(f, &recipe, of[k]);
            (void)small_step(f->ctx, t[i], 0);
        }
        const wf_graph *g = wfi_trainer_graph(t[0]);
        int n_fast = 0;
        for (int32_t v = 0; v < g->n_values; v++) {
            const wfi_value *value = wfi_value_at(g, v);
            if (value->kind != WFI_VALUE_PARAM) continue;
            bool is_fast = !strncmp(value->name, "conv2.", 6) || !strcmp(value->name, "bn2.bias") ||
                           !strcmp(value->name, "fc.weight");
            float *mine = read_tensor(f, t[2], value);
            float *want = read_tensor(f, t[is_fast ? 1 : 0], value);
            float *other = read_tensor(f, t[is_fast ? 0 : 1], value);
            if (memcmp(mine, want, wfi_value_bytes(g, v)))
                fail_msg("plan '%s': %s is not as it should be", of[k], value->name);
            n_fast += is_fast && memcmp(mine, other, wfi_value_bytes(g, v));
            free(mine);
            free(want);
            free(other);
        }
        assert_true(n_fast >= 3);
        for (int i = 0; i < 3; i++) wf_trainer_destroy(t[i]);
    }
}

TEST_FIXTURE(test_check_events, NULL)
