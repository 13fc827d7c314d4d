/* Kernels: implementations of nodes. Private.
 *
 * A backend's ordered list of implementations is asked for each node; each may
 * decline with a reason (logged under the topic "dispatch"); the last never
 * declines. One that has several ways to compute a node takes the one that the recipe's table
 * names for the node's shape (tuned.h), else the usual one. The choice is made from the node, its
 * shapes and the options alone, so it is the same on every rank and in every run.
 *
 * Describing a kernel touches no device memory: the memory plan is made from its
 * answer. Preparing (JIT compilation) and running happen on the compute thread.
 */
#pragma once

#include "device/device.h"
#include "kernel/tuned.h"

#include <weft/recipe.h>

#define WFI_MAX_OPERANDS (WFI_MAX_INPUTS + WFI_MAX_OUTPUTS)

/* How a library multiplies BF16 on this processor: it has no instruction for it, F32 is as fast, or
 * faster, or it is faster than F32. */
typedef enum wfi_bf16_speed { WFI_BF16_ABSENT, WFI_BF16_SLOW, WFI_BF16_FAST } wfi_bf16_speed;

typedef struct wfi_kernel_options {
    const struct wfi_backend *backend; /* the kernels' backend (kernel/backend.h) */
    int n_threads;                     /* the kernel's own, part of the recipe */
    wf_conv conv;                      /* auto: Winograd where the shape makes it faster */
    const char *tuned;                 /* the recipe's (tuned.h), which goes before `conv` */
    bool reference;       /* only the plain C kernels; the layout pass is skipped too */
    bool multiplies_bf16; /* as BF16; otherwise widened to F32 */
    bool multiplies_tf32; /* F32, where the backend has it */
} wfi_kernel_options;

/* How a library wants a parameter (packed once a step) or gives a parameter's
 * gradient (unpacked as it is accumulated). */
typedef struct wfi_format {
    size_t bytes;
    const struct wfi_format_class *kind;
} wfi_format;

/* An algorithm of a node. `form` is the layout of the operands for the library, or another op that
 * the library computes instead. `number` counts the library's kernels for that form, in its
 * order. */
typedef struct wfi_way {
    int form; /* of those that the implementation has for the op, or WFI_USUAL_FORM */
    int number;
} wfi_way;
#define WFI_USUAL_FORM (-1)

typedef struct wfi_kernel wfi_kernel;
typedef struct wfi_kernel_impl {
    const char *name; /* "onednn", "reference" */
    /* Fills kernel->state, scratch_bytes, bytes, format. UNSUPPORTED declines:
     * the reason is in `reason_out` (a static string), no error is recorded. */
    wf_status (*describe)(wfi_kernel *kernel, const char **reason_out);
    /* Names of the forms of an op, or of all ops; the list ends with NULL. Both NULL: there is only
     * the usual form. `describe` replaces the usual form in kernel->way by the actual one. */
    const char *const *(*forms)(const wfi_op *op);
    const char *const *own_forms;
    /* Fills kernel->extent and scratch_extent from the library's actual arguments. NULL: they are
     * as planned. */
    wf_status (*prepare)(wfi_kernel *kernel);
    wf_status (*run)(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                     void *scratch, const wfi_step_args *step);
    void (*destroy)(wfi_kernel *kernel); /* frees kernel->state and formats */
} wfi_kernel_impl;

static inline const char *const *wfi_forms(const wfi_kernel_impl *impl, const wfi_op *op) {
    return impl->forms ? impl->forms(op) : impl->own_forms;
}

typedef struct wfi_format_class {
    bool (*equal)(const wfi_format *a, const wfi_format *b);
    /* Make kernels that are not a node's; same life as others. */
    wf_status (*pack)(wfi_kernel *kernel, const wfi_format *format, const wf_shape *shape);
    wf_status (*accumulate)(wfi_kernel *kernel, const wfi_format *format, const wf_shape *shape,
                            bool add);
} wfi_format_class;

