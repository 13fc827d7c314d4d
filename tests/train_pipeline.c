/* Pipelines of real models: every schedule, on any number of stages, with any number of
 * microbatches, gives the losses and the weights of one rank, bit for bit; also under random
 * delays. Every rank's planned peak is the measured one.
 *
 * WEFT_TEST_FULL=1 runs the whole matrix for five steps; without, GPT-2 runs a quarter of it for
 * three: the last reads the momentum that a step like all later ones left.
 *
 * label: long
 */
#include "plan/schedule/schedule.h"
#include "small_models.h"

#include <stdlib.h>

#define MOST_STEPS   5
#define MOST_SAMPLES 128
#define IMAGE        (3 * 8 * 8)
#define N_TOKENS     6
#define N_CLASSES    10

typedef enum net { RESNET, GPT2, N_NETS } net;
static const char *const net_names[N_NETS] = {"resnet18", "gpt2-tiny"};

/* The last number of microbatches is large: its steady phase repeats (compile/fold.c). */
static const int stages[] = {1, 2, 3, 4}, micros[] = {1, 2, 5, 8, 64};
#define N_STAGES 4
#define N_MICROS 4
#define MANY     N_MICROS

/* ---- one run ---- */

static int n_steps(void) {
    return test_is_full() ? MOST_STEPS : 3;
}

typedef struct result {
    char hex[65];
    double losses[MOST_STEPS];
} result;

static wf_model *find_model(wf_context *ctx, net which) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    wf_model *model;
    if (which == RESNET) {
        config.height = config.width = 8;
        config.n_classes = N_CLASSES;
        config.small_stem = 1;
    } else {
        config.n_classes = N_CLASSES;
        config.n_tokens = N_TOKENS;
        config.dropout = 0.1;
    }
    TEST_OK(ctx, wf_model_find(ctx, net_names[which], &config, &model));
    return model;
}

static double take_step(wf_context *ctx, wf_trainer *t, net which, int n_samples, int step) {
    static float images[MOST_SAMPLES * IMAGE];
    static int32_t tokens[MOST_SAMPLES * N_TOKENS], labels[MOST_SAMPLES * N_TOKENS];
    wfi_random_key key = {3, 4};
    size_t n = (size_t)n_samples, n_labels = which == GPT2 ? n * N_TOKENS : n;
    for (size_t i = 0; i < n * IMAGE; i++) images[i] = wfi_random_normal(key, (uint64_t)step, i);
    for (size_t i = 0; i < n_labels; i++) {
        tokens[i] = (int32_t)((i * 7 + (size_t)step) % N_CLASSES);
        labels[i] = (int32_t)((i * 3 + (size_t)step) % N_CLASSES);
    }
    wf_feed feeds[] = {{"x", images, n * IMAGE * sizeof *images},
                       {"y", labels, n_labels * sizeof *labels}};
    if (which == GPT2) feeds[0] = (wf_feed){"x", tokens, n_labels * sizeof *tokens};
    wf_step_result out;
    TEST_OK(ctx, wf_trainer_step(t, feeds, 2, n_samples, &out));
    return out.loss;
}

static result run(net which, const char *plan_text, int micro) {
    wf_context *ctx = test_context();
    wf_recipe recipe = WF_RECIPE_INIT;
    recipe.batch = 2 * micro;
    recipe.n_micro = micro;
    recipe.n_lanes = 1;
    recipe.n_threads = 1;
    recipe.seed = 9;
    recipe.lr = 0.02;
    recipe.momentum = 0.9;
    recipe.clip_norm = 2;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_model *model = find_model(ctx, which);
    wf_plan *plan;
    wf_trainer *trainer;
    result out = {"", {0}};
    TEST_OK(ctx, wf_plan_parse(ctx, plan_text, &plan));
    TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer));
    for (int s = 0; s < n_steps(); s++)
        out.losses[s] = take_step(ctx, trainer, which, 2 * micro, s);
    TEST_OK(ctx, wf_trainer_weights_sha256(trainer, out.hex));
    small_expect_planned(trainer, plan_text);
    wf_trainer_destroy(trainer);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    test_context_end(ctx);
    return out;
}

/* One rank's, kept. */
static const result *oracle(net which, int m) {
    static result all[N_NETS][MANY + 1];
    result *kept = &all[which][m];
    if (!*kept->hex) *kept = run(which, "", micros[m]);
    return kept;
}

/* A stage has a unit at least. */
static void compare(net which, int schedule, int n_stages, int m) {
    static const int n_units[N_NETS] = {[RESNET] = 10, [GPT2] = 4};
    char plan[64];
    int n_chunks = wfi_schedule_n_chunks(wfi_schedules[schedule], 0);
    if (n_stages * n_chunks > n_units[which]) n_stages = n_units[which] / n_chunks;
    snprintf(plan, sizeof plan, "pp=%d,schedule=%s", n_stages, wfi_schedules[schedule]->name);
    result got = run(which, plan, micros[m]);
    const result *want = oracle(which, m);
    if (strcmp(got.hex, want->hex) || memcmp(got.losses, want->losses, sizeof got.losses))
        fail_msg("%s, plan '%s', %d microbatches: last loss %.17g, one rank has %.17g",
                 net_names[which], plan, micros[m], got.losses[n_steps() - 1],
                 want->losses[n_steps() - 1]);
}

/* ---- tests ---- */

static int n_schedules(void) {
    int n = 0;
    while (wfi_schedules[n]) n++;
    return n;
}

static void whole_matrix(net which) {
    for (int s = 0; s < n_schedules(); s++)
        for (int p = 0; p < N_STAGES; p++)
            for (int m = 0; m < N_MICROS; m++) compare(which, s, stages[p], m);
}

/* A quarter of the matrix, in diagonals, or less; under_delays has the rest of each schedule. */
TEST_CASE(gpt2) {
    if (test_is_full()) {
        whole_matrix(GPT2);
        return;
    }
    for (int s = 0; s < n_schedules(); s++)
        for (int p = 0; p < N_STAGES; p++)
            for (int m = 0; m < N_MICROS; m++)
                if ((s + p + m) % (4 * TEST_SAMPLE) == 0) compare(GPT2, s, stages[p], m);
}

TEST_CASE(resnet18) {
    if (test_is_full()) whole_matrix(RESNET); /* else train_programs runs it with each schedule */
}

/* With events checked, too: what timing hides is an error there. */
TEST_CASE(under_delays) {
    setenv("WEFT_CHECK_EVENTS", "1", 1);
    for (int m = 1; m < 3; m++) (void)oracle(GPT2, m);
    setenv("WEFT_DELAY_US", "300", 1);
    for (int n = 0; n < 6; n++) /* all pairs of what follows */
        for (int s = n % TEST_SAMPLE; s < n_schedules(); s += TEST_SAMPLE)
            compare(GPT2, s, stages[1 + (n + s) % 3], 1 + n % 2);
    unsetenv("WEFT_DELAY_US");
    unsetenv("WEFT_CHECK_EVENTS");
}

TEST_CASE(repeated) {
    int stride = test_is_full() ? 1 : 3;
    for (int s = 0; s < n_schedules(); s += stride) compare(GPT2, s, 2 + s % 2, MANY);
}

TEST_MAIN(NULL, NULL)
