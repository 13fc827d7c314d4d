/* The key `axes`: how axes lie on ranks. */
#include "plan/parse.h"

#include <string.h>

/* As wfi_axis. */
static const char words[] = "tp|pp|dp";
static const char *const names[WFI_N_AXES] = {"tp", "pp", "dp"};

void wfi_plan_default_axes(wf_plan *plan) {
    plan->n_named = 0;
    for (int k = 0; k < WFI_N_AXES; k++) plan->axes[k] = (wfi_axis)k;
}

/* The axes that are not named keep their order. */
wf_status wfi_plan_name_axis(wf_plan *plan, const wfi_pair *pair, const char *name, size_t n) {
    int axis = wfi_word_find(words, name, n), k = 0;
    if (axis < 0)
        return wfi_pair_refuse(pair, "axes, the innermost first, of tp, pp and dp, joined by +");
    while (plan->axes[k] != (wfi_axis)axis) k++;
    if (k < plan->n_named)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: axes at position %d names axis %s twice; name each axis once",
                        pair->position, names[axis]);
    for (; k > plan->n_named; k--) plan->axes[k] = plan->axes[k - 1];
    plan->axes[plan->n_named++] = (wfi_axis)axis;
    return WF_OK;
}

wf_status wfi_plan_parse_axes(wf_plan *plan, const wfi_pair *pair) {
    const char *name = pair->value;
    wfi_plan_default_axes(plan);
    for (size_t n = strcspn(name, "+");; name += n + 1, n = strcspn(name, "+")) {
        WF_TRY(wfi_plan_name_axis(plan, pair, name, n));
        if (!name[n]) return WF_OK;
    }
}

/* Only the order of axes with several ranks matters. */
void wfi_plan_axes_text(const wf_plan *plan, wfi_text *text) {
    bool is_default = true;
    int before = -1;
    for (int k = 0; k < WFI_N_AXES; k++) {
        if (plan->size[plan->axes[k]] == 1) continue;
        is_default &= (int)plan->axes[k] > before;
        before = (int)plan->axes[k];
    }
    const char *between = ",axes=";
    for (int k = 0; k < WFI_N_AXES && !is_default; k++) {
        if (plan->size[plan->axes[k]] == 1) continue;
        wfi_text_add(text, "%s%s", between, names[plan->axes[k]]);
        between = "+";
    }
}

wf_status wfi_plan_warn_order(const wf_plan *plan) {
    wfi_text text = {.ctx = plan->ctx};
    wfi_plan_sums_text(plan, &text);
    wfi_plan_axes_text(plan, &text);
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK)
        wfi_log(plan->ctx, WF_LOG_WARN, "plan", "order= is deprecated; %s%s",
                text.n ? "write " : "it is the default: leave it out", text.n ? text.data + 1 : "");
    wfi_free(plan->ctx, text.data);
    return status;
}

const char *wf_plan_axis(const wf_plan *plan, int i, int *size_out) {
    if (i < 0 || i >= WFI_N_AXES) return NULL;
    *size_out = plan->size[plan->axes[i]];
    return names[plan->axes[i]];
}

int wf_plan_coordinate(const wf_plan *plan, const char *axis, int rank) {
    wfi_mesh mesh = wfi_plan_mesh(plan);
    int a = wfi_word_find(words, axis, strlen(axis));
    if (a < 0 || rank < 0 || rank >= wfi_mesh_n_groups(&mesh, 0)) return -1;
    return wfi_mesh_at(&mesh, (wfi_axis)a, rank);
}
