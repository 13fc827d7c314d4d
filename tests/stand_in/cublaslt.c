/* libcublasLt.so.13 for tests: products of F32 and BF16 matrices as the real library documents
 * them, in plain C, on the driver's stand-in. What does not fit is refused, and what is not told is
 * not known.
 *
 * Its heuristics offer four algorithms: one that reduces in place, whose bits differ each time; one
 * that sums two halves of k in its workspace; a plain one; and one for any alignment, whose number
 * is the plain one's. A bias's
 * gradient is of a first matrix as it lies (BGRADA), of which it sums only an even number of
 * columns, or of a second that is transposed (BGRADB). */
#include "stand_in_library.h"

enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    INVALID_VALUE = 7,
    EXECUTION_FAILED = 13,
    NOT_SUPPORTED = 15
};
enum { IN_PLACE, HALVES, PLAIN, UNALIGNED, N_ALGORITHMS };
enum { COMPUTE_32F = 68, COMPUTE_TF32 = 77 };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4, BGRADA = 256, BGRADB = 512 };

typedef struct handle {
    CUcontext context;
} handle;
typedef struct layout {
    uint64_t n_rows, n_cols;
    int64_t ld, stride;
    int32_t type, n_matrices;
} layout;
typedef struct call {
    int32_t compute; /* COMPUTE_32F, COMPUTE_TF32 */
    int32_t transposed[2];
    uint32_t epilogue;
    void *bias;
} call;
typedef struct preference {
    uint64_t most_bytes;
    uint32_t schemes, align[4];
} preference;
typedef struct algorithm {
    uint64_t number, workspace, align, m, n, k, epilogue, n_matrices;
} algorithm;
typedef struct choice {
    algorithm algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} choice;
_Static_assert(sizeof(algorithm) == 64, "as the library's");

#define EXPORT      STAND_IN_API
#define MOST_HALVES ((size_t)256 << 10) /* bytes */

size_t cublasLtGetVersion(void);
EXPORT size_t cublasLtGetVersion(void) {
    return 130000;
}

int cublasLtCreate(handle **out);
EXPORT int cublasLtCreate(handle **out) {
    CUcontext context = current_context();
    if (!context) return NOT_INITIALIZED;
    *out = malloc(sizeof **out);
    (*out)->context = context;
    return SUCCESS;
}

int cublasLtDestroy(handle *h);
EXPORT int cublasLtDestroy(handle *h) {
    free(h);
    return SUCCESS;
}

/* ---- descriptors ---- */

int cublasLtMatmulDescCreate(call **out, int compute, int scale);
EXPORT int cublasLtMatmulDescCreate(call **out, int compute, int scale) {
    if ((compute != COMPUTE_32F && compute != COMPUTE_TF32) || scale != 0) return INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    (*out)->epilogue = EPILOGUE_DEFAULT;
    (*out)->compute = compute;
    return SUCCESS;
}

int cublasLtMatmulDescDestroy(call *c);
EXPORT int cublasLtMatmulDescDestroy(call *c) {
    free(c);
    return SUCCESS;
}

static int put(void *to, size_t room, const void *from, size_t bytes) {
    if (bytes != room || !from) return INVALID_VALUE;
    memcpy(to, from, bytes);
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(call *c, int attribute, const void *value, size_t bytes);
EXPORT int cublasLtMatmulDescSetAttribute(call *c, int attribute, const void *value, size_t bytes) {
    switch (attribute) {
    case 3:
    case 4:
        return put(&c->transposed[attribute - 3], 4, value, bytes);
    case 7:
        return put(&c->epilogue, 4, value, bytes);
    case 8:
        return put(&c->bias, sizeof c->bias, value, bytes);
    default:
        return INVALID_VALUE;
    }
}

int cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t n_rows, uint64_t n_cols,
                               int64_t ld);
EXPORT int cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t n_rows, uint64_t n_cols,
                                      int64_t ld) {
    if (type != 0 && type != 14) return INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    **out = (layout){n_rows, n_cols, ld, 0, type, 1};
    return SUCCESS;
}

int cublasLtMatrixLayoutDestroy(layout *l);
EXPORT int cublasLtMatrixLayoutDestroy(layout *l) {
    free(l);
    return SUCCESS;
}

int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t bytes);
EXPORT int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value,
                                            size_t bytes) {
    if (attribute == 5) return put(&l->n_matrices, 4, value, bytes);
    return attribute == 6 ? put(&l->stride, 8, value, bytes) : INVALID_VALUE;
}

