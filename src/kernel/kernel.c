/* Which backends there are, and how a kernel is chosen and made. */
#include "kernel/backend.h"

#include <stdio.h>
#include <string.h>

const wfi_backend *wfi_backend_of(const wfi_device_class *device) {
    static const wfi_backend *const backends[] = {&wfi_backend_cpu, &wfi_backend_opencl,
                                                  &wfi_backend_cuda};
    for (size_t i = 0; i < WFI_COUNT(backends); i++)
        if (backends[i]->device == device) return backends[i];
    return NULL;
}

wf_status wfi_backend_enter(const wfi_backend *backend, wf_context *ctx, int rank, int n_threads,
                            int *n_out) {
    *n_out = n_threads;
    return backend->thread_enter ? backend->thread_enter(ctx, rank, n_threads, n_out) : WF_OK;
}

wfi_bf16_speed wfi_backend_bf16_speed(const wfi_backend *backend) {
    return backend->bf16_speed ? backend->bf16_speed() : WFI_BF16_SLOW;
}

static wfi_kernel *kernel_alloc(wf_context *ctx, const wf_graph *graph, const wfi_node *node) {
    wfi_kernel *kernel = wfi_alloc(ctx, 1, sizeof *kernel, "a kernel");
    if (!kernel) return NULL;
    kernel->ctx = ctx;
    kernel->graph = graph;
    kernel->node = node;
    kernel->detail = "";
    return kernel;
}

static double flops_of(const wf_graph *graph, const wfi_node *node) {
    const wfi_op_work *work = &node->op->work;
    bool is_input = work->of && work->of < WFI_Y;
    if (node->op->flops) return node->op->flops(graph, node);
    int32_t v = is_input ? node->in[work->of - WFI_X] : node->out[work->of ? work->of - WFI_Y : 0];
    double n = (double)wf_shape_n_elem(&graph->values[v].shape);
    return work->of ? work->each * n : n;
}

/* NULL in *kernel_out, and why, if the implementation declines. */
static wf_status create_in(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                           const wfi_kernel_options *options, const wfi_kernel_impl *impl,
                           wfi_way way, bool adds, const char **reason_out,
                           wfi_kernel **kernel_out) {
    *kernel_out = NULL;
    wfi_kernel *kernel = kernel_alloc(ctx, graph, node);
    if (!kernel) return WF_NO_MEMORY;
    kernel->options = *options;
    kernel->adds = adds;
    kernel->impl = impl;
    kernel->way = way;
    kernel->label = node->op->name;
    kernel->n_operands = node->n_in + node->n_out;
    for (int k = node->n_in; k < kernel->n_operands; k++) kernel->writes[k] = true;
    kernel->flops = flops_of(graph, node);
    wf_status status = impl->describe(kernel, reason_out);
    if (status == WF_OK) {
        *kernel_out = kernel;
        return WF_OK;
    }
    kernel->impl->destroy(kernel);
    wfi_free(ctx, kernel);
    return status == WF_UNSUPPORTED ? WF_OK : status;
}

static int first_implementation(const wfi_kernel_options *options) {
    const wfi_backend *backend = options->backend;
    return options->reference ? backend->n_implementations - backend->n_plain : 0;
}

wf_status wfi_kernel_create_way(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                                const wfi_kernel_options *options, const wfi_kernel_impl *impl,
                                wfi_way way, wfi_kernel **kernel_out) {
    const char *ignored = "";
    return create_in(ctx, graph, node, options, impl, way, false, &ignored, kernel_out);
}

const char *wfi_kernel_way_text(const wfi_kernel *kernel, char text[WFI_WAY_TEXT]) {
    const wfi_kernel_impl *impl = kernel->impl;
    const char *const *forms = wfi_forms(impl, kernel->node->op);
    *text = 0;
    if (forms) snprintf(text, WFI_WAY_TEXT, "%s:%s", forms[kernel->way.form], kernel->detail);
    return text;
}

