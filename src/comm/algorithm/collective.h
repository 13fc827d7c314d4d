/* Every collective as a list of steps. Private. */
#pragma once

#include "comm/algorithm/allreduce.h"

/* The name in the interface, without "wf_". */
const char *wfi_collective_name(wfi_collective collective);
bool wfi_collective_sums(wfi_collective collective);
bool wfi_collective_has_root(wfi_collective collective);
/* How many blocks of a call's n_elem elements a rank's `in` and `out` have; 0: not used. */
int32_t wfi_collective_n_in(wfi_collective collective, int32_t n, bool is_root);
int32_t wfi_collective_n_out(wfi_collective collective, int32_t n, bool is_root);

/* The number of phases. `how` is NULL if the collective does not sum. part->n_elem: the elements of
 * the sum, or else the n_elem of the call. */
int32_t wfi_collective_n_phases(const wfi_allreduce *how, const wfi_reduce_part *part);
/* Fills steps [at most n + 1] for part->phase and returns how many. */
int32_t wfi_collective_steps(const wfi_allreduce *how, const wfi_reduce_part *part,
                             wfi_reduce_step *steps);
/* Whether ranks need a window for sums besides `in` and `out`. */
bool wfi_collective_has_work(const wfi_allreduce *how, const wfi_reduce_part *part);
/* Whether ranks read or write another's `out`. */
bool wfi_collective_shares_out(const wfi_allreduce *how, const wfi_reduce_part *part);
