/* Nodes as launches: for each op its kernels, and which numbers they get. An op in no table uses
 * the kernel of its name with the numbers of wfi_op.numbers; without such a kernel it is
 * declined. */
#include "kernel/gpu/node.h"

#include <string.h>

/* ---- launches ---- */

wfi_launch_arguments *wfi_gpu_add_groups(wfi_gpu_node *l, wfi_gpu_entry entry, int64_t n_groups) {
    wfi_gpu_planned *p = &l->all[l->n++];
    for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++) p->from[i] = (int8_t)i;
    p->launch =
        (wfi_kernel_launch){.source = &wfi_gpu_source, .entry = (int)entry, .n_groups = n_groups};
    return &p->launch.arguments;
}

wfi_launch_arguments *wfi_gpu_add_elements(wfi_gpu_node *l, wfi_gpu_entry entry, int64_t n) {
    wfi_launch_arguments *a = wfi_gpu_add_groups(l, entry, wfi_gpu_groups(n));
    a->n[0] = n;
    return a;
}

wfi_launch_arguments *wfi_gpu_add_outputs(wfi_gpu_node *l, wfi_gpu_entry entry) {
    return wfi_gpu_add_elements(l, entry, wf_shape_n_elem(out_shape(l, 0)));
}

void wfi_gpu_add_numbers(wfi_gpu_node *l, wfi_gpu_entry entry, wfi_numbers told) {
    wfi_launch_arguments *a = wfi_gpu_add_groups(
        l, entry, told.n_threads ? wfi_gpu_groups(told.n_threads) : told.n_groups);
    memcpy(a->n, told.n, sizeof a->n);
    memcpy(a->f, told.f, sizeof a->f);
}

void wfi_gpu_add_told(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wfi_call call = wfi_call_of(l->g, l->node);
    if (l->node->op->numbers)
        wfi_gpu_add_numbers(l, entry, l->node->op->numbers(&call));
    else
        (void)wfi_gpu_add_outputs(l, entry);
}

void wfi_gpu_add_cleared(wfi_gpu_node *l, wfi_gpu_entry entry) {
    (void)wfi_gpu_add_outputs(l, WFI_GPU_zero);
    wfi_gpu_add_told(l, entry);
}

wfi_launch_arguments *wfi_gpu_add_channels(wfi_gpu_node *l, wfi_gpu_entry entry,
                                           const wf_shape *x) {
    wfi_launch_arguments *a = wfi_gpu_add_groups(l, entry, x->dim[1]);
    a->n[1] = x->dim[0];
    a->n[2] = x->dim[1];
    a->n[3] = wfi_size_of(x, 2, x->n_dims);
    return a;
}

void wfi_gpu_take(wfi_gpu_node *l, int first, int second, int third) {
    int8_t *from = l->all[l->n - 1].from;
    from[0] = (int8_t)first;
    from[1] = (int8_t)second;
    from[2] = (int8_t)third;
}

/* ---- the implementation ---- */

wfi_gpu_row wfi_gpu_find_row(const wfi_op *op) {
    static const wfi_gpu_row *const tables[] = {wfi_gpu_elements, wfi_gpu_products,
                                                wfi_gpu_sequences};
    for (size_t k = 0; k < WFI_COUNT(tables); k++)
        for (const wfi_gpu_row *row = tables[k]; row->op; row++)
            if (row->op == op) return *row;
    for (int k = 0; k < wfi_gpu_source.n_entries; k++)
        if (!strcmp(wfi_gpu_source.entries[k], op->name))
            return (wfi_gpu_row){op, wfi_gpu_add_told, (wfi_gpu_entry)k};
    return (wfi_gpu_row){NULL};
}

/* The value that is the operand; -1: none. */
static int32_t value_of(const wfi_node *node, int operand) {
    int out = operand - WFI_GPU_OUT;
    return operand >= 0 && operand < node->n_in ? node->in[operand]
           : out >= 0 && out < node->n_out      ? node->out[out]
                                                : -1;
}

/* An F32 weight that is multiplied with a BF16 input counts as if it were rounded to BF16. */
static bool is_rounded(const wf_graph *g, const wfi_node *node, int operand) {
    bool is_weight =
        operand >= 0 && operand < node->n_in && (node->op->roles.weight_in >> operand & 1);
    return is_weight && g->values[node->in[0]].dtype == WF_BF16;
}

static uint32_t narrow_of(const wf_graph *g, const wfi_node *node, const wfi_gpu_planned *p) {
    uint32_t narrow = 0;
    for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++) {
        int32_t v = value_of(node, p->from[i]);
        if (v >= 0 && g->values[v].dtype == WF_BF16) narrow |= 1u << i;
        if (v >= 0 && g->values[v].dtype == WF_F32 && is_rounded(g, node, p->from[i]))
            narrow |= 1u << (16 + i);
    }
    return narrow;
}

