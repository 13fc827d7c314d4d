/* Slices: pairs of layers (pairs.h) are cut into so many parts as the recipe says, whatever the
 * plan is, so that ranks can divide them and the numbers stay.
 *
 * Each slice is a unit of its own, so everything that goes by units (parameters, gradients,
 * optimizer state, norms) is a slice's, and its kernels have the slice's shapes on every rank. What
 * the slices of a pair give is added over one tree. What stands before a pair in its unit stays
 * there; what comes behind is one more unit. So a unit "h.0" becomes "h.0", "h.0.pair0.0",
 * "h.0.pair0.1", ..., "h.0.sum0", and again for its second pair. What slices keep from pair to pair
 * (pairs.c) is read by the same slice.
 *
 * Between pairs, too, each slice is a unit, with some of the rows: "h.0.rows0.0", "h.0.rows0.1",
 * ... (rows.c). What reads all rows again, and is not in a pair, is in "h.0.join0".
 *
 * A parameter that all slices read whole, as a norm's vectors, is declared in the unit before: each
 * slice's use of it has a gradient of its own, as other units' uses of a tied weight have.
 */
#include "base/tree.h"
#include "graph/op.h"
#include "op/op_table.h"
#include "pass/pairs.h"
#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

typedef struct shard {
    wf_graph *g;
    wfi_pairs pairs;
    wfi_node *nodes; /* [n_nodes] the graph before */
    wfi_unit *units; /* [n_units] */
    int32_t n_nodes, n_units, n_values;
    int32_t *becomes; /* [n_values] in the graph behind; in a slice, that slice's */
    int32_t *unit_of; /* [n_units] the first that a unit becomes */
    int32_t *parts;   /* [n_values * n_slices] each slice's rows, or columns, of it, or -1 */
    int32_t *bias;    /* [n_values] is added to rows of the value, or -1 */
    int32_t n_rows;   /* runs of row nodes so far in the unit at hand */
} shard;

static wf_status push(shard *s, const wfi_node *node) {
    wf_graph *g = s->g;
    WF_TRY(WFI_GROW(g->ctx, g->nodes, g->n_nodes, g->node_capacity, "a graph's nodes"));
    g->nodes[g->n_nodes++] = *node;
    return WF_OK;
}

static void add_unit(shard *s, int32_t unit, const char *part, int32_t number, int32_t slice) {
    wf_graph *g = s->g;
    char name[256];
    if (slice < 0)
        snprintf(name, sizeof name, "%s.%s%d", s->units[unit].name, part, number);
    else
        snprintf(name, sizeof name, "%s.%s%d.%d", s->units[unit].name, part, number, slice);
    wfi_graph_add_unit(g, name);
    if (g->status != WF_OK) return;
    g->units[g->n_units - 1].is_slice = slice >= 0;
    g->units[g->n_units - 1].slice = slice < 0 ? 0 : slice;
}

/* What comes next is no slice's. */
static void leave_slices(shard *s, int32_t unit) {
    const wf_graph *g = s->g;
    if (g->units[g->n_units - 1].is_slice) add_unit(s, unit, "join", s->n_rows - 1, -1);
}

/* A node that is computed as a whole. */
static wf_status keep_node(shard *s, const wfi_node *node) {
    wf_graph *g = s->g;
    wfi_node kept = *node;
    leave_slices(s, node->unit);
    kept.unit = g->n_units - 1;
    for (int i = 0; i < kept.n_in; i++)
        if (kept.in[i] >= 0) kept.in[i] = s->becomes[kept.in[i]];
    wfi_value *first = &g->values[kept.out[0]];
    if (first->alias >= 0) first->alias = kept.in[0];
    return push(s, &kept);
}

/* The value of each of n slices: x, by a tree. */
static void give(wf_graph *g, wf_tensor x, int32_t n, int32_t *out) {
    if (n == 1) *out = x.id;
    if (n == 1) return;
    int32_t left = (int32_t)wfi_tree_split(n);
    const wfi_node *node = wfi_graph_add(g, &wfi_op_to_slices, NULL, NULL, 1, &x);
    if (!node) return;
    wf_tensor halves[] = {wfi_tensor(g, node->out[0]), wfi_tensor(g, node->out[1])};
    give(g, halves[0], left, out);
    give(g, halves[1], n - left, out + left);
}

