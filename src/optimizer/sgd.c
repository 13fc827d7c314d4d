/* Stochastic gradient descent, with momentum and Nesterov's look ahead. */
#include "optimizer/optimizer.h"

static int n_states(const wf_recipe *recipe) {
    return recipe->momentum != 0;
}

static wfi_update_rule rule_of(const wfi_update *u) {
    const wf_recipe *r = u->recipe;
    return (wfi_update_rule){
        .kind = !n_states(r)  ? WFI_RULE_SGD
                : r->nesterov ? WFI_RULE_NESTEROV
                              : WFI_RULE_MOMENTUM,
        .numbers = {u->scale, (float)r->weight_decay, (float)u->lr, (float)r->momentum}};
}

const wfi_optimizer wfi_optimizer_sgd = {
    .states = {"momentum"},
    .n_states = n_states,
    .rule = rule_of,
};
