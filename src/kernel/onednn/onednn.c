/* Preparing and running; which op is described where. */
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/threads.h"
#include "op/op_table.h"

#include <pthread.h>
#include <stdio.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const struct {
    const wfi_op *op;
    wfi_describe_function describe;
    const char *const *forms; /* NULL: one way */
} described[] = {
    {&wfi_op_conv2d, wfi_describe_conv2d, wfi_conv_forms},
    {&wfi_op_conv2d_backward_data, wfi_describe_conv2d_backward_data, wfi_conv_forms},
    {&wfi_op_conv_transpose2d, wfi_describe_conv2d_backward_data, wfi_conv_forms},
    {&wfi_op_conv2d_backward_weight, wfi_describe_conv2d_backward_weight, wfi_conv_forms},
    {&wfi_op_linear, wfi_describe_linear, wfi_linear_forms},
    {&wfi_op_linear_backward_data, wfi_describe_linear_backward_data, wfi_linear_forms},
    {&wfi_op_linear_backward_weight, wfi_describe_linear_backward_weight, wfi_linear_forms},
    {&wfi_op_matmul, wfi_describe_product, wfi_product_forms},
    {&wfi_op_batch_norm, wfi_describe_bn, NULL},
    {&wfi_op_batch_norm_inference, wfi_describe_bn, NULL},
    {&wfi_op_batch_norm_backward, wfi_describe_bn, NULL},
    {&wfi_op_layer_norm, wfi_describe_ln, NULL},
    {&wfi_op_layer_norm_backward, wfi_describe_ln, NULL},
    {&wfi_op_relu_backward, wfi_describe_activation, NULL},
    {&wfi_op_leaky_relu, wfi_describe_activation, NULL},
    {&wfi_op_leaky_relu_backward, wfi_describe_activation, NULL},
    {&wfi_op_gelu, wfi_describe_activation, NULL},
    {&wfi_op_gelu_backward, wfi_describe_activation, NULL},
    {&wfi_op_tanh, wfi_describe_activation, NULL},
    {&wfi_op_tanh_backward, wfi_describe_activation, NULL},
    {&wfi_op_sigmoid, wfi_describe_activation, NULL},
    {&wfi_op_sigmoid_backward, wfi_describe_activation, NULL},
    {&wfi_op_add, wfi_describe_arithmetic, NULL},
    {&wfi_op_mul, wfi_describe_arithmetic, NULL},
    {&wfi_op_scale, wfi_describe_activation, NULL},
    {&wfi_op_max_pool, wfi_describe_pool, NULL},
    {&wfi_op_max_pool_backward, wfi_describe_pool, NULL},
    {&wfi_op_avg_pool, wfi_describe_pool, NULL},
    {&wfi_op_avg_pool_backward, wfi_describe_pool, NULL},
    {&wfi_op_global_avg_pool, wfi_describe_pool, NULL},
    {&wfi_op_global_avg_pool_backward, wfi_describe_pool, NULL},
    {&wfi_op_softmax, wfi_describe_softmaxes, NULL},
    {&wfi_op_softmax_backward, wfi_describe_softmaxes, NULL},
    {&wfi_op_log_softmax, wfi_describe_softmaxes, NULL},
    {&wfi_op_log_softmax_backward, wfi_describe_softmaxes, NULL},
    {&wfi_op_cross_entropy, wfi_describe_cross_entropy, NULL},
    {&wfi_op_cross_entropy_backward, wfi_describe_cross_entropy, NULL},
    {&wfi_op_class_sums, wfi_describe_cross_entropy, NULL},
    {&wfi_op_class_sums_backward, wfi_describe_cross_entropy, NULL},
    {&wfi_op_self_attention, wfi_describe_attention, NULL},
    {&wfi_op_self_attention_backward, wfi_describe_attention, NULL},
    {&wfi_op_reorder, wfi_describe_layout, NULL},
    {&wfi_op_lstm, wfi_describe_recurrent, NULL},
    {&wfi_op_lstm_backward, wfi_describe_recurrent, NULL},
};

static size_t place_of(const wfi_op *op) {
    size_t i = 0;
    while (i < WFI_COUNT(described) && described[i].op != op) i++;
    return i;
}

static const char *const *onednn_forms(const wfi_op *op) {
    size_t i = place_of(op);
    return i < WFI_COUNT(described) ? described[i].forms : NULL;
}

/* ---- describing ---- */

