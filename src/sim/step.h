/* The simulation of a step. Private to src/sim. */
#pragma once

#include "program/program.h"

/* What an instruction of so many bytes takes; a collective, of a group of n_ranks. */
double wfi_instruction_us(const wf_program *p, const wf_costs *costs, const wfi_instruction *now,
                          double bytes, int32_t n_ranks);

/* How long a step of the program takes, with its own costs. */
wf_status wfi_simulate_step(const wf_program *p, double *step_us_out);

/* repeat.c: simulates the whole step of a program that has the short form. */
wf_status wfi_simulate_repeats(const wf_program *p, const wf_costs *costs,
                               wf_timeline **timeline_out);