int cublasLtMatmulPreferenceCreate(preference **out);
EXPORT int cublasLtMatmulPreferenceCreate(preference **out) {
    *out = malloc(sizeof **out);
    **out = (preference){0, 7, {256, 256, 256, 256}};
    return SUCCESS;
}

int cublasLtMatmulPreferenceDestroy(preference *p);
EXPORT int cublasLtMatmulPreferenceDestroy(preference *p) {
    free(p);
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value,
                                         size_t bytes);
EXPORT int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value,
                                                size_t bytes) {
    if (attribute == 1) return put(&p->most_bytes, 8, value, bytes);
    if (attribute == 3) return put(&p->schemes, 4, value, bytes);
    if (attribute < 5 || attribute > 8) return INVALID_VALUE;
    return put(&p->align[attribute - 5], 4, value, bytes);
}

/* ---- which algorithms there are ---- */

/* Matrices lie one behind the other, or side by side. */
static bool is_whole(const layout *l) {
    bool is_behind = l->stride == 0 || l->stride >= (int64_t)l->n_cols * l->ld;
    bool is_beside = l->stride >= (int64_t)l->n_rows && (int64_t)l->n_matrices * l->stride <= l->ld;
    return l->n_rows && l->n_cols && l->ld >= (int64_t)l->n_rows && l->n_matrices >= 1 &&
           (l->n_matrices == 1 || is_behind || is_beside) && l->n_rows <= INT32_MAX &&
           l->n_cols <= INT32_MAX;
}

/* d [m, n] of sums of k; false: the operands do not fit each other. */
static bool fit(const call *c, const layout *a, const layout *b, const layout *d,
                algorithm *shape_out) {
    if (!is_whole(a) || !is_whole(b) || !is_whole(d)) return false;
    if (c->transposed[0] < 0 || c->transposed[0] > 1 || c->transposed[1] < 0 ||
        c->transposed[1] > 1)
        return false;
    uint64_t m = c->transposed[0] ? a->n_cols : a->n_rows;
    uint64_t k = c->transposed[0] ? a->n_rows : a->n_cols;
    uint64_t own_k = c->transposed[1] ? b->n_cols : b->n_rows;
    uint64_t n = c->transposed[1] ? b->n_rows : b->n_cols;
    if (k != own_k || m != d->n_rows || n != d->n_cols) return false;
    if (a->n_matrices != d->n_matrices || b->n_matrices != d->n_matrices) return false;
    if (d->n_matrices > 1 && (!d->stride || c->epilogue != EPILOGUE_DEFAULT)) return false;
    if (a->type != b->type) return false;
    *shape_out = (algorithm){
        .m = m, .n = n, .k = k, .epilogue = c->epilogue, .n_matrices = (uint64_t)d->n_matrices};
    return true;
}

static bool has_epilogue(const call *c) {
    if (c->epilogue == EPILOGUE_DEFAULT) return true;
    if (c->epilogue == BGRADA ? c->transposed[0] : c->epilogue == BGRADB && !c->transposed[1])
        return false;
    if (c->epilogue != EPILOGUE_BIAS && c->epilogue != BGRADA && c->epilogue != BGRADB)
        return false;
    return c->bias && (uintptr_t)c->bias % 4 == 0;
}

/* What a choice knows of its epilogue: how its bias is aligned, too, which heuristics are told by
 * an address. */
#define EPILOGUE_OF(c, align) ((c)->epilogue | (uint64_t)(align) << 32)
static uint64_t bias_align(const call *c) {
    uintptr_t address = (uintptr_t)c->bias | 256;
    return c->epilogue == EPILOGUE_DEFAULT ? 0 : address & (~address + 1);
}

/* TF32 is how F32 is multiplied; of BF16 results may be of either type. */
static bool has_types(const call *c, const layout *a, const layout *d) {
    return c->compute == COMPUTE_TF32 ? a->type == 0 && d->type == 0 : a->type || !d->type;
}

static number_type type_of(const layout *l) {
    return l->type ? NUMBER_BF16 : NUMBER_F32;
}

static uint64_t least_of(const uint32_t align[4]) {
    uint32_t least = align[0];
    for (int i = 1; i < 4; i++)
        if (align[i] < least) least = align[i];
    return least;
}

int cublasLtMatmulAlgoGetHeuristic(handle *h, call *c, layout *a, layout *b, layout *own_c,
                                   layout *d, preference *p, int wanted, choice *out, int *n_out);
