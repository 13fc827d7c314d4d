/* One step: feeds in, program through, loss out. */
#include "api/not_finite.h"
#include "api/share.h"
#include "api/trainer.h"
#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Publishes memory figures that other processes cannot observe, for the report. */
static void publish_memory(wf_trainer *t) {
    int rank = wf_job_rank(t->job);
    wfi_control_part *own = wfi_control_part_of(t->job, rank, t->place);
    for (int s = 0; s < WFI_N_SPACES; s++)
        own->arenas[s].peak_bytes = wfi_trainer_measured_peak(t, rank, (wfi_space)s);
    wfi_control_publish(t->job);
}

/* Sends the records of each microbatch from the rank that computed them to all. Consecutive
 * microbatches of one rank go in one move. */
static wf_status share_records(const wf_trainer *t, const wfi_ready *ready, double *records) {
    const wf_program *p = ready->program;
    if (p->graph->record < 0) return WF_OK;
    for (int64_t first = 0, end; first < p->recipe.n_micro; first = end) {
        int32_t rank = ready->reporter[first];
        for (end = first + 1; end < p->recipe.n_micro && ready->reporter[end] == rank;) end++;
        for (int r = 0; r < t->n_workers; r++)
            WF_TRY(wfi_control_move(t->job, rank, r, records + 2 * first, records + 2 * first,
                                    (size_t)(end - first) * 2 * sizeof *records));
    }
    return wfi_control_moved(t->job);
}

/* Ends a run in a job. Without a shared segment, ranks send their records to each other. */
static wf_status end_in_job(wf_trainer *t, const wfi_ready *r, double *records,
                            int *stop_reason_out) {
    publish_memory(t);
    WF_TRY(wfi_control_end_run(t->job, stop_reason_out));
    t->are_saves_written = !wfi_control_was_writing(t->job);
    if (!wfi_control_transport(t->job)) return WF_OK;
    WF_TRY(share_records(t, r, records));
    return wfi_control_barrier(t->job, "end its step");
}

void wfi_trainer_name_run(const wf_trainer *t, wf_program_kind kind, char *name_out,
                          size_t n_bytes) {
    long long next = (long long)t->n_steps + 1;
    if (kind == WF_PROGRAM_FORWARD) snprintf(name_out, n_bytes, "a forward run");
    if (kind == WF_PROGRAM_TRAIN) snprintf(name_out, n_bytes, "step %lld", next);
    if (kind == WF_PROGRAM_GRADIENT)
        snprintf(name_out, n_bytes, "the gradients of step %lld", next);
}

/* Where the run's microbatches report. */
static double *begin_in_job(const wf_trainer *t, const wfi_ready *r) {
    char what[WFI_CONTROL_DOING], name[48], whose[32] = "";
    if (t->serial > 1) snprintf(whose, sizeof whose, " of trainer %llu", (long long)t->serial);
    wfi_trainer_name_run(t, r->kind, name, sizeof name);
    snprintf(what, sizeof what, "%s%s", name, whose);
    const uint64_t parts[] = {t->serial, (uint64_t)r->kind, (uint64_t)r->n_samples};
    return wfi_control_begin_run(t->job, wfi_hash_add(WFI_HASH_INIT, parts, sizeof parts), what);
}

/* Gradient runs and steps share their hidden state. */
static bool *resets_hidden(wf_trainer *t, wf_program_kind kind) {
    return &t->resets_hidden[kind == WF_PROGRAM_GRADIENT ? WF_PROGRAM_TRAIN : kind];
}

void wf_trainer_reset_hidden(wf_trainer *t, wf_program_kind kind) {
    *resets_hidden(t, kind) = true;
}

/* Hidden state begins with zeros where the caller has asked for it, and in forward runs of another
 * size than before: their programs put other things there. No rank reads another rank's. */
