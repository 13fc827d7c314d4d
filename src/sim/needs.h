/* Lower bounds of the memory of plans that divide or offload more than another one. Private to
 * src/sim. */
#pragma once

#include "program/program.h"

/* A rank's bytes of state, and the most that a pass needs besides: [activations are offloaded]
 * [parameters are fetched or gathered for each use] [units are updated, or gradients freed, during
 * the passes]. */
typedef struct wfi_needs {
    size_t optimizer_bytes, parameter_bytes, other_bytes, pass_bytes[2][2][2];
} wfi_needs;

/* How a plan saves memory. */
typedef struct wfi_saving {
    int zero, n_parts;               /* the parts of what `zero` divides */
    bool state, params, activations; /* are offloaded */
} wfi_saving;

/* Finds the needs of a plan that neither divides nor offloads; needs [n_lowered]. shape_out: a hash
 * of its stages and passes. */
wf_status wfi_find_needs(const wf_program *p, wfi_needs *needs, uint64_t *shape_out);
/* A rank of the same plan with that saving needs so many bytes or more. */
size_t wfi_needs_least(const wfi_needs *needs, int32_t n, const wfi_saving *saving);
