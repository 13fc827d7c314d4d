/* State in and out: files by name, single tensors, the fingerprint. The streams are
 * idle between steps, so the host may read and write the arena of a CPU device. */
#include "base/finite.h"
#include "run/trainer.h"
#include "state/hash.h"
#include "state/header.h"
#include "state/match.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_KEY     "weft.n_steps"
#define SECOND_MOMENT "optimizer.second_moment."
#define MAX_STEPS     (INT64_C(1) << 53) /* no run comes near, and counting on cannot overflow */

static bool is_saved(const wfi_value *value) {
    return value->kind == WFI_VALUE_PARAM || value->kind == WFI_VALUE_BUFFER;
}

/* Lists the tensors of a file; with `all`, the optimizer's too. Names made for it live
 * in `pool`. */
static wf_status list_tensors(wf_trainer *t, bool all, wfi_pool *pool, wf_tensor_data **tensors_out,
                              int *n_out) {
    const wf_graph *g = wfi_trainer_graph(t);
    int n_states = all ? wfi_recipe_n_states(&t->recipe) : 0, n = 0;
    size_t most = (size_t)g->n_values * (1 + (size_t)n_states);
    wf_tensor_data *tensors = wfi_alloc(t->ctx, most, sizeof *tensors, "a list of tensors");
    if (!tensors) return WF_NO_MEMORY;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (!is_saved(value)) continue;
        tensors[n++] =
            (wf_tensor_data){value->name, value->dtype, value->shape, wfi_trainer_address(t, v)};
        for (int i = 0; i < n_states && value->kind == WFI_VALUE_PARAM; i++) {
            char *name = wfi_pool_format(pool, "optimizer.%s.%s",
                                         wfi_optimizer_of(&t->recipe)->states[i], value->name);
            if (!name) {
                wfi_free(t->ctx, tensors);
                return WF_NO_MEMORY;
            }
            tensors[n++] = (wf_tensor_data){name, value->dtype, value->shape,
                                            wfi_trainer_state_address(t, v, i)};
        }
    }
    *tensors_out = tensors;
    *n_out = n;
    return WF_OK;
}

static wf_status save(wf_trainer *t, const char *path) {
    wfi_pool pool;
    wfi_pool_init(&pool, t->ctx);
    wf_tensor_data *tensors = NULL;
    int n;
    wf_status status = list_tensors(t, false, &pool, &tensors, &n);
    /* What transformers and others expect to find. */
    wf_metadata metadata[] = {{"format", "pt"}};
    if (status == WF_OK) status = wf_safetensors_write(t->ctx, path, tensors, n, metadata, 1);
    wfi_free(t->ctx, tensors);
    wfi_pool_release(&pool);
    return status;
}

static wf_status save_state(wf_trainer *t, const char *path, const wf_note *notes, int n_notes) {
    wfi_pool pool;
    wfi_pool_init(&pool, t->ctx);
    wf_metadata *metadata = wfi_alloc(t->ctx, (size_t)n_notes + 1, sizeof *metadata, "notes");
    char *steps = wfi_pool_format(&pool, "%lld", (long long)t->n_steps);
    wf_tensor_data *tensors = NULL;
    int n = 0;
    wf_status status =
        metadata && steps ? list_tensors(t, true, &pool, &tensors, &n) : WF_NO_MEMORY;
    if (status == WF_OK) {
        metadata[0] = (wf_metadata){STEPS_KEY, steps};
        for (int i = 0; i < n_notes; i++)
            metadata[i + 1] = (wf_metadata){notes[i].key, notes[i].value};
        status = wf_safetensors_write(t->ctx, path, tensors, n, metadata, n_notes + 1);
    }
    wfi_free(t->ctx, tensors);
    wfi_free(t->ctx, metadata);
    wfi_pool_release(&pool);
    return status;
}

