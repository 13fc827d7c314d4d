/* The mesh: named axes over ranks. Private.
 *
 * Along an axis ranks are `stride` apart. Of the innermost axis that is 1, so its ranks are
 * neighbours; by default that is `tp`, whose ranks divide the slices of one stage; then comes `pp`,
 * so the stages of one replica are neighbours. An axis of size 1 takes the same path as any other.
 */
#ifndef WFI_MESH_H
#define WFI_MESH_H

#include <stdint.h>

/* By default in this order, the innermost first. */
typedef enum wfi_axis { WFI_AXIS_TP, WFI_AXIS_PP, WFI_AXIS_DP, WFI_N_AXES } wfi_axis;

typedef struct wfi_mesh {
    int32_t tp, pp, dp; /* sizes */
    int32_t stride[WFI_N_AXES];
} wfi_mesh;

static inline int32_t wfi_mesh_n_ranks(wfi_mesh mesh) {
    return mesh.tp * mesh.pp * mesh.dp;
}
static inline int32_t wfi_mesh_rank(wfi_mesh mesh, int32_t tp, int32_t pp, int32_t dp) {
    return tp * mesh.stride[WFI_AXIS_TP] + pp * mesh.stride[WFI_AXIS_PP] +
           dp * mesh.stride[WFI_AXIS_DP];
}
/* A rank's coordinates. */
static inline int32_t wfi_mesh_tp(wfi_mesh mesh, int32_t rank) {
    return rank / mesh.stride[WFI_AXIS_TP] % mesh.tp;
}
static inline int32_t wfi_mesh_pp(wfi_mesh mesh, int32_t rank) {
    return rank / mesh.stride[WFI_AXIS_PP] % mesh.pp;
}
static inline int32_t wfi_mesh_dp(wfi_mesh mesh, int32_t rank) {
    return rank / mesh.stride[WFI_AXIS_DP] % mesh.dp;
}

#endif
