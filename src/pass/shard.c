/* Slices: pairs of layers (pairs.h) are cut into as many parts as the recipe sets, under every
 * plan. So ranks can divide them without a change of the numbers.
 *
 * Each slice is a unit of its own, so everything that goes by units (parameters, gradients,
 * optimizer state, norms) is a slice's, and its kernels have the slice's shapes on every rank. One
 * tree adds the outputs of the slices of a pair. Nodes before a pair stay in its unit; nodes after
 * it form one more unit. So a unit "h.0" becomes "h.0", "h.0.pair0.0", "h.0.pair0.1", ...,
 * "h.0.sum0", and again for its second pair. Parts that a slice keeps from pair to pair (pairs.c)
 * are read by the same slice.
 *
 * Between pairs, too, each slice is a unit, with some of the rows: "h.0.rows0.0", "h.0.rows0.1",
 * ... (rows.c). Nodes that read all rows again, and are not in a pair, are in "h.0.join0".
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
    int32_t *becomes;  /* [n_values] in the graph behind; in a slice, that slice's */
    int32_t *unit_of;  /* [n_units] the first that a unit becomes */
    int32_t *parts;    /* [n_values * n_slices] each slice's rows, or columns, of it, or -1 */
    int32_t *bias;     /* [n_values] is added to rows of the value, or -1 */
    int32_t *in_slice; /* [n_values] new values in the current slice; of a pair: its inputs and
                          outputs */
    int32_t *read;     /* [n_values] values that the current pair or run of rows reads */
    int32_t *given;    /* [n_values * n_slices] the value that each slice reads for them */
    int32_t *summands; /* [n_slices] outputs of the slices of the current pair */
    int32_t n_rows;    /* runs of row nodes so far in the unit at hand */
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

/* Makes sure that later nodes are not added to a slice's unit. */
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

static void add_once(int32_t v, int32_t *values, int32_t *n) {
    for (int32_t k = 0; k < *n; k++)
        if (values[k] == v) return;
    values[(*n)++] = v;
}

/* Lists in s->read, once each, the inputs of slices that are neither cut nor parameters. Returns
 * their number. */
static int32_t find_read(shard *s, int32_t end) {
    int32_t n_read = 0;
    for (int32_t n = s->pairs.first_of[end]; n >= 0; n = s->pairs.next_of[n]) {
        const wfi_node *node = &s->nodes[n];
        int n_in = n == end ? wfi_without_bias(node).n_in : node->n_in;
        for (int i = 0; i < n_in; i++) {
            int32_t v = node->in[i];
            if (v < 0 || s->pairs.cuts[v].dim || s->g->values[v].kind == WFI_VALUE_PARAM) continue;
            add_once(v, s->read, &n_read);
        }
    }
    return n_read;
}

static bool is_cut_parameter(const shard *s, int32_t v) {
    return s->g->values[v].kind == WFI_VALUE_CUT;
}

/* The slice's part of a weight; if it is tied, another pair may have it already. */
static int32_t cut_parameter(shard *s, int32_t v, int32_t slice) {
    int32_t *part = &s->parts[v * s->pairs.n_slices + slice];
    wfi_cut cut = {v, s->pairs.cuts[v].dim - 1, s->pairs.cuts[v].n_blocks};
    if (*part < 0) *part = wfi_graph_cut_parameter(s->g, cut, slice);
    return *part;
}

