#include "plan/balance.h"
#include "plan/schedule/timing.h"

#include <math.h>

/* Sums of the same times in another order differ by less. */
#define ROUNDING 1e-9

/* ---- the heaviest stage, as light as possible ---- */

/* Dynamic programming over (stages, units): the least cost of cutting the first `end` units into s
 * stages, and the last one's first unit. */
typedef struct cutting {
    const wf_graph *g;
    const wf_costs *costs;
    int n_stages;
    size_t row;
    double *best;  /* [n_stages + 1][row] */
    int32_t *from; /* the same */
} cutting;

/* With `most` INFINITY the cost is the heaviest stage, else the sum of squares of stages of which
 * none is heavier than that. Returns the cost of all. */
static double cut_units(cutting *c, double most) {
    int32_t n = c->costs->n_units;
    for (size_t i = 0; i < c->row * ((size_t)c->n_stages + 1); i++) c->best[i] = INFINITY;
    c->best[0] = 0;
    for (int s = 1; s <= c->n_stages; s++)
        for (int32_t end = s; end <= n - (c->n_stages - s); end++) {
            double sum = 0, *best = &c->best[(size_t)s * c->row + (size_t)end];
            if (end < n && !wfi_unit_may_begin_stage(c->g, end)) continue;
            for (int32_t begin = end - 1; begin >= s - 1; begin--) {
                const wf_unit_cost *unit = &c->costs->units[begin];
                sum += unit->forward_us + unit->backward_weight_us;
                double own = isinf(most) ? sum : sum * sum;
                /* An earlier begin makes this stage only heavier. */
                if (own >= *best || sum > most) break;
                if (!wfi_unit_may_begin_stage(c->g, begin)) continue;
                double before = c->best[(size_t)(s - 1) * c->row + (size_t)begin];
                double cost = isinf(most) ? fmax(before, own) : before + own;
                if (cost >= *best) continue;
                *best = cost;
                c->from[(size_t)s * c->row + (size_t)end] = begin;
            }
        }
    return c->best[(size_t)c->n_stages * c->row + (size_t)n];
}

/* Of the cuts with the lightest heaviest stage, the most even one: where one stage must be heavy,
 * the others share the memory. */
static wf_status lighten_heaviest(wf_context *ctx, const wf_graph *g, const wf_costs *costs,
                                  int n_stages, int32_t *first_unit_out) {
    cutting c = {.g = g, .costs = costs, .n_stages = n_stages, .row = (size_t)costs->n_units + 1};
    size_t n_cells = c.row * ((size_t)n_stages + 1);
    c.best = wfi_alloc(ctx, n_cells, sizeof *c.best, "stages");
    c.from = wfi_alloc(ctx, n_cells, sizeof *c.from, "stages");
    wf_status status = c.best && c.from ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        (void)cut_units(&c, cut_units(&c, INFINITY) * (1 + ROUNDING));
        for (int32_t s = n_stages, end = costs->n_units; s > 0; s--) {
            end = c.from[(size_t)s * c.row + (size_t)end];
            first_unit_out[s - 1] = end;
        }
        first_unit_out[n_stages] = costs->n_units;
    }
    wfi_free(ctx, c.best);
    wfi_free(ctx, c.from);
    return status;
}

/* ---- the step, as short as can be ---- */

/* Larger ones are left as they are: there a border's place matters little. */
#define MOST_STAGES  16
#define MOST_ACTIONS 20000
/* So many borders are moved at once. */
#define MOST_TOGETHER 3
/* A step that is shorter by less than this is no shorter. */
#define LEAST_GAIN 1e-3

/* Where ranks have several stages there is more to choose, and by that memory can be saved: bytes
 * on the rank that has most, as many as one microbatch and all weights of the model need, count as
 * if the step were so much longer. */
#define PRICE_OF_HELD 0.3
/* A parameter, its gradient, and the kernels' formats of it for forward and backward. */
#define COPIES_OF_WEIGHTS 4

typedef struct search {
    const wf_graph *g;
    const wf_costs *costs;
    wfi_schedule_request request;
    wfi_stage_times times[MOST_STAGES];
    wfi_stage_memory memory[MOST_STAGES];
    /* [n_units] the unit's part of a microbatch's activations and of weights; NULL: no matter */
    double *kept, *weights;
    wfi_action_list *lists;
    wfi_timing timing;
} search;

