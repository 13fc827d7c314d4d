/* Whether a program fits into the memory given, and if not, what would. */
#include "program/program.h"

#include <stdio.h>
#include <string.h>

static int32_t largest_rank(const wf_program *p, wfi_space space) {
    int32_t worst = 0;
    for (int32_t r = 1; r < p->n_ranks; r++)
        if (p->ranks[r].arenas[space].peak_bytes > p->ranks[worst].arenas[space].peak_bytes)
            worst = r;
    return worst;
}

/* Whether the same step by another recipe or plan fits. One that cannot be made does not. */
static bool other_fits(const wf_program *p, const wf_recipe *recipe, const wf_plan *plan,
                       size_t memory_bytes) {
    wf_program *other;
    if (wf_program_create(p->ctx, p->model, recipe, plan, p->kind, &other) != WF_OK) return false;
    bool fits =
        other->ranks[largest_rank(other, WFI_SPACE_DEVICE)].arenas[WFI_SPACE_DEVICE].peak_bytes <=
        memory_bytes;
    wf_program_destroy(other);
    return fits;
}

int64_t wf_program_micro_that_fits(const wf_program *p, size_t memory_bytes) {
    const wf_recipe *r = &p->recipe;
    /* State does not depend on microbatches. */
    for (int32_t k = 0; k < p->n_ranks; k++)
        if (p->ranks[k].arenas[WFI_SPACE_DEVICE].state_bytes > memory_bytes) return 0;
    for (int64_t m = r->n_micro + 1; m <= r->batch && p->kind == WF_PROGRAM_TRAIN; m++) {
        if (r->batch % m || m % r->n_lanes) continue;
        wf_recipe more = *r;
        more.n_micro = m;
        if (other_fits(p, &more, p->plan, memory_bytes)) return m;
    }
    return 0;
}

/* ---- other plans ---- */

/* Appends the plan with other stages, replicas of the whole, to `found` if it fits. Returns whether
 * it does. */
static bool try_plan(const wf_program *p, size_t memory_bytes, int pp, const wfi_schedule *schedule,
                     wfi_text *found) {
    wf_plan *plan;
    if (wfi_plan_copy(p->plan, &plan) != WF_OK) return false;
    wfi_plan_drop_rules(plan);
    if (pp != plan->pp) wfi_plan_drop_cut(plan);
    if (!schedule->search) plan->hold = 0;
    plan->pp = pp;
    plan->schedule = schedule;
    bool fits = wfi_plan_complete(plan) == WF_OK && other_fits(p, &p->recipe, plan, memory_bytes);
    if (fits) wfi_text_add(found, "%s%s", found->n ? " " : "", plan->text);
    wf_plan_destroy(plan);
    return fits;
}

/* The same stages with a schedule of less in flight, then more stages. Instead of units that are
 * replicated by unit, replicas of the whole. */
wf_status wf_program_plans_that_fit(const wf_program *p, size_t memory_bytes, char **plans_out) {
    static const wfi_schedule *const frugal[] = {&wfi_schedule_1f1b, &wfi_schedule_naive};
    const wf_plan *plan = p->plan;
    wfi_text found;
    wfi_text_init(&found, p->ctx);
    wfi_text_add(&found, "%s", "");
    for (size_t k = 0; k < WFI_COUNT(frugal) && plan->pp > 1; k++)
        if (plan->schedule != frugal[k] && try_plan(p, memory_bytes, plan->pp, frugal[k], &found))
            break;
    for (int pp = plan->n_rules ? 1 : 2 * plan->pp; pp <= 8 * plan->pp && pp <= p->graph->n_units;
         pp *= 2)
        if (try_plan(p, memory_bytes, pp, plan->schedule, &found)) break;
    wf_status status = wfi_text_status(&found);
    if (status != WF_OK) {
        wfi_free(p->ctx, found.data);
        return status;
    }
    *plans_out = found.data;
    return WF_OK;
}

/* ---- the verdict ---- */

/* "A B" -> "A or B" */
static char *join_plans(wf_context *ctx, const char *plans) {
    const char *space = strchr(plans, ' ');
    return space ? wfi_sprintf(ctx, "%.*s or %s", (int)(space - plans), plans, space + 1)
                 : wfi_strdup(ctx, plans);
}

wf_status wf_program_fits(const wf_program *p, size_t memory_bytes) {
    int32_t worst = largest_rank(p, WFI_SPACE_DEVICE);
    size_t peak = p->ranks[worst].arenas[WFI_SPACE_DEVICE].peak_bytes;
    if (!memory_bytes || peak <= memory_bytes) return WF_OK;
    char micro_text[64] = "";
    int64_t micro = wf_program_micro_that_fits(p, memory_bytes);
    if (micro) snprintf(micro_text, sizeof micro_text, "--micro %lld", (long long)micro);
    char *plans = NULL;
    if (p->kind == WF_PROGRAM_TRAIN) WF_TRY(wf_program_plans_that_fit(p, memory_bytes, &plans));
    bool has_plans = plans && *plans;
    char *listed = has_plans ? join_plans(p->ctx, plans) : NULL;
    wfi_free(p->ctx, plans);
    if (has_plans && !listed) return WF_NO_MEMORY;
    const char * or = micro && has_plans ? " or the plan " : has_plans ? "the plan " : "";
    char *advice =
        micro || has_plans
            ? wfi_sprintf(p->ctx, "%s%s%s would fit", micro_text, or, has_plans ? listed : "")
            : wfi_sprintf(p->ctx,
                          "neither more microbatches nor more stages would fit: "
                          "parameters, buffers and optimizer state alone take %zu",
                          p->ranks[worst].arenas[WFI_SPACE_DEVICE].state_bytes);
    wfi_free(p->ctx, listed);
    if (!advice) return WF_NO_MEMORY;
    (void)wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                   "rank %d needs %zu bytes, %zu more than the %zu given; the peak is in unit %s; "
                   "%s",
                   worst, peak, peak - memory_bytes, memory_bytes,
                   wf_program_rank(p, worst).peak_unit, advice);
    wfi_free(p->ctx, advice);
    return WF_DOES_NOT_FIT;
}

wf_status wf_program_fits_host(const wf_program *p, size_t host_bytes) {
    int32_t worst = largest_rank(p, WFI_SPACE_HOST);
    size_t peak = p->ranks[worst].arenas[WFI_SPACE_HOST].peak_bytes;
    if (!host_bytes || peak <= host_bytes) return WF_OK;
    return wfi_fail(p->ctx, WF_DOES_NOT_FIT,
                    "rank %d needs %zu bytes of the host's memory, %zu more than the %zu given; "
                    "what offload= keeps there can be kept in a file, with :disk",
                    worst, peak, peak - host_bytes, host_bytes);
}
