/* Making a trainer: devices, streams, arena, programs. */
#include "run/trainer.h"

#include "base/env.h"
#include "nn/model.h"

#include <stdlib.h>
#include <string.h>

/* "cpu", "cpu:N" (N ranks) or a list "cpu:0,cpu:1" (one rank each). */
static wf_status parse_devices(wf_context *ctx, const char *text, char kind_out[16], int *n_out) {
    size_t n_kind = strcspn(text, ":,");
    if (n_kind == 0 || n_kind > 15)
        return wfi_fail(ctx, WF_INVALID_ARG, "devices '%s': expected a kind such as cpu:1", text);
    memcpy(kind_out, text, n_kind);
    kind_out[n_kind] = 0;
    int n_entries = 0;
    long n_given = 1;
    for (const char *at = text; *at; n_entries++) {
        size_t n = strcspn(at, ",");
        char *end = (char *)at + n;
        if (strncmp(at, kind_out, n_kind))
            return wfi_fail(ctx, WF_UNSUPPORTED,
                            "devices '%s': devices of different kinds in one trainer", text);
        if (at[n_kind] == ':')
            n_given = strtol(at + n_kind + 1, &end, 10);
        else if (n != n_kind)
            end = NULL;
        if (end != at + n || n == n_kind + 1 || n_given < 0 || n_given > 4096 ||
            (at[n] && !at[n + 1]))
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "devices '%s': expected KIND:N, or a list such as cpu:0,cpu:1", text);
        at += n + (at[n] == ',');
    }
    *n_out = n_entries > 1 ? n_entries : (int)n_given;
    if (*n_out < 1) return wfi_fail(ctx, WF_INVALID_ARG, "devices '%s': no device", text);
    return WF_OK;
}

static wf_status create_device(wf_trainer *t, const wf_trainer_config *config) {
    char kind[16];
    int n_devices, n_ranks = wf_plan_n_ranks(t->plan);
    WF_TRY(parse_devices(t->ctx, config->devices ? config->devices : "cpu:1", kind, &n_devices));
    if (n_ranks > 1)
        return wfi_fail(t->ctx, WF_UNSUPPORTED,
                        "the plan %s has %d ranks; this version plans, checks and simulates many "
                        "ranks, and runs one",
                        wf_plan_text(t->plan), n_ranks);
    if (n_devices != n_ranks)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "devices '%s' are %d, but the plan %s has %d rank%s; give one a rank",
                        config->devices, n_devices, wf_plan_text(t->plan), n_ranks,
                        n_ranks == 1 ? "" : "s");
    wfi_device_config device = {.kind = kind, .index = 0, .n_ranks = n_ranks};
    device.timeout_ms = config->timeout_ms;
    if (!device.timeout_ms) WF_TRY(wfi_env_count(t->ctx, WFI_WEFT_TIMEOUT_MS, &device.timeout_ms));
    if (device.timeout_ms < 1)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "a timeout of %lld ms; every wait needs a deadline",
                        (long long)device.timeout_ms);
    WF_TRY(wfi_device_create(t->ctx, &device, &t->device));
    if (!wfi_device_has_memory(t->device))
        return wfi_fail(
            t->ctx, WF_UNSUPPORTED,
            "the null device has no memory to train in; `weft plan` walks programs on it");
    return WF_OK;
}

static wf_status create_streams(wf_trainer *t) {
    /* One rank has nobody to send to or reduce with: those streams need no thread. */
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        if (s == WFI_STREAM_COMPUTE || s == WFI_STREAM_COPY)
            WF_TRY(wfi_stream_create(t->device, wfi_stream_name((wfi_stream)s), &t->streams[s]));
        else
            t->streams[s] = NULL;
    }
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (!t->streams[s]) t->streams[s] = t->streams[WFI_STREAM_COPY];
    return WF_OK;
}

static void destroy_streams(wf_trainer *t) {
    for (int s = WFI_STREAM_COMPUTE; s <= WFI_STREAM_COPY; s++) {
        wfi_stream_destroy(t->streams[s]);
        t->streams[s] = NULL;
    }
}

/* ---- the arena ---- */

