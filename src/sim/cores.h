/* Programs on CPUs. Private to src/sim. */
#pragma once

#include "program/program.h"

/* Finds begin and end of each instruction, where a rank's streams share `cores` cores. us
 * [n_instructions]: work of an instruction on a core of its own; crowded_us: the same while another
 * rank works, or NULL; message_us: latency of a transfer or a sum over ranks. */
wf_status wfi_simulate_cores(const wf_program *p, double cores, const double *us,
                             const double *crowded_us, double message_us, double *begin_us,
                             double *end_us);
