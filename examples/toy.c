/* The toy of PyTorch's model parallel tutorial: Linear(10, 10), ReLU, Linear(10, 5), trained
 * by SGD with learning rate 0.001 on the mean squared error of 20 random samples.
 *
 * There, net1 lives on one GPU, net2 on another, and forward moves x between them. Here the
 * model only says where it may be cut, and the plan "pp=2,cut=second" cuts it. This trains
 * on one rank, then prints what each of two would do:
 *
 *     step 0: loss 0.33115
 *     step 1: loss 0.33111
 *     ...
 *     r0 compute.0 forward first m=0 | after copy.0 | ...
 *     r0 send.0 send first v5 to=r1 m=0 | after compute.0 | ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

#define BATCH 20

static void toy(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(10));
    wf_tensor y = wf_input(g, "y", WF_F32, WF_SHAPE(5));
    x = wf_cut(wf_relu(wf_linear(x, "net1", 10)), "second");
    wf_loss(wf_mse(wf_linear(x, "net2", 5), y));
}

/* Ten steps on one rank. */
static wf_status train(wf_context *ctx, const wf_model *model, const wf_recipe *recipe) {
    float x[BATCH * 10], y[BATCH * 5];
    wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    wf_trainer *trainer;
    wf_plan *plan;
    wf_status status = wf_plan_parse(ctx, "", &plan);
    if (status) return status;
    status = wf_trainer_create(ctx, model, recipe, plan, NULL, &trainer);
    wf_plan_destroy(plan);
    if (status) return status;
    for (int i = 0; i < BATCH * 10; i++) x[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
    for (int i = 0; i < BATCH * 5; i++) y[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
    for (int step = 0; step < 10 && !status; step++) {
        wf_step_result result;
        status = wf_trainer_step(trainer, feeds, 2, BATCH, &result);
        if (!status) printf("step %d: loss %.5f\n", step, result.loss);
    }
    wf_trainer_destroy(trainer);
    return status;
}

/* The program of two ranks: nothing runs. */
static wf_status show(wf_context *ctx, const wf_model *model, const wf_recipe *recipe) {
    wf_plan *plan;
    wf_program *program;
    char *text;
    wf_status status = wf_plan_parse(ctx, "pp=2,cut=second", &plan);
    if (status) return status;
    status = wf_program_create(ctx, model, recipe, plan, WF_PROGRAM_TRAIN, &program);
    wf_plan_destroy(plan);
    if (status) return status;
    status = wf_program_text(program, &text);
    if (!status) {
        printf("\n%s", text);
        wf_text_free(ctx, text);
    }
    wf_program_destroy(program);
    return status;
}

int main(void) {
    wf_context *ctx;
    wf_model *model = NULL;
    wf_recipe recipe = WF_RECIPE_INIT;
    recipe.batch = BATCH;
    recipe.optimizer = WF_SGD;
    recipe.lr = 0.001;
    if (wf_context_create(NULL, &ctx)) return 1;
    wf_status status = wf_model_create(ctx, "toy", toy, NULL, 0, &model);
    if (!status) status = train(ctx, model, &recipe);
    if (!status) status = show(ctx, model, &recipe);
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_model_destroy(model);
    wf_context_destroy(ctx);
    return status != WF_OK;
}