EXPORT int cublasLtMatmulAlgoGetHeuristic(handle *h, call *c, layout *a, layout *b, layout *own_c,
                                          layout *d, preference *p, int wanted, choice *out,
                                          int *n_out) {
    algorithm shape;
    *n_out = 0;
    if (!h || wanted < 1) return INVALID_VALUE;
    if (!fit(c, a, b, d, &shape) || memcmp(own_c, d, sizeof *d)) return INVALID_VALUE;
    if (!has_epilogue(c) || !has_types(c, a, d)) return NOT_SUPPORTED;
    if (c->epilogue == BGRADA && shape.k % 2) return NOT_SUPPORTED;
    shape.epilogue = EPILOGUE_OF(c, bias_align(c));
    for (uint64_t number = IN_PLACE; number < N_ALGORITHMS && *n_out < wanted; number++) {
        algorithm one = shape;
        one.number = number;
        /* What the caller has said of its matrices has to be true. */
        one.align = number == UNALIGNED ? 4 : least_of(p->align);
        if (number == HALVES) one.workspace = 2 * shape.m * shape.n * shape.n_matrices * 4;
        if (number == IN_PLACE && !(p->schemes & 1)) continue;
        if (number == HALVES && (!(p->schemes & 2) || shape.k < 2)) continue;
        if (one.workspace > p->most_bytes || one.workspace > MOST_HALVES) continue;
        for (int i = 0; i < 4; i++)
            if (p->align[i] < (number == UNALIGNED ? 4 : 16)) goto next;
        out[(*n_out)++] = (choice){.algo = one, .workspace = one.workspace, .waves = 1};
    next:;
    }
    return *n_out ? SUCCESS : NOT_SUPPORTED;
}

int cublasLtMatmulAlgoConfigGetAttribute(const algorithm *algo, int attribute, void *value,
                                         size_t bytes, size_t *written);
EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const algorithm *algo, int attribute, void *value,
                                                size_t bytes, size_t *written) {
    bool is_plain = algo->number == PLAIN || algo->number == UNALIGNED;
    uint32_t number = attribute == 0   ? (uint32_t)(is_plain ? PLAIN : algo->number)
                      : attribute == 2 ? 1 + (algo->number == HALVES)
                      : attribute == 8 ? 4 * (algo->number == UNALIGNED)
                                       : 0;
    if (bytes != (attribute < 7 ? 4 : 2)) return INVALID_VALUE;
    memcpy(value, &number, bytes);
    *written = bytes;
    return SUCCESS;
}

/* ---- products ---- */

typedef struct job {
    call c;
    layout a, b, d;
    algorithm algo;
    float alpha, beta;
    const void *from_a, *from_b;
    void *to;
    float *workspace;
} job;

/* What is multiplied. */
static float factor(const job *j, const layout *l, const void *data, uint64_t at, int64_t number) {
    float x = number_at(data, type_of(l), at + (uint64_t)(number * l->stride));
    return j->c.compute == COMPUTE_TF32 ? rounded(x, 13) : x;
}

/* The sum over k from `begin` up to `end` of an element of matrix `number`. */
static float sum_of(const job *j, uint64_t row, uint64_t col, uint64_t begin, uint64_t end,
                    int64_t number) {
    float sum = 0;
    for (uint64_t k = begin; k < end; k++) {
        uint64_t at_a =
            j->c.transposed[0] ? row * (uint64_t)j->a.ld + k : k * (uint64_t)j->a.ld + row;
        uint64_t at_b =
            j->c.transposed[1] ? k * (uint64_t)j->b.ld + col : col * (uint64_t)j->b.ld + k;
        sum = fmaf(factor(j, &j->a, j->from_a, at_a, number),
                   factor(j, &j->b, j->from_b, at_b, number), sum);
    }
    return sum;
}

static void multiply(const job *j, int64_t number) {
    uint64_t m = j->algo.m, k = j->algo.k;
    const void *bias = STAND_IN_MEMORY(j->c.bias);
    number_type type = type_of(&j->d);
    for (uint64_t e = 0; e < m * j->algo.n; e++) {
        uint64_t row = e % m, col = e / m;
        uint64_t to = (uint64_t)(number * j->d.stride) + col * (uint64_t)j->d.ld + row;
        float sum;
        if (j->algo.number == HALVES) {
            float *halves = j->workspace + 2 * ((uint64_t)number * m * j->algo.n + e);
            halves[0] = sum_of(j, row, col, 0, k / 2, number);
            halves[1] = sum_of(j, row, col, k / 2, k, number);
            sum = halves[0] + halves[1];
        } else {
            sum = sum_of(j, row, col, 0, k, number);
        }
        if (j->algo.number == IN_PLACE) sum *= 1 + noise();
        if (j->c.epilogue == EPILOGUE_BIAS) sum += number_at(bias, type, row);
        float kept = j->beta != 0 ? j->beta * number_at(j->to, type, to) : 0;
        put_number(j->to, type, to, j->alpha * sum + kept);
    }
}

