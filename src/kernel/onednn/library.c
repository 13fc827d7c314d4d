#include "kernel/onednn/library.h"

#include <string.h>

#include <oneapi/dnnl/dnnl_debug.h>

/* ---- engine, errors ---- */

wf_status wfi_library_check(wf_context *ctx, dnnl_status_t status, const char *verb,
                            const char *object) {
    if (status == dnnl_success) return WF_OK;
    return wfi_fail(ctx, status == dnnl_out_of_memory ? WF_NO_MEMORY : WF_DEVICE,
                    "oneDNN could not %s %s: %s", verb, object, dnnl_status2str(status));
}

/* A CPU engine is a few dozen bytes, so each kernel has its own and nothing is
 * shared between threads. (The library's cache of primitives does not look at
 * the engine's address: equal kernels still share their code.) */
wf_status wfi_library_open(wf_context *ctx, wfi_onednn_library *lib_out) {
    dnnl_engine_t engine;
    WF_TRY(wfi_library_check(ctx, dnnl_engine_create(&engine, dnnl_cpu, 0), "open", "the CPU"));
    *lib_out = (wfi_onednn_library){.ctx = ctx, .engine = engine};
    return WF_OK;
}

void wfi_library_close(wfi_onednn_library *lib) {
    if (lib->engine) dnnl_engine_destroy(lib->engine);
    lib->engine = NULL;
}

/* ---- memory descriptors ---- */

wfi_md wfi_md_make(wfi_md_kind kind, int n_dims, const int64_t *dim) {
    wfi_md md = {.kind = kind, .type = dnnl_f32, .n_dims = n_dims};
    int64_t stride = 1;
    for (int i = n_dims - 1; i >= 0; i--) {
        md.dim[i] = dim[i];
        md.stride[i] = stride;
        stride *= dim[i];
    }
    return md;
}

wfi_md wfi_md_transposed(wfi_md md) {
    int last = md.n_dims - 1;
    int64_t dim = md.dim[last], stride = md.stride[last];
    md.dim[last] = md.dim[last - 1];
    md.stride[last] = md.stride[last - 1];
    md.dim[last - 1] = dim;
    md.stride[last - 1] = stride;
    return md;
}

size_t wfi_md_row_major_bytes(const wfi_md *md) {
    size_t n_elem = 1;
    for (int i = 0; i < md->n_dims; i++) n_elem *= (size_t)md->dim[i];
    return n_elem * dnnl_data_type_size(md->type);
}

static dnnl_format_tag_t tag_of(wfi_md_kind kind) {
    return kind == WFI_MD_C16      ? dnnl_nChw16c
           : kind == WFI_MD_16I16O ? dnnl_OIhw16i16o
                                   : dnnl_format_tag_any;
}

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t make_native(const wfi_md *md, dnnl_memory_desc_t *native_out) {
    if (md->kind == WFI_MD_STRIDED)
        return dnnl_memory_desc_create_with_strides(native_out, md->n_dims, md->dim, md->type,
                                                    md->stride);
    return dnnl_memory_desc_create_with_tag(native_out, md->n_dims, md->dim, md->type,
                                            tag_of(md->kind));
}

wf_status wfi_md_own(const wfi_onednn_library *lib, const wfi_md *md, wfi_owned_md *md_out) {
    return wfi_library_check(lib->ctx, make_native(md, md_out), "describe", "a memory");
}

wf_status wfi_md_copy(const wfi_onednn_library *lib, wfi_shown_md md, wfi_owned_md *md_out) {
    return wfi_library_check(lib->ctx, dnnl_memory_desc_clone(md_out, md), "copy", "a description");
}

void wfi_md_disown(const wfi_onednn_library *lib, wfi_owned_md md) {
    (void)lib;
    if (md) dnnl_memory_desc_destroy(md);
}
#else
static dnnl_status_t make_native(const wfi_md *md, dnnl_memory_desc_t *native_out) {
    if (md->kind == WFI_MD_STRIDED)
        return dnnl_memory_desc_init_by_strides(native_out, md->n_dims, md->dim, md->type,
                                                md->stride);
    return dnnl_memory_desc_init_by_tag(native_out, md->n_dims, md->dim, md->type,
                                        tag_of(md->kind));
}

wf_status wfi_md_copy(const wfi_onednn_library *lib, wfi_shown_md md, wfi_owned_md *md_out) {
    wfi_owned_md copy = wfi_alloc(lib->ctx, 1, sizeof *copy, "a memory description");
    if (!copy) return WF_NO_MEMORY;
    *copy = *md;
    *md_out = copy;
    return WF_OK;
}

