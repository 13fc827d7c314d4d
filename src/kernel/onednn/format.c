/* How a primitive wants a parameter, or gives its gradient: a memory description beside the plain
 * one, and the two reorders between them. The plain one may be of a part of the parameter's window;
 * then weights outside the part are not read, and their gradient is 0. */
#include "kernel/cpu.h"
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/threads.h"

typedef struct wfi_onednn_format {
    wfi_format base; /* first: a wfi_format is cast back */
    wfi_md part;
    wfi_owned_md plain, packed; /* `plain`: of `part` */
    int n_threads;
} wfi_onednn_format;

static bool equal(const wfi_format *a, const wfi_format *b) {
    const wfi_onednn_format *x = (const wfi_onednn_format *)a, *y = (const wfi_onednn_format *)b;
    return x->n_threads == y->n_threads && x->part.first == y->part.first &&
           dnnl_memory_desc_equal(x->plain, y->plain) &&
           dnnl_memory_desc_equal(x->packed, y->packed);
}

/* operands: `from`, `to`. */
static wf_status describe_move(wfi_kernel *kernel, const wfi_onednn_format *format, bool is_pack,
                               bool add) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    const char *reason = "";
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    wfi_shown_md from = is_pack ? format->plain : format->packed;
    wfi_shown_md to = is_pack ? format->packed : format->plain;
    wf_status status = wfi_describe_reorder(&state->lib, from, to, add, &desc);
    if (status == WF_OK) status = wfi_add_primitive(kernel, desc, NULL, &reason, &primitive);
    if (status == WF_UNSUPPORTED)
        return wfi_fail(kernel->ctx, WF_DEVICE,
                        "oneDNN requires a parameter in a format that it cannot convert to");
    WF_TRY(status);
    size_t first = (size_t)format->part.first * sizeof(float);
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_FROM, 0, is_pack ? first : 0));
    return wfi_bind_at(kernel, primitive, DNNL_ARG_TO, 1, is_pack ? 0 : first);
}

static wf_status describe_kernel(wfi_kernel *kernel, const wfi_onednn_format *format,
                                 const wf_shape *shape, bool is_pack, bool add) {
    kernel->impl = &wfi_kernel_onednn;
    WF_TRY(wfi_onednn_open(kernel, format->n_threads));
    size_t plain_bytes = (size_t)wf_shape_n_elem(shape) * sizeof(float);
    size_t end = (size_t)format->part.first * sizeof(float) + wfi_shown_md_reach(format->plain);
    if (format->part.is_part ? end > plain_bytes : end != plain_bytes)
        return wfi_fail(kernel->ctx, WF_BUG, "a format of %zu bytes for a parameter of %zu", end,
                        plain_bytes);
    kernel->bytes[is_pack ? 0 : 1] = end;
    kernel->bytes[is_pack ? 1 : 0] = format->base.bytes;
    int before = wfi_library_threads();
    WF_TRY(wfi_library_set_threads(kernel->ctx, format->n_threads));
    wf_status status = describe_move(kernel, format, is_pack, add);
    wf_status restored = wfi_library_set_threads(kernel->ctx, before);
    return status != WF_OK ? status : restored;
}

static wf_status pack(wfi_kernel *kernel, const wfi_format *format, const wf_shape *shape) {
    return describe_kernel(kernel, (const wfi_onednn_format *)format, shape, true, false);
}

wf_status wfi_md_is_blocked(wf_context *ctx, wfi_shown_md md, const wfi_md *plain, bool *yes_out) {
    *yes_out = false;
    if (plain->n_dims != 4 || plain->dim[0] % 16 || plain->dim[1] % 16) return WF_OK;
    wfi_onednn_library lib = {.ctx = ctx}; /* a description needs no engine */
    wfi_md blocked = wfi_md_make(WFI_MD_16I16O, 4, plain->dim);
    wfi_owned_md native;
    WF_TRY(wfi_md_own(&lib, &blocked, &native));
    *yes_out = dnnl_memory_desc_equal(native, md);
    wfi_md_disown(&lib, native);
    return WF_OK;
}

static wf_status accumulate(wfi_kernel *kernel, const wfi_format *format, const wf_shape *shape,
                            bool add) {
    const wfi_onednn_format *own = (const wfi_onednn_format *)format;
    const wfi_md *part = &own->part;
    bool blocked;
    WF_TRY(wfi_md_is_blocked(kernel->ctx, own->packed, part, &blocked));
    if (!blocked || (own->n_threads > 1 && !part->is_part))
        return describe_kernel(kernel, own, shape, false, add);
    wfi_window_part window = {part->first / shape->dim[3], part->first % shape->dim[3],
                              part->dim[2], part->dim[3]};
    return wfi_accumulate_blocked(kernel, shape, &window, add);
}

static const wfi_format_class format_class = {equal, pack, accumulate};

wf_status wfi_onednn_format_create(const wfi_onednn *state, wfi_shown_md md, const wfi_md *plain,
                                   wfi_onednn_format **format_out) {
    wfi_onednn_format *format = wfi_alloc(state->lib.ctx, 1, sizeof *format, "a format");
    if (!format) return WF_NO_MEMORY;
    format->base = (wfi_format){dnnl_memory_desc_get_size(md), &format_class};
    format->n_threads = state->n_threads;
    format->part = *plain;
    wf_status status = wfi_md_own(&state->lib, plain, &format->plain);
    /* Strides of dims of 1 are no difference to the library, but a part begins elsewhere. */
    bool is_plain = status == WF_OK && !plain->is_part && dnnl_memory_desc_equal(format->plain, md);
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
