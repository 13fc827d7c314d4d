/* Recomputes activations instead of keeping them. Forward nodes get copies in phase R, which runs
 * just before their unit's backward; backward reads the outputs of the copies. A value without
 * readers after forward is not kept, because place.c decides by the readers.
 *
 * Values that other units read are kept. So are batch statistics, which are folded at the end of
 * the step, and new hidden state. Outputs of a copy are not kept.
 */
#include "graph/op.h"
#include "pass/pass.h"
#include "pass/rewrite.h"

#include <string.h>

typedef struct recompute {
    wf_graph *g;
    const wfi_recompute *how; /* [n_units] */
    int32_t n_values;         /* before */
    const wfi_node *nodes;    /* [n_nodes] before */
    int32_t n_nodes;
    bool *stays;     /* [n_values] of values that own their bytes: always kept */
    bool *is_saved;  /* the same: backward of its unit reads it, or another name of it */
    bool *can;       /* [n_values] it can be made again */
    bool *is_needed; /* [n_values] and has to be */
    int32_t *copy;   /* [n_values], or -1 */
    bool has_copies;
} recompute;

static void find_readers(recompute *r) {
    const wf_graph *g = r->g;
    for (int32_t v = 0; v < r->n_values; v++) r->stays[v] = g->values[v].node < 0;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        for (int i = 0; i < node->n_in && !node->dead; i++) {
            if (node->in[i] < 0) continue;
            int32_t root = wfi_value_root(g, node->in[i]);
            if (g->values[root].unit != node->unit) r->stays[root] = true;
            if (node->phase != WFI_F) r->is_saved[root] = true;
        }
    }
    for (int32_t k = 0; k < g->n_hidden; k++) r->stays[g->hidden[k].after] = true;
    for (int32_t s = 0; s < g->n_stats; s++)
        r->stays[g->stats[s].mean] = r->stays[g->stats[s].var] = true;
}

/* Whether at least half of the node's output bytes is saved, or none: a batch norm is not worth
 * repeating for the mask of its ReLU. */
static bool is_large(const recompute *r, const wfi_node *node) {
    size_t saved = 0, all = 0;
    for (int i = 0; i < node->n_out; i++) {
        int32_t root = node->out[i] < 0 ? -1 : wfi_value_root(r->g, node->out[i]);
        size_t bytes = root < 0 ? 0 : wfi_value_bytes(r->g, root);
        all += bytes;
        if (root >= 0 && r->is_saved[root] && !r->stays[root]) saved += bytes;
    }
    return !saved || 2 * saved >= all;
}

/* Whether a node can run again: with `all`, any node; else a cheap and large node with available
 * inputs. */
static bool can_repeat(const recompute *r, const wfi_node *node) {
    const wf_graph *g = r->g;
    if (wfi_node_is_alias(g, node)) return r->can[node->in[0]];
    if (r->how[node->unit] == WFI_RECOMPUTE_ALL) return true;
    bool can = node->op->flags & WFI_OP_CHEAP && is_large(r, node);
    for (int i = 0; i < node->n_in; i++) {
        int32_t v = node->in[i], root = v < 0 ? -1 : wfi_value_root(g, v);
        can = can && (v < 0 || r->stays[root] || r->can[v] || r->is_saved[root]);
    }
    return can;
}

static void find_needed(recompute *r) {
    const wf_graph *g = r->g;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead || node->phase != WFI_F || r->how[node->unit] == WFI_RECOMPUTE_NONE)
            continue;
        bool can = can_repeat(r, node);
        for (int i = 0; i < node->n_out; i++)
            if (node->out[i] >= 0)
                r->can[node->out[i]] = can && !r->stays[wfi_value_root(g, node->out[i])];
    }
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        const wfi_node *node = &g->nodes[n];
        bool reads = node->phase != WFI_F;
        for (int i = 0; i < node->n_out && !reads; i++)
            reads = node->out[i] >= 0 && r->is_needed[node->out[i]];
        for (int i = 0; i < node->n_in && reads && !node->dead; i++)
            if (node->in[i] >= 0 && r->can[node->in[i]]) r->is_needed[node->in[i]] = true;
    }
}

static int32_t copy_of(const recompute *r, int32_t v) {
    return v >= 0 && v < r->n_values && r->copy[v] >= 0 ? r->copy[v] : v;
}

