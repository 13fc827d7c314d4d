/* The key `order`: in which order sums over replicas are made, and how axes lie on ranks. */
#include "plan/parse.h"

#include <string.h>

static const char *const names[WFI_N_AXES] = {[WFI_TP] = "tp", [WFI_PP] = "pp", [WFI_DP] = "dp"};

static bool is_word(const char *text, size_t n, const char *word) {
    return strlen(word) == n && !strncmp(text, word, n);
}

/* WFI_N_AXES: it is none. */
static wfi_axis find_axis(const char *text, size_t n) {
    int k = 0;
    while (k < WFI_N_AXES && !is_word(text, n, names[k])) k++;
    return (wfi_axis)k;
}

bool wfi_plan_is_axis(const char *text, size_t n) {
    return find_axis(text, n) < WFI_N_AXES;
}

void wfi_plan_default_axes(wf_plan *plan) {
    for (int k = 0; k < WFI_N_AXES; k++) plan->axes[k] = (wfi_axis)k;
}

/* The axis follows the first `n_named`, and those that were not named keep their order. False: it
 * is one of the first. */
static bool name_axis(wf_plan *plan, wfi_axis axis, int n_named) {
    int k = 0;
    while (plan->axes[k] != axis) k++;
    if (k < n_named) return false;
    for (; k > n_named; k--) plan->axes[k] = plan->axes[k - 1];
    plan->axes[n_named] = axis;
    return true;
}

wf_status wfi_plan_parse_order(wf_plan *plan, const wfi_plan_field *f) {
    int n_named = 0, n_sums = 0;
    size_t n;
    wfi_plan_default_axes(plan);
    for (const char *word = f->value;; word += n + 1) {
        n = strcspn(word, ",");
        wfi_axis axis = find_axis(word, n);
        bool is_free = is_word(word, n, "free"), is_sums = is_free || is_word(word, n, "fixed");
        if (is_sums) plan->is_order_free = is_free;
        if (!is_sums && axis == WFI_N_AXES)
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: order='%.*s' at position %d; it takes fixed or free, for sums, "
                            "and axes, the innermost first, of tp, pp and dp",
                            (int)n, word, f->position);
        if (is_sums ? n_sums++ > 0 : !name_axis(plan, axis, n_named++))
            return wfi_fail(
                plan->ctx, WF_INVALID_ARG,
                is_sums ? "plan: order at position %d sets the order of sums twice, again by %.*s; "
                          "leave one out"
                        : "plan: order at position %d names axis %.*s twice; name each axis once",
                f->position, (int)n, word);
        if (!word[n]) return WF_OK;
    }
}

/* Where the axes with several ranks lie is all that matters. */
void wfi_plan_order_text(const wf_plan *plan, wfi_text *text) {
    bool moves = false;
    int before = -1;
    for (int k = 0; k < WFI_N_AXES; k++) {
        if (plan->size[plan->axes[k]] == 1) continue;
        moves |= (int)plan->axes[k] < before;
        before = (int)plan->axes[k];
    }
    if (!moves && !plan->is_order_free) return;
    wfi_text_add(text, ",order=%s", plan->is_order_free ? "free" : "");
    bool is_first = !plan->is_order_free;
    for (int k = 0; k < WFI_N_AXES && moves; k++) {
        if (plan->size[plan->axes[k]] == 1) continue;
        wfi_text_add(text, "%s%s", is_first ? "" : ",", names[plan->axes[k]]);
        is_first = false;
    }
}

const char *wf_plan_axis(const wf_plan *plan, int i, int *size_out) {
    if (i < 0 || i >= WFI_N_AXES) return NULL;
    *size_out = plan->size[plan->axes[i]];
    return names[plan->axes[i]];
}

int wf_plan_coordinate(const wf_plan *plan, const char *axis, int rank) {
    wfi_mesh mesh = wfi_plan_mesh(plan);
    wfi_axis a = find_axis(axis, strlen(axis));
    if (a == WFI_N_AXES || rank < 0 || rank >= wfi_mesh_n_groups(&mesh, 0)) return -1;
    return wfi_mesh_at(&mesh, a, rank);
}
