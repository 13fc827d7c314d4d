/* Ways to compute nodes, measured by shape. */
#include "base/clock.h"
#include "base/env.h"
#include "device/device.h"
#include "program/program.h"

#include <math.h>
#include <string.h>
#include <weft/tune.h>

/* A way has to be faster by so much to be worth another recipe. */
#define GAIN 0.03
/* A shorter call is made several times between two looks at the clock. */
#define LEAST_NS   200000
#define MOST_CALLS 64
/* Of the difference between two ways of an op, beside what each may be off. */
#define SLACK 4
/* What BF16 keeps of a number. */
#define BF16_ERROR 4e-3

typedef struct way {
    wfi_way way;
    const wfi_kernel_impl *impl;
    char name[WFI_WAY_TEXT];
    double time_us;
    bool is_wrong;
} way;

typedef struct shape {
    const wf_graph *graph;
    const wfi_node *node; /* the first of them */
    char text[WFI_NODE_TEXT];
    int n_nodes, n_ways, usual, chosen;
    way *ways;
    size_t way_capacity;
} shape;

struct wf_tuning {
    wf_context *ctx;
    wf_program *program;
    wfi_kernel_options options;
    wfi_failure failure;
    wfi_owner owner;
    wfi_device *device;
    wfi_stream_queue *stream;
    shape *shapes;
    int n_shapes;
    size_t shape_capacity;
};

/* ---- which there are ---- */

static wf_status add_way(wf_tuning *t, shape *s, const wfi_kernel *kernel) {
    char name[WFI_WAY_TEXT];
    wfi_kernel_way_text(kernel, name);
    if (!wfi_tuned_may_name(name, strlen(name), WFI_WAY_TEXT - 2)) return WF_OK;
    for (int k = 0; k < s->n_ways; k++)
        if (!strcmp(s->ways[k].name, name)) return WF_OK;
    WF_TRY(WFI_GROW(t->ctx, s->ways, s->n_ways, s->way_capacity, "ways"));
    s->ways[s->n_ways] = (way){.way = kernel->way, .impl = kernel->impl};
    memcpy(s->ways[s->n_ways++].name, name, sizeof name);
    return WF_OK;
}

/* The usual one is the first. */
static wf_status find_ways(wf_tuning *t, shape *s) {
    wfi_kernel *kernel;
    WF_TRY(wfi_kernel_create(t->ctx, s->graph, s->node, &t->options, &kernel));
    const wfi_kernel_impl *impl = kernel->impl;
    wf_status status = add_way(t, s, kernel);
    wfi_kernel_destroy(kernel);
    const char *const *forms = impl->forms && s->n_ways ? impl->forms(s->node->op) : NULL;
    for (int f = 0; status == WF_OK && forms && forms[f]; f++)
        for (wfi_way at = {f, 0}; status == WF_OK; at.number++) {
            status =
                wfi_kernel_create_way(t->ctx, s->graph, s->node, &t->options, impl, at, &kernel);
            if (status != WF_OK || !kernel) break;
            status = add_way(t, s, kernel);
            wfi_kernel_destroy(kernel);
        }
    return status;
}

static wf_status add_node(wf_tuning *t, const wf_graph *g, const wfi_node *node) {
    char text[WFI_NODE_TEXT];
    if (!*wfi_node_text(g, node, text)) return WF_OK;
    for (int k = 0; k < t->n_shapes; k++)
        if (!strcmp(t->shapes[k].text, text)) {
            t->shapes[k].n_nodes++;
            return WF_OK;
        }
    WF_TRY(WFI_GROW(t->ctx, t->shapes, t->n_shapes, t->shape_capacity, "shapes"));
    shape *s = &t->shapes[t->n_shapes++];
    *s = (shape){.graph = g, .node = node, .n_nodes = 1, .chosen = -1};
    memcpy(s->text, text, sizeof text);
    return find_ways(t, s);
}

static wf_status find_shapes(wf_tuning *t) {
    for (int32_t v = 0; v < t->program->n_variants; v++) {
        const wf_graph *g = t->program->variants[v].graph;
        for (int32_t n = 0; n < g->n_nodes; n++)
            if (!g->nodes[n].dead && !wfi_node_is_alias(g, &g->nodes[n]))
                WF_TRY(add_node(t, g, &g->nodes[n]));
    }
    int n_left = 0; /* those of which there is something to choose */
    for (int k = 0; k < t->n_shapes; k++) {
        shape s = t->shapes[k];
        if (s.n_ways > 1)
            t->shapes[n_left++] = s;
        else
            wfi_free(t->ctx, s.ways);
    }
    t->n_shapes = n_left;
    return WF_OK;
}

