/* The weights' moving average: what the update makes of it, under every plan one rank's bits, with
 * planned bytes measured; in the weights' place and back; from state to state. What it is against
 * PyTorch's, golden_optimizers says.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "data_folder.h"
#include "group_ranks.h"
#include "small_models.h"
#include "wide_net.h"

#define N_STEPS 3

static wf_recipe recipe_of(wf_optimizer optimizer) {
    wf_recipe recipe =
        SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .n_threads = 1, .kernels = WF_KERNELS_REFERENCE,
                     .optimizer = optimizer, .lr = 0.01, .ema = 0.75);
    strcpy(recipe.freeze.text, "conv2");
    return recipe;
}

static wf_trainer *trainer_of(const folder *f, const wf_recipe *recipe, const char *plan_text) {
    return folder_trainer(f->ctx, f->path, wide_net, recipe, plan_text, 0);
}

/* ---- against a sum of the weights ---- */

/* All parameters and buffers, one after the other, as floats. */
static float *read_all(const folder *f, wf_trainer *t, size_t *n_out) {
    const wf_graph *g = wfi_trainer_graph(t);
    float *all = NULL;
    *n_out = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind != WFI_VALUE_PARAM && value->kind != WFI_VALUE_BUFFER) continue;
        size_t bytes = wfi_value_bytes(g, v), n = bytes / sizeof *all;
        all = realloc(all, (*n_out + n) * sizeof *all);
        assert_non_null(all);
        TEST_OK(f->ctx, wf_trainer_read(t, value->name, all + *n_out, bytes));
        *n_out += n;
    }
    return all;
}

/* What is averaged: not what is frozen, and no running statistics. */
static bool *find_averaged(const wf_trainer *t, size_t n) {
    const wf_graph *g = wfi_trainer_graph(t);
    bool *is_averaged = calloc(n, sizeof *is_averaged);
    assert_non_null(is_averaged);
    size_t at = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind != WFI_VALUE_PARAM && value->kind != WFI_VALUE_BUFFER) continue;
        bool is = value->kind == WFI_VALUE_PARAM && !value->is_frozen;
        for (size_t k = wfi_value_bytes(g, v) / sizeof(float); k; k--) is_averaged[at++] = is;
    }
    assert_int_equal(at, n);
    return is_averaged;
}

TEST_IN_FOLDER(follows) {
    static const wf_optimizer of[] = {WF_SGD, WF_ADAMW};
    for (size_t k = 0; k < WFI_COUNT(of); k++) {
        wf_recipe recipe = recipe_of(of[k]);
        if (of[k] == WF_SGD) recipe.momentum = 0; /* it has no other state */
        scoped_trainer t = trainer_of(f, &recipe, "");
        size_t n, n_differ = 0;
        float *want = read_all(f, t, &n);
        bool *is_averaged = find_averaged(t, n);
        TEST_OK(f->ctx, wf_trainer_use_average(t, 1)); /* before the first step: the weights */
        float *first = read_all(f, t, &n);
        assert_memory_equal(first, want, n * sizeof *want);
        TEST_OK(f->ctx, wf_trainer_use_average(t, 0));
        free(first);
        for (int s = 0; s < N_STEPS; s++) {
            (void)small_step(f->ctx, t, s);
            float *weights = read_all(f, t, &n), share = s ? 0.25f : 1.0f;
            for (size_t i = 0; i < n; i++)
                want[i] = is_averaged[i] ? want[i] + share * (weights[i] - want[i]) : weights[i];
            for (size_t i = 0; i < n && !s; i++) want[i] = weights[i];
            TEST_OK(f->ctx, wf_trainer_use_average(t, 1));
            float *average = read_all(f, t, &n);
            if (memcmp(average, want, n * sizeof *want)) fail_msg("step %d: another average", s);
            TEST_OK(f->ctx, wf_trainer_use_average(t, 0));
            float *again = read_all(f, t, &n);
            assert_memory_equal(again, weights, n * sizeof *weights);
            for (size_t i = 0; i < n; i++) n_differ += memcmp(&weights[i], &want[i], 4) != 0;
            free(weights);
            free(average);
            free(again);
        }
        assert_true(n_differ > n / 2);
        free(want);
        free(is_averaged);
    }
}

