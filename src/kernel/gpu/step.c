/* Parts of a step outside the graph: gradients are added, summed over ranks, and applied. */
#include "base/finite.h"
#include "kernel/gpu/gpu.h"
#include "kernel/update.h"

#define ENTRY_NAME(name) #name,
static const char *const entries[] = {WFI_GPU_KERNELS(ENTRY_NAME)};

const wfi_launch_source wfi_gpu_source = {wfi_gpu_text, entries, WFI_COUNT(entries)};

wfi_kernel_launch wfi_gpu_launch_of(wfi_gpu_entry entry, const void *in, void *out) {
    wfi_kernel_launch launch = {.source = &wfi_gpu_source, .entry = (int)entry};
    launch.operands[0] = in;
    launch.operands[WFI_GPU_OUT] = out;
    return launch;
}

wf_status wfi_gpu_launch_elements(wfi_stream_queue *stream, wfi_kernel_launch *launch, int64_t n) {
    launch->n_groups = wfi_gpu_groups(n);
    launch->arguments.n[0] = n;
    return stream->device->kind->launch(stream, launch);
}

/* ---- sums ---- */

wf_status wfi_gpu_copy(wfi_stream_queue *stream, float *to, const float *from, size_t n) {
    wfi_kernel_launch launch = wfi_gpu_launch_of(WFI_GPU_copy, from, to);
    return wfi_gpu_launch_elements(stream, &launch, (int64_t)n);
}

wf_status wfi_gpu_add(wfi_stream_queue *stream, float *sum, const float *summand, size_t n) {
    wfi_kernel_launch launch = wfi_gpu_launch_of(WFI_GPU_accumulate, summand, sum);
    return wfi_gpu_launch_elements(stream, &launch, (int64_t)n);
}

/* Sums of floats, as training has them, of most_summed ranks; a copy is a sum of one. */
wf_status wfi_gpu_collective_step(wfi_stream_queue *stream, const wfi_step_memory *memory,
                                  const wfi_reduce_part *part, const wfi_reduce_step *step) {
    wfi_kernel_launch launch = {
        .source = &wfi_gpu_source, .entry = WFI_GPU_sum_ranks, .has_memories = true};
    int64_t n = step->end - step->begin;
    wfi_access a;
    for (int32_t i = 0; wfi_reduce_access(part, step, i, &a); i++) {
        const void *data = memory->address(memory->self, a.rank, a.window, a.begin);
        int64_t *n_in = &launch.arguments.n[1];
        if (!a.writes) {
            launch.operands[(*n_in)++] = data;
            continue;
        }
        if (*n_in == 1 && launch.operands[0] == data) continue;
        launch.operands[WFI_GPU_OUT] = data;
        WF_TRY(wfi_gpu_launch_elements(stream, &launch, n));
    }
    return WF_OK;
}

/* ---- the update ---- */

wf_status wfi_gpu_squares(wfi_stream_queue *stream, const float *gradient, size_t n,
                          double *squares_out) {
    wfi_kernel_launch launch = wfi_gpu_launch_of(WFI_GPU_squares, gradient, squares_out);
    launch.arguments.n[0] = (int64_t)n;
    launch.n_groups =
        wfi_gpu_groups((int64_t)((n + WFI_NORM_BLOCK_ELEMENTS - 1) / WFI_NORM_BLOCK_ELEMENTS));
    return stream->device->kind->launch(stream, &launch);
}

/* Copies and waits: afterwards the copy is complete and `from` may be reused. */
static wf_status copy_and_wait(wfi_stream_queue *stream, void *to, wfi_space to_space,
                               const void *from, wfi_space from_space, size_t bytes) {
    wf_status status =
        wfi_memory_copy(stream->device, stream, to, to_space, from, from_space, bytes);
    wf_status finished = stream->device->kind->finish_task(stream);
    return status == WF_OK ? finished : status;
}

