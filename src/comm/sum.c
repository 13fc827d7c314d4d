#include "comm/sum.h"

#include "base/tree.h"

#include <string.h>

/* Elements summed at a time: a tree of buffers of this size stays in the cache. */
#define N_AT_ONCE 1024

static void accumulate(float *restrict sum, const float *restrict summand, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += summand[i];
}

void wfi_sum_pair(const float *left, const float *right, int64_t n, float *out) {
    if (out == left || out == right) {
        accumulate(out, out == left ? right : left, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) out[i] = left[i] + right[i];
}

/* Of n elements from `at` on; n is at most N_AT_ONCE. */
static void sum_tree(const float *const *in, int32_t count, int64_t at, int64_t n, float *out) {
    if (count == 1) {
        memcpy(out, in[0] + at, (size_t)n * sizeof *out);
        return;
    }
    float right[N_AT_ONCE];
    int32_t left = (int32_t)wfi_tree_split(count);
    sum_tree(in, left, at, n, out);
    sum_tree(in + left, count - left, at, n, right);
    accumulate(out, right, n);
}

void wfi_sum_all(const float *const *in, int32_t count, int64_t n, float *out) {
    float sum[N_AT_ONCE];
    if (count == 2) {
        wfi_sum_pair(in[0], in[1], n, out);
        return;
    }
    for (int64_t at = 0; at < n; at += N_AT_ONCE) {
        int64_t size = n - at < N_AT_ONCE ? n - at : N_AT_ONCE;
        sum_tree(in, count, at, size, sum);
        memcpy(out + at, sum, (size_t)size * sizeof *sum);
    }
}
