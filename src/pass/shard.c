/* Slices: pairs of layers are cut into so many parts as the recipe says, whatever the plan is, so
 * that ranks can divide them and the numbers stay.
 *
 * A pair begins with a product whose columns are cut (linear: what it gives), goes on through ops
 * that can be cut in the same way (element by element, attention by heads), and ends with one whose
 * rows are: each slice gives a summand of the whole, and these are added over one tree. Which op
 * can be cut how, its descriptor says. Each slice is a unit of its own, so everything that goes by
 * units (parameters, gradients, optimizer state, norms) is a slice's, and its kernels have the
 * slice's shapes on every rank. What stands before a pair in its unit stays there; what comes
 * behind is one more unit. So a unit "h.0" becomes "h.0", "h.0.pair0.0", "h.0.pair0.1", ...,
 * "h.0.sum0", and again for its second pair.
 */
#include "base/tree.h"
#include "graph/op.h"
#include "op/op_table.h"
#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

/* How a value is cut: along a dim, counted from 1, that is so many blocks side by side. Dim 0: it
 * is whole. */
typedef struct cut {
    int dim, n_blocks;
} cut;

typedef struct shard {
    wf_graph *g;
    int32_t n_slices;
    wfi_node *nodes; /* [n_nodes] the graph before */
    wfi_unit *units; /* [n_units] */
    int32_t n_nodes, n_units, n_values;
    int32_t *end_of;         /* [n_nodes] the node that ends the node's pair, or -1 */
    const wfi_op_cut **rule; /* [n_nodes] of a pair: how its op is cut */
    cut *cuts;               /* [n_values] */
    int32_t *becomes;        /* [n_values] in the graph behind; in a slice, that slice's */
    int32_t *unit_of;        /* [n_units] the first that a unit becomes */
    int32_t *found;          /* [n_found] nodes of the pair that is looked for */
    int32_t n_found, end;
    int32_t n_pairs;
    const wfi_node *stopped; /* the first node behind columns that cannot be cut in the same way */
} shard;

/* ---- rules ---- */

/* What a rule's entry says of a value; `any` stands for WFI_ANY_DIM. */
static int dim_of(const wf_graph *g, int8_t entry, int32_t v, int any) {
    if (entry == WFI_ANY_DIM) return any;
    return entry < 0 ? g->values[v].shape.n_dims + entry + 1 : entry;
}

static const wfi_op_cut *find_beginning(const shard *s, int32_t n);

/* Whether a value that is whole so far can be cut along the dim: a parameter, or, behind the
 * beginning of a pair, what another beginning gives. */
static bool can_cut(const shard *s, int32_t v, int dim, bool begins) {
    const wfi_value *value = wfi_value_at(s->g, v);
    if (s->cuts[v].dim || value->kind == WFI_VALUE_PARAM) return !s->cuts[v].dim;
    const wfi_op_cut *rule = begins || value->node < 0 ? NULL : find_beginning(s, value->node);
    return rule && dim_of(s->g, rule->out[0], v, 0) == dim;
}

/* Whether the node can be cut so, given what is cut of its operands already. */
static bool rule_fits(const shard *s, const wfi_node *node, const wfi_op_cut *rule) {
    const wf_graph *g = s->g;
    int any = 0;
    if (rule->applies && !rule->applies(g, node)) return false;
    for (int i = 0; i < node->n_in && !any; i++)
        if (node->in[i] >= 0) any = s->cuts[node->in[i]].dim;
    for (int i = 0; i < node->n_in; i++) {
        int32_t v = node->in[i];
        int dim = v < 0 ? 0 : dim_of(g, rule->in[i], v, any);
        if (v >= 0 && dim != s->cuts[v].dim && !(dim && can_cut(s, v, dim, !any))) return false;
    }
    return any > 0 || (rule->in[0] == WFI_WHOLE && rule->in[1] != WFI_WHOLE);
}

static const wfi_op_cut *find_rule(const shard *s, const wfi_node *node, bool sums) {
    const wfi_op_cut *rule = node->op->place;
    for (; rule && rule->name; rule++)
        if ((rule->out[0] == WFI_SUMMED) == sums && rule_fits(s, node, rule)) return rule;
    return NULL;
}

