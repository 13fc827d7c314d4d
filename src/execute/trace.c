#include "execute/trace.h"
#include "program/rate.h"
#include "show/timeline.h"

#include <math.h>
#include <string.h>

static int64_t find_clock_ns(void) {
    int64_t least = INT64_MAX;
    for (int k = 0; k < 100; k++) {
        int64_t begin = wfi_thread_cpu_ns();
        least = wfi_min_i64(least, wfi_thread_cpu_ns() - begin);
    }
    return least;
}

wf_status wfi_trace_create(const wf_program *p, int32_t rank, wfi_trace **trace_out) {
    size_t n = (size_t)p->n_instructions;
    wfi_trace *t = wfi_alloc(p->ctx, 1, sizeof *t, "a trace");
    if (!t) return WF_NO_MEMORY;
    t->p = p;
    t->rank = rank;
    t->clock_ns = find_clock_ns();
    wfi_pool_init(&t->pool, p->ctx);
    t->begin_ns = wfi_pool_alloc(&t->pool, n, sizeof *t->begin_ns);
    t->end_ns = wfi_pool_alloc(&t->pool, n, sizeof *t->end_ns);
    t->cpu_ns = wfi_pool_alloc(&t->pool, n, sizeof *t->cpu_ns);
    t->least_ns = wfi_pool_alloc(&t->pool, n, sizeof *t->least_ns);
    if (wfi_pool_status(&t->pool) != WF_OK) {
        wfi_trace_destroy(t);
        return WF_NO_MEMORY;
    }
    *trace_out = t;
    return WF_OK;
}

void wfi_trace_destroy(wfi_trace *t) {
    if (!t) return;
    wfi_pool_release(&t->pool);
    wfi_free(t->p->ctx, t);
}

void wfi_trace_start(wfi_trace *t) {
    memset(t->cpu_ns, 0, (size_t)t->p->n_instructions * sizeof *t->cpu_ns);
    t->start_ns = wfi_now_ns();
}

/* ---- times of units ---- */

/* A send takes as long as its receive: one copy serves both. */
void wfi_trace_complete(wfi_trace *t) {
    const wf_program *p = t->p;
    for (int32_t k = 0; k + 1 < p->n_instructions; k++) {
        int32_t a = p->order[k], b = p->order[k + 1];
        bool sends = p->instructions[a].kind == WFI_SEND;
        int32_t send = sends ? a : b, receive = sends ? b : a;
        if (p->instructions[send].kind != WFI_SEND || p->instructions[receive].kind != WFI_RECEIVE)
            continue;
        t->begin_ns[send] = t->begin_ns[receive];
        t->end_ns[send] = t->end_ns[receive];
        k++;
    }
}

/* The first step fills caches and wakes cores, so it does not count. */
void wfi_trace_finish(wfi_trace *t) {
    const wf_program *p = t->p;
    if (t->rank < 0) wfi_trace_complete(t);
    for (int32_t i = 0; i < p->n_instructions && t->n_steps; i++) {
        int64_t ns = t->cpu_ns[i] ? wfi_max_i64(t->cpu_ns[i], 1) : t->end_ns[i] - t->begin_ns[i];
        if (t->n_steps == 1 || ns < t->least_ns[i]) t->least_ns[i] = ns;
    }
    t->n_steps++;
}

/* Sums over the instructions of this process: by unit and part, and by rate. */
static void add_up(const wfi_trace *t, wfi_rate_sum *parts, wfi_rate_sum *rates) {
    const wf_program *p = t->p;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        bool is_unit = wfi_type_of(now)->cost == WFI_COST_UNIT;
        if (t->rank >= 0 && now->rank != t->rank) continue;
        if (now->kind == WFI_SEND || now->kind == WFI_REPORT) continue; /* too short, or no copy */
        wfi_rate_sum *sum = is_unit ? &parts[now->unit * WFI_N_PARTS + (int)now->part]
                                    : &rates[wfi_instruction_rate(p, now)];
        sum->us += (double)t->least_ns[i] / 1e3;
        sum->bytes += is_unit ? 1 : wfi_instruction_bytes(p, now);
    }
}

