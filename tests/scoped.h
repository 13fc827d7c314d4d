/* Variables that their scope destroys: `scoped_plan plan;` is a wf_plan *. A failed test leaves
 * them. */
#pragma once

#include "test.h"

#define SCOPED(type, destroy)                                                                      \
    static inline void test_end_##type(wf_##type **one) {                                          \
        destroy(*one);                                                                             \
    }
SCOPED(array, wf_array_destroy)
SCOPED(cluster, wf_cluster_destroy)
SCOPED(context, test_context_end)
SCOPED(costs, wf_costs_destroy)
SCOPED(data, wf_data_close)
SCOPED(graph, wf_graph_destroy)
SCOPED(loader, wf_loader_destroy)
SCOPED(model, wf_model_destroy)
SCOPED(module, wf_module_destroy)
SCOPED(plan, wf_plan_destroy)
SCOPED(program, wf_program_destroy)
SCOPED(safetensors, wf_safetensors_close)
SCOPED(simulation, wf_simulation_destroy)
SCOPED(timeline, wf_timeline_destroy)
SCOPED(tokenizer, wf_tokenizer_destroy)
SCOPED(trainer, wf_trainer_destroy)

#define SCOPED_END(type)   __attribute__((cleanup(test_end_##type))) wf_##type *
#define scoped_array       SCOPED_END(array)
#define scoped_cluster     SCOPED_END(cluster)
#define scoped_context     SCOPED_END(context)
#define scoped_costs       SCOPED_END(costs)
#define scoped_data        SCOPED_END(data)
#define scoped_graph       SCOPED_END(graph)
#define scoped_loader      SCOPED_END(loader)
#define scoped_model       SCOPED_END(model)
#define scoped_module      SCOPED_END(module)
#define scoped_plan        SCOPED_END(plan)
#define scoped_program     SCOPED_END(program)
#define scoped_safetensors SCOPED_END(safetensors)
#define scoped_simulation  SCOPED_END(simulation)
#define scoped_timeline    SCOPED_END(timeline)
#define scoped_tokenizer   SCOPED_END(tokenizer)
#define scoped_trainer     SCOPED_END(trainer)

/* Differ from the defaults in the fields that are given: TEST_RECIPE(.batch = 4, .n_micro = 2). */
#define TEST_RECIPE(...)                                                                           \
    ((wf_recipe){sizeof(wf_recipe) WF_RECIPE_FIELDS(WF_RECIPE_VALUE), __VA_ARGS__})
#define TEST_MODEL(...)                                                                            \
    ((wf_model_config){sizeof(wf_model_config) WF_MODEL_FIELDS(WF_MODEL_VALUE), __VA_ARGS__})

static inline wf_plan *test_plan(wf_context *ctx, const char *text) {
    wf_plan *plan;
    TEST_OK(ctx, wf_plan_parse(ctx, text, &plan));
    return plan;
}

static inline wf_model *test_model(wf_context *ctx, const char *name, wf_model_function function,
                                   const void *config, size_t config_bytes) {
    wf_model *model;
    TEST_OK(ctx, wf_model_create(ctx, name, function, config, config_bytes, &model));
    return model;
}

static inline wf_model *test_find_model(wf_context *ctx, const char *name,
                                        const wf_model_config *config) {
    wf_model *model;
    TEST_OK(ctx, wf_model_find(ctx, name, config, &model));
    return model;
}
