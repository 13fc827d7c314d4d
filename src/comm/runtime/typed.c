#include "comm/runtime/typed.h"

#include "base/tree.h"
#include "base/variants.h"

#include <string.h>

/* Bytes of sums per block: a tree of such buffers stays in the cache. */
#define BLOCK_BYTES 4096

/* An operand may be the result itself, so no element depends on an earlier one. Clang's sanitizer
 * checks each element, which prevents vectors, and requesting them warns. */
#if !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep")
#elif __has_feature(undefined_behavior_sanitizer)
#define INDEPENDENT
#else
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#endif

typedef union block {
    char bytes[BLOCK_BYTES];
    double alignment;
} block;

/* ---- combining two arrays of one type ---- */

typedef struct pair {
    const void *left, *right; /* right: NULL in a conversion */
    int64_t n;
    void *out;
} pair;

typedef void (*combine)(wfi_variant variant, const pair *p);

#define COMBINE(name, type, expression)                                                            \
    WFI_LOOP void name##_loop(const pair *p) {                                                     \
        const type *l = p->left, *r = p->right;                                                    \
        type *o = p->out;                                                                          \
        INDEPENDENT                                                                                \
        for (int64_t i = 0, n = p->n; i < n; i++) {                                                \
            type a = l[i], b = r[i];                                                               \
            o[i] = (type)(expression);                                                             \
        }                                                                                          \
    }                                                                                              \
    WFI_VARIANTS(name, pair, name##_loop)

/* The first operand of ?: keeps a NaN on the left, the second one a NaN on the right. */
#define COMBINE_ALL(name, type, sum)                                                               \
    COMBINE(name##_sum, type, sum)                                                                 \
    COMBINE(name##_min, type, a < b || a != a ? a : b)                                             \
    COMBINE(name##_max, type, a > b || a != a ? a : b)

COMBINE_ALL(f32, float, a + b)
COMBINE_ALL(f64, double, a + b)
COMBINE_ALL(i32, int32_t, (uint32_t)a + (uint32_t)b)
COMBINE_ALL(i64, int64_t, (uint64_t)a + (uint64_t)b)
COMBINE_ALL(u8, uint8_t, a + b)

static const combine combines[WF_N_DTYPES][4] = {
    [WF_F32] = {f32_sum, f32_sum, f32_min, f32_max},
    [WF_F64] = {f64_sum, f64_sum, f64_min, f64_max},
    [WF_I32] = {i32_sum, i32_sum, i32_min, i32_max},
    [WF_I64] = {i64_sum, i64_sum, i64_min, i64_max},
    [WF_U8] = {u8_sum, u8_sum, u8_min, u8_max},
};

wf_dtype wfi_sum_dtype(wf_dtype dtype) {
    return dtype == WF_BF16 ? WF_F32 : dtype;
}

/* ---- BF16 ---- */

WFI_LOOP void widen_loop(const pair *p) {
    const uint16_t *restrict in = p->left;
    float *restrict out = p->out;
    for (int64_t i = 0, n = p->n; i < n; i++) {
        uint32_t bits = (uint32_t)in[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* Rounds to nearest, ties to even; a NaN stays NaN. */
WFI_LOOP void round_loop(const pair *p) {
    const float *restrict in = p->left;
    uint16_t *restrict out = p->out;
    for (int64_t i = 0, n = p->n; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &in[i], sizeof bits);
        uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
        out[i] = (uint16_t)((in[i] != in[i] ? bits | 0x400000 : rounded) >> 16);
    }
}

WFI_VARIANTS(widen, pair, widen_loop)
WFI_VARIANTS(round_bf16, pair, round_loop)

void wfi_combine(wfi_variant variant, const wfi_arithmetic *a, const void *left, const void *right,
                 int64_t n, void *out) {
    const pair p = {left, right, n, out};
    if (right)
        combines[a->dtype][a->op](variant, &p);
    else if (a->dtype == WF_BF16)
        widen(variant, &p);
    else
        round_bf16(variant, &p);
}

/* ---- blocks of a reduction ---- */

/* The types and functions of one call, looked up once. */
typedef struct call {
    const wfi_arithmetic *a;
    size_t elem_bytes, sum_bytes;
    bool converts;
    combine combine;
    wfi_variant variant;
    int64_t n_block; /* elements */
} call;

static call begin(const wfi_arithmetic *a) {
    wf_dtype sum = wfi_sum_dtype(a->dtype);
    call c = {.a = a, .elem_bytes = wf_dtype_bytes(a->dtype), .sum_bytes = wf_dtype_bytes(sum)};
    c.converts = sum != a->dtype;
    c.combine = combines[sum][a->op];
    c.variant = wfi_best_variant();
    c.n_block = BLOCK_BYTES / (int64_t)c.sum_bytes;
    return c;
}

/* The operand's elements from `at` on as sums: in place, or converted into `room`. */
static const void *load(const call *c, wfi_summand in, int64_t at, int64_t n, void *room) {
    size_t bytes = in.is_sum ? c->sum_bytes : c->elem_bytes;
    const char *data = (const char *)in.data + (size_t)at * bytes;
    if (in.is_sum || !c->converts) return data;
    widen(c->variant, &(pair){data, NULL, n, room});
    return room;
}

static void divide(const call *c, int64_t n, void *sums) {
    if (c->a->op != WF_MEAN) return;
    if (wfi_sum_dtype(c->a->dtype) == WF_F32)
        for (int64_t i = 0; i < n; i++) ((float *)sums)[i] /= (float)c->a->n_mean;
    else
        for (int64_t i = 0; i < n; i++) ((double *)sums)[i] /= (double)c->a->n_mean;
}

/* Stores a block of sums to all results; it may change the block. */
static void put(const call *c, void *sums, int64_t at, int64_t n, const wfi_result *out) {
    uint16_t narrow[BLOCK_BYTES / sizeof(float)];
    size_t bytes = out->is_sum ? c->sum_bytes : c->elem_bytes;
    const void *from = sums;
    if (!out->is_sum) divide(c, n, sums);
    if (!out->is_sum && c->converts) {
        round_bf16(c->variant, &(pair){sums, NULL, n, narrow});
        from = narrow;
    }
    for (int32_t k = 0; k < out->n; k++) {
        char *to = (char *)out->data[k] + (size_t)at * bytes;
        if (out->streams)
            wfi_stream_copy(to, from, (size_t)n * bytes);
        else
            memcpy(to, from, (size_t)n * bytes);
    }
}

/* Whether sums can be computed directly in the result. */
static bool is_in_place(const call *c, const wfi_result *out) {
    bool ends = !out->is_sum && (c->converts || c->a->op == WF_MEAN);
    return out->n == 1 && !out->streams && !ends;
}

/* ---- the three reductions ---- */

/* Reduces the n elements from `at` on. */
static void reduce_tree(const call *c, const void *const *in, int32_t count, int64_t at, int64_t n,
                        void *out) {
    block room[2], right;
    if (count == 1) {
        const void *data = load(c, (wfi_summand){in[0], false}, at, n, out);
        if (data != out) memcpy(out, data, (size_t)n * c->sum_bytes);
    } else if (count == 2) {
        c->combine(c->variant,
                   &(pair){load(c, (wfi_summand){in[0], false}, at, n, &room[0]),
                           load(c, (wfi_summand){in[1], false}, at, n, &room[1]), n, out});
    } else {
        int32_t left = (int32_t)wfi_tree_split(count);
        reduce_tree(c, in, left, at, n, out);
        reduce_tree(c, in + left, count - left, at, n, &right);
        c->combine(c->variant, &(pair){out, &right, n, out});
    }
}

void wfi_reduce_pair(const wfi_arithmetic *a, wfi_summand left, wfi_summand right, int64_t n_elem,
                     const wfi_result *out) {
    call c = begin(a);
    block room[2], sums;
    if (is_in_place(&c, out) && (left.is_sum || !c.converts) && (right.is_sum || !c.converts)) {
        c.combine(c.variant, &(pair){left.data, right.data, n_elem, out->data[0]});
        return;
    }
    for (int64_t at = 0; at < n_elem; at += c.n_block) {
        int64_t n = wfi_min_i64(n_elem - at, c.n_block);
        c.combine(c.variant, &(pair){load(&c, left, at, n, &room[0]),
                                     load(&c, right, at, n, &room[1]), n, &sums});
        put(&c, &sums, at, n, out);
    }
}

void wfi_reduce_all(const wfi_arithmetic *a, const void *const *in, int32_t count, int64_t n_elem,
                    const wfi_result *out) {
    call c = begin(a);
    block sums;
    if (count == 2 && is_in_place(&c, out)) {
        wfi_reduce_pair(a, (wfi_summand){in[0], false}, (wfi_summand){in[1], false}, n_elem, out);
        return;
    }
    for (int64_t at = 0; at < n_elem; at += c.n_block) {
        int64_t n = wfi_min_i64(n_elem - at, c.n_block);
        reduce_tree(&c, in, count, at, n, &sums);
        put(&c, &sums, at, n, out);
    }
}

void wfi_reduce_copy(const wfi_arithmetic *a, wfi_summand in, int64_t n_elem,
                     const wfi_result *out) {
    call c = begin(a);
    block sums;
    for (int64_t at = 0; at < n_elem; at += c.n_block) {
        int64_t n = wfi_min_i64(n_elem - at, c.n_block);
        const void *data = load(&c, in, at, n, &sums);
        if (data != (const void *)&sums) memcpy(&sums, data, (size_t)n * c.sum_bytes);
        put(&c, &sums, at, n, out);
    }
}
