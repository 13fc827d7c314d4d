/* Strategies that divide state, one that no plan can name among them: what that asks for shows that
 * lowering knows no strategy. */
#pragma once

#include "plan/plan.h"
#include "test.h"

/* Each replica updates its slice of the parameters, but sums all of the gradient. */
static const wfi_strategy whole_gradient = {
    .name = "whole gradient",
    .parameter = WFI_REPLICATE,
    .gradient = WFI_REPLICATE,
    .state = WFI_SHARD,
    .buffer = WFI_REPLICATE,
};
static const wfi_strategy *const sharded[] = {&wfi_strategy_zero1, &whole_gradient,
                                              &wfi_strategy_zero2, &wfi_strategy_zero3};

static inline wf_plan *sharded_plan(wf_context *ctx, const char *text,
                                    const wfi_strategy *strategy) {
    wf_plan *plan = test_plan(ctx, text);
    plan->strategy = strategy;
    return plan;
}

/* As wf_plan_parse; in front of a plan may stand the name of one of them: "whole gradient: dp=2".
 */
static inline wf_status sharded_parse(wf_context *ctx, const char *text, wf_plan **plan_out) {
    const char *colon = strstr(text, ": ");
    WF_TRY(wf_plan_parse(ctx, colon ? colon + 2 : text, plan_out));
    for (size_t k = 0; colon && k < WFI_COUNT(sharded); k++)
        if (!strncmp(text, sharded[k]->name, (size_t)(colon - text)))
            (*plan_out)->strategy = sharded[k];
    return WF_OK;
}