static void add_copy(recompute *r, int32_t n) {
    wf_graph *g = r->g;
    wfi_node node = r->nodes[n];
    node.phase = WFI_R;
    node.repeats = n;
    for (int i = 0; i < node.n_in; i++) node.in[i] = copy_of(r, node.in[i]);
    for (int i = 0; i < node.n_out; i++) {
        int32_t v = node.out[i];
        if (v < 0) continue;
        node.out[i] = wfi_rewrite_value(g, v, &node, WF_F32, WFI_PLAIN);
        if (g->status != WF_OK) return;
        wfi_value *copy = &g->values[node.out[i]];
        *copy = g->values[v];
        /* An alias of a value of all slices needs no memory of its own. */
        copy->alias = wfi_node_is_alias(g, &node) ? copy_of(r, copy->alias) : -1;
        copy->name = NULL;
        if (!r->stays[wfi_value_root(g, v)]) r->copy[v] = node.out[i];
    }
    wfi_rewrite_keep(g, &node);
}

/* All copies, in the order of the nodes that they repeat. */
static void add_copies(recompute *r) {
    r->has_copies = true;
    for (int32_t n = 0; n < r->n_nodes; n++) {
        const wfi_node *node = &r->nodes[n];
        bool is_needed = false;
        for (int i = 0; i < node->n_out && !node->dead && node->phase == WFI_F; i++)
            is_needed |= node->out[i] >= 0 && r->is_needed[node->out[i]];
        if (is_needed) add_copy(r, n);
    }
}

static void add_again(wf_graph *g, const wfi_node *node, void *how) {
    recompute *r = how;
    wfi_node again = *node;
    bool is_back = node->phase != WFI_F;
    if (is_back && !r->has_copies) add_copies(r);
    for (int i = 0; i < again.n_in && is_back; i++) again.in[i] = copy_of(r, again.in[i]);
    wfi_rewrite_keep(g, &again);
}

wf_status wfi_graph_recompute(wf_graph *g, const wfi_recompute *how) {
    size_t n = (size_t)g->n_values;
    recompute r = {
        .g = g, .how = how, .n_values = g->n_values, .nodes = g->nodes, .n_nodes = g->n_nodes};
    bool *flags = wfi_alloc(g->ctx, n, 4 * sizeof *flags, "recomputation");
    r.copy = wfi_alloc(g->ctx, n, sizeof *r.copy, "recomputation");
    wf_status status = flags && r.copy ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        r.stays = flags, r.is_saved = flags + n, r.can = flags + 2 * n, r.is_needed = flags + 3 * n;
        memset(r.copy, -1, n * sizeof *r.copy);
        find_readers(&r);
        find_needed(&r);
        status = wfi_rewrite(g, add_again, &r);
    }
    wfi_free(g->ctx, flags);
    wfi_free(g->ctx, r.copy);
    return status;
}

/* ---- the proof's part ---- */

/* Whether `again` is `first`, or the same output of a copy of its node. */
static bool is_same_value(const wf_graph *g, int32_t first, int32_t again) {
    if (first == again) return true;
    int32_t n = first < 0 || again < 0 ? -1 : g->values[again].node;
    if (n < 0 || g->nodes[n].phase != WFI_R) return false;
    const wfi_node *copy = &g->nodes[n], *node = &g->nodes[copy->repeats];
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] == first && copy->out[i] == again) return true;
    return false;
}

static bool repeats_it(const wf_graph *g, const wfi_node *copy) {
    char a[WFI_ATTR_TEXT], b[WFI_ATTR_TEXT];
    const wfi_node *node = &g->nodes[copy->repeats];
    bool same =
        node->phase == WFI_F && node->op == copy->op && node->unit == copy->unit &&
        !strcmp(wfi_attr_text(node->op, &node->attr, a), wfi_attr_text(copy->op, &copy->attr, b));
    for (int i = 0; i < node->n_in && same; i++) same = is_same_value(g, node->in[i], copy->in[i]);
    for (int i = 0; i < node->n_out && same && node->out[i] >= 0; i++)
        same = copy->out[i] != node->out[i];
    return same;
}

wf_status wfi_graph_check_recompute(const wf_graph *g) {
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *copy = &g->nodes[n];
        if (copy->phase == WFI_R && !repeats_it(g, copy))
            return wfi_fail(g->ctx, WF_BUG,
                            "check: unit %s: %s is to be computed again, and is not the same",
                            g->units[copy->unit].name, copy->op->name);
    }
    for (int32_t s = 0; s < g->n_stats; s++)
        if (g->nodes[g->values[g->stats[s].mean].node].phase != WFI_F)
            return wfi_fail(g->ctx, WF_BUG, "check: unit %s folds statistics that are repeated",
                            g->units[g->stats[s].unit].name);
    for (int32_t k = 0; k < g->n_hidden; k++)
        if (g->nodes[g->values[g->hidden[k].after].node].phase != WFI_F)
            return wfi_fail(g->ctx, WF_BUG, "check: hidden state '%s' comes from a recomputed op",
                            g->values[g->hidden[k].before].name);
    return WF_OK;
}