wf_status wfi_md_own(const wfi_onednn_library *lib, const wfi_md *md, wfi_owned_md *md_out) {
    dnnl_memory_desc_t native;
    WF_TRY(wfi_library_check(lib->ctx, make_native(md, &native), "describe", "a memory"));
    return wfi_md_copy(lib, &native, md_out);
}

void wfi_md_disown(const wfi_onednn_library *lib, wfi_owned_md md) {
    wfi_free(lib->ctx, md);
}
#endif

/* The native form of some descriptions for the length of one call. */
#define MOST_MDS (2 * WFI_LSTM_MDS)
typedef struct native_mds {
    dnnl_memory_desc_t storage[MOST_MDS];
    wfi_shown_md md[MOST_MDS]; /* NULL: absent */
    int n;
    dnnl_status_t status;
} native_mds;

static void natives_make(native_mds *m, int n, const wfi_md *const *md) {
    m->n = 0;
    m->status = dnnl_success;
    for (; m->n < n; m->n++) {
        m->md[m->n] = NULL;
        const wfi_md *source = md[m->n];
        if (!source || source->kind == WFI_MD_ABSENT) continue;
        m->status = make_native(source, &m->storage[m->n]);
        if (m->status != dnnl_success) return;
#if DNNL_VERSION_MAJOR >= 3
        m->md[m->n] = m->storage[m->n];
#else
        m->md[m->n] = &m->storage[m->n];
#endif
    }
}

static void natives_free(native_mds *m) {
#if DNNL_VERSION_MAJOR >= 3
    for (int i = 0; i < m->n; i++)
        if (m->md[i]) dnnl_memory_desc_destroy(m->storage[i]);
#else
    (void)m;
#endif
}

/* ---- attributes ---- */

static dnnl_status_t append_old(dnnl_post_ops_t ops) {
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1);
#endif
}

/* `add`: the primitive adds its result to dst. */
static dnnl_status_t attr_make(bool add, dnnl_primitive_attr_t *attr_out) {
    dnnl_status_t status = dnnl_primitive_attr_create(attr_out);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(*attr_out, dnnl_scratchpad_mode_user);
    if (status != dnnl_success || !add) return status;
    dnnl_post_ops_t ops = NULL;
    status = dnnl_post_ops_create(&ops);
    if (status != dnnl_success) return status;
    status = append_old(ops);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*attr_out, ops);
    dnnl_post_ops_destroy(ops);
    return status;
}

/* ---- describing primitives ---- */

/* The state shared by all functions that describe a primitive. */
typedef struct call {
    native_mds m;
    dnnl_primitive_attr_t attr;
    dnnl_status_t status;
    dnnl_primitive_desc_t desc;
} call;

static void call_begin(call *c, bool add, int n_mds, const wfi_md *const *md) {
    c->attr = NULL;
    c->desc = NULL;
    natives_make(&c->m, n_mds, md);
    c->status = c->m.status == dnnl_success ? attr_make(add, &c->attr) : c->m.status;
}

/* The status if the library has no further kernel for the description. */
#if DNNL_VERSION_MAJOR >= 3
#define NO_OTHER dnnl_last_impl_reached
#else
#define NO_OTHER dnnl_iterator_ends
#endif

static wf_status call_end(call *c, const wfi_onednn_library *lib, dnnl_primitive_desc_t *desc_out) {
    natives_free(&c->m);
    if (c->attr) dnnl_primitive_attr_destroy(c->attr);
    if (c->status == dnnl_unimplemented || c->status == dnnl_invalid_arguments ||
        c->status == NO_OTHER)
        return WF_UNSUPPORTED;
    WF_TRY(wfi_library_check(lib->ctx, c->status, "describe", "a kernel"));
    *desc_out = c->desc;
    return WF_OK;
}

/* Both versions take the same arguments in the same order but for those marked
 * with SINCE_3 (oneDNN 2 took source and destination of some to look alike), and
 * for the hint, which oneDNN 3 wants only where the direction is backward. */
