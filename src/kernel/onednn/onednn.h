/* Shared by the files of this folder. A kernel is one or a few oneDNN primitives in sequence. Their
 * arguments are operands of the node or parts of its scratch memory. The other files describe the
 * primitives and bind operands to arguments; onednn.c prepares, runs and destroys.
 */
#pragma once

#include "kernel/kernel.h"
#include "kernel/onednn/library.h"

#define WFI_MAX_PRIMITIVES 5
#define WFI_MAX_ARGUMENTS  20
#define WFI_SCRATCH        (-1) /* in place of an operand */

typedef struct wfi_primitive {
    dnnl_primitive_desc_t desc;
    dnnl_primitive_desc_t hint; /* the forward's, if this is a backward; kept as long */
    dnnl_primitive_t primitive; /* NULL until prepared */
    int n_args;
    dnnl_exec_arg_t args[WFI_MAX_ARGUMENTS];
    int operand[WFI_MAX_ARGUMENTS];
    size_t offset[WFI_MAX_ARGUMENTS]; /* bytes into the operand */
    void *bound[WFI_MAX_ARGUMENTS];   /* where the argument's memory points to now */
} wfi_primitive;

typedef wf_status (*wfi_run_function)(wfi_kernel *kernel, wfi_stream_queue *stream,
                                      void *const operands[], void *scratch,
                                      const wfi_step_args *step);

typedef struct wfi_onednn {
    wfi_onednn_library lib;
    dnnl_stream_t stream;
    int n_threads;
    int n_primitives;
    wfi_primitive primitives[WFI_MAX_PRIMITIVES];
    struct wfi_onednn_format *formats[WFI_MAX_OPERANDS]; /* owned; NULL: plain */
    size_t own_scratch_bytes;   /* before the primitives' scratchpads, for values between them */
    size_t own_workspace_bytes; /* an opaque value's, unknown to the library */
    wfi_run_function run;       /* NULL: the primitives, one after the other */
} wfi_onednn;

/* Fills a kernel that has a new wfi_onednn as its state. UNSUPPORTED declines. */
typedef wf_status (*wfi_describe_function)(wfi_kernel *kernel, const char **reason_out);

wf_status wfi_describe_conv2d(wfi_kernel *, const char **);
wf_status wfi_describe_conv2d_backward_data(wfi_kernel *, const char **);
wf_status wfi_describe_conv2d_backward_weight(wfi_kernel *, const char **);
wf_status wfi_describe_bn(wfi_kernel *, const char **);
wf_status wfi_describe_ln(wfi_kernel *, const char **);
wf_status wfi_describe_activation(wfi_kernel *, const char **);
wf_status wfi_describe_arithmetic(wfi_kernel *, const char **);
wf_status wfi_describe_pool(wfi_kernel *, const char **);
wf_status wfi_describe_linear(wfi_kernel *, const char **);
wf_status wfi_describe_linear_backward_data(wfi_kernel *, const char **);
wf_status wfi_describe_linear_backward_weight(wfi_kernel *, const char **);
wf_status wfi_describe_product(wfi_kernel *, const char **);
wf_status wfi_describe_softmaxes(wfi_kernel *, const char **);
wf_status wfi_describe_cross_entropy(wfi_kernel *, const char **);
wf_status wfi_describe_attention(wfi_kernel *, const char **);
wf_status wfi_describe_layout(wfi_kernel *, const char **);
wf_status wfi_describe_recurrent(wfi_kernel *, const char **);

/* The forms of ops that have several (kernel.h). */
extern const char *const wfi_conv_forms[], *const wfi_linear_forms[], *const wfi_product_forms[];

static inline wfi_onednn *wfi_onednn_of(const wfi_kernel *kernel) {
    return kernel->state;
}

/* A state with an open engine and stream. */
wf_status wfi_onednn_open(wfi_kernel *kernel, int n_threads);
/* For describing primitives that compute, not reorders or hints: skips the library's kernels before
 * the one of kernel->way. */
