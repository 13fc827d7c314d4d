/* Which units are a stage, on which ranks it is, and which ranks are lowered. Private. */
#pragma once

#include "program/program.h"

/* map.c: which units are a stage, which rank is on which, and in which group. `like`: see
 * wfi_program_begin. */
wf_status wfi_program_map(wf_program *p, const wf_program *like);
/* classes.c: which ranks are lowered, and which ones follow them. */
wf_status wfi_program_find_classes(wf_program *p);
/* alike.c: finds whether the ranks of two `tp` coordinates differ only by their slices. */
wf_status wfi_program_has_equal_slices(const wf_program *p, int32_t a, int32_t b, bool *is_out);
/* Copies results of the lowered ranks to those that follow them. */
void wfi_program_share(wf_program *p);
