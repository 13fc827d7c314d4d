/* Numbers of a step that are not finite: noticed by the rank that makes them, told by all alike.
 * Private.
 *
 * Updates look at what they have written, and note the unit in the cell of their rank. After the
 * run every rank reads all cells and the losses of all microbatches, so all come to the same
 * sentence. Of several units the last one is named, which is the first in the backward pass.
 */
#ifndef WFI_NOT_FINITE_H
#define WFI_NOT_FINITE_H

#include "base/base.h"

struct wf_trainer;
struct wfi_ready;

/* The later, the nearer to the cause. */
typedef enum wfi_not_finite {
    WFI_FINITE_ALL,
    WFI_FINITE_NO_STATISTICS,
    WFI_FINITE_NO_STATE,
    WFI_FINITE_NO_WEIGHTS,
    WFI_FINITE_NO_GRADIENT
} wfi_not_finite;

/* Keeps it if the cell has nothing nearer to the cause. One thread writes a cell in a run. */
void wfi_not_finite_note(int64_t *cell, wfi_not_finite what, int32_t unit);

/* After a run: NOT_FINITE, if any cell or loss says so. */
wf_status wfi_not_finite_check(struct wf_trainer *t, const struct wfi_ready *r);

#endif
