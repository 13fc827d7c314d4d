/* What each instruction does on a device with memory. */
#include "base/finite.h"
#include "base/random.h"
#include "optimizer/optimizer.h"
#include "run/executor.h"
#include "run/not_finite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The longest that a delay sleeps without looking up. */
#define N_US_ASLEEP 10000

void *wfi_executor_touch(const wfi_executor *e, const wfi_reference *r) {
    void *data = wfi_executor_at(e, r);
    wfi_observe(&e->workers[e->p->blocks[r->block].rank].observer, data, r->bytes,
                r->access & WFI_WRITE, true);
    return data;
}

static wf_status run_kernel(const wfi_executor *e, int32_t rank, wfi_kernel *kernel,
                            void *const *operands, void *scratch, const wfi_step_args *args) {
    wfi_observer *observer = &e->workers[rank].observer;
    bool seen = kernel->impl->instrumented;
    for (int i = 0; i < kernel->n_operands; i++)
        wfi_observe(observer, operands[i], kernel->extent[i], kernel->writes[i], seen);
    wfi_observe(observer, scratch, kernel->scratch_extent, true, seen);
    if (!e->profile->is_on) return wfi_kernel_run(kernel, operands, scratch, args);
    int64_t begin = wfi_now_ns();
    WF_TRY(wfi_kernel_run(kernel, operands, scratch, args));
    return wfi_profile_add(e->profile, kernel->label,
                           *kernel->detail ? kernel->detail : kernel->impl->name,
                           wfi_now_ns() - begin, kernel->flops);
}

/* Replicas run the same segment with other kernels. */
static const wfi_segment *segment_of(const wfi_executor *e, const wfi_instruction *now) {
    int32_t set = wfi_program_kernel_set(e->p, now->rank);
    const wfi_unit_code *unit = &e->code[2 * set + now->segment->is_rest]->units[now->unit];
    return now->segment->is_pack ? unit->pack[now->part] : unit->part[now->part];
}

/* Parameters begin at multiples of a cache line. What lies between them is no gradient,
 * but the norm and the sums over ranks run over it: it is zero. */
static void clear_gaps(const wfi_executor *e, const wfi_instruction *now) {
    const wf_graph *g = e->p->graph;
    char *gradient = NULL;
    for (int32_t s = 0; s < now->n_references && !gradient; s++)
        if (now->segment->slots[s].kind == WFI_BLOCK_GRADIENT)
            gradient = wfi_executor_at(e, &now->references[s]);
    for (int32_t i = 0; i < g->n_weight_gradients && gradient; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        if (w->unit != now->unit) continue;
        size_t end = e->p->code->tied_offset[i] + wfi_value_bytes(g, w->param);
        memset(gradient + end, 0, wfi_round_up(end, WFI_ALIGN_BYTES) - end);
    }
}

static wf_status run_segment(const wfi_executor *e, const wfi_instruction *now) {
    const wfi_segment *segment = segment_of(e, now);
    wfi_step_args args = e->step.args;
    if (now->first) clear_gaps(e, now);
    args.first_sample = now->micro < 0 ? 0 : wfi_program_first_sample(e->p, now->micro);
    for (int32_t s = 0; s < segment->n_steps; s++) {
        const wfi_segment_step *step = &segment->steps[s];
        wfi_kernel *kernel = step->kernel_add && !now->first ? step->kernel_add : step->kernel;
        void *operands[WFI_MAX_OPERANDS] = {NULL};
        for (int i = 0; i < kernel->n_operands; i++) {
            const wfi_address *a = &step->operand[i];
            if (a->slot >= 0)
                operands[i] = (char *)wfi_executor_at(e, &now->references[a->slot]) + a->offset;
        }
        void *scratch = step->scratch.slot < 0 || !kernel->scratch_bytes
                            ? NULL
                            : (char *)wfi_executor_at(e, &now->references[step->scratch.slot]) +
                                  step->scratch.offset;
        WF_TRY(run_kernel(e, now->rank, kernel, operands, scratch, &args));
    }
    return WF_OK;
}

static void add_floats(float *restrict sum, const float *restrict summand, size_t n) {
    for (size_t i = 0; i < n; i++) sum[i] += summand[i];
}

static wf_status run_load(const wfi_executor *e, const wfi_instruction *now) {
    const wf_graph *g = wfi_program_graph_of(e->p, now->micro);
    size_t bytes = now->references[0].bytes, sample_bytes = bytes / (size_t)g->batch;
    const char *given = e->step.inputs[now->id];
    size_t first = (size_t)(wfi_program_first_sample(e->p, now->micro) - e->step.first_sample);
    memcpy(wfi_executor_touch(e, &now->references[0]), given + first * sample_bytes, bytes);
    return WF_OK;
}

static wf_status run_fold(const wfi_executor *e, const wfi_instruction *now) {
    float *below = wfi_executor_touch(e, &now->references[0]);
    add_floats(below, wfi_executor_touch(e, &now->references[1]),
               now->references[0].bytes / sizeof *below);
    return WF_OK;
}