/* Refuses numbers that no step can have left. */
static wf_status check_values(const wf_trainer *t, const wf_safetensors *file,
                              const wf_tensor_data *tensor, const void *bytes) {
    const float *values = bytes;
    bool is_square = !strncmp(tensor->name, SECOND_MOMENT, sizeof SECOND_MOMENT - 1);
    size_t n = tensor->dtype == WF_F32 ? (size_t)wf_shape_n_elem(&tensor->shape) : 0;
    size_t bad = wfi_find_not_finite(values, n);
    for (size_t i = 0; is_square && i < bad; i++)
        if (values[i] < 0) bad = i;
    if (bad == n) return WF_OK;
    return wfi_fail(t->ctx, WF_CORRUPT, "%s: element %zu of %s is %g: a run cannot go on from it",
                    wfi_safetensors_path(file), bad, tensor->name, (double)values[bad]);
}

/* Reads tensor index[i] for tensors[i] into memory of its own, then moves all of it:
 * a file that breaks in the middle changes nothing. */
static wf_status read_all(wf_trainer *t, const wf_safetensors *file, const wf_tensor_data *tensors,
                          const int *index, int n) {
    size_t total = 0;
    for (int i = 0; i < n; i++)
        total += (size_t)wf_shape_n_elem(&tensors[i].shape) * wf_dtype_bytes(tensors[i].dtype);
    char *copy = wfi_alloc(t->ctx, total ? total : 1, 1, "a checkpoint");
    if (!copy) return WF_NO_MEMORY;
    wf_status status = WF_OK;
    for (int pass = 0; pass < 2 && status == WF_OK; pass++) {
        char *at = copy;
        for (int i = 0; i < n && status == WF_OK; i++) {
            size_t bytes =
                (size_t)wf_shape_n_elem(&tensors[i].shape) * wf_dtype_bytes(tensors[i].dtype);
            if (index[i] >= 0 && pass == 0) status = wf_safetensors_read(file, index[i], at, bytes);
            if (index[i] >= 0 && pass == 0 && status == WF_OK)
                status = check_values(t, file, &tensors[i], at);
            if (index[i] >= 0 && pass == 1) memcpy((void *)(uintptr_t)tensors[i].data, at, bytes);
            at += bytes;
        }
    }
    wfi_free(t->ctx, copy);
    return status;
}

static wf_status load(wf_trainer *t, const wf_safetensors *file, bool all) {
    wfi_pool pool;
    wfi_pool_init(&pool, t->ctx);
    wf_tensor_data *tensors;
    int n;
    wf_status status = list_tensors(t, all, &pool, &tensors, &n);
    if (status != WF_OK) {
        wfi_pool_release(&pool);
        return status;
    }
    wfi_wanted *wanted = wfi_alloc(t->ctx, (size_t)n, sizeof *wanted, "a list of tensors");
    int *index = wfi_alloc(t->ctx, (size_t)n, sizeof *index, "a list of tensors");
    status = wanted && index ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        for (int i = 0; i < n; i++)
            wanted[i] = (wfi_wanted){tensors[i].name, tensors[i].dtype, tensors[i].shape};
        status = wfi_match_weights(t->ctx, file, wanted, n, WFI_MATCH_ALL, index);
    }
    if (status == WF_OK) status = read_all(t, file, tensors, index, n);
    wfi_free(t->ctx, wanted);
    wfi_free(t->ctx, index);
    wfi_free(t->ctx, tensors);
    wfi_pool_release(&pool);
    return status;
}

static wf_status load_weights(wf_trainer *t, const char *path) {
    wf_safetensors *file;
    WF_TRY(wf_safetensors_open(t->ctx, path, &file));
    wf_status status = load(t, file, false);
    wf_safetensors_close(file);
    return status;
}

