/* Finding pairs: a search goes from a node with columns that can be cut, through its readers, to a
 * node that sums. The search takes nodes as long as each has a rule that fits the cuts of its
 * operands, and releases them if it finds no pair. A node that sums at once is a pair by itself:
 * rows of a table.
 *
 * The end of a pair may also have outputs that stay cut, as a token of an LSTM does. Then the
 * search takes their readers, too, and all nodes up to the next end are one more pair of the same
 * slices. The search looks for such pairs first, because their first node could end another pair.
 */
#include "pass/pairs.h"
#include "op/op_table.h"

#include <stdio.h>

#define MOST_PARTS 4096 /* slices of a recipe */

typedef struct search {
    const wf_graph *g;
    wfi_pairs pairs;
    int32_t *found;          /* [n_found] nodes of the pair that is looked for */
    bool *is_found;          /* [n_nodes] it is one of them */
    int32_t n_found, end;    /* the last node found that ends it, or -1 */
    const wfi_node *stopped; /* the first node behind columns that cannot be cut in the same way */
} search;

/* ---- rules ---- */

/* Returns the dim, counted from 1, that a rule's entry cuts; `any` stands for WFI_ANY_DIM. */
static int dim_of(const wf_graph *g, int8_t entry, int32_t v, int any) {
    if (entry == WFI_ANY_DIM) return any;
    return entry < 0 ? g->values[v].shape.n_dims + entry + 1 : entry;
}

static const wfi_op_cut *find_beginning(const search *s, int32_t n);

/* Whether a value that is whole so far can be cut along the dim: a parameter, or, after the
 * beginning of a pair, the output of another beginning. */
static bool can_cut(const search *s, int32_t v, int dim, bool begins) {
    const wfi_value *value = wfi_value_at(s->g, v);
    if (s->pairs.cuts[v].dim || value->kind == WFI_VALUE_PARAM) return !s->pairs.cuts[v].dim;
    const wfi_op_cut *rule = begins || value->node < 0 ? NULL : find_beginning(s, value->node);
    return rule && dim_of(s->g, rule->out[0], v, 0) == dim;
}

/* Running statistics are folded as a whole: a part of a node that keeps them would have nowhere to
 * leave its own. */
static bool has_statistics(const wf_graph *g, const wfi_node *node) {
    for (int32_t k = 0; k < g->n_stats; k++)
        if (g->values[g->stats[k].mean].node == node - g->nodes) return true;
    return false;
}

/* Whether the rule applies to the node and fits the cuts of its operands. */
static bool rule_fits(const search *s, const wfi_node *node, const wfi_op_cut *rule) {
    const wf_graph *g = s->g;
    int any = 0;
    if ((rule->applies && !rule->applies(g, node)) || has_statistics(g, node)) return false;
    for (int i = 0; i < node->n_in && !any; i++)
        if (node->in[i] >= 0) any = s->pairs.cuts[node->in[i]].dim;
    for (int i = 0; i < node->n_in; i++) {
        int32_t v = node->in[i];
        int dim = v < 0 ? 0 : dim_of(g, rule->in[i], v, any);
        if (v >= 0 && dim != s->pairs.cuts[v].dim && !(dim && can_cut(s, v, dim, !any)))
            return false;
    }
    return any > 0 || (rule->in[0] == WFI_WHOLE && rule->in[1] != WFI_WHOLE);
}

static const wfi_op_cut *find_rule(const search *s, const wfi_node *node, bool sums) {
    const wfi_op_cut *rule = node->op->place;
    for (; rule && rule->name; rule++)
        if ((rule->out[0] == WFI_SUMMED) == sums && rule_fits(s, node, rule)) return rule;
    return NULL;
}

/* Whether the node, which is found, ends a pair. */
static bool is_end(const search *s, int32_t n) {
    return s->pairs.rule[n]->out[0] == WFI_SUMMED;
}

bool wfi_pairs_goes_on(const wfi_pairs *pairs, const wfi_node *end) {
    bool goes = false;
    for (int i = 1; i < end->n_out; i++) goes |= pairs->cuts[end->out[i]].dim > 0;
    return goes;
}

/* Returns the rule by which the node can begin a pair: it cuts the columns, and reads its first
 * input whole. */