wfi_onednn_library wfi_library_at(const wfi_kernel *kernel) {
    wfi_onednn_library lib = wfi_onednn_of(kernel)->lib;
    lib.n_skipped = kernel->way.number;
    return lib;
}

wf_status wfi_onednn_open(wfi_kernel *kernel, int n_threads) {
    wfi_onednn *state = wfi_alloc(kernel->ctx, 1, sizeof *state, "a oneDNN kernel");
    if (!state) return WF_NO_MEMORY;
    kernel->state = state;
    state->n_threads = n_threads;
    return wfi_library_open(kernel->ctx, &state->lib);
}

static wfi_md typed(const wfi_value *value, wfi_md md) {
    md.type = value->dtype == WF_BF16 ? dnnl_bf16 : dnnl_f32;
    return md;
}

wfi_md wfi_operand_md(const wfi_kernel *kernel, int operand) {
    const wfi_value *value = wfi_operand_value(kernel, operand);
    if (!value) return (wfi_md){.kind = WFI_MD_ABSENT};
    return typed(value, wfi_md_make(value->layout == WFI_C16 ? WFI_MD_C16 : WFI_MD_STRIDED,
                                    value->shape.n_dims, value->shape.dim));
}

wfi_md wfi_operand_rows(const wfi_kernel *kernel, int operand) {
    const wfi_value *value = wfi_operand_value(kernel, operand);
    if (!value) return (wfi_md){.kind = WFI_MD_ABSENT};
    const wf_shape *shape = &value->shape;
    int64_t n = shape->n_dims > 0 ? shape->dim[shape->n_dims - 1] : 1;
    return typed(value, wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){wf_shape_n_elem(shape) / n, n}));
}

wfi_md wfi_operand_row(const wfi_kernel *kernel, int operand) {
    const wfi_value *value = wfi_operand_value(kernel, operand);
    if (!value) return (wfi_md){.kind = WFI_MD_ABSENT};
    int64_t n_elem = wf_shape_n_elem(&value->shape);
    return typed(value, wfi_md_make(WFI_MD_STRIDED, 1, &n_elem));
}

bool wfi_is_mixed(const wfi_kernel *kernel) {
    const wfi_value *first = wfi_operand_value(kernel, 0);
    for (int i = 1; i < kernel->n_operands; i++) {
        const wfi_value *value = wfi_operand_value(kernel, i);
        if (value && !value->opaque && value->dtype != first->dtype &&
            wfi_shape_equal(&value->shape, &first->shape))
            return true;
    }
    return false;
}

wf_status wfi_bind_at(wfi_kernel *kernel, wfi_primitive *primitive, int arg, int operand,
                      size_t offset_bytes) {
    if (primitive->n_args == WFI_MAX_ARGUMENTS)
        return wfi_fail(kernel->ctx, WF_BUG, "a oneDNN kernel with too many arguments");
    int i = primitive->n_args++;
    primitive->args[i].arg = arg;
    primitive->operand[i] = operand;
    primitive->offset[i] = offset_bytes;
    return WF_OK;
}

wf_status wfi_bind(wfi_kernel *kernel, wfi_primitive *primitive, int arg, int operand) {
    wfi_shown_md md = wfi_desc_md(primitive->desc, arg);
    size_t n_bytes = md ? dnnl_memory_desc_get_size(md) : 0;
    if (n_bytes == 0)
        return wfi_fail(kernel->ctx, WF_BUG, "oneDNN's kernel for %s has no argument %d",
                        kernel->label, arg);
    kernel->bytes[operand] = n_bytes;
    return wfi_bind_at(kernel, primitive, arg, operand, 0);
}

wf_status wfi_bind_format(wfi_kernel *kernel, wfi_primitive *primitive, int arg, int operand,
                          const wfi_md *plain) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    WF_TRY(wfi_bind(kernel, primitive, arg, operand));
    WF_TRY(wfi_onednn_format_create(state, wfi_desc_md(primitive->desc, arg), plain,
                                    &state->formats[operand]));
    if (state->formats[operand])
        kernel->format[operand] = wfi_onednn_format_base(state->formats[operand]);
    return WF_OK;
}

