/* Products of matrices by CLBlast, in the nodes of kernel/gpu and in convolutions: a launch of the
 * kernel `product` is a call of the library's. Its database chooses one of its two kernels by shape
 * and device: one multiplies the matrices in place, the other multiplies copies of them in scratch
 * memory. */
#include "kernel/opencl/product.h"
#include "device/opencl.h"
#include "kernel/opencl/library.h"

/* y [m, n] = a [m, k] b [k, n], so often. */
typedef struct product {
    size_t n_matrices, m, n, k;
    wfi_gpu_matrix a, b, y;
    size_t copies_bytes; /* 0: without copies */
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

/* ---- running ---- */

/* The library's buffers: y, a, b, and memory for copies. */
enum { Y, A, B, COPIES, N_PARTS };
typedef struct call {
    const wfi_kernel *kernel;
    const product *p;
    cl_handle part[N_PARTS];
    size_t at[N_PARTS]; /* bytes, then elements */
} call;

static int turn_of(const wfi_gpu_matrix *m) {
    return m->is_turned ? CLBlastTransposeYes : CLBlastTransposeNo;
}

static int multiply_each(const wfi_clblast *library, const call *c, cl_command_queue queue) {
    const product *p = c->p;
    int error = 0;
    for (size_t i = 0; i < p->n_matrices && !error; i++)
        error = library->SgemmWithTempBuffer(
            CLBlastLayoutRowMajor, turn_of(&p->a), turn_of(&p->b), p->m, p->n, p->k, 1, c->part[A],
            c->at[A] + i * (size_t)p->a.apart, (size_t)p->a.row, c->part[B],
            c->at[B] + i * (size_t)p->b.apart, (size_t)p->b.row, c->kernel->adds, c->part[Y],
            c->at[Y] + i * (size_t)p->y.apart, (size_t)p->y.row, &queue, NULL, c->part[COPIES]);
    return error;
}

static wf_status enqueue(wfi_stream_queue *stream, const void *self) {
    const call *c = self;
    const product *p = c->p;
    const wfi_kernel *kernel = c->kernel;
    const wfi_clblast *library = ((const library_node *)kernel->state)->library;
    cl_command_queue queue = wfi_separate_queue(stream->device, stream);
    char text[64];
    /* For a batched product on copies, the library would allocate its own memory. */
    bool is_each = p->n_matrices == 1 || p->copies_bytes;
    int error = is_each
                    ? multiply_each(library, c, queue)
                    : library->SgemmStridedBatched(
                          CLBlastLayoutRowMajor, turn_of(&p->a), turn_of(&p->b), p->m, p->n, p->k,
                          1, c->part[A], c->at[A], (size_t)p->a.row, (size_t)p->a.apart, c->part[B],
                          c->at[B], (size_t)p->b.row, (size_t)p->b.apart, 0, c->part[Y], c->at[Y],
                          (size_t)p->y.row, (size_t)p->y.apart, p->n_matrices, &queue, NULL);
    if (!error) return WF_OK;
    return wfi_fail(kernel->ctx, WF_DEVICE,
                    "CLBlast refuses %s of unit %s on %s: %s; --kernels reference leaves it out",
                    kernel->label, kernel->graph->units[kernel->node->unit].name,
                    wfi_device_unit_of(stream->device)->name, wfi_opencl_error(error, text));
}

static wf_status find_part(const wfi_stream_queue *stream, call *c, int part, const void *address,
                           size_t n) {
    WF_TRY(
        wfi_opencl_part(stream->device, address, n * sizeof(float), &c->part[part], &c->at[part]));
    c->at[part] /= sizeof(float);
    return WF_OK;
}

static wf_status find_parts(const wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                            call *c) {
    const product *p = c->p;
    const char *copies = (const char *)launch->operands[WFI_GPU_SCRATCH];
    WF_TRY(find_part(stream, c, A, launch->operands[0], (size_t)p->a.extent));
    WF_TRY(find_part(stream, c, B, launch->operands[1], (size_t)p->b.extent));
    WF_TRY(find_part(stream, c, Y, launch->operands[WFI_GPU_OUT], (size_t)p->y.extent));
    if (!p->copies_bytes) return WF_OK;
    /* The copies must begin at the alignment of a part: this skips at most WFI_OPENCL_PART_ALIGN -
     * 1 bytes. */
    copies += ((const library_node *)c->kernel->state)->l.scratch_bytes + WFI_OPENCL_PART_ALIGN - 1;
    return find_part(stream, c, COPIES, copies, p->copies_bytes / sizeof(float));
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

/* ---- planning ---- */

static product product_of(const wfi_kernel_launch *launch) {
    const int64_t *n = launch->arguments.n;
    return (product){.n_matrices = (size_t)n[9],
                     .m = (size_t)n[0],
                     .n = (size_t)n[1],
                     .k = (size_t)n[2],
                     .a = wfi_gpu_matrix_of(launch, 0),
                     .b = wfi_gpu_matrix_of(launch, 1),
                     .y = wfi_gpu_matrix_of(launch, 2)};
}

/* The library counts with 32 bits. */
static const char *why_not(const wfi_kernel *kernel, const product *p) {
    const wfi_node *node = kernel->node;
    bool is_sum =
        node->op == &wfi_op_linear_backward_weight || node->op == &wfi_op_conv2d_backward_weight;
    const int64_t most = INT32_MAX / 2;
    if (kernel->adds && (!is_sum || (node->n_out > 1 && node->out[1] >= 0)))
        return "it accumulates into its output";
    if (!p->n_matrices || !p->m || !p->n || !p->k) return "it is empty";
    if (p->a.extent > most || p->b.extent > most || p->y.extent > most) return "it is too large";
    return NULL;
}

/* Wherever matrices begin. */
static const char *ask(const wfi_clblast *library, cl_command_queue queue, product *p) {
    return library->SGemmTempBufferSize(CLBlastLayoutRowMajor, turn_of(&p->a), turn_of(&p->b), p->m,
                                        p->n, p->k, 1, (size_t)p->a.row, 1, (size_t)p->b.row, 1,
                                        (size_t)p->y.row, &queue, &p->copies_bytes)
               ? "CLBlast does not report the memory it needs"
               : NULL;
}

static wf_status plan_products(wfi_kernel *kernel, library_node *s, const char **reason_out) {
    cl_command_queue queue;
    size_t copies_bytes = 0;
    *reason_out = "it does not contain a matrix product";
    for (int k = 0; k < s->l.n; k++) {
        const wfi_kernel_launch *launch = &s->l.all[k].launch;
        product *p = &s->products[k];
        if (launch->narrow) return wfi_decline(reason_out, "it is BF16");
        if (launch->entry != WFI_GPU_product) continue;
        *p = product_of(launch);
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
    const wfi_clblast *library;
    WF_TRY(wfi_clblast_find(kernel->ctx, &library));
    if (*library->missing) return wfi_decline(reason_out, library->missing);
    WF_TRY(wfi_gpu_plan(kernel, &row, sizeof(library_node), launch_one, reason_out));
    library_node *s = kernel->state;
    s->library = library;
    if (op == &wfi_op_linear) wfi_clblast_add_bias(&s->l, wfi_last_dim(out_shape(&s->l, 0)), 1);
    return plan_products(kernel, s, reason_out);
}

const wfi_kernel_impl wfi_kernel_clblast = {
    .name = "clblast",
    .describe = describe,
    .run = wfi_gpu_run,
    .destroy = wfi_kernel_free_state,
};