static const wfi_op_cut *find_beginning(const search *s, int32_t n) {
    const wfi_node *node = &s->g->nodes[n];
    if (node->dead || s->pairs.end_of[n] >= 0 || s->is_found[n]) return NULL;
    const wfi_op_cut *rule = find_rule(s, node, false);
    return rule && rule->in[0] == WFI_WHOLE ? rule : NULL;
}

static bool is_seen_outside(const wf_graph *g, int32_t v) {
    return g->values[v].name || v == g->loss || v == g->record;
}

/* How it is cut if it is a pair by itself. */
static const wfi_op_cut *find_sum(const search *s, int32_t n) {
    const wfi_node *node = &s->g->nodes[n];
    if (node->dead || s->pairs.end_of[n] >= 0 || is_seen_outside(s->g, node->out[0])) return NULL;
    const wfi_op_cut *rule = find_rule(s, node, true);
    return rule && rule->in[0] == WFI_WHOLE ? rule : NULL;
}

wfi_node wfi_without_bias(const wfi_node *node) {
    wfi_node product = *node;
    if (product.op == &wfi_op_linear && product.n_in == 3) product.n_in = 2;
    return product;
}

/* ---- finding pairs ---- */

static bool is_parameter(const wf_graph *g, int32_t v) {
    return v >= 0 && g->values[v].kind == WFI_VALUE_PARAM;
}

/* A node of a pair that reads the value, or, if not `in_pair`, one of none; -1: there is none. */
static int32_t find_reader(const search *s, int32_t v, bool in_pair) {
    const wfi_readers *readers = &s->pairs.readers;
    for (int32_t k = readers->first[v]; k < readers->first[v + 1]; k++)
        if ((s->pairs.end_of[readers->nodes[k]] >= 0) == in_pair) return readers->nodes[k];
    return -1;
}

static void take_node(search *s, int32_t n, const wfi_op_cut *rule, int n_in) {
    const wf_graph *g = s->g;
    const wfi_node *node = &g->nodes[n];
    int any = 0;
    for (int i = 0; i < n_in && !any; i++)
        if (node->in[i] >= 0) any = s->pairs.cuts[node->in[i]].dim;
    for (int i = 0; i < n_in; i++) {
        int32_t v = node->in[i], producer = v < 0 ? -1 : g->values[v].node;
        if (v < 0) continue;
        int dim = dim_of(g, rule->in[i], v, any);
        if (dim && !s->pairs.cuts[v].dim && producer >= 0)
            take_node(s, producer, find_beginning(s, producer), g->nodes[producer].n_in);
        if (!is_parameter(g, v) || !s->pairs.cuts[v].dim)
            s->pairs.cuts[v] = (wfi_value_cut){dim, 1};
    }
    for (int i = 0; i < node->n_out; i++)
        if (rule->out[i] != WFI_SUMMED)
            s->pairs.cuts[node->out[i]] =
                (wfi_value_cut){dim_of(g, rule->out[i], node->out[i], any), 1};
    s->pairs.rule[n] = rule;
    s->found[s->n_found++] = n;
    s->is_found[n] = true;
}

/* Takes a node that reads a cut value: it ends the pair, or is cut in the same way. */
static bool take_reader(search *s, int32_t n) {
    const wf_graph *g = s->g;
    const wfi_node *node = &g->nodes[n];
    wfi_node product = wfi_without_bias(node);
    const wfi_op_cut *rule = find_rule(s, &product, true);
    bool ends = rule != NULL;
    if (s->is_found[n]) return true;
    if (s->pairs.end_of[n] >= 0) return false;
    if (ends && is_seen_outside(g, node->out[0])) return false;
    if (!ends) rule = find_rule(s, node, false);
    if (!rule && !s->stopped) s->stopped = node;
    if (!rule || (ends && s->end >= 0 && !wfi_pairs_goes_on(&s->pairs, &g->nodes[s->end])))
        return false;
    take_node(s, n, rule, ends ? product.n_in : node->n_in);
    if (ends) s->end = n;
    return true;
}

static bool take_readers(search *s, int32_t v) {
    const wfi_readers *readers = &s->pairs.readers;
    for (int32_t k = readers->first[v]; k < readers->first[v + 1]; k++)
        if (!take_reader(s, readers->nodes[k])) return false;
    return true;
}

/* If a rule needs blocks, the cut values that it depends on get the same blocks. False: two rules
 * need different blocks, or another pair cuts a weight without them. */
