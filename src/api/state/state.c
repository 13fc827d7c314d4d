/* State in and out: every call is a loop over the pieces of the program's state (state/pieces.h).
 *
 * Each process initialises, writes and reads the state of its own ranks. Bytes go from process to
 * process only where they are asked for (one tensor, the hash of all), or where a process does not
 * see the file that rank 0's has opened, because it is on another machine: then rank 0's process
 * writes and reads for it. No more than a chunk of state is on its way at a time. The streams are
 * idle meanwhile.
 */
#include "api/state/state.h"

#include "base/finite.h"
#include "base/names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- one call ---- */

/* Whether processes see no more of each other's memory than they are sent. */
static bool is_by_messages(const wf_trainer *t) {
    return t->job && wfi_control_transport(t->job);
}

wf_status wfi_state_finish(const wf_trainer *t, const char *what, wf_status status) {
    char after[WFI_CONTROL_DOING];
    if (t->job && status != WF_OK)
        wfi_failure_set(wfi_control_failure(t->job), status, wf_context_error(t->ctx));
    if (!t->job || status != WF_OK) return status;
    snprintf(after, sizeof after, "continue after '%s'", what);
    return wfi_control_barrier(t->job, after);
}

void wfi_state_release(wfi_state_call *x) {
    wfi_background_destroy(x->background);
    wf_safetensors_writer_destroy(x->writer);
    wf_safetensors_close(x->file);
    wfi_state_list_release(&x->list);
    wfi_pool_release(&x->pool);
    *x = (wfi_state_call){.t = x->t};
}

wf_status wfi_state_perform(wfi_state_call *x, const char *what, wfi_state_scope scope,
                            wf_status (*act)(wfi_state_call *x)) {
    const wf_trainer *t = x->t;
    const wfi_ready *r = scope == WFI_STATE_GRADIENTS ? t->ran_last : t->ready[0];
    WF_TRY(wfi_trainer_barrier(t, what));
    wfi_pool_init(&x->pool, t->ctx);
    x->buffer = wfi_pool_array(&x->pool, WFI_STATE_CHUNK_BYTES, 1, "a part of the state");
    x->sees = wfi_pool_alloc(&x->pool, (size_t)t->n_workers, sizeof *x->sees);
    wf_status status = wfi_state_list_create(r->program, scope, &x->list);
    if (status == WF_OK) status = wfi_pool_status(&x->pool);
    for (int k = 0; k < t->n_workers && status == WF_OK; k++) x->sees[k] = true;
    if (status == WF_OK) status = act(x);
    if (status != WF_OK || !x->background) wfi_state_release(x);
    return wfi_state_finish(t, what, status);
}

/* Elements from `first` to `end` of a tensor's part: `offset` bytes into the tensor. */
static wf_status visit_run(wfi_state_call *x, wfi_state_visit_fn visit,
                           const wfi_state_tensor *tensor, int32_t number, int64_t first,
                           int64_t end, size_t offset) {
    size_t size = wfi_state_element_bytes(&x->list, tensor);
    int64_t most = (int64_t)(WFI_STATE_CHUNK_BYTES / size);
    wfi_state_part now = {.tensor = tensor, .offset = offset};
    for (; first < end; first += (int64_t)(now.bytes / size)) {
        if (!now.pieces || first == now.pieces->first + now.pieces->n) {
            now.pieces = wfi_state_piece_of(tensor, number, first);
            now.n_equal = wfi_state_n_equal(tensor, now.pieces);
        }
        int64_t n = wfi_min_i64(end, now.pieces->first + now.pieces->n) - first;
        now.at = (size_t)(first - now.pieces->first) * size;
        now.bytes = (size_t)wfi_min_i64(n, most) * size;
        WF_TRY(visit(x, &now));
        now.offset += now.bytes;
    }
    return WF_OK;
}

