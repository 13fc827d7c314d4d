/* A file with the state beside rank 0's trainer: where each worker reads on, the staleness so far
 * and, of local steps, the workers' optimizer states and the outer momentum. Rank 0 writes and
 * reads it. The file names the weights that it belongs to. */
#include "base/finite.h"
#include "state/header.h"
#include "workers/run.h"

#include <stdio.h>
#include <string.h>
#include <weft/checkpoint.h>

#define WEIGHTS_KEY "weft.weights_sha256"
#define BATCHES     "workers.next_batch"
#define STALENESS   "workers.staleness"
#define MOMENTUM    "outer.momentum"
#define NAME_BYTES  64
#define STEPS_BYTES 32

static void name_state(char name[NAME_BYTES], int worker, int state) {
    snprintf(name, NAME_BYTES, "worker.%d.optimizer.%d", worker, state);
}

/* ---- one state of one worker ---- */

/* From or to the worker's memory, in its own process. */
static wf_status move_here(const wf_workers *w, int worker, int state, bool reads, float *data) {
    size_t n = wfi_vector_n(&w->vector);
    const wfi_worker_rank *rank = w->ranks;
    while (rank->rank != wfi_workers_rank_of(w, worker)) rank++;
    if (rank->n > 1) {
        float *own = wfi_local_states(w, wfi_workers_find(w, worker)) + (size_t)state * n;
        memcpy(reads ? data : own, reads ? own : data, n * sizeof *data);
        if (reads || rank->workers->number != worker) return WF_OK;
    } /* the trainer has the first one's */
    return wfi_image_move(rank->trainer, &w->vector, WFI_IMAGE_STATES, state, 0, n, data, reads);
}

/* Between rank 0's `data` and the worker. Collective. */
static wf_status exchange(wf_workers *w, int worker, int state, bool reads, float *data) {
    int owner = wfi_workers_rank_of(w, worker), own = w->job ? wf_job_rank(w->job) : owner;
    size_t bytes = wfi_vector_n(&w->vector) * sizeof *data;
    if (reads && own == owner) WF_TRY(move_here(w, worker, state, true, data));
    WF_TRY(wfi_workers_pass(w, reads ? owner : 0, reads ? 0 : owner, data, bytes));
    return !reads && own == owner ? move_here(w, worker, state, false, data) : WF_OK;
}

/* ---- writing ---- */

static wf_status declare_local(const wf_workers *w, wf_safetensors_writer *writer) {
    char name[NAME_BYTES];
    const wf_shape vector = {.n_dims = 1, .dim = {(int64_t)wfi_vector_n(&w->vector)}};
    WF_TRY(wf_safetensors_writer_add_tensor(writer, MOMENTUM, WF_F32, &vector));
    for (int k = 0; k < w->n_workers; k++)
        for (int s = 0; s < wfi_recipe_n_states(&w->recipe); s++) {
            name_state(name, k, s);
            WF_TRY(wf_safetensors_writer_add_tensor(writer, name, WF_F32, &vector));
        }
    return WF_OK;
}

/* The tensors are then numbered as they are written below. */
static wf_status declare(const wf_workers *w, wf_safetensors_writer *writer) {
    char steps[STEPS_BYTES], sha[65];
    const wf_shape each = {.n_dims = 1, .dim = {w->n_workers}},
                   counts = {.n_dims = 1, .dim = {(int64_t)w->n_staleness}};
    wfi_safetensors_writer_add_digests(writer, true);
    snprintf(steps, sizeof steps, "%lld", (long long)w->n_steps);
    WF_TRY(wf_trainer_weights_sha256(w->ranks->trainer, sha));
    WF_TRY(wf_safetensors_writer_add_metadata(writer, WFI_STEPS_KEY, steps));
    WF_TRY(wf_safetensors_writer_add_metadata(writer, WEIGHTS_KEY, sha));
    WF_TRY(wf_safetensors_writer_add_tensor(writer, BATCHES, WF_I64, &each));
    if (!wfi_workers_is_async(w)) return declare_local(w, writer);
    return wf_safetensors_writer_add_tensor(writer, STALENESS, WF_I64, &counts);
}

static wf_status write_tensor(wf_safetensors_writer *writer, int i, const void *data,
                              size_t bytes) {
    wfi_safetensors_writer_set_digest(writer, i, wfi_safetensors_digest_part(data, bytes, 0));
    return wf_safetensors_writer_write(writer, i, data, bytes);
}

static wf_status write_batches(const wf_workers *w, wf_safetensors_writer *writer) {
    int64_t *batches = wfi_alloc(w->ctx, (size_t)w->n_workers, sizeof *batches, "batches");
    if (!batches) return WF_NO_MEMORY;
    for (int k = 0; k < w->n_workers; k++) batches[k] = wf_workers_batch(w, k);
    wf_status status = write_tensor(writer, 0, batches, (size_t)w->n_workers * sizeof *batches);
    wfi_free(w->ctx, batches);
    return status;
}