#if DNNL_VERSION_MAJOR >= 3
#define SINCE_3(argument) argument,
#define DESCRIBE_FORWARD(c, name, name_2, ...)                                                     \
    (c).status = pass_over(                                                                        \
        &(c), lib,                                                                                 \
        dnnl_##name##_primitive_desc_create(&(c).desc, lib->engine, __VA_ARGS__, (c).attr))
#define DESCRIBE_BACKWARD(c, name, name_2, ...)                                                    \
    (c).status = pass_over(                                                                        \
        &(c), lib,                                                                                 \
        dnnl_##name##_primitive_desc_create(&(c).desc, lib->engine, __VA_ARGS__, hint, (c).attr))

static dnnl_status_t pass_over(call *c, const wfi_onednn_library *lib, dnnl_status_t status) {
    if (status != dnnl_success) return status;
    for (int k = 0; k < lib->n_skipped && status == dnnl_success; k++)
        status = dnnl_primitive_desc_next_impl(c->desc);
    if (status != dnnl_success) dnnl_primitive_desc_destroy(c->desc);
    return status;
}
#else
#define SINCE_3(argument)
#define DESCRIBE(c, hint_2, name_2, ...)                                                           \
    do {                                                                                           \
        op_desc op;                                                                                \
        (c).status = dnnl_##name_2##_desc_init((void *)&op, __VA_ARGS__);                          \
        if ((c).status == dnnl_success) (c).status = find_desc(&(c), lib, &op, hint_2);            \
    } while (0)
#define DESCRIBE_FORWARD(c, name, name_2, ...)  DESCRIBE(c, NULL, name_2, __VA_ARGS__)
#define DESCRIBE_BACKWARD(c, name, name_2, ...) DESCRIBE(c, hint, name_2, __VA_ARGS__)
typedef union op_desc {
    dnnl_convolution_desc_t conv;
    dnnl_inner_product_desc_t inner_product;
    dnnl_matmul_desc_t matmul;
    dnnl_batch_normalization_desc_t batch_norm;
    dnnl_layer_normalization_desc_t layer_norm;
    dnnl_eltwise_desc_t eltwise;
    dnnl_binary_desc_t binary;
    dnnl_pooling_v2_desc_t pooling;
    dnnl_softmax_v2_desc_t softmax;
    dnnl_rnn_desc_t rnn;
} op_desc;

static dnnl_status_t find_desc(call *c, const wfi_onednn_library *lib, const op_desc *op,
                               const_dnnl_primitive_desc_t hint) {
    dnnl_primitive_desc_iterator_t at = NULL;
    dnnl_status_t status = dnnl_primitive_desc_iterator_create(&at, op, c->attr, lib->engine, hint);
    for (int k = 0; k < lib->n_skipped && status == dnnl_success; k++)
        status = dnnl_primitive_desc_iterator_next(at);
    if (status == dnnl_success) c->desc = dnnl_primitive_desc_iterator_fetch(at);
    if (at) dnnl_primitive_desc_iterator_destroy(at);
    return status == dnnl_success && !c->desc ? dnnl_out_of_memory : status;
}
#endif

/* Fills the status and the description; `hint` NULL: of a forward. */
static void describe(call *c, const wfi_onednn_library *lib, dnnl_prop_kind_t prop,
                     const wfi_primitive_op *p, const_dnnl_primitive_desc_t hint) {
    const wfi_spatial_window *w = &p->window;
    const wfi_shown_md *m = c->m.md;
    dnnl_dims_t kernel = {w->kernel[0], w->kernel[1]}, stride = {w->stride, w->stride};
    dnnl_dims_t dilate = {w->gap, w->gap}, pad = {w->pad, w->pad};
    dnnl_dims_t pad_end = {w->pad_end[0], w->pad_end[1]};
    int last_dim = p->md[0].n_dims - 1;
    switch ((int)p->kind) {
    case dnnl_convolution:
        if (!hint)
            DESCRIBE_FORWARD(*c, convolution_forward, dilated_convolution_forward, prop, p->alg,
                             m[0], m[1], m[2], m[3], stride, dilate, pad, pad_end);
        else if (prop == dnnl_backward_data)
            DESCRIBE_BACKWARD(*c, convolution_backward_data, dilated_convolution_backward_data,
                              p->alg, m[0], m[1], m[3], stride, dilate, pad, pad_end);
        else
            DESCRIBE_BACKWARD(*c, convolution_backward_weights,
                              dilated_convolution_backward_weights, p->alg, m[0], m[1], m[2], m[3],
                              stride, dilate, pad, pad_end);
        break;
    case dnnl_inner_product:
        if (!hint)
            DESCRIBE_FORWARD(*c, inner_product_forward, inner_product_forward, prop, m[0], m[1],
                             m[2], m[3]);
        else if (prop == dnnl_backward_data)
            DESCRIBE_BACKWARD(*c, inner_product_backward_data, inner_product_backward_data, m[0],
                              m[1], m[3]);
        else
            DESCRIBE_BACKWARD(*c, inner_product_backward_weights, inner_product_backward_weights,
                              m[0], m[1], m[2], m[3]);
        break;
    case dnnl_matmul:
        DESCRIBE_FORWARD(*c, matmul, matmul, m[0], m[1], m[2], m[3]);
        break;
    case dnnl_binary:
        DESCRIBE_FORWARD(*c, binary, binary, p->alg, m[0], m[1], m[2]);
        break;
    case dnnl_batch_normalization:
        if (!hint)
            DESCRIBE_FORWARD(*c, batch_normalization_forward, batch_normalization_forward, prop,
                             m[0], SINCE_3(m[0]) p->eps, p->flags);
        else
            DESCRIBE_BACKWARD(*c, batch_normalization_backward, batch_normalization_backward, prop,
                              m[0], SINCE_3(m[0]) m[0], p->eps, p->flags);
        break;
    case dnnl_layer_normalization:
        if (!hint)
            DESCRIBE_FORWARD(*c, layer_normalization_forward, layer_normalization_forward, prop,
                             m[0], SINCE_3(m[0]) m[1], p->eps, p->flags);
        else
            DESCRIBE_BACKWARD(*c, layer_normalization_backward, layer_normalization_backward, prop,
                              m[0], SINCE_3(m[0]) m[0], m[1], p->eps, p->flags);
        break;
    case dnnl_eltwise:
        if (!hint)
            DESCRIBE_FORWARD(*c, eltwise_forward, eltwise_forward, prop, p->alg, m[0],
                             SINCE_3(m[0]) p->alpha, 0);
        else
            DESCRIBE_BACKWARD(*c, eltwise_backward, eltwise_backward, p->alg, m[0],
                              SINCE_3(m[0]) m[0], p->alpha, 0);
        break;
    case dnnl_pooling:
        if (!hint)
            DESCRIBE_FORWARD(*c, pooling_forward, pooling_v2_forward, prop, p->alg, m[0], m[1],
                             stride, kernel, dilate, pad, pad_end);
        else
            DESCRIBE_BACKWARD(*c, pooling_backward, pooling_v2_backward, p->alg, m[0], m[1], stride,
                              kernel, dilate, pad, pad_end);
        break;
    default: /* a softmax, over the last dim */
        if (!hint)
            DESCRIBE_FORWARD(*c, softmax_forward, softmax_v2_forward, prop, p->alg, m[0], m[0],
                             last_dim);
        else
            DESCRIBE_BACKWARD(*c, softmax_backward, softmax_v2_backward, p->alg, m[0], m[0], m[0],
                              last_dim);
    }
}

static wf_status describe_either(const wfi_onednn_library *lib, dnnl_prop_kind_t prop,
                                 const wfi_primitive_op *p, const_dnnl_primitive_desc_t hint,
                                 dnnl_primitive_desc_t *desc_out) {
    call c;
    call_begin(&c, false, 4, (const wfi_md *const[]){&p->md[0], &p->md[1], &p->md[2], &p->md[3]});
    if (c.status == dnnl_success) describe(&c, lib, prop, p, hint);
    return call_end(&c, lib, desc_out);
}

wf_status wfi_describe(const wfi_onednn_library *lib, dnnl_prop_kind_t prop,
                       const wfi_primitive_op *p, dnnl_primitive_desc_t *desc_out) {
    return describe_either(lib, prop, p, NULL, desc_out);
}

wf_status wfi_describe_backward(const wfi_onednn_library *lib, dnnl_prop_kind_t prop,
                                const wfi_primitive_op *forward, const wfi_primitive_op *backward,
                                dnnl_primitive_desc_t *hint_out, dnnl_primitive_desc_t *desc_out) {
    wfi_onednn_library first = *lib;
    first.n_skipped = 0;
    WF_TRY(wfi_describe(&first, dnnl_forward_training, forward, hint_out));
    wf_status status = describe_either(lib, prop, backward, *hint_out, desc_out);
    if (status != WF_OK) dnnl_primitive_desc_destroy(*hint_out);
    return status;
}

/* Peepholes and projections came with oneDNN 3's function. */
#define LSTM_MDS(md)                                                                               \
    (md)[0], (md)[1], (md)[2], (md)[3], (md)[4], SINCE_3(NULL) SINCE_3(NULL)(md)[5], (md)[6],      \
        (md)[7], (md)[8]

wf_status wfi_describe_lstm(const wfi_onednn_library *lib, dnnl_prop_kind_t prop,
                            const wfi_md *const md[WFI_LSTM_MDS],
                            const wfi_md *const diff[WFI_LSTM_MDS],
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *desc_out) {
    const wfi_md *all[MOST_MDS];
    call c;
    for (int k = 0; k < WFI_LSTM_MDS; k++) {
        all[k] = md[k];
        all[WFI_LSTM_MDS + k] = diff ? diff[k] : NULL;
    }
    call_begin(&c, false, MOST_MDS, all);
    if (c.status != dnnl_success) return call_end(&c, lib, desc_out);
    const wfi_shown_md *diff_md = c.m.md + WFI_LSTM_MDS;
    if (!hint)
        DESCRIBE_FORWARD(c, lstm_forward, lstm_forward, prop, dnnl_unidirectional_left2right,
                         LSTM_MDS(c.m.md), dnnl_rnn_flags_undef);
    else
        DESCRIBE_BACKWARD(c, lstm_backward, lstm_backward, prop, dnnl_unidirectional_left2right,
                          LSTM_MDS(c.m.md), LSTM_MDS(diff_md), dnnl_rnn_flags_undef);
    return call_end(&c, lib, desc_out);
}

wf_status wfi_describe_reorder(const wfi_onednn_library *lib, wfi_shown_md src, wfi_shown_md dst,
                               bool add, dnnl_primitive_desc_t *desc_out) {
    call c;
    call_begin(&c, add, 0, NULL);
    if (c.status == dnnl_success)
        c.status =
            dnnl_reorder_primitive_desc_create(&c.desc, src, lib->engine, dst, lib->engine, c.attr);
    return call_end(&c, lib, desc_out);
}

/* ---- asking descriptors ---- */

const char *wfi_desc_name(const_dnnl_primitive_desc_t desc) {
    const char *name = "";
    dnnl_status_t status = dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    return status == dnnl_success ? name : "";
}

/* Its LSTM of matrix products is called so, too, and is fast. */
bool wfi_desc_is_reference(const_dnnl_primitive_desc_t desc) {
    const char *name = wfi_desc_name(desc);
    dnnl_primitive_kind_t kind;
    if (dnnl_primitive_desc_query(desc, dnnl_query_primitive_kind, 0, &kind) == dnnl_success &&
        kind == dnnl_rnn)
        return false;
    return !strncmp(name, "ref", 3) || !strncmp(name, "gemm:ref", 8);
}

wfi_shown_md wfi_desc_md(const_dnnl_primitive_desc_t desc, int arg) {
    return dnnl_primitive_desc_query_md(desc, dnnl_query_exec_arg_md, arg);
}

/* ---- how far a memory reaches ---- */

typedef struct strides {
    int n_dims, n_blocks;
    size_t element_bytes;
    const int64_t *dim, *stride;
} strides;

#if DNNL_VERSION_MAJOR >= 3
static bool find_strides(wfi_shown_md md, strides *out) {
    dnnl_data_type_t type;
    dnnl_dims_t *dim, *stride;
    bool known =
        dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &out->n_dims) == dnnl_success &&
        dnnl_memory_desc_query(md, dnnl_query_dims, &dim) == dnnl_success &&
        dnnl_memory_desc_query(md, dnnl_query_data_type, &type) == dnnl_success &&
        dnnl_memory_desc_query(md, dnnl_query_strides, &stride) == dnnl_success &&
        dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &out->n_blocks) == dnnl_success;
    if (!known) return false;
    out->element_bytes = dnnl_data_type_size(type);
    out->dim = *dim;
    out->stride = *stride;
    return true;
}
#else
static bool find_strides(wfi_shown_md md, strides *out) {
    const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
    *out = (strides){md->ndims, blocking->inner_nblks, dnnl_data_type_size(md->data_type), md->dims,
                     blocking->strides};
    return md->format_kind == dnnl_blocked;
}
#endif

size_t wfi_shown_md_reach(wfi_shown_md md) {
    strides s;
    size_t bytes = dnnl_memory_desc_get_size(md);
    if (!bytes || !find_strides(md, &s) || s.n_blocks) return bytes;
    int64_t last = 0;
    for (int d = 0; d < s.n_dims; d++) last += (s.dim[d] - 1) * s.stride[d];
    size_t reach = (size_t)(last + 1) * s.element_bytes;
    return reach < bytes ? reach : bytes;
}
