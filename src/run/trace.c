#include "run/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

wf_status wfi_trace_create(const wf_program *p, int32_t rank, wfi_trace **trace_out) {
    size_t n = (size_t)p->n_instructions, n_units = (size_t)p->graph->n_units;
    wfi_trace *t = wfi_alloc(p->ctx, 1, sizeof *t, "a trace");
    if (!t) return WF_NO_MEMORY;
    t->p = p;
    t->rank = rank;
    t->begin_ns = wfi_alloc(p->ctx, n, sizeof *t->begin_ns, "a trace");
    t->end_ns = wfi_alloc(p->ctx, n, sizeof *t->end_ns, "a trace");
    t->samples = wfi_alloc(p->ctx, n_units * WFI_N_PARTS, sizeof *t->samples, "a trace");
    if (!t->begin_ns || !t->end_ns || !t->samples) {
        wfi_trace_destroy(t);
        return WF_NO_MEMORY;
    }
    *trace_out = t;
    return WF_OK;
}

void wfi_trace_destroy(wfi_trace *t) {
    if (!t) return;
    wf_context *ctx = t->p->ctx;
    wfi_free(ctx, t->samples);
    wfi_free(ctx, t->begin_ns);
    wfi_free(ctx, t->end_ns);
    wfi_free(ctx, t);
}

void wfi_trace_start(wfi_trace *t) {
    t->start_ns = wfi_now_ns();
}

/* ---- what units took ---- */

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

void wfi_trace_finish(wfi_trace *t) {
    const wf_program *p = t->p;
    if (t->rank < 0) wfi_trace_complete(t);
    bool is_warm = t->n_steps++ > 0; /* the first step fills caches and wakes cores */
    for (int32_t i = 0; i < p->n_instructions && is_warm; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (t->rank >= 0 && now->rank != t->rank) continue;
        double us = (double)(t->end_ns[i] - t->begin_ns[i]) / 1e3;
        double bytes = (double)wfi_instruction_bytes(now);
        if (now->kind == WFI_SEND || now->kind == WFI_REPORT) continue; /* too short, or no copy */
        if (wfi_type_of(now)->cost == WFI_COST_UNIT) {
            wfi_samples *s = &t->samples[now->unit * WFI_N_PARTS + (int)now->part];
            s->us[s->n++ % WFI_N_SAMPLES] = us;
        } else {
            wfi_rate_sum *sum = &t->rates[wfi_instruction_rate(p, now)];
            sum->us += us;
            sum->bytes += bytes;
        }
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Mean of the middle half: neither an interrupted microbatch nor a lucky one counts.
 * NAN: the part never ran. */
static double middle_mean(const wfi_samples *s) {
    double sorted[WFI_N_SAMPLES], sum = 0;
    size_t n = s->n < WFI_N_SAMPLES ? (size_t)s->n : WFI_N_SAMPLES;
    if (!n) return NAN;
    memcpy(sorted, s->us, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    size_t begin = n / 4, end = n - n / 4;
    for (size_t k = begin; k < end; k++) sum += sorted[k];
    return sum / (double)(end - begin);
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
    costs->is_measured = true;
    for (int32_t u = 0; u < p->graph->n_units; u++)
        fill_unit(&sums->mean_us[u * WFI_N_PARTS], p->code->splits_weight, &costs->units[u]);
    for (int k = 0; k < WFI_N_RATES; k++)
        if (sums->rates[k].bytes > 0)
            *wfi_rate_of(&costs->rates, (wfi_rate)k) = sums->rates[k].us / sums->rates[k].bytes;
    wf_status status = wfi_costs_complete(p->graph, costs);
    if (status != WF_OK) {
        wf_costs_destroy(costs);
        return status;
    }
    *costs_out = costs;
    return WF_OK;
}

wf_status wfi_trace_costs(const wfi_trace *t, wf_job *job, wf_costs **costs_out) {
    int32_t n = t->p->graph->n_units * WFI_N_PARTS;
    wfi_trace_sums sums;
    memcpy(sums.rates, t->rates, sizeof sums.rates);
    sums.mean_us = wfi_alloc(t->p->ctx, (size_t)n, sizeof *sums.mean_us, "costs");
    if (!sums.mean_us) return WF_NO_MEMORY;
    for (int32_t k = 0; k < n; k++) sums.mean_us[k] = middle_mean(&t->samples[k]);
    wf_status status = job ? wfi_trace_share_sums(t->p, job, &sums) : WF_OK;
    if (status == WF_OK) status = costs_of(t->p, &sums, costs_out);
    wfi_free(t->p->ctx, sums.mean_us);
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
