#include "kernel/cpu.h"

typedef struct accumulator {
    int64_t n_out, n_in, n_space; /* plain: n_out is all */
    bool add;
} accumulator;

static wf_status prepare(wfi_kernel *kernel) {
    const accumulator *a = kernel->state;
    kernel->extent[0] = kernel->extent[1] =
        (size_t)(a->n_out * a->n_in * a->n_space) * sizeof(float);
    return WF_OK;
}

static void destroy(wfi_kernel *kernel) {
    wfi_free(kernel->ctx, kernel->state);
}

static wf_status create(wfi_kernel *kernel, const wfi_kernel_impl *impl, accumulator a) {
    accumulator *state = wfi_alloc(kernel->ctx, 1, sizeof *state, "a kernel");
    if (!state) return WF_NO_MEMORY;
    *state = a;
    kernel->state = state;
    kernel->impl = impl;
    kernel->detail = "";
    kernel->bytes[0] = kernel->bytes[1] = (size_t)(a.n_out * a.n_in * a.n_space) * sizeof(float);
    return WF_OK;
}

/* ---- plain ---- */

static wf_status run_plain(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                           void *scratch, const wfi_step_args *step) {
    (void)scratch, (void)step;
    const accumulator *a = kernel->state;
    const wfi_backend *backend = kernel->options.backend;
    return (a->add ? backend->add : backend->copy)(stream, operands[1], operands[0],
                                                   (size_t)a->n_out);
}

static const wfi_kernel_impl plain_impl = {
    .name = "plain",
    .prepare = prepare,
    .run = run_plain,
    .destroy = destroy,
};

wf_status wfi_accumulate_plain(wfi_kernel *kernel, const wf_shape *shape, bool add) {
    return create(kernel, &plain_impl, (accumulator){wf_shape_n_elem(shape), 1, 1, add});
}

/* ---- blocked ---- */

#define BLOCK 16

/* One row of a block: 16 inputs of one output, each with its space. oneDNN's reorder does
 * the same row by row over all inputs, and is seven times slower where these are a power
 * of two: the rows of a block then lie in the same lines of the cache. */
static inline void move_row(float *restrict row, const float *restrict block, int64_t n_space,
                            bool add) {
    for (int64_t i = 0; i < BLOCK; i++)
        for (int64_t s = 0; s < n_space; s++) {
            float value = block[(s * BLOCK + i) * BLOCK];
            row[i * n_space + s] = add ? row[i * n_space + s] + value : value;
        }
}

/* The usual windows are known to the compiler. */
static void move_block(float *rows, int64_t n_in, const float *block, int64_t n_space, bool add) {
    for (int64_t o = 0; o < BLOCK; o++, rows += n_in * n_space, block++) {
        if (n_space == 1 && add)
            move_row(rows, block, 1, true);
        else if (n_space == 9 && add)
            move_row(rows, block, 9, true);
        else
            move_row(rows, block, n_space, add);
    }
}

static wf_status run_blocked(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                             void *scratch, const wfi_step_args *step) {
    (void)stream, (void)scratch, (void)step;
    const accumulator *a = kernel->state;
    const float *block = operands[0];
    float *sum = operands[1];
    for (int64_t out = 0; out < a->n_out; out += BLOCK)
        for (int64_t in = 0; in < a->n_in; in += BLOCK, block += BLOCK * BLOCK * a->n_space)
            move_block(sum + (out * a->n_in + in) * a->n_space, a->n_in, block, a->n_space, a->add);
    return WF_OK;
}

static const wfi_kernel_impl blocked_impl = {
    .name = "blocked",
    .prepare = prepare,
    .run = run_blocked,
    .destroy = destroy,
};

wf_status wfi_accumulate_blocked(wfi_kernel *kernel, const wf_shape *shape, bool add) {
    int64_t n_space = wf_shape_n_elem(shape) / (shape->dim[0] * shape->dim[1]);
    return create(kernel, &blocked_impl, (accumulator){shape->dim[0], shape->dim[1], n_space, add});
}
