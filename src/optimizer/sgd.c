/* Stochastic gradient descent, with momentum and Nesterov's look ahead; PyTorch's formulas. */
#include "optimizer/optimizer.h"

WFI_LOOP void plain(const wfi_update *u) {
    float *restrict param = u->param, lr = (float)u->lr, scale = u->scale;
    const float *restrict gradient = u->gradient;
    float decay = (float)u->recipe->weight_decay;
    for (size_t i = 0; i < u->n; i++) {
        float g = gradient[i] * scale + decay * param[i];
        param[i] -= lr * g;
    }
}

WFI_LOOP void with_momentum(const wfi_update *u) {
    float *restrict param = u->param, *restrict momentum = u->state[0];
    const float *restrict gradient = u->gradient;
    float lr = (float)u->lr, scale = u->scale;
    float decay = (float)u->recipe->weight_decay, mu = (float)u->recipe->momentum;
    for (size_t i = 0; i < u->n; i++) {
        float g = gradient[i] * scale + decay * param[i];
        momentum[i] = mu * momentum[i] + g;
        param[i] -= lr * momentum[i];
    }
}

WFI_LOOP void with_nesterov(const wfi_update *u) {
    float *restrict param = u->param, *restrict momentum = u->state[0];
    const float *restrict gradient = u->gradient;
    float lr = (float)u->lr, scale = u->scale;
    float decay = (float)u->recipe->weight_decay, mu = (float)u->recipe->momentum;
    for (size_t i = 0; i < u->n; i++) {
        float g = gradient[i] * scale + decay * param[i];
        momentum[i] = mu * momentum[i] + g;
        param[i] -= lr * (g + mu * momentum[i]);
    }
}

WFI_VARIANTS(run_plain, wfi_update, plain)
WFI_VARIANTS(run_momentum, wfi_update, with_momentum)
WFI_VARIANTS(run_nesterov, wfi_update, with_nesterov)

static int n_states(const wf_recipe *recipe) {
    return recipe->momentum != 0;
}

static void update(wfi_variant variant, const wfi_update *u) {
    if (!n_states(u->recipe))
        run_plain(variant, u);
    else if (u->recipe->nesterov)
        run_nesterov(variant, u);
    else
        run_momentum(variant, u);
}

const wfi_optimizer wfi_optimizer_sgd = {
    .states = {"momentum"},
    .n_states = n_states,
    .update = update,
};
