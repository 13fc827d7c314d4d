/* Computes BF16 nodes with an F32 kernel: operands are widened before it and rounded after it, in
 * scratch memory. Elementwise ops convert a block of elements at a time, other ops whole operands.
 * Weights are rounded as they are packed. So every op is computed in BF16 wherever it is in F32,
 * and where a processor multiplies F32 faster, it does. */
#include "comm/runtime/typed.h"
#include "kernel/cpu.h"

#include <string.h>

#define AT_ONCE 4096 /* elements of an operand, in the first caches */

typedef struct rounded_format {
    wfi_format base;         /* first: a wfi_format is cast back */
    const wfi_format *inner; /* of F32, of the rounded weights; NULL: they stay BF16, row-major */
} rounded_format;

/* The node with operands of F32; of by-element ones, on some elements, and on those left. */
typedef struct part {
    wf_graph graph; /* of its operands alone */
    wfi_value values[WFI_MAX_OPERANDS];
    wfi_node node;
    wfi_kernel *kernel;
} part;

typedef struct widened {
    part parts[2];
    int n_parts;
    int64_t n_elem;                   /* by element: of each operand, otherwise 0 */
    bool is_narrow[WFI_MAX_OPERANDS]; /* the operand is BF16; the kernel sees F32 */
    size_t room[WFI_MAX_OPERANDS];    /* of narrow operands: offset in the scratch memory */
    rounded_format formats[WFI_MAX_OPERANDS];
} widened;

static void widen(const void *from, size_t n, void *to) {
    wfi_combine(wfi_best_variant(), &(wfi_arithmetic){.dtype = WF_BF16}, from, NULL, (int64_t)n,
                to);
}

static void round_off(const void *from, size_t n, void *to) {
    wfi_combine(wfi_best_variant(), &(wfi_arithmetic){.dtype = WF_F32}, from, NULL, (int64_t)n, to);
}

/* ---- weights, rounded once a step ---- */

typedef struct rounding {
    int64_t n;
    wfi_kernel *pack; /* packs the rounded weight; NULL: it stays plain */
} rounding;

static wf_status rounding_prepare(wfi_kernel *kernel) {
    const rounding *r = kernel->state;
    kernel->extent[0] = (size_t)r->n * sizeof(float);
    kernel->extent[1] = (size_t)r->n * sizeof(uint16_t);
    if (!r->pack) return WF_OK;
    WF_TRY(wfi_kernel_prepare(r->pack));
    kernel->extent[1] = r->pack->extent[1];
    kernel->scratch_extent = kernel->extent[0];
    return WF_OK;
}

/* F32 written from the back overwrites only BF16 that was already read. */
static void widen_in_place(void *data, int64_t n) {
    uint16_t some[AT_ONCE];
    for (int64_t end = n; end > 0; end -= AT_ONCE) {
        int64_t first = wfi_max_i64(end - AT_ONCE, 0);
        memcpy(some, (uint16_t *)data + first, (size_t)(end - first) * sizeof *some);
        widen(some, (size_t)(end - first), (float *)data + first);
    }
}

static wf_status rounding_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                              void *scratch, const wfi_step_args *step) {
    const rounding *r = kernel->state;
    round_off(operands[0], (size_t)r->n, r->pack ? scratch : operands[1]);
    if (!r->pack) return WF_OK;
    widen_in_place(scratch, r->n);
    return wfi_kernel_run(r->pack, stream, (void *[]){scratch, operands[1]}, NULL, step);
}

static void rounding_destroy(wfi_kernel *kernel) {
    rounding *r = kernel->state;
    if (r) wfi_kernel_destroy(r->pack);
    wfi_free(kernel->ctx, r);
}

static const wfi_kernel_impl rounding_impl = {
    .name = "rounded",
    .prepare = rounding_prepare,
    .run = rounding_run,
    .destroy = rounding_destroy,
};