/* ---- under every plan ---- */

static const char *const plans[] = {"dp=2",
                                    "pp=2",
                                    "dp=2,pp=2,schedule=zb1",
                                    "dp=2,zero=1",
                                    "dp=4,zero=1,shard=2,overlap=off",
                                    "dp=2,zero=2,bucket=1",
                                    "dp=4,zero=3",
                                    "dp=4,zero=3,shard=2",
                                    "dp=2,pp=3,zero=3,schedule=zb2",
                                    "dp=2,zero=1,offload=params+state:disk",
                                    "dp=2,zero=3,offload=state+params:disk+activations",
                                    "schedule=breadth,offload=params:disk+state:disk",
                                    "dataparallel=4",
                                    "block:dp=2",
                                    "pp=4,offload=state+params"};

typedef struct seen {
    char weights[65], average[65];
    double loss; /* of an evaluation by the average */
} seen;

static seen look(const folder *f, wf_trainer *t) {
    seen s;
    char again[65];
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, s.weights));
    TEST_OK(f->ctx, wf_trainer_use_average(t, 1));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, s.average));
    TEST_OK(f->ctx, small_eval(t, 7, 8, &s.loss));
    TEST_OK(f->ctx, wf_trainer_use_average(t, 0));
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, again));
    assert_string_equal(again, s.weights);
    assert_string_not_equal(again, s.average);
    return s;
}

static void expect(const seen *got, const seen *want, const char *what) {
    if (strcmp(got->weights, want->weights)) fail_msg("%s: not one rank's weights", what);
    if (strcmp(got->average, want->average)) fail_msg("%s: not one rank's average", what);
    if (got->loss != want->loss) fail_msg("%s: another evaluation", what);
}

TEST_IN_FOLDER(bits_of_one_rank) {
    wf_recipe recipe = recipe_of(WF_ADAMW);
    wf_trainer *one = trainer_of(f, &recipe, "");
    for (int s = 0; s < N_STEPS; s++) (void)small_step(f->ctx, one, s);
    seen want = look(f, one);
    wf_trainer_destroy(one);
    for (size_t i = 0; i < WFI_COUNT(plans); i++) {
        scoped_trainer t = trainer_of(f, &recipe, plans[i]);
        for (int s = 0; s < N_STEPS - 1; s++) (void)small_step(f->ctx, t, s);
        (void)look(f, t);
        (void)small_step(f->ctx, t, N_STEPS - 1);
        seen got = look(f, t);
        expect(&got, &want, plans[i]);
        small_expect_planned(t, plans[i]);
    }
}

/* Saved under one plan, resumed under another; the average's file is what evaluates alike. */
TEST_IN_FOLDER(state_in_files) {
    static const char *const pairs[][2] = {{"", "dp=2,zero=3"},
                                           {"dp=2,zero=3,offload=params:disk", "pp=2"},
                                           {"dp=2,pp=2,zero=1", "dataparallel=2"}};
    char path[400], weights[400];
    snprintf(path, sizeof path, "%s/state", f->path);
    snprintf(weights, sizeof weights, "%s/average", f->path);
    wf_recipe recipe = recipe_of(WF_ADAMW);
    scoped_trainer one = trainer_of(f, &recipe, "");
    for (int s = 0; s < 4; s++) (void)small_step(f->ctx, one, s);
    seen want = look(f, one);
    for (size_t k = 0; k < WFI_COUNT(pairs); k++) {
        scoped_trainer from = trainer_of(f, &recipe, pairs[k][0]);
        scoped_trainer to = trainer_of(f, &recipe, pairs[k][1]);
        scoped_trainer other = trainer_of(f, &recipe, "");
        for (int s = 0; s < 2; s++) (void)small_step(f->ctx, from, s);
        TEST_OK(f->ctx, wf_trainer_save_state(from, path, NULL, 0));
        TEST_OK(f->ctx, wf_trainer_load_state(to, path));
        for (int s = 2; s < 4; s++) (void)small_step(f->ctx, to, s);
        seen got = look(f, to);
        expect(&got, &want, pairs[k][1]);
        TEST_OK(f->ctx, wf_trainer_use_average(to, 1));
        TEST_OK(f->ctx, wf_trainer_save(to, weights));
        TEST_OK(f->ctx, wf_trainer_load_weights(other, weights));
        TEST_OK(f->ctx, small_eval(other, 7, 8, &got.loss));
        assert_true(got.loss == want.loss);
    }
}