static wf_tensor sum(wf_graph *g, const int32_t *summands, int32_t n) {
    if (n == 1) return wfi_tensor(g, *summands);
    int32_t left = (int32_t)wfi_tree_split(n);
    wf_tensor halves[] = {sum(g, summands, left), sum(g, summands + left, n - left)};
    return wfi_graph_op(g, &wfi_op_sum_slices, NULL, NULL, 2, halves);
}

/* What slices read of what is not cut and no parameter, each once: out[n_out] values before. */
static int32_t find_read(const shard *s, int32_t end, int32_t *out) {
    int32_t n_out = 0;
    for (int32_t n = 0; n <= end; n++) {
        const wfi_node *node = &s->nodes[n];
        int n_in = n == end ? wfi_without_bias(node).n_in : node->n_in;
        for (int i = 0; i < n_in && s->pairs.end_of[n] == end; i++) {
            int32_t v = node->in[i], k = 0;
            if (v < 0 || s->pairs.cuts[v].dim || s->g->values[v].kind == WFI_VALUE_PARAM) continue;
            while (k < n_out && out[k] != v) k++;
            if (k == n_out) out[n_out++] = v;
        }
    }
    return n_out;
}

static void add_node(shard *s, int32_t n, int32_t slice, int32_t *becomes) {
    wf_graph *g = s->g;
    bool ends = s->pairs.end_of[n] == n;
    wfi_node node = ends ? wfi_without_bias(&s->nodes[n]) : s->nodes[n];
    wf_tensor in[WFI_MAX_INPUTS];
    wfi_op_part part = wfi_pairs_part(g, &s->pairs, &node, slice, s->pairs.n_slices);
    if (s->pairs.rule[n]->divide) (void)s->pairs.rule[n]->divide(&node.attr, &part);
    for (int i = 0; i < node.n_in; i++) {
        int32_t v = node.in[i];
        if (v >= 0 && s->pairs.cuts[v].dim && g->values[v].kind == WFI_VALUE_CUT && becomes[v] == v)
            becomes[v] = wfi_graph_cut_parameter(
                g, (wfi_cut){v, s->pairs.cuts[v].dim - 1, s->pairs.cuts[v].n_blocks}, slice);
        in[i] = v < 0 ? wfi_inert(g) : wfi_tensor(g, becomes[v]);
    }
    wfi_value_cut cut = s->pairs.cuts[node.out[0]];
    if (node.shape.n_dims && cut.dim)
        node.shape.dim[cut.dim - 1] = cut.n_blocks * (part.end - part.begin);
    const wfi_node *added = wfi_graph_add(g, node.op, &node.attr,
                                          node.shape.n_dims ? &node.shape : NULL, node.n_in, in);
    for (int i = 0; i < node.n_out && added; i++) becomes[node.out[i]] = added->out[i];
}

/* Whether rows of the value are read, or all of it. */
static bool is_read(const shard *s, int32_t v, bool by_rows) {
    for (int32_t n = 0; n < s->n_nodes; n++)
        for (int i = 0; i < s->nodes[n].n_in && !s->nodes[n].dead; i++)
            if (s->nodes[n].in[i] == v && s->pairs.is_row[n] == by_rows) return true;
    return false;
}

/* Whether slices keep parts for a pair behind this one, or it reads such parts. */
static bool goes_on(const shard *s, int32_t end) {
    bool goes = wfi_pairs_goes_on(&s->pairs, &s->nodes[end]);
    for (int32_t n = 0; n <= end; n++)
        for (int i = 0; i < s->nodes[n].n_in && s->pairs.end_of[n] == end; i++) {
            int32_t v = s->nodes[n].in[i];
            goes |= v >= 0 && s->pairs.cuts[v].dim && s->parts[v * s->pairs.n_slices] >= 0;
        }
    return goes;
}

