/* The vocabulary of a language model: the rows of its embedding, and as many classes of its head,
 * which may be the same weight. Both are cut along it, like a pair of layers: of the embedding each
 * slice gives the rows that it has, of the head a few numbers a token, of which cross entropy is
 * made (op/class_sums.c). Models do not declare a vocabulary; a model without such an embedding has
 * none.
 *
 * The logits as a whole are there where somebody may ask for them: not in a training step.
 */
#include "graph/readers.h"
#include "op/op_table.h"
#include "pass/pass.h"
#include "pass/rewrite.h"

static bool is_embedding_of(const wf_graph *g, const wfi_node *node, int64_t n_classes) {
    return !node->dead && node->op == &wfi_op_embedding &&
           g->values[node->in[1]].shape.dim[0] == n_classes;
}

static int64_t n_classes_of(const wf_graph *g, int32_t logits) {
    const wf_shape *shape = &g->values[logits].shape;
    return shape->dim[shape->n_dims - 1];
}

static bool is_cross_entropy(const wfi_node *node) {
    return node->op == &wfi_op_cross_entropy || node->op == &wfi_op_smoothed_cross_entropy;
}

/* Whether one cross entropy reads them and nothing else does; or a model without a loss puts them
 * out. */
static bool are_logits(const wf_graph *g, const wfi_readers *readers, int32_t v) {
    int32_t n_readers = wfi_n_readers(readers, v);
    if (!n_readers) return g->loss < 0 && g->values[v].name;
    const wfi_node *reader = &g->nodes[readers->nodes[readers->first[v]]];
    return n_readers == 1 && is_cross_entropy(reader) && reader->in[0] == v;
}

/* The node that gives logits over a vocabulary; -1: there is none. */
static int32_t find_head(const wf_graph *g, const wfi_readers *readers, int32_t n_blocks) {
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead || node->op != &wfi_op_linear || !are_logits(g, readers, node->out[0]))
            continue;
        int64_t n_classes = n_classes_of(g, node->out[0]);
        for (int32_t k = 0; k < n && n_classes >= n_blocks; k++)
            if (is_embedding_of(g, &g->nodes[k], n_classes)) return n;
    }
    return -1;
}

/* Each slice puts its logits into the whole, which has their name. */
static void join_logits(wf_graph *g, const wfi_node *head) {
    wf_shape shape = g->values[head->out[0]].shape;
    wfi_attr attr = {.slice = {.dim = shape.n_dims - 1}};
    wf_tensor in[WFI_MAX_INPUTS];
    for (int i = 0; i < head->n_in; i++) in[i] = wfi_tensor(g, head->in[i]);
    wf_tensor x = wfi_graph_op(g, head->op, &head->attr, NULL, head->n_in, in);
    x = wfi_graph_op(g, &wfi_op_slice_backward, &attr, &shape, 1, &x);
    (void)wfi_graph_op(g, &wfi_op_reshape, NULL, &shape, 1, &x);
    wfi_rewrite_give(g, head->out, 1);
}

static void add_loss(wf_graph *g, const wfi_node *loss, int64_t n_blocks) {
    wfi_attr attr = {.classes = {n_classes_of(g, loss->in[0]), n_blocks, 0, n_blocks,
                                 loss->attr.loss.smoothing}};
    wf_tensor in[] = {wfi_tensor(g, loss->in[0]), wfi_tensor(g, loss->in[1])};
    in[0] = wfi_graph_op(g, &wfi_op_class_sums, &attr, NULL, 2, in);
    (void)wfi_graph_op(g, &wfi_op_cross_entropy_of_sums, &attr, NULL, 2, in);
    wfi_rewrite_give(g, loss->out, loss->n_out);
}

static void drop_output(wf_graph *g, int32_t v) {
    int32_t n = 0;
    for (int32_t k = 0; k < g->n_outputs; k++)
        if (g->outputs[k] != v) g->outputs[n++] = g->outputs[k];
    g->n_outputs = n;
    g->values[v].name = NULL;
}

typedef struct vocabulary {
    wfi_node head;
    int64_t n_blocks;
} vocabulary;

static void add_again(wf_graph *g, const wfi_node *node, void *how) {
    const vocabulary *v = how;
    const wfi_node *head = &v->head;
    int64_t n_classes = n_classes_of(g, head->out[0]);
    wfi_node again = *node;
    if (is_embedding_of(g, node, n_classes)) again.attr.embedding.n_classes = n_classes;
    if (node->out[0] == head->out[0] && !g->training)
        join_logits(g, node);
    else if (is_cross_entropy(node) && node->in[0] == head->out[0] && g->training)
        add_loss(g, node, v->n_blocks);
    else
        wfi_rewrite_keep(g, &again);
}

wf_status wfi_graph_find_vocabulary(wf_graph *g, int32_t n_blocks) {
    wfi_readers readers;
    WF_TRY(wfi_readers_find(g, &readers));
    int32_t head = find_head(g, &readers, n_blocks);
    wfi_readers_release(g->ctx, &readers);
    if (head < 0) return WF_OK;
    vocabulary v = {g->nodes[head], n_blocks};
    if (g->training) drop_output(g, v.head.out[0]);
    return wfi_rewrite(g, add_again, &v);
}