/* The sums of all units are read by the host, which adds them as it does for the CPU. */
wf_status wfi_gpu_total_norm(wfi_stream_queue *stream, const wfi_squares *squares, int32_t n_units,
                             double *total_out, double *norm_out) {
    wf_context *ctx = stream->owner->ctx;
    double total = 0;
    for (int32_t u = 0; u < n_units; u++) {
        size_t bytes = squares[u].n * sizeof(double);
        if (!bytes) continue;
        double *own = wfi_alloc(ctx, 1, bytes, "a gradient's norm");
        if (!own) return WF_NO_MEMORY;
        wf_status status =
            copy_and_wait(stream, own, WFI_SPACE_HOST, squares[u].data, WFI_SPACE_DEVICE, bytes);
        total += wfi_tree_sum(own, squares[u].n);
        wfi_free(ctx, own);
        WF_TRY(status);
    }
    wfi_report_norm(total, norm_out);
    return copy_and_wait(stream, total_out, WFI_SPACE_DEVICE, &total, WFI_SPACE_HOST, sizeof total);
}

static wf_status clip_scale(wfi_stream_queue *stream, const wfi_update_call *c, float *scale_out) {
    double total = 0;
    WF_TRY(copy_and_wait(stream, &total, WFI_SPACE_HOST, c->total_norm, WFI_SPACE_DEVICE,
                         sizeof total));
    *scale_out = wfi_clip_scale(c->recipe->clip_norm, total);
    return WF_OK;
}

static wf_status update_stretch(void *self, const wfi_update *u) {
    wfi_stream_queue *stream = self;
    static const wfi_gpu_entry rules[] = {[WFI_RULE_SGD] = WFI_GPU_sgd,
                                          [WFI_RULE_MOMENTUM] = WFI_GPU_momentum,
                                          [WFI_RULE_NESTEROV] = WFI_GPU_nesterov,
                                          [WFI_RULE_ADAM] = WFI_GPU_adam};
    wfi_update_rule rule = wfi_optimizer_of(u->recipe)->rule(u);
    wfi_kernel_launch launch = wfi_gpu_launch_of(rules[rule.kind], u->gradient, u->param);
    int average = wfi_recipe_average(u->recipe);
    for (int k = 0; k < WFI_MAX_STATES; k++)
        if (k != average) launch.operands[WFI_GPU_OUT + 1 + k] = u->state[k];
    for (size_t k = 0; k < WFI_COUNT(rule.numbers); k++) launch.arguments.f[k] = rule.numbers[k];
    WF_TRY(wfi_gpu_launch_elements(stream, &launch, (int64_t)u->n));
    if (average < 0) return WF_OK;
    launch = wfi_gpu_launch_of(WFI_GPU_average, u->param, u->state[average]);
    launch.arguments.f[0] = wfi_average_weight(u->recipe, u->step);
    return wfi_gpu_launch_elements(stream, &launch, (int64_t)u->n);
}

/* Of listeners: by number which unit. */
static void note_update(void *cell, int32_t unit, const int32_t seen[WFI_LAUNCH_WORDS]) {
    if (seen[0] || seen[1])
        wfi_not_finite_record(cell,
                              seen[2]   ? WFI_FINITE_NO_GRADIENT
                              : seen[0] ? WFI_FINITE_NO_WEIGHTS
                                        : WFI_FINITE_NO_STATE,
                              unit);
}

static void note_statistics(void *cell, int32_t unit, const int32_t seen[WFI_LAUNCH_WORDS]) {
    if (seen[0]) wfi_not_finite_record(cell, WFI_FINITE_NO_STATISTICS, unit);
}

wf_status wfi_gpu_update(wfi_stream_queue *stream, const wfi_update_call *c) {
    float scale = 1;
    if (c->total_norm) WF_TRY(clip_scale(stream, c, &scale));
    WF_TRY(wfi_update_groups(c, scale, update_stretch, stream));
    return stream->device->kind->report_words(stream, note_update, c->not_finite, c->unit);
}

wf_status wfi_gpu_statistics(wfi_stream_queue *stream, const wfi_statistics_call *c) {
    wfi_kernel_launch launch = wfi_gpu_launch_of(WFI_GPU_statistics, c->mean, c->running_mean);
    launch.operands[1] = c->var;
    launch.operands[WFI_GPU_OUT + 1] = c->running_var;
    launch.operands[WFI_GPU_OUT + 2] = c->n_batches;
    launch.arguments.f[0] = c->momentum;
    launch.arguments.f[1] =
        c->n_reduced > 1 ? (double)c->n_reduced / (double)(c->n_reduced - 1) : 1;
    WF_TRY(wfi_gpu_launch_elements(stream, &launch, (int64_t)c->n));
    return stream->device->kind->report_words(stream, note_statistics, c->not_finite, c->unit);
}