static void add_node(shard *s, int32_t n, int32_t slice) {
    wf_graph *g = s->g;
    int32_t *becomes = s->in_slice;
    bool ends = s->pairs.end_of[n] == n;
    wfi_node node = ends ? wfi_without_bias(&s->nodes[n]) : s->nodes[n];
    wf_tensor in[WFI_MAX_INPUTS];
    wfi_op_part part = wfi_pairs_part(g, &s->pairs, &node, slice, s->pairs.n_slices);
    if (s->pairs.rule[n]->divide) (void)s->pairs.rule[n]->divide(&node.attr, &part);
    for (int i = 0; i < node.n_in; i++) {
        int32_t v = node.in[i];
        if (v >= 0 && s->pairs.cuts[v].dim && is_cut_parameter(s, v))
            becomes[v] = cut_parameter(s, v, slice);
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
    const wfi_readers *readers = &s->pairs.readers;
    for (int32_t k = readers->first[v]; k < readers->first[v + 1]; k++)
        if (s->pairs.is_row[readers->nodes[k]] == by_rows) return true;
    return false;
}

/* Returns the slice's part of a value that slices already have parts of; -1: none. */
static int32_t find_part(const shard *s, int32_t v, int32_t slice) {
    return s->pairs.cuts[v].dim ? s->parts[v * s->pairs.n_slices + slice] : -1;
}

/* Whether slices keep parts for a pair behind this one, or it reads such parts. */
static bool goes_on(const shard *s, int32_t end) {
    bool goes = wfi_pairs_goes_on(&s->pairs, &s->nodes[end]);
    for (int32_t n = s->pairs.first_of[end]; n >= 0; n = s->pairs.next_of[n])
        for (int i = 0; i < s->nodes[n].n_in; i++) {
            int32_t v = s->nodes[n].in[i];
            goes |= v >= 0 && !is_cut_parameter(s, v) && find_part(s, v, 0) >= 0;
        }
    return goes;
}

/* Sets the new values that a slice of the pair reads. */
static void take_parts(shard *s, int32_t end, int32_t slice) {
    for (int32_t n = s->pairs.first_of[end]; n >= 0; n = s->pairs.next_of[n])
        for (int i = 0; i < s->nodes[n].n_in; i++) {
            int32_t v = s->nodes[n].in[i], part = v < 0 ? -1 : find_part(s, v, slice);
            if (v >= 0) s->in_slice[v] = part >= 0 ? part : s->becomes[v];
        }
}

static void keep_parts(shard *s, int32_t end, int32_t slice) {
    for (int32_t n = s->pairs.first_of[end]; n >= 0; n = s->pairs.next_of[n])
        for (int i = 0; i < s->nodes[n].n_out; i++) {
            int32_t v = s->nodes[n].out[i];
            if (s->pairs.cuts[v].dim) s->parts[v * s->pairs.n_slices + slice] = s->in_slice[v];
        }
}

static void cut_parameters(shard *s, int32_t end) {
    wf_graph *g = s->g;
    for (int32_t n = s->pairs.first_of[end]; n >= 0; n = s->pairs.next_of[n])
        for (int i = 0; i < s->nodes[n].n_in; i++) {
            int32_t v = s->nodes[n].in[i];
            if (v >= 0 && s->pairs.cuts[v].dim && g->values[v].kind == WFI_VALUE_PARAM)
                g->values[v].kind = WFI_VALUE_CUT;
        }
}

/* Adds the sum of the slices' outputs, in a unit of its own. */
static void add_sum(shard *s, int32_t end, int32_t unit, int32_t number, bool is_inner) {
    wf_graph *g = s->g;
    const wfi_node *node = &s->nodes[end];
    wf_tensor y = sum(g, s->summands, s->pairs.n_slices);
    bool has_bias = wfi_without_bias(node).n_in < node->n_in;
    add_unit(s, unit, "sum", number, -1);
    g->units[g->n_units - 1].is_inner |= is_inner;
    if (has_bias && !is_read(s, node->out[0], false))
        s->bias[node->out[0]] = node->in[2];
    else if (has_bias)
        y = wf_add(y, wfi_tensor(g, s->becomes[node->in[2]]));
    s->becomes[node->out[0]] = y.id;
}

/* Adds a pair with its end in unit `unit`. Slices read an alias of the input in the unit before. So
 * backward sums the slices' gradients before it adds any other gradient. */
static wf_status add_pair(shard *s, int32_t end, int32_t unit, int32_t number) {
    wf_graph *g = s->g;
    int32_t n = s->pairs.n_slices, n_read = find_read(s, end), out = s->nodes[end].out[0];
    bool is_inner = goes_on(s, end);
    cut_parameters(s, end);
    leave_slices(s, unit);
    for (int32_t k = 0; k < n_read; k++) {
        wf_tensor x = wfi_tensor(g, s->becomes[s->read[k]]);
        s->given[k * n] = wf_reshape(x, wf_tensor_shape(x)).id;
    }
    for (int32_t slice = 0; slice < n && g->status == WF_OK; slice++) {
        add_unit(s, unit, "pair", number, slice);
        g->units[g->n_units - 1].is_inner |= is_inner;
        for (int32_t k = 0; k < n_read && !slice && g->status == WF_OK; k++)
            give(g, wfi_tensor(g, s->given[k * n]), n, &s->given[k * n]);
        take_parts(s, end, slice);
        for (int32_t k = 0; k < n_read; k++) s->in_slice[s->read[k]] = s->given[k * n + slice];
        for (int32_t k = s->pairs.first_of[end]; k >= 0 && g->status == WF_OK;
             k = s->pairs.next_of[k])
            add_node(s, k, slice);
        keep_parts(s, end, slice);
        s->summands[slice] = s->in_slice[out];
    }
    if (g->status == WF_OK) add_sum(s, end, unit, number, is_inner);
    return g->status;
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

/* The values that nodes of the run read, and have no rows of yet, each once: s->read. Returns how
 * many. */
static int32_t find_read_by_rows(shard *s, int32_t first, int32_t end) {
    const wf_graph *g = s->g;
    int32_t n_read = 0;
    for (int32_t n = first; n < end; n++)
        for (int i = 0; i < s->nodes[n].n_in && s->pairs.is_row[n]; i++) {
            int32_t v = s->nodes[n].in[i], producer = g->values[v].node;
            bool is_made = producer >= 0 && s->pairs.is_row[producer];
            if (!is_made && g->values[v].kind != WFI_VALUE_PARAM &&
                s->parts[v * s->pairs.n_slices] < 0)
                add_once(v, s->read, &n_read);
        }
    return n_read;
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

/* Adds one slice's rows of the outputs of a run of row nodes. */
static void add_slice_of_rows(shard *s, int32_t first, int32_t end, int32_t slice, int32_t n_read) {
    wf_graph *g = s->g;
    const int32_t *read = s->read;
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

/* Adds the nodes from `first` to `end` that compute rows. They read an alias of each whole input in
 * the unit before, so that gradients from other readers are added there. */
static wf_status add_rows(shard *s, int32_t first, int32_t end) {
    wf_graph *g = s->g;
    int32_t n = s->pairs.n_slices, unit = s->nodes[first].unit, number = s->n_rows;
    int32_t n_read = find_read_by_rows(s, first, end);
    leave_slices(s, unit);
    s->n_rows++;
    for (int32_t k = 0; k < n_read; k++) {
        wf_tensor x = wfi_tensor(g, s->becomes[s->read[k]]);
        s->parts[s->read[k] * n] = wf_reshape(x, wf_tensor_shape(x)).id;
    }
    for (int32_t slice = 0; slice < n && g->status == WF_OK; slice++) {
        add_unit(s, unit, "rows", number, slice);
        if (g->status == WF_OK) g->units[g->n_units - 1].is_rows = true;
        add_slice_of_rows(s, first, end, slice, n_read);
    }
    for (int32_t k = first; k < end && g->status == WF_OK; k++) {
        int32_t v = s->nodes[k].out[0];
        wf_shape shape = g->values[v].shape;
        if (s->pairs.is_row[k] && is_read(s, v, false))
            s->becomes[v] = join(g, &s->parts[v * n], n, &shape).id;
    }
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

/* Returns the unit that declares an input of the node. A parameter that all slices read whole is
 * declared in the unit before them. */
static int32_t declared_in(const wf_graph *g, const wfi_node *node, const wfi_value *value) {
    const wfi_unit *unit = &g->units[node->unit];
    bool is_whole = unit->is_slice && value->kind == WFI_VALUE_PARAM && !value->cut;
    return is_whole ? node->unit - unit->slice - 1 : node->unit;
}

/* Declares each value in the unit that reads it first. */
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
    size_t n_values = (size_t)s->n_values, n_slices = (size_t)s->pairs.n_slices;
    wfi_pool *pool = &s->pairs.pool;
    s->becomes = wfi_pool_alloc(pool, n_values, sizeof *s->becomes);
    s->unit_of = wfi_pool_alloc(pool, (size_t)s->n_units, sizeof *s->unit_of);
    s->parts = wfi_pool_alloc(pool, n_values * n_slices, sizeof *s->parts);
    s->bias = wfi_pool_alloc(pool, n_values, sizeof *s->bias);
    s->in_slice = wfi_pool_alloc(pool, n_values, sizeof *s->in_slice);
    s->read = wfi_pool_alloc(pool, n_values, sizeof *s->read);
    s->given = wfi_pool_alloc(pool, n_values * n_slices, sizeof *s->given);
    s->summands = wfi_pool_alloc(pool, n_slices, sizeof *s->summands);
    WF_TRY(wfi_pool_status(pool));
    memset(s->parts, -1, n_values * n_slices * sizeof *s->parts);
    for (int32_t v = 0; v < s->n_values; v++) {
        s->becomes[v] = v;
        s->bias[v] = -1;
    }
    return WF_OK;
}

static void release(shard *s) {
    wfi_free(s->g->ctx, s->nodes);
    wfi_free(s->g->ctx, s->units);
    wfi_pairs_release(&s->pairs);
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
    release(&s);
    return status;
}
