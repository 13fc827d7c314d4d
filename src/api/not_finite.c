#include "api/not_finite.h"

#include "api/trainer.h"

#include <math.h>
#include <stdio.h>

/* Of all ranks. */
static int64_t largest_code(const wf_trainer *t) {
    int64_t largest = 0;
    if (t->job) return wfi_control_not_finite(t->job);
    for (int r = 0; r < t->n_workers; r++)
        largest = wfi_max_i64(largest, t->workers[r].own_not_finite);
    return largest;
}

static int64_t find_micro(const wfi_ready *r) {
    const wf_program *p = r->program;
    int64_t n = p->graph->record < 0 ? 0 : p->recipe.n_micro;
    for (int64_t m = 0; m < n; m++)
        if (!isfinite(r->reported[2 * m])) return m;
    return -1;
}

static const struct {
    const char *what, *is;
} words[] = {
    [WFI_FINITE_NO_STATISTICS] = {"the running statistics", "are not finite"},
    [WFI_FINITE_NO_STATE] = {"the optimizer's state", "is not finite"},
    [WFI_FINITE_NO_WEIGHTS] = {"the new weights", "are not finite, though the gradient is"},
    [WFI_FINITE_NO_GRADIENT] = {"the gradient", "is not finite"},
};

/* The sign of a NaN is meaningless, and may differ between processors. */
static const char *text_of(double loss) {
    if (isnan(loss)) return "nan";
    return loss > 0 ? "inf" : "-inf";
}

/* Whether the run has changed anything that is saved. */
static bool changes_state(const wf_program *p) {
    bool changes = wfi_updates(p) || p->graph->n_hidden;
    for (int32_t u = 0; u < p->graph->n_units && wfi_differentiates(p); u++)
        changes |= p->code->units[u].bytes[WFI_BLOCK_STATS] > 0;
    return changes;
}

wf_status wfi_not_finite_check(wf_trainer *t, const wfi_ready *r) {
    bool trains = wfi_differentiates(r->program);
    int64_t code = trains ? largest_code(t) : 0, m = find_micro(r);
    char run[48] = "a forward run", which[128] = "the loss of every microbatch is finite";
    if (!code && m < 0) return WF_OK;
    t->is_spoiled |= trains && changes_state(r->program);
    if (trains) wfi_trainer_name_run(t, r->kind, run, sizeof run);
    if (!code)
        return wfi_fail(t->ctx, WF_NOT_FINITE, "%s: the loss of microbatch %lld is %s", run,
                        (long long)m, text_of(r->reported[2 * m]));
    if (m >= 0)
        snprintf(which, sizeof which, "first seen in microbatch %lld, the loss of which is %s",
                 (long long)m, text_of(r->reported[2 * m]));
    wfi_not_finite what = wfi_not_finite_what(code);
    return wfi_fail(t->ctx, WF_NOT_FINITE, "%s: %s of unit %s %s (%s)", run, words[what].what,
                    r->program->graph->units[wfi_not_finite_unit(code)].name, words[what].is,
                    which);
}