static bool is_found(const shard *s, int32_t n) {
    for (int32_t k = 0; k < s->n_found; k++)
        if (s->found[k] == n) return true;
    return false;
}

/* How the node is cut if a pair begins with it: its columns, whatever it reads. */
static const wfi_op_cut *find_beginning(const shard *s, int32_t n) {
    const wfi_node *node = &s->g->nodes[n];
    if (node->dead || s->end_of[n] >= 0 || is_found(s, n)) return NULL;
    const wfi_op_cut *rule = find_rule(s, node, false);
    return rule && rule->in[0] == WFI_WHOLE ? rule : NULL;
}

/* A product without its bias, which is added to the sum of all slices. */
static wfi_node without_bias(const wfi_node *node) {
    wfi_node product = *node;
    if (product.op == &wfi_op_linear && product.n_in == 3) product.n_in = 2;
    return product;
}

/* ---- finding pairs ---- */

static bool is_seen_outside(const wf_graph *g, int32_t v) {
    return g->values[v].name || v == g->loss || v == g->record;
}

static void take_node(shard *s, int32_t n, const wfi_op_cut *rule, int n_in) {
    const wf_graph *g = s->g;
    const wfi_node *node = &g->nodes[n];
    int any = 0;
    for (int i = 0; i < n_in && !any; i++)
        if (node->in[i] >= 0) any = s->cuts[node->in[i]].dim;
    for (int i = 0; i < n_in; i++) {
        int32_t v = node->in[i], producer = v < 0 ? -1 : g->values[v].node;
        if (v < 0) continue;
        int dim = dim_of(g, rule->in[i], v, any);
        if (dim && !s->cuts[v].dim && producer >= 0)
            take_node(s, producer, find_beginning(s, producer), g->nodes[producer].n_in);
        s->cuts[v] = (cut){dim, 1};
    }
    for (int i = 0; i < node->n_out; i++)
        if (rule->out[i] != WFI_SUMMED)
            s->cuts[node->out[i]] = (cut){dim_of(g, rule->out[i], node->out[i], any), 1};
    s->rule[n] = rule;
    s->found[s->n_found++] = n;
}

/* What reads a value that is cut: it ends the pair, or is cut in the same way. */
static bool take_reader(shard *s, int32_t n) {
    const wf_graph *g = s->g;
    const wfi_node *node = &g->nodes[n];
    wfi_node product = without_bias(node);
    const wfi_op_cut *rule = find_rule(s, &product, true);
    bool ends = rule != NULL;
    if (is_found(s, n)) return true;
    if (s->end_of[n] >= 0) return false;
    if (ends && is_seen_outside(g, node->out[0])) return false;
    if (!ends) rule = find_rule(s, node, false);
    if (!rule && !s->stopped) s->stopped = node;
    if (!rule || (ends && s->end >= 0)) return false;
    take_node(s, n, rule, ends ? product.n_in : node->n_in);
    if (ends) s->end = n;
    return true;
}

static bool take_readers(shard *s, int32_t v) {
    const wf_graph *g = s->g;
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_in && !g->nodes[n].dead; i++)
            if (g->nodes[n].in[i] == v && !take_reader(s, n)) return false;
    return true;
}

/* Where a rule wants blocks, what it is made of has them, too. False: two want others. */
static bool find_blocks(shard *s) {
    const wf_graph *g = s->g;
    bool changes = true;
    while (changes) {
        changes = false;
        for (int32_t k = 0; k < s->n_found; k++) {
            const wfi_node *node = &g->nodes[s->found[k]];
            const wfi_op_cut *rule = s->rule[s->found[k]];
            int n_operands = rule->n_blocks ? 1 : node->n_in + node->n_out, n = rule->n_blocks;
            for (int pass = 0; pass < 2; pass++)
                for (int i = 0; i < n_operands; i++) {
                    int32_t v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
                    if (v < 0 || !s->cuts[v].dim) continue;
                    if (!pass && s->cuts[v].n_blocks > n) n = s->cuts[v].n_blocks;
                    changes |= pass && s->cuts[v].n_blocks < n;
                    if (pass) s->cuts[v].n_blocks = n;
                }
        }
    }
    for (int32_t k = 0; k < s->n_found; k++) {
        const wfi_node *node = &g->nodes[s->found[k]];
        int n = s->rule[s->found[k]]->n_blocks;
        for (int i = 0; i < node->n_out && n; i++)
            if (s->cuts[node->out[i]].n_blocks > 1) return false;
        if (n && s->cuts[node->in[0]].n_blocks != n) return false;
    }
    return true;
}

