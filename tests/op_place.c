/* What descriptors of ops say of themselves: an instance of every op is made from a sample, and an
 * instance that is computed in parts, as its placement allows, gives the bits of the whole.
 *
 * label: serial
 */
#include "op_case.h"

#include <math.h>

/* ---- every op has an instance ---- */

TEST(every_op_has_an_instance) {
    bool seen[100] = {false};
    int n_ops = 0;
    for (int op = 0; wfi_op_table[op]; op++, n_ops++) {
        const wfi_op_sample *all = wfi_op_table[op]->samples;
        for (int k = 0; all && all[k].n_in; k++) {
            char name[64];
            op_case c = case_of_sample(op, k, name);
            wf_graph *g;
            if (wfi_op_table[op]->gradient || wfi_op_table[op]->backward) {
                case_graph(ctx, &c, &g); /* with the backward */
                for (int32_t n = 0; n < g->n_nodes; n++)
                    for (int other = 0; wfi_op_table[other]; other++)
                        seen[other] |= g->nodes[n].op == wfi_op_table[other];
                wf_graph_destroy(g);
            }
            seen[op] = true;
        }
    }
    assert_in_range(n_ops, 1, 100);
    for (int op = 0; op < n_ops; op++)
        if (!seen[op])
            fail_msg("%s has no sample, and is in no other's backward", wfi_op_table[op]->name);
}

/* ---- an instance, whole or a part ---- */

typedef struct instance {
    const wfi_op *op;
    wfi_op_sample sample;
} instance;

static void instance_model(wf_graph *g, const void *config) {
    const instance *one = config;
    const wfi_op_sample *s = &one->sample;
    wf_tensor in[WFI_MAX_INPUTS];
    for (int i = 0; i < s->n_in; i++) {
        if (s->ids >> i & 1)
            in[i] = wf_reshape(wf_input(g, "ids", WF_I32, WF_SHAPE(wf_shape_n_elem(&s->in[i]))),
                               s->in[i]);
        else
            in[i] = wf_parameter(g, case_param(i), s->in[i], (wf_init){WF_INIT_CONSTANT, 0});
    }
    wf_output(wfi_graph_op(g, one->op, &s->attr, &s->shape, s->n_in, in), "y");
}

typedef struct computed {
    wf_graph *g;
    graph_walk w;
    const wfi_node *node;
} computed;

static computed make(wf_context *ctx, const instance *one) {
    computed c = {0};
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    config.training = 0;
    if (wf_graph_create(ctx, &config, instance_model, one, &c.g) != WF_OK)
        fail_msg("%s: %s", one->op->name, wf_context_error(ctx));
    for (int32_t n = 0; n < c.g->n_nodes; n++)
        if (c.g->nodes[n].op == one->op) c.node = &c.g->nodes[n];
    assert_non_null(c.node);
    walk_create(&c.w, c.g);
    return c;
}

static void drop(computed *c) {
    walk_destroy(&c->w);
    wf_graph_destroy(c->g);
}

/* ---- parts of operands ---- */

static const wfi_value *value_of(const computed *c, int32_t v) {
    return &c->g->values[v];
}

/* The place of the dim that is cut, or -1: none is. */
static int dim_of(int8_t rule, const wf_shape *shape, int any) {
    if (rule == WFI_WHOLE || rule == WFI_SUMMED) return -1;
    return rule == WFI_ANY_DIM ? any : rule > 0 ? rule - 1 : shape->n_dims + rule;
}

/* Copies part number `number` of n from the whole to the part, or back. */
static void copy_part(char *whole, const wf_shape *shape, int dim, int n_blocks, int n, int number,
                      char *piece, bool is_back) {
    wfi_op_part part = wfi_op_part_of(shape, dim, n_blocks, number, n);
    int64_t inner = 4 * part.inner, outer = n_blocks, own = part.end - part.begin;
    for (int d = 0; d < dim; d++) outer *= shape->dim[d];
    for (int64_t o = 0; o < outer; o++) {
        char *at = whole + (size_t)((o * part.length + part.begin) * inner);
        char *to = piece + (size_t)(o * own * inner);
        memcpy(is_back ? at : to, is_back ? to : at, (size_t)(own * inner));
    }
}