static wf_status find_step(search *s, const int32_t *first_unit, double *step_out) {
    double held[MOST_STAGES] = {0}, most = 0;
    for (int k = 0; k < s->request.n_stages; k++) {
        wfi_stage_times *t = &s->times[k];
        double kept = 0;
        for (int32_t u = first_unit[k]; u < first_unit[k + 1] && s->kept; u++)
            held[s->request.device_of[k]] += s->weights[u];
        *t = (wfi_stage_times){0, 0, 0};
        for (int32_t u = first_unit[k]; u < first_unit[k + 1]; u++) {
            const wf_unit_cost *unit = &s->costs->units[u];
            t->forward += unit->forward_us;
            t->backward += unit->backward_us;
            t->weight += unit->weight_us;
            if (s->kept) kept += s->kept[u];
        }
        s->memory[k] = (wfi_stage_memory){kept, kept};
    }
    WF_TRY(wfi_timing_run(&s->request, s->lists, &s->timing));
    for (int d = 0; d < s->request.n_devices; d++) most = fmax(most, held[d] + s->timing.peak[d]);
    *step_out = s->timing.makespan * (1 + PRICE_OF_HELD * most);
    return WF_OK;
}

/* The activations that forward saves for backward, and the weights. */
static wf_status find_kept(const wf_graph *g, double *kept, double *weights) {
    double all = 0;
    bool *is_read = wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *is_read, "stages");
    if (!is_read) return WF_NO_MEMORY;
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_in && !g->nodes[n].dead; i++) {
            int32_t v = g->nodes[n].in[i];
            if (v >= 0 && g->nodes[n].phase != WFI_F) is_read[wfi_value_root(g, v)] = true;
        }
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = &g->values[v];
        bool is_made = value->kind == WFI_VALUE_NODE && value->node >= 0 &&
                       g->nodes[value->node].phase == WFI_F;
        if (!is_read[v] || !is_made) continue;
        kept[value->unit] += (double)wfi_value_bytes(g, v);
        all += (double)wfi_value_bytes(g, v);
    }
    for (int32_t u = 0; u < g->n_units; u++) {
        weights[u] = COPIES_OF_WEIGHTS * (double)g->units[u].param_bytes;
        all += weights[u];
    }
    for (int32_t u = 0; u < g->n_units && all > 0; u++) kept[u] /= all, weights[u] /= all;
    wfi_free(g->ctx, is_read);
    return WF_OK;
}

/* Moves n borders from k on to the next units on that side that may begin a stage. False: a stage
 * would have none. */
static bool shift(const search *s, int32_t *first_unit, int k, int n, int step) {
    for (int i = k; i < k + n; i++) {
        int32_t end = s->costs->n_units;
        do first_unit[i] += step;
        while (first_unit[i] > 0 && first_unit[i] < end &&
               !wfi_unit_may_begin_stage(s->g, first_unit[i]));
    }
    bool is_legal = true;
    for (int i = k; i <= k + n; i++) is_legal &= first_unit[i - 1] < first_unit[i];
    return is_legal;
}

/* Where memory matters, a few neighbours together, too: one by one they stop soon. */
static wf_status move_borders(search *s, int32_t *first_unit, double *best_out) {
    int n_stages = s->request.n_stages, most = s->kept ? MOST_TOGETHER : 1;
    int32_t trial[MOST_STAGES + 1];
    size_t bytes = (size_t)(n_stages + 1) * sizeof *trial;
    double best;
    WF_TRY(find_step(s, first_unit, &best));
    for (bool moved = true; moved;) {
        moved = false;
        for (int n = 1; n <= most; n++)
            for (int k = 1; k + n <= n_stages; k++)
                for (int step = -1; step <= 1; step += 2) {
                    double now;
                    memcpy(trial, first_unit, bytes);
                    if (!shift(s, trial, k, n, step)) continue;
                    WF_TRY(find_step(s, trial, &now));
                    if (now >= (1 - LEAST_GAIN) * best) continue;
                    best = now, moved = true;
                    memcpy(first_unit, trial, bytes);
                }
    }
    *best_out = best;
    return WF_OK;
}

/* The stages of the first leg of a V have together that part of the time, and are equally long; so
 * are the others. False: a border would stand where none may. */
