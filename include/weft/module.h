/* Modules: a model with its weights on one device, applied to arrays.
 *
 * This header also has DataParallel in one process, as one function and as its four parts:
 *
 *     wf_module_replicate(module, devices, 2, replicas);
 *     wf_array_scatter(input, devices, 2, inputs, &n);
 *     wf_parallel_apply(replicas, inputs, n, outputs);
 *     wf_array_gather(outputs, n, devices[0], &output);
 *
 * The result has the bits of wf_module_apply(module, input, &output). Modules compute forward only:
 * without dropout, with running statistics in batch norm, and with zeros as the initial hidden
 * state (wf_lstm) of every sample in every call. For parallel training, give a trainer a plan. One
 * thread at a time uses a module.
 */
#ifndef WEFT_MODULE_H
#define WEFT_MODULE_H

#include <weft/array.h>
#include <weft/model.h>
#include <weft/recipe.h>

typedef struct wf_module wf_module;

typedef struct wf_module_config {
    size_t struct_size;
    const char *device; /* NULL: "cpu:0" */
    const char *output; /* the name of the wf_output to return; NULL: the model's only output */
    uint64_t seed;      /* of the initial weights */
    /* The number of samples to compute together. Libraries may sum in another order for another
     * number of samples. The bits of a part equal those of the whole batch if parts begin at
     * multiples of the grain, so always with 1. 0: all samples of a call, which is the fastest, and
     * exact only as far as the library is. */
    int64_t grain;
    wf_kernels kernels;
    int n_threads;
    int64_t timeout_ms; /* for a wait without progress; 0 = WEFT_TIMEOUT_MS, or 600,000 */
} wf_module_config;

#define WF_MODULE_CONFIG_INIT                                                                      \
    { sizeof(wf_module_config), 0, 0, 0, 1, WF_KERNELS_FAST, 1, 0 }

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a module with initial weights. Its output must depend on exactly one input; other inputs,
 * such as labels, are not needed. The model may be destroyed afterwards. `config` NULL means
 * WF_MODULE_CONFIG_INIT. Errors: INVALID_ARG (the output does not exist, is ambiguous or depends on
 * another number of inputs; a negative grain; a bad device name), SHAPE (dim 0 of the output is not
 * the samples), UNSUPPORTED (not a CPU device), those of wf_trainer_create. */
WF_API WF_NODISCARD wf_status wf_module_create(wf_context *ctx, const wf_model *model,
                                               const wf_module_config *config,
                                               wf_module **module_out);
WF_API void wf_module_destroy(wf_module *module); /* NULL is allowed */
/* The name of the module's device, such as "cpu:0"; borrowed. */
WF_API const char *wf_module_device(const wf_module *module);

/* As wf_trainer_load_weights and wf_trainer_read. Errors: those of these functions. */
WF_API WF_NODISCARD wf_status wf_module_load_weights(wf_module *module, const char *path);
WF_API WF_NODISCARD wf_status wf_module_read(wf_module *module, const char *name, void *dst,
                                             size_t dst_bytes);

/* Computes module(input). `input` is [n, sample...] on the module's device with any n >= 1; the
 * output is on the same device. Errors: SHAPE (also: another dtype or device), INVALID_ARG (a token
 * that is not in the vocabulary), TIMEOUT, DEVICE, NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_module_apply(wf_module *module, const wf_array *input,
                                              wf_array **output_out);

/* ---- data parallel ---- */

/* Copies the module, with its present weights, to each device. Destroy each replica; on failure
 * none exists. Errors: INVALID_ARG (a bad device name), UNSUPPORTED (not a CPU device), NO_MEMORY,
 * others of wf_module_create. */
WF_API WF_NODISCARD wf_status wf_module_replicate(wf_module *module, const char *const *devices,
                                                  int n_devices, wf_module **replicas_out);
/* Applies replicas[i] to inputs[i], all at the same time, each on its own device. On failure no
 * output exists. Errors: those of wf_module_apply for the first replica that failed, which the
 * sentence names; INVALID_ARG (one replica twice). */
WF_API WF_NODISCARD wf_status wf_parallel_apply(wf_module *const *replicas, wf_array *const *inputs,
                                                int n, wf_array **outputs_out);
/* Replicates, scatters, applies and gathers, as above. Without devices, the same as
 * wf_module_apply. `output_device` NULL means devices[0]. `input` may be on any device. Errors:
 * those of wf_module_replicate, wf_array_scatter, wf_parallel_apply and wf_array_gather. */
WF_API WF_NODISCARD wf_status wf_data_parallel(wf_module *module, const wf_array *input,
                                               const char *const *devices, int n_devices,
                                               const char *output_device, wf_array **output_out);

#ifdef __cplusplus
}
#endif
#endif
