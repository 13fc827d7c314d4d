/* Bytes of blocks: the values that a microbatch keeps from forward to backward, and those that are
 * alive only while a block computes. Nodes run in a program's order: units forward, then backward,
 * each with its recomputation first. Scratch memory of kernels is not counted.
 */
#include "cluster/work.h"
#include "graph/op.h"
#include "op/op_table.h"

#include <string.h>

/* A root value: the last of its readers in the order, forward and backward. */
typedef struct life {
    int32_t forward, backward; /* -1: none */
    int32_t read;              /* backward, but for what lies with others of its unit */
    int32_t reader;            /* the unit of the last one in backward */
    bool is_kept;              /* made forward and read backward */
    bool crosses;              /* from one unit to another */
    bool is_sum;               /* a weight's gradient, which lies where it is summed */
    bool is_alive, is_over;    /* is_over: it lies where an input was */
    int32_t weight;            /* a unit that reads it for the gradient of a weight, or -1 */
} life;

typedef struct walk {
    const wfi_lives_request *q;
    const wf_graph *g;
    life *lives;           /* [n_values] */
    int32_t *order;        /* [n] nodes */
    int32_t *first, *next; /* [n_units], [n_nodes] the nodes of a unit; -1: no more */
    int32_t n, n_forward;
    double inside, crossing; /* alive: of a unit alone, between units */
    double freed;            /* of what the block at hand has kept */
} walk;

static wfi_model_block *block_at(const walk *w, int32_t unit) {
    return &w->q->kinds[w->q->block_of[unit]];
}

/* ---- the order ---- */

static void add_nodes(walk *w, int32_t unit, unsigned phases) {
    for (int32_t n = w->first[unit]; n >= 0; n = w->next[n])
        if (phases >> w->g->nodes[n].phase & 1) w->order[w->n++] = n;
}

static void list_nodes(walk *w) {
    for (int32_t u = 0; u < w->g->n_units; u++) w->first[u] = -1;
    for (int32_t n = w->g->n_nodes - 1; n >= 0; n--) {
        const wfi_node *node = &w->g->nodes[n];
        if (node->dead) continue;
        w->next[n] = w->first[node->unit];
        w->first[node->unit] = n;
    }
}

/* Backward, slices of a pair run in their own order. */
static void find_order(walk *w) {
    const wfi_unit *units = w->g->units;
    list_nodes(w);
    for (int32_t u = 0; u < w->g->n_units; u++)
        if (w->q->is_own[u]) add_nodes(w, u, 1 << WFI_F);
    w->n_forward = w->n;
    for (int32_t k = w->g->n_units - 1; k >= 0; k--) {
        int32_t u = units[k].is_slice ? k - 2 * units[k].slice + w->g->n_slices - 1 : k;
        if (!w->q->is_own[u]) continue;
        add_nodes(w, u, 1 << WFI_R);
        add_nodes(w, u, 1 << WFI_B | 1 << WFI_W);
    }
}

/* ---- lives ---- */

/* The root of an operand that takes memory of its own; -1: none. */
static int32_t find_root(const walk *w, int32_t v) {
    int32_t root = v < 0 ? -1 : wfi_value_root(w->g, v);
    if (root < 0) return -1;
    wfi_value_kind kind = w->g->values[root].kind;
    return kind == WFI_VALUE_NODE || kind == WFI_VALUE_INPUT ? root : -1;
}

static bool is_made_forward(const walk *w, int32_t v) {
    int32_t node = w->g->values[v].node;
    return w->g->values[v].kind == WFI_VALUE_INPUT ||
           (node >= 0 && w->g->nodes[node].phase == WFI_F);
}

static void record_reader(walk *w, int32_t v, int32_t at) {
    life *l = &w->lives[v];
    const wfi_node *node = &w->g->nodes[w->order[at]];
    l->crosses |= w->g->values[v].kind == WFI_VALUE_INPUT || w->g->values[v].unit != node->unit;
    if (at < w->n_forward) {
        l->forward = at;
        return;
    }
    l->is_kept |= is_made_forward(w, v);
    if (node->phase == WFI_W) l->weight = node->unit;
    l->backward = l->read = at;
    l->reader = node->unit;
}

/* What a unit alone reads, is in one block of memory that ends with the unit. */
static void extend_to_unit(walk *w) {
    for (int32_t at = w->n - 1; at >= w->n_forward; at--) {
        const wfi_node *node = &w->g->nodes[w->order[at]];
        for (int i = 0; i < node->n_in; i++) {
            int32_t v = find_root(w, node->in[i]), last = at;
            if (v < 0 || w->lives[v].backward != at || w->lives[v].crosses) continue;
            if (!w->lives[v].is_kept) continue;
            while (last + 1 < w->n && w->g->nodes[w->order[last + 1]].unit == node->unit) last++;
            w->lives[v].backward = last;
        }
    }
}

