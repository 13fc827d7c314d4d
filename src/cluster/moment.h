/* Memory of weft's programs at its highest. Private. */
#pragma once

#include "cluster/predict.h"

/* Bytes of a device beside parameters and state. */
typedef struct wfi_case_moment {
    double gradients;
    double activations; /* kept from forward to backward; 0: they are offloaded */
    double buffers;     /* values while a block computes, and weights in kernels' formats */
} wfi_case_moment;

/* The moment of device `at`, which holds so many microbatches at most. */
wfi_case_moment wfi_moment_find(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                                const wfi_stage_work *stages, int at, double held);