/* Digits and nothing else: what a run can have counted. */
static wf_status read_steps(const wf_trainer *t, const wf_safetensors *file, int64_t *n_out) {
    const char *text = wf_safetensors_metadata(file, STEPS_KEY);
    char *end = NULL, shown[WFI_NAME_TEXT];
    if (!text)
        return wfi_fail(t->ctx, WF_CORRUPT,
                        "%s is no training state: it does not say how many steps were taken (load "
                        "weights alone with --init)",
                        wfi_safetensors_path(file));
    errno = 0;
    long long n = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    if (n < 0 || *end || errno || n > MAX_STEPS)
        return wfi_fail(t->ctx, WF_CORRUPT,
                        "%s: its " STEPS_KEY " is '%s', which is no number of steps from 0 to %lld",
                        wfi_safetensors_path(file), wfi_name_text(text, shown),
                        (long long)MAX_STEPS);
    *n_out = n;
    return WF_OK;
}

static wf_status load_state(wf_trainer *t, const char *path, int64_t *n_steps_out) {
    wf_safetensors *file;
    WF_TRY(wf_safetensors_open(t->ctx, path, &file));
    int64_t n_steps = 0;
    wf_status status = read_steps(t, file, &n_steps);
    if (status == WF_OK) status = load(t, file, true);
    if (status == WF_OK) *n_steps_out = n_steps;
    wf_safetensors_close(file);
    return status;
}

/* ---- files, by one process ---- */

typedef struct transfer {
    wf_trainer *t;
    const char *path;
    const wf_note *notes;
    int n_notes;
    int64_t n_steps;
} transfer;

static wf_status save_one(void *self) {
    const transfer *x = self;
    return save(x->t, x->path);
}

static wf_status save_state_one(void *self) {
    const transfer *x = self;
    return save_state(x->t, x->path, x->notes, x->n_notes);
}

static wf_status load_weights_one(void *self) {
    const transfer *x = self;
    return load_weights(x->t, x->path);
}

static wf_status load_state_one(void *self) {
    transfer *x = self;
    WF_TRY(load_state(x->t, x->path, &x->n_steps));
    x->t->n_steps = x->n_steps;
    return WF_OK;
}

/* Known to all ranks of a job alike. */
static wf_status check_spoiled(const wf_trainer *t, const char *path) {
    if (!t->is_spoiled) return WF_OK;
    return wfi_fail(t->ctx, WF_NOT_FINITE,
                    "%s is not written: a step has left numbers that are not finite; a state that "
                    "is loaded replaces them",
                    path);
}

wf_status wf_trainer_save(wf_trainer *t, const char *path) {
    WF_TRY(check_spoiled(t, path));
    return wfi_trainer_alone(t, "save weights", WFI_STATE_READ, save_one,
                             &(transfer){.t = t, .path = path});
}

wf_status wf_trainer_save_state(wf_trainer *t, const char *path, const wf_note *notes,
                                int n_notes) {
    transfer x = {.t = t, .path = path, .notes = notes, .n_notes = n_notes};
    WF_TRY(check_spoiled(t, path));
    return wfi_trainer_alone(t, "save its state", WFI_STATE_READ, save_state_one, &x);
}

wf_status wf_trainer_load_weights(wf_trainer *t, const char *path) {
    return wfi_trainer_alone(t, "load weights", WFI_STATE_READ | WFI_STATE_WRITE, load_weights_one,
                             &(transfer){.t = t, .path = path});
}

wf_status wf_trainer_load_state(wf_trainer *t, const char *path) {
    transfer x = {.t = t, .path = path};
    WF_TRY(wfi_trainer_alone(t, "load its state", WFI_STATE_READ | WFI_STATE_WRITE, load_state_one,
                             &x));
    t->is_spoiled = false;
    return t->job ? wfi_control_broadcast(t->job, "hear the step", &t->n_steps, sizeof t->n_steps)
                  : WF_OK;
}

wf_status wf_trainer_state_note(wf_context *ctx, const char *path, const char *key,
                                char **value_out) {
    wf_safetensors *file;
    WF_TRY(wf_safetensors_open(ctx, path, &file));
    const char *value = wf_safetensors_metadata(file, key);
    char *copy = value ? wfi_strdup(ctx, value) : NULL;
    wf_safetensors_close(file);
    if (value && !copy) return WF_NO_MEMORY;
    *value_out = copy;
    return WF_OK;
}

