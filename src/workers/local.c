/* Local steps: each worker trains alone for a round of steps; then an outer step moves the common
 * parameters by the mean of the changes, which is summed over a fixed tree of the workers. */
#include "workers/run.h"

#include "api/share.h"
#include "base/tree.h"
#include "kernel/cpu.h"

#include <fenv.h>
#include <string.h>

/* A worker's image: parameters, buffers, and, where a rank has several workers, their states. */
static float *parameters_of(const wfi_one_worker *one) {
    return (float *)(void *)one->image;
}

static size_t buffers_at(const wf_workers *w) {
    return wfi_round_up(wfi_image_bytes(&w->vector, WFI_IMAGE_PARAMETERS), WFI_ALIGN_BYTES);
}

static size_t states_at(const wf_workers *w) {
    return buffers_at(w) + wfi_round_up(wfi_vector_buffer_bytes(&w->vector), WFI_ALIGN_BYTES);
}

float *wfi_local_states(const wf_workers *w, const wfi_one_worker *one) {
    return (float *)(void *)(one->image + states_at(w));
}

wf_status wfi_local_create(wf_workers *w) {
    size_t n = wfi_vector_n(&w->vector) + 1;
    w->common = wfi_pool_array(&w->pool, n, sizeof *w->common, "common parameters");
    w->momentum = wfi_pool_array(&w->pool, n, sizeof *w->momentum, "outer momentum");
    for (int k = 0; k < w->n_here; k++)
        w->host_bytes[w->ranks[k].rank] += k ? 0 : 2 * (n - 1) * sizeof(float);
    for (int k = 0; k < w->n_here; k++)
        for (int i = 0; i < w->ranks[k].n; i++) {
            bool is_alone = w->ranks[k].n == 1;
            size_t states = is_alone ? 0 : wfi_image_bytes(&w->vector, WFI_IMAGE_STATES);
            size_t bytes = states_at(w) + states;
            w->ranks[k].workers[i].image = wfi_pool_array(&w->pool, bytes + 1, 1, "a worker");
            w->host_bytes[w->ranks[k].rank] += bytes;
        }
    return wfi_pool_status(&w->pool);
}

/* ---- a worker's turn ---- */

static wf_status move_states(const wfi_worker_rank *rank, const wfi_one_worker *one, bool reads) {
    const wf_workers *w = rank->all;
    size_t n = wfi_vector_n(&w->vector);
    int n_states = rank->n > 1 ? wfi_recipe_n_states(&w->own) : 0;
    for (int s = 0; s < n_states; s++) {
        float *at = wfi_local_states(w, one) + (size_t)s * n;
        WF_TRY(wfi_image_move(rank->trainer, &w->vector, WFI_IMAGE_STATES, s, 0, n, at, reads));
    }
    return WF_OK;
}

static wf_status move_weights(const wfi_worker_rank *rank, const wfi_one_worker *one, bool reads) {
    const wf_workers *w = rank->all;
    const wfi_vector *l = &w->vector;
    size_t n = wfi_vector_n(l), n_bytes = wfi_vector_buffer_bytes(l);
    WF_TRY(wfi_image_move(rank->trainer, l, WFI_IMAGE_PARAMETERS, 0, 0, n, one->image, reads));
    return wfi_image_move(rank->trainer, l, WFI_IMAGE_BUFFERS, 0, 0, n_bytes,
                          one->image + buffers_at(w), reads);
}

/* The results of a step of one worker: the loss over the rows, rows and hits. */
enum { N_NUMBERS = 3 };

static wf_status step(wfi_worker_rank *rank, wfi_one_worker *one, double *numbers) {
    wf_workers *w = rank->all;
    wf_worker_part part = {0};
    wf_step_result result;
    int64_t first, ignored, begin_ns = wfi_workers_now(w);
    WF_TRY(w->config.read(w->config.self, one->number, one->batch, &part));
    wf_recipe_part(&w->recipe, part.n_batch, w->n_workers, one->number, &first, &ignored);
    wfi_trainer_share(rank->trainer, &(wfi_share){.step = one->batch, .first_sample = first});
    WF_TRY(wf_trainer_step(rank->trainer, part.feeds, part.n_feeds, part.n_samples, &result));
    one->batch++;
    numbers[0] = result.loss * (double)result.n_rows;
    numbers[1] = (double)result.n_rows;
    numbers[2] = (double)result.n_hits;
    wfi_workers_note(w, rank->rank, begin_ns, one->batch, WF_SPAN_BACKWARD_WEIGHT,
                     WFI_STREAM_COMPUTE);
    return WF_OK;
}

static wf_status take_turn(wfi_worker_rank *rank, wfi_one_worker *one) {
    wf_workers *w = rank->all;
    if (rank->n > 1) WF_TRY(move_weights(rank, one, false));
    if (rank->n > 1) WF_TRY(move_states(rank, one, false));
    wfi_trainer_count_to(rank->trainer, w->n_steps);
    for (int64_t s = 0; s < w->n_round; s++)
        WF_TRY(step(rank, one, w->numbers + (one->number * w->n_round + s) * N_NUMBERS));
    WF_TRY(move_weights(rank, one, true));
    return move_states(rank, one, true);
}

