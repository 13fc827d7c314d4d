#include "plan/balance.h"
#include "plan/schedule/timing.h"

/* ---- the heaviest stage, as light as possible ---- */

/* By dynamic programming over (stages, units). */
static wf_status lighten_heaviest(wf_context *ctx, const wf_costs *costs, int n_stages,
                                  int32_t *first_unit_out) {
    int32_t n = costs->n_units;
    size_t row = (size_t)n + 1;
    double *best = wfi_alloc(ctx, row * ((size_t)n_stages + 1), sizeof *best, "stages");
    int32_t *from = wfi_alloc(ctx, row * ((size_t)n_stages + 1), sizeof *from, "stages");
    wf_status status = best && from ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        for (size_t i = 0; i < row * ((size_t)n_stages + 1); i++) best[i] = 1e300;
        best[0] = 0;
        for (int s = 1; s <= n_stages; s++)
            for (int32_t end = s; end <= n - (n_stages - s); end++) {
                double sum = 0;
                for (int32_t begin = end - 1; begin >= s - 1; begin--) {
                    sum += costs->units[begin].forward_us + costs->units[begin].backward_weight_us;
                    double before = best[(size_t)(s - 1) * row + (size_t)begin];
                    double worst = before > sum ? before : sum;
                    if (worst < best[(size_t)s * row + (size_t)end]) {
                        best[(size_t)s * row + (size_t)end] = worst;
                        from[(size_t)s * row + (size_t)end] = begin;
                    }
                }
            }
        for (int32_t s = n_stages, end = n; s > 0; s--) {
            end = from[(size_t)s * row + (size_t)end];
            first_unit_out[s - 1] = end;
        }
        first_unit_out[n_stages] = n;
    }
    wfi_free(ctx, best);
    wfi_free(ctx, from);
    return status;
}

/* ---- the step, as short as can be ---- */

/* Larger ones are left as they are: there a border's place matters little. */
#define MOST_STAGES  16
#define MOST_ACTIONS 20000
/* A step that is shorter by less than this is no shorter. */
#define LEAST_GAIN 1e-3

typedef struct search {
    const wf_costs *costs;
    wfi_schedule_request request;
    wfi_stage_times times[MOST_STAGES];
    wfi_action_list *lists;
    wfi_timing timing;
} search;

static wf_status find_step(search *s, const int32_t *first_unit, double *step_out) {
    for (int k = 0; k < s->request.n_stages; k++) {
        wfi_stage_times *t = &s->times[k];
        *t = (wfi_stage_times){0, 0, 0};
        for (int32_t u = first_unit[k]; u < first_unit[k + 1]; u++) {
            const wf_unit_cost *unit = &s->costs->units[u];
            t->forward += unit->forward_us;
            t->backward += unit->backward_us;
            t->weight += unit->weight_us;
        }
    }
    WF_TRY(wfi_timing_run(&s->request, s->lists, &s->timing));
    *step_out = s->timing.makespan;
    return WF_OK;
}

static wf_status move_borders(search *s, int32_t *first_unit) {
    double best;
    WF_TRY(find_step(s, first_unit, &best));
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 1; k < s->request.n_stages; k++)
            for (int step = -1; step <= 1; step += 2) {
                double now;
                int32_t before = first_unit[k], there = before + step;
                if (there <= first_unit[k - 1] || there >= first_unit[k + 1]) continue;
                first_unit[k] = there;
                WF_TRY(find_step(s, first_unit, &now));
                if (now < (1 - LEAST_GAIN) * best)
                    best = now, moved = true;
                else
                    first_unit[k] = before;
            }
    }
    return WF_OK;
}

/* The lists of a rule do not depend on times. What auto will find is much like ZB-H2, or
 * ZB-H1 where it may not hold as much, or ZB-V. NULL: unlike any. */
static const wfi_schedule *rule_like(const wf_plan *plan) {
    if (plan->schedule->rule) return plan->schedule;
    if (plan->chunks > 1) return plan->chunks == 2 ? &wfi_schedule_zbv : NULL;
    return plan->hold && plan->hold < 2 * plan->pp - 1 ? &wfi_schedule_zb1 : &wfi_schedule_zb2;
}

static wf_status shorten_step(const wf_plan *plan, const wf_costs *costs, int n_micro,
                              int32_t *first_unit) {
    int device_of[MOST_STAGES];
    search s = {.costs = costs,
                .request = {.n_stages = wfi_plan_n_stages(plan, costs->n_units),
                            .n_micro = n_micro,
                            .transfer = costs->rates.message_us,
                            .hold = n_micro,
                            .n_devices = plan->pp,
                            .device_of = device_of}};
    s.request.times = s.times;
    for (int k = 0; k < s.request.n_stages; k++)
        device_of[k] = wfi_schedule_device_of(plan->schedule, plan->pp, k);
    WF_TRY(wfi_timing_init(plan->ctx, &s.request, &s.timing));
    wf_status status = wfi_schedule_make(plan->ctx, rule_like(plan), &s.request, &s.lists);
    if (status == WF_OK) {
        status = move_borders(&s, first_unit);
        wfi_schedule_free(plan->ctx, s.lists, plan->pp);
    }
    wfi_timing_release(&s.timing);
    return status;
}

wf_status wfi_balance(const wf_plan *plan, const wf_costs *costs, int n_micro,
                      int32_t *first_unit_out) {
    int n_stages = wfi_plan_n_stages(plan, costs->n_units);
    WF_TRY(lighten_heaviest(plan->ctx, costs, n_stages, first_unit_out));
    if (n_stages == 1 || n_stages > MOST_STAGES || n_stages * n_micro * 3 > MOST_ACTIONS ||
        !rule_like(plan))
        return WF_OK;
    return shorten_step(plan, costs, n_micro, first_unit_out);
}