/* The same of queries, keys and values side by side: of each, so many heads. */
static void copy_heads(const instance *one, char *whole, const wf_shape *shape, int n, int number,
                       char *piece, bool is_back) {
    bool is_rotary = one->op == &wfi_op_rotary;
    const wfi_attr *attr = &one->sample.attr;
    int64_t n_heads = is_rotary ? attr->rotary.n_heads : attr->attention.n_heads;
    int64_t n_keys = is_rotary ? attr->rotary.n_keys : attr->attention.n_keys;
    int64_t row = shape->dim[shape->n_dims - 1], head = 4 * row / (n_heads + 2 * n_keys);
    for (int64_t o = 0; o < wf_shape_n_elem(shape) / row; o++)
        for (int k = 0; k < 3; k++) {
            int64_t own = (k ? n_keys : n_heads) / n, first = k ? n_heads + (k - 1) * n_keys : 0;
            char *at = whole + 4 * o * row + (first + own * number) * head;
            char *to = piece + 4 * o * row / n + first / n * head;
            memcpy(is_back ? at : to, is_back ? to : at, (size_t)(own * head));
        }
}

static void fill_whole(computed *c, const wfi_op_sample *s) {
    for (int i = 0; i < s->n_in; i++) {
        int64_t n = wf_shape_n_elem(&s->in[i]);
        for (int64_t k = 0; k < n; k++)
            if (s->ids >> i & 1)
                ((int32_t *)c->w.data[c->node->in[i]])[k] = (int32_t)((k * 5 + 1) % s->id_limit);
            else /* variances are positive */
                ((float *)c->w.data[c->node->in[i]])[k] = i == 4 ? 1 : walk_uniform((uint64_t)i, k);
    }
}

/* ---- a way of cutting ---- */

static void compare(const instance *one, const wfi_op_cut *cut, int o, const computed *whole,
                    const float *parts, int n) {
    const float *expected = whole->w.data[whole->node->out[o]];
    int64_t n_elem = wf_shape_n_elem(&value_of(whole, whole->node->out[o])->shape);
    double error = 0, norm = 0;
    if (cut->out[o] != WFI_SUMMED) {
        if (memcmp(expected, parts, (size_t)n_elem * 4))
            fail_msg("%s by %s in %d parts: output %d has other bits", one->op->name, cut->name, n,
                     o);
        return;
    }
    for (int64_t k = 0; k < n_elem; k++) {
        error += pow((double)expected[k] - parts[k], 2);
        norm += pow(expected[k], 2);
    }
    if (!(sqrt(error) <= 1e-6 * sqrt(norm)))
        fail_msg("%s by %s in %d parts: output %d is %g off", one->op->name, cut->name, n, o,
                 sqrt(error / norm));
}

/* False: there are not so many. */
static bool make_part(const instance *one, const wfi_op_cut *cut, int any, int n, int number,
                      instance *part) {
    bool is_first = true;
    *part = *one;
    for (int i = 0; i < one->sample.n_in; i++) {
        wf_shape *shape = &part->sample.in[i];
        int dim = dim_of(cut->in[i], shape, any),
            n_blocks = cut->blocks >> i & 1 ? cut->n_blocks : 1;
        if (dim < 0) continue;
        assert_in_range(dim, 0, shape->n_dims - 1);
        if (n_blocks == WFI_UNEQUAL) n_blocks = 1;
        wfi_op_part of = wfi_op_part_of(shape, dim, n_blocks, number, n);
        if (of.length < n || (cut->is_even && of.length % n)) return false;
        if (is_first && cut->divide && !cut->divide(&part->sample.attr, &of)) return false;
        is_first = false;
        shape->dim[dim] = n_blocks * (of.end - of.begin);
    }
    return true;
}

