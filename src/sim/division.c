/* Lower bounds of the times of plans that divide state or parameters, which the given plan does
 * not. The passes and their order are the same.
 *
 * - If state is divided, ranks gather new parameters after each update. Updates follow all passes,
 *   or, where they are early, those that add to the unit's gradient.
 * - If parameters are divided, ranks gather them for each use, unless the use before it read them.
 */
#include "sim/step.h"

#include <math.h>

typedef struct unit_times {
    double summed_us;  /* the last pass that adds to its gradient ends */
    double gather_us;  /* the time of a gather of its parameters, or less; 0: no update */
    int32_t last_read; /* the use that reads its parameters */
} unit_times;

typedef struct division {
    const wf_program *p;
    const wf_costs *costs;
    unit_times *units; /* [n_units] of the rank at hand */
    int32_t use, last_use;
    const wfi_instruction *last; /* that reads parameters */
} division;

/* Two ranks or more take part, so that each receives half or more. */
static double gather_us(const division *d, int32_t unit) {
    wf_rates rates = d->costs->rates;
    double bytes = (double)d->p->graph->units[unit].trained_bytes;
    return rates.message_us + bytes / 2 * *wfi_rate_of(&rates, WFI_RATE_REDUCE);
}

static bool is_same_use(const wfi_instruction *a, const wfi_instruction *b) {
    return a && a->unit == b->unit && a->micro == b->micro &&
           (a->part == WFI_PART_F) == (b->part == WFI_PART_F);
}

/* The pass reads the unit's parameters. Returns the time of the gather that it needs. */
static double read_unit(division *d, const wfi_instruction *now, int32_t unit) {
    unit_times *u = &d->units[unit];
    if (!is_same_use(d->last, now)) d->last_use = d->use++;
    d->last = now;
    bool stays = u->last_read == d->use || u->last_read == d->last_use;
    u->last_read = d->use;
    return stays || d->p->graph->units[unit].is_inner ? 0 : gather_us(d, unit);
}

static double add_pass(division *d, const wfi_instruction *now, double end_us) {
    double us = 0;
    for (int32_t r = 0; r < now->n_references; r++) {
        wfi_name name = d->p->blocks[now->references[r].block].name;
        if (name.kind == WFI_BLOCK_GRADIENT) d->units[name.owner].summed_us = end_us;
        if (name.kind == WFI_BLOCK_PARAM || name.kind == WFI_BLOCK_PACKED)
            us += read_unit(d, now, name.owner);
    }
    return us;
}

static void add_rank(division *d, const wfi_rank *rank, const double *end_us, wfi_step_times *out) {
    const wf_program *p = d->p;
    int32_t n_units = p->graph->n_units;
    double passes_us = 0, gathers_us = 0, renew_us = 0;
    for (int32_t u = 0; u < n_units; u++) d->units[u] = (unit_times){.last_read = -1};
    d->last = NULL;
    d->use = d->last_use = 0;
    for (int32_t at = 0; at < rank->n_stream[WFI_STREAM_COMPUTE]; at++) {
        int32_t i = rank->stream[WFI_STREAM_COMPUTE][at];
        const wfi_instruction *now = &p->instructions[i];
        if (now->kind == WFI_UPDATE)
            renew_us += d->units[now->unit].gather_us = gather_us(d, now->unit);
        if (wfi_type_of(now)->span > WF_SPAN_RECOMPUTE) continue;
        gathers_us += add_pass(d, now, end_us[i]);
        passes_us = end_us[i];
    }
    out->passes_us = fmax(out->passes_us, passes_us);
    out->renew_us[0] = fmax(out->renew_us[0], WFI_ROUNDED * (passes_us + renew_us));
    out->gather_us = fmax(out->gather_us, WFI_ROUNDED * gathers_us);
    for (int32_t u = 0; u < n_units; u++) {
        double us = d->units[u].summed_us;
        for (int32_t v = 0; v < n_units; v++)
            if (d->units[v].summed_us >= d->units[u].summed_us) us += d->units[v].gather_us;
        if (d->units[u].gather_us > 0) out->renew_us[1] = fmax(out->renew_us[1], WFI_ROUNDED * us);
    }
}

wf_status wfi_find_division_times(const wf_program *p, const wf_costs *costs, const double *end_us,
                                  wfi_step_times *times) {
    division d = {.p = p, .costs = costs};
    d.units = wfi_alloc(p->ctx, (size_t)p->graph->n_units, sizeof *d.units, "a simulation");
    if (!d.units) return WF_NO_MEMORY;
    for (int32_t k = 0; k < p->n_lowered; k++)
        add_rank(&d, &p->ranks[p->lowered[k]], end_us, times);
    wfi_free(p->ctx, d.units);
    return WF_OK;
}
