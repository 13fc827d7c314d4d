/* oneDNN as weft uses it. Only this pair of files handles the differences between oneDNN 2 and 3:
 * op descriptors, memory descriptors that are structs or handles, and changed arguments. These
 * files do not use graphs or nodes.
 *
 * Functions that describe a primitive return UNSUPPORTED, without recording an
 * error, if the library has no implementation. Scratchpads are always the
 * caller's (dnnl_scratchpad_mode_user).
 */
#pragma once

#include "base/base.h"

#include <oneapi/dnnl/dnnl.h>

/* How a memory looks, in weft's words. */
typedef enum wfi_md_kind {
    WFI_MD_ABSENT,
    WFI_MD_STRIDED,
    WFI_MD_C16,    /* nChw16c */
    WFI_MD_16I16O, /* OIhw16i16o, of convolution weights */
    WFI_MD_ANY     /* the library chooses */
} wfi_md_kind;

typedef struct wfi_md {
    wfi_md_kind kind;
    dnnl_data_type_t type; /* of wfi_md_make: F32 */
    int n_dims;
    dnnl_dims_t dim, stride; /* strides in elements */
    /* Part of a parameter's window, which begins at element `first` of it. Addresses point to the
     * part. */
    bool is_part;
    int64_t first;
} wfi_md;

wfi_md wfi_md_make(wfi_md_kind kind, int n_dims, const int64_t *dim); /* STRIDED: row-major */
wfi_md wfi_md_transposed(wfi_md md);                                  /* the last two dims */
size_t wfi_md_row_major_bytes(const wfi_md *md);

/* The library's memory descriptor: owned by the caller, or borrowed from the library (shown). */
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t wfi_owned_md;
typedef const_dnnl_memory_desc_t wfi_shown_md;
#else
typedef dnnl_memory_desc_t *wfi_owned_md;
typedef const dnnl_memory_desc_t *wfi_shown_md;
#endif

/* Common arguments of all calls. The engine outlives all objects made on it. */
typedef struct wfi_onednn_library {
    wf_context *ctx;
    dnnl_engine_t engine;
    int n_skipped; /* skipped kernels of the library for the same description, in its order */
} wfi_onednn_library;

wf_status wfi_library_open(wf_context *ctx, wfi_onednn_library *lib_out);
void wfi_library_close(wfi_onednn_library *lib);

/* Records "oneDNN could not <verb> <object>: <status in words>". WF_OK for success. */
wf_status wfi_library_check(wf_context *ctx, dnnl_status_t status, const char *verb,
                            const char *object);

wf_status wfi_md_own(const wfi_onednn_library *lib, const wfi_md *md, wfi_owned_md *md_out);
wf_status wfi_md_copy(const wfi_onednn_library *lib, wfi_shown_md md, wfi_owned_md *md_out);
void wfi_md_disown(const wfi_onednn_library *lib, wfi_owned_md md); /* NULL is allowed */

/* ---- primitives ---- */

typedef struct wfi_spatial_window { /* of a convolution or a pooling; the same in both dims */
    int64_t kernel[2], stride, pad;
    int64_t gap;        /* between a convolution's weights: its dilation - 1 */
    int64_t pad_end[2]; /* at the bottom and right */
} wfi_spatial_window;

/* A primitive to describe. `md` are src, weight, bias and dst (convolution, inner product); a, b,
 * bias and dst (matmul); a, b and dst (binary); src and dst (pooling); data and statistics (layer
 * norm); data, which src and dst look like (the others). Of a backward they are the gradients. */
typedef struct wfi_primitive_op {
    dnnl_primitive_kind_t kind;
    dnnl_alg_kind_t alg;
    wfi_md md[4];
    wfi_spatial_window window; /* of a convolution or a pooling */
    float alpha;               /* of an eltwise */
    float eps;                 /* of norms, with flags of dnnl_normalization_flags_t */
    unsigned flags;
} wfi_primitive_op;

/* `prop` is the direction: dnnl_forward_training or dnnl_forward_inference. */
wf_status wfi_describe(const wfi_onednn_library *lib, dnnl_prop_kind_t prop,
                       const wfi_primitive_op *p, dnnl_primitive_desc_t *desc_out);
/* dnnl_backward_data, dnnl_backward_weights or dnnl_backward, with the description of a forward as
 * its hint, which lives as long. */
wf_status wfi_describe_backward(const wfi_onednn_library *lib, dnnl_prop_kind_t prop,
                                const wfi_primitive_op *forward, const wfi_primitive_op *backward,
                                dnnl_primitive_desc_t *hint_out, dnnl_primitive_desc_t *desc_out);
/* No backward of a norm needs the shift, but layer norm's must be given one, and batch norm's must
 * in oneDNN 2 and must not in 3. */
enum { WFI_BATCH_NORM_BACKWARD_TAKES_SHIFT = DNNL_VERSION_MAJOR < 3 };
/* src_layer [t, n, in], src_iter and src_iter_c [1, 1, n, h], weights_layer [1, 1, in, 4, h],
 * weights_iter [1, 1, h, 4, h], bias [1, 1, 4, h], dst_layer, dst_iter, dst_iter_c; of a backward
 * their gradients, too, in the same order. */
#define WFI_LSTM_MDS 9
wf_status wfi_describe_lstm(const wfi_onednn_library *lib, dnnl_prop_kind_t prop,
                            const wfi_md *const md[WFI_LSTM_MDS],
                            const wfi_md *const diff[WFI_LSTM_MDS],
                            const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *desc_out);
/* `add`: the reorder adds to dst. */
wf_status wfi_describe_reorder(const wfi_onednn_library *lib, wfi_shown_md src, wfi_shown_md dst,
                               bool add, dnnl_primitive_desc_t *desc_out);

/* The implementation's name; lives as long as the descriptor. */
const char *wfi_desc_name(const_dnnl_primitive_desc_t desc);
bool wfi_desc_is_reference(const_dnnl_primitive_desc_t desc); /* the library's slow one */
/* The memory of an execution argument (DNNL_ARG_...), NULL if there is none. */
wfi_shown_md wfi_desc_md(const_dnnl_primitive_desc_t desc, int arg);
/* Bytes from its address to the end of its last element. For a memory inside another one, the
 * library's own size would include the full stride of the last row. */
size_t wfi_shown_md_reach(wfi_shown_md md);