typedef struct move {
    char *to;
    const char *from;
    size_t bytes;
} move;

static wf_status move_state(void *self, void *argument) {
    (void)argument;
    const move *m = self;
    memcpy(m->to, m->from, m->bytes);
    return WF_OK;
}

/* Grown, never shrunk: the programs of a trainer take turns in it. Called with the
 * streams idle. */
static wf_status grow_arena(wf_trainer *t, const wf_program *p) {
    size_t bytes = p->ranks[0].peak_bytes;
    if (bytes <= t->arena_bytes) return WF_OK;
    void *base;
    WF_TRY(wfi_arena_create(t->device, bytes, t->arena_shift_bytes, &base));
    if (t->base) {
        move m = {base, t->base, p->ranks[0].state_bytes};
        wf_status status = wfi_stream_call(t->streams[WFI_STREAM_COPY], move_state, &m, NULL);
        if (status != WF_OK) {
            wfi_arena_destroy(t->device, base, bytes, t->arena_shift_bytes);
            return status;
        }
        wfi_arena_destroy(t->device, t->base, t->arena_bytes, t->arena_shift_bytes);
    }
    t->base = base;
    t->arena_bytes = bytes;
    t->observer.base = t->base;
    for (int32_t i = 0; i < t->n_ready; i++) t->ready[i]->executor.base = t->base;
    return WF_OK;
}

/* ---- programs ---- */

static void ready_destroy(wf_context *ctx, wfi_ready *r) {
    if (!r) return;
    wf_program_destroy(r->program);
    wfi_free(ctx, r->inputs);
    wfi_free(ctx, r->outputs);
    wfi_free(ctx, r->records);
    wfi_free(ctx, r);
}

static wf_status ready_fill(wf_trainer *t, wfi_ready *r) {
    wf_recipe recipe = t->recipe;
    recipe.batch = r->n_samples;
    WF_TRY(wfi_program_create(t->ctx, t->model, &recipe, t->plan, r->kind, t->keep_gradients,
                              &r->program));
    WF_TRY(wf_program_fits(r->program, t->device_memory_bytes));
    const wf_graph *g = r->program->graph;
    r->inputs = wfi_alloc(t->ctx, (size_t)g->n_values, sizeof *r->inputs, "a program's inputs");
    r->outputs = wfi_alloc(t->ctx, (size_t)g->n_outputs, sizeof *r->outputs, "a program's outputs");
    r->records =
        wfi_alloc(t->ctx, (size_t)r->program->recipe.n_micro, 2 * sizeof(double), "records");
    if (!r->inputs || !r->outputs || !r->records) return WF_NO_MEMORY;
    WF_TRY(grow_arena(t, r->program));
    r->executor = (wfi_executor){.p = r->program,
                                 .rank = 0,
                                 .device = t->device,
                                 .streams = t->streams,
                                 .base = t->base,
                                 .observer = &t->observer,
                                 .profile = &t->profile,
                                 .delay_us = t->delay_us};
    return wfi_executor_prepare(&r->executor);
}

wf_status wfi_trainer_ready(wf_trainer *t, wf_program_kind kind, int64_t n_samples,
                            wfi_ready **out) {
    for (int32_t i = 0; i < t->n_ready; i++)
        if (t->ready[i]->kind == kind && t->ready[i]->n_samples == n_samples) {
            *out = t->ready[i];
            return WF_OK;
        }
    WF_TRY(WFI_GROW(t->ctx, t->ready, t->n_ready, t->ready_capacity, "a trainer's programs"));
    wfi_ready *r = wfi_alloc(t->ctx, 1, sizeof *r, "a program");
    if (!r) return WF_NO_MEMORY;
    r->kind = kind;
    r->n_samples = n_samples;
    wf_status status = ready_fill(t, r);
    if (status != WF_OK) {
        ready_destroy(t->ctx, r);
        return status;
    }
    t->ready[t->n_ready++] = r;
    *out = r;
    return WF_OK;
}

/* ---- life ---- */

