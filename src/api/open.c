/* A trainer from a model function and two texts: the common case as one call. */
#include "api/trainer.h"

typedef struct borrowed_model {
    wf_model_function function;
    const void *config;
} borrowed_model;

static void declare(wf_graph *g, const void *config) {
    const borrowed_model *model = config;
    model->function(g, model->config);
}

wf_status wf_trainer_open(wf_context *ctx, wf_model_function function, const void *config,
                          const char *recipe_text, const char *plan_text,
                          wf_trainer **trainer_out) {
    const borrowed_model borrowed = {function, config};
    wf_recipe recipe;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_status status = wf_recipe_parse(ctx, recipe_text, &recipe);
    if (status == WF_OK) status = wf_plan_parse(ctx, plan_text, &plan);
    if (status == WF_OK)
        status = wf_model_create(ctx, "model", declare, &borrowed, sizeof borrowed, &model);
    if (status == WF_OK) status = wf_trainer_create(ctx, model, &recipe, plan, NULL, trainer_out);
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return status;
}
