/* How much larger a model may be that fits by a proposal. */
#include "sim/larger.h"
#include "nn/model.h"

#include <math.h>

/* More programs are not lowered, nor larger models. */
#define MOST_LARGER 5
#define MOST_TIMES  8
#define MOST_LAYERS 512

/* The first proposal's program with so many layers, or the draft of a short step, if there is one.
 */
static wf_status lower_larger(const wf_program *p, const wf_proposal *by, int64_t n_layers,
                              bool *is_draft, wf_program **larger_out) {
    wf_recipe recipe = p->recipe;
    wf_model *model;
    wf_plan *plan;
    recipe.n_micro = by->n_micro;
    WF_TRY(wfi_model_with_layers(p->model, n_layers, &model));
    wf_status status = wf_plan_parse(p->ctx, by->plan, &plan);
    if (status == WF_OK) {
        *is_draft = *is_draft && wfi_search_shorten(plan, &recipe);
        status = wfi_search_create(p, model, &recipe, plan,
                                   *is_draft ? WFI_USE_DRAFT : WFI_USE_LOOK_SHORT, larger_out);
        wf_plan_destroy(plan);
        if (status == WF_OK && !*is_draft) {
            status = wf_program_plan_tests(*larger_out, p->n_test, p->n_at_once);
            if (status != WF_OK) wf_program_destroy(*larger_out);
        }
    }
    wf_model_destroy(model);
    return status;
}

static int64_t most_layers(int64_t least) {
    int64_t most = MOST_TIMES * least < MOST_LAYERS ? MOST_TIMES * least : MOST_LAYERS;
    return wfi_max_i64(least, most);
}

/* Tries models of more layers. Bytes grow by about as much with each layer. */
static wf_status try_larger(const wfi_search *s, const wf_proposal *by, bool *is_draft,
                            int64_t *n_layers_out) {
    int64_t least = *n_layers_out, end = most_layers(least) + 1;
    double known = (double)least, known_bytes = (double)by->peak_bytes;
    double each = known_bytes / known; /* at most, before two are known */
    for (int k = 0; k < MOST_LARGER && end - *n_layers_out > 1; k++) {
        double want = known + ((double)s->device_bytes - known_bytes) / fmax(each, 1);
        int64_t n = want < (double)end ? (int64_t)want : end - 1;
        n = wfi_max_i64(*n_layers_out + 1, n < end ? n : end - 1);
        wf_program *larger;
        WFI_PROGRESS(s->p->ctx, "trying a model of %lld layers", (long long)n);
        WF_TRY(lower_larger(s->p, by, n, is_draft, &larger));
        double bytes = (double)wfi_search_peak(larger, WFI_SPACE_DEVICE);
        if (wfi_search_fits(s, larger))
            *n_layers_out = n;
        else
            end = n;
        wf_program_destroy(larger);
        each = (bytes - known_bytes) / ((double)n - known);
        known = (double)n, known_bytes = bytes;
    }
    return WF_OK;
}

wf_status wfi_search_layers(const wfi_search *s, const wf_proposal *by, int64_t *n_layers_out) {
    int64_t least = wfi_model_n_layers(s->p->model);
    bool is_draft = true, fits = false;
    *n_layers_out = least;
    WF_TRY(try_larger(s, by, &is_draft, n_layers_out));
    while (is_draft && !fits && *n_layers_out > least) { /* the bounds fit, but does the program? */
        wf_program *larger;
        bool is_short = false;
        WF_TRY(lower_larger(s->p, by, *n_layers_out, &is_short, &larger));
        fits = wfi_search_fits(s, larger);
        wf_program_destroy(larger);
        if (!fits) *n_layers_out -= wfi_max_i64(1, (*n_layers_out - least) / 4);
    }
    return WF_OK;
}