static wf_status pack(wfi_kernel *kernel, const wfi_format *format, const wf_shape *shape) {
    static const wfi_kernel_options options; /* a format knows its own */
    const wfi_format *inner = ((const rounded_format *)format)->inner;
    rounding *r = wfi_alloc(kernel->ctx, 1, sizeof *r, "a kernel");
    if (!r) return WF_NO_MEMORY;
    kernel->state = r;
    kernel->impl = &rounding_impl;
    r->n = wf_shape_n_elem(shape);
    kernel->bytes[0] = (size_t)r->n * sizeof(float);
    kernel->bytes[1] = format->bytes;
    if (!inner) return WF_OK;
    WF_TRY(wfi_kernel_create_pack(kernel->ctx, &options, inner, shape, &r->pack));
    kernel->detail = r->pack->detail;
    kernel->scratch_bytes = kernel->bytes[0];
    if (!r->pack->scratch_bytes) return WF_OK;
    return wfi_fail(kernel->ctx, WF_BUG, "packing a weight takes scratch memory");
}

static bool equal(const wfi_format *a, const wfi_format *b) {
    const rounded_format *x = (const rounded_format *)a, *y = (const rounded_format *)b;
    return a->bytes == b->bytes && wfi_format_equal(x->inner, y->inner);
}

static const wfi_format_class rounded_class = {.equal = equal, .pack = pack};

/* ---- nodes ---- */

static bool has_narrow(const wf_graph *g, const wfi_node *node) {
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        int32_t v = wfi_node_operand(node, i);
        if (v >= 0 && g->values[v].dtype == WF_BF16) return true;
    }
    return false;
}

/* n: elements of each operand; 0: all that there are. */
static wf_status create_part(wfi_kernel *kernel, int64_t n, part *p) {
    const wf_graph *g = kernel->graph;
    p->graph = *g;
    p->graph.values = p->values;
    p->graph.n_values = kernel->n_operands;
    p->node = *kernel->node;
    for (int i = 0; i < kernel->n_operands; i++) {
        int32_t v = wfi_node_operand(kernel->node, i);
        if (v < 0) continue;
        wfi_value *value = &p->values[i];
        *value = g->values[v];
        value->kind = g->values[wfi_value_root(g, v)].kind;
        value->alias = -1;
        if (value->dtype == WF_BF16) value->dtype = WF_F32;
        if (n) value->shape = WF_SHAPE(n), value->layout = WFI_PLAIN;
        *(i < p->node.n_in ? &p->node.in[i] : &p->node.out[i - p->node.n_in]) = i;
    }
    if (kernel->adds)
        return wfi_kernel_create_adding(kernel->ctx, &p->graph, &p->node, &kernel->options,
                                        &p->kernel);
    WF_TRY(wfi_kernel_create(kernel->ctx, &p->graph, &p->node, &kernel->options, &p->kernel));
    kernel->is_tuned = p->kernel->is_tuned;
    return WF_OK;
}

static wf_status create_parts(wfi_kernel *kernel, widened *w) {
    const wfi_node *node = kernel->node;
    if (node->op->flags & WFI_OP_ELEMENTWISE)
        w->n_elem = wf_shape_n_elem(&kernel->graph->values[node->out[0]].shape);
    int64_t n = wfi_min_i64(w->n_elem, AT_ONCE), n_left = n ? w->n_elem % n : 0;
    WF_TRY(create_part(kernel, n, &w->parts[w->n_parts++]));
    return n_left ? create_part(kernel, n_left, &w->parts[w->n_parts++]) : WF_OK;
}

/* Whether the operand is an F32 parameter that is multiplied with BF16. */
static bool is_rounded_weight(const wfi_kernel *kernel, int operand) {
    const wf_graph *g = kernel->graph;
    const wfi_node *node = kernel->node;
    if (operand >= node->n_in || !(node->op->roles.weight_in >> operand & 1)) return false;
    const wfi_value *weight = &g->values[node->in[operand]];
    return weight->dtype == WF_F32 && g->values[node->in[0]].dtype == WF_BF16;
}

/* Converts the inner kernel's description of an operand to the type of the operand given. */
static void add_operand(wfi_kernel *kernel, widened *w, int i) {
    const wfi_kernel *inner = w->parts[0].kernel;
    const wf_graph *g = kernel->graph;
    int32_t v = wfi_node_operand(kernel->node, i);
    if (v < 0) return;
    w->is_narrow[i] = g->values[v].dtype == WF_BF16;
    kernel->bytes[i] = inner->bytes[i];
    kernel->format[i] = inner->format[i];
    if (is_rounded_weight(kernel, i)) {
        w->is_narrow[i] = !inner->format[i];
        size_t bytes = w->is_narrow[i] ? inner->bytes[i] / 2 : inner->bytes[i];
        w->formats[i] = (rounded_format){{bytes, &rounded_class}, inner->format[i]};
        kernel->format[i] = &w->formats[i].base;
    }
    if (w->n_elem) kernel->bytes[i] = (size_t)w->n_elem * sizeof(float);
    if (!w->is_narrow[i]) return;
    kernel->bytes[i] /= 2;
    w->room[i] = wfi_round_up(kernel->scratch_bytes, WFI_ALIGN_BYTES);
    kernel->scratch_bytes = w->room[i] + inner->bytes[i];
}

