/* The norm of a gradient that several servers have. Private. */
#ifndef WFI_WORKERS_NORM_H
#define WFI_WORKERS_NORM_H

#include "workers/run.h"

/* The square of the norm of the whole gradient, of which the server has `gradient`, as the
 * synchronous program computes it. All servers call it for the same update. */
wf_status wfi_norm_total(wfi_server *s, const float *gradient, double *total_out);

/* Blocks of squares of the elements before `at`, which is a cut. */
size_t wfi_norm_blocks(const wfi_vector *l, size_t at);

#endif