static wf_status run_tie(const wfi_executor *e, const wfi_instruction *now) {
    const wf_graph *g = e->p->graph;
    const wfi_weight_gradient *w = &g->weight_gradients[now->id];
    float *owner = wfi_executor_touch(e, &now->references[0]);
    const char *other = wfi_executor_touch(e, &now->references[1]);
    add_floats(owner + g->values[w->param].offset / sizeof *owner,
               (const float *)(const void *)(other + e->p->code->tied_offset[now->id]),
               wfi_value_bytes(g, w->param) / sizeof *owner);
    return WF_OK;
}

static wf_status run_norm(const wfi_executor *e, const wfi_instruction *now) {
    const float *gradient = wfi_executor_touch(e, &now->references[0]);
    wfi_gradient_squares(gradient, now->references[0].bytes / sizeof *gradient,
                         wfi_executor_touch(e, &now->references[1]));
    return WF_OK;
}

/* The global norm: the tree over a unit's sums, then over units, both in fixed order. */
static float clip_scale(wfi_executor *e, const wfi_reference *norms, int32_t n) {
    double sum = 0;
    for (int32_t u = 0; u < n; u++)
        sum += wfi_tree_sum(norms[u].bytes ? wfi_executor_touch(e, &norms[u]) : NULL,
                            norms[u].bytes / sizeof(double));
    double norm = sqrt(sum), limit = e->p->recipe.clip_norm;
    /* The same on all ranks that update; any of them may be the only one here. */
    __atomic_store(&e->step.gradient_norm, &norm, __ATOMIC_RELAXED);
    /* PyTorch adds 1e-6 to the norm so that a zero gradient divides well. */
    return norm > limit ? (float)(limit / (norm + 1e-6)) : 1.0f;
}

static wf_status run_update(wfi_executor *e, const wfi_instruction *now) {
    const wf_program *p = e->p;
    const wfi_reference *r = now->references;
    int n_states = wfi_recipe_n_states(&p->recipe);
    float scale = 1;
    int32_t n_fixed = 2 + (n_states > 0);
    if (p->recipe.clip_norm > 0) scale = clip_scale(e, r + n_fixed, now->n_references - n_fixed);
    float *param = wfi_executor_touch(e, &r[0]);
    const float *gradient = wfi_executor_touch(e, &r[1]);
    float *state = n_states ? wfi_executor_touch(e, &r[2]) : NULL;
    size_t n = r[0].bytes / sizeof *param;
    wfi_update_result result = wfi_optimizer_update(
        &p->recipe, e->step.lr, (int64_t)e->step.args.step, scale, param, gradient, state, n);
    if (result == WFI_UPDATE_FINITE) return WF_OK;
    wfi_not_finite what =
        wfi_find_not_finite(gradient, n) < n
            ? WFI_FINITE_NO_GRADIENT
            : (result == WFI_UPDATE_PARAM ? WFI_FINITE_NO_WEIGHTS : WFI_FINITE_NO_STATE);
    wfi_not_finite_note(e->workers[now->rank].not_finite, what, now->unit);
    return WF_OK;
}

/* running = (1 - momentum) running + momentum batch, microbatch by microbatch in
 * global order; the variance of the batch is made unbiased first. Returns whether what comes of it
 * is finite. */
static bool fold_stat(const wf_program *p, int64_t micro, const wfi_stat *stat, char *buffers,
                      const char *batch) {
    const wf_graph *g = wfi_program_graph_of(p, micro);
    const wfi_place *place = wfi_program_code_of(p, micro)->place;
    int64_t n = wf_shape_n_elem(&g->values[stat->mean].shape);
    float *mean = (float *)(void *)(buffers + g->values[stat->running_mean].offset);
    float *var = (float *)(void *)(buffers + g->values[stat->running_var].offset);
    int64_t *n_batches = (int64_t *)(void *)(buffers + g->values[stat->n_batches].offset);
    const float *batch_mean = (const float *)(const void *)(batch + place[stat->mean].offset);
    const float *batch_var = (const float *)(const void *)(batch + place[stat->var].offset);
    double rest = stat->n_reduced > 1 ? (double)stat->n_reduced / (double)(stat->n_reduced - 1) : 1;
    for (int64_t i = 0; i < n; i++) {
        mean[i] = (float)((1 - stat->momentum) * mean[i] + stat->momentum * batch_mean[i]);
        var[i] = (float)((1 - stat->momentum) * var[i] + stat->momentum * rest * batch_var[i]);
    }
    ++*n_batches;
    return wfi_find_not_finite(mean, (size_t)n) == (size_t)n &&
           wfi_find_not_finite(var, (size_t)n) == (size_t)n;
}