static bool find_blocks(search *s) {
    const wf_graph *g = s->g;
    bool changes = true;
    while (changes) {
        changes = false;
        for (int32_t k = 0; k < s->n_found; k++) {
            const wfi_node *node = &g->nodes[s->found[k]];
            const wfi_op_cut *rule = s->pairs.rule[s->found[k]];
            int n_operands = node->n_in + node->n_out, n = rule->n_blocks;
            for (int pass = 0; pass < 2; pass++)
                for (int i = 0; i < n_operands; i++) {
                    int32_t v = wfi_node_operand(node, i);
                    if (v < 0 || !s->pairs.cuts[v].dim) continue;
                    if (rule->n_blocks && !(rule->blocks >> i & 1)) continue;
                    if (!pass && s->pairs.cuts[v].n_blocks > n) n = s->pairs.cuts[v].n_blocks;
                    if (!pass || s->pairs.cuts[v].n_blocks >= n) continue;
                    if (is_parameter(g, v) && find_reader(s, v, true) >= 0) return false;
                    s->pairs.cuts[v].n_blocks = n;
                    changes = true;
                }
        }
    }
    for (int32_t k = 0; k < s->n_found; k++) {
        const wfi_node *node = &g->nodes[s->found[k]];
        const wfi_op_cut *rule = s->pairs.rule[s->found[k]];
        for (int i = 0; i < node->n_in + node->n_out; i++) {
            int32_t v = wfi_node_operand(node, i);
            int n = rule->blocks >> i & 1 ? rule->n_blocks : 1;
            int own = v < 0 ? n : s->pairs.cuts[v].n_blocks;
            if (rule->n_blocks ? own != n : own == WFI_UNEQUAL) return false;
        }
    }
    return true;
}

/* Removes the node from its pair. Its operands are whole again, except weights that other pairs
 * cut. */
static void forget_node(search *s, int32_t n) {
    const wfi_node *node = &s->g->nodes[n];
    s->pairs.end_of[n] = -1;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        int32_t v = wfi_node_operand(node, i);
        if (v >= 0 && !(is_parameter(s->g, v) && find_reader(s, v, true) >= 0))
            s->pairs.cuts[v] = (wfi_value_cut){0, 1};
    }
}

/* Whether the node of a pair reads parts that no slice has any more. */
static bool misses_parts(const search *s, int32_t n) {
    const wfi_node *node = &s->g->nodes[n];
    bool misses = false;
    for (int i = 0; i < node->n_in && s->pairs.end_of[n] >= 0; i++)
        misses |= node->in[i] >= 0 && s->pairs.rule[n]->in[i] != WFI_WHOLE &&
                  !s->pairs.cuts[node->in[i]].dim;
    return misses;
}

/* Forgets the pair, and the pairs that read parts of its slices. */
static void forget_pair(search *s, int32_t end) {
    for (int32_t n = 0; n <= end; n++)
        if (s->pairs.end_of[n] == end) forget_node(s, n);
    s->pairs.n_pairs--;
    for (int32_t n = end + 1; n < s->g->n_nodes; n++)
        if (misses_parts(s, n)) forget_pair(s, s->pairs.end_of[n]);
}

/* A parameter that something else reads, too, is not cut: all its pairs go. */
static void keep_shared(search *s) {
    const wf_graph *g = s->g;
    for (int32_t v = 0; v < g->n_values; v++) {
        if (!is_parameter(g, v) || !s->pairs.cuts[v].dim || find_reader(s, v, false) < 0) continue;
        for (int32_t n = find_reader(s, v, true); n >= 0; n = find_reader(s, v, true))
            forget_pair(s, s->pairs.end_of[n]);
        v = -1; /* other nodes may read values that these pairs had cut */
    }
}

/* Returns the first found node, from n on, that ends a pair. */
static int32_t find_end(const search *s, int32_t n) {
    int32_t end = s->end;
    for (int32_t k = 0; k < s->n_found; k++)
        if (s->found[k] >= n && s->found[k] < end && is_end(s, s->found[k])) end = s->found[k];
    return end;
}

