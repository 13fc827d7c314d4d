#include "kernel/update.h"

#include <math.h>

void wfi_report_norm(double total, double *norm_out) {
    double norm = sqrt(total);
    /* The same on all ranks that update; any of them may be the only one here. */
    __atomic_store(norm_out, &norm, __ATOMIC_RELAXED);
}

float wfi_clip_scale(double limit, double total) {
    double norm = sqrt(total);
    /* PyTorch adds 1e-6 to the norm so that a zero gradient divides well. */
    return norm > limit ? (float)(limit / (norm + 1e-6)) : 1.0f;
}

wf_status wfi_update_groups(const wfi_update_call *c, float scale,
                            wf_status (*update)(void *self, const wfi_update *update), void *self) {
    const wfi_param_group *group = c->groups;
    for (size_t at = 0, end; at < c->n; at = end, group++) {
        while (group->end <= c->begin + at * sizeof(float)) group++;
        end = (group->end - c->begin) / sizeof(float);
        if (end > c->n) end = c->n;
        wf_recipe recipe = *c->recipe;
        if (recipe.no_bias_decay && !group->has_matrix) recipe.weight_decay = 0;
        wfi_update u = {.recipe = &recipe,
                        .lr = c->lr * group->lr_scale,
                        .step = c->step,
                        .scale = scale,
                        .param = c->param + at,
                        .gradient = c->gradient + at,
                        .n = end - at};
        for (int k = 0; k < wfi_recipe_n_states(&recipe); k++) u.state[k] = c->state[k] + at;
        WF_TRY(update(self, &u));
    }
    return WF_OK;
}
