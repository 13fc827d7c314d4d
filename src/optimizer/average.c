/* An exponential moving average of weights, with any optimizer; PyTorch's AveragedModel with
 * get_ema_multi_avg_fn. */
#include "optimizer/optimizer.h"

typedef struct averaging {
    float *average;
    const float *param;
    size_t n;
    float weight; /* of the new values */
} averaging;

WFI_LOOP void average_loop(const averaging *a) {
    float *restrict average = a->average, weight = a->weight;
    const float *restrict param = a->param;
    for (size_t i = 0, n = a->n; i < n; i++) average[i] += weight * (param[i] - average[i]);
}

WFI_VARIANTS(run, averaging, average_loop)

float wfi_average_weight(const wf_recipe *recipe, int64_t step) {
    return step ? (float)(1 - recipe->ema) : 1.0f;
}

void wfi_average_update(wfi_variant variant, const wf_recipe *recipe, int64_t step,
                        const float *param, float *average, size_t n) {
    run(variant, &(averaging){average, param, n, wfi_average_weight(recipe, step)});
}
