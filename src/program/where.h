/* Where tensors are: a placement along each axis of the mesh, and a memory space. Private.
 *
 * A stage of the pipeline sets the placement along `pp`, a strategy along `dp`, and slices along
 * `tp`. Kernels, the optimizer and the next step need a tensor in different placements: where two
 * of them differ, lowering moves it (lower/move.h).
 */
#pragma once

#include "program/stage.h"

/* The purpose for which a tensor has a placement. */
typedef enum wfi_role {
    WFI_MADE,    /* kernels of one microbatch or slice have written it */
    WFI_KEPT,    /* from use to use, or from step to step; a GRADIENT: once it is summed */
    WFI_USED,    /* kernels read it */
    WFI_UPDATED, /* the optimizer changes it */
    WFI_RENEWED  /* a PARAM whose update has reached all ranks that keep it */
} wfi_role;

typedef struct wfi_where {
    wfi_placement along[WFI_N_AXES];
    int32_t at[WFI_N_AXES]; /* WFI_AT: the coordinate */
    int32_t stage;          /* has the replicas along dp */
    wfi_space space;
    wfi_copy copy; /* of the tensor on each rank, as in its name; so is `turn` */
    int32_t turn;
    bool is_trained; /* without untrained parameters */
} wfi_where;

/* The unit that declares or makes a tensor. */
int32_t wfi_unit_of(const wf_program *p, wfi_name name);
/* Where the tensor is in that role, for a stage that reads or makes it. KEPT: the copy that ranks
 * keep; else that of the name. */
wfi_where wfi_where_on(const wf_program *p, wfi_name name, int32_t stage, wfi_role role);
/* The same for the stage of its unit. */
wfi_where wfi_where_is(const wf_program *p, wfi_name name, wfi_role role);

/* The rank that has it, or a part, for `rank`: the one with the same coordinates along axes over
 * which it is divided or repeated. */
int32_t wfi_rank_with(const wf_program *p, const wfi_where *where, int32_t rank);
/* Whether the rank, of the stage, has it or a part. */
bool wfi_is_at(const wf_program *p, const wfi_where *where, int32_t rank);
/* The part that a rank has there. STATE is counted in parameters: it has as many for each of the
 * optimizer's states, one after the other. */
wfi_extent wfi_extent_at(const wf_program *p, wfi_name name, const wfi_where *where, int32_t rank);

/* Where the rank keeps the PARAM, BUFFER, STATE or summed GRADIENT of a unit: on the unit's stage,
 * or as a tied weight for another. The part that it keeps; no bytes: nothing. */
wfi_where wfi_where_kept(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank);
wfi_extent wfi_kept_extent(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank);
/* The bytes that a fetch, an evict or a send moves: of a PARAM, BUFFER or STATE those that the rank
 * keeps; of a VALUE its part; all of another tensor. */
wfi_extent wfi_moved_extent(const wf_program *p, wfi_name name, int32_t rank);