typedef struct fingerprint {
    wf_trainer *t;
    char hex[65];
} fingerprint;

static wf_status hash_one(void *self) {
    fingerprint *x = self;
    wfi_pool pool;
    wfi_pool_init(&pool, x->t->ctx);
    wf_tensor_data *tensors = NULL;
    int n;
    wf_status status = list_tensors(x->t, false, &pool, &tensors, &n);
    if (status == WF_OK) status = wfi_weights_sha256(x->t->ctx, tensors, n, x->hex);
    wfi_free(x->t->ctx, tensors);
    wfi_pool_release(&pool);
    return status;
}

wf_status wf_trainer_weights_sha256(wf_trainer *t, char hex_out[65]) {
    fingerprint x = {.t = t};
    WF_TRY(wfi_trainer_alone(t, "read weights", WFI_STATE_READ, hash_one, &x));
    if (t->job)
        WF_TRY(wfi_control_broadcast(t->job, "hear the weights' hash", x.hex, sizeof x.hex));
    memcpy(hex_out, x.hex, sizeof x.hex);
    return WF_OK;
}

/* ---- single tensors ---- */

static wf_status find_saved(wf_trainer *t, const char *name, size_t dst_bytes, int32_t *value_out) {
    const wf_graph *g = wfi_trainer_graph(t);
    for (int32_t v = 0; v < g->n_values; v++) {
        if (!is_saved(wfi_value_at(g, v)) || strcmp(g->values[v].name, name)) continue;
        if (wfi_value_bytes(g, v) != dst_bytes)
            return wfi_fail(t->ctx, WF_SHAPE, "'%s' has %zu bytes, not %zu", name,
                            wfi_value_bytes(g, v), dst_bytes);
        *value_out = v;
        return WF_OK;
    }
    return wfi_fail(t->ctx, WF_INVALID_ARG, "the model has no parameter or buffer '%s'", name);
}

/* All processes read the same. */
static wf_status read_bytes(wf_trainer *t, int rank, const void *data, void *dst, size_t bytes) {
    WF_TRY(wfi_trainer_show(t, rank, data, bytes));
    memcpy(dst, data, bytes);
    WF_TRY(wfi_trainer_meet(t, "read a tensor"));
    wfi_trainer_forget(t);
    return WF_OK;
}

wf_status wf_trainer_read(wf_trainer *t, const char *name, void *dst, size_t dst_bytes) {
    int32_t v;
    WF_TRY(find_saved(t, name, dst_bytes, &v));
    const wf_program *p = t->ready[0]->program;
    int32_t stage = wfi_program_stage_of(p, wfi_value_at(p->graph, v)->unit);
    return read_bytes(t, wfi_program_rank_of(p, 0, stage), wfi_trainer_address(t, v), dst,
                      dst_bytes);
}

wf_status wf_trainer_read_gradient(wf_trainer *t, const char *name, void *dst, size_t dst_bytes) {
    int32_t v;
    const wfi_ready *last = t->ran_last;
    if (!t->keep_gradients || !last || last->kind != WF_PROGRAM_TRAIN)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "gradients are read right after a step, of a trainer with keep_gradients");
    WF_TRY(find_saved(t, name, dst_bytes, &v));
    const wf_program *p = last->program;
    const wfi_value *value = wfi_value_at(p->graph, v);
    for (int32_t b = 0; b < p->n_blocks && value->kind == WFI_VALUE_PARAM; b++) {
        const wfi_block *block = &p->blocks[b];
        if (block->kind != WFI_BLOCK_GRADIENT || block->id != value->unit || block->depth) continue;
        if (block->rank != wfi_program_rank_of(p, 0, wfi_program_stage_of(p, value->unit)))
            continue;
        return read_bytes(t, block->rank,
                          t->workers[block->rank].base + block->offset + value->offset, dst,
                          dst_bytes);
    }
    return wfi_fail(t->ctx, WF_INVALID_ARG, "'%s' is a buffer and has no gradient", name);
}