/* A parameter that others read, too, is not cut. */
static bool owns_parameters(const shard *s) {
    const wf_graph *g = s->g;
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_in && !g->nodes[n].dead && !is_found(s, n); i++) {
            int32_t v = g->nodes[n].in[i];
            if (v >= 0 && g->values[v].kind == WFI_VALUE_PARAM && s->cuts[v].dim &&
                s->end_of[n] < 0)
                return false;
        }
    return true;
}

static void forget(shard *s) {
    const wf_graph *g = s->g;
    for (int32_t k = 0; k < s->n_found; k++) {
        const wfi_node *node = &g->nodes[s->found[k]];
        for (int i = 0; i < node->n_in + node->n_out; i++) {
            int32_t v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
            if (v >= 0) s->cuts[v] = (cut){0, 1};
        }
    }
}

/* The pair that begins with node n, if one does. */
static void find_pair(shard *s, int32_t n) {
    const wf_graph *g = s->g;
    s->n_found = 0;
    s->end = -1;
    const wfi_op_cut *rule = find_beginning(s, n);
    if (!rule) return;
    take_node(s, n, rule, g->nodes[n].n_in);
    bool is_pair = true;
    for (int32_t k = 0; k < s->n_found && is_pair; k++) {
        const wfi_node *next = &g->nodes[s->found[k]];
        bool ends = s->found[k] == s->end;
        for (int i = 0; i < next->n_out && is_pair && !ends; i++)
            is_pair = !is_seen_outside(g, next->out[i]) && take_readers(s, next->out[i]);
    }
    is_pair = is_pair && s->end >= 0 && owns_parameters(s) && find_blocks(s);
    if (!is_pair) {
        forget(s);
        return;
    }
    for (int32_t k = 0; k < s->n_found; k++) s->end_of[s->found[k]] = s->end;
    s->n_pairs++;
}

/* ---- how many slices there can be ---- */

static bool node_allows(const shard *s, int32_t n, int64_t n_slices) {
    const wf_graph *g = s->g;
    const wfi_node *node = &g->nodes[n];
    wfi_attr attr = node->attr;
    if (s->rule[n]->divide && !s->rule[n]->divide(&attr, n_slices)) return false;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        int32_t v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (v < 0 || !s->cuts[v].dim) continue;
        if (g->values[v].shape.dim[s->cuts[v].dim - 1] % (s->cuts[v].n_blocks * n_slices))
            return false;
    }
    return true;
}

/* The first node that cannot be cut into so many; NULL: all can. */
static const wfi_node *find_refusing(const shard *s, int64_t n_slices) {
    for (int32_t n = 0; n < s->g->n_nodes; n++)
        if (s->end_of[n] >= 0 && !node_allows(s, n, n_slices)) return &s->g->nodes[n];
    return NULL;
}

static wf_status check_number(const shard *s) {
    const wf_graph *g = s->g;
    int64_t below = s->n_slices, above = s->n_slices;
    const wfi_node *node = find_refusing(s, s->n_slices);
    if (!s->n_pairs)
        return wfi_fail(g->ctx, WF_INVALID_ARG,
                        "recipe: slices=%d, but nothing of this model can be cut%s%s%s%s; "
                        "slices=1 (and tp=1) would do",
                        s->n_slices, s->stopped ? ": op " : "",
                        s->stopped ? s->stopped->op->name : "", s->stopped ? " of unit " : "",
                        s->stopped ? g->units[s->stopped->unit].name : "");
    if (!node) return WF_OK;
    while (below > 1 && find_refusing(s, below)) below--;
    while (above < 2 * s->n_slices && find_refusing(s, above)) above++;
    char or_above[32] = "";
    if (!find_refusing(s, above)) snprintf(or_above, sizeof or_above, " or %d", (int)above);
    char shape[WFI_SHAPE_TEXT];
    return wfi_fail(g->ctx, WF_INVALID_ARG,
                    "recipe: slices=%d do not divide %s of unit %s, which gives %s%s; %d%s would",
                    s->n_slices, node->op->name, g->units[node->unit].name,
                    wfi_shape_text(&g->values[node->out[0]].shape, shape),
                    s->rule[node - g->nodes]->divide ? " from several heads" : "", (int)below,
                    or_above);
}

