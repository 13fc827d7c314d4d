/* Plan strings. What is accepted must parse again, from its own text, to the same plan. */
#include "fuzz_text.h"

#include <weft/plan.h>

static void parse(wf_context *ctx, char *text, size_t n_bytes) {
    (void)n_bytes;
    wf_plan *plan, *again;
    if (wf_plan_parse(ctx, text, &plan) != WF_OK) {
        if (!*wf_context_error(ctx)) abort(); /* no refusal without a sentence */
        return;
    }
    if (wf_plan_parse(ctx, wf_plan_text(plan), &again) != WF_OK) abort();
    if (strcmp(wf_plan_text(plan), wf_plan_text(again)) != 0) abort();
    int n_ranks = wf_plan_dp(plan) * wf_plan_pp(plan) * wf_plan_tp(plan);
    if (wf_plan_n_ranks(plan) != n_ranks) abort();
    wf_plan_destroy(again);
    wf_plan_destroy(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    return fuzz_text(bytes, n_bytes, parse);
}
