#include "run/optimizer.h"

#include <math.h>

static void sgd(const wf_recipe *r, float lr, float scale, float *restrict param,
                const float *restrict gradient, float *restrict momentum, size_t n) {
    float decay = (float)r->weight_decay, mu = (float)r->momentum;
    if (!momentum) {
        for (size_t i = 0; i < n; i++) {
            float g = gradient[i] * scale + decay * param[i];
            param[i] -= lr * g;
        }
    } else if (r->nesterov) {
        for (size_t i = 0; i < n; i++) {
            float g = gradient[i] * scale + decay * param[i];
            momentum[i] = mu * momentum[i] + g;
            param[i] -= lr * (g + mu * momentum[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            float g = gradient[i] * scale + decay * param[i];
            momentum[i] = mu * momentum[i] + g;
            param[i] -= lr * momentum[i];
        }
    }
}

static void adam(const wf_recipe *r, double lr, int64_t step, float scale, float *restrict param,
                 const float *restrict gradient, float *restrict first, float *restrict second,
                 size_t n) {
    bool decoupled = r->optimizer == WF_ADAMW;
    double correction1 = 1 - pow(r->beta1, (double)(step + 1));
    double correction2 = 1 - pow(r->beta2, (double)(step + 1));
    float keep = decoupled ? (float)(1 - lr * r->weight_decay) : 1.0f;
    float decay = decoupled ? 0.0f : (float)r->weight_decay;
    float beta1 = (float)r->beta1, rest1 = (float)(1 - r->beta1);
    float beta2 = (float)r->beta2, rest2 = (float)(1 - r->beta2);
    float rate = (float)(lr / correction1), root = (float)sqrt(correction2);
    float epsilon = (float)r->epsilon;
    for (size_t i = 0; i < n; i++) {
        float p = param[i] * keep;
        float g = gradient[i] * scale + decay * p;
        first[i] = beta1 * first[i] + rest1 * g;
        second[i] = beta2 * second[i] + rest2 * g * g;
        param[i] = p - rate * first[i] / (sqrtf(second[i]) / root + epsilon);
    }
}

void wfi_optimizer_update(const wf_recipe *recipe, double lr, int64_t step, float gradient_scale,
                          float *param, const float *gradient, float *state, size_t n) {
    if (recipe->optimizer == WF_SGD)
        sgd(recipe, (float)lr, gradient_scale, param, gradient, state, n);
    else
        adam(recipe, lr, step, gradient_scale, param, gradient, state, state + n, n);
}

void wfi_gradient_squares(const float *gradient, size_t n, double *squares_out) {
    for (size_t begin = 0; begin < n; begin += WFI_NORM_BLOCK_ELEMENTS) {
        size_t end = begin + WFI_NORM_BLOCK_ELEMENTS < n ? begin + WFI_NORM_BLOCK_ELEMENTS : n;
        double sum = 0;
        for (size_t i = begin; i < end; i++) sum += (double)gradient[i] * (double)gradient[i];
        squares_out[begin / WFI_NORM_BLOCK_ELEMENTS] = sum;
    }
}

double wfi_tree_sum(const double *values, size_t n) {
    if (n == 0) return 0;
    if (n == 1) return values[0];
    size_t left = (n + 1) / 2;
    return wfi_tree_sum(values, left) + wfi_tree_sum(values + left, n - left);
}
