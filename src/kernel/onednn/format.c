/* How a primitive wants a parameter, or gives its gradient: a memory description
 * beside the plain one, and the two reorders between them. */
#include "kernel/cpu.h"
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/threads.h"

typedef struct wfi_onednn_format {
    wfi_format base; /* first: a wfi_format is cast back */
    wfi_owned_md plain, packed;
    int n_threads;
} wfi_onednn_format;

static bool equal(const wfi_format *a, const wfi_format *b) {
    const wfi_onednn_format *x = (const wfi_onednn_format *)a, *y = (const wfi_onednn_format *)b;
    return x->n_threads == y->n_threads && dnnl_memory_desc_equal(x->plain, y->plain) &&
           dnnl_memory_desc_equal(x->packed, y->packed);
}

/* operands: `from`, `to`. */
static wf_status describe_move(wfi_kernel *kernel, wfi_shown_md from, wfi_shown_md to, bool add) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    const char *reason = "";
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    wf_status status = wfi_describe_reorder(&state->lib, from, to, add, &desc);
    if (status == WF_OK) status = wfi_add_primitive(kernel, desc, NULL, &reason, &primitive);
    if (status == WF_UNSUPPORTED)
        return wfi_fail(kernel->ctx, WF_DEVICE,
                        "oneDNN asks for a parameter in a format that it cannot convert to");
    WF_TRY(status);
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_FROM, 0));
    return wfi_bind(kernel, primitive, DNNL_ARG_TO, 1);
}

static wf_status describe_kernel(wfi_kernel *kernel, const wfi_onednn_format *format,
                                 const wf_shape *shape, bool is_pack, bool add) {
    kernel->impl = &wfi_kernel_onednn;
    WF_TRY(wfi_onednn_open(kernel, format->n_threads));
    size_t plain_bytes = (size_t)wf_shape_n_elem(shape) * sizeof(float);
    if (dnnl_memory_desc_get_size(format->plain) != plain_bytes)
        return wfi_fail(kernel->ctx, WF_BUG, "a format of %zu bytes for a parameter of %zu",
                        dnnl_memory_desc_get_size(format->plain), plain_bytes);
    int before = wfi_library_threads();
    WF_TRY(wfi_library_set_threads(kernel->ctx, format->n_threads));
    wf_status status = is_pack ? describe_move(kernel, format->plain, format->packed, add)
                               : describe_move(kernel, format->packed, format->plain, add);
    wf_status restored = wfi_library_set_threads(kernel->ctx, before);
    return status != WF_OK ? status : restored;
}

static wf_status pack(wfi_kernel *kernel, const wfi_format *format, const wf_shape *shape) {
    return describe_kernel(kernel, (const wfi_onednn_format *)format, shape, true, false);
}

/* Whether it holds a convolution's weights in whole blocks of 16 x 16. */
static wf_status is_blocked(wf_context *ctx, const wfi_onednn_format *format, const wf_shape *shape,
                            bool *yes_out) {
    *yes_out = false;
    if (shape->n_dims != 4 || shape->dim[0] % 16 || shape->dim[1] % 16) return WF_OK;
    wfi_library lib = {.ctx = ctx}; /* a description needs no engine */
    wfi_md blocked = wfi_md_make(WFI_MD_16I16O, 4, shape->dim);
    wfi_owned_md native;
    WF_TRY(wfi_md_own(&lib, &blocked, &native));
    *yes_out = dnnl_memory_desc_equal(native, format->packed);
    wfi_md_disown(&lib, native);
    return WF_OK;
}

static wf_status accumulate(wfi_kernel *kernel, const wfi_format *format, const wf_shape *shape,
                            bool add) {
    const wfi_onednn_format *own = (const wfi_onednn_format *)format;
    bool blocked;
    WF_TRY(is_blocked(kernel->ctx, own, shape, &blocked));
    if (blocked && own->n_threads == 1) return wfi_accumulate_blocked(kernel, shape, add);
    return describe_kernel(kernel, (const wfi_onednn_format *)format, shape, false, add);
}

static const wfi_format_class format_class = {equal, pack, accumulate};

wf_status wfi_onednn_format_create(const wfi_onednn *state, wfi_shown_md md, const wfi_md *plain,
                                   wfi_onednn_format **format_out) {
    wfi_onednn_format *format = wfi_alloc(state->lib.ctx, 1, sizeof *format, "a format");
    if (!format) return WF_NO_MEMORY;
    format->base = (wfi_format){dnnl_memory_desc_get_size(md), &format_class};
    format->n_threads = state->n_threads;
    wf_status status = wfi_md_own(&state->lib, plain, &format->plain);
    bool is_plain = status == WF_OK && dnnl_memory_desc_equal(format->plain, md);
    if (status == WF_OK && !is_plain) status = wfi_md_copy(&state->lib, md, &format->packed);
    if (status == WF_OK && !is_plain) {
        *format_out = format;
        return WF_OK;
    }
    wfi_onednn_format_destroy(state, format);
    return status;
}

const wfi_format *wfi_onednn_format_base(const wfi_onednn_format *format) {
    return &format->base;
}

void wfi_onednn_format_destroy(const wfi_onednn *state, wfi_onednn_format *format) {
    if (!format) return;
    wfi_md_disown(&state->lib, format->plain);
    wfi_md_disown(&state->lib, format->packed);
    wfi_free(state->lib.ctx, format);
}
