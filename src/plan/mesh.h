/* The mesh: named axes over ranks. Private.
 *
 * A rank has a coordinate along each axis. Neighbours along an axis are `stride` ranks apart; along
 * the innermost axis they are adjacent. An axis of size 1 takes the same path as any other. Only
 * code that defines the work division of an axis names that axis. All other code moves along an
 * axis that it is given, or keeps the coordinates of a rank that it has.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* By default in this order, the innermost first: ranks divide the slices of a stage (tp), the
 * stages of a replica (pp), and the microbatches (dp). */
typedef enum wfi_axis { WFI_TP, WFI_PP, WFI_DP, WFI_N_AXES } wfi_axis;

/* Fields: the size of each axis, by its number or by its name. */
#define WFI_SIZES                                                                                  \
    union {                                                                                        \
        struct {                                                                                   \
            int32_t tp, pp, dp;                                                                    \
        };                                                                                         \
        int32_t size[WFI_N_AXES];                                                                  \
    }

/* A set of axes is a sum of these. Stages and their replicas lie along WFI_STAGE_AXES. */
#define WFI_ALONG(axis) (1u << (axis))
#define WFI_STAGE_AXES  (WFI_ALONG(WFI_PP) | WFI_ALONG(WFI_DP))

typedef struct wfi_mesh {
    WFI_SIZES;
    int32_t stride[WFI_N_AXES];
} wfi_mesh;

/* A rank's coordinate. */
static inline int32_t wfi_mesh_at(const wfi_mesh *mesh, wfi_axis axis, int32_t rank) {
    return rank / mesh->stride[axis] % mesh->size[axis];
}
/* The rank with another coordinate along the axis, and `rank`'s along all others. */
static inline int32_t wfi_mesh_move(const wfi_mesh *mesh, wfi_axis axis, int32_t rank, int32_t at) {
    return rank + (at - wfi_mesh_at(mesh, axis, rank)) * mesh->stride[axis];
}

/* Ranks that differ only along the axes of a set are a group; with an empty set, each rank is one.
 * Groups are numbered by their coordinates along the other axes, of which the first in the default
 * order varies fastest. */
static inline int32_t wfi_mesh_n_groups(const wfi_mesh *mesh, unsigned axes) {
    int32_t n = 1;
    for (int a = 0; a < WFI_N_AXES; a++) n *= axes >> a & 1 ? 1 : mesh->size[a];
    return n;
}
static inline int32_t wfi_mesh_group(const wfi_mesh *mesh, unsigned axes, int32_t rank) {
    int32_t group = 0;
    for (int a = WFI_N_AXES - 1; a >= 0; a--)
        if (!(axes >> a & 1)) group = group * mesh->size[a] + wfi_mesh_at(mesh, (wfi_axis)a, rank);
    return group;
}
/* Whether the rank is the first of its equals: ranks that differ along no axis of stages. */
static inline bool wfi_mesh_reports(const wfi_mesh *mesh, int32_t rank) {
    return wfi_mesh_group(mesh, WFI_STAGE_AXES, rank) == 0;
}
/* The member with coordinate 0 along all axes of the set. */
static inline int32_t wfi_mesh_first(const wfi_mesh *mesh, unsigned axes, int32_t group) {
    int32_t rank = 0;
    for (int a = 0; a < WFI_N_AXES; a++) {
        if (axes >> a & 1) continue;
        rank += group % mesh->size[a] * mesh->stride[a];
        group /= mesh->size[a];
    }
    return rank;
}
