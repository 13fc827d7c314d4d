/* In front of weft's kernels for GPUs (src/kernel/gpu/source), which CMake puts behind it: as C for
 * the host. */
#include "stand_in.h"

#include <string.h>
#include <tgmath.h>

typedef unsigned char uchar;

static inline float stand_in_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t stand_in_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

#define PARAMETERS_1(m) m[0]
#define PARAMETERS_9(m) m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8]
/* The kernel, stand_in_NAME, and what a thread of it does, whose body follows. */
#define STAND_IN_KERNEL(name, n, ...)                                                              \
    static void name##_thread(__VA_ARGS__, int *words, const arguments a);                         \
    static void name##_run(char *const memories[], int *words, const stand_in_arguments *a) {      \
        name##_thread(PARAMETERS_##n(memories), words, *(const arguments *)(const void *)a);       \
    }                                                                                              \
    extern STAND_IN_API const stand_in_kernel stand_in_##name;                                     \
    const stand_in_kernel stand_in_##name = {n, name##_run};                                       \
    static void name##_thread(__VA_ARGS__, int *words, const arguments a)
