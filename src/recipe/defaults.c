/* Defaults of the recipe: functions of the model and the recipe, never of the plan. */
#include "recipe/defaults.h"

#define MOST_LANES  8
#define MOST_SLICES 4
/* Samples of a microbatch from which batch norm takes its statistics. */
#define LEAST_OF_BATCH_NORM 16

/* Layers of one family are equal, so a check of two holds for a thousand and is fast. */
#define FEW_LAYERS 2

static wf_status copy_few_layers(const wf_model *model, wf_model **few_out) {
    int64_t n = wfi_model_n_layers(model);
    return n > FEW_LAYERS ? wfi_model_with_layers(model, FEW_LAYERS, few_out)
                          : wfi_model_copy(model, few_out);
}

wf_status wfi_recipe_look(const wf_model *model, int32_t most_slices, wfi_model_facts *facts_out) {
    wf_model *few;
    *facts_out = (wfi_model_facts){.n_slices = 1};
    if (!model) return WF_OK;
    WF_TRY(copy_few_layers(model, &few));
    wf_status status =
        wfi_model_look(model->ctx, few->function, few->config, most_slices, facts_out);
    wf_model_destroy(few);
    return status;
}

wf_status wfi_recipe_check_slices(const wf_model *model, int32_t n_slices) {
    wf_model *few;
    WF_TRY(copy_few_layers(model, &few));
    wf_status status = wfi_model_check_slices(model->ctx, few->function, few->config, n_slices);
    wf_model_destroy(few);
    return status;
}

/* The largest power of two that divides the microbatches, or, if these are open, the batch. */
static int64_t default_lanes(const wf_recipe *r, const wfi_model_facts *facts) {
    int64_t divided = r->n_micro ? r->n_micro : r->batch, n = MOST_LANES;
    int64_t least = facts->has_batch_norm && !r->n_micro ? LEAST_OF_BATCH_NORM : 1;
    while (n > 1 && (divided % n || r->batch / n < least)) n /= 2;
    return n;
}

wf_status wfi_recipe_fill(const wf_model *model, wf_recipe *r) {
    wfi_model_facts facts;
    if (r->n_lanes && r->n_slices) return WF_OK;
    WF_TRY(wfi_recipe_look(model, MOST_SLICES, &facts));
    if (!r->n_lanes) r->n_lanes = default_lanes(r, &facts);
    if (!r->n_slices) r->n_slices = facts.n_slices;
    return WF_OK;
}
