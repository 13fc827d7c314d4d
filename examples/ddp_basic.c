/* The basic example of PyTorch's DDP tutorial: one process a rank, each with 20 samples of its
 * own; gradients are summed while backward runs, and all ranks keep the same weights.
 *
 *     weft run -n 2 build/examples/ddp_basic
 *
 * mpirun, srun and torchrun start it as well, or a shell that sets RANK and WORLD_SIZE.
 */
#include <stdio.h>
#include <weft/weft.h>

#define N_OWN   20
#define N_STEPS 3

#define TRY(call)                                                                                  \
    if ((status = (call)) != WF_OK) goto end

static void toy(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(10));
    wf_tensor labels = wf_input(g, "labels", WF_F32, WF_SHAPE(5));
    x = wf_relu(wf_linear(x, "net1", 10));
    wf_loss(wf_mse(wf_linear(x, "net2", 5), labels));
}

/* The same numbers in [-1, 1) wherever this runs; others for every rank. */
static void fill_random(float *numbers, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
}

int main(void) {
    wf_context *ctx;
    wf_job *job = NULL;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_trainer *trainer = NULL;
    wf_status status;
    char text[32];
    float x[N_OWN * 10], labels[N_OWN * 5], bias[5];
    wf_feed feeds[] = {{"x", x, sizeof x}, {"labels", labels, sizeof labels}};
    wf_step_result result;
    if (wf_context_create(NULL, &ctx)) return 1;

    /* dist.init_process_group: who am I, and where are the others? */
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    meeting.init = "env://";
    TRY(wf_job_join(ctx, &meeting, &job));
    int rank = wf_job_rank(job), n_ranks = wf_job_n_ranks(job);
    printf("Running basic DDP example on rank %d.\n", rank);

    /* DDP(model): the plan says it. */
    snprintf(text, sizeof text, "dp=%d", n_ranks);
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    recipe.batch = N_OWN * n_ranks;
    recipe.lr = 0.001;
    config.job = job;
    config.own_batch = 1;
    TRY(wf_model_create(ctx, "toy", toy, NULL, 0, &model));
    TRY(wf_plan_parse(ctx, text, &plan));
    TRY(wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer));

    fill_random(x, N_OWN * 10, 2 * (uint32_t)rank);
    fill_random(labels, N_OWN * 5, 2 * (uint32_t)rank + 1);
    for (int step = 1; step <= N_STEPS; step++) {
        TRY(wf_trainer_step(trainer, feeds, 2, N_OWN, &result));
        if (rank == 0)
            printf("step %d: loss %.6f over %lld samples\n", step, result.loss,
                   (long long)result.n_rows);
    }
    TRY(wf_trainer_read(trainer, "net2.bias", bias, sizeof bias));
    printf("rank %d: net2.bias begins with %.6f\n", rank, bias[0]);

end:
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_trainer_destroy(trainer);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    wf_job_leave(job); /* dist.destroy_process_group */
    wf_context_destroy(ctx);
    return status != WF_OK;
}