static wf_status widened_describe(wfi_kernel *kernel, const char **reason_out) {
    *reason_out = "no operand is BF16";
    if (!has_narrow(kernel->graph, kernel->node)) return WF_UNSUPPORTED;
    widened *w = wfi_alloc(kernel->ctx, 1, sizeof *w, "a kernel");
    if (!w) return WF_NO_MEMORY;
    kernel->state = w;
    WF_TRY(create_parts(kernel, w));
    *reason_out = "it accumulates into its output";
    const wfi_kernel *inner = w->parts[0].kernel;
    if (!inner || inner->impl == &wfi_kernel_adding) return WF_UNSUPPORTED;
    for (int k = 0; k < w->n_parts; k++)
        if (w->parts[k].kernel->scratch_bytes > kernel->scratch_bytes)
            kernel->scratch_bytes = w->parts[k].kernel->scratch_bytes;
    for (int i = 0; i < kernel->n_operands; i++) add_operand(kernel, w, i);
    kernel->detail = w->parts[0].kernel->detail;
    return WF_OK;
}

static wf_status widened_prepare(wfi_kernel *kernel) {
    widened *w = kernel->state;
    for (int k = 0; k < w->n_parts; k++) WF_TRY(wfi_kernel_prepare(w->parts[k].kernel));
    const wfi_kernel *inner = w->parts[0].kernel;
    kernel->scratch_extent = kernel->scratch_bytes;
    for (int i = 0; i < kernel->n_operands; i++) {
        size_t extent = w->n_elem ? kernel->bytes[i] : inner->extent[i];
        kernel->extent[i] = w->is_narrow[i] && !w->n_elem ? extent / 2 : extent;
    }
    return WF_OK;
}

/* Runs from byte `at` of narrow operands, and from byte 2 * `at` of the others. */
static wf_status run_part(const wfi_kernel *kernel, const widened *w, wfi_kernel *inner,
                          wfi_stream_queue *stream, void *const operands[], char *scratch,
                          const wfi_step_args *step, size_t at) {
    void *own[WFI_MAX_OPERANDS];
    for (int i = 0; i < kernel->n_operands; i++) {
        own[i] = operands[i];
        if (at) own[i] = (char *)operands[i] + (w->is_narrow[i] ? at : 2 * at);
        if (!w->is_narrow[i]) continue;
        const void *from = own[i];
        own[i] = scratch + w->room[i];
        if (!kernel->writes[i]) widen(from, inner->bytes[i] / sizeof(float), own[i]);
    }
    WF_TRY(wfi_kernel_run(inner, stream, own, scratch, step));
    for (int i = 0; i < kernel->n_operands; i++)
        if (w->is_narrow[i] && kernel->writes[i])
            round_off(own[i], inner->bytes[i] / sizeof(float), (char *)operands[i] + at);
    return WF_OK;
}

static wf_status widened_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                             void *scratch, const wfi_step_args *step) {
    const widened *w = kernel->state;
    wfi_kernel *inner = w->parts[0].kernel;
    int64_t n = wfi_min_i64(w->n_elem, AT_ONCE), at = 0;
    do {
        wfi_kernel *now = at + n > w->n_elem ? w->parts[1].kernel : inner;
        WF_TRY(run_part(kernel, w, now, stream, operands, scratch, step,
                        (size_t)at * sizeof(uint16_t)));
        at += n;
    } while (at < w->n_elem);
    return WF_OK;
}

static void widened_destroy(wfi_kernel *kernel) {
    widened *w = kernel->state;
    for (int k = 0; w && k < w->n_parts; k++) wfi_kernel_destroy(w->parts[k].kernel);
    wfi_free(kernel->ctx, w);
}

const wfi_kernel_impl wfi_kernel_widened = {
    .name = "widened",
    .describe = widened_describe,
    .prepare = widened_prepare,
    .run = widened_run,
    .destroy = widened_destroy,
};
