/* Whether a program fits into the memory given, and if not, what would. */
#include "nn/model.h"
#include "show/show.h"
#include "sim/search.h"

#include <math.h>
#include <stdio.h>

#define SIZE_TEXT 40

static const char *size_text(char text[SIZE_TEXT], size_t bytes) {
    if (bytes >= 1 << 30)
        snprintf(text, SIZE_TEXT, "%.2f GiB", (double)bytes / (1 << 30));
    else if (bytes >= 1 << 20)
        snprintf(text, SIZE_TEXT, "%.1f MiB", (double)bytes / (1 << 20));
    else if (bytes >= 1 << 10)
        snprintf(text, SIZE_TEXT, "%.1f KiB", (double)bytes / (1 << 10));
    else
        snprintf(text, SIZE_TEXT, "%zu byte%s", bytes, bytes == 1 ? "" : "s");
    return text;
}

static wf_status refuse(const wfi_search *s) {
    const wf_program *p = s->p;
    char needs[SIZE_TEXT], missing[SIZE_TEXT], given[SIZE_TEXT];
    int32_t rank = wfi_search_largest(p, WFI_SPACE_DEVICE);
    size_t peak = wfi_search_peak_of(p, WFI_SPACE_DEVICE, rank);
    bool is_test = wfi_program_largest(p, WFI_SPACE_DEVICE, rank) != p;
    if (peak > s->device_bytes)
        return wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                        "rank %d needs %s%s, %s more than the %s given; the peak is in unit %s",
                        rank, size_text(needs, peak), is_test ? " for tests" : "",
                        size_text(missing, peak - s->device_bytes),
                        size_text(given, s->device_bytes), wf_program_rank(p, rank).peak_unit);
    rank = wfi_search_largest(p, WFI_SPACE_HOST);
    peak = wfi_search_peak_of(p, WFI_SPACE_HOST, rank);
    return wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                    "rank %d needs %s of the host's memory, %s more than the %s given; tensors "
                    "that offload= keeps there can be kept in a file with :disk",
                    rank, size_text(needs, peak), size_text(missing, peak - s->host_bytes),
                    size_text(given, s->host_bytes));
}

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

/* How many layers the model may have by the proposal: the answer has been lowered. */
static wf_status find_layers(const wfi_search *s, const wf_proposal *by, int64_t *n_layers_out) {
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

wf_status wf_program_fits(const wf_program *p, size_t device_bytes, size_t host_bytes,
                          wf_proposal **proposals_out, int *n_out) {
    const wfi_search s = wfi_search_for(p, device_bytes, host_bytes);
    wf_proposal *proposals = NULL;
    int n = 0;
    if (proposals_out) *proposals_out = NULL, *n_out = 0;
    if (wfi_search_fits(&s, p)) return WF_OK;
    if (!proposals_out) return refuse(&s);
    wf_status status = wf_program_propose(p, device_bytes, host_bytes, 0, &proposals, &n);
    if (status == WF_OK && n && wfi_model_n_layers(p->model))
        status = find_layers(&s, &proposals[0], &proposals[0].n_layers);
    if (status != WF_OK) {
        wf_proposals_destroy(p->ctx, proposals, n);
        return status;
    }
    *proposals_out = proposals;
    *n_out = n;
    return refuse(&s);
}