/* Makes the kernel named `wanted`, if the implementation has it; else NULL. */
static wf_status create_wanted(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                               const wfi_kernel_options *options, const wfi_kernel_impl *impl,
                               const char *wanted, wfi_kernel **kernel_out) {
    const char *const *forms = wfi_forms(impl, node->op);
    char text[WFI_WAY_TEXT];
    *kernel_out = NULL;
    for (int f = 0; forms && forms[f]; f++) {
        size_t n = strlen(forms[f]);
        if (strncmp(forms[f], wanted, n) || wanted[n] != ':') continue;
        for (wfi_way way = {f, 0};; way.number++) {
            WF_TRY(wfi_kernel_create_way(ctx, graph, node, options, impl, way, kernel_out));
            if (!*kernel_out || !strcmp(wfi_kernel_way_text(*kernel_out, text), wanted)) break;
            wfi_kernel_destroy(*kernel_out);
        }
    }
    return WF_OK;
}

/* Makes the kernel that the recipe's table names for the node's shape; NULL if the table has no
 * entry or the kernel does not exist. */
static wf_status create_tuned(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                              const wfi_kernel_options *options, wfi_kernel **kernel_out) {
    char shape[WFI_NODE_TEXT], wanted[WFI_WAY_TEXT];
    *kernel_out = NULL;
    if (!options->tuned || !*options->tuned) return WF_OK;
    wfi_tuned_find(options->tuned, wfi_node_text(graph, node, shape), wanted);
    for (int i = first_implementation(options);
         *wanted && !*kernel_out && i < options->backend->n_implementations; i++)
        WF_TRY(create_wanted(ctx, graph, node, options, options->backend->implementations[i],
                             wanted, kernel_out));
    if (*kernel_out) (*kernel_out)->is_tuned = true;
    if (*wanted && !*kernel_out)
        wfi_log(ctx, WF_LOG_DEBUG, "dispatch", "there is no %s for %s", wanted, shape);
    return WF_OK;
}

static wf_status create(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                        const wfi_kernel_options *options, bool adds, wfi_kernel **kernel_out) {
    const wfi_backend *backend = options->backend;
    const char *reason = "";
    *kernel_out = NULL;
    for (int i = first_implementation(options); i < backend->n_implementations; i++) {
        const wfi_kernel_impl *impl = backend->implementations[i];
        WF_TRY(create_in(ctx, graph, node, options, impl, (wfi_way){WFI_USUAL_FORM, 0}, adds,
                         &reason, kernel_out));
        if (*kernel_out) return WF_OK;
        if (!adds)
            wfi_log(ctx, WF_LOG_DEBUG, "dispatch", "%s declined %s in unit %s: %s", impl->name,
                    node->op->name, graph->units[node->unit].name, reason);
    }
    if (adds) return WF_OK;
    return wfi_fail(ctx, WF_UNSUPPORTED, "no kernel for op %s of unit %s on %s devices: %s",
                    node->op->name, graph->units[node->unit].name, backend->device->name, reason);
}

wf_status wfi_kernel_create(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                            const wfi_kernel_options *options, wfi_kernel **kernel_out) {
    WF_TRY(create_tuned(ctx, graph, node, options, kernel_out));
    return *kernel_out ? WF_OK : create(ctx, graph, node, options, false, kernel_out);
}

wf_status wfi_kernel_create_adding(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                                   const wfi_kernel_options *options, wfi_kernel **kernel_out) {
    return create(ctx, graph, node, options, true, kernel_out);
}

wf_status wfi_kernel_create_like(const wfi_kernel *like, const wfi_node *node,
                                 wfi_kernel **kernel_out) {
    wfi_kernel *kernel = kernel_alloc(like->ctx, like->graph, node);
    if (!kernel) return WF_NO_MEMORY;
    *kernel = *like;
    kernel->node = node;
    kernel->like = like;
    *kernel_out = kernel;
    return WF_OK;
}

