/* Dependencies, the order of execution, and offsets of blocks. Private. */
#pragma once

#include "program/program.h"

/* Reads and writes -> dependencies; drops those that others imply. */
wf_status wfi_program_depend(wf_program *p);
/* Fills clock and order. Errors: BUG: a deadlock; the message names the waiting ranks. */
wf_status wfi_program_order(wf_program *p);
/* `next`: as wfi_short_form_next fills it; NULL: there is no short form. n_records: of the whole
 * step on each rank that has any; 0: records are placed like all else. *fits_out: whether each
 * block ends before the next one begins; if not, nothing is placed. */
wf_status wfi_program_place(wf_program *p, int32_t *next, int64_t n_records, int64_t n_period,
                            bool *fits_out);
void wfi_place_records(const wf_program *p, const wfi_rank *rank);
