/* Products of matrices by CLBlast, in the nodes of kernel/gpu and in convolutions: a launch of the
 * kernel `product` is a call of the library's. Its database says for a shape and a device which of
 * its two kernels multiplies: one that takes matrices as they lie, or one that takes copies of
 * them, for which it is given scratch memory. */
#include "kernel/opencl/product.h"
#include "device/opencl.h"
#include "kernel/opencl/library.h"

/* y [m, n] = a [m, k] b [k, n], so often, so many elements apart. */
typedef struct product {
    size_t n_matrices, m, n, k, a_row, b_row, a_apart, b_apart;
    unsigned a, b;       /* whether it lies the other way round */
    size_t copies_bytes; /* 0: it takes them as they lie */
    uint64_t known_to;   /* bit of each unit that has had it; atomic access */
} product;

/* wfi_kernel.state */
typedef struct library_node {
    wfi_gpu_node l;
    product products[WFI_GPU_LAUNCHES];
    const wfi_clblast *library;
} library_node;

void wfi_clblast_add_bias(wfi_gpu_node *l, int64_t n_channels, int64_t n_each) {
    if (l->node->n_in < 3 || l->node->in[2] < 0) return;
    wfi_launch_arguments *a = wfi_gpu_add_outputs(l, WFI_GPU_add_broadcast);
    a->n[1] = n_channels;
    a->n[2] = n_each;
    wfi_gpu_take(l, WFI_GPU_OUT, 2, WFI_GPU_NONE);
}

/* ---- planning ---- */

static size_t larger(int64_t a, int64_t b) {
    return (size_t)(a > b ? a : b);
}

/* Of a matrix of one row or column both strides may be 1. */
static product product_of(const int64_t *n) {
    bool a_turned = n[4] != 1, b_turned = n[6] != 1;
    return (product){.n_matrices = (size_t)n[9],
                     .m = (size_t)n[0],
                     .n = (size_t)n[1],
                     .k = (size_t)n[2],
                     .a_row = a_turned ? larger(n[4], n[0]) : larger(n[3], n[2]),
                     .b_row = b_turned ? larger(n[6], n[2]) : larger(n[5], n[1]),
                     .a_apart = (size_t)n[7],
                     .b_apart = (size_t)n[8],
                     .a = a_turned ? CLBlastTransposeYes : CLBlastTransposeNo,
                     .b = b_turned ? CLBlastTransposeYes : CLBlastTransposeNo};
}

/* The library counts with 32 bits. */
static const char *why_not(const wfi_kernel *kernel, const product *p) {
    const wfi_node *node = kernel->node;
    bool is_sum =
        node->op == &wfi_op_linear_backward_weight || node->op == &wfi_op_conv2d_backward_weight;
    const double most = INT32_MAX / 2, n = (double)p->n_matrices;
    const double a = (double)p->m * (double)p->k, b = (double)p->k * (double)p->n;
    if (kernel->adds && (!is_sum || (node->n_out > 1 && node->out[1] >= 0))) return "it has to add";
    if (!p->n_matrices || !p->m || !p->n || !p->k) return "it is empty";
    if (a * n > most || b * n > most || (double)p->m * (double)p->n * n > most)
        return "it is too large";
    return NULL;
}

/* Wherever matrices begin. */
static const char *ask(const wfi_clblast *library, cl_command_queue queue, product *p) {
    return library->SGemmTempBufferSize(CLBlastLayoutRowMajor, p->a, p->b, p->m, p->n, p->k, 1,
                                        p->a_row, 1, p->b_row, 1, p->n, &queue, &p->copies_bytes)
               ? "CLBlast cannot say how much memory it takes"
               : NULL;
}

static wf_status plan_products(wfi_kernel *kernel, library_node *s, const char **reason_out) {
    cl_command_queue queue;
    size_t copies_bytes = 0;
    *reason_out = "it has no product of matrices";
    for (int k = 0; k < s->l.n; k++) {
        const wfi_kernel_launch *launch = &s->l.all[k].launch;
        product *p = &s->products[k];
        if (launch->narrow) return wfi_decline(reason_out, "it is BF16");
        if (launch->entry != WFI_GPU_product) continue;
        *p = product_of(launch->arguments.n);
        *reason_out = why_not(kernel, p);
        if (*reason_out) return WF_UNSUPPORTED;
        WF_TRY(wfi_opencl_planner(kernel->ctx, &queue));
        *reason_out = ask(s->library, queue, p);
        if (*reason_out) return WF_UNSUPPORTED;
        if (p->copies_bytes > copies_bytes) copies_bytes = p->copies_bytes;
    }
    if (copies_bytes) kernel->scratch_bytes += copies_bytes + WFI_OPENCL_PART_ALIGN;
    return *reason_out ? WF_UNSUPPORTED : WF_OK;
}

static wf_status describe(wfi_kernel *kernel, const char **reason_out) {
    const wfi_op *op = kernel->node->op;
    const wfi_gpu_row *conv = wfi_clblast_convs;
    while (conv->op && conv->op != op) conv++;
    const wfi_gpu_row row = conv->op ? *conv : wfi_gpu_find_row(op);
    library_node *s = wfi_alloc(kernel->ctx, 1, sizeof *s, "a kernel");
    if (!s) return WF_NO_MEMORY;
    kernel->state = s;
    WF_TRY(wfi_clblast_find(kernel->ctx, &s->library));
    if (*s->library->missing) return wfi_decline(reason_out, s->library->missing);
    WF_TRY(wfi_gpu_plan(kernel, &row, &s->l, reason_out));
    if (op == &wfi_op_linear) wfi_clblast_add_bias(&s->l, last_dim(out_shape(&s->l, 0)), 1);
    return plan_products(kernel, s, reason_out);
}