/* The gradient of a bias: sums over k of the first matrix, or of the second. */
static void sum_bias(const job *j) {
    bool is_first = j->c.epilogue == BGRADA;
    const layout *l = is_first ? &j->a : &j->b;
    for (uint64_t i = 0; i < (is_first ? j->algo.m : j->algo.n); i++) {
        float sum = 0;
        for (uint64_t k = 0; k < j->algo.k; k++)
            sum += number_at(is_first ? j->from_a : j->from_b, type_of(l), k * (uint64_t)l->ld + i);
        put_number(STAND_IN_MEMORY(j->c.bias), type_of(&j->d), i, sum);
    }
}

static wfi_cuda_enum run(void *self) {
    job *j = self;
    take_time((long long)j->algo.number);
    j->from_a = STAND_IN_MEMORY(j->from_a);
    j->from_b = STAND_IN_MEMORY(j->from_b);
    j->to = STAND_IN_MEMORY(j->to);
    j->workspace = STAND_IN_MEMORY(j->workspace);
    /* Whatever lies in the workspace is another kernel's, and not needed any more. */
    if (j->algo.workspace) memset(j->workspace, 0xff, j->algo.workspace);
    for (int64_t number = 0; number < j->d.n_matrices; number++) multiply(j, number);
    if (j->c.epilogue >= BGRADA) sum_bias(j);
    return 0;
}

/* Elements from the first to the last. */
static size_t extent(const layout *l) {
    return (size_t)(l->n_matrices - 1) * (size_t)l->stride +
           (size_t)(l->n_cols - 1) * (size_t)l->ld + (size_t)l->n_rows;
}

int cublasLtMatmul(handle *h, call *c, const float *alpha, const void *a, layout *a_layout,
                   const void *b, layout *b_layout, const float *beta, const void *own_c,
                   layout *c_layout, void *d, layout *d_layout, const algorithm *algo,
                   void *workspace, size_t workspace_bytes, CUstream stream);
EXPORT int cublasLtMatmul(handle *h, call *c, const float *alpha, const void *a, layout *a_layout,
                          const void *b, layout *b_layout, const float *beta, const void *own_c,
                          layout *c_layout, void *d, layout *d_layout, const algorithm *algo,
                          void *workspace, size_t workspace_bytes, CUstream stream) {
    algorithm shape;
    if (!h || h->context != current_context()) return NOT_INITIALIZED;
    if (!fit(c, a_layout, b_layout, d_layout, &shape)) return INVALID_VALUE;
    if (memcmp(c_layout, d_layout, sizeof *d_layout) || own_c != d) return INVALID_VALUE;
    if (!has_epilogue(c) || !has_types(c, a_layout, d_layout)) return NOT_SUPPORTED;
    shape.number = algo->number;
    shape.workspace = algo->workspace;
    shape.align = algo->align;
    shape.epilogue = EPILOGUE_OF(c, algo->epilogue >> 32);
    if (memcmp(&shape, algo, sizeof shape)) return INVALID_VALUE;
    if (!are_there(a, type_of(a_layout), extent(a_layout), algo->align) ||
        !are_there(b, type_of(b_layout), extent(b_layout), algo->align) ||
        !are_there(d, type_of(d_layout), extent(d_layout), algo->align))
        return INVALID_VALUE;
    if (c->epilogue != EPILOGUE_DEFAULT &&
        !are_there(c->bias, type_of(d_layout), c->epilogue == BGRADB ? shape.n : shape.m,
                   algo->epilogue >> 32))
        return INVALID_VALUE;
    if (workspace_bytes < algo->workspace) return INVALID_VALUE;
    if (algo->workspace && !are_there(workspace, NUMBER_F32, algo->workspace / sizeof(float), 256))
        return INVALID_VALUE;
    const job j = {*c, *a_layout, *b_layout, *d_layout, *algo, *alpha, *beta, a, b, d, workspace};
    return stand_in_queue(stream, run, &j, sizeof j) ? EXECUTION_FAILED : SUCCESS;
}