wf_status wfi_add_primitive(wfi_kernel *kernel, dnnl_primitive_desc_t desc,
                            dnnl_primitive_desc_t hint, const char **reason_out,
                            wfi_primitive **primitive_out) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    if (state->n_primitives == WFI_MAX_PRIMITIVES) {
        dnnl_primitive_desc_destroy(desc);
        if (hint) dnnl_primitive_desc_destroy(hint);
        return wfi_fail(kernel->ctx, WF_BUG, "a kernel of too many oneDNN primitives");
    }
    wfi_primitive *primitive = &state->primitives[state->n_primitives++];
    primitive->desc = desc;
    primitive->hint = hint;
    if (wfi_desc_is_reference(desc))
        return wfi_decline(reason_out, "oneDNN has only its own reference");
    if (state->n_primitives == 1) kernel->detail = wfi_desc_name(desc);
    wfi_shown_md scratchpad = wfi_desc_md(desc, DNNL_ARG_SCRATCHPAD);
    size_t n_bytes = scratchpad ? dnnl_memory_desc_get_size(scratchpad) : 0;
    size_t total = state->own_scratch_bytes + n_bytes;
    if (total > kernel->scratch_bytes) kernel->scratch_bytes = total;
    if (n_bytes > 0)
        WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_SCRATCHPAD, WFI_SCRATCH,
                           state->own_scratch_bytes));
    *primitive_out = primitive;
    return WF_OK;
}

static wf_status bind_operands(wfi_kernel *kernel, wfi_primitive *primitive, const int *args,
                               const int32_t *values, int n, int first) {
    for (int i = 0; i < n; i++)
        if (args[i] && values[i] >= 0) WF_TRY(wfi_bind(kernel, primitive, args[i], first + i));
    return WF_OK;
}

wf_status wfi_add_op(wfi_kernel *kernel, dnnl_prop_kind_t prop, const wfi_primitive_op *forward,
                     const wfi_primitive_op *backward, const wfi_arguments *arguments,
                     const char **reason_out, wfi_primitive **primitive_out) {
    const wfi_onednn_library lib = wfi_library_at(kernel);
    const wfi_node *node = kernel->node;
    dnnl_primitive_desc_t hint = NULL, desc;
    wfi_primitive *primitive;
    WF_TRY(backward ? wfi_describe_backward(&lib, prop, forward, backward, &hint, &desc)
                    : wfi_describe(&lib, prop, forward, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, hint, reason_out, &primitive));
    if (primitive_out) *primitive_out = primitive;
    WF_TRY(bind_operands(kernel, primitive, arguments->in, node->in, node->n_in, 0));
    return bind_operands(kernel, primitive, arguments->out, node->out, node->n_out, node->n_in);
}

wf_status wfi_check_backward(const wfi_kernel *kernel, dnnl_prop_kind_t prop,
                             const wfi_primitive_op *p) {
    dnnl_primitive_desc_t hint, desc;
    WF_TRY(wfi_describe_backward(&wfi_onednn_of(kernel)->lib, prop, p, p, &hint, &desc));
    dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_desc_destroy(hint);
    return WF_OK;
}

static bool has_empty_operand(const wfi_kernel *kernel) {
    for (int i = 0; i < kernel->n_operands; i++) {
        const wfi_value *value = wfi_operand_value(kernel, i);
        if (value && wf_shape_n_elem(&value->shape) == 0) return true;
    }
    return false;
}

/* Whether the library must not compute a BF16 node: products unless multiplies_bf16 is set,
 * attention and LSTM never in BF16. */
static bool is_for_f32(const wfi_kernel *kernel) {
    static const wfi_op *const wide[] = {&wfi_op_self_attention, &wfi_op_self_attention_backward,
                                         &wfi_op_lstm, &wfi_op_lstm_backward};
    const wfi_op *op = kernel->node->op;
    bool is_product = op->roles.weight_in | op->roles.weight_out || op == &wfi_op_matmul;
    bool is_wide = is_product && !kernel->options.multiplies_bf16;
    for (size_t k = 0; k < WFI_COUNT(wide); k++) is_wide |= op == wide[k];
    if (!is_wide) return false;
    for (int i = 0; i < kernel->n_operands; i++)
        if (wfi_is_narrow(kernel, i)) return true;
    return false;
}

/* The size of a scratchpad depends on the number of threads at this moment, so it
 * is the kernel's while the library is asked, whichever thread asks. */
