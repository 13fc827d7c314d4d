/* The simulation of a step. Private to src/sim. */
#pragma once

#include "program/program.h"

/* What an instruction of so many bytes takes; a collective, of a group of n_ranks. */
double wfi_instruction_us(const wf_program *p, const wf_costs *costs, const wfi_instruction *now,
                          double bytes, int32_t n_ranks);

/* For bounds that are sums, which are rounded. */
#define WFI_ROUNDED (1 - 1e-9)

/* Times from the begin of a step. All but the first bound the steps of other plans from below; 0:
 * not known. */
typedef struct wfi_step_times {
    double step_us;
    double passes_us;   /* when the last pass ends */
    double bound_us;    /* of plans that offload more, but for state: the step or the work of any
                           stream, if what these plans reorder waits for its operands alone */
    double streams_us;  /* of plans that offload more: the work of any stream but that of copies */
    double renew_us[2]; /* of plans that divide state: without and with early updates */
    double gather_us;   /* of plans that divide parameters */
} wfi_step_times;
/* With the program's own costs. */
wf_status wfi_simulate_times(const wf_program *p, wfi_step_times *times_out);
wf_status wfi_simulate_step(const wf_program *p, double *step_us_out);

/* division.c: fills passes_us, renew_us and gather_us. */
wf_status wfi_find_division_times(const wf_program *p, const wf_costs *costs, const double *end_us,
                                  wfi_step_times *times);

/* repeat.c: simulates the whole step of a program that has the short form. */
wf_status wfi_simulate_repeats(const wf_program *p, const wf_costs *costs,
                               wf_timeline **timeline_out);
