/* The CPU's kernels of our own: the plain C reference of nodes, and those that add a weight's
 * gradient to its accumulator. Private. The latter fill a
 * kernel of two operands: gradient, and plain F32 accumulator; the latter is overwritten or,
 * with `add`, added to.
 */
#pragma once

#include "base/variants.h"
#include "kernel/backend.h"

extern const wfi_kernel_impl wfi_kernel_widened, wfi_kernel_reference, wfi_kernel_adding;

/* Part of a window [rows, columns]. */
typedef struct wfi_window_part {
    int64_t row, column, n_rows, n_columns;
} wfi_window_part;
/* The gradient [out, in, rows, columns] is held as [out / 16][in / 16][...][in % 16][out % 16], as
 * convolutions like it; out and in are multiples of 16. The gradient covers `part` of the window
 * and is 0 elsewhere. */
wf_status wfi_accumulate_blocked(wfi_kernel *kernel, const wf_shape *shape,
                                 const wfi_window_part *part, bool add);

/* ---- loops, for tests of their variants ---- */

void wfi_cpu_add(wfi_variant variant, float *sum, const float *summand, size_t n);
/* All but the count of batches. */
void wfi_cpu_statistics(wfi_variant variant, const wfi_statistics_call *call);
