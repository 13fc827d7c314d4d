/* The plain C kernels of what is computed element by element, by the formulas of elements.cl. */
#include "op/check.h"

#include <math.h>

#define DEVICE  static inline
#define FACTOR  ((float)call->attr->scale.factor)
#define IS_TANH (call->attr->gelu.tanh)

#define UNARY(name, value)                                                                         \
    void wfi_##name##_reference(const wfi_call *call) {                                            \
        const float *in = call->in[0].data;                                                        \
        float *out = call->out[0].data;                                                            \
        int64_t n = wf_shape_n_elem(&call->out[0].shape);                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float x = in[i];                                                                       \
            out[i] = (value);                                                                      \
        }                                                                                          \
    }
#define BINARY(name, value)                                                                        \
    void wfi_##name##_reference(const wfi_call *call) {                                            \
        const float *first = call->in[0].data, *second = call->in[1].data;                         \
        float *out = call->out[0].data;                                                            \
        int64_t n = wf_shape_n_elem(&call->out[0].shape);                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float x = first[i], y = second[i];                                                     \
            out[i] = (value);                                                                      \
        }                                                                                          \
    }

#include "op/elements.cl"
