/* What each instruction refers to, and the bytes of blocks. Private. */
#ifndef WFI_PROGRAM_NEED_H
#define WFI_PROGRAM_NEED_H

#include "program/program.h"

/* How many references; -1: it is no instruction that could be run. */
int32_t wfi_n_references_needed(const wf_program *p, const wfi_instruction *now);
/* The needs of reference k, of all references. False: the instruction names an object that does not
 * exist. */
bool wfi_reference_needs(const wf_program *p, const wfi_instruction *now, int32_t k,
                         wfi_need *need_out);
/* Bytes of a TIED, and of a rank's PARAM, BUFFER or STATE of a unit. */
size_t wfi_tied_bytes(const wf_program *p, int32_t i);
size_t wfi_state_bytes(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank);

#endif
