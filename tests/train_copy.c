/* Weights from trainer to trainer: whatever the plan of each, all of them or some by name; what
 * does not fit is refused, and nothing is changed.
 *
 * label: once
 */
#include "api/trainer.h"
#include "data_folder.h"
#include "small_models.h"
#include "wide_net.h"

#include <math.h>

static wf_trainer *make(const folder *f, wf_model_function function, uint64_t seed,
                        const char *plan_text) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 8, .n_lanes = 4);
    recipe.n_slices = strstr(plan_text, "tp=") ? 2 : 1;
    recipe.kernels = WF_KERNELS_REFERENCE;
    recipe.seed = seed;
    recipe.ema = 0.5;
    return folder_trainer(f->ctx, f->path, function, &recipe, plan_text, 0);
}

static void read_hash(const folder *f, wf_trainer *t, char hex[65]) {
    TEST_OK(f->ctx, wf_trainer_weights_sha256(t, hex));
}

TEST_IN_FOLDER(under_every_plan) {
    static const char *const plans[] = {"",
                                        "dp=2",
                                        "pp=3",
                                        "tp=2",
                                        "dp=2,tp=2",
                                        "dp=4,zero=3,shard=2",
                                        "dp=2,pp=2,zero=1",
                                        "dp=2,zero=3,offload=state+params:disk",
                                        "dataparallel=2",
                                        "block:dp=2"};
    size_t n = sizeof plans / sizeof *plans;
    for (size_t k = 0; k < n; k++) {
        char want[65], got[65];
        scoped_trainer from = make(f, wide_net, 1, plans[k]);
        scoped_trainer to = make(f, wide_net, 2, plans[(k * 3 + 1) % n]);
        (void)small_step(f->ctx, from, 0);
        read_hash(f, from, want);
        read_hash(f, to, got);
        assert_string_not_equal(got, want);
        TEST_OK(f->ctx, wf_trainer_copy_weights(to, from, NULL));
        read_hash(f, to, got);
        if (strcmp(got, want)) fail_msg("from '%s': other weights", plans[k]);
        (void)small_step(f->ctx, to, 1);
        read_hash(f, from, got);
        assert_string_equal(got, want);
        small_expect_planned(to, plans[(k * 3 + 1) % n]);
    }
}

static void read_one(const folder *f, wf_trainer *t, const char *name, float *out, size_t bytes) {
    TEST_OK(f->ctx, wf_trainer_read(t, name, out, bytes));
}

TEST_IN_FOLDER(some_by_name) {
    float conv[2][16 * 27], mean[2][16], fc[2][10];
    scoped_trainer from = make(f, wide_net, 1, "dp=2");
    scoped_trainer to = make(f, small_net, 2, "pp=2");
    (void)small_step(f->ctx, from, 0);
    /* Of two models: what is named is in both. */
    TEST_OK(f->ctx, wf_trainer_copy_weights(to, from, "bn1+conv1.weight"));
    wf_trainer *const both[] = {from, to};
    for (int k = 0; k < 2; k++) {
        read_one(f, both[k], "conv1.weight", conv[k], sizeof conv[k]);
        read_one(f, both[k], "bn1.running_mean", mean[k], sizeof mean[k]);
        read_one(f, both[k], "fc.bias", fc[k], sizeof fc[k]);
    }
    assert_memory_equal(conv[1], conv[0], sizeof conv[0]);
    assert_memory_equal(mean[1], mean[0], sizeof mean[0]);
    assert_memory_not_equal(fc[1], fc[0], sizeof fc[0]);
}

TEST_IN_FOLDER(refuses) {
    char want[65], got[65];
    wf_trainer *from = make(f, wide_net, 1, ""), *to = make(f, small_net, 2, "dp=2"),
               *same = make(f, wide_net, 3, "pp=2");
    read_hash(f, to, want);
    TEST_REFUSED(f->ctx, wf_trainer_copy_weights(to, from, "conv1+con"), WF_INVALID_ARG, "'con'");
    TEST_REFUSED(f->ctx, wf_trainer_copy_weights(to, from, "conv3"), WF_INVALID_ARG,
                 "has no 'conv3.weight'");
    TEST_REFUSED(f->ctx, wf_trainer_copy_weights(to, from, "conv1,tied"), WF_SHAPE,
                 "'tied' is F32 [80, 80], and is to become F32 [16, 16]");
    TEST_OK(f->ctx, wf_trainer_use_average(to, 1));
    TEST_REFUSED(f->ctx, wf_trainer_copy_weights(to, from, "conv1"), WF_INVALID_ARG,
                 "copy weights: the weights are their average");
    TEST_OK(f->ctx, wf_trainer_use_average(to, 0));
    wf_context *other = test_context();
    wf_trainer *stranger = make(&(folder){.ctx = other}, wide_net, 1, "");
    TEST_REFUSED(f->ctx, wf_trainer_copy_weights(to, stranger, "conv1"), WF_INVALID_ARG,
                 "one context");
    wf_trainer_destroy(stranger);
    test_context_end(other);
    read_hash(f, to, got);
    assert_string_equal(got, want);
    /* The average of the one becomes the weights of the other. */
    for (int s = 0; s < 2; s++) (void)small_step(f->ctx, from, s);
    TEST_OK(f->ctx, wf_trainer_use_average(from, 1));
    TEST_OK(f->ctx, wf_trainer_copy_weights(same, from, NULL));
    read_hash(f, from, want);
    read_hash(f, same, got);
    assert_string_equal(got, want);
    wf_trainer_destroy(same);
    wf_trainer_destroy(to);
    wf_trainer_destroy(from);
}

/* What cannot be saved where it comes from cannot be saved where it goes. */
TEST_IN_FOLDER(not_finite) {
    static small_batch batch;
    char path[400];
    wf_step_result result;
    scoped_trainer from = make(f, wide_net, 1, "dp=2");
    scoped_trainer to = make(f, wide_net, 2, "");
    small_batch_fill(&batch, 0);
    batch.x[0] = INFINITY;
    const wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    snprintf(path, sizeof path, "%s/weights", f->path);
    TEST_OK(f->ctx, wf_trainer_save(to, path));
    assert_int_equal(wf_trainer_step(from, feeds, 2, SMALL_BATCH, &result), WF_NOT_FINITE);
    TEST_OK(f->ctx, wf_trainer_copy_weights(to, from, NULL));
    TEST_REFUSED(f->ctx, wf_trainer_save(to, path), WF_NOT_FINITE, "is not written");
}
