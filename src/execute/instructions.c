/* Runs each instruction on a device with memory: binds its references, and calls kernels of the
 * device's backend, or copies. */
#include "base/race.h"
#include "execute/delay.h"
#include "execute/recorded.h"
#include "program/clock.h"
#include "program/rate.h"

#include <stdio.h>

/* Measures the peak of a rank's memory. The library's own descriptors say how far a kernel reaches
 * (wfi_kernel.extent), not the bytes that memory was planned from; that nothing reaches further is
 * tested (gaps.h). */
static void observe(wfi_arena *arena, const void *data, size_t bytes) {
    if (!data || !bytes) return;
    size_t end = (size_t)((const char *)data - arena->base) + bytes;
    size_t peak = __atomic_load_n(&arena->peak_bytes, __ATOMIC_RELAXED);
    while (end > peak && !__atomic_compare_exchange_n(&arena->peak_bytes, &peak, end, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

void *wfi_executor_touch(const wfi_executor *e, const wfi_reference *r) {
    void *data = wfi_executor_at(e, r);
    const wfi_block *block = &e->p->blocks[r->block];
    observe(&e->workers[block->rank].arenas[block->space], data, r->bytes);
    return data;
}

/* Where an instruction runs. */
static const wfi_worker *worker_of(const wfi_executor *e, const wfi_instruction *now) {
    return &e->workers[now->rank];
}
static wfi_stream_queue *stream_of(const wfi_executor *e, const wfi_instruction *now) {
    return worker_of(e, now)->streams[now->stream];
}

/* Returns CPU time of the rank's thread; if a separate device does the work, the clock when it has
 * finished. */
static int64_t profile_ns(const wfi_executor *e, const wfi_instruction *now) {
    if (!e->profile->is_on) return 0;
    if (!worker_of(e, now)->device->kind->finish_task) return wfi_thread_cpu_ns();
    wfi_stream_settle(stream_of(e, now));
    return wfi_now_ns();
}

/* A device's and a disk's work takes none of the thread's time. */
void wfi_executor_count_cpu(const wfi_executor *e, int32_t i, int sign) {
    const wfi_instruction *now = &e->p->instructions[i];
    bool is_disk =
        wfi_type_of(now)->cost == WFI_COST_SPACE && wfi_moved_space(e->p, now) == WFI_SPACE_DISK;
    if (!worker_of(e, now)->device->kind->finish_task && !is_disk)
        e->trace->cpu_ns[i] += sign * wfi_thread_cpu_ns() - (sign > 0) * e->trace->clock_ns;
}

static wf_status run_kernel(const wfi_executor *e, const wfi_instruction *now, wfi_kernel *kernel,
                            void *const *operands, void *scratch, bool launches) {
    wfi_step_args args = e->step.args;
    wfi_arena *arena = &e->workers[now->rank].arenas[WFI_SPACE_DEVICE];
    for (int i = 0; i < kernel->n_operands; i++) {
        observe(arena, operands[i], kernel->extent[i]);
        wfi_touches(operands[i], kernel->extent[i], kernel->writes[i]);
    }
    observe(arena, scratch, kernel->scratch_extent);
    wfi_touches(scratch, kernel->scratch_extent, true);
    if (!launches) return WF_OK;
    args.first_sample = now->micro < 0 ? 0 : wfi_program_first_sample(e->p, now->micro);
    args.first_sample += e->step.batch_sample;
    int64_t begin = profile_ns(e, now);
    WF_TRY(wfi_kernel_run(kernel, stream_of(e, now), operands, scratch, &args));
    if (!e->profile->is_on) return WF_OK;
    return wfi_profile_add(e->profile, kernel->label,
                           *kernel->detail ? kernel->detail : kernel->impl->name,
                           profile_ns(e, now) - begin, kernel->flops);
}

/* Replicas run the same segment with other kernels. */
static const wfi_segment *segment_of(const wfi_executor *e, const wfi_instruction *now) {
    const wfi_unit_code *unit =
        &wfi_executor_code(e, now->rank, now->segment->variant)->units[now->unit];
    return now->segment->is_pack ? unit->pack[now->part] : unit->part[now->part];
}

/* Zeroes the gradient bytes that no kernel of the unit assigns. They are gaps between parameters,
 * which the norm and the sums over ranks include, and weights that only other units use: these add
 * their gradients later. */
static wf_status clear_gaps(const wfi_executor *e, const wfi_instruction *now) {
    const wf_graph *g = e->p->graph;
    char *gradient = NULL;
    for (int32_t s = 0; s < now->n_references && !gradient; s++)
        if (now->segment->slots[s].kind == WFI_BLOCK_GRADIENT)
            gradient = wfi_executor_at(e, &now->references[s]);
    size_t done = 0, end = gradient ? g->units[now->unit].trained_bytes : 0;
    const wfi_unit *unit = &g->units[now->unit];
    for (int32_t i = unit->first_gradient; i <= unit->end_gradient && done < end; i++) {
        const wfi_weight_gradient *w = i < unit->end_gradient ? &g->weight_gradients[i] : NULL;
        if (w && wfi_is_tied(g, i)) continue;
        size_t next = w ? g->values[w->param].offset : end;
        if (next > done)
            WF_TRY(wfi_memory_fill(worker_of(e, now)->device, stream_of(e, now), gradient + done,
                                   WFI_SPACE_DEVICE, 0, next - done));
        if (w) done = next + wfi_value_bytes(g, w->param);
    }
    return WF_OK;
}

static wf_status run_kernels(wfi_executor *e, const wfi_instruction *now, bool launches) {
    const wfi_segment *segment = segment_of(e, now);
    if (now->first && launches) WF_TRY(clear_gaps(e, now));
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
        WF_TRY(run_kernel(e, now, kernel, operands, scratch, launches));
    }
    return WF_OK;
}

static wf_status run_segment(wfi_executor *e, const wfi_instruction *now) {
    return wfi_recorded_run(e, now, run_kernels);
}

/* ---- between the host and a rank ---- */

static wf_status run_load(wfi_executor *e, const wfi_instruction *now) {
    const wf_graph *g = wfi_program_graph_of(e->p, now->micro);
    size_t bytes = now->references[0].bytes, sample_bytes = bytes / (size_t)g->batch;
    const char *given = e->step.inputs[now->id];
    size_t first = (size_t)(wfi_program_first_sample(e->p, now->micro) - e->step.first_sample);
    return wfi_memory_copy(worker_of(e, now)->device, stream_of(e, now),
                           wfi_executor_touch(e, &now->references[0]), WFI_SPACE_DEVICE,
                           given + first * sample_bytes, WFI_SPACE_HOST, bytes);
}

static wf_status to_host(const wfi_executor *e, const wfi_instruction *now,
                         const wfi_reference *from, void *to, size_t bytes) {
    const void *data = wfi_executor_touch(e, from);
    if (!to) return WF_OK;
    return wfi_memory_copy(worker_of(e, now)->device, stream_of(e, now), to, WFI_SPACE_HOST, data,
                           WFI_SPACE_DEVICE, bytes);
}

static wf_status run_report(wfi_executor *e, const wfi_instruction *now) {
    for (int32_t k = 0; k < now->n_references; k++) {
        double *record = e->step.records + 2 * e->p->blocks[now->references[k].block].name.micro;
        if (!wfi_mesh_reports(&e->p->mesh, now->rank)) record = NULL;
        WF_TRY(to_host(e, now, &now->references[k], record, 2 * sizeof *record));
    }
    return WF_OK;
}

static wf_status run_store(wfi_executor *e, const wfi_instruction *now) {
    size_t bytes = wfi_value_bytes(e->p->graph, e->p->graph->outputs[now->id]);
    void *host = e->step.outputs ? e->step.outputs[now->id] : NULL;
    return to_host(e, now, &now->references[0], host, bytes);
}

static wfi_space space_of(const wfi_executor *e, const wfi_reference *r) {
    return e->p->blocks[r->block].space;
}

static wf_status run_copy(wfi_executor *e, const wfi_instruction *now) {
    const wfi_reference *r = now->references;
    return wfi_memory_copy(worker_of(e, now)->device, stream_of(e, now),
                           wfi_executor_touch(e, &r[1]), space_of(e, &r[1]),
                           wfi_executor_touch(e, &r[0]), space_of(e, &r[0]), r[0].bytes);
}

/* ---- the backend's kernels ---- */

static wf_status run_fold(wfi_executor *e, const wfi_instruction *now) {
    float *below = wfi_executor_touch(e, &now->references[0]);
    return worker_of(e, now)->backend->add(stream_of(e, now), below,
                                           wfi_executor_touch(e, &now->references[1]),
                                           now->references[0].bytes / sizeof *below);
}

static wf_status run_tie(wfi_executor *e, const wfi_instruction *now) {
    const wf_graph *g = e->p->graph;
    const wfi_reference *r = now->references;
    size_t offset = g->values[g->weight_gradients[now->id].param].offset;
    float *owner = wfi_executor_touch(e, &r[0]);
    return worker_of(e, now)->backend->add(stream_of(e, now), owner + offset / sizeof *owner,
                                           wfi_executor_touch(e, &r[1]),
                                           r[1].bytes / sizeof *owner);
}

static wf_status run_norm(wfi_executor *e, const wfi_instruction *now) {
    const float *gradient = wfi_executor_touch(e, &now->references[0]);
    return worker_of(e, now)->backend->squares(stream_of(e, now), gradient,
                                               now->references[0].bytes / sizeof *gradient,
                                               wfi_executor_touch(e, &now->references[1]));
}

static wf_status run_total_norm(wfi_executor *e, const wfi_instruction *now) {
    const wfi_reference *r = now->references;
    int32_t n_units = e->p->graph->n_units;
    wfi_squares *squares = e->squares + (size_t)now->rank * (size_t)n_units;
    for (int32_t u = 0; u < n_units; u++)
        squares[u] = (wfi_squares){r[1 + u].bytes ? wfi_executor_touch(e, &r[1 + u]) : NULL,
                                   r[1 + u].bytes / sizeof(double)};
    return worker_of(e, now)->backend->total_norm(
        stream_of(e, now), squares, n_units, wfi_executor_touch(e, &r[0]), e->step.gradient_norm);
}

static wf_status run_update(wfi_executor *e, const wfi_instruction *now) {
    const wf_recipe *recipe = &e->p->recipe;
    const wfi_reference *r = now->references;
    int n_states = wfi_recipe_n_states(recipe);
    wfi_update_call call = {.recipe = recipe,
                            .lr = e->step.lr,
                            .step = (int64_t)e->step.args.step,
                            .param = wfi_executor_touch(e, &r[0]),
                            .gradient = wfi_executor_touch(e, &r[1]),
                            .n = r[0].bytes / sizeof(float),
                            .begin = wfi_reference_begin(e->p, &r[0]),
                            .groups = e->p->graph->units[now->unit].groups,
                            .not_finite = worker_of(e, now)->not_finite,
                            .unit = now->unit};
    float *states = n_states ? wfi_executor_touch(e, &r[2]) : NULL;
    for (int k = 0; k < n_states; k++) call.state[k] = states + (size_t)k * call.n;
    if (recipe->clip_norm > 0) call.total_norm = wfi_executor_touch(e, &r[2 + (n_states > 0)]);
    return worker_of(e, now)->backend->update(stream_of(e, now), &call);
}

static wf_status fold_statistic(const wfi_executor *e, const wfi_instruction *now, int64_t micro,
                                const wfi_stat *stat, char *buffers, char *batch) {
    const wf_graph *g = wfi_program_graph_of(e->p, micro);
    const wfi_place *place = wfi_program_code_of(e->p, micro)->place;
    const wfi_statistics_call call = {
        .running_mean = (float *)(void *)(buffers + g->values[stat->running_mean].offset),
        .running_var = (float *)(void *)(buffers + g->values[stat->running_var].offset),
        .n_batches = (int64_t *)(void *)(buffers + g->values[stat->n_batches].offset),
        .mean = (const float *)(const void *)(batch + place[stat->mean].offset),
        .var = (const float *)(const void *)(batch + place[stat->var].offset),
        .n = (size_t)wf_shape_n_elem(&g->values[stat->mean].shape),
        .n_reduced = stat->n_reduced,
        .momentum = stat->momentum,
        .not_finite = worker_of(e, now)->not_finite,
        .unit = now->unit};
    return worker_of(e, now)->backend->statistics(stream_of(e, now), &call);
}

/* Microbatch by microbatch in global order. */
static wf_status run_fold_stats(wfi_executor *e, const wfi_instruction *now) {
    char *buffers = wfi_executor_touch(e, &now->references[0]);
    for (int32_t k = 1; k < now->n_references; k++) {
        char *batch = wfi_executor_touch(e, &now->references[k]);
        int64_t micro = e->p->blocks[now->references[k].block].name.micro;
        const wf_graph *g = wfi_program_graph_of(e->p, micro);
        for (int32_t s = 0; s < g->n_stats; s++)
            if (g->stats[s].unit == now->unit)
                WF_TRY(fold_statistic(e, now, micro, &g->stats[s], buffers, batch));
    }
    return WF_OK;
}

/* ---- which runs how ---- */

static wf_status dispatch(wfi_executor *e, const wfi_instruction *now) {
    static wf_status (*const runs[WFI_N_INSTRUCTION_KINDS])(wfi_executor *,
                                                            const wfi_instruction *) = {
        [WFI_LOAD] = run_load,
        [WFI_PACK] = run_segment,
        [WFI_FORWARD] = run_segment,
        [WFI_RECOMPUTE] = run_segment,
        [WFI_BACKWARD] = run_segment,
        [WFI_WEIGHT] = run_segment,
        [WFI_BACKWARD_WEIGHT] = run_segment,
        [WFI_FETCH] = run_copy,
        [WFI_EVICT] = run_copy,
        [WFI_COPY] = run_copy,
        [WFI_FOLD] = run_fold,
        [WFI_TIE] = run_tie,
        [WFI_NORM] = run_norm,
        [WFI_TOTAL_NORM] = run_total_norm,
        [WFI_UPDATE] = run_update,
        [WFI_FOLD_STATS] = run_fold_stats,
        [WFI_REPORT] = run_report,
        [WFI_STORE] = run_store,
    };
    if (runs[now->kind]) return runs[now->kind](e, now);
    return wfi_fail(e->p->ctx, WF_BUG, "instruction %s takes more than one rank",
                    wfi_instruction_name(now));
}

/* Prepends the rank and the name of the instruction to the sentence. */
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
    snprintf(text, bytes, "%s%s%s%s", wfi_instruction_name(now), *unit ? " " : "", unit, micro);
}

wf_status wfi_executor_instruction(void *self, void *argument) {
    wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    const wfi_instruction *now = &e->p->instructions[i];
    wfi_executor_delay(e, i);
    wfi_executor_begin(e, i, true);
    int64_t slow_begin = wfi_slow_begin(e, now), begin = profile_ns(e, now);
    wf_status status = dispatch(e, now);
    if (status == WF_OK) status = wfi_executor_check(e, i);
    if (status != WF_OK) return fail_at(e, i, status);
    int64_t took_ns = profile_ns(e, now) - begin;
    wfi_slow_end(e, now, slow_begin);
    wfi_executor_end(e, i, true);
    if (!e->profile->is_on || now->segment) return WF_OK;
    return wfi_profile_add(e->profile, wfi_instruction_name(now), "weft", took_ns, 0);
}
