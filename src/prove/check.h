/* The parts of the checker. Private to src/prove. */
#pragma once

#include "program/program.h"

/* Errors: BUG; the message names instruction i and contains `what`. */
wf_status wfi_check_refuse(const wf_program *p, int32_t i, const char *what);

/* That streams list each instruction once, where it says it is, that dependencies stay on the
 * rank, and that references name blocks of it. Nothing else may be looked at before. */
wf_status wfi_check_lists(const wf_program *p);
/* That each reference is as large as wfi_reference_needs says, of that kind of block and accessed
 * in that way, and lies within its block; blocks within the arena. The order is known. */
wf_status wfi_check_sizes(const wf_program *p);
/* That the steps of a change move its pieces as it means: of its members [n] that are lowered, in
 * their order. Sizes are right. */
wf_status wfi_check_steps(const wf_program *p, const int32_t *members, int32_t n);
