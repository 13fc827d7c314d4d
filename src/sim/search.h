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

/* The search's plan with another mesh and other keys; `sp`: ranks divide rows, too. */
wf_status wfi_search_plan(const wfi_search *s, int tp, bool sp, int dp, int pp, const char *keys,
                          wf_plan **plan_out);
/* Whether so many ranks may divide the slices; whether they can divide rows, too. */
bool wfi_search_may_divide(const wfi_search *s, int tp);
bool wfi_search_has_rows(const wfi_search *s, int tp);
/* Compiles the plan's program, and keeps it as a proposal if it fits, with its tests. Errors: those
 * of wfi_program_create and wf_program_plan_tests. */
wf_status wfi_search_try(wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                         bool *fits_out, size_t *state_bytes_out);
bool wfi_search_fits(const wfi_search *s, const wf_program *p);