static wf_status take_turns(wfi_worker_rank *rank) {
    for (int k = 0; k < rank->n; k++) WF_TRY(take_turn(rank, &rank->workers[k]));
    return WF_OK;
}

static void *be_rank(void *self) {
    wfi_worker_rank *rank = self;
    wf_status status = take_turns(rank);
    if (status != WF_OK)
        wfi_failure_set(wfi_workers_failure(rank->all), status, wf_context_error(rank->all->ctx));
    return NULL;
}

static wf_status run_ranks(wf_workers *w) {
    for (int k = 0; k < w->n_here; k++) {
        w->ranks[k].has_thread = !pthread_create(&w->ranks[k].thread, NULL, be_rank, &w->ranks[k]);
        if (!w->ranks[k].has_thread) be_rank(&w->ranks[k]);
    }
    for (int k = 0; k < w->n_here; k++)
        if (w->ranks[k].has_thread) pthread_join(w->ranks[k].thread, NULL);
    return wfi_failure_check(w->ctx, wfi_workers_failure(w));
}

/* ---- the outer step ---- */

/* Replaces the worker's parameters by their change, with the sign of a gradient. */
static void find_change(const wf_workers *w, const wfi_one_worker *one) {
    float *own = parameters_of(one);
    for (size_t i = 0, n = wfi_vector_n(&w->vector); i < n; i++) own[i] = w->common[i] - own[i];
}

/* Sums n_elem floats at byte `at` of the images of workers `first` to `first + n - 1` into the
 * first image. */
static float *sum(const wf_workers *w, int64_t first, int64_t n, size_t at, size_t n_elem) {
    float *left = (float *)(void *)(wfi_workers_find(w, (int)first)->image + at);
    if (n == 1) return left;
    int64_t n_left = wfi_tree_split(n);
    (void)sum(w, first, n_left, at, n_elem);
    wfi_cpu_add(wfi_best_variant(), left, sum(w, first + n_left, n - n_left, at, n_elem), n_elem);
    return left;
}

/* Stores the mean over all workers in the images of this process's workers. */
static wf_status average(wf_workers *w, size_t at, size_t n_elem) {
    int first = w->ranks->workers->number, n = 0;
    for (int k = 0; k < w->n_here; k++) n += w->ranks[k].n;
    float *mean = sum(w, first, n, at, n_elem), share = 1.0f / (float)w->n_workers;
    if (w->job)
        WF_TRY(wf_group_all_reduce(w->world, mean, mean, (int64_t)n_elem, WF_F32, WF_SUM, NULL));
    for (size_t i = 0; i < n_elem; i++) mean[i] *= share;
    for (int k = 1; k < n; k++)
        memcpy(wfi_workers_find(w, first + k)->image + at, mean, n_elem * sizeof *mean);
    return WF_OK;
}

/* Applies Nesterov momentum, as PyTorch's SGD does. */
static void step_outer(wf_workers *w, const float *mean) {
    float momentum = (float)w->recipe.outer_momentum, lr = (float)w->recipe.outer_lr;
    for (size_t i = 0, n = wfi_vector_n(&w->vector); i < n; i++) {
        w->momentum[i] = momentum * w->momentum[i] + mean[i];
        w->common[i] -= lr * (mean[i] + momentum * w->momentum[i]);
    }
}

/* Running statistics of all workers become their mean. Their counts of batches are equal. */
static wf_status average_buffers(wf_workers *w) {
    const wf_graph *g = w->vector.program->graph;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = &g->values[v];
        if (!wfi_local_averages(value)) continue;
        WF_TRY(average(w, buffers_at(w) + w->vector.first_buffer[value->unit] + value->offset,
                       (size_t)wf_shape_n_elem(&value->shape)));
    }
    return WF_OK;
}

static wf_status give_common(wf_workers *w) {
    size_t bytes = wfi_image_bytes(&w->vector, WFI_IMAGE_PARAMETERS);
    for (int k = 0; k < w->n_here; k++) {
        for (int i = 0; i < w->ranks[k].n; i++)
            memcpy(w->ranks[k].workers[i].image, w->common, bytes);
        WF_TRY(move_weights(&w->ranks[k], w->ranks[k].workers, false));
        WF_TRY(move_states(&w->ranks[k], w->ranks[k].workers, false));
    }
    return WF_OK;
}

static wf_status make_outer_step(wf_workers *w) {
    for (int k = 0; k < w->n_here; k++)
        for (int i = 0; i < w->ranks[k].n; i++) find_change(w, &w->ranks[k].workers[i]);
    WF_TRY(average(w, 0, wfi_vector_n(&w->vector)));
    WF_TRY(average_buffers(w));
    step_outer(w, parameters_of(w->ranks->workers));
    return give_common(w);
}