/* Kernels of linear layers assign to the sums, or add to them a few rows at a time if there is no
 * bias; those of others give a gradient that is then added. */
#define ADDED_BYTES (4 << 20)

static void find_sums(walk *w) {
    const wf_graph *g = w->g;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        int32_t v = wfi_value_root(g, g->weight_gradients[i].value), node = g->values[v].node;
        const wfi_op *op = node < 0 ? NULL : g->nodes[node].op;
        bool adds = op && op->flags & WFI_OP_WEIGHT_GRADIENT && !(op->flags & WFI_OP_IMAGE);
        w->lives[v].is_sum = adds;
        if (!adds || !w->q->is_own[g->nodes[node].unit]) continue;
        wfi_model_block *block = block_at(w, g->nodes[node].unit);
        bool is_alone = g->nodes[node].n_out == 1;
        double bytes = (double)wfi_value_bytes(g, v);
        block->added_bytes = fmax(block->added_bytes, is_alone ? fmin(bytes, ADDED_BYTES) : bytes);
    }
}

static void find_lives(walk *w) {
    for (int32_t v = 0; v < w->g->n_values; v++)
        w->lives[v] = (life){.forward = -1, .backward = -1, .reader = -1, .weight = -1};
    for (int32_t at = 0; at < w->n; at++) {
        const wfi_node *node = &w->g->nodes[w->order[at]];
        for (int i = 0; i < node->n_in; i++) {
            int32_t v = find_root(w, node->in[i]);
            if (v >= 0 && !(node->op->flags & WFI_OP_SLICES)) record_reader(w, v, at);
        }
    }
    extend_to_unit(w);
    find_sums(w);
}

/* The reference keeps 5 numbers of each unit of an LSTM and token, oneDNN 20. */
#define LSTM_TIMES 4

static double value_bytes(const walk *w, int32_t v) {
    int32_t n = w->g->values[v].node;
    const wfi_node *node = n < 0 ? NULL : &w->g->nodes[n];
    bool is_workspace = node && node->op == &wfi_op_lstm && node->n_out > 2 && node->out[2] == v;
    return (is_workspace ? LSTM_TIMES : 1) * (double)wfi_value_bytes(w->g, v);
}

/* ---- the walk ---- */

static double *place_of(walk *w, int32_t v) {
    return w->lives[v].crosses ? &w->crossing : &w->inside;
}

static int32_t end_of(const walk *w, int32_t v, int32_t at) {
    return at < w->n_forward && w->lives[v].backward < 0 ? w->lives[v].forward
                                                         : w->lives[v].backward;
}

static void begin(walk *w, int32_t v) {
    life *l = &w->lives[v];
    if (l->is_alive || l->is_kept || l->is_sum || l->is_over) return;
    l->is_alive = true;
    *place_of(w, v) += value_bytes(w, v);
}

static void end(walk *w, int32_t v, int32_t at, int32_t unit) {
    double bytes = value_bytes(w, v);
    life *l = &w->lives[v];
    if (end_of(w, v, at) > at) return;
    if (l->is_kept && at >= w->n_forward && w->q->block_of[l->reader] == w->q->block_of[unit])
        w->freed += bytes, l->is_kept = false;
    if (l->is_alive) *place_of(w, v) -= bytes;
    l->is_alive = false;
}

/* The input that the node is the last to read, and writes its first output over; -1: none. */
static int32_t find_overwritten(const walk *w, const wfi_node *node, int32_t at) {
    for (int i = 0; i < node->n_in && node->out[0] >= 0; i++) {
        int32_t v = find_root(w, node->in[i]);
        if (v < 0 || !(node->op->overwrites >> i & 1)) continue;
        const life *l = &w->lives[v];
        bool is_last = l->is_kept ? l->read == at : l->is_alive && end_of(w, v, at) == at;
        if (is_last && wfi_value_bytes(w->g, v) == wfi_value_bytes(w->g, node->out[0])) return v;
    }
    return -1;
}

/* What is made over a value that ends with its unit takes no more memory; a value of its own ends
 * as the new one begins. */
static void overwrite(walk *w, int32_t v, int32_t out) {
    life *l = &w->lives[v];
    if (l->is_kept) w->lives[out].is_over = !w->lives[out].crosses;
    if (!l->is_alive) return;
    *place_of(w, v) -= value_bytes(w, v);
    l->is_alive = false;
}

