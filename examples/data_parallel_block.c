/* One block of a model over several devices, as in PyTorch's tutorial on several GPUs:
 *
 *     self.block1 = nn.Linear(10, 20)
 *     self.block2 = nn.DataParallel(nn.Linear(20, 20))
 *     self.block3 = nn.Linear(20, 20)
 *
 * The model names its blocks, the plan spreads the second; without a plan the same program runs on
 * one device, and learns the same.
 *
 *     build/examples/data_parallel_block [PLAN...]
 */
#include <stdio.h>
#include <weft/weft.h>

#define BATCH   30
#define N_STEPS 5

#define TRY(call)                                                                                  \
    if ((status = (call)) != WF_OK) goto end

static void blocks(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(10));
    wf_tensor labels = wf_input(g, "labels", WF_F32, WF_SHAPE(20));
    x = wf_linear(wf_cut(x, "block1"), "block1", 20);
    x = wf_linear(wf_cut(x, "block2"), "block2", 20);
    x = wf_linear(wf_cut(x, "block3"), "block3", 20);
    wf_loss(wf_mse(x, labels));
}

static wf_status train(wf_context *ctx, const char *plan_text) {
    float x[BATCH * 10], labels[BATCH * 20];
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"labels", labels, sizeof labels}};
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_trainer *trainer = NULL;
    wf_step_result result = {0};
    wf_status status;
    for (int i = 0; i < BATCH * 10; i++) x[i] = (float)(i % 11) / 11 - 0.5f;
    for (int i = 0; i < BATCH * 20; i++) labels[i] = (float)(i % 7) / 7;
    recipe.batch = BATCH;
    recipe.n_lanes = 2; /* as many as share the work, for the same bits */
    TRY(wf_model_create(ctx, "blocks", blocks, NULL, 0, &model));
    TRY(wf_plan_parse(ctx, plan_text, &plan));
    TRY(wf_trainer_create(ctx, model, &recipe, plan, NULL, &trainer));
    for (int step = 0; step < N_STEPS; step++)
        TRY(wf_trainer_step(trainer, feeds, 2, BATCH, &result));
    printf("%s: loss %.17g", *plan_text ? plan_text : "one device", result.loss);
    const wf_program *program = wf_trainer_program(trainer);
    for (int r = 0; r < wf_program_n_ranks(program); r++)
        printf(", %lld parameters on rank %d", (long long)wf_program_rank(program, r).n_parameters,
               r);
    printf("\n");
end:
    wf_trainer_destroy(trainer);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    return status;
}

int main(int argc, char **argv) {
    static const char *const plans[] = {"", "block2:dataparallel=2", "block2:dp=2"};
    wf_status status = WF_OK;
    wf_context *ctx;
    if (wf_context_create(NULL, &ctx)) return 1;
    for (int k = 1; k < argc && !status; k++) status = train(ctx, argv[k]);
    for (int k = 0; k < 3 && argc == 1 && !status; k++) status = train(ctx, plans[k]);
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_context_destroy(ctx);
    return status != WF_OK;
}
