/* How each rank spends a step: the cause of each gap between the instructions of its compute
 * stream. A gap ends in an instruction; the last of its dependencies to end says why there was a
 * gap: until that one had all it needed, on every rank that takes part in it, there was nothing to
 * move (bubble); then it was moved (transfer); then it was there (wait).
 */
#include "program/clock.h"
#include "show/timeline.h"

#include <math.h>

typedef struct division {
    const wf_program *p;
    const double *begin_us, *end_us;
    double *ready_us; /* [n_instructions] when all that it needs existed */
} division;

static double clamp(double value, double low, double high) {
    return value < low ? low : value > high ? high : value;
}

/* A dependency that an earlier one of the same stream implies is not listed. So an instruction is
 * ready no earlier than the one before it in its stream. */
static double own_ready(const division *d, int32_t i) {
    const wfi_instruction *now = &d->p->instructions[i];
    const wfi_rank *rank = &d->p->ranks[now->rank];
    double ready = 0;
    if (now->position > 0) ready = d->ready_us[rank->stream[now->stream][now->position - 1]];
    for (int32_t k = 0; k < now->n_depends; k++) ready = fmax(ready, d->end_us[now->depends[k]]);
    return ready;
}

static void find_ready(const division *d) {
    const wf_program *p = d->p;
    for (int32_t k = 0; k < p->n_instructions;) {
        int32_t n = wfi_n_together(p, k);
        double ready = 0;
        for (int32_t m = 0; m < n; m++) ready = fmax(ready, own_ready(d, p->order[k + m]));
        for (int32_t m = 0; m < n; m++) d->ready_us[p->order[k + m]] = ready;
        k += n;
    }
}

/* The later to end of two instructions (or -1). */
static int32_t later(const division *d, int32_t a, int32_t b) {
    return a < 0 || (b >= 0 && d->end_us[b] > d->end_us[a]) ? b : a;
}

double wfi_divide_gap(double ended_us, double ready_us, double begin, double end,
                      wf_rank_time *time) {
    double arrived = clamp(ended_us, begin, end);
    double ready = clamp(ready_us, begin, arrived);
    time->bubble_us += ready - begin;
    time->transfer_us += arrived - ready;
    return arrived;
}

/* Does so for the instruction that was waited for, -1 = none. */
static double divide_gap(const division *d, int32_t waited, double begin, double end,
                         wf_rank_time *time) {
    if (waited < 0) return begin;
    return wfi_divide_gap(d->end_us[waited], d->ready_us[waited], begin, end, time);
}

static wf_rank_time divide_rank(const division *d, int32_t r, double step_us) {
    const wfi_rank *rank = &d->p->ranks[r];
    wf_rank_time time = {0, 0, 0, 0};
    double at = 0;
    for (int32_t k = 0; k < rank->n_stream[WFI_STREAM_COMPUTE]; k++) {
        int32_t i = rank->stream[WFI_STREAM_COMPUTE][k], waited = -1;
        const wfi_instruction *now = &d->p->instructions[i];
        for (int32_t e = 0; e < now->n_depends; e++) waited = later(d, waited, now->depends[e]);
        double begin = fmax(d->begin_us[i], at), end = fmax(d->end_us[i], begin);
        time.wait_us += begin - divide_gap(d, waited, at, begin, &time);
        time.compute_us += end - begin;
        at = end;
    }
    /* Its other streams may still have work; then there is nothing left to do. */
    int32_t last = -1;
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (rank->n_stream[s]) last = later(d, last, rank->stream[s][rank->n_stream[s] - 1]);
    time.bubble_us += step_us - divide_gap(d, last, at, step_us, &time);
    return time;
}

wf_status wfi_timeline_divide(const wf_program *p, const double *begin_us, const double *end_us,
                              double step_us, wf_rank_time *times_out) {
    division d = {.p = p, .begin_us = begin_us, .end_us = end_us};
    d.ready_us = wfi_alloc(p->ctx, (size_t)p->n_instructions, sizeof *d.ready_us, "a timeline");
    if (!d.ready_us) return WF_NO_MEMORY;
    find_ready(&d);
    for (int32_t k = 0; k < p->n_lowered; k++)
        times_out[p->lowered[k]] = divide_rank(&d, p->lowered[k], step_us);
    for (int32_t r = 0; r < p->n_ranks; r++) times_out[r] = times_out[p->ranks[r].like];
    wfi_free(p->ctx, d.ready_us);
    return WF_OK;
}
