/* The common subset of OpenCL C 1.2 and CUDA C++ (NVRTC), under one name each. Every kernel is
 * launched in groups of GROUP threads, with the memory of its operands and with `a`: the offset of
 * each operand, numbers, and the values of the microbatch. If the memory has addresses, its base is
 * 0 and the offsets are addresses. Kernels report to the host through `words`, which belong to the
 * stream. No sum depends on the order in which threads run: there are no atomic additions. */
#if defined(__OPENCL_VERSION__)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_POINTER __local
#define DEVICE static inline
#define ENTRY __kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define GLOBAL_BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define GROUP_INDEX ((long)get_group_id(0))
#define THREAD ((int)get_local_id(0))
#ifdef FP_FAST_FMAF
#define MULTIPLY_ADD(x, y, z) fma(x, y, z)
#else
#define MULTIPLY_ADD(x, y, z) ((x) * (y) + (z))
#endif
#define M_NAN NAN
#define M_INFINITY INFINITY
#define expf exp
#define tanhf tanh
#define AS_FLOAT(bits) as_float(bits)
#define AS_UINT(number) as_uint(number)
#elif defined(__CUDACC_RTC__)
typedef unsigned long ulong;
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
#define GLOBAL
#define LOCAL __shared__
#define LOCAL_POINTER
#define DEVICE static __device__ inline
#define ENTRY extern "C" __global__ void __launch_bounds__(GROUP)
#define BARRIER __syncthreads()
#define GLOBAL_BARRIER __syncthreads()
#define GROUP_INDEX ((long)blockIdx.x)
#define THREAD ((int)threadIdx.x)
#define MULTIPLY_ADD(x, y, z) fmaf(x, y, z)
#define M_NAN __int_as_float(0x7fffffff)
#define M_INFINITY __int_as_float(0x7f800000)
#define AS_FLOAT(bits) __uint_as_float(bits)
#define AS_UINT(number) __float_as_uint(number)
#endif

#ifdef ENTRY /* else tests define the following for the host's C */
#define MEMORY(k) GLOBAL char *m##k
#define KERNEL(name) ENTRY name(GLOBAL char *memory, GLOBAL int *words, const arguments a)
#define KERNEL_OF_RANKS(name)                                                                      \
    ENTRY name(MEMORY(0), MEMORY(1), MEMORY(2), MEMORY(3), MEMORY(4), MEMORY(5), MEMORY(6),        \
               MEMORY(7), MEMORY(8), GLOBAL int *words, const arguments a)
#endif

#define GROUP 64

typedef struct {
    ulong at[16];
    long n[16];
    double f[12];
} arguments;

#define SCRATCH 15 /* of the node, where its kernels have some */
#define HAS(i) (a.at[i] != ~(ulong)0)
#define OPERAND(type, i) ((GLOBAL type *)(memory + a.at[i]))

/* Element `at` of an operand of numbers. The type is BF16, rounded to nearest even, if bit i of
 * NARROW is set; otherwise F32. If bit 16 + i is set, F32 counts as if it were BF16. Kernels
 * compute in F32 or wider. */
#ifndef NARROW
#define NARROW 0u
#endif
#define IS_NARROW(i) (NARROW >> (i) & 1u)
#define IS_ROUNDED(i) (NARROW >> (16 + (i)) & 1u)
#define GET(i, at)                                                                                 \
    (IS_NARROW(i)    ? widen(OPERAND(ushort, i)[at])                                               \
     : IS_ROUNDED(i) ? widen(round_off(F32(i)[at]))                                                \
                     : F32(i)[at])
#define PUT(i, at, value)                                                                          \
    do {                                                                                           \
        if (IS_NARROW(i))                                                                          \
            OPERAND(ushort, i)[at] = round_off(value);                                             \
        else                                                                                       \
            F32(i)[at] = (value);                                                                  \
    } while (0)

DEVICE float widen(ushort x) {
    return AS_FLOAT((uint)x << 16);
}

DEVICE ushort round_off(float x) {
    uint bits = AS_UINT(x);
    return (ushort)((x != x ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Values of the step, in every kernel's arguments. */
#define SEED a.n[13]
#define STEP a.n[14]
#define FIRST_SAMPLE a.n[15]
#define LOSS_SCALE a.f[11]

/* Parameters of kernels' functions, and the arguments that they pass on. */
#define ARGUMENTS GLOBAL char *memory, const arguments a
#define PASSED memory, a

/* The group's sum, or its largest, in all threads; `part` [GROUP]. */
DEVICE double group_combine(LOCAL_POINTER double *part, double value, int is_max) {
    BARRIER;
    part[THREAD] = value;
    BARRIER;
    for (int reach = GROUP / 2; reach > 0; reach /= 2) {
        if (THREAD < reach) {
            double own = part[THREAD], other = part[THREAD + reach];
            part[THREAD] = !is_max ? own + other : other > own ? other : own;
        }
        BARRIER;
    }
    return part[0];
}
#define group_sum(part, value) group_combine(part, value, 0)
#define group_max(part, value) group_combine(part, value, 1)