/* What values become in a slice of the pair. */
static void take_parts(const shard *s, int32_t slice, int32_t *becomes) {
    memcpy(becomes, s->becomes, (size_t)s->n_values * sizeof *becomes);
    for (int32_t v = 0; v < s->n_values; v++) {
        int32_t part = s->parts[v * s->pairs.n_slices + slice];
        if (s->pairs.cuts[v].dim && part >= 0) becomes[v] = part;
    }
}

static void keep_parts(shard *s, int32_t end, int32_t slice, const int32_t *becomes) {
    for (int32_t n = 0; n <= end; n++)
        for (int i = 0; i < s->nodes[n].n_out && s->pairs.end_of[n] == end; i++) {
            int32_t v = s->nodes[n].out[i];
            if (s->pairs.cuts[v].dim) s->parts[v * s->pairs.n_slices + slice] = becomes[v];
        }
}

static void cut_parameters(shard *s, int32_t end) {
    wf_graph *g = s->g;
    for (int32_t n = 0; n <= end; n++)
        for (int i = 0; i < s->nodes[n].n_in && s->pairs.end_of[n] == end; i++) {
            int32_t v = s->nodes[n].in[i];
            if (v >= 0 && s->pairs.cuts[v].dim && g->values[v].kind == WFI_VALUE_PARAM)
                g->values[v].kind = WFI_VALUE_CUT;
        }
}

/* A pair, where its end stands in unit `unit`. What slices read is another name of it in the unit
 * before, so that what they give back is a sum before anything else is added. */
static wf_status add_pair(shard *s, int32_t end, int32_t unit, int32_t number) {
    wf_graph *g = s->g;
    size_t n = (size_t)s->pairs.n_slices, n_values = (size_t)s->n_values;
    int32_t *read = wfi_alloc(g->ctx, n_values * (n + 1) + n, sizeof *read, "slices");
    int32_t *becomes = wfi_alloc(g->ctx, n_values, sizeof *becomes, "slices");
    wf_status status = read && becomes ? WF_OK : WF_NO_MEMORY;
    int32_t n_read = status == WF_OK ? find_read(s, end, read) : 0;
    int32_t *given = read + n_values, *summands = given + n_values * n;
    bool is_inner = goes_on(s, end);
    cut_parameters(s, end);
    leave_slices(s, unit);
    for (int32_t k = 0; k < n_read; k++) {
        wf_tensor x = wfi_tensor(g, s->becomes[read[k]]);
        given[k * s->pairs.n_slices] = wf_reshape(x, wf_tensor_shape(x)).id;
    }
    for (int32_t slice = 0; slice < s->pairs.n_slices && status == WF_OK; slice++) {
        add_unit(s, unit, "pair", number, slice);
        g->units[g->n_units - 1].is_inner |= is_inner;
        for (int32_t k = 0; k < n_read && !slice && g->status == WF_OK; k++)
            give(g, wfi_tensor(g, given[k * s->pairs.n_slices]), s->pairs.n_slices,
                 &given[k * s->pairs.n_slices]);
        take_parts(s, slice, becomes);
        for (int32_t k = 0; k < n_read; k++)
            becomes[read[k]] = given[k * s->pairs.n_slices + slice];
        for (int32_t k = 0; k <= end && g->status == WF_OK; k++)
            if (s->pairs.end_of[k] == end) add_node(s, k, slice, becomes);
        keep_parts(s, end, slice, becomes);
        summands[slice] = becomes[s->nodes[end].out[0]];
        status = g->status;
    }
    if (status == WF_OK) {
        const wfi_node *node = &s->nodes[end];
        wf_tensor y = sum(g, summands, s->pairs.n_slices);
        bool has_bias = wfi_without_bias(node).n_in < node->n_in;
        add_unit(s, unit, "sum", number, -1);
        g->units[g->n_units - 1].is_inner |= is_inner;
        if (has_bias && !is_read(s, node->out[0], false))
            s->bias[node->out[0]] = node->in[2];
        else if (has_bias)
            y = wf_add(y, wfi_tensor(g, s->becomes[node->in[2]]));
        s->becomes[node->out[0]] = y.id;
        status = g->status;
    }
    wfi_free(g->ctx, becomes);
    wfi_free(g->ctx, read);
    return status;
}

