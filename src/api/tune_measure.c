/* The ways of a shape, measured on the device: on its own memory, by its own kernels. */
#include "api/tune.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>

/* A way has to be faster by so much to be worth another recipe. */
#define GAIN 0.03
/* A shorter call is made several times between two looks at the clock. */
#define LEAST_NS   200000
#define MOST_CALLS 64
/* Factor on the op's tolerance when outputs of two algorithms are compared. */
#define SLACK 4
/* Relative rounding error of BF16. */
#define BF16_ERROR 4e-3
/* Relative rounding error of TF32; only some algorithms round to it. */
#define TF32_ERROR 1e-3

/* ---- the device's memory, from a task of the stream ---- */

typedef struct block {
    void *at;
    size_t bytes;
} block;

/* Bytes that are not written show: all bits set is no number. */
static wf_status block_create(const wf_tuning *t, size_t bytes, block *out) {
    wfi_device *device = t->device;
    out->bytes = bytes ? bytes : 1;
    WF_TRY(device->kind->memory_create(device, WFI_SPACE_DEVICE, out->bytes, &out->at));
    return wfi_memory_fill(device, t->stream, out->at, WFI_SPACE_DEVICE, 0xff, out->bytes);
}

static void block_free(const wf_tuning *t, block *b) {
    if (b->at) t->device->kind->memory_destroy(t->device, WFI_SPACE_DEVICE, b->at, b->bytes);
    b->at = NULL;
}

/* ---- one algorithm, and the costs of its layouts ---- */

/* Kernels, and memory of their own: packed parameters, and outputs. */
typedef struct run {
    wfi_kernel *kernel, *pack[WFI_MAX_OPERANDS], *accumulate[WFI_MAX_OPERANDS];
    block packed[WFI_MAX_OPERANDS];
    void *operands[WFI_MAX_OPERANDS];
    block scratch;               /* of all of these, as much as the one that needs most */
    block sum[WFI_MAX_OPERANDS]; /* of a parameter's gradient */
    int n_calls;                 /* between two looks at the clock */
    double kernel_ns, pack_ns, accumulate_ns;
} run;

typedef struct measuring {
    wf_tuning *t;
    wfi_tuned_shape *s;
    int64_t n_rounds;
    block inputs[WFI_MAX_OPERANDS];
    run *runs; /* [s->n_ways] */
} measuring;

static const wfi_value *value_of(const wfi_tuned_shape *s, int operand) {
    int32_t v = wfi_node_operand(s->node, operand);
    return v < 0 ? NULL : wfi_value_at(s->graph, v);
}

static int n_operands(const wfi_tuned_shape *s) {
    return s->node->n_in + s->node->n_out;
}

/* From -1 to 1. */
static void fill(void *data, wf_dtype dtype, int64_t n, uint64_t seed) {
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(int32_t)(seed >> 32) / 2147483648.0f;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == WF_BF16)
            ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)data)[i] = x;
    }
}

static wf_status make_input(const measuring *m, const wfi_value *value, int i, block *out) {
    const wf_tuning *t = m->t;
    int64_t n = wf_shape_n_elem(&value->shape);
    size_t bytes = (size_t)n * wf_dtype_bytes(value->dtype);
    WF_TRY(block_create(t, bytes, out));
    void *numbers = wfi_alloc(t->ctx, 1, out->bytes, "a measurement");
    if (!numbers) return WF_NO_MEMORY;
    fill(numbers, value->dtype, n, (uint64_t)i);
    wf_status status = wfi_memory_copy(t->device, t->stream, out->at, WFI_SPACE_DEVICE, numbers,
                                       WFI_SPACE_HOST, bytes);
    wfi_stream_settle(t->stream);
    wfi_free(t->ctx, numbers);
    return status;
}

static wf_status make_inputs(measuring *m) {
    for (int i = 0; i < m->s->node->n_in; i++)
        if (value_of(m->s, i)) WF_TRY(make_input(m, value_of(m->s, i), i, &m->inputs[i]));
    return WF_OK;
}