/* ---- one way, with what its formats cost ---- */

/* Kernels, and the buffers that are theirs alone: parameters as they like them, and what they give.
 */
typedef struct run {
    wfi_kernel *kernel, *pack[WFI_MAX_OPERANDS], *accumulate[WFI_MAX_OPERANDS];
    void *packed[WFI_MAX_OPERANDS];
    void *operands[WFI_MAX_OPERANDS];
    void *scratch;
    float *sum[WFI_MAX_OPERANDS]; /* of a parameter's gradient */
    int n_calls;                  /* between two looks at the clock */
    double kernel_ns, pack_ns, accumulate_ns;
} run;

typedef struct measuring {
    wf_tuning *t;
    shape *s;
    int64_t n_rounds;
    void *inputs[WFI_MAX_OPERANDS];
    run *runs; /* [s->n_ways] */
} measuring;

static const wfi_value *value_of(const shape *s, int operand) {
    const wfi_node *node = s->node;
    int32_t v = operand < node->n_in ? node->in[operand] : node->out[operand - node->n_in];
    return v < 0 ? NULL : wfi_value_at(s->graph, v);
}

static int n_operands(const shape *s) {
    return s->node->n_in + s->node->n_out;
}

/* Bytes that are not written show: all bits set is no number. */
static wf_status allocate(wf_context *ctx, size_t bytes, void **block_out) {
    *block_out = wfi_alloc(ctx, 1, bytes ? bytes : 1, "what is measured");
    if (!*block_out) return WF_NO_MEMORY;
    memset(*block_out, 0xff, bytes);
    return WF_OK;
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

static wf_status make_inputs(measuring *m) {
    for (int i = 0; i < m->s->node->n_in; i++) {
        const wfi_value *value = value_of(m->s, i);
        if (!value) continue;
        int64_t n = wf_shape_n_elem(&value->shape);
        WF_TRY(allocate(m->t->ctx, (size_t)n * wf_dtype_bytes(value->dtype), &m->inputs[i]));
        fill(m->inputs[i], value->dtype, n, (uint64_t)i);
    }
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
    r->operands[i] = is_input ? m->inputs[i] : NULL;
    if (!is_input || format) {
        WF_TRY(allocate(ctx, r->kernel->bytes[i], &r->packed[i]));
        r->operands[i] = r->packed[i];
    }
    if (is_input && format) {
        WF_TRY(wfi_kernel_create_pack(ctx, options, format, &value->shape, &r->pack[i]));
        return wfi_kernel_prepare(r->pack[i]);
    }
    if (is_input || !(m->s->node->op->flags & WFI_OP_WEIGHT_GRADIENT)) return WF_OK;
    bool adds_itself = false;
    if (!format) WF_TRY(has_adding(m, &adds_itself));
    if (adds_itself) return WF_OK;
    size_t bytes = (size_t)wf_shape_n_elem(&value->shape) * sizeof(float);
    r->sum[i] = wfi_alloc(ctx, 1, bytes, "what is measured");
    if (!r->sum[i]) return WF_NO_MEMORY;
    WF_TRY(
        wfi_kernel_create_accumulate(ctx, options, format, &value->shape, adds, &r->accumulate[i]));
    return wfi_kernel_prepare(r->accumulate[i]);
}

static wf_status make_run(const measuring *m, const way *w, run *r) {
    const wf_recipe *recipe = &m->t->program->recipe;
    WF_TRY(wfi_kernel_create_way(m->t->ctx, m->s->graph, m->s->node, &m->t->options, w->impl,
                                 w->way, &r->kernel));
    if (!r->kernel)
        return wfi_fail(m->t->ctx, WF_BUG, "%s is not to be had a second time", w->name);
    for (int i = 0; i < n_operands(m->s); i++)
        WF_TRY(make_operand(m, r, i, recipe->n_micro > recipe->n_lanes));
    WF_TRY(allocate(m->t->ctx, r->kernel->scratch_bytes, &r->scratch));
    return wfi_kernel_prepare(r->kernel);
}

static void free_run(const measuring *m, run *r) {
    wf_context *ctx = m->t->ctx;
    wfi_kernel_destroy(r->kernel);
    for (int i = 0; i < WFI_MAX_OPERANDS; i++) {
        wfi_kernel_destroy(r->pack[i]);
        wfi_kernel_destroy(r->accumulate[i]);
        wfi_free(ctx, r->packed[i]);
        wfi_free(ctx, r->sum[i]);
    }
    wfi_free(ctx, r->scratch);
}

/* ---- time ---- */

static int64_t now_ns(const measuring *m) {
    return m->t->options.n_threads == 1 ? wfi_thread_cpu_ns() : wfi_now_ns();
}

static void keep_least(double *least, double now) {
    if (*least == 0 || now < *least) *least = now;
}

/* Pack and accumulate have scratch memory of their own kernels, which is none on the CPU's. */
static wf_status run_two(const measuring *m, wfi_kernel *kernel, void *from, void *to) {
    void *scratch = NULL;
    const wfi_step_args step = {0};
    if (kernel->scratch_bytes) WF_TRY(allocate(m->t->ctx, kernel->scratch_bytes, &scratch));
    wf_status status =
        wfi_kernel_run(kernel, m->t->stream, (void *const[]){from, to}, scratch, &step);
    wfi_free(m->t->ctx, scratch);
    return status;
}

static wf_status run_once(const measuring *m, run *r) {
    const wfi_step_args step = {0};
    int64_t begin = now_ns(m);
    for (int i = 0; i < n_operands(m->s); i++)
        if (r->pack[i]) WF_TRY(run_two(m, r->pack[i], m->inputs[i], r->packed[i]));
    int64_t packed = now_ns(m);
    for (int k = 0; k < r->n_calls; k++)
        WF_TRY(wfi_kernel_run(r->kernel, m->t->stream, r->operands, r->scratch, &step));
    int64_t done = now_ns(m);
    for (int i = 0; i < n_operands(m->s); i++)
        if (r->accumulate[i]) WF_TRY(run_two(m, r->accumulate[i], r->operands[i], r->sum[i]));
    keep_least(&r->pack_ns, (double)(packed - begin));
    keep_least(&r->kernel_ns, (double)(done - packed) / r->n_calls);
    keep_least(&r->accumulate_ns, (double)(now_ns(m) - done));
    return WF_OK;
}

/* ---- whether it is right ---- */

static double number_at(const run *r, const wfi_value *value, int i, int64_t at) {
    if (r->sum[i]) return r->sum[i][at];
    if (value->dtype == WF_F32) return ((const float *)r->operands[i])[at];
    uint32_t bits = (uint32_t)((const uint16_t *)r->operands[i])[at] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static bool is_like(const measuring *m, const run *a, const run *b) {
    for (int i = m->s->node->n_in; i < n_operands(m->s); i++) {
        const wfi_value *value = value_of(m->s, i);
        double difference = 0, all = 0, most = SLACK * m->s->node->op->tolerance;
        for (int64_t k = 0; value && k < wf_shape_n_elem(&value->shape); k++) {
            double x = number_at(a, value, i, k), y = number_at(b, value, i, k);
            difference += (x - y) * (x - y);
            all += x * x;
        }
        for (int k = 0; value && k < n_operands(m->s); k++)
            if (value_of(m->s, k) && value_of(m->s, k)->dtype == WF_BF16) most = BF16_ERROR;
        if (!(sqrt(difference) <= most * sqrt(all))) return false; /* nor what is no number */
    }
    return true;
}

/* ---- all ways of a shape ---- */

static void choose(const measuring *m) {
    shape *s = m->s;
    const wf_recipe *recipe = &m->t->program->recipe;
    double per_pack = (double)recipe->n_micro / (double)recipe->n_lanes;
    s->chosen = s->usual;
    for (int k = 0; k < s->n_ways; k++) {
        const run *r = &m->runs[k];
        way *w = &s->ways[k];
        w->time_us = (r->kernel_ns + r->accumulate_ns + r->pack_ns / per_pack) / 1e3;
        double usual_us = s->ways[s->usual].time_us;
        if (w->is_wrong || w->time_us > usual_us * (1 - GAIN)) continue;
        if (w->time_us < s->ways[s->chosen].time_us) s->chosen = k;
    }
}

static wf_status measure(void *self, void *argument) {
    measuring *m = self;
    shape *s = m->s;
    (void)argument;
    for (int k = 0; k < s->n_ways; k++) {
        run *r = &m->runs[k];
        WF_TRY(make_run(m, &s->ways[k], r));
        r->n_calls = 1;
        WF_TRY(run_once(m, r));
        s->ways[k].is_wrong = !is_like(m, &m->runs[s->usual], r);
        double n = LEAST_NS / (r->kernel_ns + 1);
        r->n_calls = n < 1 ? 1 : n > MOST_CALLS ? MOST_CALLS : (int)n;
        r->kernel_ns = r->pack_ns = r->accumulate_ns = 0;
    }
    for (int64_t round = 0; round < m->n_rounds; round++)
        for (int k = 0; k < s->n_ways; k++)
            WF_TRY(run_once(m, &m->runs[round % 2 ? s->n_ways - 1 - k : k]));
    choose(m);
    return WF_OK;
}

wf_status wf_tuning_measure(wf_tuning *t, int number, int64_t n_rounds) {
    if (number < 0 || number >= t->n_shapes || n_rounds < 1)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "tuning: shape %d of %d in %lld rounds", number,
                        t->n_shapes, (long long)n_rounds);
    measuring m = {.t = t, .s = &t->shapes[number], .n_rounds = n_rounds};
    m.runs = wfi_alloc(t->ctx, (size_t)m.s->n_ways, sizeof *m.runs, "ways");
    wf_status status = m.runs ? make_inputs(&m) : WF_NO_MEMORY;
    if (status == WF_OK) status = wfi_stream_push(t->stream, measure, &m, NULL);
    if (status == WF_OK) status = wfi_event_wait(wfi_stream_record(t->stream));
    if (status == WF_OK) status = wfi_owner_check(&t->owner);
    for (int k = 0; m.runs && k < m.s->n_ways; k++) free_run(&m, &m.runs[k]);
    for (int i = 0; i < WFI_MAX_OPERANDS; i++) wfi_free(t->ctx, m.inputs[i]);
    wfi_free(t->ctx, m.runs);
    return status;
}

/* ---- life ---- */

static wf_status enter(void *self, void *argument) {
    const wf_tuning *t = self;
    int ignored;
    (void)argument;
    return t->options.backend->thread_enter(t->ctx, 0, t->options.n_threads, &ignored);
}

static wf_status open(wf_tuning *t) {
    WF_TRY(wfi_env_count(t->ctx, WFI_WEFT_TIMEOUT_MS, &t->owner.timeout_ms));
    WF_TRY(wfi_device_create(&t->owner, WFI_DEFAULT_DEVICE, 0, 1, &t->device));
    WF_TRY(wfi_stream_create(t->device, wfi_stream_name(WFI_STREAM_COMPUTE), 0, NULL, &t->stream));
    WF_TRY(wfi_stream_push(t->stream, enter, t, NULL));
    WF_TRY(wfi_event_wait(wfi_stream_record(t->stream)));
    return wfi_owner_check(&t->owner);
}

wf_status wf_tuning_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                           const wf_plan *plan, wf_tuning **tuning_out) {
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    wf_recipe untuned = *recipe;
    *untuned.tuned.text = 0;
    wf_tuning *t = wfi_alloc(ctx, 1, sizeof *t, "a tuning");
    if (!t) return WF_NO_MEMORY;
    t->ctx = ctx;
    t->owner = (wfi_owner){.ctx = ctx, .failure = &t->failure};
    wf_status status = wf_program_create(ctx, model, &untuned, plan, WF_PROGRAM_TRAIN, &t->program);
    if (status == WF_OK) {
        t->options = wfi_program_kernel_options(t->program, 0);
        status = find_shapes(t);
    }
    if (status == WF_OK) status = open(t);
    if (status != WF_OK) {
        wf_tuning_destroy(t);
        return status;
    }
    *tuning_out = t;
    return WF_OK;
}

