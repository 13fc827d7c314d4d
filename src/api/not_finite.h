/* Numbers of a step that are not finite: detected by the rank that computes them, reported by all
 * ranks alike. Private.
 *
 * Each update checks the values that it has written, and records the unit in the cell of its rank
 * (base/finite.h). After the run every rank reads all cells and the losses of all microbatches, so
 * all come to the same sentence. If several units have such values, the sentence names the last
 * unit: the first in the backward pass.
 */
#pragma once

#include "base/base.h"
#include "base/finite.h"

struct wf_trainer;
struct wfi_ready;

/* After a run: NOT_FINITE, if any cell or loss says so. */
wf_status wfi_not_finite_check(struct wf_trainer *t, const struct wfi_ready *r);
