/* A table whose key decides the choice of a kernel: op, attributes, operands and options. */
#include "kernel/descriptions.h"

#include "base/hash.h"

#include <string.h>

/* A kernel that none runs: others have its state. */
typedef struct described {
    uint64_t hash;
    const wfi_node *node;
    wfi_kernel_options options;
    bool adds;
    wfi_kernel *kernel; /* NULL: there is none that adds */
} described;

struct wfi_descriptions {
    const wf_graph *g;
    described *all; /* [n] */
    size_t n, capacity;
    size_t *table; /* [n_table] open addressing: place in `all` + 1, 0 = free */
    size_t n_table;
};

/* ---- equal nodes ---- */

static bool same_value(const wf_graph *g, int32_t v, int32_t w) {
    if (v < 0 || w < 0) return v < 0 && w < 0;
    const wfi_value *a = wfi_value_at(g, v), *b = wfi_value_at(g, w);
    return a->kind == b->kind && a->dtype == b->dtype && a->layout == b->layout &&
           a->opaque == b->opaque && wfi_shape_equal(&a->shape, &b->shape) &&
           g->values[wfi_value_root(g, v)].kind == g->values[wfi_value_root(g, w)].kind;
}

/* One value may be several operands: then it is so of both nodes. */
static bool same_operands(const wf_graph *g, const wfi_node *a, const wfi_node *b) {
    for (int i = 0; i < a->n_in + a->n_out; i++) {
        if (!same_value(g, wfi_node_operand(a, i), wfi_node_operand(b, i))) return false;
        for (int k = 0; k < i; k++)
            if ((wfi_node_operand(a, k) == wfi_node_operand(a, i)) !=
                (wfi_node_operand(b, k) == wfi_node_operand(b, i)))
                return false;
    }
    return true;
}

static bool same_node(const wf_graph *g, const wfi_node *a, const wfi_node *b) {
    return a->op == b->op && a->n_in == b->n_in && a->n_out == b->n_out &&
           !memcmp(&a->attr, &b->attr, sizeof a->attr) && wfi_shape_equal(&a->shape, &b->shape) &&
           same_operands(g, a, b);
}

static bool same_options(const wfi_kernel_options *a, const wfi_kernel_options *b) {
    return a->backend == b->backend && a->n_threads == b->n_threads && a->conv == b->conv &&
           a->tuned == b->tuned && a->reference == b->reference &&
           a->multiplies_bf16 == b->multiplies_bf16 && a->multiplies_tf32 == b->multiplies_tf32;
}

/* ---- the table ---- */

static uint64_t hash_of(const wf_graph *g, const wfi_node *node) {
    uint64_t hash = wfi_hash_add(WFI_HASH_INIT, &node->op, sizeof node->op);
    hash = wfi_hash_add(hash, &node->attr, sizeof node->attr);
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        int32_t v = wfi_node_operand(node, i);
        int64_t n_elem = v < 0 ? -1 : wf_shape_n_elem(&g->values[v].shape);
        hash = wfi_hash_add(hash, &n_elem, sizeof n_elem);
    }
    return hash;
}

/* Where it stands in the table, or would. */
static size_t *find_entry(const wfi_descriptions *d, const described *wanted) {
    size_t at = wanted->hash % d->n_table;
    for (; d->table[at]; at = (at + 1) % d->n_table) {
        const described *one = &d->all[d->table[at] - 1];
        if (one->hash == wanted->hash && one->adds == wanted->adds &&
            same_options(&one->options, &wanted->options) &&
            same_node(d->g, one->node, wanted->node))
            break;
    }
    return &d->table[at];
}

static wf_status grow_table(wfi_descriptions *d) {
    if (d->n_table > 2 * d->n) return WF_OK;
    size_t n = d->n_table ? 2 * d->n_table : 64;
    wfi_free(d->g->ctx, d->table);
    d->table = wfi_alloc(d->g->ctx, n, sizeof *d->table, "descriptions of kernels");
    d->n_table = d->table ? n : 0;
    for (size_t k = 0; k < d->n && d->table; k++) *find_entry(d, &d->all[k]) = k + 1;
    return d->table ? WF_OK : WF_NO_MEMORY;
}

/* ---- kernels ---- */

static wf_status describe(wfi_descriptions *d, described *one) {
    const wf_graph *g = d->g;
    WF_TRY(WFI_GROW(g->ctx, d->all, d->n, d->capacity, "descriptions of kernels"));
    WF_TRY(one->adds ? wfi_kernel_create_adding(g->ctx, g, one->node, &one->options, &one->kernel)
                     : wfi_kernel_create(g->ctx, g, one->node, &one->options, &one->kernel));
    d->all[d->n++] = *one;
    return WF_OK;
}

wf_status wfi_descriptions_kernel(wfi_descriptions *d, const wfi_node *node,
                                  const wfi_kernel_options *options, bool adds,
                                  wfi_kernel **kernel_out) {
    described one = {.hash = hash_of(d->g, node), .node = node, .options = *options, .adds = adds};
    WF_TRY(grow_table(d));
    size_t *entry = find_entry(d, &one);
    if (!*entry) {
        WF_TRY(describe(d, &one));
        *entry = d->n;
    }
    const wfi_kernel *kernel = d->all[*entry - 1].kernel;
    *kernel_out = NULL;
    return kernel ? wfi_kernel_create_like(kernel, node, kernel_out) : WF_OK;
}

wf_status wfi_descriptions_create(const wf_graph *g, wfi_descriptions **descriptions_out) {
    wfi_descriptions *d = wfi_alloc(g->ctx, 1, sizeof *d, "descriptions of kernels");
    if (!d) return WF_NO_MEMORY;
    d->g = g;
    *descriptions_out = d;
    return WF_OK;
}

void wfi_descriptions_destroy(wfi_descriptions *d) {
    if (!d) return;
    wf_context *ctx = d->g->ctx;
    for (size_t k = 0; k < d->n; k++) wfi_kernel_destroy(d->all[k].kernel);
    wfi_free(ctx, d->all);
    wfi_free(ctx, d->table);
    wfi_free(ctx, d);
}
