#include "optimizer/optimizer.h"

#include "base/finite.h"

/* Elements updated before the check for non-finite values: few enough to remain in the cache. */
#define BLOCK_ELEMENTS 4096

const wfi_optimizer *wfi_optimizer_of(const wf_recipe *recipe) {
    static const wfi_optimizer *const optimizers[] = {[WF_SGD] = &wfi_optimizer_sgd,
                                                      [WF_ADAM] = &wfi_optimizer_adam,
                                                      [WF_ADAMW] = &wfi_optimizer_adam};
    return optimizers[recipe->optimizer];
}

int wfi_recipe_n_states(const wf_recipe *recipe) {
    return wfi_optimizer_of(recipe)->n_states(recipe) + (recipe->ema > 0);
}

int wfi_recipe_average(const wf_recipe *recipe) {
    return recipe->ema > 0 ? wfi_recipe_n_states(recipe) - 1 : -1;
}

const char *wfi_recipe_state_name(const wf_recipe *recipe, int state) {
    return state == wfi_recipe_average(recipe) ? "average"
                                               : wfi_optimizer_of(recipe)->states[state];
}

/* A first state that is not finite makes the parameter so in the same step. */
static wfi_update_result look(const wfi_update *u) {
    if (wfi_find_not_finite(u->param, u->n) < u->n) return WFI_UPDATE_PARAM;
    bool is_lost = u->state[1] && wfi_find_not_finite(u->state[1], u->n) < u->n;
    return is_lost ? WFI_UPDATE_STATE : WFI_UPDATE_FINITE;
}

wfi_update_result wfi_optimizer_update(const wf_recipe *recipe, double lr, int64_t step,
                                       float gradient_scale, float *param, const float *gradient,
                                       float *const *state, size_t n) {
    int n_states = wfi_optimizer_of(recipe)->n_states(recipe), average = wfi_recipe_average(recipe);
    wfi_variant variant = wfi_best_variant();
    wfi_update_result worst = WFI_UPDATE_FINITE;
    for (size_t at = 0; at < n; at += BLOCK_ELEMENTS) {
        wfi_update u = {.recipe = recipe,
                        .lr = lr,
                        .step = step,
                        .scale = gradient_scale,
                        .param = param + at,
                        .gradient = gradient + at,
                        .n = n - at < BLOCK_ELEMENTS ? n - at : BLOCK_ELEMENTS};
        for (int k = 0; k < n_states; k++) u.state[k] = state[k] + at;
        wfi_update_run(variant, &u);
        if (average >= 0)
            wfi_average_update(variant, recipe, step, u.param, state[average] + at, u.n);
        wfi_update_result now = look(&u);
        if (now > worst) worst = now;
    }
    return worst;
}
