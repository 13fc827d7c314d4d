#include "run/optimizer.h"

#include "base/finite.h"

#include <math.h>

/* What is updated before it is looked at: little enough to be in the cache still. */
#define BLOCK_ELEMENTS 4096

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

typedef struct adam_rates {
    float keep, decay, beta1, rest1, beta2, rest2, rate, root, epsilon;
} adam_rates;

static adam_rates find_rates(const wf_recipe *r, double lr, int64_t step) {
    bool decoupled = r->optimizer == WF_ADAMW;
    double correction1 = 1 - pow(r->beta1, (double)(step + 1));
    double correction2 = 1 - pow(r->beta2, (double)(step + 1));
    return (adam_rates){.keep = decoupled ? (float)(1 - lr * r->weight_decay) : 1.0f,
                        .decay = decoupled ? 0.0f : (float)r->weight_decay,
                        .beta1 = (float)r->beta1,
                        .rest1 = (float)(1 - r->beta1),
                        .beta2 = (float)r->beta2,
                        .rest2 = (float)(1 - r->beta2),
                        .rate = (float)(lr / correction1),
                        .root = (float)sqrt(correction2),
                        .epsilon = (float)r->epsilon};
}

static void adam(const adam_rates *r, float scale, float *restrict param,
                 const float *restrict gradient, float *restrict first, float *restrict second,
                 size_t n) {
    for (size_t i = 0; i < n; i++) {
        float p = param[i] * r->keep;
        float g = gradient[i] * scale + r->decay * p;
        first[i] = r->beta1 * first[i] + r->rest1 * g;
        second[i] = r->beta2 * second[i] + r->rest2 * g * g;
        param[i] = p - r->rate * first[i] / (sqrtf(second[i]) / r->root + r->epsilon);
    }
}

/* A momentum, or a first moment, that is not finite makes the parameter so in the same step. */
static wfi_update_result look(const float *param, const float *second, size_t n) {
    if (wfi_find_not_finite(param, n) < n) return WFI_UPDATE_PARAM;
    return second && wfi_find_not_finite(second, n) < n ? WFI_UPDATE_STATE : WFI_UPDATE_FINITE;
}

wfi_update_result wfi_optimizer_update(const wf_recipe *recipe, double lr, int64_t step,
                                       float gradient_scale, float *param, const float *gradient,
                                       float *state, size_t n) {
    bool is_sgd = recipe->optimizer == WF_SGD;
    adam_rates rates = {0};
    wfi_update_result worst = WFI_UPDATE_FINITE;
    if (!is_sgd) rates = find_rates(recipe, lr, step);
    for (size_t at = 0; at < n; at += BLOCK_ELEMENTS) {
        size_t n_now = n - at < BLOCK_ELEMENTS ? n - at : BLOCK_ELEMENTS;
        float *first = state ? state + at : NULL, *second = is_sgd ? NULL : state + n + at;
        if (is_sgd)
            sgd(recipe, (float)lr, gradient_scale, param + at, gradient + at, first, n_now);
        else
            adam(&rates, gradient_scale, param + at, gradient + at, first, second, n_now);
        wfi_update_result now = look(param + at, second, n_now);
        if (now > worst) worst = now;
    }
    return worst;
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
