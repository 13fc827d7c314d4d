/* The interface of this folder, and oneDNN's threads, which belong to the OpenMP runtime that it
 * was linked to. Private.
 *
 * A primitive divides its work by the number of threads it was described with. If fewer threads
 * start when it runs, the missing threads' part is not computed, and the library does not report
 * that.
 */
#pragma once

#include "kernel/kernel.h"

extern const wfi_kernel_impl wfi_kernel_onednn;
/* "oneDNN 2.6.3 (avx512_core)". Static. */
const char *wfi_library_text(wf_context *ctx);

wfi_bf16_speed wfi_library_bf16_speed(void);

/* The number for regions that the calling thread begins. Errors: UNSUPPORTED if the library is not
 * built on OpenMP and `n_threads` is not 1; INVALID_ARG inside a parallel region. */
wf_status wfi_library_set_threads(wf_context *ctx, int n_threads);
int wfi_library_threads(void);

/* The same for a thread of rank `rank` that is about to compute, and starts them: counts those that
 * come to a parallel region. Errors: UNSUPPORTED, if they are fewer; the sentence names the
 * variable or limit that is to blame. */
wf_status wfi_library_start_threads(wf_context *ctx, int rank, int n_threads, int *n_out);

/* Calls each(argument, i, thread) for i from 0 to n - 1, divided over as many threads, which are
 * numbered. The status of one that fails, if any does. */
typedef wf_status (*wfi_each_function)(const void *argument, int64_t i, int thread);
wf_status wfi_library_each(int n_threads, int64_t n, wfi_each_function each, const void *argument);