/* Whether a gradient is added to its sum by a kernel that leaves nothing in between. */
static wf_status has_adding(const measuring *m, bool *yes_out) {
    wfi_kernel *adding;
    WF_TRY(wfi_kernel_create_adding(m->t->ctx, m->s->graph, m->s->node, &m->t->options, &adding));
    *yes_out = adding;
    wfi_kernel_destroy(adding);
    return WF_OK;
}

static wf_status make_operand(const measuring *m, run *r, int i, bool adds) {
    wf_context *ctx = m->t->ctx;
    const wfi_kernel_options *options = &m->t->options;
    const wfi_value *value = value_of(m->s, i);
    const wfi_format *format = r->kernel->format[i];
    bool is_input = i < m->s->node->n_in;
    if (!value) return WF_OK;
    r->operands[i] = is_input ? m->inputs[i].at : NULL;
    if (!is_input || format) {
        WF_TRY(block_create(m->t, r->kernel->bytes[i], &r->packed[i]));
        r->operands[i] = r->packed[i].at;
    }
    if (is_input && format) {
        WF_TRY(wfi_kernel_create_pack(ctx, options, format, &value->shape, &r->pack[i]));
        return wfi_kernel_prepare(r->pack[i]);
    }
    if (is_input || !(m->s->node->op->flags & WFI_OP_WEIGHT_GRADIENT)) return WF_OK;
    bool adds_itself = false;
    if (!format) WF_TRY(has_adding(m, &adds_itself));
    if (adds_itself) return WF_OK;
    WF_TRY(block_create(m->t, (size_t)wf_shape_n_elem(&value->shape) * sizeof(float), &r->sum[i]));
    if (adds) /* to the previous content, which is compared, too */
        WF_TRY(wfi_memory_fill(m->t->device, m->t->stream, r->sum[i].at, WFI_SPACE_DEVICE, 0,
                               r->sum[i].bytes));
    WF_TRY(
        wfi_kernel_create_accumulate(ctx, options, format, &value->shape, adds, &r->accumulate[i]));
    return wfi_kernel_prepare(r->accumulate[i]);
}

static size_t scratch_of(const run *r) {
    size_t most = r->kernel->scratch_bytes;
    for (int i = 0; i < WFI_MAX_OPERANDS; i++)
        for (int k = 0; k < 2; k++) {
            const wfi_kernel *other = k ? r->pack[i] : r->accumulate[i];
            if (other && other->scratch_bytes > most) most = other->scratch_bytes;
        }
    return most;
}

static wf_status make_run(const measuring *m, const wfi_tuned_way *w, run *r) {
    const wf_recipe *recipe = &m->t->program->recipe;
    WF_TRY(wfi_kernel_create_way(m->t->ctx, m->s->graph, m->s->node, &m->t->options, w->impl,
                                 w->way, &r->kernel));
    if (!r->kernel)
        return wfi_fail(m->t->ctx, WF_BUG, "%s cannot be created a second time", w->name);
    for (int i = 0; i < n_operands(m->s); i++)
        WF_TRY(make_operand(m, r, i, recipe->n_micro > recipe->n_lanes));
    WF_TRY(block_create(m->t, scratch_of(r), &r->scratch));
    return wfi_kernel_prepare(r->kernel);
}

static void free_run(const measuring *m, run *r) {
    wfi_kernel_destroy(r->kernel);
    for (int i = 0; i < WFI_MAX_OPERANDS; i++) {
        wfi_kernel_destroy(r->pack[i]);
        wfi_kernel_destroy(r->accumulate[i]);
        block_free(m->t, &r->packed[i]);
        block_free(m->t, &r->sum[i]);
    }
    block_free(m->t, &r->scratch);
}

/* ---- time ---- */

/* On the CPU's one thread, its time; else the clock once the device has finished its queued
 * work. */
static int64_t now_ns(const measuring *m) {
    bool is_own = m->t->options.n_threads == 1 && !m->t->device->kind->separate;
    wfi_stream_settle(m->t->stream);
    return is_own ? wfi_thread_cpu_ns() : wfi_now_ns();
}

