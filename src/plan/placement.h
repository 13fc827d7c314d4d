/* Placement: where a tensor lives along an axis of the mesh. Private.
 *
 * A collective is a change from one placement to another:
 *   AT -> REPLICATE       broadcast     PARTIAL -> REPLICATE   all-reduce
 *   AT -> SHARD           scatter       PARTIAL -> AT          reduce
 *   SHARD -> AT           gather        PARTIAL -> SHARD       reduce-scatter
 *   SHARD -> REPLICATE    all-gather    AT -> AT               send and receive
 * A collective moves pieces. Each piece of a divided tensor has an owner, one of the replicas.
 */
#pragma once

#include "base/base.h"

typedef enum wfi_placement {
    WFI_AT,        /* one has it, in a group the first; the others have nothing */
    WFI_REPLICATE, /* each replica has the whole */
    WFI_SHARD,     /* each replica has its part */
    WFI_PARTIAL,   /* each replica has a summand */
    WFI_N_PLACEMENTS
} wfi_placement;

/* The collective's name; NULL: there is none for that change. */
const char *wfi_change_name(wfi_placement from, wfi_placement to);

/* Some bytes of a tensor, such as a unit's flat buffer of parameters. */
typedef struct wfi_extent {
    size_t offset, bytes;
} wfi_extent;

/* Small tensors do not rotate among more replicas. */
#define WFI_MOST_ROTATING 64

/* How a tensor is divided. */
typedef struct wfi_division {
    int32_t number; /* of the tensor: small ones rotate */
    bool is_coarse; /* clipping measures the norm of parts, or a disk keeps them */
} wfi_division;

/* The part of `bytes` bytes that replica k of n has; no bytes: nothing. Coarse parts are
 * whole blocks of elements for which a gradient's norm has a sum of its own
 * (WFI_NORM_BLOCK_ELEMENTS), so they are measured as the whole would be, and a disk reads them
 * directly into their places in the whole; others are whole cache lines. Parts are equal but for
 * the last ones, so most replicas have as much as others. Tensors with fewer blocks than replicas
 * rotate, if they are coarse or there are few replicas. */
wfi_extent wfi_placement_extent(wfi_placement placement, size_t bytes, int32_t n, int32_t k,
                                wfi_division how);
/* The owner of the part of a divided tensor that begins there. */
int32_t wfi_placement_owner(size_t bytes, int32_t n, size_t begin, wfi_division how);
/* Whether it has fewer blocks than there are replicas. */
bool wfi_placement_is_small(size_t bytes, int32_t n);
/* What both have. */
wfi_extent wfi_extent_intersect(wfi_extent a, wfi_extent b);

/* Whether replica k has a piece of that owner. */
static inline bool wfi_placement_has(wfi_placement placement, int32_t k, int32_t owner) {
    if (placement == WFI_AT) return k == 0;
    return placement != WFI_SHARD || k == owner;
}
