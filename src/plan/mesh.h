/* The mesh: named axes over ranks. Private.
 *
 * `tp` is the inner axis: the ranks that divide the slices of one stage are neighbours; then `pp`,
 * so the stages of one replica are. An axis of size 1 takes the same path as any other.
 */
#ifndef WFI_MESH_H
#define WFI_MESH_H

#include <stdint.h>

typedef struct wfi_mesh {
    int32_t tp, pp, dp; /* sizes */
} wfi_mesh;

static inline int32_t wfi_mesh_n_ranks(wfi_mesh mesh) {
    return mesh.tp * mesh.pp * mesh.dp;
}
static inline int32_t wfi_mesh_rank(wfi_mesh mesh, int32_t tp, int32_t pp, int32_t dp) {
    return (dp * mesh.pp + pp) * mesh.tp + tp;
}
/* A rank's coordinates. */
static inline int32_t wfi_mesh_tp(wfi_mesh mesh, int32_t rank) {
    return rank % mesh.tp;
}
static inline int32_t wfi_mesh_pp(wfi_mesh mesh, int32_t rank) {
    return rank / mesh.tp % mesh.pp;
}
static inline int32_t wfi_mesh_dp(wfi_mesh mesh, int32_t rank) {
    return rank / (mesh.tp * mesh.pp);
}

#endif
