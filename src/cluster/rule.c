/* The rule of thumb that surveys give for choosing a strategy. */
#include "cluster/cluster.h"

enum {
    ONE = 1 << 0,
    DDP = 1 << 2,
    ZERO = 1 << 3 | 1 << 4 | 1 << 5,
    PIPELINE = 1 << 6,
    TENSOR = 1 << 7,
    PP_TP_DP = 1 << 10,
    ALL_WITH_ZERO = 1 << 11,
    OFFLOAD = 1 << 12
};

/* Between nodes, a device has less than this part of its bandwidth inside a node. */
#define SLOW_PART 20

static bool has_slow_links(const wf_cluster *c) {
    const wfi_level *inner = &c->levels[0], *outer = &c->levels[c->n_levels - 1];
    double devices = (double)wf_cluster_n_devices(c) / outer->count;
    return outer->bandwidth / devices * SLOW_PART < inner->bandwidth;
}

const char *wf_cluster_rule(const wf_cluster *c, const wf_choice *rows, unsigned *rows_out) {
    bool is_one_node = c->n_levels < 2 || wf_cluster_n_devices(c) <= c->levels[0].count;
    const struct {
        bool applies;
        unsigned rows;
        const char *words;
    } cases[] = {
        {wf_cluster_n_devices(c) == 1 && rows[0].prediction.fits, ONE,
         "one device, and the model fits"},
        {wf_cluster_n_devices(c) == 1, OFFLOAD, "one device, and the model does not fit"},
        {is_one_node && rows[0].prediction.fits, DDP, "one node, and the model fits on one device"},
        {is_one_node && rows[6].prediction.fits, PIPELINE | ZERO,
         "one node, and the model does not fit on one device"},
        {is_one_node, TENSOR | ZERO, "one node, and no pipeline stage fits on one device"},
        {!is_one_node && has_slow_links(c), ALL_WITH_ZERO, "several nodes with slow links"},
        {true, ZERO | PP_TP_DP, "several nodes with fast links"},
    };
    size_t k = 0;
    while (!cases[k].applies) k++;
    *rows_out = cases[k].rows;
    return cases[k].words;
}
