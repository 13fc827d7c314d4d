/* Making a trainer: devices, streams, arena, programs. */
#include "api/trainer.h"

#include "base/env.h"
#include "compile/compile.h"
#include "nn/model.h"

#include <stdio.h>
#include <string.h>

static wf_status create_workers(wf_trainer *t, const wf_trainer_config *config,
                                const wfi_device_list *given, size_t shift_bytes) {
    wfi_device_list list;
    int n_ranks = wf_plan_n_ranks(t->plan);
    if (given)
        list = *given;
    else
        WF_TRY(wfi_devices_parse(t->ctx, config->devices, n_ranks, &list));
    const char *devices = config->devices ? config->devices : wfi_device_kind_of(&list, 0)->name;
    char replicas[64] = "";
    if (n_ranks == 1)
        snprintf(replicas, sizeof replicas, "--plan dp=%d for a replica on each, or ", list.n);
    if (list.n != n_ranks)
        return wfi_fail(
            t->ctx, WF_INVALID_ARG,
            "devices '%s' are %d, but the plan %s has %d rank%s: give %s--devices %s:%d", devices,
            list.n, wf_plan_text(t->plan), n_ranks, n_ranks == 1 ? "" : "s", replicas,
            wfi_device_kind_of(&list, 0)->name, n_ranks);
    WF_TRY(wfi_plan_set_devices(t->plan, &list, t->job != NULL));
    WF_TRY(wf_plan_use_wire(t->plan, t->job ? wf_job_wire(t->job) : NULL));
    bool is_nccl = t->plan->stages_at_once && !t->plan->is_apart;
    if (t->plan->allreduce == &wfi_allreduce_engine && t->plan->dp > 1 && !is_nccl)
        return wfi_fail(t->ctx, WF_UNSUPPORTED,
                        "allreduce=engine is NCCL's sum, between processes on CUDA devices: give "
                        "--ranks %d --devices cuda:%d --wire nccl, or choose another allreduce",
                        n_ranks, n_ranks);
    if (n_ranks > WFI_MAX_RANKS)
        return wfi_fail(t->ctx, WF_UNSUPPORTED, "%d ranks in one process; it takes at most %d",
                        n_ranks, WFI_MAX_RANKS);
    int64_t timeout_ms = config->timeout_ms;
    WF_TRY(wfi_env_timeout(t->ctx, &timeout_ms));
    t->workers = wfi_alloc(t->ctx, (size_t)n_ranks, sizeof *t->workers, "ranks");
    if (!t->workers) return WF_NO_MEMORY;
    t->n_workers = n_ranks;
    WF_TRY(wfi_stall_init(&t->stall, t->ctx, t->job));
    if (n_ranks == 1) t->stall.watch.stall_ms = 0; /* no other rank waits for it */
    if (t->job) WF_TRY(wfi_control_enter_trainer(t->job, &t->place, &t->serial));
    for (int r = 0; r < n_ranks; r++) {
        wfi_worker *w = &t->workers[r];
        w->owner = (wfi_owner){.ctx = t->ctx,
                               .rank = r,
                               .timeout_ms = timeout_ms,
                               .failure = t->job ? wfi_control_failure(t->job) : &t->failure,
                               .watch = &t->stall.watch};
        w->job = t->job;
        w->trainer = t->place;
        w->shift_bytes = t->job ? 0 : shift_bytes;
        w->folder = t->folder;
        w->raise = t->raise.left && r == t->raise.rank ? &t->raise : NULL;
        w->slow_factor = r == t->slow.rank ? t->slow.factor : 1;
        /* Unless they are named, a machine's cores are divided among its ranks. */
        bool is_divided = t->job && !config->devices;
        WF_TRY(wfi_worker_create(w, wfi_device_kind_of(&list, r),
                                 is_divided ? wf_job_local_rank(t->job) : list.place[r],
                                 is_divided ? wf_job_n_local_ranks(t->job) : list.n_places));
    }
    for (int r = 0; r < n_ranks && t->job; r++)
        t->workers[r].copier = t->workers[wf_job_rank(t->job)].device;
    t->stall.workers = t->workers;
    t->stall.n_workers = n_ranks;
    if (t->job) WF_TRY(wfi_control_reset(t->job, t->place));
    return wfi_trainer_barrier(t, "begin");
}

/* A team is the replicas that sum gradients with this rank. */
static wfi_wire_team team_of(const wf_plan *plan, int32_t rank) {
    wfi_mesh mesh = wfi_plan_mesh(plan);
    int32_t number = wfi_mesh_group(&mesh, WFI_ALONG(WFI_DP), rank);
    bool sums = plan->allreduce == &wfi_allreduce_engine;
    return (wfi_wire_team){sums ? mesh.dp : 1, number, wfi_mesh_at(&mesh, WFI_DP, rank)};
}