/* Attention, and sums of a vocabulary's slices, are computed by kernels of f32, in 16 bits on
 * copies of their operands. */
static double widened_bytes(const walk *w, const wfi_node *node) {
    double bytes = 0;
    bool is_sum = node->op == &wfi_op_class_sums || node->op == &wfi_op_class_sums_backward;
    bool is_attention =
        node->op == &wfi_op_self_attention || node->op == &wfi_op_self_attention_backward;
    if (!is_sum && !is_attention) return 0;
    for (int i = 0; i < node->n_in + (is_attention ? node->n_out : 0); i++) {
        int32_t v = wfi_node_operand(node, i);
        const wfi_value *value = v < 0 ? NULL : &w->g->values[v];
        if (value && value->dtype == WF_BF16) bytes += 4 * (double)wf_shape_n_elem(&value->shape);
    }
    return bytes;
}

static void step(walk *w, int32_t at) {
    const wfi_node *node = &w->g->nodes[w->order[at]];
    wfi_model_block *block = block_at(w, node->unit);
    if (wfi_node_is_alias(w->g, node)) return;
    for (int i = 0; i < node->n_in; i++) {
        int32_t v = find_root(w, node->in[i]);
        if (v >= 0) begin(w, v);
    }
    int32_t over = find_overwritten(w, node, at);
    if (over >= 0) overwrite(w, over, wfi_value_root(w->g, node->out[0]));
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] >= 0) begin(w, wfi_value_root(w->g, node->out[i]));
    wfi_pass_bytes *pass = &block->pass[at >= w->n_forward];
    double alive = w->inside + w->crossing + widened_bytes(w, node);
    pass->transient = fmax(pass->transient, alive - w->freed);
    pass->alive = fmax(pass->alive, alive);
    pass->crossing = fmax(pass->crossing, w->crossing);
    for (int i = 0; i < node->n_in; i++) {
        int32_t v = find_root(w, node->in[i]);
        if (v >= 0) end(w, v, at, node->unit);
    }
    for (int i = 0; i < node->n_out; i++) {
        int32_t v = node->out[i] < 0 ? -1 : wfi_value_root(w->g, node->out[i]);
        if (v >= 0 && end_of(w, v, at) < at) end(w, v, at, node->unit);
    }
}

/* What is kept belongs to the block that reads it last: in a pipeline, the value is sent there. */
static void add_kept(walk *w) {
    for (int32_t v = 0; v < w->g->n_values; v++) {
        double bytes = value_bytes(w, v);
        if (w->lives[v].weight >= 0) block_at(w, w->lives[v].weight)->weight_bytes += bytes;
        if (!w->lives[v].is_kept) continue;
        wfi_model_block *block = block_at(w, w->lives[v].reader);
        block->saved_bytes += bytes;
        w->q->unit_bytes[w->lives[v].reader] += bytes;
    }
}

static void find_largest(walk *w) {
    for (int32_t u = 0; u < w->g->n_units; u++) {
        wfi_model_block *block = block_at(w, u);
        block->unit_saved_bytes = fmax(block->unit_saved_bytes, w->q->unit_bytes[u]);
    }
}

wf_status wfi_work_find_lives(const wfi_lives_request *q) {
    wf_context *ctx = q->g->ctx;
    walk w = {.q = q, .g = q->g};
    w.lives = wfi_alloc(ctx, (size_t)q->g->n_values, sizeof *w.lives, "work");
    w.order = wfi_alloc(ctx, (size_t)q->g->n_nodes, sizeof *w.order, "work");
    w.first = wfi_alloc(ctx, (size_t)q->g->n_units, sizeof *w.first, "work");
    w.next = wfi_alloc(ctx, (size_t)q->g->n_nodes, sizeof *w.next, "work");
    bool ok = w.lives && w.order && w.first && w.next;
    wf_status status = ok ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        find_order(&w);
        find_lives(&w);
        add_kept(&w);
        find_largest(&w);
        for (int32_t at = 0; at < w.n; at++) {
            int32_t unit = q->g->nodes[w.order[at]].unit;
            int32_t before = at ? q->g->nodes[w.order[at - 1]].unit : -1;
            if (before < 0 || q->block_of[before] != q->block_of[unit]) w.freed = 0;
            step(&w, at);
        }
    }
    wfi_free(ctx, w.lives);
    wfi_free(ctx, w.order);
    wfi_free(ctx, w.first);
    wfi_free(ctx, w.next);
    return status;
}
