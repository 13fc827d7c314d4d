/* Trainers that look at the order of events while they run. */
#pragma once

#include "api/trainer.h"
#include "small_models.h"

/* Two units, a tied weight, batch statistics; small, because many are made. */
static inline void tiny_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(16, 16), (wf_init){WF_INIT_NORMAL, 0.2f});
    wf_tensor none = {g, -1};
    wf_tensor h = wf_linear(wf_reshape(x, WF_SHAPE(-1, 192)), "fc1", 16);
    h = wf_cut(wf_linear_with(wf_relu(wf_batch_norm(h, "bn")), tied, none), "second");
    h = wf_relu(wf_linear(h, "fc2", 16));
    wf_loss(wf_cross_entropy(wf_linear(wf_linear_with(h, tied, none), "fc3", 10), y));
}

static inline wf_recipe checked_recipe(void) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 4, .n_lanes = 2, .clip_norm = 0.5, .n_threads = 1,
                                    .kernels = WF_KERNELS_REFERENCE);
    return recipe;
}

static inline wf_trainer *checked_trainer(wf_context *ctx, wf_model_function function,
                                          const char *plan) {
    wf_recipe recipe = checked_recipe();
    wf_trainer *t = planned_trainer(ctx, function, &recipe, plan, NULL, 0);
    assert_non_null(t->ready[0]->executor->happens);
    return t;
}