static void keep_least(double *least, double now) {
    if (*least == 0 || now < *least) *least = now;
}

static wf_status run_two(const measuring *m, const run *r, wfi_kernel *kernel, void *from,
                         void *to) {
    const wfi_step_args step = {0};
    return wfi_kernel_run(kernel, m->t->stream, (void *const[]){from, to}, r->scratch.at, &step);
}

static wf_status run_once(const measuring *m, run *r) {
    const wfi_step_args step = {0};
    WF_TRY(wfi_tuning_check_stop(m->t));
    int64_t begin = now_ns(m);
    for (int i = 0; i < n_operands(m->s); i++)
        if (r->pack[i]) WF_TRY(run_two(m, r, r->pack[i], m->inputs[i].at, r->packed[i].at));
    int64_t packed = now_ns(m);
    for (int k = 0; k < r->n_calls; k++)
        WF_TRY(wfi_kernel_run(r->kernel, m->t->stream, r->operands, r->scratch.at, &step));
    int64_t done = now_ns(m);
    for (int i = 0; i < n_operands(m->s); i++)
        if (r->accumulate[i]) WF_TRY(run_two(m, r, r->accumulate[i], r->operands[i], r->sum[i].at));
    keep_least(&r->pack_ns, (double)(packed - begin));
    keep_least(&r->kernel_ns, (double)(done - packed) / r->n_calls);
    keep_least(&r->accumulate_ns, (double)(now_ns(m) - done));
    return WF_OK;
}

/* ---- whether it is right ---- */