wf_status wfi_state_visit_tensor(wfi_state_call *x, wfi_state_visit_fn visit,
                                 const wfi_state_tensor *tensor) {
    const int64_t *begin = tensor->run_begin;
    int64_t n_elem = wf_shape_n_elem(&tensor->shape), period = begin[tensor->n_parts];
    size_t size = wfi_state_element_bytes(&x->list, tensor);
    for (int64_t at = 0; at < n_elem; at += period)
        for (int32_t k = 0; k < tensor->n_parts; k++) {
            int64_t n = begin[k + 1] - begin[k], first = at / period * n;
            WF_TRY(
                visit_run(x, visit, tensor, k, first, first + n, (size_t)(at + begin[k]) * size));
        }
    return WF_OK;
}

wf_status wfi_state_visit_all(wfi_state_call *x, wfi_state_visit_fn visit) {
    for (int32_t i = 0; i < x->list.n_tensors; i++)
        WF_TRY(wfi_state_visit_tensor(x, visit, &x->list.tensors[i]));
    return WF_OK;
}

/* ---- between memories ---- */

static wf_status put(const wf_trainer *t, const wfi_state_piece *piece, size_t at, const void *src,
                     size_t bytes) {
    char *base = t->workers[piece->rank].arenas[piece->space].base;
    return wfi_memory_copy(t->workers[piece->rank].copier, NULL, base + piece->at + at,
                           piece->space, src, WFI_SPACE_HOST, bytes);
}

/* Fetches bytes of a rank through its host copy, since only its own process sees its memory. That
 * process has the bytes at `dst`; the others map the host copy as the rank's arena. */
static wf_status fetch_host_copy(const wf_trainer *t, const wfi_worker *w, size_t at, size_t bytes,
                                 bool wants, void *dst) {
    if (w->is_local) memcpy(w->host_copy + at, dst, bytes);
    WF_TRY(wfi_control_barrier(t->job, "show a part of the state"));
    if (!w->is_local && wants) memcpy(dst, w->arenas[WFI_SPACE_DEVICE].base + at, bytes);
    return wfi_control_barrier(t->job, "see it");
}

wf_status wfi_trainer_fetch(const wf_trainer *t, int rank, wfi_space space, size_t at, size_t bytes,
                            int to, void *dst) {
    const wfi_worker *w = &t->workers[rank];
    bool wants = !t->job || to < 0 || wf_job_rank(t->job) == to;
    const char *from = w->arenas[space].base + at;
    wfi_space seen = w->is_local || space == WFI_SPACE_DISK ? space : WFI_SPACE_HOST;
    bool has_host_copy = w->has_host_copy && space == WFI_SPACE_DEVICE && !is_by_messages(t);
    if (w->is_local || (wants && !is_by_messages(t) && !has_host_copy))
        WF_TRY(wfi_memory_copy(w->copier, NULL, dst, WFI_SPACE_HOST, from, seen, bytes));
    if (has_host_copy) return fetch_host_copy(t, w, at, bytes, wants, dst);
    if (!is_by_messages(t)) return WF_OK;
    for (int r = 0; r < t->n_workers; r++)
        if (to < 0 || to == r) WF_TRY(wfi_control_move(t->job, rank, r, dst, dst, bytes));
    return wfi_control_moved(t->job);
}

wf_status wfi_state_fetch(const wfi_state_call *x, const wfi_state_part *now, int to, void *dst) {
    return wfi_trainer_fetch(x->t, now->pieces->rank, now->pieces->space, now->pieces->at + now->at,
                             now->bytes, to, dst);
}

int wfi_state_served_by(const wfi_state_call *x, int rank) {
    return x->sees[rank] ? rank : 0;
}

bool wfi_state_serves(const wfi_state_call *x, const wfi_state_part *now) {
    bool is_here = false;
    for (int32_t k = 0; k < now->n_equal; k++)
        is_here |= x->t->workers[wfi_state_served_by(x, now->pieces[k].rank)].is_local;
    return is_here;
}