/* The pair that begins with node n, if one does; or several, if slices are to go on. */
static void find_pair(search *s, int32_t n, bool goes_on) {
    const wf_graph *g = s->g;
    s->n_found = 0;
    s->end = -1;
    const wfi_op_cut *rule = find_sum(s, n);
    if (rule) s->end = n;
    if (!rule) rule = find_beginning(s, n);
    if (!rule) return;
    take_node(s, n, rule, g->nodes[n].n_in);
    bool is_pair = true;
    for (int32_t k = 0; k < s->n_found && is_pair; k++) {
        const wfi_node *next = &g->nodes[s->found[k]];
        for (int i = 0; i < next->n_out && is_pair; i++) {
            bool is_part = !is_end(s, s->found[k]) || s->pairs.cuts[next->out[i]].dim;
            is_pair =
                !is_part || (!is_seen_outside(g, next->out[i]) && take_readers(s, next->out[i]));
        }
    }
    is_pair = is_pair && s->end >= 0 && find_blocks(s) &&
              goes_on == wfi_pairs_goes_on(&s->pairs, &g->nodes[find_end(s, n)]);
    for (int32_t k = 0; k < s->n_found; k++) {
        s->is_found[s->found[k]] = false;
        s->pairs.n_pairs += is_pair && is_end(s, s->found[k]);
        if (is_pair)
            s->pairs.end_of[s->found[k]] = find_end(s, s->found[k]);
        else
            forget_node(s, s->found[k]);
    }
}

/* ---- how many slices there can be ---- */

wfi_op_part wfi_pairs_part(const wf_graph *g, const wfi_pairs *pairs, const wfi_node *node,
                           int64_t slice, int64_t n) {
    int i = 0;
    while (node->in[i] < 0 || !pairs->cuts[node->in[i]].dim) i++;
    wfi_value_cut cut = pairs->cuts[node->in[i]];
    return wfi_op_part_of(&g->values[node->in[i]].shape, cut.dim - 1, cut.n_blocks, slice, n);
}

static bool node_allows(const search *s, int32_t n, int64_t n_slices) {
    const wf_graph *g = s->g;
    const wfi_node *node = &g->nodes[n];
    wfi_attr attr = node->attr;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        int32_t v = wfi_node_operand(node, i);
        if (v < 0 || !s->pairs.cuts[v].dim || s->pairs.cuts[v].n_blocks == WFI_UNEQUAL) continue;
        wfi_value_cut cut = s->pairs.cuts[v];
        int64_t length = g->values[v].shape.dim[cut.dim - 1] / cut.n_blocks;
        if (length < n_slices || (s->pairs.rule[n]->is_even && length % n_slices)) return false;
    }
    wfi_op_part part = wfi_pairs_part(g, &s->pairs, node, 0, n_slices);
    return !s->pairs.rule[n]->divide || s->pairs.rule[n]->divide(&attr, &part);
}

/* The first node that cannot be cut into so many; NULL: all can. */
static const wfi_node *find_refusing(const search *s, int64_t n_slices) {
    for (int32_t n = 0; n < s->g->n_nodes; n++)
        if (s->pairs.end_of[n] >= 0 && !node_allows(s, n, n_slices)) return &s->g->nodes[n];
    return NULL;
}

/* "has 25 heads", or its shape. */
static void describe_parts(const search *s, const wfi_node *node, char *text, size_t bytes) {
    const wfi_op_cut *rule = s->pairs.rule[node - s->g->nodes];
    int32_t n = (int32_t)(node - s->g->nodes);
    char shape[WFI_SHAPE_TEXT];
    int64_t most = MOST_PARTS;
    while (rule->divide && most > 1 && !node_allows(s, n, most)) most--;
    if (rule->divide)
        snprintf(text, bytes, "has %d %s", (int)most, rule->name);
    else
        snprintf(text, bytes, "gives %s", wfi_shape_text(&s->g->values[node->out[0]].shape, shape));
}