static wf_status run_fold_stats(const wfi_executor *e, const wfi_instruction *now) {
    char *buffers = wfi_executor_touch(e, &now->references[0]);
    for (int32_t k = 1; k < now->n_references; k++) {
        const char *batch = wfi_executor_touch(e, &now->references[k]);
        int64_t micro = e->p->blocks[now->references[k].block].micro;
        const wf_graph *g = wfi_program_graph_of(e->p, micro);
        for (int32_t s = 0; s < g->n_stats; s++)
            if (g->stats[s].unit == now->unit &&
                !fold_stat(e->p, micro, &g->stats[s], buffers, batch))
                wfi_not_finite_note(e->workers[now->rank].not_finite, WFI_FINITE_NO_STATISTICS,
                                    now->unit);
    }
    return WF_OK;
}

static wf_status run_report(const wfi_executor *e, const wfi_instruction *now) {
    for (int32_t k = 0; k < now->n_references; k++) {
        int64_t m = e->p->blocks[now->references[k].block].micro;
        memcpy(e->step.records + 2 * m, wfi_executor_touch(e, &now->references[k]),
               2 * sizeof(double));
    }
    return WF_OK;
}

static wf_status run_store(const wfi_executor *e, const wfi_instruction *now) {
    size_t bytes = wfi_value_bytes(e->p->graph, e->p->graph->outputs[now->id]);
    const void *value = wfi_executor_touch(e, &now->references[0]);
    void *host = e->step.outputs ? e->step.outputs[now->id] : NULL;
    if (host) memcpy(host, value, bytes);
    return WF_OK;
}

/* Random, so that a dependency which is missing cannot hide behind good timing. */
void wfi_executor_delay(const wfi_executor *e, int32_t i) {
    if (e->delay_us <= 0) return;
    uint32_t words[4];
    wfi_random_key key = {(uint64_t)wfi_now_ns(), (uint64_t)e->p->instructions[i].rank};
    wfi_random_words(key, 0, (uint64_t)i, words);
    int64_t us = words[0] % (uint64_t)(e->delay_us + 1);
    /* In pieces: a rank that fails does not wait for the others to sleep enough. */
    const wfi_device *device = e->workers[e->p->instructions[i].rank].device;
    for (; us > 0 && wfi_device_status(device) == WF_OK; us -= N_US_ASLEEP) {
        struct timespec time = {0, (long)wfi_min_i64(us, N_US_ASLEEP) * 1000};
        nanosleep(&time, NULL);
    }
}

static wf_status dispatch(wfi_executor *e, const wfi_instruction *now) {
    switch (now->kind) {
    case WFI_LOAD:
        return run_load(e, now);
    case WFI_PACK:
    case WFI_FORWARD:
    case WFI_BACKWARD:
    case WFI_WEIGHT:
    case WFI_BACKWARD_WEIGHT:
        return run_segment(e, now);
    case WFI_FOLD:
        return run_fold(e, now);
    case WFI_TIE:
        return run_tie(e, now);
    case WFI_NORM:
        return run_norm(e, now);
    case WFI_UPDATE:
        return run_update(e, now);
    case WFI_FOLD_STATS:
        return run_fold_stats(e, now);
    case WFI_REPORT:
        return run_report(e, now);
    case WFI_STORE:
        return run_store(e, now);
    case WFI_BROADCAST:
    case WFI_ALL_REDUCE:
    case WFI_REDUCE:
    case WFI_GATHER_NORM:
    case WFI_GATHER_STATS:
    case WFI_SEND:
    case WFI_RECEIVE:
    case WFI_N_INSTRUCTION_KINDS:
        break;
    }
    return wfi_fail(e->p->ctx, WF_BUG, "instruction %s takes more than one rank",
                    wfi_instruction_kind_name(now->kind));
}

/* Where it failed, in front of what failed. */
static wf_status fail_at(const wfi_executor *e, int32_t i, wf_status status) {
    char name[256];
    wfi_executor_name(e, i, name, sizeof name);
    return wfi_fail_at(e->p->ctx, status, "rank %d, %s", e->p->instructions[i].rank, name);
}

void wfi_executor_name(const wfi_executor *e, int32_t i, char *text, size_t bytes) {
    const wfi_instruction *now = &e->p->instructions[i];
    const char *unit = now->unit < 0 ? "" : e->p->graph->units[now->unit].name;
    char micro[48] = "";
    if (now->micro >= 0) snprintf(micro, sizeof micro, ", microbatch %lld", (long long)now->micro);
    snprintf(text, bytes, "%s%s%s%s", wfi_instruction_kind_name(now->kind), *unit ? " " : "", unit,
             micro);
}

wf_status wfi_executor_instruction(void *self, void *argument) {
    wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    const wfi_instruction *now = &e->p->instructions[i];
    wfi_executor_delay(e, i);
    wfi_executor_begin(e, i);
    int64_t begin = e->profile->is_on ? wfi_now_ns() : 0;
    wf_status status = dispatch(e, now);
    if (status == WF_OK) status = wfi_executor_check(e, i);
    if (status != WF_OK) return fail_at(e, i, status);
    wfi_executor_end(e, i);
    if (!e->profile->is_on || now->segment) return WF_OK;
    return wfi_profile_add(e->profile, wfi_instruction_kind_name(now->kind), "weft",
                           wfi_now_ns() - begin, 0);
}
