/* The simulation: the program with a clock for each stream, and times from costs. An
 * instruction begins when its stream is free and what it depends on has ended; those that
 * run together begin when all of them can.
 */
#include "plan/costs.h"
#include "program/timeline.h"

#include <math.h>

typedef struct simulation {
    const wf_program *p;
    const wf_costs *costs;
    double *free_us; /* [rank][stream] when it is through with what it has begun */
    double *begin_us, *end_us;
} simulation;

static double part_us(const simulation *s, int32_t u, wfi_part part) {
    const wf_unit_cost *unit = &s->costs->units[u];
    const double us[] = {[WFI_PART_R] = wfi_costs_recompute(s->costs, s->p->costs, u),
                         [WFI_PART_F] = unit->forward_us,
                         [WFI_PART_B] = unit->backward_us,
                         [WFI_PART_W] = unit->weight_us,
                         [WFI_PART_BW] = unit->backward_weight_us};
    return us[part];
}

static double duration(const simulation *s, const wfi_instruction *now, int32_t n_ranks) {
    double bytes = (double)wfi_instruction_bytes(now);
    if (wfi_type_of(now)->cost == WFI_COST_UNIT) return part_us(s, now->unit, now->part);
    wf_rates rates = s->costs->rates;
    bool is_copy = wfi_type_of(now)->cost == WFI_COST_COPY;
    double us_per_byte = *wfi_rate_of(&rates, wfi_instruction_rate(s->p, now));
    return bytes * us_per_byte + (is_copy || n_ranks > 1 ? rates.message_us : 0);
}

static double *clock_of(const simulation *s, const wfi_instruction *now) {
    return &s->free_us[now->rank * WFI_N_STREAMS + (int)now->stream];
}

/* The n instructions from place k of the order on, which run together. */
static void run_together(const simulation *s, int32_t k, int32_t n) {
    const wf_program *p = s->p;
    double begin = 0, us = 0;
    const wfi_instruction *first = &p->instructions[p->order[k]];
    int32_t n_ranks = first->stream == WFI_STREAM_REDUCE ? p->groups[first->group].n : n;
    for (int32_t m = 0; m < n; m++) {
        const wfi_instruction *now = &p->instructions[p->order[k + m]];
        begin = fmax(begin, *clock_of(s, now));
        for (int32_t d = 0; d < now->n_depends; d++)
            begin = fmax(begin, s->end_us[now->depends[d]]);
        us = fmax(us, duration(s, now, n_ranks));
    }
    for (int32_t m = 0; m < n; m++) {
        int32_t i = p->order[k + m];
        s->begin_us[i] = begin;
        *clock_of(s, &p->instructions[i]) = s->end_us[i] = begin + us;
    }
}

wf_status wf_program_simulate(const wf_program *p, const wf_costs *costs,
                              wf_timeline **timeline_out) {
    simulation s = {.p = p, .costs = costs ? costs : p->costs};
    size_t n = (size_t)p->n_instructions, n_streams = (size_t)p->n_ranks * WFI_N_STREAMS;
    WF_TRY(wfi_costs_match(p->ctx, s.costs, p->graph));
    s.free_us = wfi_alloc(p->ctx, n_streams, sizeof *s.free_us, "a simulation");
    s.begin_us = wfi_alloc(p->ctx, n, sizeof *s.begin_us, "a simulation");
    s.end_us = wfi_alloc(p->ctx, n, sizeof *s.end_us, "a simulation");
    wf_status status = s.free_us && s.begin_us && s.end_us ? WF_OK : WF_NO_MEMORY;
    for (int32_t k = 0; k < p->n_instructions && status == WF_OK;) {
        int32_t n_together = wfi_n_together(p, k);
        run_together(&s, k, n_together);
        k += n_together;
    }
    if (status == WF_OK) status = wfi_timeline_create(p, s.begin_us, s.end_us, timeline_out);
    wfi_free(p->ctx, s.free_us);
    wfi_free(p->ctx, s.begin_us);
    wfi_free(p->ctx, s.end_us);
    return status;
}