/* ---- rows ---- */

static int64_t count_rows(const wf_graph *g, int32_t v) {
    const wf_shape *shape = &g->values[v].shape;
    return wf_shape_n_elem(shape) / shape->dim[shape->n_dims - 1];
}

/* The rows of each of n slices, by a tree. */
static void split(wf_graph *g, int32_t v, int32_t n, int32_t *out) {
    wf_tensor x = wfi_tensor(g, v);
    int32_t left = n > 1 ? (int32_t)wfi_tree_split(n) : 0;
    wfi_attr attr = {.slice = {.start = left * (count_rows(g, v) / n)}};
    if (n == 1) *out = v;
    if (n == 1) return;
    const wfi_node *node = wfi_graph_add(g, &wfi_op_split_rows, &attr, NULL, 1, &x);
    if (!node) return;
    const int32_t halves[] = {node->out[0], node->out[1]};
    split(g, halves[0], left, out);
    split(g, halves[1], n - left, out + left);
}

static wf_tensor join(wf_graph *g, const int32_t *rows, int32_t n, const wf_shape *shape) {
    if (n == 1) return wfi_tensor(g, *rows);
    int32_t left = (int32_t)wfi_tree_split(n);
    int64_t n_rows = count_rows(g, *rows), n_elem = g->values[*rows].shape.dim[1];
    wf_shape first = WF_SHAPE(left * n_rows, n_elem),
             second = WF_SHAPE((n - left) * n_rows, n_elem);
    wf_tensor halves[] = {join(g, rows, left, &first), join(g, rows + left, n - left, &second)};
    return wfi_graph_op(g, &wfi_op_join_rows, NULL, shape, 2, halves);
}

static void add_once(int32_t v, int32_t *values, int32_t *n) {
    for (int32_t k = 0; k < *n; k++)
        if (values[k] == v) return;
    values[(*n)++] = v;
}

/* The values that nodes of the run read, and have no rows of yet, each once. */
static int32_t find_read_by_rows(const shard *s, int32_t first, int32_t end, int32_t *out) {
    const wf_graph *g = s->g;
    int32_t n_out = 0;
    for (int32_t n = first; n < end; n++)
        for (int i = 0; i < s->nodes[n].n_in && s->pairs.is_row[n]; i++) {
            int32_t v = s->nodes[n].in[i], producer = g->values[v].node;
            bool is_made = producer >= 0 && s->pairs.is_row[producer];
            if (!is_made && g->values[v].kind != WFI_VALUE_PARAM &&
                s->parts[v * s->pairs.n_slices] < 0)
                add_once(v, out, &n_out);
        }
    return n_out;
}

static void add_row_node(shard *s, const wfi_node *node, int32_t slice) {
    wf_graph *g = s->g;
    int32_t n_slices = s->pairs.n_slices;
    int64_t n_elem = wf_shape_n_elem(&g->values[node->in[0]].shape);
    wfi_attr attr = node->attr;
    wf_tensor in[WFI_MAX_INPUTS];
    if (node->op == &wfi_op_dropout) {
        attr.dropout.first = slice * (n_elem / n_slices);
        attr.dropout.sample_size = n_elem / g->batch;
    }
    for (int i = 0; i < node->n_in; i++) {
        int32_t v = node->in[i];
        bool is_param = g->values[v].kind == WFI_VALUE_PARAM;
        in[i] = wfi_tensor(g, is_param ? v : s->parts[v * n_slices + slice]);
    }
    const wfi_node *added = wfi_graph_add(g, node->op, &attr, NULL, node->n_in, in);
    for (int i = 0; i < node->n_out && added; i++)
        s->parts[node->out[i] * n_slices + slice] = added->out[i];
}

