/* What each instruction refers to, and the bytes of blocks. Private. */
#pragma once

#include "program/program.h"

/* How many references; -1: it is no instruction that could be run. */
int32_t wfi_n_references_needed(const wf_program *p, const wfi_instruction *now);
/* The needs of reference k, of all references. False: the instruction names an object that does not
 * exist. */
bool wfi_reference_needs(const wf_program *p, const wfi_instruction *now, int32_t k,
                         wfi_need *need_out);
/* Bytes of a whole tensor of any kind but STATE. */
size_t wfi_tensor_bytes(const wf_program *p, wfi_name name);