/* ---- the graph behind ---- */

static wf_status push(shard *s, const wfi_node *node) {
    wf_graph *g = s->g;
    WF_TRY(WFI_GROW(g->ctx, g->nodes, g->n_nodes, g->node_capacity, "a graph's nodes"));
    g->nodes[g->n_nodes++] = *node;
    return WF_OK;
}

/* A node that is in no pair. */
static wf_status keep_node(shard *s, const wfi_node *node) {
    wfi_node kept = *node;
    kept.unit = s->g->n_units - 1;
    for (int i = 0; i < kept.n_in; i++)
        if (kept.in[i] >= 0) kept.in[i] = s->becomes[kept.in[i]];
    return push(s, &kept);
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

/* What slices read of what is not cut, each once: out[n_out] values before. */
static int32_t find_read(const shard *s, int32_t end, int32_t *out) {
    int32_t n_out = 0;
    for (int32_t n = 0; n <= end; n++) {
        const wfi_node *node = &s->nodes[n];
        int n_in = n == end ? without_bias(node).n_in : node->n_in;
        for (int i = 0; i < n_in && s->end_of[n] == end; i++) {
            int32_t v = node->in[i], k = 0;
            if (v < 0 || s->cuts[v].dim) continue;
            while (k < n_out && out[k] != v) k++;
            if (k == n_out) out[n_out++] = v;
        }
    }
    return n_out;
}

static void add_node(shard *s, int32_t n, int32_t slice, int32_t *becomes) {
    wf_graph *g = s->g;
    bool ends = s->end_of[n] == n;
    wfi_node node = ends ? without_bias(&s->nodes[n]) : s->nodes[n];
    wf_tensor in[WFI_MAX_INPUTS];
    if (s->rule[n]->divide) (void)s->rule[n]->divide(&node.attr, s->n_slices);
    for (int i = 0; i < node.n_in; i++) {
        int32_t v = node.in[i];
        if (v >= 0 && s->cuts[v].dim && g->values[v].kind == WFI_VALUE_CUT && becomes[v] == v)
            becomes[v] = wfi_graph_cut_parameter(
                g, (wfi_cut){v, s->cuts[v].dim - 1, s->cuts[v].n_blocks}, slice);
        in[i] = v < 0 ? wfi_inert(g) : wfi_tensor(g, becomes[v]);
    }
    if (node.shape.n_dims) node.shape.dim[s->cuts[node.out[0]].dim - 1] /= s->n_slices;
    const wfi_node *added = wfi_graph_add(g, node.op, &node.attr,
                                          node.shape.n_dims ? &node.shape : NULL, node.n_in, in);
    for (int i = 0; i < node.n_out && added; i++) becomes[node.out[i]] = added->out[i];
}

static void cut_parameters(shard *s, int32_t end) {
    wf_graph *g = s->g;
    for (int32_t n = 0; n <= end; n++)
        for (int i = 0; i < s->nodes[n].n_in && s->end_of[n] == end; i++) {
            int32_t v = s->nodes[n].in[i];
            if (v >= 0 && s->cuts[v].dim && g->values[v].kind == WFI_VALUE_PARAM)
                g->values[v].kind = WFI_VALUE_CUT;
        }
}

/* A pair, where its end stands in unit `unit`. What slices read is another name of it in the unit
 * before, so that what they give back is a sum before anything else is added. */
static wf_status add_pair(shard *s, int32_t end, int32_t unit, int32_t number) {
    wf_graph *g = s->g;
    size_t n = (size_t)s->n_slices, n_values = (size_t)s->n_values;
    int32_t *read = wfi_alloc(g->ctx, n_values * (n + 1) + n, sizeof *read, "slices");
    int32_t *becomes = wfi_alloc(g->ctx, n_values, sizeof *becomes, "slices");
    wf_status status = read && becomes ? WF_OK : WF_NO_MEMORY;
    int32_t n_read = status == WF_OK ? find_read(s, end, read) : 0;
    int32_t *given = read + n_values, *summands = given + n_values * n;
    cut_parameters(s, end);
    for (int32_t k = 0; k < n_read; k++) {
        wf_tensor x = wfi_tensor(g, s->becomes[read[k]]);
        given[k * s->n_slices] = wf_reshape(x, wf_tensor_shape(x)).id;
    }
    for (int32_t slice = 0; slice < s->n_slices && status == WF_OK; slice++) {
        add_unit(s, unit, "pair", number, slice);
        for (int32_t k = 0; k < n_read && !slice && g->status == WF_OK; k++)
            give(g, wfi_tensor(g, given[k * s->n_slices]), s->n_slices, &given[k * s->n_slices]);
        memcpy(becomes, s->becomes, n_values * sizeof *becomes);
        for (int32_t k = 0; k < n_read; k++) becomes[read[k]] = given[k * s->n_slices + slice];
        for (int32_t k = 0; k <= end && g->status == WF_OK; k++)
            if (s->end_of[k] == end) add_node(s, k, slice, becomes);
        summands[slice] = becomes[s->nodes[end].out[0]];
        status = g->status;
    }
    if (status == WF_OK) {
        const wfi_node *node = &s->nodes[end];
        wf_tensor y = sum(g, summands, s->n_slices);
        add_unit(s, unit, "sum", number, -1);
        if (without_bias(node).n_in < node->n_in)
            y = wf_add(y, wfi_tensor(g, s->becomes[node->in[2]]));
        s->becomes[node->out[0]] = y.id;
        status = g->status;
    }
    wfi_free(g->ctx, becomes);
    wfi_free(g->ctx, read);
    return status;
}

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
    for (int32_t n = 0; n < s->n_nodes; n++) {
        const wfi_node *node = &s->nodes[n];
        if (node->dead) continue;
        begin_units(s, &next, node->unit);
        if (node->unit != last) number = 0;
        last = node->unit;
        if (s->end_of[n] == n) WF_TRY(add_pair(s, n, node->unit, number++));
        if (s->end_of[n] < 0) WF_TRY(keep_node(s, node));
    }
    begin_units(s, &next, s->n_units - 1);
    return g->status;
}

