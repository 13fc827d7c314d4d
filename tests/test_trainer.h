/* A trainer as a test wants it. */
#pragma once

#include "sharded_plan.h"

/* Of the model, which is destroyed. `config` may be NULL. */
static inline wf_trainer *test_trainer(wf_context *ctx, wf_model *model, const wf_recipe *recipe,
                                       const char *plan_text, const wf_trainer_config *config) {
    wf_trainer *t;
    wf_plan *plan = test_plan(ctx, plan_text);
    TEST_OK(ctx, wf_trainer_create(ctx, model, recipe, plan, config, &t));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return t;
}

/* Of a model that needs no configuration; may fail. */
static inline wf_status test_try_trainer(wf_context *ctx, wf_model_function function,
                                         const wf_recipe *recipe, const char *plan_text,
                                         const wf_trainer_config *config,
                                         wf_trainer **trainer_out) {
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_status status = wf_model_create(ctx, "small", function, NULL, 0, &model);
    if (!status) status = sharded_parse(ctx, plan_text, &plan);
    if (!status) status = wf_trainer_create(ctx, model, recipe, plan, config, trainer_out);
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return status;
}