/* `writer` NULL: this is not rank 0. */
static wf_status write_states(wf_workers *w, wf_safetensors_writer *writer, float *data) {
    size_t bytes = wfi_vector_n(&w->vector) * sizeof *data;
    int n_states = wfi_recipe_n_states(&w->recipe), next = 2;
    if (writer) WF_TRY(write_tensor(writer, 1, w->momentum, bytes));
    for (int k = 0; k < w->n_workers; k++)
        for (int s = 0; s < n_states; s++, next++) {
            WF_TRY(exchange(w, k, s, true, data));
            if (writer) WF_TRY(write_tensor(writer, next, data, bytes));
        }
    return WF_OK;
}

static wf_status save(wf_workers *w, wf_safetensors_writer *writer, float *data) {
    if (writer) WF_TRY(declare(w, writer));
    if (writer) WF_TRY(write_batches(w, writer));
    if (!wfi_workers_is_async(w))
        WF_TRY(write_states(w, writer, data));
    else if (writer)
        WF_TRY(write_tensor(writer, 1, w->staleness, w->n_staleness * sizeof *w->staleness));
    return writer ? wf_safetensors_writer_commit(writer) : WF_OK;
}

/* A failure on rank 0 is one of all. */
static wf_status finish(wf_workers *w, wf_status status) {
    if (status != WF_OK && w->job)
        wfi_failure_set(wfi_workers_failure(w), status, wf_context_error(w->ctx));
    return status == WF_OK && w->job ? wf_group_barrier(w->world, NULL) : status;
}

wf_status wf_workers_save(wf_workers *w, const char *path) {
    wf_safetensors_writer *writer = NULL;
    float *data = wfi_alloc(w->ctx, wfi_vector_n(&w->vector) + 1, sizeof *data, "a state");
    wf_status status = data ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK && wfi_workers_is_root(w))
        status = wf_safetensors_writer_create(w->ctx, path, &writer);
    if (status == WF_OK) status = save(w, writer, data);
    wf_safetensors_writer_destroy(writer);
    wfi_free(w->ctx, data);
    return finish(w, status);
}

/* ---- reading ---- */

static wf_status read_tensor(const wf_safetensors *file, wf_context *ctx, const char *path,
                             const char *name, void *data, size_t bytes) {
    int i = wf_safetensors_find(file, name);
    const wf_safetensors_entry *entry = wf_safetensors_get(file, i);
    if (i >= 0 && entry->n_bytes == bytes) return wf_safetensors_read(file, i, data, bytes);
    return wfi_fail(ctx, WF_CORRUPT, "%s: '%s' is missing, or has the size of another run's", path,
                    name);
}

static wf_status check_value(const wf_workers *w, const wf_safetensors *file, const char *path,
                             const char *key, const char *wanted, const char *what) {
    const char *text = wf_safetensors_metadata(file, key);
    if (text && !strcmp(text, wanted)) return WF_OK;
    return wfi_fail(w->ctx, WF_CORRUPT,
                    "%s is not of %s %.12s, which the state beside it has: they are of different "
                    "checkpoints",
                    path, what, wanted);
}

static wf_status check_origin(const wf_workers *w, const wf_safetensors *file, const char *path,
                              int64_t n_steps) {
    char steps[STEPS_BYTES], sha[65];
    snprintf(steps, sizeof steps, "%lld", (long long)n_steps);
    WF_TRY(check_value(w, file, path, WFI_STEPS_KEY, steps, "step"));
    WF_TRY(wf_trainer_weights_sha256(w->ranks->trainer, sha));
    return check_value(w, file, path, WEIGHTS_KEY, sha, "weights");
}

/* Each step takes as many parts as it applies, and late gradients more. */
static bool are_possible(const wf_workers *w, const int64_t *batches, int64_t n_steps) {
    int64_t n = 0, n_applied = n_steps * (w->n_workers - w->recipe.n_backup);
    for (int k = 0; k < w->n_workers; k++) {
        bool is_local = !wfi_workers_is_async(w);
        if (batches[k] < 0 || batches[k] > n_steps * w->n_workers) return false;
        if (is_local && batches[k] != n_steps) return false;
        n += batches[k];
    }
    return w->recipe.n_backup ? n >= n_applied : n == n_applied;
}

static wf_status read_batches(const wf_workers *w, const wf_safetensors *file, const char *path,
                              int64_t n_steps, int64_t *batches) {
    WF_TRY(
        read_tensor(file, w->ctx, path, BATCHES, batches, (size_t)w->n_workers * sizeof *batches));
    if (are_possible(w, batches, n_steps)) return WF_OK;
    return wfi_fail(w->ctx, WF_CORRUPT,
                    "%s: after step %lld no workers can have read as many batches as its "
                    "'" BATCHES "' says",
                    path, (long long)n_steps);
}