static bool cut_legs(const search *s, double part, int32_t *first_unit) {
    int n = s->request.n_stages, p = n / 2;
    double all = 0, before = 0;
    int32_t n_units = s->costs->n_units, u = 0;
    for (int32_t k = 0; k < n_units; k++)
        all += s->costs->units[k].forward_us + s->costs->units[k].backward_weight_us;
    for (int k = 1; k < n; k++) {
        double there = k < p ? part * k / p : part + (1 - part) * (k - p) / p;
        while (u < n_units - (n - k) && (u < first_unit[k - 1] + 1 || before < there * all ||
                                         !wfi_unit_may_begin_stage(s->g, u))) {
            before += s->costs->units[u].forward_us + s->costs->units[u].backward_weight_us;
            u++;
        }
        if (!wfi_unit_may_begin_stage(s->g, u)) return false;
        first_unit[k] = u;
    }
    return true;
}

/* From several starts, as moving borders one by one comes to a stop soon. */
static wf_status try_legs(search *s, int32_t *first_unit, double best) {
    int32_t trial[MOST_STAGES + 1];
    trial[0] = 0;
    trial[s->request.n_stages] = s->costs->n_units;
    for (int eighth = 1; eighth <= 7; eighth++) {
        double now;
        if (!cut_legs(s, eighth / 8.0, trial)) continue;
        WF_TRY(move_borders(s, trial, &now));
        if (now >= (1 - LEAST_GAIN) * best) continue;
        best = now;
        memcpy(first_unit, trial, (size_t)(s->request.n_stages + 1) * sizeof *trial);
    }
    return WF_OK;
}

/* The lists of a rule do not depend on times. The schedule that auto finds resembles ZB-H2, or
 * ZB-H1 under a tighter limit on memory, or ZB-V. NULL: unlike any. */
static const wfi_schedule *rule_like(const wf_plan *plan) {
    if (plan->schedule->rule) return plan->schedule;
    if (plan->chunks > 1) return plan->chunks == 2 ? &wfi_schedule_zbv : NULL;
    return plan->hold && plan->hold < 2 * plan->pp - 1 ? &wfi_schedule_zb1 : &wfi_schedule_zb2;
}

static wf_status shorten_step(const wf_plan *plan, const wf_graph *g, const wf_costs *costs,
                              int n_micro, int32_t *first_unit) {
    int device_of[MOST_STAGES];
    double best = 0;
    search s = {.g = g,
                .costs = costs,
                .request = {.n_stages = wfi_plan_n_stages(plan, costs->n_units),
                            .n_micro = n_micro,
                            .transfer = costs->rates.message_us,
                            .hold = n_micro,
                            .n_devices = plan->pp,
                            .device_of = device_of}};
    bool has_chunks = s.request.n_stages > plan->pp, is_v = has_chunks && plan->schedule->is_v;
    s.request.times = s.times;
    s.request.memory = s.memory;
    for (int k = 0; k < s.request.n_stages; k++)
        device_of[k] = wfi_schedule_device_of(plan->schedule, plan->pp, k);
    if (has_chunks) {
        s.kept = wfi_alloc(plan->ctx, 2 * (size_t)g->n_units, sizeof *s.kept, "stages");
        if (!s.kept) return WF_NO_MEMORY;
        s.weights = s.kept + g->n_units;
    }
    wf_status status = has_chunks ? find_kept(g, s.kept, s.weights) : WF_OK;
    if (status == WF_OK) status = wfi_timing_init(plan->ctx, &s.request, &s.timing);
    if (status == WF_OK)
        status = wfi_schedule_make(plan->ctx, rule_like(plan), &s.request, &s.lists);
    if (status == WF_OK) status = move_borders(&s, first_unit, &best);
    if (status == WF_OK && is_v) status = try_legs(&s, first_unit, best);
    wfi_schedule_free(plan->ctx, s.lists, plan->pp);
    wfi_timing_release(&s.timing);
    wfi_free(plan->ctx, s.kept);
    return status;
}

wf_status wfi_balance(const wf_plan *plan, const wf_graph *g, const wf_costs *costs, int n_micro,
                      int32_t *first_unit_out) {
    int n_stages = wfi_plan_n_stages(plan, costs->n_units);
    WF_TRY(lighten_heaviest(plan->ctx, g, costs, n_stages, first_unit_out));
    if (n_stages == 1 || n_stages > MOST_STAGES || n_stages * n_micro * 3 > MOST_ACTIONS ||
        !rule_like(plan))
        return WF_OK;
    return shorten_step(plan, g, costs, n_micro, first_unit_out);
}