/* ---- in processes of their own ---- */

/* The CPU, but that its next copy begins late, when all else is done that waits for nobody. */
static wfi_device_class late_device;
static int n_late;

static wf_status copy_late(wfi_device *device, wfi_stream_queue *stream, void *to,
                           wfi_space to_space, const void *from, wfi_space from_space,
                           size_t bytes) {
    if (n_late > 0 && n_late-- > 0) usleep(50000);
    return wfi_device_cpu.copy(device, stream, to, to_space, from, from_space, bytes);
}

static const char *swap_late(ranks_one *one) {
    const seen *want = one->self;
    wf_recipe recipe = recipe_of(WF_ADAMW);
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_trainer *t;
    double loss;
    config.job = one->job;
    RANKS_TRY(one, test_try_trainer(one->ctx, wide_net, &recipe, "dp=2,zero=1", &config, &t));
    for (int s = 0; s < N_STEPS; s++) RANKS_TRY(one, small_try_step(t, s, NULL));
    wfi_device *device = t->workers[one->rank].device;
    if (one->rank == 0) n_late = 1, device->kind = &late_device; /* evaluates, too */
    RANKS_TRY(one, wf_trainer_use_average(t, 1));
    RANKS_TRY(one, small_eval(t, 7, 8, &loss));
    device->kind = &wfi_device_cpu;
    wf_trainer_destroy(t);
    return loss == want->loss ? NULL : "another evaluation: the average was read too late";
}

/* No process overwrites a part of the average that another has yet to read. */
TEST_IN_FOLDER(waits_for_late_readers) {
    wf_recipe recipe = recipe_of(WF_ADAMW);
    wf_trainer *t = trainer_of(f, &recipe, "");
    for (int s = 0; s < N_STEPS; s++) (void)small_step(f->ctx, t, s);
    seen want = look(f, t);
    wf_trainer_destroy(t);
    late_device = wfi_device_cpu;
    late_device.copy = copy_late;
    ranks_processes(2, NULL, swap_late, &want, 0);
}

TEST_IN_FOLDER(refuses) {
    char path[400];
    wf_recipe recipe = recipe_of(WF_SGD);
    wf_trainer *t = trainer_of(f, &recipe, "dp=2");
    snprintf(path, sizeof path, "%s/refused", f->path);
    (void)small_step(f->ctx, t, 0);
    TEST_OK(f->ctx, wf_trainer_save_state(t, path, NULL, 0));
    TEST_OK(f->ctx, wf_trainer_use_average(t, 1));
    TEST_REFUSED(f->ctx, small_try_step(t, 1, NULL), WF_INVALID_ARG,
                 "a step: the weights are their");
    TEST_REFUSED(f->ctx, wf_trainer_save_state(t, path, NULL, 0), WF_INVALID_ARG, "save the state");
    TEST_REFUSED(f->ctx, wf_trainer_load_state(t, path), WF_INVALID_ARG, "load the state");
    TEST_REFUSED(f->ctx, wf_trainer_load_weights(t, path), WF_INVALID_ARG, "load weights");
    TEST_OK(f->ctx, wf_trainer_use_average(t, 0));
    TEST_OK(f->ctx, wf_trainer_load_state(t, path));
    wf_trainer_destroy(t);
    recipe.ema = 0;
    t = trainer_of(f, &recipe, "");
    TEST_REFUSED(f->ctx, wf_trainer_use_average(t, 1), WF_INVALID_ARG, "the recipe's ema is 0");
    /* A state with an average is of another recipe. */
    TEST_REFUSED(f->ctx, wf_trainer_load_state(t, path), WF_SHAPE, "optimizer.average");
    wf_trainer_destroy(t);
}

TEST_FIXTURE(test_check_events, NULL)
