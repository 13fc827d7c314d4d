/* The norm of a gradient that several servers share. Private. */
#pragma once

#include "workers/run.h"

/* Computes the square of the norm of the whole gradient, in the order of the synchronous program.
 * `gradient` is the server's part. All servers call it for the same update. */
wf_status wfi_norm_total(wfi_server *s, const float *gradient, double *total_out);

/* Returns the number of blocks of squares before element `at`, which is a cut. */
size_t wfi_norm_blocks(const wfi_vector *l, size_t at);
