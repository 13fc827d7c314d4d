/* The simulation: the program with a clock for each stream, and times from costs. An instruction
 * begins when its stream is free and its dependencies have ended; those that run together begin
 * when all of them can.
 */
#include "api/trainer.h"
#include "plan/costs.h"
#include "program/clock.h"
#include "program/rate.h"
#include "show/timeline.h"
#include "sim/cores.h"
#include "sim/step.h"

#include <math.h>
#include <string.h>
#include <weft/info.h>

/* A larger transfer goes through memory: on CPUs it is as fast as a copy to host memory. */
#define CACHED_BYTES (4 << 20)

typedef struct simulation {
    const wf_program *p;
    const wf_costs *costs;
    bool is_bound;    /* see wfi_step_times */
    bool gathers;     /* ranks gather parameters: a bound is one of collectives in any order */
    double *free_us;  /* [rank][stream] end of the latest instruction */
    double *first_us; /* [rank][stream] begin of the first one */
    double *work_us;  /* [rank][stream] time of all of them */
    double *begin_us, *end_us, last_us;
} simulation;

static double part_us(const wf_program *p, const wf_costs *costs, int32_t u, wfi_part part) {
    const wf_unit_cost *unit = &costs->units[u];
    const double us[] = {[WFI_PART_R] = wfi_costs_recompute(costs, p->costs, u),
                         [WFI_PART_F] = unit->forward_us,
                         [WFI_PART_B] = unit->backward_us,
                         [WFI_PART_W] = unit->weight_us,
                         [WFI_PART_BW] = unit->backward_weight_us};
    return us[part];
}

/* Without messages. */
static double work(const wf_program *p, const wf_costs *costs, const wfi_instruction *now,
                   double bytes) {
    if (wfi_type_of(now)->cost == WFI_COST_UNIT) return part_us(p, costs, now->unit, now->part);
    wf_rates rates = costs->rates;
    wfi_rate rate = wfi_instruction_rate(p, now);
    /* A transfer has just been computed. Parameters and gradients that a rank copies have not. */
    bool is_cold = now->kind == WFI_COPY || bytes > CACHED_BYTES;
    if (costs->shares_cores && rate == WFI_RATE_COPY && is_cold) rate = WFI_RATE_HOST;
    return bytes * *wfi_rate_of(&rates, rate);
}

double wfi_instruction_us(const wf_program *p, const wf_costs *costs, const wfi_instruction *now,
                          double bytes, int32_t n_ranks) {
    bool is_message = wfi_type_of(now)->cost == WFI_COST_COPY || n_ranks > 1;
    return work(p, costs, now, bytes) + (is_message ? costs->rates.message_us : 0);
}

static int32_t clock_of(const wfi_instruction *now) {
    return now->rank * WFI_N_STREAMS + (int32_t)now->stream;
}

/* Whether plans that offload more, too, run the instruction after those before it in its stream. */
static bool is_in_order(const simulation *s, const wfi_instruction *now) {
    bool may_be_gather = s->gathers && now->stream == WFI_STREAM_REDUCE;
    return wfi_type_of(now)->cost != WFI_COST_SPACE && !may_be_gather;
}

/* The n instructions from place k of the order on, which run together. */
static void run_together(simulation *s, int32_t k, int32_t n) {
    const wf_program *p = s->p;
    double begin = 0, us = 0;
    const wfi_instruction *first = &p->instructions[p->order[k]];
    int32_t n_ranks = first->stream == WFI_STREAM_REDUCE ? p->groups[first->group].n : n;
    bool is_ordered = !s->is_bound || is_in_order(s, first);
    if (s->is_bound && s->gathers && first->kind == WFI_COPY) return; /* it ends at 0 */
    for (int32_t m = 0; m < n; m++) {
        const wfi_instruction *now = &p->instructions[p->order[k + m]];
        if (is_ordered) begin = fmax(begin, s->free_us[clock_of(now)]);
        for (int32_t d = 0; d < now->n_depends; d++)
            begin = fmax(begin, s->end_us[now->depends[d]]);
        double bytes = wfi_instruction_bytes(p, now);
        us = fmax(us, wfi_instruction_us(p, s->costs, now, bytes, n_ranks));
    }
    for (int32_t m = 0; m < n; m++) {
        int32_t i = p->order[k + m], c = clock_of(&p->instructions[i]);
        s->first_us[c] = s->work_us[c] > 0 ? fmin(s->first_us[c], begin) : begin;
        s->work_us[c] += us;
        s->begin_us[i] = begin;
        s->end_us[i] = begin + us;
        if (is_ordered) s->free_us[c] = begin + us;
        s->last_us = fmax(s->last_us, begin + us);
    }
}