/* One slice's rows of what the run's nodes give. */
static void add_slice_of_rows(shard *s, int32_t first, int32_t end, int32_t slice,
                              const int32_t *read, int32_t n_read) {
    wf_graph *g = s->g;
    int32_t n = s->pairs.n_slices;
    for (int32_t k = 0; k < n_read && !slice && g->status == WF_OK; k++)
        split(g, s->parts[read[k] * n], n, &s->parts[read[k] * n]);
    for (int32_t k = 0; k < n_read && g->status == WF_OK; k++) {
        int32_t bias = s->bias[read[k]], *rows = &s->parts[read[k] * n + slice];
        if (bias >= 0) *rows = wf_add(wfi_tensor(g, *rows), wfi_tensor(g, bias)).id;
    }
    for (int32_t k = first; k < end && g->status == WF_OK; k++)
        if (s->pairs.is_row[k]) add_row_node(s, &s->nodes[k], slice);
}

/* The nodes from `first` to `end` that compute rows. What they read of what is whole is another
 * name of it in the unit before, so that gradients that go to it from elsewhere are added there. */
static wf_status add_rows(shard *s, int32_t first, int32_t end) {
    wf_graph *g = s->g;
    int32_t n = s->pairs.n_slices, unit = s->nodes[first].unit, number = s->n_rows;
    int32_t *read = wfi_alloc(g->ctx, (size_t)s->n_values, sizeof *read, "slices");
    if (!read) return WF_NO_MEMORY;
    int32_t n_read = find_read_by_rows(s, first, end, read);
    leave_slices(s, unit);
    s->n_rows++;
    for (int32_t k = 0; k < n_read; k++) {
        wf_tensor x = wfi_tensor(g, s->becomes[read[k]]);
        s->parts[read[k] * n] = wf_reshape(x, wf_tensor_shape(x)).id;
    }
    for (int32_t slice = 0; slice < n && g->status == WF_OK; slice++) {
        add_unit(s, unit, "rows", number, slice);
        if (g->status == WF_OK) g->units[g->n_units - 1].is_rows = true;
        add_slice_of_rows(s, first, end, slice, read, n_read);
    }
    for (int32_t k = first; k < end && g->status == WF_OK; k++) {
        int32_t v = s->nodes[k].out[0];
        wf_shape shape = g->values[v].shape;
        if (s->pairs.is_row[k] && is_read(s, v, false))
            s->becomes[v] = join(g, &s->parts[v * n], n, &shape).id;
    }
    wfi_free(g->ctx, read);
    return g->status;
}

/* Where row nodes that follow each other from n on end. */
static int32_t find_end(const shard *s, int32_t n) {
    int32_t unit = s->nodes[n].unit;
    while (n < s->n_nodes && s->nodes[n].unit == unit &&
           (s->nodes[n].dead || s->pairs.is_row[n] ||
            (s->pairs.end_of[n] >= 0 && s->pairs.end_of[n] != n)))
        n++;
    return n;
}

/* ---- all units ---- */

/* Units up to this one begin. */
static void begin_units(shard *s, int32_t *next, int32_t unit) {
    wf_graph *g = s->g;
    for (; *next <= unit && g->status == WF_OK; ++*next) {
        s->unit_of[*next] = g->n_units;
        wfi_graph_add_unit(g, s->units[*next].name);
        if (g->status == WF_OK) g->units[g->n_units - 1] = s->units[*next];
    }
}

static wf_status rewrite(shard *s) {
    wf_graph *g = s->g;
    int32_t next = 0, number = 0, last = -1;
    for (int32_t n = 0, end; n < s->n_nodes; n = end) {
        const wfi_node *node = &s->nodes[n];
        end = n + 1;
        if (node->dead) continue;
        begin_units(s, &next, node->unit);
        if (node->unit != last) number = s->n_rows = 0;
        last = node->unit;
        if (s->pairs.is_row[n]) {
            end = find_end(s, n);
            WF_TRY(add_rows(s, n, end));
        } else if (s->pairs.end_of[n] == n) {
            WF_TRY(add_pair(s, n, node->unit, number++));
        } else if (s->pairs.end_of[n] < 0) {
            WF_TRY(keep_node(s, node));
        }
    }
    begin_units(s, &next, s->n_units - 1);
    return g->status;
}

