/* The recipe: its numbers, its learning rates and its parts. */
#include "recipe/recipe.h"
#include "recipe/fields.h"

#include <math.h>
#include <string.h>

static double warmup_lr(const wf_recipe *r, int64_t step) {
    double n = (double)r->warmup_steps, at = (double)(step + 1);
    if (r->warmup_shape == WF_WARMUP_LINEAR) return r->lr * at / n;
    return r->lr * (log(at) / log(fmax(2, n))); /* as DeepSpeed's WarmupLR, also of one step */
}

double wf_recipe_lr(const wf_recipe *r, int64_t step) {
    if (step < r->warmup_steps) return warmup_lr(r, step);
    int64_t n = r->schedule_steps;
    switch (r->lr_schedule) {
    case WF_LR_CONSTANT:
    case WF_LR_PLATEAU:
        break;
    case WF_LR_STEP:
        return n > 0 ? r->lr * pow(r->lr_gamma, (double)(step / n)) : r->lr;
    case WF_LR_COSINE: {
        if (n <= r->warmup_steps) return r->lr;
        double at = (double)(step - r->warmup_steps) / (double)(n - r->warmup_steps);
        return at >= 1 ? 0 : r->lr * 0.5 * (1 + cos(3.141592653589793 * at));
    }
    }
    return r->lr;
}

wf_status wfi_recipe_check(wf_context *ctx, const wf_recipe *r) {
    for (int k = 0; k < wfi_recipe_n_fields; k++) {
        const wfi_recipe_field *field = &wfi_recipe_fields[k];
        double value = wfi_recipe_number(r, field);
        const char *text = (const char *)r + field->offset;
        if (field->kind == WFI_RECIPE_NAMES && !memchr(text, 0, (size_t)field->most + 1))
            return wfi_fail(ctx, WF_INVALID_ARG, "recipe: %s is not terminated by a zero byte",
                            field->name);
        if (field->kind == WFI_RECIPE_TABLE && r->tuned && strlen(r->tuned) > (size_t)field->most)
            return wfi_fail(ctx, WF_INVALID_ARG, "recipe: %s has more than %.0f characters",
                            field->name, field->most);
        if (value >= field->least && value <= field->most) continue; /* false for NaN */
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "recipe: %s is %.15g; it must lie between %.15g and %.15g", field->name,
                        value, field->least, field->most);
    }
    if (r->nesterov && r->momentum == 0)
        return wfi_fail(ctx, WF_INVALID_ARG, "recipe: nesterov needs a momentum above 0");
    if ((r->lr_schedule == WF_LR_STEP || r->lr_schedule == WF_LR_COSINE) && r->schedule_steps == 0)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "recipe: a step or cosine schedule needs to know its number of steps");
    return WF_OK;
}

void wf_recipe_part(const wf_recipe *recipe, int64_t n_samples, int n_parts, int part,
                    int64_t *first_out, int64_t *n_out) {
    int64_t n_micro = recipe->n_micro / n_parts;
    *first_out = wfi_first_sample(n_samples, recipe->n_micro, part * n_micro);
    *n_out = wfi_first_sample(n_samples, recipe->n_micro, (part + 1) * n_micro) - *first_out;
}
