/* Layouts: images with a multiple of 16 channels are held as C16 wherever an image op touches them;
 * a reorder precedes other ops, which need them row-major. The choice depends only on shapes and
 * ops, never on the rank or on measured times. So values between units have one layout under every
 * plan. */
#include "graph/op.h"
#include "op/op_table.h"
#include "pass/pass.h"
#include "pass/rewrite.h"

typedef struct layout_pass {
    wf_graph *g;
    int32_t *parent; /* [value] union-find: values that must share a layout */
    bool *is_image;  /* [root] an image op touches the class */
} layout_pass;

/* Whether all operands of the node share one layout, C16 or row-major: inputs and outputs of slices
 * are aliases of one value. */
static bool keeps_layout(const wfi_node *node) {
    return node->op->flags & WFI_OP_ELEMENTWISE || node->op == &wfi_op_to_slices ||
           node->op == &wfi_op_sum_slices;
}

static int32_t find_class(layout_pass *pass, int32_t v) {
    while (pass->parent[v] != v) v = pass->parent[v] = pass->parent[pass->parent[v]];
    return v;
}

static bool may_be_c16(const wf_graph *g, int32_t v) {
    const wfi_value *value = wfi_value_at(g, v);
    return value->shape.n_dims == 4 && value->dtype == WF_F32 && value->shape.dim[1] % 16 == 0 &&
           value->shape.dim[1] > 0 &&
           (value->kind == WFI_VALUE_NODE || value->kind == WFI_VALUE_INPUT);
}

/* Looks like an image, but is a convolution's weight or its gradient: row-major. */
static bool is_weight(const wfi_node *node, int operand) {
    wfi_op_roles roles = node->op->roles;
    return operand < node->n_in ? roles.weight_in >> operand & 1
                                : roles.weight_out >> (operand - node->n_in) & 1;
}

static void classify(layout_pass *pass) {
    wf_graph *g = pass->g;
    for (int32_t v = 0; v < g->n_values; v++) pass->parent[v] = v;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead) continue;
        int32_t first = -1;
        for (int i = 0; i < node->n_in + node->n_out; i++) {
            int32_t v = wfi_node_operand(node, i);
            if (v < 0 || !may_be_c16(g, v)) continue;
            if ((node->op->flags & WFI_OP_IMAGE) && !is_weight(node, i))
                pass->is_image[find_class(pass, v)] = true;
            if (!keeps_layout(node)) continue;
            if (first < 0) {
                first = v;
                continue;
            }
            int32_t a = find_class(pass, first), b = find_class(pass, v);
            pass->is_image[a] = pass->is_image[a] || pass->is_image[b];
            pass->parent[b] = a;
        }
    }
}

static bool is_c16(layout_pass *pass, int32_t v) {
    return may_be_c16(pass->g, v) && pass->is_image[find_class(pass, v)];
}

/* A new value with v's shape, row-major. */
static int32_t add_plain(wf_graph *g, int32_t v, const wfi_node *near) {
    return wfi_rewrite_value(g, v, near, g->values[v].dtype, WFI_PLAIN);
}

static void add_reorder(wf_graph *g, const wfi_node *near, int32_t from, int32_t to) {
    if (g->status != WF_OK) return;
    const wfi_attr attr = {.reorder = {.to = g->values[to].layout}};
    wfi_rewrite_add(g, &wfi_op_reorder, &attr, near, near->phase, from, to);
}

/* A 1 x 1 image has the same bytes in both layouts, so a reshape may look at it. */
static bool is_pixel(const wf_graph *g, int32_t v) {
    const wf_shape *shape = &g->values[v].shape;
    return shape->dim[2] == 1 && shape->dim[3] == 1;
}

/* Whether the op of the node needs that value, which is held as C16, row-major. */
static bool needs_plain(const wf_graph *g, const wfi_node *node, int32_t v) {
    return v >= 0 && g->values[v].layout == WFI_C16 &&
           !((node->op->flags & WFI_OP_ALIAS) && is_pixel(g, v));
}

static void add_again(wf_graph *g, const wfi_node *before, void *how) {
    wfi_node node = *before;
    bool any_layout = node.op->flags & WFI_OP_IMAGE || keeps_layout(&node);
    bool is_alias = node.op->flags & WFI_OP_ALIAS;
    (void)how;
    if (node.dead) return;
    for (int i = 0; i < node.n_in && !any_layout; i++) {
        int32_t v = node.in[i];
        if (!needs_plain(g, &node, v)) continue;
        node.in[i] = add_plain(g, v, &node);
        add_reorder(g, &node, v, node.in[i]);
        if (is_alias) g->values[node.out[0]].alias = node.in[i];
    }
    for (int i = 0; i < node.n_out && !any_layout; i++) {
        int32_t v = node.out[i];
        if (!needs_plain(g, &node, v)) continue;
        node.out[i] = add_plain(g, v, &node);
        if (!is_alias || g->status != WF_OK) continue;
        g->values[node.out[i]].alias = g->values[v].alias;
        g->values[v].alias = -1;
    }
    wfi_rewrite_keep(g, &node);
    for (int i = 0; i < node.n_out; i++)
        if (node.out[i] != before->out[i]) add_reorder(g, &node, node.out[i], before->out[i]);
}

static wf_status rewrite(layout_pass *pass) {
    wf_graph *g = pass->g;
    for (int32_t v = 0; v < g->n_values; v++)
        if (is_c16(pass, v)) g->values[v].layout = WFI_C16;
    return wfi_rewrite(g, add_again, NULL);
}

/* Computed weights stay row-major, and so do values that are added to or multiplied with a
 * parameter of an image's shape. */
static void pin_parameters(layout_pass *pass) {
    const wf_graph *g = pass->g;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        bool has_plain = false;
        for (int i = 0; i < node->n_in + node->n_out && !node->dead; i++) {
            int32_t v = wfi_node_operand(node, i);
            if (v < 0) continue;
            if (is_weight(node, i) && may_be_c16(g, v)) pass->is_image[find_class(pass, v)] = false;
            has_plain |= !may_be_c16(g, v) && keeps_layout(node);
        }
        if (has_plain && may_be_c16(g, node->out[0]))
            pass->is_image[find_class(pass, node->out[0])] = false;
    }
}

/* Inputs come from the host row-major, outputs return to it row-major, and gradients of weights are
 * summed row-major. */
static void pin_host_values(layout_pass *pass) {
    wf_graph *g = pass->g;
    for (int32_t i = 0; i < g->n_weight_gradients; i++)
        if (may_be_c16(g, g->weight_gradients[i].value))
            pass->is_image[find_class(pass, g->weight_gradients[i].value)] = false;
    for (int32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == WFI_VALUE_INPUT && may_be_c16(g, v))
            pass->is_image[find_class(pass, v)] = false;
    for (int32_t i = 0; i < g->n_outputs; i++)
        if (may_be_c16(g, g->outputs[i])) pass->is_image[find_class(pass, g->outputs[i])] = false;
}

wf_status wfi_graph_layout(wf_graph *g) {
    layout_pass pass = {.g = g};
    pass.parent = wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *pass.parent, "the layout pass");
    pass.is_image =
        wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *pass.is_image, "the layout pass");
    wf_status status = pass.parent && pass.is_image ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        classify(&pass);
        pin_host_values(&pass);
        pin_parameters(&pass);
        status = rewrite(&pass);
    }
    wfi_free(g->ctx, pass.parent);
    wfi_free(g->ctx, pass.is_image);
    return status;
}
