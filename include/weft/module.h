/* A module: a model with its weights on one device, to be applied to arrays; and DataParallel
 * in one process, as a function and as the four parts that it is made of.
 *
 *     wf_module_replicate(module, devices, 2, replicas);
 *     wf_array_scatter(input, devices, 2, inputs, &n);
 *     wf_parallel_apply(replicas, inputs, n, outputs);
 *     wf_array_gather(outputs, n, devices[0], &output);
 *
 * gives the bits of wf_module_apply(module, input, &output). Modules compute forward only: no
 * dropout, batch norm by running statistics, and hidden state (wf_lstm) begins with zeros for every
 * sample of every call. To train in parallel, give a trainer a plan.
 * A module is used by one thread at a time.
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
    const char *output; /* the wf_output that it returns; NULL: the model's only one */
    uint64_t seed;      /* of its weights */
    /* Samples that are computed together. Libraries sum in another order for other sizes, so bits
     * are those of the whole batch where parts begin at multiples of this: always with 1. 0: all
     * that one call is given, which is fastest and only as exact as the library. */
    int64_t grain;
    wf_kernels kernels;
    int n_threads;
    int64_t timeout_ms; /* of a wait without progress; 0 = WEFT_TIMEOUT_MS, or 600,000 */
} wf_module_config;

#define WF_MODULE_CONFIG_INIT                                                                      \
    { sizeof(wf_module_config), 0, 0, 0, 1, WF_KERNELS_FAST, 1, 0 }

#ifdef __cplusplus
extern "C" {
#endif

/* The model's output has to depend on one input only; others, such as labels, are not asked
 * for. The model may be destroyed. `config` NULL: the defaults. Errors: INVALID_ARG (no such
 * output, none, several inputs), UNSUPPORTED (no such device), those of the model. */
WF_API WF_NODISCARD wf_status wf_module_create(wf_context *ctx, const wf_model *model,
                                               const wf_module_config *config,
                                               wf_module **module_out);
WF_API void wf_module_destroy(wf_module *module); /* NULL is allowed */
WF_API const char *wf_module_device(const wf_module *module);

/* As wf_trainer_load_weights and wf_trainer_read. */
WF_API WF_NODISCARD wf_status wf_module_load_weights(wf_module *module, const char *path);
WF_API WF_NODISCARD wf_status wf_module_read(wf_module *module, const char *name, void *dst,
                                             size_t dst_bytes);

/* module(input): `input` [n, sample...] on the module's device, any n >= 1; *output_out is on it,
 * too. Errors: SHAPE (also: another dtype or device), INVALID_ARG (a token that the model does not
 * have), TIMEOUT, DEVICE. */
WF_API WF_NODISCARD wf_status wf_module_apply(wf_module *module, const wf_array *input,
                                              wf_array **output_out);

/* ---- data parallel ---- */

/* A copy with the module's weights of now on each device; to be destroyed one by one. */
WF_API WF_NODISCARD wf_status wf_module_replicate(wf_module *module, const char *const *devices,
                                                  int n_devices, wf_module **replicas_out);
/* Applies replicas[i] to inputs[i], all at the same time, each on its own device. Errors: those of
 * wf_module_apply, the first replica's that failed; INVALID_ARG: a replica that is given twice.
 * Nothing is left in outputs_out then. */
WF_API WF_NODISCARD wf_status wf_parallel_apply(wf_module *const *replicas, wf_array *const *inputs,
                                                int n, wf_array **outputs_out);
/* replicate, scatter, parallel_apply, gather. No devices: module(input). `output_device` NULL:
 * devices[0]. `input` may be on any device. */
WF_API WF_NODISCARD wf_status wf_data_parallel(wf_module *module, const wf_array *input,
                                               const char *const *devices, int n_devices,
                                               const char *output_device, wf_array **output_out);

#ifdef __cplusplus
}
#endif
#endif
