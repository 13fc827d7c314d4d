/* A cluster as numbers. Private. */
#pragma once

#include "base/base.h"

#include <math.h>
#include <weft/cluster.h>

#define WFI_CLUSTER_NAME   48
#define WFI_MAX_LEVELS     4
#define WFI_MAX_FILE_BYTES (1 << 20)

typedef enum wfi_precision { WFI_F32, WFI_F16, WFI_BF16, WFI_N_PRECISIONS } wfi_precision;

/* A row for each number of a cluster file: path, member, least and most value, value if it is
 * missing (NAN: it is required). */
#define WFI_CLUSTER_NUMBERS(X)                                                                     \
    X("device.memory_bytes", memory_bytes, 1e6, 1e15, NAN)                                         \
    X("device.memory_bandwidth", memory_bandwidth, 1e6, 1e16, NAN)                                 \
    X("device.memory_efficiency", memory_efficiency, 0.01, 1, 0.8)                                 \
    X("device.product.memory_efficiency", product_memory_efficiency, 0, 1, 0)                      \
    X("device.random_per_s", random_per_s, 0, 1e15, 0)                                             \
    X("device.loss_bytes.forward", loss_bytes[0], 0, 1e5, 38)                                      \
    X("device.loss_bytes.backward", loss_bytes[1], 0, 1e5, 14)                                     \
    X("device.launch_us", launch_us, 0, 1e6, 5)                                                    \
    X("device.library_bytes", library_bytes, 0, 1e12, 0)                                           \
    X("device.peak_flops.f32", peak_flops[WFI_F32], 1e6, 1e18, NAN)                                \
    X("device.peak_flops.f16", peak_flops[WFI_F16], 1e6, 1e18, 0)                                  \
    X("device.peak_flops.bf16", peak_flops[WFI_BF16], 1e6, 1e18, NAN)                              \
    X("device.product.efficiency", efficiency, 0.01, 1, 0.8)                                       \
    X("device.product.half_k", half_k, 0, 1e6, 0)                                                  \
    X("device.product.units", units, 1, 1e6, 1)                                                    \
    X("device.product.wave", wave, 0, 1, 0)                                                        \
    X("device.product.unaligned", unaligned, 0.01, 1, 1)                                           \
    X("device.product.ragged", ragged, 0.01, 1, 1)                                                 \
    X("device.attention_efficiency", attention_efficiency, 0.01, 1, 0.4)                           \
    X("host.memory_bytes", host_bytes, 0, 1e16, 0)                                                 \
    X("host.bandwidth", host_bandwidth, 1e6, 1e16, 1e10)                                           \
    X("disk.bytes", disk_bytes, 0, 1e18, 0)                                                        \
    X("disk.bandwidth", disk_bandwidth, 1e3, 1e16, 1e9)                                            \
    X("software.fused_attention", fuses_attention, 0, 1, 0)                                        \
    X("software.scatter_gather", scatters, 0, 1, 0)                                                \
    X("software.step_ms", step_ms, 0, 1e6, 0)                                                      \
    X("software.overlap.tp_forward", overlap_tp[0], 0, 1, 0)                                       \
    X("software.overlap.tp_backward", overlap_tp[1], 0, 1, 0)                                      \
    X("software.overlap.dp", overlap_dp, 0, 1, 0)                                                  \
    X("software.overlap.pp", overlap_pp, 0, 1, 0)                                                  \
    X("software.overlap.zero3", overlap_zero3, 0, 1, 0)                                            \
    X("software.zero3_bandwidth", zero3_bandwidth, 1e6, 1e16, 1e16)                                \
    X("software.dp_efficiency", dp_efficiency, 0.01, 1, 1)                                         \
    X("software.reduce_passes", reduce_passes, 1, 2, 1)                                            \
    X("software.optimizer_bytes", optimizer_bytes, 0, 1000, 48)                                    \
    X("software.activation_slack", activation_slack, 0.1, 10, 1)                                   \
    X("software.scale", scale, 0.1, 10, 1)                                                         \
    X("software.bytes.f32.parameter", bytes[WFI_F32][0], 0, 64, 4)                                 \
    X("software.bytes.f32.gradient", bytes[WFI_F32][1], 0, 64, 4)                                  \
    X("software.bytes.f32.state", bytes[WFI_F32][2], 0, 64, 8)                                     \
    X("software.bytes.f16.parameter", bytes[WFI_F16][0], 0, 64, 2)                                 \
    X("software.bytes.f16.gradient", bytes[WFI_F16][1], 0, 64, 2)                                  \
    X("software.bytes.f16.state", bytes[WFI_F16][2], 0, 64, 12)                                    \
    X("software.bytes.bf16.parameter", bytes[WFI_BF16][0], 0, 64, 2)                               \
    X("software.bytes.bf16.gradient", bytes[WFI_BF16][1], 0, 64, 4)                                \
    X("software.bytes.bf16.state", bytes[WFI_BF16][2], 0, 64, 12)

/* A kernel's tile, and the share of the efficiency that it reaches. */
typedef struct wfi_tile {
    double m, n, share;
} wfi_tile;
#define WFI_MAX_TILES 8

/* `count` members of the level before, the first level's being devices. */
typedef struct wfi_level {
    char name[WFI_CLUSTER_NAME];
    double count;
    double bandwidth;  /* bytes per second of a member, one way */
    double latency_us; /* of a message */
    bool is_shared;    /* the devices of a member share its link; else each has an equal part */
} wfi_level;

enum { WFI_BYTES_PARAMETER, WFI_BYTES_GRADIENT, WFI_BYTES_STATE, WFI_N_BYTES };

struct wf_cluster {
    wf_context *ctx;
    char name[WFI_CLUSTER_NAME];
    double memory_bytes, memory_bandwidth, memory_efficiency, launch_us, library_bytes;
    double peak_flops[WFI_N_PRECISIONS];
    double efficiency, half_k, units, wave, unaligned,
        ragged; /* of products of matrices (cost.c) */
    wfi_tile tiles[WFI_MAX_TILES];
    int n_tiles;
    double attention_efficiency; /* of the peak, by a kernel that keeps no scores */
    double fuses_attention;      /* 1: there is one */
    double scatters; /* 1: ranks along tp each send their part of a value to the next stage */
    double step_ms;  /* of a step, whatever the model */
    double product_memory_efficiency; /* of operands of products; 0: as all others */
    double random_per_s;  /* random numbers of dropout, where one thread draws them; 0: no time */
    double loss_bytes[2]; /* of a logit, which the loss reads and writes: forward, backward */
    double host_bytes, host_bandwidth, disk_bytes, disk_bandwidth;
    double overlap_tp[2]; /* shares of communication that compute hides: forward, backward */
    double overlap_dp, overlap_pp, overlap_zero3;
    double zero3_bandwidth;              /* of gathers of zero=3 between nodes, at most */
    double dp_efficiency, reduce_passes; /* of sums over replicas; 2: all-reduce before a scatter */
    double optimizer_bytes;              /* a parameter: read and written by an update */
    double activation_slack;             /* activations with what an allocator loses between them */
    double scale;                        /* of all times */
    double bytes[WFI_N_PRECISIONS][WFI_N_BYTES]; /* a parameter, for WF_ACCOUNTING_MEGATRON */
    wfi_level levels[WFI_MAX_LEVELS];
    int n_levels;
};

/* The text of the files in shipped/ (CMakeLists.txt makes it). */
typedef struct wfi_shipped_cluster {
    const char *name, *text;
} wfi_shipped_cluster;
extern const wfi_shipped_cluster wfi_shipped_clusters[];