wf_status wfi_state_put(const wfi_state_call *x, const wfi_state_part *now) {
    const wf_trainer *t = x->t;
    for (int32_t k = 0; k < now->n_equal; k++) {
        int rank = now->pieces[k].rank, from = wfi_state_served_by(x, rank);
        if (is_by_messages(t)) {
            WF_TRY(wfi_control_move(t->job, from, rank, x->buffer, x->buffer, now->bytes));
            WF_TRY(wfi_control_moved(t->job));
            from = rank;
        }
        if (t->workers[from].is_local)
            WF_TRY(put(t, &now->pieces[k], now->at, x->buffer, now->bytes));
    }
    return WF_OK;
}

/* ---- initial state ---- */

static wf_status draw_part(wfi_state_call *x, const wfi_state_part *now) {
    int64_t size = (int64_t)wfi_state_element_bytes(&x->list, now->tensor);
    if (wfi_state_serves(x, now))
        wfi_state_draw(&x->list, now->tensor, x->t->recipe.seed, (int64_t)now->offset / size,
                       (int64_t)now->bytes / size, x->buffer);
    return wfi_state_put(x, now);
}

/* Gaps between tensors and the optimizer's state are zero. */
static wf_status initialise(wfi_state_call *x) {
    const wf_program *p = x->t->ready[0]->program;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        const wfi_worker *w = &x->t->workers[block->rank];
        if (block->is_state && w->is_local)
            WF_TRY(wfi_memory_fill(w->device, NULL, w->arenas[block->space].base + block->offset,
                                   block->space, 0, block->bytes));
    }
    return x->t->is_spoiled ? WF_OK : wfi_state_visit_all(x, draw_part); /* or a load follows */
}

wf_status wfi_trainer_initialise(wf_trainer *t) {
    return wfi_state_perform(&(wfi_state_call){.t = t}, "initialise", WFI_STATE_WEIGHTS,
                             initialise);
}

/* ---- the hash of all weights ---- */

static wf_status hash_part(wfi_state_call *x, const wfi_state_part *now) {
    WF_TRY(wfi_state_fetch(x, now, 0, x->buffer));
    crypto_hash_sha256_update(&x->hash, (const unsigned char *)x->buffer, now->bytes);
    return WF_OK;
}

/* Hashes the state in rank 0's process; the hashes of the others are not used. */
static wf_status hash(wfi_state_call *x) {
    crypto_hash_sha256_init(&x->hash);
    for (int32_t i = 0; i < x->list.n_tensors; i++) {
        const wfi_state_tensor *tensor = &x->list.tensors[i];
        crypto_hash_sha256_update(&x->hash, (const unsigned char *)tensor->name,
                                  strlen(tensor->name) + 1);
        WF_TRY(wfi_state_visit_tensor(x, hash_part, tensor));
    }
    crypto_hash_sha256_final(&x->hash, (unsigned char *)x->dst);
    return WF_OK;
}

wf_status wf_trainer_weights_sha256(wf_trainer *t, char hex_out[65]) {
    unsigned char digest[crypto_hash_sha256_BYTES];
    wfi_state_call x = {.t = t, .dst = (char *)digest};
    WF_TRY(wfi_state_perform(&x, "read weights", WFI_STATE_WEIGHTS, hash));
    if (t->job)
        WF_TRY(wfi_control_broadcast(t->job, "receive the weights' hash", digest, sizeof digest));
    sodium_bin2hex(hex_out, 65, digest, sizeof digest);
    return WF_OK;
}

/* ---- single tensors ---- */

int wf_trainer_tensor_get(const wf_trainer *t, int i, wf_trainer_tensor *tensor_out) {
    const wf_graph *g = wfi_trainer_graph(t);
    int32_t n_before = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (!wfi_value_is_state(value) || n_before++ != i) continue;
        *tensor_out = (wf_trainer_tensor){value->name, value->dtype, value->shape};
        return 1;
    }
    return 0;
}