static wf_status create_on_format(wf_context *ctx, const wfi_backend *backend,
                                  const wfi_format *format, const wf_shape *shape, bool is_pack,
                                  bool add, wfi_kernel **kernel_out) {
    wfi_kernel *kernel = kernel_alloc(ctx, NULL, NULL);
    if (!kernel) return WF_NO_MEMORY;
    kernel->options.backend = backend;
    kernel->label = is_pack ? "pack" : "accumulate";
    kernel->n_operands = 2;
    kernel->writes[1] = true;
    wf_status status = is_pack  ? format->kind->pack(kernel, format, shape)
                       : format ? format->kind->accumulate(kernel, format, shape, add)
                                : wfi_accumulate_plain(kernel, shape, add);
    if (status != WF_OK) {
        if (kernel->impl) kernel->impl->destroy(kernel);
        wfi_free(ctx, kernel);
        return status;
    }
    *kernel_out = kernel;
    return WF_OK;
}

wf_status wfi_kernel_create_pack(wf_context *ctx, const wfi_kernel_options *options,
                                 const wfi_format *format, const wf_shape *shape,
                                 wfi_kernel **kernel_out) {
    return create_on_format(ctx, options->backend, format, shape, true, false, kernel_out);
}

wf_status wfi_kernel_create_accumulate(wf_context *ctx, const wfi_kernel_options *options,
                                       const wfi_format *format, const wf_shape *shape, bool add,
                                       wfi_kernel **kernel_out) {
    return create_on_format(ctx, options->backend, format, shape, false, add, kernel_out);
}

bool wfi_format_equal(const wfi_format *a, const wfi_format *b) {
    return a == b || (a && b && a->kind == b->kind && a->kind->equal(a, b));
}

const wfi_value *wfi_operand_value(const wfi_kernel *kernel, int operand) {
    int32_t v = wfi_node_operand(kernel->node, operand);
    return v < 0 ? NULL : wfi_value_at(kernel->graph, v);
}

void wfi_use_whole_values(wfi_kernel *kernel) {
    for (int i = 0; i < kernel->n_operands; i++) {
        const wfi_value *value = wfi_operand_value(kernel, i);
        if (!value) continue;
        kernel->bytes[i] = (size_t)wf_shape_n_elem(&value->shape) * wf_dtype_bytes(value->dtype);
    }
}

static wf_status refuse_extent(const wfi_kernel *kernel, const char *what, int operand,
                               size_t extent, size_t bytes) {
    return wfi_fail(kernel->ctx, WF_BUG,
                    "%s (%s): %s %d: the kernel accesses %zu bytes, but %zu are planned",
                    kernel->label, kernel->impl->name, what, operand, extent, bytes);
}

wf_status wfi_kernel_prepare(wfi_kernel *kernel) {
    if (kernel->like)
        return wfi_fail(kernel->ctx, WF_BUG, "%s (%s): a kernel of a program that is never run",
                        kernel->label, kernel->impl->name);
    if (kernel->impl->prepare) {
        WF_TRY(kernel->impl->prepare(kernel));
    } else {
        memcpy(kernel->extent, kernel->bytes, sizeof kernel->extent);
        kernel->scratch_extent = kernel->scratch_bytes;
    }
    for (int i = 0; i < kernel->n_operands; i++)
        if (kernel->extent[i] > kernel->bytes[i])
            return refuse_extent(kernel, "operand", i, kernel->extent[i], kernel->bytes[i]);
    if (kernel->scratch_extent > kernel->scratch_bytes)
        return refuse_extent(kernel, "scratch memory", 0, kernel->scratch_extent,
                             kernel->scratch_bytes);
    return WF_OK;
}

wf_status wfi_kernel_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                         void *scratch, const wfi_step_args *step) {
    return kernel->impl->run(kernel, stream, operands, scratch, step);
}

void wfi_kernel_free_state(wfi_kernel *kernel) {
    wfi_free(kernel->ctx, kernel->state);
}

void wfi_kernel_destroy(wfi_kernel *kernel) {
    if (!kernel) return;
    if (!kernel->like) kernel->impl->destroy(kernel);
    wfi_free(kernel->ctx, kernel);
}
