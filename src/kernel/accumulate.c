#include "kernel/cpu.h"

#include <string.h>

typedef struct accumulator {
    int64_t n_out, n_in, n_space; /* plain: n_out is all */
    int64_t n_columns;            /* of the window, blocked */
    wfi_window_part part;
    bool add;
} accumulator;

static wf_status create(wfi_kernel *kernel, const wfi_kernel_impl *impl, accumulator a) {
    accumulator *state = wfi_alloc(kernel->ctx, 1, sizeof *state, "a kernel");
    if (!state) return WF_NO_MEMORY;
    *state = a;
    kernel->state = state;
    kernel->impl = impl;
    kernel->detail = "";
    int64_t n_given = a.part.n_rows * a.part.n_columns;
    kernel->bytes[0] = (size_t)(a.n_out * a.n_in * n_given) * sizeof(float);
    kernel->bytes[1] = (size_t)(a.n_out * a.n_in * a.n_space) * sizeof(float);
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
    .run = run_plain,
    .destroy = wfi_kernel_free_state,
};

wf_status wfi_accumulate_plain(wfi_kernel *kernel, const wf_shape *shape, bool add) {
    return create(
        kernel, &plain_impl,
        (accumulator){.n_out = wf_shape_n_elem(shape), 1, 1, 1, {0, 0, 1, 1}, .add = add});
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

static void move_part(float *restrict window, const float *restrict block, const accumulator *a) {
    const wfi_window_part *part = &a->part;
    for (int64_t r = 0; r < part->n_rows; r++)
        for (int64_t c = 0; c < part->n_columns; c++) {
            float *to = &window[(part->row + r) * a->n_columns + part->column + c];
            float value = block[(r * part->n_columns + c) * BLOCK * BLOCK];
            *to = a->add ? *to + value : value;
        }
}

static wf_status run_part(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                          void *scratch, const wfi_step_args *step) {
    (void)stream, (void)scratch, (void)step;
    const accumulator *a = kernel->state;
    const float *block = operands[0];
    float *sum = operands[1];
    int64_t n_given = a->part.n_rows * a->part.n_columns;
    if (!a->add) memset(sum, 0, kernel->bytes[1]);
    for (int64_t out = 0; out < a->n_out; out += BLOCK)
        for (int64_t in = 0; in < a->n_in; in += BLOCK, block += BLOCK * BLOCK * n_given)
            for (int64_t o = 0; o < BLOCK; o++)
                for (int64_t i = 0; i < BLOCK; i++)
                    move_part(sum + ((out + o) * a->n_in + in + i) * a->n_space,
                              block + i * BLOCK + o, a);
    return WF_OK;
}

static const wfi_kernel_impl blocked_impl = {
    .name = "blocked",
    .run = run_blocked,
    .destroy = wfi_kernel_free_state,
};

static const wfi_kernel_impl part_impl = {
    .name = "part",
    .run = run_part,
    .destroy = wfi_kernel_free_state,
};

wf_status wfi_accumulate_blocked(wfi_kernel *kernel, const wf_shape *shape,
                                 const wfi_window_part *part, bool add) {
    const int64_t *dim = shape->dim;
    bool is_whole = part->n_rows == dim[2] && part->n_columns == dim[3];
    return create(kernel, is_whole ? &blocked_impl : &part_impl,
                  (accumulator){dim[0], dim[1], dim[2] * dim[3], dim[3], *part, add});
}
