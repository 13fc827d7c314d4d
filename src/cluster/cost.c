/* Times of one op and of one collective on a cluster. */
#include "cluster/work.h"

/* ---- ops ---- */

/* Waves of tiles over the device's units. A wave that is not full takes `wave` of what it lacks. */
static double waves_of(const wf_cluster *c, double n_tiles) {
    double waves = n_tiles / c->units;
    return waves + c->wave * (ceil(waves) - waves);
}

static double tile_us(const wf_cluster *c, const wfi_tile *t, double flops, double count, double m,
                      double n, double k) {
    double waves = waves_of(c, count * ceil(m / t->m) * ceil(n / t->n));
    return 1e6 * waves * 2 * t->m * t->n * (k + c->half_k) / (flops / c->units * t->share);
}

/* Kernels of 16-bit types load 16 bytes at a time if rows allow it, and are the fastest with rows
 * of whole 128 bytes. Products of attention, `count` at once, wait for bytes instead. */
static double alignment_of(const wf_cluster *c, wfi_precision p, double count, double n, double k) {
    if (p == WFI_F32) return 1;
    if (fmod(k, 8) != 0 || fmod(n, 8) != 0) return c->unaligned;
    return count > 1 || (fmod(k, 64) == 0 && fmod(n, 64) == 0) ? 1 : c->ragged;
}

double wfi_product_us(const wf_cluster *c, wfi_precision p, double count, double m, double n,
                      double k) {
    double flops = c->peak_flops[p] * c->efficiency * alignment_of(c, p, count, n, k);
    double best = INFINITY, bytes = count * (m * k + k * n + m * n) * (p == WFI_F32 ? 4 : 2);
    for (int t = 0; t < c->n_tiles; t++)
        best = fmin(best, tile_us(c, &c->tiles[t], flops, count, m, n, k));
    double memory =
        c->product_memory_efficiency ? c->product_memory_efficiency : c->memory_efficiency;
    return c->launch_us + fmax(best, 1e6 * bytes / (c->memory_bandwidth * memory));
}

double wfi_bytes_us(const wf_cluster *c, double bytes) {
    return c->launch_us + 1e6 * bytes / (c->memory_bandwidth * c->memory_efficiency);
}

/* ---- collectives ---- */

/* Devices of a member of level k that belong to one group: ranks in a row, `stride` apart. */
static double ranks_inside(double devices, double n, double stride) {
    return fmax(1, fmin(n, floor(devices / stride)));
}

/* Bytes per second of one group at a level whose members have so many devices: groups that cross
 * the level at the same time divide the links. Of a send, n ranks at a time do. */
static double bandwidth_of(const wfi_level *level, wfi_traffic_kind kind, double devices, double n,
                           double stride) {
    bool is_send = kind == WFI_TRAFFIC_SEND;
    double groups = fmax(1, devices / ranks_inside(devices, n, stride));
    if (is_send && level->is_shared) groups = fmin(groups, n);
    return level->bandwidth / groups;
}

double wfi_traffic_us(const wf_cluster *c, wfi_traffic_kind kind, double bytes, double n,
                      double stride) {
    double devices = 1, us_per_byte = 0, latency_us = 0,
           rounds = kind == WFI_TRAFFIC_ALL_REDUCE ? 2 : 1;
    double ranks = kind == WFI_TRAFFIC_SEND ? 2 : n;
    if (ranks <= 1) return 0;
    for (int k = 0; k < c->n_levels; k++) {
        const wfi_level *level = &c->levels[k];
        double joined = devices * level->count;
        double members = fmin(joined, ranks * stride) / fmax(devices, stride);
        if (members > 1 && stride < joined) {
            us_per_byte = fmax(us_per_byte, 1e6 / bandwidth_of(level, kind, devices, n, stride));
            latency_us = fmax(latency_us, rounds * level->latency_us * (ranks - 1));
        }
        devices = joined;
    }
    return latency_us + us_per_byte * bytes * (kind == WFI_TRAFFIC_SEND ? 1 : rounds * (n - 1) / n);
}
