/* Types of a graph that is trained in BF16: gradients of weights are made in F32, whichever op
 * makes them, and never rounded on the way.
 *
 * label: once serial
 */
#include "op/op_table.h"
#include "pass/pass.h"
#include "test.h"

enum { WIDTH = 16 };

/* Weights as operands of ops that are no layers: no op's descriptor says that what these make is a
 * weight's gradient. */
static void plain_products(wf_graph *g, const void *config) {
    const wf_init normal = {WF_INIT_NORMAL, 0.1f};
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(WIDTH));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor a = wf_parameter(g, "a", WF_SHAPE(WIDTH, WIDTH), normal);
    wf_tensor b = wf_parameter(g, "b", WF_SHAPE(WIDTH, WIDTH), normal);
    x = wf_relu(wf_matmul(wf_linear(x, "first", WIDTH), a));
    x = wf_matmul(x, wf_transpose(b, 0, 1));
    wf_loss(wf_cross_entropy(wf_linear(x, "last", WIDTH), y));
}

TEST(gradients_are_wide) {
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    scoped_graph g;
    config.batch = 4;
    config.training = 1;
    TEST_OK(ctx, wf_graph_create(ctx, &config, plain_products, NULL, &g));
    TEST_OK(ctx, wfi_graph_cast(g, WF_BF16));
    int n_narrow = 0;
    for (int32_t v = 0; v < g->n_values; v++) n_narrow += g->values[v].dtype == WF_BF16;
    assert_true(n_narrow > 0);
    assert_int_equal(g->n_weight_gradients, 6);
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        const wfi_value *value = wfi_value_at(g, wfi_value_root(g, w->value));
        if (value->dtype != WF_F32 || g->nodes[value->node].op == &wfi_op_cast)
            fail_msg("the gradient of %s is made by %s in BF16", g->values[w->param].name,
                     g->nodes[value->node].op->name);
    }
}
