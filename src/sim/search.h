/* The search for plans of a program's step that fit. Private to src/sim. */
#pragma once

#include "program/program.h"

typedef struct wfi_search {
    const wf_program *p;
    size_t device_bytes, host_bytes; /* given */
    wf_proposal *found;              /* [n_found] */
    int n_found;
    size_t capacity;
} wfi_search;

/* A search for plans in place of p; 0 bytes: as much as it needs. */
static inline wfi_search wfi_search_for(const wf_program *p, size_t device_bytes,
                                        size_t host_bytes) {
    return (wfi_search){.p = p,
                        .device_bytes = device_bytes ? device_bytes : SIZE_MAX,
                        .host_bytes = host_bytes ? host_bytes : SIZE_MAX};
}

/* ---- peaks, with those of tests ---- */

size_t wfi_search_peak_of(const wf_program *p, wfi_space space, int32_t rank);
int32_t wfi_search_largest(const wf_program *p, wfi_space space);
/* The largest rank's. */
size_t wfi_search_peak(const wf_program *p, wfi_space space);
bool wfi_search_fits(const wfi_search *s, const wf_program *p);

/* ---- plans ---- */

/* The search's plan with another mesh and other keys; `sp`: ranks divide rows, too. */
wf_status wfi_search_plan(const wfi_search *s, int tp, bool sp, int dp, int pp, const char *keys,
                          wf_plan **plan_out);
/* Whether so many ranks may divide the slices; whether they can divide rows, too. */
bool wfi_search_may_divide(const wfi_search *s, int tp);
bool wfi_search_has_rows(const wfi_search *s, int tp);

/* ---- programs ---- */

/* A program on p's devices. Errors: those of wf_program_create. */
wf_status wfi_search_create(const wf_program *p, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, wfi_program_use use, wf_program **program_out);
/* Compiles the plan's program, and keeps it as a proposal if it fits, with its tests. Errors: those
 * of wfi_program_create and wf_program_plan_tests. */
wf_status wfi_search_try(wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                         bool *fits_out, size_t *state_bytes_out);

/* ---- drafts ---- */

/* Makes it the recipe of a short step: fewer microbatches of the same size, as many as fill and
 * empty a pipeline. The whole step needs about as much memory or more. False: it is not much
 * longer. */
bool wfi_search_shorten(const wf_plan *plan, wf_recipe *recipe);
/* Whether the plan's bounds fit. Drafts a short step first, if there is one: that takes a fraction
 * of the time. Its bounds may be a quarter too high, because the cut into stages depends on the
 * number of microbatches. (Of 563 plans the worst was 20 % higher than the peak of the whole step.)
 * Errors: NO_MEMORY. */
wf_status wfi_search_may_fit(const wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                             bool *may_out, size_t *state_bytes_out);
