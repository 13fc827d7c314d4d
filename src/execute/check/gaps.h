/* Gaps in memory, for tests: WEFT_ARENA_GAP separates blocks and temporaries, and fills the gaps
 * with a pattern. The check names the instruction that writes to a gap. Private.
 *
 * So tests find the bytes that kernels and copies really write, also if a program or a library
 * declares others. Only memory of this process's ranks has gaps.
 */
#pragma once

#include "execute/worker.h"

typedef struct wfi_gaps wfi_gaps;

/* `p` has gaps. */
wf_status wfi_gaps_create(const wf_program *p, const wfi_worker *workers, wfi_gaps **gaps_out);
void wfi_gaps_destroy(wfi_gaps *gaps); /* NULL is allowed */

/* Fills all; the streams are idle. */
void wfi_gaps_fill(const wfi_gaps *gaps);
/* Checks the gaps in and around the references of instruction i. Errors: BUG; the sentence names
 * the block that was overrun. */
wf_status wfi_gaps_check(const wfi_gaps *gaps, int32_t i);