static bool try_cut(wf_context *ctx, const instance *one, const computed *whole,
                    const wfi_op_cut *cut, int any, int n) {
    instance part;
    if (!make_part(one, cut, any, n, 0, &part)) return false;
    int n_out = whole->node->n_out;
    float *joined[WFI_MAX_OUTPUTS] = {NULL};
    for (int o = 0; o < n_out; o++)
        joined[o] = calloc(1, wfi_value_bytes(whole->g, whole->node->out[o]) + 1);
    for (int r = 0; r < n; r++) {
        assert_true(make_part(one, cut, any, n, r, &part));
        computed c = make(ctx, &part);
        for (int i = 0; i < one->sample.n_in; i++) {
            int dim = dim_of(cut->in[i], &one->sample.in[i], any);
            char *from = whole->w.data[whole->node->in[i]], *to = c.w.data[c.node->in[i]];
            if (dim < 0)
                memcpy(to, from, wfi_value_bytes(c.g, c.node->in[i]));
            else if (cut->blocks >> i & 1 && cut->n_blocks == WFI_UNEQUAL)
                copy_heads(one, from, &one->sample.in[i], n, r, to, false);
            else
                copy_part(from, &one->sample.in[i], dim, cut->blocks >> i & 1 ? cut->n_blocks : 1,
                          n, r, to, false);
        }
        walk_run(&c.w, true);
        for (int o = 0; o < n_out; o++) {
            const wfi_value *y = value_of(whole, whole->node->out[o]);
            const float *own = c.w.data[c.node->out[o]];
            int dim = dim_of(cut->out[o], &y->shape, any);
            if (y->opaque) continue;
            if (cut->out[o] == WFI_SUMMED)
                for (int64_t k = 0; k < wf_shape_n_elem(&y->shape); k++) joined[o][k] += own[k];
            else if (dim >= 0 && cut->n_blocks == WFI_UNEQUAL &&
                     cut->blocks >> (one->sample.n_in + o) & 1)
                copy_heads(one, (char *)joined[o], &y->shape, n, r, (char *)(uintptr_t)own, true);
            else if (dim >= 0)
                copy_part((char *)joined[o], &y->shape, dim,
                          cut->blocks >> (one->sample.n_in + o) & 1 ? cut->n_blocks : 1, n, r,
                          (char *)(uintptr_t)own, true);
            else
                memcpy(joined[o], own, wfi_value_bytes(c.g, c.node->out[o]));
        }
        drop(&c);
    }
    for (int o = 0; o < n_out; o++) {
        if (!value_of(whole, whole->node->out[o])->opaque)
            compare(one, cut, o, whole, joined[o], n);
        free(joined[o]);
    }
    return true;
}

static int try_cuts(int op, int k, bool *is_tried) {
    const instance one = {wfi_op_table[op], wfi_op_table[op]->samples[k]};
    scoped_context ctx = test_context();
    computed whole = make(ctx, &one);
    int n_tried = 0;
    fill_whole(&whole, &one.sample);
    walk_run(&whole.w, true);
    for (int c = 0; one.op->place[c].name; c++) {
        const wfi_op_cut *cut = &one.op->place[c];
        if (cut->applies && !cut->applies(whole.g, whole.node)) continue;
        int n_dims = cut->in[0] == WFI_ANY_DIM ? one.sample.in[0].n_dims : 1;
        for (int any = 0; any < n_dims; any++)
            for (int n = 2; n <= 4; n++) {
                bool did = try_cut(ctx, &one, &whole, cut, any, n);
                n_tried += did;
                is_tried[c] |= did;
            }
    }
    drop(&whole);
    return n_tried;
}

TEST_CASE(parts_give_the_whole) {
    int n_tried = 0;
    for (int op = 0; wfi_op_table[op]; op++) {
        const wfi_op *about = wfi_op_table[op];
        bool is_tried[16] = {false};
        if (!about->place) continue;
        if (!about->samples) fail_msg("%s has a placement and no sample", about->name);
        for (int k = 0; about->samples[k].n_in; k++) n_tried += try_cuts(op, k, is_tried);
        for (int c = 0; about->place[c].name; c++)
            if (!is_tried[c])
                fail_msg("%s by %s: no sample can be cut so", about->name, about->place[c].name);
    }
    assert_in_range(n_tried, 60, 10000);
}
