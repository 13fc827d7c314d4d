/* Numbers of a step that are not finite: noticed by the rank that makes them, told by all alike.
 * Private.
 *
 * Updates look at what they have written, and record the unit in the cell of their rank
 * (base/finite.h). After the
 * run every rank reads all cells and the losses of all microbatches, so all come to the same
 * sentence. Of several units the last one is named, which is the first in the backward pass.
 */
#ifndef WFI_NOT_FINITE_H
#define WFI_NOT_FINITE_H

#include "base/base.h"
#include "base/finite.h"

struct wf_trainer;
struct wfi_ready;

/* After a run: NOT_FINITE, if any cell or loss says so. */
wf_status wfi_not_finite_check(struct wf_trainer *t, const struct wfi_ready *r);

#endif