static wf_status check_tensor(const wf_trainer *t, const char *name, size_t dst_bytes,
                              const wfi_value **value_out) {
    const wf_graph *g = wfi_trainer_graph(t);
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (!wfi_value_is_state(value) || strcmp(value->name, name)) continue;
        if (wfi_value_bytes(g, v) != dst_bytes)
            return wfi_fail(t->ctx, WF_SHAPE, "'%s' has %zu bytes, not %zu", name,
                            wfi_value_bytes(g, v), dst_bytes);
        *value_out = value;
        return WF_OK;
    }
    return wfi_fail(t->ctx, WF_INVALID_ARG, "the model has no parameter or buffer '%s'", name);
}

static wf_status read_part(wfi_state_call *x, const wfi_state_part *now) {
    return wfi_state_fetch(x, now, -1, x->dst + now->offset);
}

static wf_status read_one(wfi_state_call *x) {
    return wfi_state_visit_tensor(x, read_part, wfi_state_find(&x->list, x->name));
}

wf_status wf_trainer_read(wf_trainer *t, const char *name, void *dst, size_t dst_bytes) {
    const wfi_value *ignored;
    WF_TRY(check_tensor(t, name, dst_bytes, &ignored));
    return wfi_state_perform(&(wfi_state_call){.t = t, .name = name, .dst = dst}, "read a tensor",
                             WFI_STATE_WEIGHTS, read_one);
}

wf_status wf_trainer_read_gradient(wf_trainer *t, const char *name, void *dst, size_t dst_bytes) {
    const wfi_value *value;
    if (!t->ran_last || !wfi_differentiates(t->ran_last->program) ||
        !wfi_keeps_gradients(t->ran_last->program))
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "gradients are read right after wf_trainer_gradients, or after a step of a "
                        "trainer with keep_gradients");
    WF_TRY(check_tensor(t, name, dst_bytes, &value));
    if (value->kind == WFI_VALUE_BUFFER)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "'%s' is a buffer and has no gradient", name);
    if (value->is_frozen)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "'%s' is frozen and has no gradient", name);
    return wfi_state_perform(&(wfi_state_call){.t = t, .name = name, .dst = dst}, "read a gradient",
                             WFI_STATE_GRADIENTS, read_one);
}

static wf_status write_part(wfi_state_call *x, const wfi_state_part *now) {
    memcpy(x->buffer, x->src + now->offset, now->bytes);
    return wfi_state_put(x, now);
}

static wf_status write_one(wfi_state_call *x) {
    const wfi_state_tensor *tensor = wfi_state_find(&x->list, x->name);
    size_t n = wfi_trainer_graph(x->t)->values[tensor->value].dtype == WF_F32
                   ? (size_t)wf_shape_n_elem(&tensor->shape)
                   : 0;
    size_t bad = wfi_find_not_finite((const float *)(const void *)x->src, n);
    if (bad < n)
        return wfi_fail(x->t->ctx, WF_NOT_FINITE, "write '%s': element %zu is %s", x->name, bad,
                        isnan(((const float *)(const void *)x->src)[bad]) ? "nan" : "infinite");
    return wfi_state_visit_tensor(x, write_part, tensor);
}

wf_status wf_trainer_write(wf_trainer *t, const char *name, const void *src, size_t src_bytes) {
    const wfi_value *value;
    WF_TRY(wfi_trainer_check_average(t, "write a tensor"));
    WF_TRY(check_tensor(t, name, src_bytes, &value));
    return wfi_state_perform(&(wfi_state_call){.t = t, .name = name, .src = src}, "write a tensor",
                             WFI_STATE_WEIGHTS, write_one);
}

/* ---- from trainer to trainer ---- */

static bool is_copied(const wfi_value *value, const char *names) {
    return wfi_value_is_state(value) && (!names || wfi_names_has(names, value->name));
}

static const wfi_value *find_state(const wf_graph *g, const char *name) {
    for (int32_t v = 0; v < g->n_values; v++)
        if (wfi_value_is_state(&g->values[v]) && !strcmp(g->values[v].name, name))
            return &g->values[v];
    return NULL;
}

