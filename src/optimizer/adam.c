/* Adam (Kingma and Ba, 2015), and AdamW with decoupled weight decay (Loshchilov and Hutter,
 * 2019). */
#include "optimizer/optimizer.h"

#include <math.h>

static int n_states(const wf_recipe *recipe) {
    (void)recipe;
    return 2;
}

static wfi_update_rule rule_of(const wfi_update *u) {
    const wf_recipe *r = u->recipe;
    bool decoupled = r->optimizer == WF_ADAMW;
    double correction1 = 1 - pow(r->beta1, (double)(u->step + 1));
    double correction2 = 1 - pow(r->beta2, (double)(u->step + 1));
    return (wfi_update_rule){.kind = WFI_RULE_ADAM,
                             .numbers = {
                                 u->scale,
                                 decoupled ? 0.0f : (float)r->weight_decay,
                                 (float)(u->lr / correction1),
                                 decoupled ? (float)(1 - u->lr * r->weight_decay) : 1.0f,
                                 (float)r->beta1,
                                 (float)(1 - r->beta1),
                                 (float)r->beta2,
                                 (float)(1 - r->beta2),
                                 (float)sqrt(correction2),
                                 (float)r->epsilon,
                             }};
}

const wfi_optimizer wfi_optimizer_adam = {
    .states = {"first_moment", "second_moment"},
    .n_states = n_states,
    .rule = rule_of,
};