static wf_status check_number(const search *s) {
    const wf_graph *g = s->g;
    int64_t below = s->pairs.n_slices, above = s->pairs.n_slices;
    const wfi_node *node = find_refusing(s, s->pairs.n_slices);
    if (!s->pairs.n_pairs)
        return wfi_fail(g->ctx, WF_INVALID_ARG,
                        "recipe: slices=%d, but nothing in this model can be cut%s%s%s%s; use "
                        "slices=1 (and tp=1)",
                        s->pairs.n_slices, s->stopped ? ": op " : "",
                        s->stopped ? s->stopped->op->name : "", s->stopped ? " of unit " : "",
                        s->stopped ? g->units[s->stopped->unit].name : "");
    if (!node) return WF_OK;
    while (below > 1 && find_refusing(s, below)) below--;
    while (above < 2 * s->pairs.n_slices && find_refusing(s, above)) above++;
    char or_above[60] = "", what[WFI_SHAPE_TEXT + 40];
    if (!find_refusing(s, above))
        snprintf(or_above, sizeof or_above, " or %d (tp=%d)", (int)above, (int)above);
    describe_parts(s, node, what, sizeof what);
    return wfi_fail(g->ctx, WF_INVALID_ARG,
                    "recipe: slices=%d do not divide %s of unit %s, which %s; %d (tp=%d)%s would",
                    s->pairs.n_slices, node->op->name, g->units[node->unit].name, what, (int)below,
                    (int)below, or_above);
}

/* ---- all pairs ---- */

static wf_status allocate(search *s) {
    const wf_graph *g = s->g;
    size_t n_nodes = (size_t)g->n_nodes, n_values = (size_t)g->n_values;
    wfi_pairs *pairs = &s->pairs;
    wfi_pool *pool = &pairs->pool;
    wfi_pool_init(pool, g->ctx);
    pairs->end_of = wfi_pool_alloc(pool, n_nodes, sizeof *pairs->end_of);
    pairs->rule = wfi_pool_alloc(pool, n_nodes, sizeof *pairs->rule);
    pairs->cuts = wfi_pool_alloc(pool, n_values, sizeof *pairs->cuts);
    pairs->is_row = wfi_pool_alloc(pool, n_nodes, sizeof *pairs->is_row);
    pairs->first_of = wfi_pool_alloc(pool, n_nodes, sizeof *pairs->first_of);
    pairs->next_of = wfi_pool_alloc(pool, n_nodes, sizeof *pairs->next_of);
    s->found = wfi_pool_alloc(pool, n_nodes, sizeof *s->found);
    s->is_found = wfi_pool_alloc(pool, n_nodes, sizeof *s->is_found);
    WF_TRY(wfi_pool_status(pool));
    for (int32_t n = 0; n < g->n_nodes; n++) pairs->end_of[n] = pairs->first_of[n] = -1;
    for (int32_t v = 0; v < g->n_values; v++) pairs->cuts[v] = (wfi_value_cut){0, 1};
    return wfi_readers_find(g, &pairs->readers);
}

static void list_nodes(search *s) {
    wfi_pairs *pairs = &s->pairs;
    for (int32_t n = s->g->n_nodes - 1; n >= 0; n--) {
        int32_t end = pairs->end_of[n];
        if (end < 0) continue;
        pairs->next_of[n] = pairs->first_of[end];
        pairs->first_of[end] = n;
    }
}

static wf_status find_all(search *s) {
    WF_TRY(allocate(s));
    for (int32_t n = 0; n < s->g->n_nodes; n++) find_pair(s, n, true);
    for (int32_t n = 0; n < s->g->n_nodes; n++) find_pair(s, n, false);
    keep_shared(s);
    return WF_OK;
}

wf_status wfi_pairs_find(const wf_graph *g, int32_t n_slices, wfi_pairs *pairs_out) {
    search s = {.g = g, .pairs.n_slices = n_slices};
    wf_status status = find_all(&s);
    if (status == WF_OK) status = check_number(&s);
    if (status == WF_OK) wfi_pairs_find_rows(g, &s.pairs);
    if (status == WF_OK) list_nodes(&s);
    *pairs_out = s.pairs;
    if (status != WF_OK) wfi_pairs_release(pairs_out);
    return status;
}

wf_status wfi_pairs_most(const wf_graph *g, int32_t most, int32_t *n_slices_out) {
    search s = {.g = g, .pairs.n_slices = most};
    wf_status status = find_all(&s);
    while (status == WF_OK && most > 1 && find_refusing(&s, most)) most /= 2;
    *n_slices_out = s.pairs.n_pairs ? most : 1;
    wfi_pairs_release(&s.pairs);
    return status;
}

void wfi_pairs_release(wfi_pairs *pairs) {
    wfi_readers_release(pairs->pool.ctx, &pairs->readers);
    wfi_pool_release(&pairs->pool);
    *pairs = (wfi_pairs){0};
}
