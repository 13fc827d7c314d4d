/* The toy of PyTorch's model parallel tutorial: Linear(10, 10), ReLU, Linear(10, 5), trained
 * by SGD with learning rate 0.001 on the mean squared error of 20 random samples.
 *
 * There, net1 lives on 'cuda:0', net2 on 'cuda:1', forward moves x between them, and labels
 * have to be moved, too. Here one line says where the second half begins; which devices the
 * halves live on is the plan's and the trainer's business, and the losses are the same bits.
 *
 *     toy                 two stages on two CPU devices, beside one device
 *     toy PLAN DEVICES    e.g. toy pp=2,schedule=gpipe cpu:1,cpu:0
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

#define BATCH   20
#define N_STEPS 10

static void toy(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(10));
    wf_tensor labels = wf_input(g, "labels", WF_F32, WF_SHAPE(5));
    x = wf_relu(wf_linear(x, "net1", 10));
    x = wf_next_stage(x, "second"); /* the tutorial's x.to('cuda:1') */
    wf_loss(wf_mse(wf_linear(x, "net2", 5), labels));
}

static float random_float(void) {
    return (float)rand() / (float)RAND_MAX * 2 - 1;
}

static wf_status train(wf_context *ctx, const wf_model *model, const char *plan_text,
                       const char *devices, double *losses_out) {
    static float x[BATCH * 10], labels[BATCH * 5];
    wf_feed feeds[] = {{"x", x, sizeof x}, {"labels", labels, sizeof labels}};
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_trainer *trainer;
    wf_plan *plan;
    recipe.batch = BATCH;
    recipe.n_micro = 4; /* the tutorial's split_size is 5 */
    recipe.lr = 0.001;
    config.devices = devices;
    wf_status status = wf_plan_parse(ctx, plan_text, &plan);
    if (status) return status;
    status = wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer);
    wf_plan_destroy(plan);
    if (status) return status;
    srand(0);
    for (int i = 0; i < BATCH * 10; i++) x[i] = random_float();
    for (int i = 0; i < BATCH * 5; i++) labels[i] = random_float();
    for (int step = 0; step < N_STEPS && !status; step++) {
        wf_step_result result;
        status = wf_trainer_step(trainer, feeds, 2, BATCH, &result);
        if (!status) losses_out[step] = result.loss;
    }
    wf_trainer_destroy(trainer);
    return status;
}

int main(int argc, char **argv) {
    const char *plan = argc > 1 ? argv[1] : "pp=2";
    const char *devices = argc > 2 ? argv[2] : argc > 1 ? NULL : "cpu:0,cpu:1";
    double one[N_STEPS], many[N_STEPS];
    wf_context *ctx;
    wf_model *model = NULL;
    if (wf_context_create(NULL, &ctx)) return 1;
    wf_status status = wf_model_create(ctx, "toy", toy, NULL, 0, &model);
    if (!status) status = train(ctx, model, "", "cpu:1", one);
    if (!status) status = train(ctx, model, plan, devices, many);
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    for (int step = 0; step < N_STEPS && !status; step++)
        printf("step %d: loss %.17g on one device, %.17g by %s\n", step, one[step], many[step],
               plan);
    wf_model_destroy(model);
    wf_context_destroy(ctx);
    return status != WF_OK;
}