static wf_status read_vector(const wf_workers *w, const wf_safetensors *file, const char *path,
                             const char *name, float *data) {
    size_t n = wfi_vector_n(&w->vector);
    WF_TRY(read_tensor(file, w->ctx, path, name, data, n * sizeof *data));
    size_t bad = wfi_find_not_finite(data, n);
    if (bad == n) return WF_OK;
    return wfi_fail(w->ctx, WF_CORRUPT, "%s: element %zu of %s is %g: a run cannot resume from it",
                    path, bad, name, (double)data[bad]);
}

/* As many gradients as were applied. */
static wf_status read_staleness(wf_workers *w, const wf_safetensors *file, const char *path,
                                int64_t n_steps) {
    int i = wf_safetensors_find(file, STALENESS);
    const wf_safetensors_entry *entry = wf_safetensors_get(file, i);
    size_t n = i < 0 ? 0 : (size_t)entry->n_bytes / sizeof *w->staleness;
    int64_t sum = 0, wanted = n_steps * (w->n_workers - w->recipe.n_backup);
    w->n_staleness = 0;
    for (size_t k = 0; k < n && n <= (size_t)wanted + 1; k++) {
        WF_TRY(WFI_GROW(w->ctx, w->staleness, k, w->staleness_capacity, "staleness"));
        w->n_staleness = k + 1;
    }
    WF_TRY(read_tensor(file, w->ctx, path, STALENESS, w->staleness,
                       w->n_staleness * sizeof *w->staleness));
    for (size_t k = 0; k < w->n_staleness; k++) {
        if (w->staleness[k] < 0 || w->staleness[k] > wanted) sum = -1;
        if (sum >= 0) sum += w->staleness[k];
    }
    if (sum == wanted) return WF_OK;
    return wfi_fail(w->ctx, WF_CORRUPT, "%s: its '" STALENESS "' does not count %lld gradients",
                    path, (long long)wanted);
}

/* `file` NULL: this is not rank 0. */
static wf_status read_states(wf_workers *w, const wf_safetensors *file, const char *path,
                             float *data) {
    char name[NAME_BYTES];
    int n_states = wfi_recipe_n_states(&w->recipe);
    WF_TRY(wfi_workers_tell(w, 0, w->momentum, wfi_vector_n(&w->vector) * sizeof *data));
    for (int k = 0; k < w->n_workers; k++)
        for (int s = 0; s < n_states; s++) {
            name_state(name, k, s);
            if (file) WF_TRY(read_vector(w, file, path, name, data));
            WF_TRY(exchange(w, k, s, false, data));
        }
    return WF_OK;
}

/* Rank 0's trainer says which step it is of. */
static wf_status load(wf_workers *w, const wf_safetensors *file, const char *path, float *data,
                      int64_t *batches) {
    int64_t n_steps = wfi_workers_is_root(w) ? wf_trainer_n_steps(w->ranks->trainer) : 0;
    if (file) WF_TRY(check_origin(w, file, path, n_steps));
    if (file && !wfi_workers_is_async(w)) WF_TRY(read_vector(w, file, path, MOMENTUM, w->momentum));
    if (file) WF_TRY(read_batches(w, file, path, n_steps, batches));
    if (file && wfi_workers_is_async(w)) WF_TRY(read_staleness(w, file, path, n_steps));
    WF_TRY(wfi_workers_tell(w, 0, &n_steps, sizeof n_steps));
    WF_TRY(wfi_workers_tell(w, 0, batches, (size_t)w->n_workers * sizeof *batches));
    WF_TRY(wfi_workers_is_async(w) ? wfi_workers_tell_staleness(w, 0)
                                   : read_states(w, file, path, data));
    w->n_steps = n_steps;
    w->is_replicated = w->has_parameters = false;
    for (int k = 0; k < w->n_workers; k++) {
        wfi_one_worker *one = wfi_workers_find(w, k);
        if (one) one->batch = batches[k];
        if (w->order.next_batch) w->order.next_batch[k] = batches[k];
    }
    return !wfi_workers_is_async(w) ? WF_OK : wfi_workers_resume_record(w);
}

wf_status wf_workers_load(wf_workers *w, const char *path) {
    wf_safetensors *file = NULL;
    size_t n = (size_t)w->n_workers;
    int64_t *batches = wfi_alloc(w->ctx, n, sizeof *batches, "batches");
    float *data = wfi_alloc(w->ctx, wfi_vector_n(&w->vector) + 1, sizeof *data, "a state");
    wf_status status = data && batches ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK && wfi_workers_is_root(w))
        status = wf_safetensors_open(w->ctx, path, &file);
    if (status == WF_OK) status = load(w, file, path, data, batches);
    wf_safetensors_close(file);
    wfi_free(w->ctx, batches);
    wfi_free(w->ctx, data);
    return finish(w, status);
}
