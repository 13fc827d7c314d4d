/* In front of weft's kernels for GPUs (src/kernel/gpu/source), which CMake puts behind it: as C for
 * the host, in the names of device.cl. */
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

#define GLOBAL
#define LOCAL static _Thread_local
#define LOCAL_POINTER
#define DEVICE         static inline
#define BARRIER        stand_in_barrier()
#define GLOBAL_BARRIER stand_in_barrier()
#define GROUP_INDEX    (stand_in_place()->group)
#define THREAD         (stand_in_place()->thread)
#define NARROW         (stand_in_place()->narrow)
#define KERNEL(name)   STAND_IN_KERNEL(name, 1, char *memory)
#define KERNEL_OF_RANKS(name)                                                                      \
    STAND_IN_KERNEL(name, 9, char *m0, char *m1, char *m2, char *m3, char *m4, char *m5, char *m6, \
                    char *m7, char *m8)
#define MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))
#define M_NAN                 NAN
#define M_INFINITY            INFINITY
#define AS_FLOAT(bits)        stand_in_float(bits)
#define AS_UINT(number)       stand_in_bits(number)

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
