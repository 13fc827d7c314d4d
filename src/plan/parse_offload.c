/* Storage of offloaded tensors: offload=state:disk+params. */
#include "plan/parse.h"

#include <string.h>

static const char *const names[WFI_N_OFFLOADS] = {"state", "params", "activations"};

static wf_status refuse(const wf_plan *plan, const wfi_pair *pair, const char *word, size_t n) {
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: offload=%s at position %d: '%.*s' is not one of state, params and "
                    "activations, each with :host (the default) or :disk, joined by +",
                    pair->value, pair->position, (int)n, word);
}

static wf_status parse_word(wf_plan *plan, const wfi_pair *pair, const char *word, size_t n) {
    const char *colon = memchr(word, ':', n);
    size_t n_name = colon ? (size_t)(colon - word) : n;
    int what = wfi_word_find("state|params|activations", word, n_name);
    int space = colon ? wfi_word_find("host|disk", colon + 1, n - n_name - 1) : 0;
    if (what < 0 || space < 0) return refuse(plan, pair, word, n);
    if (plan->offload[what] != WFI_SPACE_DEVICE)
        return wfi_fail(plan->ctx, WF_INVALID_ARG, "plan: offload=%s at position %d names %s twice",
                        pair->value, pair->position, names[what]);
    plan->offload[what] = space ? WFI_SPACE_DISK : WFI_SPACE_HOST;
    return WF_OK;
}

wf_status wfi_plan_parse_offload(wf_plan *plan, const wfi_pair *pair) {
    const char *word = pair->value;
    for (;; word++) {
        size_t n = strcspn(word, "+");
        WF_TRY(parse_word(plan, pair, word, n));
        word += n;
        if (!*word) return WF_OK;
    }
}

bool wfi_plan_offloads(const wf_plan *plan) {
    bool offloads = false;
    for (int k = 0; k < WFI_N_OFFLOADS; k++) offloads |= plan->offload[k] != WFI_SPACE_DEVICE;
    return offloads;
}

void wfi_plan_offload_text(const wf_plan *plan, wfi_text *text) {
    const char *before = ",offload=";
    for (int k = 0; k < WFI_N_OFFLOADS; k++) {
        if (plan->offload[k] == WFI_SPACE_DEVICE) continue;
        wfi_text_add(text, "%s%s%s", before, names[k],
                     plan->offload[k] == WFI_SPACE_DISK ? ":disk" : "");
        before = "+";
    }
}