/* ---- where things are declared ---- */

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
            if (v >= 0 && g->values[v].kind != WFI_VALUE_NODE) g->values[v].unit = node->unit;
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
    size_t n_nodes = (size_t)g->n_nodes, n_values = (size_t)g->n_values;
    s->end_of = wfi_alloc(g->ctx, n_nodes, sizeof *s->end_of, "slices");
    s->rule = wfi_alloc(g->ctx, n_nodes, sizeof *s->rule, "slices");
    s->found = wfi_alloc(g->ctx, n_nodes, sizeof *s->found, "slices");
    s->cuts = wfi_alloc(g->ctx, n_values, sizeof *s->cuts, "slices");
    s->becomes = wfi_alloc(g->ctx, n_values, sizeof *s->becomes, "slices");
    s->unit_of = wfi_alloc(g->ctx, (size_t)g->n_units, sizeof *s->unit_of, "slices");
    bool ok = s->end_of && s->rule && s->found && s->cuts && s->becomes && s->unit_of;
    for (int32_t n = 0; n < g->n_nodes && ok; n++) s->end_of[n] = -1;
    for (int32_t v = 0; v < g->n_values && ok; v++) {
        s->cuts[v] = (cut){0, 1};
        s->becomes[v] = v;
    }
    return ok ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_graph_shard(wf_graph *g, int32_t n_slices) {
    shard s = {.g = g, .n_slices = n_slices, .n_nodes = g->n_nodes, .n_units = g->n_units};
    s.n_values = g->n_values;
    g->n_slices = n_slices;
    if (n_slices == 1) return WF_OK;
    wf_status status = allocate(&s);
    for (int32_t n = 0; n < g->n_nodes && status == WF_OK; n++) find_pair(&s, n);
    if (status == WF_OK) status = check_number(&s);
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
    wfi_free(g->ctx, s.end_of);
    wfi_free(g->ctx, s.rule);
    wfi_free(g->ctx, s.found);
    wfi_free(g->ctx, s.cuts);
    wfi_free(g->ctx, s.becomes);
    wfi_free(g->ctx, s.unit_of);
    return status;
}
