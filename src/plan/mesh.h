/* The mesh: named axes over ranks. Private.
 *
 * `pp` is the inner axis: the stages of one replica are neighbours. An axis of size 1 takes the
 * same path as any other.
 */
#ifndef WFI_MESH_H
#define WFI_MESH_H

#include <stdint.h>

typedef struct wfi_mesh {
    int32_t pp, dp; /* sizes */
} wfi_mesh;

static inline int32_t wfi_mesh_n_ranks(wfi_mesh mesh) {
    return mesh.pp * mesh.dp;
}
static inline int32_t wfi_mesh_rank(wfi_mesh mesh, int32_t pp, int32_t dp) {
    return dp * mesh.pp + pp;
}
/* A rank's coordinates. */
static inline int32_t wfi_mesh_pp(wfi_mesh mesh, int32_t rank) {
    return rank % mesh.pp;
}
static inline int32_t wfi_mesh_dp(wfi_mesh mesh, int32_t rank) {
    return rank / mesh.pp;
}

#endif