/* ---- running ---- */

/* What the library is given: y, a, b, and room for copies. */
enum { Y, A, B, COPIES, N_PARTS };
typedef struct call {
    const wfi_kernel *kernel;
    const product *p;
    cl_handle part[N_PARTS];
    size_t at[N_PARTS]; /* bytes, then elements */
} call;

static int multiply_each(const wfi_clblast *library, const call *c, cl_command_queue queue) {
    const product *p = c->p;
    int error = 0;
    for (size_t i = 0; i < p->n_matrices && !error; i++)
        error = library->SgemmWithTempBuffer(
            CLBlastLayoutRowMajor, p->a, p->b, p->m, p->n, p->k, 1, c->part[A],
            c->at[A] + i * p->a_apart, p->a_row, c->part[B], c->at[B] + i * p->b_apart, p->b_row,
            c->kernel->adds, c->part[Y], c->at[Y] + i * p->m * p->n, p->n, &queue, NULL,
            c->part[COPIES]);
    return error;
}

static wf_status enqueue(wfi_stream_queue *stream, const void *self) {
    const call *c = self;
    const product *p = c->p;
    const wfi_kernel *kernel = c->kernel;
    const wfi_clblast *library = ((const library_node *)kernel->state)->library;
    cl_command_queue queue = wfi_separate_queue(stream->device, stream);
    char text[64];
    /* Several at once, of copies, would lie in memory of the library's own. */
    bool is_each = p->n_matrices == 1 || p->copies_bytes;
    int error =
        is_each
            ? multiply_each(library, c, queue)
            : library->SgemmStridedBatched(CLBlastLayoutRowMajor, p->a, p->b, p->m, p->n, p->k, 1,
                                           c->part[A], c->at[A], p->a_row, p->a_apart, c->part[B],
                                           c->at[B], p->b_row, p->b_apart, 0, c->part[Y], c->at[Y],
                                           p->n, p->m * p->n, p->n_matrices, &queue, NULL);
    if (!error) return WF_OK;
    return wfi_fail(kernel->ctx, WF_DEVICE,
                    "CLBlast refuses %s of unit %s on %s: %s; --kernels reference leaves it out",
                    kernel->label, kernel->graph->units[kernel->node->unit].name,
                    wfi_device_unit_of(stream->device)->name, wfi_opencl_error(error, text));
}

static wf_status find_part(const wfi_stream_queue *stream, call *c, int part, const void *address,
                           size_t n, size_t apart) {
    size_t bytes = ((c->p->n_matrices - 1) * apart + n) * sizeof(float);
    WF_TRY(wfi_opencl_part(stream->device, address, bytes, &c->part[part], &c->at[part]));
    c->at[part] /= sizeof(float);
    return WF_OK;
}

static wf_status find_parts(const wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                            call *c) {
    const product *p = c->p;
    const char *copies = (const char *)launch->operands[WFI_GPU_SCRATCH];
    size_t y = p->m * p->n;
    WF_TRY(find_part(stream, c, A, launch->operands[0], p->m * p->k, p->a_apart));
    WF_TRY(find_part(stream, c, B, launch->operands[1], p->k * p->n, p->b_apart));
    WF_TRY(find_part(stream, c, Y, launch->operands[WFI_GPU_OUT], y, y));
    if (!p->copies_bytes) return WF_OK;
    /* It has to begin where a part does: behind the first byte, by at most that. */
    copies += ((const library_node *)c->kernel->state)->l.scratch_bytes + WFI_OPENCL_PART_ALIGN - 1;
    return find_part(stream, c, COPIES, copies, p->copies_bytes / sizeof(float), 0);
}

static wf_status launch_one(wfi_kernel *kernel, wfi_stream_queue *stream,
                            const wfi_kernel_launch *launch, int k) {
    library_node *s = kernel->state;
    product *p = &s->products[k];
    uint64_t unit = (uint64_t)1 << wfi_device_unit_of(stream->device)->number;
    bool is_known = __atomic_load_n(&p->known_to, __ATOMIC_RELAXED) & unit;
    call c = {.kernel = kernel, .p = p};
    if (!p->n_matrices) return stream->device->kind->launch(stream, launch);
    wf_status status = find_parts(stream, launch, &c);
    if (status == WF_OK) status = wfi_opencl_enqueue(stream, !is_known, enqueue, &c);
    if (status == WF_OK) __atomic_or_fetch(&p->known_to, unit, __ATOMIC_RELAXED);
    for (int i = 0; i < N_PARTS; i++)
        if (c.part[i]) wfi_opencl_of(stream->device)->ReleaseMemObject(c.part[i]);
    return status;
}

static wf_status run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                     void *scratch, const wfi_step_args *step) {
    const library_node *s = kernel->state;
    return wfi_gpu_run(kernel, &s->l, stream, operands, scratch, step, launch_one);
}

const wfi_kernel_impl wfi_kernel_clblast = {
    .name = "clblast",
    .describe = describe,
    .run = run,
    .destroy = wfi_kernel_free_state,
};