static wf_status check_words(const wf_trainer *to, const char *names) {
    const wf_graph *g = wfi_trainer_graph(to);
    for (wfi_word word = {0}; wfi_names_next(names, &word);) {
        bool is_used = false;
        for (int32_t v = 0; v < g->n_values; v++)
            is_used |= wfi_value_is_state(&g->values[v]) && wfi_word_names(word, g->values[v].name);
        if (!is_used)
            return wfi_fail(to->ctx, WF_INVALID_ARG,
                            "copy weights: nothing in the target model '%s' is called '%.*s', or "
                            "begins with it and a dot",
                            wf_model_name(to->model), (int)word.n, word.start);
    }
    return WF_OK;
}

/* Nothing is moved that does not fit, so the job need not end. */
static wf_status check_copy(const wf_trainer *to, const wf_trainer *from, const char *names) {
    const wf_graph *g = wfi_trainer_graph(to);
    char wanted[WFI_SHAPE_TEXT], given[WFI_SHAPE_TEXT];
    if (to->ctx != from->ctx || to->job != from->job)
        return wfi_fail(to->ctx, WF_INVALID_ARG,
                        "copy weights: the two trainers are not of one context and one job");
    WF_TRY(wfi_trainer_check_average(to, "copy weights"));
    WF_TRY(check_words(to, names));
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *want = &g->values[v], *have;
        if (!is_copied(want, names)) continue;
        have = find_state(wfi_trainer_graph(from), want->name);
        if (!have)
            return wfi_fail(to->ctx, WF_INVALID_ARG,
                            "copy weights: the source model '%s' has no '%s'",
                            wf_model_name(from->model), want->name);
        if (have->dtype != want->dtype || !wfi_shape_equal(&have->shape, &want->shape))
            return wfi_fail(to->ctx, WF_SHAPE,
                            "copy weights: '%s' is %s %s, and is to become %s %s", want->name,
                            wf_dtype_name(have->dtype), wfi_shape_text(&have->shape, given),
                            wf_dtype_name(want->dtype), wfi_shape_text(&want->shape, wanted));
    }
    return WF_OK;
}

static wf_status put_part(wfi_state_call *x, const wfi_state_part *now) {
    if (!wfi_state_serves(x, now)) return wfi_state_put(x, now);
    memcpy(x->buffer, x->from->dst + now->offset, now->bytes);
    return wfi_state_put(x, now);
}

/* Plans cut a tensor in different ways, so each process has one of them whole at a time. */
static wf_status copy_tensor(wfi_state_call *to, const char *name) {
    wfi_state_call *from = to->from;
    const wfi_state_tensor *tensor = wfi_state_find(&to->list, name);
    size_t n_elem = (size_t)wf_shape_n_elem(&tensor->shape);
    from->dst = wfi_alloc(to->t->ctx, n_elem, wfi_state_element_bytes(&to->list, tensor), name);
    if (!from->dst) return WF_NO_MEMORY;
    wf_status status = wfi_state_visit_tensor(from, read_part, wfi_state_find(&from->list, name));
    if (status == WF_OK) status = wfi_state_visit_tensor(to, put_part, tensor);
    wfi_free(to->t->ctx, from->dst);
    return status;
}

static wf_status copy_in(wfi_state_call *to) {
    const wf_graph *g = wfi_trainer_graph(to->t);
    to->t->is_spoiled |= to->from->t->is_spoiled;
    for (int32_t v = 0; v < g->n_values; v++)
        if (is_copied(&g->values[v], to->name)) WF_TRY(copy_tensor(to, g->values[v].name));
    return WF_OK;
}

static wf_status copy_out(wfi_state_call *from) {
    return wfi_state_perform(&(wfi_state_call){.t = from->to, .from = from, .name = from->name},
                             "take weights", WFI_STATE_WEIGHTS, copy_in);
}

wf_status wf_trainer_copy_weights(wf_trainer *to, wf_trainer *from, const char *names) {
    WF_TRY(check_copy(to, from, names));
    if (to == from) return WF_OK;
    return wfi_state_perform(&(wfi_state_call){.t = from, .to = to, .name = names}, "give weights",
                             WFI_STATE_WEIGHTS, copy_out);
}
