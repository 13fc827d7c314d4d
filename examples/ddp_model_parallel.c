/* The model parallel example of PyTorch's DDP tutorial: the first layer on one device, the
 * second on another, and two replicas of this pair.
 *
 *     weft run -n 4 build/examples/ddp_model_parallel     four processes, a device each
 *     build/examples/ddp_model_parallel 4                 four devices, ranks as threads
 *     build/examples/ddp_model_parallel 2                 two devices, which both replicas share
 *
 * As there, replica r lives on devices (2 r) % n and (2 r + 1) % n. The loss is that of one device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

#define BATCH   40
#define N_STEPS 3

#define TRY(call)                                                                                  \
    if ((status = (call)) != WF_OK) goto end

static void toy(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(10));
    wf_tensor labels = wf_input(g, "labels", WF_F32, WF_SHAPE(5));
    x = wf_relu(wf_linear(x, "net1", 10));
    x = wf_next_stage(x, "dev1"); /* the tutorial's x.to(self.dev1) */
    wf_loss(wf_mse(wf_linear(x, "net2", 5), labels));
}

static void fill_random(float *numbers, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
}

static wf_status train(wf_context *ctx, const char *plan_text, const char *devices, wf_job *job) {
    static float x[BATCH * 10], labels[BATCH * 5];
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"labels", labels, sizeof labels}};
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_trainer *trainer = NULL;
    wf_step_result result = {0};
    wf_status status;
    recipe.batch = BATCH;
    recipe.n_micro = 4;
    recipe.n_lanes = 2;
    recipe.lr = 0.001;
    config.devices = devices;
    config.job = job;
    fill_random(x, BATCH * 10, 1);
    fill_random(labels, BATCH * 5, 2);
    TRY(wf_model_create(ctx, "toy", toy, NULL, 0, &model));
    TRY(wf_plan_parse(ctx, plan_text, &plan));
    TRY(wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer));
    for (int step = 0; step < N_STEPS; step++)
        TRY(wf_trainer_step(trainer, feeds, 2, BATCH, &result));
    printf("%s on %s: loss %.17g\n", *plan_text ? plan_text : "no plan",
           devices ? devices : "a device for each process", result.loss);
end:
    wf_trainer_destroy(trainer);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    return status;
}

int main(int argc, char **argv) {
    wf_context *ctx;
    wf_job *job = NULL;
    wf_status status;
    char devices[100];
    int n = argc > 1 ? atoi(argv[1]) : 2;
    if (n < 1) return fprintf(stderr, "usage: ddp_model_parallel [NUMBER OF DEVICES]\n"), 2;
    if (wf_context_create(NULL, &ctx)) return 1;
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    meeting.init = "env://";
    TRY(wf_job_join(ctx, &meeting, &job));
    if (wf_job_n_ranks(job) > 1) {
        TRY(train(ctx, "dp=2,pp=2", NULL, job));
    } else {
        snprintf(devices, sizeof devices, "cpu:%d,cpu:%d,cpu:%d,cpu:%d", 0, 1 % n, 2 % n, 3 % n);
        TRY(train(ctx, "dp=2,pp=2", devices, NULL));
    }
    if (wf_job_rank(job) == 0) TRY(train(ctx, "", "cpu", NULL));
end:
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_job_leave(job);
    wf_context_destroy(ctx);
    return status != WF_OK;
}