static wf_status begin_hidden(wf_trainer *t, const wfi_ready *r) {
    const wf_program *p = r->program;
    bool is_forward = r->kind == WF_PROGRAM_FORWARD, *resets = resets_hidden(t, r->kind);
    *resets |= is_forward && r->n_samples != t->n_forward;
    if (is_forward) t->n_forward = r->n_samples;
    for (int32_t b = 0; b < p->n_blocks && *resets; b++) {
        const wfi_block *block = &p->blocks[b];
        const wfi_worker *w = &t->workers[block->rank];
        if (block->name.kind != WFI_BLOCK_HIDDEN || !w->is_local) continue;
        WF_TRY(wfi_memory_fill(w->device, NULL, w->arenas[block->space].base + block->offset,
                               block->space, 0, block->bytes));
    }
    *resets = false;
    return WF_OK;
}

static wf_status run(wf_trainer *t, wfi_ready *r, int64_t n_rows, double lr,
                     wf_step_result *result_out) {
    int stop_reason = 0;
    t->can_undo = false;
    WF_TRY(wfi_trainer_poll_saves(t));
    WF_TRY(begin_hidden(t, r));
    if (wfi_updates(r->program)) WF_TRY(wfi_undo_keep(t));
    if (wfi_updates(r->program))
        WF_TRY(wfi_flip_strike(&t->flip, t->workers, t->ready[0]->program, t->n_steps + 1));
    double *records = t->job ? begin_in_job(t, r) : r->records, norm = 0;
    r->reported = records;
    const wfi_share *share = &t->share;
    int64_t n_divisor = share->is_set && share->n_rows ? share->n_rows : n_rows;
    wfi_step step = {.args = {.seed = t->recipe.seed,
                              .step = (uint64_t)(share->is_set ? share->step : t->n_steps),
                              .loss_scale = n_divisor ? 1.0 / (double)n_divisor : 0},
                     .batch_sample = share->first_sample,
                     .lr = lr,
                     .inputs = r->inputs,
                     .outputs = r->outputs,
                     .records = records,
                     .gradient_norm = t->job ? wfi_control_own_norm(t->job) : &norm};
    int64_t ignored;
    wfi_trainer_own_part(t, r->program, &step.first_sample, &ignored);
    t->ran_last = r;
    r->has_run = true;
    for (int k = 0; k < t->n_workers; k++) {
        t->workers[k].own_not_finite = 0;
        if (t->job) t->workers[k].not_finite = wfi_control_own_not_finite(t->job);
    }
    WF_TRY(wfi_executor_run(r->executor, &step));
    if (t->job) WF_TRY(end_in_job(t, r, records, &stop_reason));
    wf_step_result result = {.n_rows = n_rows,
                             .lr = lr,
                             .gradient_norm = !wfi_updates(r->program) ? 0
                                              : t->job                 ? wfi_control_norm(t->job)
                                                                       : norm,
                             .stop_reason = stop_reason};
    double loss = 0, hits = 0;
    bool has_record = r->program->graph->record >= 0;
    for (int64_t m = 0; m < r->program->recipe.n_micro && has_record; m++) {
        loss += records[2 * m];
        hits += records[2 * m + 1];
    }
    result.loss = n_rows ? loss / (double)n_rows : 0;
    result.n_hits = (int64_t)hits;
    *result_out = result;
    return WF_OK;
}

void wfi_trainer_share(wf_trainer *t, const wfi_share *share) {
    t->share = *share;
    t->share.is_set = true;
}

void wfi_trainer_count_to(wf_trainer *t, int64_t n_steps) {
    t->n_steps = n_steps;
}

void wfi_trainer_records(const wf_trainer *t, double *records_out) {
    const wfi_ready *r = t->ran_last;
    memcpy(records_out, r->reported, (size_t)r->program->recipe.n_micro * 2 * sizeof *records_out);
}