static wf_status open_wire(wf_trainer *t) {
    if (t->n_workers == 1 || !t->job || !wfi_control_wires_devices(t->job)) return WF_OK;
    wfi_worker *own = &t->workers[wf_job_rank(t->job)];
    WF_TRY(wfi_stream_create(own->device, "wire", WFI_N_STREAMS, NULL, &own->wire_stream));
    WF_TRY(wfi_device_wire_open(t->job, own->device, own->wire_stream,
                                team_of(t->plan, own->owner.rank), &own->wire));
    for (int r = 0; r < t->n_workers; r++) t->workers[r].is_apart = !t->workers[r].is_local;
    return WF_OK;
}

/* ---- programs ---- */

static void ready_destroy(wf_context *ctx, wfi_ready *r) {
    if (!r) return;
    wfi_executor_destroy(r->executor);
    wf_program_destroy(r->program);
    wfi_pool_release(&r->pool);
    wfi_free(ctx, r);
}

/* Room for the program on every rank. All processes of a job come to the same decision. */
static wf_status grow_workers(wf_trainer *t, const wf_program *p) {
    bool grows = false;
    for (int32_t k = 0; k < p->n_ranks; k++)
        for (int s = 0; s < WFI_N_SPACES; s++)
            grows |= p->ranks[k].arenas[s].peak_bytes > t->workers[k].room_bytes[s];
    if (!grows) return WF_OK;
    WF_TRY(wfi_trainer_barrier(t, "make room"));
    for (int32_t k = 0; k < t->n_workers; k++) {
        /* The others open every rank's memory, even that of one which has nothing to do. */
        wfi_arena_plan needs[WFI_N_SPACES];
        memcpy(needs, p->ranks[k].arenas, sizeof needs);
        if (!needs->peak_bytes) needs->peak_bytes = WFI_ALIGN_BYTES;
        for (int s = 0; s < WFI_N_SPACES; s++)
            t->workers[k].room_bytes[s] = (size_t)wfi_max_i64((int64_t)t->workers[k].room_bytes[s],
                                                              (int64_t)needs[s].peak_bytes);
        WF_TRY(wfi_worker_grow(&t->workers[k], needs));
    }
    WF_TRY(wfi_trainer_barrier(t, "open memory"));
    for (int32_t k = 0; k < t->n_workers; k++) WF_TRY(wfi_worker_open(&t->workers[k]));
    return wfi_trainer_barrier(t, "go on");
}

static void find_reporters(const wf_program *p, int32_t *reporter) {
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        bool reports = now->kind == WFI_REPORT && wfi_mesh_reports(&p->mesh, now->rank);
        for (int32_t k = 0; k < now->n_references && reports; k++)
            reporter[p->blocks[now->references[k].block].name.micro] = now->rank;
    }
}

