/* Instructions as text. Private. */
#pragma once

#include "program/program.h"

/* Adds the instruction's units, joined by "+", as they are on `rank`: its own rank, or one that
 * follows it. Adds nothing if there are none. */
void wfi_units_text(const wf_program *p, const wfi_instruction *now, int32_t rank, wfi_text *text);
/* One instruction as text, without its newline. */
void wfi_instruction_text(const wf_program *p, int32_t i, wfi_text *text);
