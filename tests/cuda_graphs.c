/* What CUDA devices have captured is replayed, with the bits of kernels that are queued one by one:
 * in steps with other random numbers and other numbers of labels, and when memory has moved.
 *
 * label: serial stand_in
 */
#include "api/trainer.h"
#include "base/random.h"
#include "small_models.h"

#include <dlfcn.h>

#define N_STEPS 8
#define N_EVAL  256

/* The stand-in's. */
static long long n_graphs_launched(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    const long long *n = driver ? dlsym(driver, "stand_in_n_replayed") : NULL;
    assert_non_null(n);
    return *n;
}

/* Another number of labels counts in some steps. */
static void step(wf_context *ctx, wf_trainer *trainer, int number) {
    small_batch batch;
    small_batch_fill(&batch, number);
    for (int i = 0; i < number % 3; i++) batch.y[i] = -1;
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    wf_step_result result;
    TEST_OK(ctx, wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, &result));
}

/* Many samples, for which memory is made anew. */
static void eval(wf_context *ctx, wf_trainer *trainer) {
    static float x[N_EVAL * SMALL_IMAGE];
    static int32_t y[N_EVAL];
    wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    wf_step_result result;
    const char *before = trainer->workers[0].arenas[WFI_SPACE_DEVICE].base;
    TEST_OK(ctx, wf_trainer_eval(trainer, feeds, 2, N_EVAL, &result));
    assert_ptr_not_equal(before, trainer->workers[0].arenas[WFI_SPACE_DEVICE].base);
}

/* Returns how many graphs were launched. */
static long long run(wf_model_function function, const char *replay, char hex[65]) {
    setenv("WEFT_REPLAY", replay, 1);
    wf_context *ctx = test_context();
    wf_recipe recipe = small_recipe();
    wf_trainer *trainer = planned_trainer(ctx, function, &recipe, "", "cuda:1", 0);
    long long before = n_graphs_launched();
    for (int s = 0; s < N_STEPS; s++) {
        if (s == N_STEPS / 2) eval(ctx, trainer);
        step(ctx, trainer, s);
    }
    TEST_OK(ctx, wf_trainer_weights_sha256(trainer, hex));
    wf_trainer_destroy(trainer);
    test_context_end(ctx);
    return n_graphs_launched() - before;
}

TEST_CASE(same_bits) {
    const wf_model_function functions[] = {small_net, plain_net};
    for (int f = 0; f < 2; f++) {
        char plain[65], replayed[65];
        assert_int_equal(run(functions[f], "0", plain), 0);
        assert_true(run(functions[f], "1", replayed) > N_STEPS);
        assert_string_equal(plain, replayed);
    }
}

/* A capture that ends early is none. */
TEST_CASE(refused) {
    char plain[65], refused[65];
    (void)run(plain_net, "0", plain);
    setenv("STAND_IN_CAPTURE", "0", 1);
    assert_int_equal(run(plain_net, "1", refused), 0);
    unsetenv("STAND_IN_CAPTURE");
    assert_string_equal(plain, refused);
}

/* Each kernel is timed. */
TEST(profiled) {
    setenv("WEFT_REPLAY", "1", 1);
    wf_recipe recipe = small_recipe();
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.devices = "cuda:1";
    config.profile = 1;
    wf_model *model = test_model(ctx, "small", plain_net, NULL, 0);
    scoped_trainer trainer = test_trainer(ctx, model, &recipe, "", &config);
    long long before = n_graphs_launched();
    for (int s = 0; s < 3; s++) step(ctx, trainer, s);
    assert_int_equal(n_graphs_launched(), before);
}

int main(void) {
    return test_run(NULL, NULL);
}
