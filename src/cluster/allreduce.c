/* Times of weft's all-reduce algorithms over the levels of a cluster. All groups of a node sum at
 * once, and share its links.
 */
#include "cluster/work.h"

/* Of a group at a level: members, ranks of each, links. */
typedef struct crossing {
    double members, inside;
    double us_per_byte; /* if one rank of each member sends for the group */
    double us_each;     /* if each rank sends */
    double latency_us;
} crossing;

static int find_crossings(const wf_cluster *c, double n, double stride, crossing *out) {
    int n_found = 0;
    double devices = 1;
    for (int k = 0; k < c->n_levels; k++) {
        const wfi_level *level = &c->levels[k];
        double joined = devices * level->count;
        double inside = fmax(1, fmin(n, floor(devices / stride)));
        double members = ceil(fmax(1, fmin(n, floor(joined / stride))) / inside);
        if (members > 1)
            out[n_found++] =
                (crossing){members, inside, 1e6 * fmax(1, devices / inside) / level->bandwidth,
                           1e6 * devices / level->bandwidth, level->latency_us};
        devices = joined;
    }
    return n_found;
}

/* A ring of all ranks: twice the bytes, over the slowest link. */
static double ring_us(const crossing *x, int n_levels, double bytes, double n) {
    double latency = 0, each = 0;
    for (int k = 0; k < n_levels; k++) {
        latency = fmax(latency, x[k].latency_us);
        each = fmax(each, x[k].us_per_byte);
    }
    return 2 * (n - 1) * (latency + each * bytes / n);
}

/* Each rank sums a slice of all the others, then collects the other slices. */
static double direct_us(const crossing *x, int n_levels, double bytes, double n) {
    double latency = 0, us = 0;
    for (int k = 0; k < n_levels; k++) {
        latency = fmax(latency, x[k].latency_us);
        us = fmax(us, x[k].us_each * bytes * x[k].inside * (x[k].members - 1) / n);
    }
    return 2 * (latency + us);
}

/* Halves are exchanged with ever farther ranks, and collected the same way back: so what crosses a
 * node has been summed within it. */
static double pairwise_us(const crossing *x, int n_levels, double bytes) {
    double us = 0;
    for (int k = 0; k < n_levels; k++) {
        double part = bytes / x[k].inside * (x[k].members - 1) / x[k].members;
        us += 2 * (ceil(log2(x[k].members)) * x[k].latency_us + x[k].us_each * part);
    }
    return us;
}

/* Whole sums go up a tree of pairs, and down again. */
static double tree_us(const crossing *x, int n_levels, double bytes) {
    double us = 0;
    for (int k = 0; k < n_levels; k++)
        us += 2 * ceil(log2(x[k].members)) * (x[k].latency_us + x[k].us_per_byte * bytes);
    return us;
}

/* All bytes of the others go to one rank, and from there to all. */
static double root_us(const crossing *x, int n_levels, double bytes) {
    double latency = 0, us = 0;
    for (int k = 0; k < n_levels; k++) {
        latency = fmax(latency, x[k].latency_us);
        us = fmax(us, x[k].us_per_byte * bytes * x[k].inside * (x[k].members - 1));
    }
    return 2 * (latency + us);
}

double wfi_allreduce_us(const wf_cluster *c, const wfi_allreduce *how, double bytes, double n,
                        double stride) {
    crossing x[WFI_MAX_LEVELS];
    int k = find_crossings(c, n, stride, x);
    if (n <= 1) return 0;
    if (how == &wfi_allreduce_root) return root_us(x, k, bytes);
    if (how == &wfi_allreduce_ring || how == &wfi_allreduce_engine) return ring_us(x, k, bytes, n);
    if (how == &wfi_allreduce_tree) return tree_us(x, k, bytes);
    if (how == &wfi_allreduce_pairwise) return pairwise_us(x, k, bytes);
    if (how == &wfi_allreduce_direct) return direct_us(x, k, bytes, n);
    return fmin(fmin(direct_us(x, k, bytes, n), pairwise_us(x, k, bytes)),
                fmin(tree_us(x, k, bytes), ring_us(x, k, bytes, n)));
}
