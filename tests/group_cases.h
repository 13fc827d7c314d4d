/* Every collective x dtype x reduction x in place or not x count, on one rank of a group: what
 * comes out is, bit for bit, what a plain loop over one fixed tree gives; what is not a result is
 * left alone. */
#pragma once

#include "group_ranks.h"

enum {
    BROADCAST,
    REDUCE,
    ALL_REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    N_KINDS
};
static const char *const kinds[] = {"broadcast",      "reduce", "all_reduce", "all_gather",
                                    "reduce_scatter", "gather", "scatter",    "all_to_all"};

#define LARGE  20001  /* several chunks where ranks' blocks share a window */
#define LARGER 140001 /* several chunks of anything */
#define GUARD  16

typedef struct kind_case {
    int kind;
    wf_dtype dtype;
    wf_reduction op;
    bool in_place, is_exact;
    int64_t count;
    int root, n;
} kind_case;

/* ---- what ranks bring, and what should come out ---- */

static uint64_t hash(uint64_t x) {
    x = (x ^ x >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static float from_bf16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint32_t low = bits & 0xffff, up = low > 0x8000 || (low == 0x8000 && (bits & 0x10000));
    return (uint16_t)((bits >> 16) + up);
}

/* Element i of rank r: any bits for integers, anything between -4 and 4 for the others; small
 * integers where sums have to be exact. */
static void put_element(const kind_case *c, int r, int64_t i, void *at) {
    uint64_t h = hash((uint64_t)r << 40 ^ (uint64_t)i * 31 ^ 7), bits = h >> 13;
    double value = c->is_exact ? (double)(bits % 11) - 4 : (double)(bits % 1000003) / 125000.4 - 4;
    float f = (float)value;
    uint16_t half = to_bf16(f);
    switch (c->dtype) {
    case WF_F32:
        memcpy(at, &f, 4);
        break;
    case WF_F64:
        memcpy(at, &value, 8);
        break;
    case WF_BF16:
        memcpy(at, &half, 2);
        break;
    default:
        memcpy(at, &h, wf_dtype_bytes(c->dtype));
    }
}

typedef union number {
    float f;
    double d;
    int64_t i;
} number;

static number read_element(const kind_case *c, int r, int64_t i) {
    char bytes[8] = {0};
    number x = {.i = 0};
    uint16_t half;
    int32_t word;
    put_element(c, r, i, bytes);
    if (c->dtype == WF_I32) {
        memcpy(&word, bytes, 4);
        x.i = word;
    } else if (c->dtype == WF_BF16) {
        memcpy(&half, bytes, 2);
        x.f = from_bf16(half);
    } else {
        memcpy(&x, bytes, wf_dtype_bytes(c->dtype));
    }
    return x;
}

#define COMBINED(field)                                                                            \
    (op == WF_MIN   ? (a.field < b.field ? a.field : b.field)                                      \
     : op == WF_MAX ? (a.field > b.field ? a.field : b.field)                                      \
                    : a.field + b.field)

static number combined(const kind_case *c, number a, number b) {
    wf_reduction op = c->op;
    number x = {.i = 0};
    if (c->dtype == WF_F64)
        x.d = COMBINED(d);
    else if (c->dtype == WF_F32 || c->dtype == WF_BF16)
        x.f = COMBINED(f);
    else if (op == WF_SUM)
        x.i = (int64_t)((uint64_t)a.i + (uint64_t)b.i);
    else
        x.i = COMBINED(i);
    return x;
}

/* Of ranks first to first + n - 1: the left half is the larger. */
static number tree(const kind_case *c, int first, int n, int64_t i) {
    if (n == 1) return read_element(c, first, i);
    int left = n - n / 2;
    return combined(c, tree(c, first, left, i), tree(c, first + left, n - left, i));
}

static void put_reduction(const kind_case *c, int64_t i, void *at) {
    number x = tree(c, 0, c->n, i);
    if (c->op == WF_MEAN && c->dtype == WF_F64) x.d /= c->n;
    if (c->op == WF_MEAN && c->dtype != WF_F64) x.f /= (float)c->n;
    uint16_t half = to_bf16(x.f);
    if (c->dtype == WF_BF16)
        memcpy(at, &half, 2);
    else
        memcpy(at, &x, wf_dtype_bytes(c->dtype)); /* integers: the low bytes */
}

static int blocks_in(const kind_case *c, int rank) {
    if (c->kind == BROADCAST) return rank == c->root;
    if (c->kind == SCATTER) return rank == c->root ? c->n : 0;
    return c->kind == REDUCE_SCATTER || c->kind == ALL_TO_ALL ? c->n : 1;
}

static int blocks_out(const kind_case *c, int rank) {
    if (c->kind == REDUCE) return rank == c->root;
    if (c->kind == GATHER) return rank == c->root ? c->n : 0;
    return c->kind == ALL_GATHER || c->kind == ALL_TO_ALL ? c->n : 1;
}

/* Element i of the rank's `out`. */
static void put_expected(const kind_case *c, int rank, int64_t i, void *at) {
    int64_t k = c->count ? i / c->count : 0, rest = c->count ? i % c->count : 0;
    int64_t own = rank * c->count;
    switch (c->kind) {
    case BROADCAST:
        put_element(c, c->root, i, at);
        break;
    case REDUCE:
    case ALL_REDUCE:
        put_reduction(c, i, at);
        break;
    case REDUCE_SCATTER:
        put_reduction(c, own + i, at);
        break;
    case SCATTER:
        put_element(c, c->root, own + i, at);
        break;
    case ALL_TO_ALL:
        put_element(c, (int)k, own + rest, at);
        break;
    default:
        put_element(c, (int)k, rest, at);
    }
}

/* ---- a call ---- */

static wf_status call(const kind_case *c, wf_group *g, const void *in, void *out) {
    switch (c->kind) {
    case BROADCAST:
        return wf_group_broadcast(g, in, out, c->count, c->dtype, c->root, NULL);
    case REDUCE:
        return wf_group_reduce(g, in, out, c->count, c->dtype, c->op, c->root, NULL);
    case ALL_REDUCE:
        return wf_group_all_reduce(g, in, out, c->count, c->dtype, c->op, NULL);
    case ALL_GATHER:
        return wf_group_all_gather(g, in, out, c->count, c->dtype, NULL);
    case REDUCE_SCATTER:
        return wf_group_reduce_scatter(g, in, out, c->count, c->dtype, c->op, NULL);
    case GATHER:
        return wf_group_gather(g, in, out, c->count, c->dtype, c->root, NULL);
    case SCATTER:
        return wf_group_scatter(g, in, out, c->count, c->dtype, c->root, NULL);
    default:
        return wf_group_all_to_all(g, in, out, c->count, c->dtype, NULL);
    }
}

static const char *describe(const kind_case *c, const ranks_one *one, const char *what, int64_t i) {
    return ranks_text("%s of %d %s, op %d, root %d%s, %s on %s, rank %d of %d: %s %d is wrong",
                      kinds[c->kind], (int)c->count, wf_dtype_name(c->dtype), (int)c->op, c->root,
                      c->in_place ? ", in place" : "", (const char *)one->self,
                      wf_group_wire(one->group), one->rank, one->n, what, (int)i);
}

/* Two buffers of memory; each holds what all ranks bring and a guard. */
static const char *check_case(ranks_one *one, const kind_case *c, char *a, char *b) {
    size_t elem = wf_dtype_bytes(c->dtype), block = (size_t)c->count * elem;
    int n_in = blocks_in(c, one->rank), n_out = blocks_out(c, one->rank);
    char *in = n_in ? a : NULL, *out = n_out ? b : NULL, bytes[8];
    size_t own = (size_t)one->rank * block;
    if (c->in_place && n_in && n_out) {
        bool in_is_part = c->kind == ALL_GATHER || c->kind == GATHER;
        bool out_is_part = c->kind == REDUCE_SCATTER || c->kind == SCATTER;
        in = in_is_part ? b + own : a;
        out = out_is_part ? a + own : in_is_part ? b : a;
    }
    memset(b, 0xa5, block * (size_t)c->n + GUARD);
    memset(a, 0xa5, block * (size_t)c->n + GUARD);
    for (int64_t i = 0; i < n_in * c->count; i++)
        put_element(c, one->rank, i, in + (size_t)i * elem);
    RANKS_TRY(one, call(c, one->group, in, out));
    for (int64_t i = 0; i < n_out * c->count; i++) {
        put_expected(c, one->rank, i, bytes);
        if (memcmp(out + (size_t)i * elem, bytes, elem)) return describe(c, one, "element", i);
    }
    bool apart = !(c->in_place && n_in && n_out);
    for (int64_t i = 0; apart && i < n_in * c->count; i++) {
        put_element(c, one->rank, i, bytes);
        if (memcmp(in + (size_t)i * elem, bytes, elem)) return describe(c, one, "input", i);
    }
    size_t used = (size_t)n_out * block;
    for (size_t i = 0; apart && i < GUARD; i++)
        if ((uint8_t)b[used + i] != 0xa5) return describe(c, one, "guard byte", (int64_t)i);
    return NULL;
}

typedef struct matrix {
    bool is_short;      /* fewer dtypes and reductions */
    bool sums_only;     /* the others have no algorithm to choose */
    bool is_exact;      /* of this algorithm, sums have to be */
    char *memory[2][2]; /* [the group's or plain][a, b] */
    int n_cases;
} matrix;

static const char *check_counts(ranks_one *one, matrix *m, kind_case c) {
    static const int64_t counts[] = {0, 1, 67, LARGE, LARGER};
    bool sums = c.kind == REDUCE || c.kind == ALL_REDUCE || c.kind == REDUCE_SCATTER;
    for (int i = 0; i < 5; i++) {
        c.count = counts[i];
        if (c.count == LARGE && (c.n > 5 || (c.dtype != WF_F32 && c.dtype != WF_BF16))) continue;
        if (c.count >= LARGE && sums && c.op != WF_MEAN) continue;
        if (c.count == LARGER && (c.n > 2 || c.dtype != WF_F32)) continue;
        for (int in_place = 0; in_place < 2; in_place++) {
            c.in_place = in_place;
            c.root = m->n_cases % c.n;
            /* Memory alternates, and not in the rhythm of anything else; ranks differ, too. */
            char **memory = m->memory[(m->n_cases * 5 / 3 + (m->n_cases % 7 == 0) * one->rank) % 2];
            m->n_cases++;
            const char *wrong = check_case(one, &c, memory[0], memory[1]);
            if (wrong) return wrong;
        }
    }
    return NULL;
}

static const char *check_kinds(ranks_one *one, matrix *m) {
    kind_case c = {.n = one->n, .is_exact = m->is_exact};
    for (c.kind = 0; c.kind < N_KINDS; c.kind++)
        for (int dtype = 0; dtype < WF_N_DTYPES; dtype++)
            for (int op = 0; op <= WF_MAX; op++) {
                bool is_float = dtype == WF_F32 || dtype == WF_F64 || dtype == WF_BF16;
                bool sums = c.kind == REDUCE || c.kind == ALL_REDUCE || c.kind == REDUCE_SCATTER;
                c.dtype = (wf_dtype)dtype;
                c.op = (wf_reduction)op;
                if ((op == WF_MEAN && !is_float && sums) || (op && !sums)) continue;
                if (m->sums_only && !sums) continue;
                if (m->is_short && (dtype + op + c.kind) % 3) continue;
                const char *wrong = check_counts(one, m, c);
                if (wrong) return wrong;
            }
    return NULL;
}

/* The body of all ranks; one->self: the algorithm's name, "auto" for all that have none, too. */
static const char *check_all(ranks_one *one) {
    const char *algorithm = one->self;
    size_t most = (size_t)(one->n <= 2 ? LARGER : LARGE) * 8 * (size_t)one->n + GUARD;
    matrix m = {.is_short = strcmp(wf_group_wire(one->group), "inproc") != 0 || one->n > 5,
                .sums_only = strcmp(algorithm, "auto") != 0,
                .is_exact = !strcmp(algorithm, "ring") || !strcmp(algorithm, "engine")};
    for (int i = 0; i < 2; i++) {
        RANKS_TRY(one, wf_group_alloc(one->group, most, (void **)&m.memory[0][i]));
        m.memory[1][i] = malloc(most);
    }
    const char *wrong = check_kinds(one, &m);
    for (int i = 0; i < 2; i++) {
        wf_group_free(one->group, m.memory[0][i]);
        free(m.memory[1][i]);
    }
    return wrong;
}
