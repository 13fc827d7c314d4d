/* Strategies that no plan can name yet: what they ask for shows that lowering knows no strategy. */
#ifndef TESTS_SHARDED_PLAN_H
#define TESTS_SHARDED_PLAN_H

#include "plan/plan.h"
#include "test.h"

/* Each replica updates its slice of the parameters, and all gather them. */
static const wfi_strategy sharded_state = {
    .name = "sharded state",
    .parameter = WFI_REPLICATE,
    .gradient = WFI_SHARD,
    .state = WFI_SHARD,
    .buffer = WFI_REPLICATE,
};
/* The same, but every replica sums all of the gradient. */
static const wfi_strategy whole_gradient = {
    .name = "whole gradient",
    .parameter = WFI_REPLICATE,
    .gradient = WFI_REPLICATE,
    .state = WFI_SHARD,
    .buffer = WFI_REPLICATE,
};

/* Parameters, too: each replica has a slice, and all gather it before use. */
static const wfi_strategy sharded_all = {
    .name = "sharded all",
    .parameter = WFI_SHARD,
    .gradient = WFI_SHARD,
    .state = WFI_SHARD,
    .buffer = WFI_REPLICATE,
};
static const wfi_strategy *const sharded[] = {&sharded_state, &whole_gradient, &sharded_all};

static inline wf_plan *sharded_plan(wf_context *ctx, const char *text,
                                    const wfi_strategy *strategy) {
    wf_plan *plan;
    TEST_OK(ctx, wf_plan_parse(ctx, text, &plan));
    plan->strategy = strategy;
    return plan;
}

/* As wf_plan_parse; in front of a plan may stand the name of one of them: "sharded all: dp=2". */
static inline wf_status sharded_parse(wf_context *ctx, const char *text, wf_plan **plan_out) {
    const char *colon = strstr(text, ": ");
    WF_TRY(wf_plan_parse(ctx, colon ? colon + 2 : text, plan_out));
    for (size_t k = 0; colon && k < WFI_COUNT(sharded); k++)
        if (!strncmp(text, sharded[k]->name, (size_t)(colon - text)))
            (*plan_out)->strategy = sharded[k];
    return WF_OK;
}

#endif
