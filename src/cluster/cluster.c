#include "cluster/cluster.h"

#include <string.h>

const char *wf_cluster_shipped(int i) {
    for (int k = 0; k < i && k >= 0; k++)
        if (!wfi_shipped_clusters[k].name) return NULL;
    return i >= 0 ? wfi_shipped_clusters[i].name : NULL;
}

const char *wf_cluster_shipped_text(const char *name) {
    for (int i = 0; wfi_shipped_clusters[i].name; i++)
        if (!strcmp(wfi_shipped_clusters[i].name, name)) return wfi_shipped_clusters[i].text;
    return NULL;
}

void wf_cluster_destroy(wf_cluster *cluster) {
    if (cluster) wfi_free(cluster->ctx, cluster);
}

const char *wf_cluster_name(const wf_cluster *cluster) {
    return cluster->name;
}

/* The product is bounded: 4 levels of a million each are below 2^80, and doubles hold that. */
int64_t wf_cluster_n_devices(const wf_cluster *c) {
    double n = 1;
    for (int k = 0; k < c->n_levels; k++) n *= c->levels[k].count;
    return n < 1e18 ? (int64_t)n : INT64_C(1000000000000000000);
}

wf_status wf_cluster_set_nodes(wf_cluster *c, int64_t n_nodes) {
    if (n_nodes < 1 || n_nodes > 1000000)
        return wfi_fail(c->ctx, WF_INVALID_ARG, "%lld nodes; a cluster has 1 to 1000000",
                        (long long)n_nodes);
    if (c->n_levels < 2)
        return n_nodes == 1 ? WF_OK
                            : wfi_fail(c->ctx, WF_INVALID_ARG,
                                       "cluster %s has one node, and no link to others", c->name);
    double own = 1;
    for (int k = 1; k < c->n_levels - 1; k++) own *= c->levels[k].count;
    if (fmod((double)n_nodes, own) != 0)
        return wfi_fail(c->ctx, WF_INVALID_ARG,
                        "%lld nodes; a group of cluster %s has %g, so it takes multiples of them",
                        (long long)n_nodes, c->name, own);
    c->levels[c->n_levels - 1].count = (double)n_nodes / own;
    return WF_OK;
}
