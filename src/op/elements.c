/* The plain C kernels of elementwise ops, by the formulas of elements.cl. */
#include "op/plain.h"

#define FACTOR  ((float)a.call->attr->scale.factor)
#define IS_TANH (a.call->attr->gelu.tanh)

/* One group has all elements, so that they become vectors. */
#undef FOR_ELEMENT
#define FOR_ELEMENT(i) for (int64_t i = 0; i < a.n[0]; i++)
#undef KERNEL
#define KERNEL(name)                                                                               \
    static inline void name##_elements(const arguments a);                                         \
    void wfi_##name##_reference(const wfi_call *call) {                                            \
        const wfi_numbers told = wfi_element_numbers(&call->out[0].shape, 0);                      \
        name##_elements(plain_arguments(call, &told));                                             \
    }                                                                                              \
    static inline void name##_elements(const arguments a)

#include "op/elements.cl"

wfi_numbers wfi_scale_numbers(const wfi_call *call) {
    wfi_numbers own = wfi_element_numbers(&call->out[0].shape, 0);
    own.f[0] = call->attr->scale.factor;
    return own;
}

wfi_numbers wfi_gelu_numbers(const wfi_call *call) {
    return wfi_element_numbers(&call->out[0].shape, call->attr->gelu.tanh);
}