static wf_status ready_fill(wf_trainer *t, wfi_ready *r) {
    wf_recipe recipe = t->recipe;
    recipe.batch = r->n_samples;
    /* All programs find the state where the first one has it. */
    const wf_program *like = t->n_ready ? t->ready[0]->program : NULL;
    wfi_program_use use = t->keep_gradients ? WFI_USE_RUN_AND_KEEP : WFI_USE_RUN;
    WF_TRY(wfi_program_create(t->ctx, t->model, &recipe, t->plan, t->workers->backend, r->kind, use,
                              like, &r->program));
    WF_TRY(wf_program_fits(r->program, t->device_memory_bytes, t->host_memory_bytes, NULL, NULL));
    const wf_graph *g = r->program->graph;
    size_t n_values = (size_t)g->n_values, n_micro = (size_t)r->program->recipe.n_micro;
    r->inputs = wfi_pool_alloc(&r->pool, n_values, sizeof *r->inputs);
    r->outputs = wfi_pool_alloc(&r->pool, (size_t)g->n_outputs, sizeof *r->outputs);
    r->records = wfi_pool_alloc(&r->pool, n_micro, 2 * sizeof *r->records);
    r->ids = wfi_pool_alloc(&r->pool, n_values, sizeof *r->ids);
    r->zeros = wfi_pool_alloc(&r->pool, n_values, sizeof *r->zeros);
    r->reporter = wfi_pool_alloc(&r->pool, n_micro, sizeof *r->reporter);
    if (!r->inputs || !r->outputs || !r->records || !r->ids || !r->zeros || !r->reporter)
        return WF_NO_MEMORY;
    wfi_find_ids(g, r->ids);
    find_reporters(r->program, r->reporter);
    WF_TRY(grow_workers(t, r->program));
    /* The timeline is one of full steps. */
    bool traces = t->traces && t->n_ready == 0;
    return wfi_executor_create(r->program, t->workers, &t->profile, t->delay_us, traces, &t->stall,
                               &r->executor);
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
    wfi_pool_init(&r->pool, t->ctx);
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

/* Variables that move the trainer's tasks and memory, or damage its state. Only the latter change a
 * result. */
static wf_status read_environment(wf_trainer *t, size_t *shift_bytes_out) {
    int64_t shift_bytes;
    WF_TRY(wfi_env_count(t->ctx, WFI_WEFT_DELAY_US, &t->delay_us));
    WF_TRY(wfi_slow_read(t->ctx, &t->slow));
    WF_TRY(wfi_env_count(t->ctx, WFI_WEFT_ARENA_SHIFT, &shift_bytes));
    WF_TRY(wfi_flip_read(t->ctx, &t->flip));
    WF_TRY(wfi_raise_read(t->ctx, &t->raise));
    *shift_bytes_out = wfi_round_up((size_t)shift_bytes, WFI_ALIGN_BYTES);
    return WF_OK;
}

static wf_status create_all(wf_trainer *t, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wf_trainer_config *config,
                            const wfi_device_list *list, wf_program_kind kind) {
    size_t shift_bytes;
    WF_TRY(read_environment(t, &shift_bytes));
    if (config->folder && !(t->folder = wfi_strdup(t->ctx, config->folder))) return WF_NO_MEMORY;
    WF_TRY(wfi_model_copy(model, &t->model));
    WF_TRY(wfi_plan_copy(plan, &t->plan));
    wf_plan_use_memory(t->plan, t->device_memory_bytes);
    WF_TRY(t->forward_only ? wfi_recipe_resolve_forward(t->ctx, recipe, model, plan, &t->recipe)
                           : wf_recipe_resolve(t->ctx, recipe, model, plan, &t->recipe));
    if (t->job) WF_TRY(wfi_trainer_compare_recipe(t));
    if (t->job) WF_TRY(wfi_trainer_check_job(t));
    WF_TRY(create_workers(t, config, list, shift_bytes));
    WF_TRY(open_wire(t));
    wfi_ready *first;
    WF_TRY(wfi_trainer_ready(t, kind, t->recipe.batch, &first));
    if (!t->job || wf_job_rank(t->job) == 0) wf_program_warn(first->program);
    WF_TRY(wfi_trainer_check_parts(t));
    if (t->job) WF_TRY(wfi_trainer_compare_program(t));
    WF_TRY(wfi_undo_create(t));
    return wfi_trainer_initialise(t);
}

wf_status wfi_trainer_create_on(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                                const wf_plan *plan, const wf_trainer_config *config,
                                const wfi_device_list *list, wf_program_kind kind,
                                wf_trainer **trainer_out) {
    const wf_trainer_config defaults = WF_TRAINER_CONFIG_INIT;
    if (!config) config = &defaults;
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_trainer_config"));
    wf_trainer *t = wfi_alloc(ctx, 1, sizeof *t, "a trainer");
    if (!t) return WF_NO_MEMORY;
    t->ctx = ctx;
    t->job = config->job;
    t->place = -1;
    t->resets_hidden[WF_PROGRAM_TRAIN] = t->resets_hidden[WF_PROGRAM_FORWARD] = true;
    t->device_memory_bytes = config->device_memory_bytes;
    t->shard_bytes = config->shard_bytes;
    t->host_memory_bytes = config->host_memory_bytes;
    t->save_async = config->save_async;
    t->keep_gradients = config->keep_gradients;
    t->is_spoiled = config->no_init; /* until a state is loaded */
    t->keeps_undo = config->keep_undo && !config->forward_only;
    t->forward_only = config->forward_only;
    t->own_batch = config->own_batch;
    t->traces = config->trace;
    wfi_profile_init(&t->profile, ctx, config->profile);
    wf_status status = create_all(t, model, recipe, plan, config, list, kind);
    if (status != WF_OK) {
        /* The job's other processes must not wait for this one. */
        if (t->job) wfi_failure_set(wfi_control_failure(t->job), status, wf_context_error(t->ctx));
        wf_trainer_destroy(t);
        return status;
    }
    *trainer_out = t;
    return WF_OK;
}

wf_status wf_trainer_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wf_trainer_config *config,
                            wf_trainer **trainer_out) {
    bool is_forward = config && config->forward_only;
    return wfi_trainer_create_on(ctx, model, recipe, plan, config, NULL,
                                 is_forward ? WF_PROGRAM_FORWARD : WF_PROGRAM_TRAIN, trainer_out);
}

