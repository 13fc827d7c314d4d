/* The checkpoint example of PyTorch's DDP tutorial: one rank writes the file, all wait for it at
 * a barrier and read it. There is no map_location: a file holds names and numbers, and where they
 * go is what the reader's plan and devices say. So what two ranks wrote, one may read.
 *
 *     weft run -n 2 build/examples/ddp_checkpoint
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

#define BATCH 40

#define TRY(call)                                                                                  \
    if ((status = (call)) != WF_OK) goto end

static void toy(wf_graph *g, const void *config) {
    (void)config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(10));
    wf_tensor labels = wf_input(g, "labels", WF_F32, WF_SHAPE(5));
    x = wf_relu(wf_linear(x, "net1", 10));
    wf_loss(wf_mse(wf_linear(x, "net2", 5), labels));
}

static float x[BATCH * 10], labels[BATCH * 5];
static const wf_feed feeds[] = {{"x", x, sizeof x}, {"labels", labels, sizeof labels}};

static void fill_random(float *numbers, int n, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
    }
}

/* A trainer of the toy, of this rank of the job or, without one, alone. */
static wf_status make(wf_context *ctx, wf_job *job, uint64_t seed, wf_trainer **trainer_out) {
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    char text[32];
    snprintf(text, sizeof text, "dp=%d", job ? wf_job_n_ranks(job) : 1);
    recipe.batch = BATCH;
    recipe.n_lanes = 2; /* as many ranks as may take part, for the same bits */
    recipe.lr = 0.001;
    recipe.seed = seed;
    config.job = job;
    wf_status status = wf_model_create(ctx, "toy", toy, NULL, 0, &model);
    if (!status) status = wf_plan_parse(ctx, text, &plan);
    if (!status) status = wf_trainer_create(ctx, model, &recipe, plan, &config, trainer_out);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    return status;
}

int main(void) {
    wf_context *ctx;
    wf_job *job = NULL;
    wf_trainer *trainer = NULL;
    wf_place place = {0, 1, 0, 1, "", ""};
    wf_status status;
    wf_step_result result;
    char path[300];
    if (wf_context_create(NULL, &ctx)) return 1;
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    meeting.init = "env://";
    TRY(wf_launch_place(ctx, &place)); /* for a file name of this job's own */
    TRY(wf_job_join(ctx, &meeting, &job));
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(path, sizeof path, "%s/weft-toy-%s.safetensors", folder, place.job);
    fill_random(x, BATCH * 10, 1);
    fill_random(labels, BATCH * 5, 2);

    /* All ranks start from the same weights and keep them the same: one can save for all. */
    TRY(make(ctx, job, 0, &trainer));
    TRY(wf_trainer_step(trainer, feeds, 2, BATCH, &result));
    TRY(wf_trainer_save(trainer, path)); /* all call it, rank 0 writes */
    TRY(wf_trainer_step(trainer, feeds, 2, BATCH, &result));
    printf("saved after step 1; step 2: loss %.6f\n", result.loss);
    wf_trainer_destroy(trainer);
    trainer = NULL;

    /* Nobody reads before the file is complete. */
    TRY(wf_job_barrier(job));
    TRY(make(ctx, job, 1, &trainer)); /* other random weights */
    TRY(wf_trainer_load_weights(trainer, path));
    TRY(wf_trainer_step(trainer, feeds, 2, BATCH, &result));
    printf("%d ranks read it; step 2: loss %.6f\n", place.n_ranks, result.loss);
    wf_trainer_destroy(trainer);
    trainer = NULL;

    if (place.rank == 0) {
        TRY(make(ctx, NULL, 2, &trainer));
        TRY(wf_trainer_load_weights(trainer, path));
        TRY(wf_trainer_step(trainer, feeds, 2, BATCH, &result));
        printf("one rank reads it; step 2: loss %.6f\n", result.loss);
    }

end:
    if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
    wf_trainer_destroy(trainer);
    if (job && !status) status = wf_job_barrier(job);
    if (place.rank == 0) remove(path);
    wf_job_leave(job);
    wf_context_destroy(ctx);
    return status != WF_OK;
}