static double number_at(const void *data, wf_dtype dtype, int64_t at) {
    if (dtype == WF_F32) return ((const float *)data)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Copies an output of an algorithm to the host; the caller frees it. */
static wf_status fetch(const measuring *m, const run *r, int i, wf_dtype dtype, int64_t n,
                       void **numbers_out) {
    const wf_tuning *t = m->t;
    const void *from = r->sum[i].at ? r->sum[i].at : r->operands[i];
    size_t bytes = (size_t)n * wf_dtype_bytes(dtype);
    *numbers_out = wfi_alloc(t->ctx, 1, bytes ? bytes : 1, "a measurement");
    if (!*numbers_out) return WF_NO_MEMORY;
    wf_status status = wfi_memory_copy(t->device, t->stream, *numbers_out, WFI_SPACE_HOST, from,
                                       WFI_SPACE_DEVICE, bytes);
    wfi_stream_settle(t->stream);
    return status;
}

/* Whether the relative difference is at most `most`; false if a number is NaN. */
static bool is_near(const void *a, const void *b, wf_dtype dtype, int64_t n, double most) {
    double difference = 0, all = 0;
    for (int64_t k = 0; k < n; k++) {
        double x = number_at(a, dtype, k), y = number_at(b, dtype, k);
        difference += (x - y) * (x - y);
        all += x * x;
    }
    return sqrt(difference) <= most * sqrt(all);
}

static double most_between(const wfi_tuned_shape *s, const wf_recipe *recipe) {
    double most = SLACK * s->node->op->tolerance;
    if (recipe->matmul_precision == WF_MATMUL_TF32) most = fmax(most, TF32_ERROR);
    for (int k = 0; k < n_operands(s); k++)
        if (value_of(s, k) && value_of(s, k)->dtype == WF_BF16) most = BF16_ERROR;
    return most;
}

static wf_status compare(const measuring *m, const run *a, const run *b, bool *is_like_out) {
    double most = most_between(m->s, &m->t->program->recipe);
    *is_like_out = true;
    for (int i = m->s->node->n_in; i < n_operands(m->s); i++) {
        const wfi_value *value = value_of(m->s, i);
        void *x = NULL, *y = NULL;
        if (!value) continue;
        wf_dtype dtype = a->sum[i].at ? WF_F32 : value->dtype;
        int64_t n = wf_shape_n_elem(&value->shape);
        wf_status status = fetch(m, a, i, dtype, n, &x);
        if (status == WF_OK) status = fetch(m, b, i, dtype, n, &y);
        if (status == WF_OK) *is_like_out &= is_near(x, y, dtype, n, most);
        wfi_free(m->t->ctx, x);
        wfi_free(m->t->ctx, y);
        WF_TRY(status);
    }
    return WF_OK;
}

/* ---- all ways of a shape ---- */

static void choose(const measuring *m) {
    wfi_tuned_shape *s = m->s;
    const wf_recipe *recipe = &m->t->program->recipe;
    double per_pack = (double)recipe->n_micro / (double)recipe->n_lanes;
    s->chosen = s->usual;
    for (int k = 0; k < s->n_ways; k++) {
        const run *r = &m->runs[k];
        wfi_tuned_way *w = &s->ways[k];
        w->time_us = (r->kernel_ns + r->accumulate_ns + r->pack_ns / per_pack) / 1e3;
        double usual_us = s->ways[s->usual].time_us;
        if (w->is_wrong || w->time_us > usual_us * (1 - GAIN)) continue;
        if (w->time_us < s->ways[s->chosen].time_us) s->chosen = k;
    }
}

/* ---- tasks ---- */

static wf_status make_all_inputs(void *self, void *argument) {
    (void)argument;
    return make_inputs(self);
}

/* Tries one algorithm. The first is the default; the outputs of the others are compared with its
 * outputs. */
static wf_status try_way(void *self, void *argument) {
    const measuring *m = self;
    wfi_tuned_way *w = argument;
    run *r = &m->runs[w - m->s->ways];
    bool is_like;
    WF_TRY(wfi_tuning_check_stop(m->t));
    WF_TRY(make_run(m, w, r));
    r->n_calls = 1;
    WF_TRY(run_once(m, r));
    WF_TRY(compare(m, &m->runs[m->s->usual], r, &is_like));
    w->is_wrong = !is_like;
    double n = LEAST_NS / (r->kernel_ns + 1);
    r->n_calls = n < 1 ? 1 : n > MOST_CALLS ? MOST_CALLS : (int)n;
    r->kernel_ns = r->pack_ns = r->accumulate_ns = 0;
    return WF_OK;
}

static wf_status run_round(void *self, void *argument) {
    const measuring *m = self;
    int n = m->s->n_ways;
    for (int k = 0; k < n; k++) WF_TRY(run_once(m, &m->runs[argument ? n - 1 - k : k]));
    return WF_OK;
}

/* On the stream, and done on return: each has a deadline of its own. */
static wf_status perform(measuring *m, wfi_task task, void *argument) {
    WF_TRY(wfi_stream_push(m->t->stream, task, m, argument));
    WF_TRY(wfi_event_wait(wfi_stream_record(m->t->stream)));
    return wfi_owner_check(&m->t->owner);
}

static wf_status measure(measuring *m) {
    wfi_tuned_shape *s = m->s;
    m->runs = wfi_alloc(m->t->ctx, (size_t)s->n_ways, sizeof *m->runs, "ways");
    if (!m->runs) return WF_NO_MEMORY;
    WF_TRY(perform(m, make_all_inputs, NULL));
    for (int k = 0; k < s->n_ways; k++) WF_TRY(perform(m, try_way, &s->ways[k]));
    for (int64_t round = 0; round < m->n_rounds; round++)
        WF_TRY(perform(m, run_round, round % 2 ? m : NULL));
    choose(m);
    return WF_OK;
}

wf_status wf_tuning_measure(wf_tuning *t, int number, int64_t n_rounds) {
    if (number < 0 || number >= t->n_shapes || n_rounds < 1)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "tuning: shape %d of %d in %lld rounds", number,
                        t->n_shapes, (long long)n_rounds);
    measuring m = {.t = t, .s = &t->shapes[number], .n_rounds = n_rounds};
    wf_status status = measure(&m);
    for (int k = 0; m.runs && k < m.s->n_ways; k++) free_run(&m, &m.runs[k]);
    for (int i = 0; i < WFI_MAX_OPERANDS; i++) block_free(t, &m.inputs[i]);
    wfi_free(t->ctx, m.runs);
    return status;
}