static double cores_of(const wf_program *p) {
    return fmax(1, (double)(wf_info_limits().n_cores / p->n_ranks));
}

/* The timeline of instructions that share cores. */
static wf_status share_cores(const wf_program *p, const double *us, const double *crowded_us,
                             double message_us, wf_timeline **timeline_out) {
    size_t n = (size_t)p->n_instructions;
    double *begin_us = wfi_alloc(p->ctx, n, sizeof *begin_us, "a simulation");
    double *end_us = wfi_alloc(p->ctx, n, sizeof *end_us, "a simulation");
    wf_status status = begin_us && end_us ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK)
        status = wfi_simulate_cores(p, cores_of(p), us, crowded_us, message_us, begin_us, end_us);
    if (status == WF_OK) status = wfi_timeline_create(p, begin_us, end_us, timeline_out);
    wfi_free(p->ctx, begin_us);
    wfi_free(p->ctx, end_us);
    return status;
}

/* On a core of its own. */
static double core_us(const wf_program *p, const wf_costs *costs, const wfi_instruction *now) {
    if (now->kind == WFI_SEND || now->kind == WFI_REPORT) return 0;
    return work(p, costs, now, wfi_instruction_bytes(p, now));
}

static wf_status simulate_cores(const simulation *s, wf_timeline **timeline_out) {
    const wf_program *p = s->p;
    size_t n = (size_t)p->n_instructions;
    double *us = wfi_alloc(p->ctx, 2 * n, sizeof *us, "a simulation");
    if (!us) return WF_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        us[i] = us[n + i] = core_us(p, s->costs, &p->instructions[i]);
        if (s->costs->crowded && us[i] > 0)
            us[n + i] = core_us(p, s->costs->crowded, &p->instructions[i]);
    }
    wf_status status = share_cores(p, us, us + n, s->costs->rates.message_us, timeline_out);
    wfi_free(p->ctx, us);
    return status;
}

static bool is_time(double us) {
    return us >= 0 && us < INFINITY;
}

/* A simulation with other times would not end. */
static wf_status check_times(wf_context *ctx, const wf_costs *costs) {
    wf_rates rates = costs->rates;
    bool are = is_time(rates.message_us);
    for (int k = 0; k < WFI_N_RATES; k++) are &= is_time(*wfi_rate_of(&rates, (wfi_rate)k));
    if (!are) return wfi_fail(ctx, WF_INVALID_ARG, "costs: a rate is negative or not finite");
    for (int32_t u = 0; u < costs->n_units; u++) {
        const wf_unit_cost *unit = &costs->units[u];
        if (!is_time(unit->forward_us) || !is_time(unit->backward_us) ||
            !is_time(unit->weight_us) || !is_time(unit->backward_weight_us))
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "costs: a time of unit %s is negative or not finite", unit->name);
    }
    return costs->crowded ? check_times(ctx, costs->crowded) : WF_OK;
}

static bool gathers_parameters(const wf_program *p) {
    bool does = false;
    for (int32_t k = 0; k < p->n_stages; k++)
        does |= p->stages[k].strategy->parameter == WFI_SHARD && p->stages[k].n_parts > 1;
    return does;
}

static wf_status find_times(const simulation *s, wfi_step_times *out) {
    if (!s->is_bound) {
        out->step_us = s->last_us;
        return wfi_find_division_times(s->p, s->costs, s->end_us, out);
    }
    out->bound_us = s->last_us;
    for (int32_t k = 0; k < s->p->n_ranks * WFI_N_STREAMS; k++) {
        double us = WFI_ROUNDED * (s->first_us[k] + s->work_us[k]);
        bool is_copy = k % WFI_N_STREAMS == WFI_STREAM_COPY;
        if (!is_copy) out->streams_us = fmax(out->streams_us, us);
        if (!is_copy || !s->gathers) out->bound_us = fmax(out->bound_us, us);
    }
    return WF_OK;
}

/* Without `timeline_out`, which a program that has a short form or shares cores needs, finds some
 * of the times: those of a bound, or the others. */
