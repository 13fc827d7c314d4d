/* Gaps in memory, for tests: with WEFT_ARENA_GAP, blocks and temporaries lie apart, and what lies
 * between them is filled with a pattern. Whoever writes there is named. Private.
 *
 * So it is seen what kernels and copies really write, whatever program and libraries say that they
 * do. Only what this process's ranks own has them.
 */
#ifndef WFI_GAPS_H
#define WFI_GAPS_H

#include "run/worker.h"

typedef struct wfi_gaps wfi_gaps;

/* `p` has gaps. */
wf_status wfi_gaps_create(const wf_program *p, const wfi_worker *workers, wfi_gaps **gaps_out);
void wfi_gaps_destroy(wfi_gaps *gaps); /* NULL is allowed */

/* Fills all; the streams are idle. */
void wfi_gaps_fill(const wfi_gaps *gaps);
/* Looks at those in and around what instruction i refers to. Errors: BUG; the sentence names what
 * has been written beyond. */
wf_status wfi_gaps_check(const wfi_gaps *gaps, int32_t i);

#endif