static wf_status onednn_describe(wfi_kernel *kernel, const char **reason_out) {
    size_t i = place_of(kernel->node->op);
    if (i == WFI_COUNT(described)) return wfi_decline(reason_out, "not an op of oneDNN's");
    if (kernel->adds && kernel->node->op != &wfi_op_linear_backward_weight)
        return wfi_decline(reason_out, "it accumulates into its output");
    if (has_empty_operand(kernel)) return wfi_decline(reason_out, "an operand is empty");
    if (is_for_f32(kernel)) return wfi_decline(reason_out, "F32 is multiplied faster here");
    *reason_out = "oneDNN does not implement this";
    WF_TRY(wfi_onednn_open(kernel, kernel->options.n_threads));
    int before = wfi_library_threads();
    WF_TRY(wfi_library_set_threads(kernel->ctx, kernel->options.n_threads));
    wf_status status = described[i].describe(kernel, reason_out);
    wf_status restored = wfi_library_set_threads(kernel->ctx, before);
    return status != WF_OK ? status : restored;
}

/* ---- preparing and running, on the compute thread ---- */

static void reach(size_t *extent, size_t end) {
    if (end > *extent) *extent = end;
}

/* Takes the extent from the library: from the memory objects given to it, and from the descriptors
 * of the built primitive. */
static wf_status find_extent(wfi_kernel *kernel, const wfi_primitive *primitive, int i) {
    wfi_shown_md md;
    const_dnnl_primitive_desc_t built;
    WF_TRY(wfi_library_check(kernel->ctx,
                             dnnl_memory_get_memory_desc(primitive->args[i].memory, &md),
                             "describe", "a memory"));
    WF_TRY(wfi_library_check(kernel->ctx,
                             dnnl_primitive_get_primitive_desc(primitive->primitive, &built),
                             "describe", "a kernel"));
    int operand = primitive->operand[i];
    size_t *extent = operand == WFI_SCRATCH ? &kernel->scratch_extent : &kernel->extent[operand];
    reach(extent, primitive->offset[i] + wfi_shown_md_reach(md));
    md = wfi_desc_md(built, primitive->args[i].arg);
    if (md) reach(extent, primitive->offset[i] + wfi_shown_md_reach(md));
    return WF_OK;
}

/* weft's code between primitives works on whole values and on its own scratch memory. In operands
 * in a format of the library it reaches no further than the library. */
static wf_status find_extents(wfi_kernel *kernel) {
    const wfi_onednn *state = wfi_onednn_of(kernel);
    for (int p = 0; p < state->n_primitives; p++)
        for (int i = 0; i < state->primitives[p].n_args; i++)
            WF_TRY(find_extent(kernel, &state->primitives[p], i));
    reach(&kernel->scratch_extent, state->own_scratch_bytes);
    for (int i = 0; state->run && i < kernel->n_operands; i++) {
        const wfi_value *value = wfi_operand_value(kernel, i);
        if (value && !kernel->format[i])
            reach(&kernel->extent[i], value->opaque ? state->own_workspace_bytes
                                                    : (size_t)wf_shape_n_elem(&value->shape) *
                                                          wf_dtype_bytes(value->dtype));
    }
    return WF_OK;
}

static wf_status onednn_prepare(wfi_kernel *kernel) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    wf_context *ctx = kernel->ctx;
    if (state->stream) return WF_OK;
    WF_TRY(wfi_library_check(
        ctx, dnnl_stream_create(&state->stream, state->lib.engine, dnnl_stream_default_flags),
        "create", "a stream"));
    for (int p = 0; p < state->n_primitives; p++) {
        wfi_primitive *primitive = &state->primitives[p];
        WF_TRY(wfi_library_check(ctx, dnnl_primitive_create(&primitive->primitive, primitive->desc),
                                 "build", "a kernel"));
        for (int i = 0; i < primitive->n_args; i++)
            WF_TRY(wfi_library_check(
                ctx,
                dnnl_memory_create(&primitive->args[i].memory,
                                   wfi_desc_md(primitive->desc, primitive->args[i].arg),
                                   state->lib.engine, DNNL_MEMORY_NONE),
                "create", "a memory"));
    }
    return find_extents(kernel);
}