/* Two variables with which tests shake the trainer; neither changes a result. */
static wf_status read_environment(wf_trainer *t) {
    int64_t shift_bytes;
    WF_TRY(wfi_env_count(t->ctx, WFI_WEFT_DELAY_US, &t->delay_us));
    WF_TRY(wfi_env_count(t->ctx, WFI_WEFT_ARENA_SHIFT, &shift_bytes));
    t->arena_shift_bytes = wfi_round_up((size_t)shift_bytes, WFI_ALIGN_BYTES);
    return WF_OK;
}

static wf_status create_all(wf_trainer *t, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wf_trainer_config *config) {
    WF_TRY(read_environment(t));
    WF_TRY(wfi_model_copy(model, &t->model));
    WF_TRY(wfi_plan_copy(plan, &t->plan));
    WF_TRY(wf_recipe_resolve(t->ctx, recipe, plan, &t->recipe));
    WF_TRY(create_device(t, config));
    WF_TRY(create_streams(t));
    wfi_ready *ignored;
    WF_TRY(wfi_trainer_ready(t, WF_PROGRAM_TRAIN, t->recipe.batch, &ignored));
    return wfi_trainer_initialise(t);
}

wf_status wf_trainer_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wf_trainer_config *config,
                            wf_trainer **trainer_out) {
    const wf_trainer_config defaults = WF_TRAINER_CONFIG_INIT;
    if (!config) config = &defaults;
    if (config->struct_size != sizeof *config)
        return wfi_fail(ctx, WF_INVALID_ARG, "wf_trainer_config has another header's size");
    wf_trainer *t = wfi_alloc(ctx, 1, sizeof *t, "a trainer");
    if (!t) return WF_NO_MEMORY;
    t->ctx = ctx;
    t->device_memory_bytes = config->device_memory_bytes;
    t->keep_gradients = config->keep_gradients;
    wfi_profile_init(&t->profile, ctx, config->profile);
    wf_status status = create_all(t, model, recipe, plan, config);
    if (status != WF_OK) {
        wf_trainer_destroy(t);
        return status;
    }
    *trainer_out = t;
    return WF_OK;
}

void wf_trainer_destroy(wf_trainer *t) {
    if (!t) return;
    destroy_streams(t);
    for (int32_t i = 0; i < t->n_ready; i++) ready_destroy(t->ctx, t->ready[i]);
    wfi_free(t->ctx, t->ready);
    if (t->device) wfi_arena_destroy(t->device, t->base, t->arena_bytes, t->arena_shift_bytes);
    wfi_device_destroy(t->device);
    wfi_profile_release(&t->profile);
    wf_model_destroy(t->model);
    wf_plan_destroy(t->plan);
    wfi_free(t->ctx, t);
}

/* ---- reports ---- */

const wf_program *wf_trainer_program(const wf_trainer *t) {
    return t->ready[0]->program;
}

int64_t wf_trainer_n_steps(const wf_trainer *t) {
    return t->n_steps;
}

wf_trainer_memory wf_trainer_memory_of(const wf_trainer *t, int rank) {
    wf_trainer_memory memory = {.host_bytes = wf_context_memory(t->ctx).live_bytes};
    for (int32_t i = 0; i < t->n_ready; i++) {
        size_t peak = t->ready[i]->program->ranks[rank].peak_bytes;
        if (peak > memory.planned_peak_bytes) memory.planned_peak_bytes = peak;
    }
    memory.measured_peak_bytes = __atomic_load_n(&t->observer.peak_bytes, __ATOMIC_ACQUIRE);
    return memory;
}

int wf_trainer_profile(wf_trainer *t, int i, wf_profile_row *row_out) {
    wfi_profile *profile = &t->profile;
    if (i < 0 || (size_t)i >= profile->n_rows) return 0;
    /* Few rows: ordered when the first is asked for. */
    for (size_t a = 1; a < profile->n_rows && i == 0; a++) {
        wf_profile_row row = profile->rows[a];
        size_t b = a;
        for (; b > 0 && profile->rows[b - 1].time_ns < row.time_ns; b--)
            profile->rows[b] = profile->rows[b - 1];
        profile->rows[b] = row;
    }
    *row_out = profile->rows[i];
    return 1;
}

void wf_trainer_profile_reset(wf_trainer *t) {
    t->profile.n_rows = 0;
}
