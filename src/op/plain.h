/* Plain C kernels from the texts that devices compile, too (groups.cl): a group has one thread. The
 * including file includes texts after this header and so gets references of their kernels.
 *
 * Private to src/op; included by one .c file each. */
#pragma once

#include "op/check.h"

#include <math.h>
#include <string.h>

typedef unsigned char uchar;

typedef struct arguments {
    const wfi_call *call;
    void *at[16]; /* NULL: absent */
    int64_t n[16];
    double f[12];
} arguments;

#define GROUP       1
#define GROUP_INDEX group
#define THREAD      0
#define LOCAL
#define LOCAL_POINTER
#define DEVICE    static inline
#define ARGUMENTS const arguments a
#define PASSED    a

#define HAS(i)               (a.at[i] != NULL)
#define OPERAND(type, i)     ((type *)a.at[i])
#define GET(i, place)        (((const float *)a.at[i])[place])
#define PUT(i, place, value) ((float *)a.at[i])[place] = (value)

#define M_NAN                  ((float)NAN)
#define group_sum(part, value) ((void)(part), (value))
#define group_max(part, value) ((void)(part), (value))

#define KERNEL(name) static inline void name##_group(const arguments a, int64_t group)

/* IN(i) or OUT(i) of the call. */
static inline const wfi_operand *plain_operand(const wfi_call *call, int i) {
    return i < 8 ? &call->in[i] : &call->out[i - 8];
}

/* A reference: this kernel, for all groups. */
#define PLAIN_REFERENCE(name, kernel, numbers)                                                     \
    static void name(const wfi_call *call) {                                                       \
        const wfi_numbers told = numbers(call);                                                    \
        const arguments a = plain_arguments(call, &told);                                          \
        int64_t n_groups = told.n_threads ? told.n_threads : told.n_groups;                        \
        for (int64_t group = 0; group < n_groups; group++) kernel##_group(a, group);               \
    }

static inline arguments plain_arguments(const wfi_call *call, const wfi_numbers *numbers) {
    arguments a = {.call = call};
    for (int i = 0; i < call->n_in && i < 8; i++) a.at[i] = call->in[i].data;
    for (int i = 0; i < call->n_out; i++) a.at[8 + i] = call->out[i].data;
    memcpy(a.n, numbers->n, sizeof a.n);
    memcpy(a.f, numbers->f, sizeof a.f);
    return a;
}

/* The first output, for kernels that write a part of it. */
static inline void plain_clear(const wfi_call *call) {
    memset(call->out[0].data, 0, (size_t)wf_shape_n_elem(&call->out[0].shape) * sizeof(float));
}

#include "op/groups.cl"