void wf_tuning_destroy(wf_tuning *t) {
    if (!t) return;
    if (t->stream) wfi_stream_finish(t->stream);
    wfi_stream_destroy(t->stream);
    wfi_device_destroy(t->device);
    for (int k = 0; k < t->n_shapes; k++) wfi_free(t->ctx, t->shapes[k].ways);
    wfi_free(t->ctx, t->shapes);
    wf_program_destroy(t->program);
    wfi_free(t->ctx, t);
}

int wf_tuning_n_shapes(const wf_tuning *t) {
    return t->n_shapes;
}

wf_tuned_shape wf_tuning_shape(const wf_tuning *t, int number) {
    if (number < 0 || number >= t->n_shapes) return (wf_tuned_shape){0};
    const shape *s = &t->shapes[number];
    return (wf_tuned_shape){s->text, s->n_nodes, s->n_ways, s->usual, s->chosen};
}

wf_tuned_way wf_tuning_way(const wf_tuning *t, int number, int place) {
    if (number < 0 || number >= t->n_shapes) return (wf_tuned_way){0};
    const shape *s = &t->shapes[number];
    if (place < 0 || place >= s->n_ways) return (wf_tuned_way){0};
    return (wf_tuned_way){s->ways[place].name, s->ways[place].time_us, s->ways[place].is_wrong};
}