wf_status wfi_run_primitive(wfi_kernel *kernel, int index, void *const operands[], void *scratch) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    wfi_primitive *primitive = &state->primitives[index];
    for (int i = 0; i < primitive->n_args; i++) {
        int operand = primitive->operand[i];
        char *base = operand == WFI_SCRATCH ? scratch : operands[operand];
        void *handle = base + primitive->offset[i];
        /* oneDNN 2 zeroes the padding of a blocked memory whenever its address is set. */
        if (handle == primitive->bound[i]) continue;
        WF_TRY(wfi_library_check(kernel->ctx,
                                 dnnl_memory_set_data_handle(primitive->args[i].memory, handle),
                                 "take", "an address"));
        primitive->bound[i] = handle;
    }
    WF_TRY(wfi_library_check(kernel->ctx,
                             dnnl_primitive_execute(primitive->primitive, state->stream,
                                                    primitive->n_args, primitive->args),
                             "run", kernel->label));
    /* At once on OpenMP; other runtimes may still be at work. */
    return wfi_library_check(kernel->ctx, dnnl_stream_wait(state->stream), "run", kernel->label);
}

static wf_status onednn_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                            void *scratch, const wfi_step_args *step) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    if (state->run) return state->run(kernel, stream, operands, scratch, step);
    for (int p = 0; p < state->n_primitives; p++)
        WF_TRY(wfi_run_primitive(kernel, p, operands, scratch));
    return WF_OK;
}

static void destroy_primitive(wfi_primitive *primitive) {
    for (int i = 0; i < primitive->n_args; i++)
        if (primitive->args[i].memory) dnnl_memory_destroy(primitive->args[i].memory);
    if (primitive->primitive) dnnl_primitive_destroy(primitive->primitive);
    if (primitive->desc) dnnl_primitive_desc_destroy(primitive->desc);
    if (primitive->hint) dnnl_primitive_desc_destroy(primitive->hint);
}

static void onednn_destroy(wfi_kernel *kernel) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    if (!state) return;
    for (int p = 0; p < state->n_primitives; p++) destroy_primitive(&state->primitives[p]);
    for (int i = 0; i < WFI_MAX_OPERANDS; i++) wfi_onednn_format_destroy(state, state->formats[i]);
    if (state->stream) dnnl_stream_destroy(state->stream);
    wfi_library_close(&state->lib);
    wfi_free(kernel->ctx, state);
}

const wfi_kernel_impl wfi_kernel_onednn = {
    .name = "onednn",
    .describe = onednn_describe,
    .forms = onednn_forms,
    .prepare = onednn_prepare,
    .run = onednn_run,
    .destroy = onednn_destroy,
};

/* ---- processors ---- */

static bool has_fp16(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d >> 23 & 1;
#else
    return false;
#endif
}

/* AMX is many times as fast as F32, and AVX512-BF16 up to twice. Only Intel's processors since
 * Sapphire Rapids, which are those that have AVX512-FP16, multiply BF16 at half the rate of F32
 * without AMX, where that is kept from the system: 82 against 154 GFLOP/s. */
wfi_bf16_speed wfi_library_bf16_speed(void) {
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx) return WFI_BF16_FAST;
    if ((isa & dnnl_cpu_isa_avx512_core_bf16) != dnnl_cpu_isa_avx512_core_bf16)
        return WFI_BF16_ABSENT;
    return has_fp16() ? WFI_BF16_SLOW : WFI_BF16_FAST;
}

/* ---- versions ---- */

#define ISA_NAME_BYTES 40

/* A set without a name here, of a newer library, is said by its number: two machines on which
 * oneDNN computes in different ways never look alike. */
static const char *isa_name(char number_text[ISA_NAME_BYTES]) {
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } names[] = {
        {dnnl_cpu_isa_sse41, "sse41"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
#if DNNL_VERSION_MAJOR >= 3
        {dnnl_cpu_isa_avx2_vnni_2, "avx2_vnni_2"},
        {dnnl_cpu_isa_avx512_core_fp16, "avx512_core_fp16"},
        {dnnl_cpu_isa_avx512_core_amx_fp16, "avx512_core_amx_fp16"},
#endif
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
    };
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    for (size_t i = 0; i < WFI_COUNT(names); i++)
        if (names[i].isa == isa) return names[i].name;
    snprintf(number_text, ISA_NAME_BYTES, "instruction set 0x%x", (unsigned)isa);
    return number_text;
}

/* Written once, then only read: the version is known only to the library that the
 * process has loaded. */
static char library_text[80];

static void write_library_text(void) {
    const dnnl_version_t *version = dnnl_version();
    char isa[ISA_NAME_BYTES];
    snprintf(library_text, sizeof library_text, "oneDNN %d.%d.%d (%s)", version->major,
             version->minor, version->patch, isa_name(isa));
}

const char *wfi_library_text(wf_context *ctx) {
    (void)ctx;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_library_text);
    return library_text;
}