/* NULL: it can be computed. */
static const char *why_not(const wfi_kernel *kernel, const wfi_gpu_row *row) {
    const wfi_node *node = kernel->node;
    if (!row->op) return "weft has no kernel of it for such devices yet";
    for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++) {
        int32_t v = value_of(node, i);
        if (v >= 0 && kernel->graph->values[v].layout != WFI_PLAIN) return "a blocked layout";
    }
    return NULL;
}

wf_status wfi_gpu_plan(wfi_kernel *kernel, const wfi_gpu_row *row, size_t state_bytes,
                       wfi_gpu_launcher launch_one, const char **reason_out) {
    wfi_gpu_node *l = kernel->state = wfi_alloc(kernel->ctx, 1, state_bytes, "a kernel");
    if (!l) return WF_NO_MEMORY;
    *reason_out = why_not(kernel, row);
    if (*reason_out) return WF_UNSUPPORTED;
    l->launch_one = launch_one;
    l->g = kernel->graph;
    l->node = kernel->node;
    for (int i = 0; i < kernel->n_operands; i++) {
        int32_t v = value_of(l->node, i < l->node->n_in ? i : WFI_GPU_OUT + i - l->node->n_in);
        if (v >= 0) kernel->bytes[i] = wfi_value_bytes(kernel->graph, v);
    }
    row->make(l, row->entry);
    *reason_out = l->reason;
    if (l->reason) return WF_UNSUPPORTED;
    for (int k = 0; k < l->n; k++) l->all[k].launch.narrow |= narrow_of(l->g, l->node, &l->all[k]);
    kernel->scratch_bytes = l->scratch_bytes;
    return WF_OK;
}

static const void *address_of(const wfi_gpu_planned *p, int i, const void *const own[],
                              const int64_t at[WFI_GPU_LOOPS]) {
    size_t bytes = p->skip[i];
    for (int k = 0; k < WFI_GPU_LOOPS; k++) bytes += (size_t)at[k] * p->step[k][i];
    return p->from[i] < 0 || !own[p->from[i]] ? NULL : (const char *)own[p->from[i]] + bytes;
}

/* Runs all launches of the iterations `at`, one after the other, on the node's operands `own`. */
static wf_status run_all(wfi_kernel *kernel, wfi_stream_queue *stream, const void *const own[],
                         const int64_t at[WFI_GPU_LOOPS], const wfi_step_args *step) {
    const wfi_gpu_node *l = kernel->state;
    unsigned reads = kernel->node->op->flags;
    for (int k = 0; k < l->n; k++) {
        wfi_kernel_launch launch = l->all[k].launch;
        for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++)
            launch.operands[i] = address_of(&l->all[k], i, own, at);
        if (reads & WFI_OP_READS_STEP) {
            launch.arguments.n[13] = (int64_t)step->seed;
            launch.arguments.n[14] = (int64_t)step->step;
            launch.arguments.n[15] = step->first_sample;
        }
        if (reads & WFI_OP_READS_SCALE) launch.arguments.f[11] = step->loss_scale;
        WF_TRY(l->launch_one ? l->launch_one(kernel, stream, &launch, k)
                             : stream->device->kind->launch(stream, &launch));
    }
    return WF_OK;
}

wf_status wfi_gpu_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                      void *scratch, const wfi_step_args *step) {
    const wfi_gpu_node *l = kernel->state;
    const wfi_node *node = kernel->node;
    const void *own[WFI_LAUNCH_OPERANDS] = {NULL};
    int64_t n[WFI_GPU_LOOPS], at[WFI_GPU_LOOPS];
    for (int i = 0; i < node->n_in; i++) own[i] = operands[i];
    for (int i = 0; i < node->n_out; i++) own[WFI_GPU_OUT + i] = operands[node->n_in + i];
    own[WFI_GPU_SCRATCH] = kernel->scratch_bytes ? scratch : NULL;
    for (int k = 0; k < WFI_GPU_LOOPS; k++) n[k] = wfi_max_i64(l->n_loops[k], 1);
    for (at[0] = 0; at[0] < n[0]; at[0]++)
        for (at[1] = 0; at[1] < n[1]; at[1]++)
            for (at[2] = 0; at[2] < n[2]; at[2]++) WF_TRY(run_all(kernel, stream, own, at, step));
    return WF_OK;
}

static wf_status gpu_describe(wfi_kernel *kernel, const char **reason_out) {
    if (kernel->adds) return wfi_decline(reason_out, "it accumulates into its output");
    const wfi_gpu_row row = wfi_gpu_find_row(kernel->node->op);
    return wfi_gpu_plan(kernel, &row, sizeof(wfi_gpu_node), NULL, reason_out);
}

const wfi_kernel_impl wfi_kernel_gpu = {
    .name = "gpu",
    .describe = gpu_describe,
    .run = wfi_gpu_run,
    .destroy = wfi_kernel_free_state,
};