void wf_trainer_evaluated(wf_trainer *t, double loss) {
    wfi_plateau *p = &t->plateau;
    if (t->recipe.lr_schedule != WF_LR_PLATEAU) return;
    if (!p->n_evaluated) p->best = INFINITY; /* as PyTorch: NaN is never the best */
    bool is_better = loss < p->best;
    p->n_evaluated++;
    p->n_bad = is_better ? 0 : p->n_bad + 1;
    if (is_better) p->best = loss;
    if (p->n_bad <= t->recipe.lr_patience) return;
    p->n_cuts++;
    p->n_bad = 0;
}

/* A damaged state may tell of any number of cuts: those that change nothing are not made. */
static double find_lr(const wf_trainer *t) {
    double lr = wf_recipe_lr(&t->recipe, t->n_steps), before = -1;
    for (int64_t k = 0; k < t->plateau.n_cuts && lr != before; k++) {
        before = lr;
        lr *= t->recipe.lr_gamma;
    }
    return lr;
}

/* Whether a step may have so many samples. */
static wf_status check_samples(const wf_trainer *t, int64_t n) {
    if (wfi_trainer_graph(t)->n_hidden && n != t->recipe.batch)
        return wfi_fail(t->ctx, WF_SHAPE,
                        "a step of %lld samples: each sample of a recurrent model goes on with its "
                        "own hidden state, so every batch has the recipe's %lld",
                        (long long)n, (long long)t->recipe.batch);
    if (n < 1 || n > t->recipe.batch)
        return wfi_fail(t->ctx, WF_SHAPE, "a step of %lld samples; the recipe's batch is %lld",
                        (long long)n, (long long)t->recipe.batch);
    return WF_OK;
}

/* A step, or the gradients of one. */
static wf_status train(wf_trainer *t, wf_program_kind kind, const wf_feed *feeds, int n_feeds,
                       int64_t n_samples, wf_step_result *result_out) {
    bool is_part = wfi_trainer_is_part(t);
    int64_t n_all = n_samples, n_rows;
    if (t->forward_only)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "a step of a trainer for forward runs only: make one without forward_only");
    WF_TRY(wfi_trainer_check_average(t, "a step"));
    if (is_part) WF_TRY(wfi_trainer_join_step(t, feeds, n_feeds, n_samples, &n_all, &n_rows));
    WF_TRY(check_samples(t, n_all));
    wfi_ready *r;
    WF_TRY(wfi_trainer_ready(t, kind, n_all, &r));
    wf_status given = wfi_bind_feeds(t, r, feeds, n_feeds, n_samples, -1);
    if (given != WF_OK) return wfi_trainer_refuse_run(t, given);
    if (!is_part) n_rows = wfi_count_rows(r, n_all);
    wf_step_result result;
    WF_TRY(run(t, r, n_rows, find_lr(t), &result));
    *result_out = result;
    WF_TRY(wfi_not_finite_check(t, r));
    t->can_undo = false;
    t->n_steps += wfi_updates(r->program);
    return WF_OK;
}

wf_status wf_trainer_step(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                          wf_step_result *result_out) {
    return train(t, WF_PROGRAM_TRAIN, feeds, n_feeds, n_samples, result_out);
}

wf_status wf_trainer_gradients(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                               wf_step_result *result_out) {
    return train(t, WF_PROGRAM_GRADIENT, feeds, n_feeds, n_samples, result_out);
}

wf_status wf_trainer_prepare_gradients(wf_trainer *t, int64_t n_samples) {
    wfi_ready *ignored;
    if (t->forward_only)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "gradients of a trainer for forward runs only: make one without "
                        "forward_only");
    WF_TRY(check_samples(t, n_samples));
    return wfi_trainer_ready(t, WF_PROGRAM_GRADIENT, n_samples, &ignored);
}

wf_status wf_trainer_skip_steps(wf_trainer *t, int64_t n_steps) {
    if (t->forward_only || n_steps < 0)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "skip %lld steps%s", (long long)n_steps,
                        t->forward_only ? " of a trainer for forward runs only" : "");
    t->n_steps += n_steps;
    return WF_OK;
}

