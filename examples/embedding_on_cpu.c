/* Part of a model on one device, the rest on another, as in PyTorch's tutorial on several GPUs:
 * an embedding of 1000 words, too large for the fast device or too rarely used, stays on the
 * first; what is computed with it goes to the second. One line of the model says where.
 *
 *     build/examples/embedding_on_cpu [DEVICES]           cpu:0,cpu:1
 */
#include <stdio.h>
#include <weft/weft.h>

#define BATCH 16

#define TRY(call)                                                                                  \
    if ((status = (call)) != WF_OK) goto end

static void distributed_model(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "words", WF_I32, WF_SCALAR);
    wf_tensor labels = wf_input(g, "labels", WF_F32, WF_SHAPE(10));
    x = wf_embedding(x, "embedding", 1000, 10, 1);
    x = wf_next_stage(x, "second"); /* the tutorial's x.to(device) */
    x = wf_linear(x, "rnn", 10);
    wf_output(x, "y");
    wf_loss(wf_mse(x, labels));
}

static wf_status run(wf_context *ctx, const char *plan_text, const char *devices) {
    int32_t words[BATCH];
    float labels[BATCH * 10], y[BATCH * 10];
    const wf_feed feeds[] = {{"words", words, sizeof words}, {"labels", labels, sizeof labels}};
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_trainer *trainer = NULL;
    wf_step_result result;
    wf_status status;
    for (int i = 0; i < BATCH; i++) words[i] = i * 61 % 1000;
    for (int i = 0; i < BATCH * 10; i++) labels[i] = (float)(i % 7) / 7;
    recipe.batch = BATCH;
    config.devices = devices;
    TRY(wf_model_create(ctx, "distributed", distributed_model, NULL, 0, &model));
    TRY(wf_plan_parse(ctx, plan_text, &plan));
    TRY(wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer));
    for (int step = 0; step < 10; step++) TRY(wf_trainer_step(trainer, feeds, 2, BATCH, &result));
    TRY(wf_trainer_forward(trainer, feeds, 1, BATCH, "y", y, sizeof y));
    for (int r = 0; r < wf_program_n_ranks(wf_trainer_program(trainer)); r++) {
        wf_rank_summary rank = wf_program_rank(wf_trainer_program(trainer), r);
        char name[WF_DEVICE_NAME_BYTES];
        TRY(wf_devices_name(ctx, devices, r, name));
        printf("%s: %lld parameters, ", name, (long long)rank.n_parameters);
    }
    printf("loss %.17g, y begins with %.9g\n", result.loss, (double)y[0]);
end:
    wf_trainer_destroy(trainer);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    return status;
}

int main(int argc, char **argv) {
    wf_context *ctx;
    if (wf_context_create(NULL, &ctx)) return 1;
    wf_status status = run(ctx, "pp=2", argc > 1 ? argv[1] : "cpu:0,cpu:1");
    if (!status) status = run(ctx, "", "cpu");
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_context_destroy(ctx);
    return status != WF_OK;
}