struct wfi_kernel {
    wf_context *ctx;
    const wfi_kernel *like; /* owner of the shared state; NULL: its own */
    const wf_graph *graph;  /* outlives the kernel */
    const wfi_node *node;   /* NULL for pack and accumulate */
    wfi_kernel_options options;
    const wfi_kernel_impl *impl;
    wfi_way way;
    const char *label;  /* op name, "pack" or "accumulate" */
    const char *detail; /* the library's name of it; static or owned by state; may be "" */
    void *state;
    size_t scratch_bytes;
    bool adds;     /* to its outputs, instead of overwriting them */
    bool is_tuned; /* by the recipe's table */
    /* Operands are the node's inputs, then its outputs. */
    int n_operands;
    size_t bytes[WFI_MAX_OPERANDS];             /* extent as the kernel uses it; 0: absent */
    const wfi_format *format[WFI_MAX_OPERANDS]; /* NULL: the value's own layout */
    bool writes[WFI_MAX_OPERANDS];
    /* How far it reaches into them. Known once it is prepared; planned are `bytes` above, before.
     */
    size_t extent[WFI_MAX_OPERANDS], scratch_extent;
    double flops;
};

/* Errors: NO_MEMORY; DEVICE if a library fails where it should not. */
wf_status wfi_kernel_create(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                            const wfi_kernel_options *options, wfi_kernel **kernel_out);
/* The same for a kernel that adds its results to the outputs, up to a library's rounding. NULL if
 * there is none: such a kernel pays only where outputs are large. */
wf_status wfi_kernel_create_adding(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                                   const wfi_kernel_options *options, wfi_kernel **kernel_out);
/* The same as `like`, which outlives it, for an equal node of its graph: with the same state, so it
 * is neither prepared nor run. */
wf_status wfi_kernel_create_like(const wfi_kernel *like, const wfi_node *node,
                                 wfi_kernel **kernel_out);
/* The node in that way of an implementation; NULL if there is none such. */
wf_status wfi_kernel_create_way(wf_context *ctx, const wf_graph *graph, const wfi_node *node,
                                const wfi_kernel_options *options, const wfi_kernel_impl *impl,
                                wfi_way way, wfi_kernel **kernel_out);
/* "nhwc:brgconv:avx512_core": the layout and the library's name of the kernel; "" if the
 * implementation has one algorithm only. */
const char *wfi_kernel_way_text(const wfi_kernel *kernel, char text[WFI_WAY_TEXT]);
/* operands: plain parameter, packed copy. */
wf_status wfi_kernel_create_pack(wf_context *ctx, const wfi_kernel_options *options,
                                 const wfi_format *format, const wf_shape *shape,
                                 wfi_kernel **kernel_out);
/* operands: gradient (in `format`, NULL = plain), plain F32 accumulator, which is
 * overwritten or, with `add`, added to. */
wf_status wfi_kernel_create_accumulate(wf_context *ctx, const wfi_kernel_options *options,
                                       const wfi_format *format, const wf_shape *shape, bool add,
                                       wfi_kernel **kernel_out);
/* For describe. */
static inline wf_status wfi_decline(const char **reason_out, const char *reason) {
    *reason_out = reason;
    return WF_UNSUPPORTED;
}
bool wfi_format_equal(const wfi_format *a, const wfi_format *b);
/* Errors: BUG: the kernel accesses more memory than its description, from which memory was
 * planned. */
wf_status wfi_kernel_prepare(wfi_kernel *kernel);
/* A task of `stream` calls this. The kernel completes before the next task of the stream begins; on
 * the CPU it completes on the calling thread. `scratch` may be NULL if scratch_bytes is 0. */
wf_status wfi_kernel_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                         void *scratch, const wfi_step_args *step);
void wfi_kernel_destroy(wfi_kernel *kernel); /* NULL is allowed */

/* ---- for implementations ---- */

/* The value of an operand, NULL if it is absent. */
const wfi_value *wfi_operand_value(const wfi_kernel *kernel, int operand);
/* impl->destroy, where kernel->state is one block, or NULL. */
void wfi_kernel_free_state(wfi_kernel *kernel);
/* All of each value is used. */
void wfi_use_whole_values(wfi_kernel *kernel);