wfi_onednn_library wfi_library_at(const wfi_kernel *kernel);

/* How an operand's value lies in memory: of its shape; as [rows, last dim]; or as one long row, for
 * elementwise ops. ABSENT if the operand is absent. */
wfi_md wfi_operand_md(const wfi_kernel *kernel, int operand);
wfi_md wfi_operand_rows(const wfi_kernel *kernel, int operand);
wfi_md wfi_operand_row(const wfi_kernel *kernel, int operand);
/* Whether an operand is BF16. */
static inline bool wfi_is_narrow(const wfi_kernel *kernel, int operand) {
    return wfi_operand_md(kernel, operand).type == dnnl_bf16;
}
/* Whether there are several types among operands of the first one's shape. */
bool wfi_is_mixed(const wfi_kernel *kernel);

/* Appends a primitive; `desc` and `hint` (may be NULL) are the kernel's from here
 * on, also on failure. Declines the library's own reference implementations. */
wf_status wfi_add_primitive(wfi_kernel *kernel, dnnl_primitive_desc_t desc,
                            dnnl_primitive_desc_t hint, const char **reason_out,
                            wfi_primitive **primitive_out);
/* Execution arguments (DNNL_ARG_...) of a node's inputs and outputs; 0: the operand is none. */
typedef struct wfi_arguments {
    int in[WFI_MAX_INPUTS], out[WFI_MAX_OUTPUTS];
} wfi_arguments;
/* Describes and appends a primitive, and binds the operands that are present. `backward` NULL: it
 * is the forward. *primitive_out (NULL is allowed) is for further arguments. */
wf_status wfi_add_op(wfi_kernel *kernel, dnnl_prop_kind_t prop, const wfi_primitive_op *forward,
                     const wfi_primitive_op *backward, const wfi_arguments *arguments,
                     const char **reason_out, wfi_primitive **primitive_out);
/* A forward and its backward may exchange a workspace that only this library can read, so a forward
 * is declined if its backward would be. */
wf_status wfi_check_backward(const wfi_kernel *kernel, dnnl_prop_kind_t prop,
                             const wfi_primitive_op *p);
/* Binds execution argument `arg` to the start of `operand` and sets the operand's extent to the
 * size of the argument's memory. */
wf_status wfi_bind(wfi_kernel *kernel, wfi_primitive *primitive, int arg, int operand);
/* The same somewhere inside it; the extent is left alone. */
wf_status wfi_bind_at(wfi_kernel *kernel, wfi_primitive *primitive, int arg, int operand,
                      size_t offset_bytes);
/* Binds a parameter or its gradient, publishing the format the primitive asks for
 * if it is not `plain`. */
wf_status wfi_bind_format(wfi_kernel *kernel, wfi_primitive *primitive, int arg, int operand,
                          const wfi_md *plain);

/* Appends a reorder of `from` into `to`, each somewhere inside an operand or the
 * scratch memory; the extents of operands become theirs. */
wf_status wfi_add_move(wfi_kernel *kernel, const wfi_md *from, int from_operand, size_t from_bytes,
                       const wfi_md *to, int to_operand, size_t to_bytes);

wf_status wfi_run_primitive(wfi_kernel *kernel, int index, void *const operands[], void *scratch);

/* ---- format.c ---- */

/* Whether it is a convolution's weights, which look like `plain`, in whole blocks of 16 x 16. */
wf_status wfi_md_is_blocked(wf_context *ctx, wfi_shown_md md, const wfi_md *plain, bool *yes_out);

wf_status wfi_onednn_format_create(const wfi_onednn *state, wfi_shown_md md, const wfi_md *plain,
                                   struct wfi_onednn_format **format_out);
const wfi_format *wfi_onednn_format_base(const struct wfi_onednn_format *format);
void wfi_onednn_format_destroy(const wfi_onednn *state, struct wfi_onednn_format *format);