/* ---- where things are declared ---- */

/* Where what the node reads is declared: what all slices have, in the unit before them. */
static int32_t declared_in(const wf_graph *g, const wfi_node *node, const wfi_value *value) {
    const wfi_unit *unit = &g->units[node->unit];
    bool is_whole = unit->is_slice && value->kind == WFI_VALUE_PARAM && !value->cut;
    return is_whole ? node->unit - unit->slice - 1 : node->unit;
}

/* What is read is declared where it is read first. */
static void declare_again(shard *s) {
    wf_graph *g = s->g;
    for (int32_t v = 0; v < s->n_values; v++)
        if (g->values[v].unit >= 0) g->values[v].unit = s->unit_of[g->values[v].unit];
    wfi_graph_find_producers(g);
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        const wfi_node *node = &g->nodes[n];
        for (int i = 0; i < node->n_out; i++)
            if (node->out[i] >= 0) g->values[node->out[i]].unit = node->unit;
        for (int i = 0; i < node->n_in; i++) {
            int32_t v = node->in[i] < 0 ? -1 : wfi_value_root(g, node->in[i]);
            if (v >= 0 && g->values[v].kind != WFI_VALUE_NODE)
                g->values[v].unit = declared_in(g, node, &g->values[v]);
        }
    }
    for (int32_t k = 0; k < g->n_stats; k++) {
        wfi_stat *stat = &g->stats[k];
        int32_t unit = stat->unit = g->nodes[g->values[stat->mean].node].unit;
        g->values[stat->running_mean].unit = g->values[stat->running_var].unit = unit;
        g->values[stat->n_batches].unit = unit;
    }
    wfi_graph_lay_out_buffers(g);
}

static wf_status allocate(shard *s) {
    wf_graph *g = s->g;
    s->becomes = wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *s->becomes, "slices");
    s->unit_of = wfi_alloc(g->ctx, (size_t)g->n_units, sizeof *s->unit_of, "slices");
    size_t n_rows = (size_t)g->n_values * (size_t)s->pairs.n_slices;
    s->parts = wfi_alloc(g->ctx, n_rows, sizeof *s->parts, "slices");
    s->bias = wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *s->bias, "slices");
    if (!s->becomes || !s->unit_of || !s->parts || !s->bias) return WF_NO_MEMORY;
    memset(s->parts, -1, n_rows * sizeof *s->parts);
    for (int32_t v = 0; v < g->n_values; v++) {
        s->becomes[v] = v;
        s->bias[v] = -1;
    }
    return WF_OK;
}

wf_status wfi_graph_shard(wf_graph *g, int32_t n_slices) {
    g->n_slices = n_slices;
    if (n_slices == 1) return WF_OK;
    WF_TRY(wfi_graph_find_vocabulary(g, n_slices));
    WF_TRY(wfi_graph_unroll(g));
    shard s = {.g = g, .n_nodes = g->n_nodes, .n_units = g->n_units, .n_values = g->n_values};
    WF_TRY(wfi_pairs_find(g, n_slices, &s.pairs));
    g->has_uneven_rows = s.pairs.has_uneven_rows;
    wf_status status = allocate(&s);
    if (status == WF_OK) {
        s.nodes = g->nodes;
        s.units = g->units;
        g->nodes = NULL;
        g->units = NULL;
        g->n_nodes = g->n_units = 0;
        g->node_capacity = g->unit_capacity = 0;
        status = rewrite(&s);
    }
    if (status == WF_OK) declare_again(&s);
    wfi_free(g->ctx, s.nodes);
    wfi_free(g->ctx, s.units);
    wfi_free(g->ctx, s.becomes);
    wfi_free(g->ctx, s.unit_of);
    wfi_free(g->ctx, s.parts);
    wfi_free(g->ctx, s.bias);
    wfi_pairs_release(g->ctx, &s.pairs);
    return status;
}