static wf_status simulate(const wf_program *p, const wf_costs *costs, bool is_bound,
                          wf_timeline **timeline_out, wfi_step_times *times_out) {
    simulation s = {.p = p, .costs = costs, .is_bound = is_bound};
    wfi_pool pool = {.ctx = p->ctx};
    size_t n = (size_t)p->n_instructions, n_streams = (size_t)p->n_ranks * WFI_N_STREAMS;
    const char *what = "a simulation";
    WF_TRY(check_times(p->ctx, s.costs));
    if (p->shorter && s.costs->shares_cores)
        return wfi_fail(
            p->ctx, WF_UNSUPPORTED,
            "a program with a short form is not simulated on shared cores; make it with "
            "wf_program_create");
    if (p->shorter) return wfi_simulate_repeats(p, s.costs, timeline_out);
    if (s.costs->shares_cores) return simulate_cores(&s, timeline_out);
    s.gathers = gathers_parameters(p);
    s.free_us = wfi_pool_array(&pool, n_streams, sizeof *s.free_us, what);
    s.first_us = wfi_pool_array(&pool, n_streams, sizeof *s.first_us, what);
    s.work_us = wfi_pool_array(&pool, n_streams, sizeof *s.work_us, what);
    s.begin_us = wfi_pool_array(&pool, n, sizeof *s.begin_us, what);
    s.end_us = wfi_pool_array(&pool, n, sizeof *s.end_us, what);
    wf_status status = wfi_pool_status(&pool);
    for (int32_t k = 0; k < p->n_instructions && status == WF_OK;) {
        int32_t n_together = wfi_n_together(p, k);
        run_together(&s, k, n_together);
        k += n_together;
    }
    if (status == WF_OK && timeline_out)
        status = wfi_timeline_create(p, s.begin_us, s.end_us, timeline_out);
    else if (status == WF_OK)
        status = find_times(&s, times_out);
    wfi_pool_release(&pool);
    return status;
}

wf_status wf_program_simulate(const wf_program *p, const wf_costs *costs,
                              wf_timeline **timeline_out) {
    wf_costs *suited;
    WF_TRY(wfi_costs_suit(p->ctx, costs ? costs : p->costs, p->graph, &suited));
    wf_status status = simulate(p, suited, false, timeline_out, NULL);
    wf_costs_destroy(suited);
    return status;
}

static void read_times(const wf_timeline *t, wfi_step_times *out) {
    const char *stream = NULL;
    double us = 0;
    int rank = 0;
    out->step_us = wf_timeline_step_us(t);
    for (int64_t i = 0; i < wf_timeline_n_spans(t); i++) {
        wf_span span = wf_timeline_span(t, i);
        if (span.stream != stream || span.rank != rank) us = 0;
        stream = span.stream, rank = span.rank;
        us += span.end_us - span.begin_us;
        if (span.kind <= WF_SPAN_RECOMPUTE) out->passes_us = fmax(out->passes_us, span.end_us);
        if (strcmp(stream, wfi_stream_name(WFI_STREAM_COPY)))
            out->streams_us = fmax(out->streams_us, WFI_ROUNDED * us);
    }
}

wf_status wfi_simulate_times(const wf_program *p, wfi_step_times *out) {
    wf_timeline *timeline;
    *out = (wfi_step_times){0};
    if (!p->shorter && !p->costs->shares_cores) {
        WF_TRY(simulate(p, p->costs, false, NULL, out));
        return simulate(p, p->costs, true, NULL, out);
    }
    WF_TRY(wf_program_simulate(p, NULL, &timeline));
    read_times(timeline, out);
    wf_timeline_destroy(timeline);
    return WF_OK;
}

wf_status wfi_simulate_step(const wf_program *p, double *step_us_out) {
    wfi_step_times times;
    WF_TRY(wfi_simulate_times(p, &times));
    *step_us_out = times.step_us;
    return WF_OK;
}

wf_status wf_trainer_replay(const wf_trainer *t, wf_timeline **timeline_out) {
    const wfi_trace *trace = t->ready[0]->executor->trace;
    if (!trace || trace->n_steps < 2 || t->job)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "a replay needs a trace of two steps, with all ranks in this process");
    size_t n = (size_t)trace->p->n_instructions;
    double *us = wfi_alloc(t->ctx, n, sizeof *us, "a replay");
    for (size_t i = 0; i < n && us; i++)
        us[i] = trace->p->instructions[i].kind == WFI_SEND ? 0 : (double)trace->least_ns[i] / 1e3;
    wf_status status = us ? share_cores(trace->p, us, NULL, 0, timeline_out) : WF_NO_MEMORY;
    wfi_free(t->ctx, us);
    return status;
}
