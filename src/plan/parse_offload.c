/* What is kept elsewhere than on the device: offload=state:disk+params. */
#include "plan/parse.h"

#include <string.h>
#include <strings.h>

static const char *const names[WFI_N_OFFLOADS] = {"state", "params", "activations"};

/* Where `name` of `n` characters stands in a list; its length, if it does not. */
static int find(const char *const *list, int n_list, const char *name, size_t n) {
    int k = 0;
    while (k < n_list && (strlen(list[k]) != n || strncasecmp(list[k], name, n) != 0)) k++;
    return k;
}

static wf_status refuse(const wf_plan *plan, const wfi_plan_field *f, const char *word, size_t n) {
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: offload=%s at position %d: '%.*s' is not one of state, params and "
                    "activations, each with :host (the default) or :disk, joined by +",
                    f->value, f->position, (int)n, word);
}

static wf_status parse_word(wf_plan *plan, const wfi_plan_field *f, const char *word, size_t n) {
    static const char *const spaces[] = {"host", "disk"};
    const char *colon = memchr(word, ':', n);
    size_t n_name = colon ? (size_t)(colon - word) : n;
    int what = find(names, WFI_N_OFFLOADS, word, n_name);
    int space = colon ? find(spaces, WFI_COUNT(spaces), colon + 1, n - n_name - 1) : 0;
    if (what == WFI_N_OFFLOADS || space == WFI_COUNT(spaces)) return refuse(plan, f, word, n);
    if (plan->offload[what] != WFI_SPACE_DEVICE)
        return wfi_fail(plan->ctx, WF_INVALID_ARG, "plan: offload=%s at position %d names %s twice",
                        f->value, f->position, names[what]);
    plan->offload[what] = space ? WFI_SPACE_DISK : WFI_SPACE_HOST;
    return WF_OK;
}

wf_status wfi_plan_parse_offload(wf_plan *plan, const wfi_plan_field *f) {
    const char *word = f->value;
    for (;; word++) {
        size_t n = strcspn(word, "+");
        WF_TRY(parse_word(plan, f, word, n));
        word += n;
        if (!*word) return WF_OK;
    }
}

bool wfi_plan_offloads(const wf_plan *plan) {
    bool offloads = false;
    for (int k = 0; k < WFI_N_OFFLOADS; k++) offloads |= plan->offload[k] != WFI_SPACE_DEVICE;
    return offloads;
}

wf_status wfi_plan_check_offload(const wf_plan *plan) {
    if (!plan->n_rules || plan->offload[WFI_OFFLOAD_PARAMS] == WFI_SPACE_DEVICE) return WF_OK;
    return wfi_fail(
        plan->ctx, WF_INVALID_ARG,
        "plan: offload=params at position %d: parameters of units that are placed one by one stay "
        "on the device, from which other ranks read them; state and activations can be offloaded",
        plan->position[WFI_PLAN_OFFLOAD]);
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