void wf_trainer_destroy(wf_trainer *t) {
    if (!t) return;
    wfi_trainer_abandon_saves(t);
    wfi_undo_destroy(t);
    /* Programs are destroyed before the workers that run them. */
    for (int r = 0; r < t->n_workers; r++) wfi_worker_stop(&t->workers[r]);
    for (int32_t i = 0; i < t->n_ready; i++) ready_destroy(t->ctx, t->ready[i]);
    wfi_free(t->ctx, t->ready);
    /* Other processes' memory is seen by way of this one's device. */
    for (int is_local = 0; is_local < 2; is_local++)
        for (int r = 0; r < t->n_workers; r++)
            if (t->workers[r].is_local == is_local) wfi_worker_destroy(&t->workers[r]);
    wfi_free(t->ctx, t->workers);
    if (t->place >= 0) wfi_control_leave_trainer(t->job, t->place);
    wfi_profile_release(&t->profile);
    wf_model_destroy(t->model);
    wf_plan_destroy(t->plan);
    wfi_free(t->ctx, t->folder);
    wfi_pool_release(&t->about_pool);
    wfi_free(t->ctx, t);
}

/* ---- reports ---- */

const wf_program *wf_trainer_program(const wf_trainer *t) {
    return t->ready[0]->program;
}

int64_t wf_trainer_n_steps(const wf_trainer *t) {
    return t->n_steps;
}

size_t wfi_trainer_planned_peak(const wf_trainer *t, int rank, wfi_space space, bool has_run) {
    size_t most = 0;
    for (int32_t i = 0; i < t->n_ready; i++) {
        size_t peak = t->ready[i]->program->ranks[rank].arenas[space].peak_bytes;
        if (peak > most && (t->ready[i]->has_run || !has_run)) most = peak;
    }
    return most;
}

size_t wfi_trainer_measured_peak(const wf_trainer *t, int rank, wfi_space space) {
    const wfi_worker *w = &t->workers[rank];
    if (w->is_local) return __atomic_load_n(&w->arenas[space].peak_bytes, __ATOMIC_ACQUIRE);
    return __atomic_load_n(&wfi_control_part_of(t->job, rank, t->place)->arenas[space].peak_bytes,
                           __ATOMIC_RELAXED);
}

wf_trainer_memory wf_trainer_memory_of(const wf_trainer *t, int rank) {
    wf_trainer_memory memory = {.host_bytes = wf_context_memory(t->ctx).live_bytes,
                                .save_bytes = t->save_bytes};
    if (rank < 0 || rank >= t->n_workers) return memory;
    memory.planned_peak_bytes = wfi_trainer_planned_peak(t, rank, WFI_SPACE_DEVICE, false);
    memory.measured_peak_bytes = wfi_trainer_measured_peak(t, rank, WFI_SPACE_DEVICE);
    memory.planned_host_peak_bytes = wfi_trainer_planned_peak(t, rank, WFI_SPACE_HOST, false);
    memory.measured_host_peak_bytes = wfi_trainer_measured_peak(t, rank, WFI_SPACE_HOST);
    memory.planned_host_peak_bytes += wfi_undo_bytes(t, rank);
    memory.measured_host_peak_bytes += wfi_undo_bytes(t, rank);
    memory.planned_disk_peak_bytes = wfi_trainer_planned_peak(t, rank, WFI_SPACE_DISK, false);
    memory.measured_disk_peak_bytes = wfi_trainer_measured_peak(t, rank, WFI_SPACE_DISK);
    memory.is_measured = true;
    for (int k = 0; k < WFI_N_SPACES; k++)
        memory.is_measured &= wfi_trainer_planned_peak(t, rank, (wfi_space)k, true) ==
                              wfi_trainer_planned_peak(t, rank, (wfi_space)k, false);
    return memory;
}

int wf_trainer_n_threads(const wf_trainer *t) {
    int n = 0;
    for (int r = 0; r < t->n_workers && !n; r++) n = t->workers[r].n_threads;
    return n;
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

/* NULL, with a sentence, if so many steps have not been traced. */
static wfi_trace *find_trace(const wf_trainer *t, int64_t n_steps) {
    wfi_trace *trace = t->ready[0]->executor->trace;
    if (!trace)
        (void)wfi_fail(t->ctx, WF_INVALID_ARG,
                       "the trainer does not trace; set wf_trainer_config.trace");
    else if (trace->n_steps < n_steps)
        (void)wfi_fail(t->ctx, WF_INVALID_ARG,
                       "there is no timeline yet: %lld of %lld steps of the full batch have run",
                       (long long)trace->n_steps, (long long)n_steps);
    return trace && trace->n_steps >= n_steps ? trace : NULL;
}

wf_status wf_trainer_timeline(const wf_trainer *t, wf_timeline **timeline_out) {
    wfi_trace *trace = find_trace(t, 1);
    return trace ? wfi_trace_timeline(trace, t->job, timeline_out) : WF_INVALID_ARG;
}

wf_status wf_trainer_costs(const wf_trainer *t, wf_costs **costs_out) {
    const wfi_trace *trace = find_trace(t, 2);
    return trace ? wfi_trace_costs(trace, t->job, costs_out) : WF_INVALID_ARG;
}