wf_status wf_trainer_count_step(wf_trainer *t) {
    if (t->forward_only)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "a step of a trainer for forward runs only: make one without forward_only");
    if (t->recipe.ema > 0)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "count a step: steps of the caller's own do not update the moving average "
                        "(ema=%g); leave ema out",
                        t->recipe.ema);
    t->n_steps++;
    return WF_OK;
}

/* The value named `name`. */
static wf_status find_output(const wf_trainer *t, const wfi_ready *r, const char *name,
                             size_t bytes, int32_t *k_out) {
    const wf_graph *g = r->program->graph;
    for (int32_t k = 0; k < g->n_outputs; k++) {
        if (strcmp(g->values[g->outputs[k]].name, name)) continue;
        size_t want = wfi_value_bytes(g, g->outputs[k]);
        if (want != bytes)
            return wfi_fail(t->ctx, WF_SHAPE,
                            "output '%s' of %lld samples takes %zu bytes, not %zu", name,
                            (long long)r->n_samples, want, bytes);
        *k_out = k;
        return WF_OK;
    }
    return wfi_fail(t->ctx, WF_INVALID_ARG, "the model has no output '%s'", name);
}

/* Output k has been stored on the process of its rank; the others get it from that rank's memory,
 * where it stays until the next run. */
static wf_status share_output(const wf_trainer *t, const wfi_ready *r, int32_t k, void *dst) {
    const wf_program *p = r->program;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *store = &p->instructions[i];
        if (store->kind != WFI_STORE || store->id != k) continue;
        const wfi_reference *from = &store->references[0];
        WF_TRY(wfi_trainer_fetch(t, store->rank, WFI_SPACE_DEVICE,
                                 p->blocks[from->block].offset + from->offset,
                                 wfi_value_bytes(p->graph, p->graph->outputs[k]), -1, dst));
    }
    return wfi_trainer_barrier(t, "read an output");
}

static wf_status forward(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                         const char *output, void *dst, size_t dst_bytes,
                         wf_step_result *result_out) {
    if (wfi_trainer_is_part(t)) WF_TRY(wfi_trainer_join_forward(t, n_samples));
    if (n_samples < 1) return wfi_fail(t->ctx, WF_SHAPE, "a forward run of no samples");
    wfi_ready *r;
    WF_TRY(wfi_trainer_ready(t, WF_PROGRAM_FORWARD, n_samples, &r));
    const wf_graph *g = r->program->graph;
    int32_t found = -1;
    if (output) WF_TRY(find_output(t, r, output, dst_bytes, &found));
    for (int32_t k = 0; k < g->n_outputs; k++) r->outputs[k] = k == found ? dst : NULL;
    wf_status given =
        wfi_bind_feeds(t, r, feeds, n_feeds, n_samples, found < 0 ? -1 : g->outputs[found]);
    int64_t n_rows;
    if (wfi_trainer_is_part(t))
        WF_TRY(wfi_trainer_join_rows(t, r, given, &n_rows));
    else if (given != WF_OK)
        return wfi_trainer_refuse_run(t, given);
    else
        n_rows = wfi_count_rows(r, n_samples);
    wf_step_result result;
    WF_TRY(run(t, r, n_rows, 0, &result));
    if (!output) WF_TRY(wfi_not_finite_check(t, r)); /* an output may be non-finite */
    *result_out = result;
    return found >= 0 && t->job ? share_output(t, r, found, dst) : WF_OK;
}

wf_status wf_trainer_prepare_eval(wf_trainer *t, int64_t n_samples) {
    wfi_ready *ignored;
    return wfi_trainer_ready(t, WF_PROGRAM_FORWARD, n_samples, &ignored);
}

wf_status wf_trainer_eval(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                          wf_step_result *result_out) {
    return forward(t, feeds, n_feeds, n_samples, NULL, NULL, 0, result_out);
}

wf_status wf_trainer_forward(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                             const char *name, void *dst, size_t dst_bytes) {
    wf_step_result ignored;
    return forward(t, feeds, n_feeds, n_samples, name, dst, dst_bytes, &ignored);
}
