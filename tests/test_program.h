/* A program as a test wants it. */
#pragma once

#include "test.h"

/* A step of training. */
static inline wf_program *test_program(wf_context *ctx, const wf_model *model,
                                       const wf_recipe *recipe, const char *plan_text) {
    wf_program *p;
    wf_plan *plan = test_plan(ctx, plan_text);
    TEST_OK(ctx, wf_program_create(ctx, model, recipe, plan, WF_PROGRAM_TRAIN, &p));
    wf_plan_destroy(plan);
    return p;
}