/* A unit may lack one of the parts: the first has no B. */
static void fill_unit(const double *mean_us, bool splits_weight, wf_unit_cost *unit) {
    double forward = mean_us[WFI_PART_F], backward = mean_us[WFI_PART_B];
    double weight = mean_us[WFI_PART_W], both = mean_us[WFI_PART_BW];
    unit->forward_us = isnan(forward) ? 0 : forward;
    unit->backward_us = isnan(backward) && splits_weight ? 0 : backward;
    unit->weight_us = isnan(weight) && splits_weight ? 0 : weight;
    unit->backward_weight_us = isnan(both) && !splits_weight ? 0 : both;
}

static wf_status costs_of(const wf_program *p, const wfi_trace_sums *sums, wf_costs **costs_out) {
    wf_costs *costs;
    WF_TRY(wfi_costs_create(p->ctx, p->graph, &costs));
    costs->is_measured = costs->shares_cores = true;
    for (int32_t u = 0; u < p->graph->n_units; u++)
        fill_unit(&sums->mean_us[u * WFI_N_PARTS], p->code->splits_weight, &costs->units[u]);
    for (int k = 0; k < WFI_N_RATES; k++)
        if (sums->rates[k].bytes > 0)
            *wfi_rate_of(&costs->rates, (wfi_rate)k) = sums->rates[k].us / sums->rates[k].bytes;
    wf_status status = wfi_costs_complete(p->graph, costs);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        wf_unit_cost *unit = &costs->units[u];
        double us = sums->mean_us[u * WFI_N_PARTS + WFI_PART_R];
        if (us > 0 && unit->recompute_us > 0) {
            unit->recompute_scale = us / unit->recompute_us;
            unit->recompute_us = us;
        }
    }
    if (status != WF_OK) {
        wf_costs_destroy(costs);
        return status;
    }
    *costs_out = costs;
    return WF_OK;
}

wf_status wfi_trace_costs(const wfi_trace *t, wf_job *job, wf_costs **costs_out) {
    size_t n = (size_t)t->p->graph->n_units * WFI_N_PARTS;
    wfi_trace_sums sums = {.mean_us = wfi_alloc(t->p->ctx, n, sizeof *sums.mean_us, "costs")};
    wfi_rate_sum *parts = wfi_alloc(t->p->ctx, n, sizeof *parts, "costs");
    wf_status status = sums.mean_us && parts ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) add_up(t, parts, sums.rates);
    for (size_t k = 0; k < n && status == WF_OK; k++)
        sums.mean_us[k] = parts[k].bytes > 0 ? parts[k].us / parts[k].bytes : NAN;
    if (status == WF_OK && job) status = wfi_trace_share_sums(t->p, job, &sums);
    if (status == WF_OK) status = costs_of(t->p, &sums, costs_out);
    wfi_free(t->p->ctx, sums.mean_us);
    wfi_free(t->p->ctx, parts);
    return status;
}

/* ---- the last step ---- */

wf_status wfi_trace_timeline(wfi_trace *t, wf_job *job, wf_timeline **timeline_out) {
    if (job) WF_TRY(wfi_trace_share(t, job));
    size_t n = (size_t)t->p->n_instructions;
    double *begin_us = wfi_alloc(t->p->ctx, n, sizeof *begin_us, "a timeline");
    double *end_us = wfi_alloc(t->p->ctx, n, sizeof *end_us, "a timeline");
    wf_status status = begin_us && end_us ? WF_OK : WF_NO_MEMORY;
    for (size_t i = 0; i < n && status == WF_OK; i++) {
        begin_us[i] = (double)(t->begin_ns[i] - t->start_ns) / 1e3;
        end_us[i] = (double)(t->end_ns[i] - t->start_ns) / 1e3;
    }
    if (status == WF_OK) status = wfi_timeline_create(t->p, begin_us, end_us, timeline_out);
    wfi_free(t->p->ctx, begin_us);
    wfi_free(t->p->ctx, end_us);
    return status;
}
