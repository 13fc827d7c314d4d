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

static inline wf_plan *sharded_plan(wf_context *ctx, const char *text,
                                    const wfi_strategy *strategy) {
    wf_plan *plan;
    TEST_OK(ctx, wf_plan_parse(ctx, text, &plan));
    plan->strategy = strategy;
    return plan;
}

#endif