/* The caller's rounding mode does not change the bits. */
static wf_status make_rounded_step(wf_workers *w) {
    fenv_t callers;
    if (fegetenv(&callers) || fesetenv(FE_DFL_ENV))
        return wfi_fail(w->ctx, WF_DEVICE, "the floating-point mode could not be set");
    int64_t begin_ns = wfi_workers_now(w);
    wf_status status = make_outer_step(w);
    for (int k = 0; k < w->n_here; k++)
        wfi_workers_note(w, w->ranks[k].rank, begin_ns, -1, WF_SPAN_REDUCE, WFI_STREAM_REDUCE);
    (void)fesetenv(&callers);
    return status;
}

/* ---- runs ---- */

/* Gathers every worker's numbers on every rank. */
static wf_status share_numbers(wf_workers *w) {
    int64_t n = (int64_t)w->ranks->n * w->n_round * N_NUMBERS;
    double *own = w->numbers + w->ranks->workers->number * w->n_round * N_NUMBERS;
    return w->job ? wf_group_all_gather(w->world, own, w->numbers, n, WF_F64, NULL) : WF_OK;
}

static void add_results(const wf_workers *w, wf_step_result *results) {
    for (int64_t s = 0; s < w->n_round; s++) {
        wf_step_result *r = &results[s];
        for (int k = 0; k < w->n_workers; k++) {
            const double *numbers = w->numbers + (k * w->n_round + s) * N_NUMBERS;
            r->loss += numbers[0];
            r->n_rows += (int64_t)numbers[1];
            r->n_hits += (int64_t)numbers[2];
        }
        r->loss = r->n_rows ? r->loss / (double)r->n_rows : 0;
        r->lr = wf_recipe_lr(&w->recipe, w->n_steps + s);
    }
}

/* Threads read each other's vectors as the direct algorithm does. */
static void count_traffic(wf_workers *w) {
    if (w->job) {
        wf_traffic now = wf_group_traffic(w->world);
        w->averages.sent_bytes += now.sent_bytes - w->before.sent_bytes;
        w->averages.received_bytes += now.received_bytes - w->before.received_bytes;
        return;
    }
    w->averages.sent_bytes += wfi_local_average_bytes(w);
    w->averages.received_bytes += wfi_local_average_bytes(w);
}

static wf_status run_round(wf_workers *w, wf_step_result *results) {
    if (w->job) w->before = wf_group_traffic(w->world);
    WF_TRY(run_ranks(w));
    WF_TRY(make_rounded_step(w));
    WF_TRY(share_numbers(w));
    add_results(w, results);
    count_traffic(w);
    w->n_steps += w->n_round;
    w->n_run += w->n_round;
    if (w->config.progress && !w->ranks->rank)
        w->config.progress(w->config.self, w->n_steps, results[w->n_round - 1].loss);
    return WF_OK;
}

static wf_status begin(wf_workers *w) {
    bool is_new = !w->is_replicated;
    WF_TRY(wfi_workers_replicate_weights(w));
    if (!is_new) return WF_OK;
    for (int k = 0; k < w->n_here; k++)
        for (int i = 0; i < w->ranks[k].n; i++)
            WF_TRY(move_weights(&w->ranks[k], &w->ranks[k].workers[i], true));
    memcpy(w->common, w->ranks->workers->image, wfi_image_bytes(&w->vector, WFI_IMAGE_PARAMETERS));
    return WF_OK;
}

static wf_status run_rounds(wf_workers *w, int64_t n_steps, wf_step_result *results,
                            int64_t *n_done_out) {
    int64_t n_each = w->recipe.local_steps;
    for (int ends = 0; *n_done_out < n_steps && !ends;) {
        w->n_round = wfi_min_i64(n_each - w->n_steps % n_each, n_steps - *n_done_out);
        WF_TRY(run_round(w, results + *n_done_out));
        *n_done_out += w->n_round;
        if (*n_done_out < n_steps) WF_TRY(wfi_workers_agree_to_stop(w, &ends));
        results[*n_done_out - 1].stop_reason = ends;
    }
    return WF_OK;
}

wf_status wfi_local_run(wf_workers *w, int64_t n_steps, wf_step_result *results,
                        int64_t *n_done_out) {
    size_t n = (size_t)(w->n_workers * wfi_min_i64(n_steps, w->recipe.local_steps));
    WF_TRY(begin(w));
    w->numbers = wfi_alloc(w->ctx, n, N_NUMBERS * sizeof *w->numbers, "losses");
    wf_status status = w->numbers ? run_rounds(w, n_steps, results, n_done_out) : WF_NO_MEMORY;
    wfi_free(w->ctx, w->numbers);
    w->numbers = NULL;
    if (status == WF_OK && !w->ranks->rank) wfi_trainer_count_to(w->ranks->trainer, w->n_steps);
    return status;
}
