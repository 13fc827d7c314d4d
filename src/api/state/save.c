/* Saving: each process writes the state of its ranks into one file, at once or in the background.
 * When all have written, rank 0's process renames the file. */
#include "api/state/state.h"

#include <stdio.h>

/* ---- saving ---- */

static wf_status declare(const wfi_state_call *x) {
    WF_TRY(wf_safetensors_writer_divide(x->writer, x->t->shard_bytes));
    for (int32_t i = 0; i < x->list.n_tensors; i++) {
        const wfi_state_tensor *tensor = &x->list.tensors[i];
        wf_dtype dtype = wfi_value_at(x->list.graph, tensor->value)->dtype;
        WF_TRY(wf_safetensors_writer_add_tensor(x->writer, tensor->name, dtype, &tensor->shape));
    }
    return WF_OK;
}

static wf_status create_file(wfi_state_call *x, wfi_state_opened *o) {
    int n_files;
    char sums[WFI_SUMS_BYTES];
    char steps[32], plateau[128];
    const wfi_plateau *p = &x->t->plateau;
    WF_TRY(wf_safetensors_writer_create(x->t->ctx, x->path, &x->writer));
    wfi_safetensors_writer_add_digests(x->writer, x->is_state);
    snprintf(steps, sizeof steps, "%lld", (long long)x->t->n_steps);
    if (x->is_state) WF_TRY(wf_safetensors_writer_add_metadata(x->writer, WFI_STEPS_KEY, steps));
    if (x->is_state)
        WF_TRY(wf_safetensors_writer_add_metadata(x->writer, WFI_SUMS_KEY,
                                                  wfi_state_sums(x->t, sums)));
    snprintf(plateau, sizeof plateau, "%lld %lld %lld %a", (long long)p->n_evaluated,
             (long long)p->n_cuts, (long long)p->n_bad, p->best);
    if (x->is_state && p->n_evaluated)
        WF_TRY(wf_safetensors_writer_add_metadata(x->writer, WFI_PLATEAU_KEY, plateau));
    for (int k = 0; k < x->n_metadata; k++)
        WF_TRY(wf_safetensors_writer_add_metadata(x->writer, x->metadata[k].key,
                                                  x->metadata[k].value));
    for (int k = 0; k < x->t->n_about; k++)
        WF_TRY(wf_safetensors_writer_add_metadata(x->writer, x->t->about[k].key,
                                                  x->t->about[k].value));
    WF_TRY(declare(x));
    WF_TRY(wfi_safetensors_writer_share(x->writer, &n_files));
    o->n_files = n_files;
    return WF_OK;
}

static wf_status join_file(wfi_state_call *x, int k, const wfi_state_opened *o) {
    int ignored;
    if (!k) {
        WF_TRY(wfi_safetensors_writer_join(x->t->ctx, x->path, &x->writer));
        WF_TRY(declare(x));
        WF_TRY(wfi_safetensors_writer_share(x->writer, &ignored));
    }
    return x->writer ? wfi_safetensors_writer_join_file(x->writer, k, o->path, o->data_start)
                     : WF_OK;
}

/* A process that does not see rank 0's files does not write. */
static wf_status create_files(wfi_state_call *x, wfi_state_opened *o) {
    if (wfi_trainer_is_root(x->t)) WF_TRY(create_file(x, o));
    for (int k = 0; !k || k < o->n_files; k++) {
        if (wfi_trainer_is_root(x->t)) wfi_state_describe(x, k, o);
        WF_TRY(wfi_state_tell(x, o));
        if (wfi_trainer_is_root(x->t) || join_file(x, k, o) == WF_OK) continue;
        wf_safetensors_writer_destroy(x->writer);
        x->writer = NULL;
    }
    return wfi_state_compare_files(x, o);
}

/* At once; or it is copied, to be written in the background. */
static wf_status save_part(wfi_state_call *x, const wfi_state_part *now) {
    int writer = wfi_state_served_by(x, now->pieces->rank),
        tensor = (int)(now->tensor - x->list.tensors);
    bool writes = x->t->workers[writer].is_local, is_later = writes && x->background;
    uint64_t n_all = (uint64_t)wf_shape_n_elem(&now->tensor->shape) *
                     wfi_state_element_bytes(&x->list, now->tensor);
    uint64_t n_after = n_all - now->offset - now->bytes;
    void *to = is_later
                   ? wfi_background_add(x->background, tensor, now->offset, now->bytes, n_after)
                   : x->buffer;
    if (!to) return WF_NO_MEMORY;
    WF_TRY(wfi_state_fetch(x, now, writer, to));
    if (is_later || (!writes && !wfi_trainer_is_root(x->t))) return WF_OK;
    if (writes) x->digests[tensor] ^= wfi_safetensors_digest_part(to, now->bytes, n_after);
    return wfi_safetensors_writer_write_part(x->writer, tensor, now->offset, writes ? to : NULL,
                                             now->bytes);
}

/* Whether a rank on another machine than this process's sees the file. */
static bool is_seen_elsewhere(const wfi_state_call *x) {
    bool is_seen = false;
    for (int r = 0; r < x->t->n_workers && x->t->job; r++)
        is_seen |= x->sees[r] && !wfi_control_is_local(x->t->job, r);
    return is_seen;
}

static wf_status commit(const wfi_state_call *x) {
    for (int32_t i = 0; i < x->list.n_tensors; i++)
        wfi_safetensors_writer_set_digest(x->writer, i, x->digests[i]);
    return wf_safetensors_writer_commit(x->writer);
}

/* Until the commit the old file is whole, and an earlier failure removes the new one. */
static wf_status complete(wfi_state_call *x) {
    if (x->background) WF_TRY(wfi_background_wait(x->background));
    WF_TRY(wfi_state_gather_digests(x));
    WF_TRY(wfi_trainer_barrier(x->t, "write its part of a file"));
    return wfi_trainer_is_root(x->t) ? commit(x) : WF_OK;
}

static wf_status save(wfi_state_call *x) {
    wf_trainer *t = x->t;
    wfi_state_opened o = {0};
    WF_TRY(wfi_state_create_digests(x));
    WF_TRY(create_files(x, &o));
    if (x->writer && is_seen_elsewhere(x)) WF_TRY(wfi_safetensors_writer_write_through(x->writer));
    WF_TRY(wfi_state_visit_all(x, save_part));
    if (!x->background) return complete(x);
    return wfi_background_start(x->background, x->writer, x->digests,
                                t->job ? wfi_control_n_writing(t->job) : NULL);
}

/* ---- in the background ---- */

/* A file that is being written, or waits to be put in its place. */
typedef struct wfi_save {
    wfi_state_call x;
    int64_t n_steps; /* steps of the state */
    struct wfi_save *next;
} wfi_save;

static wf_status begin_save(wf_trainer *t, const wfi_state_call *wanted, const char *what,
                            wfi_state_scope scope) {
    wfi_save *s = wfi_alloc(t->ctx, 1, sizeof *s, "a save in the background"), **last = &t->saves;
    size_t n_bytes = 0;
    if (!s) return WF_NO_MEMORY;
    s->x = *wanted;
    s->n_steps = t->n_steps;
    wf_status status = wfi_background_create(t->ctx, &s->x.background);
    if (status == WF_OK) status = wfi_state_perform(&s->x, what, scope, save);
    if (status != WF_OK) {
        wfi_state_release(&s->x);
        wfi_free(t->ctx, s);
        return status;
    }
    while (*last) last = &(*last)->next;
    *last = s;
    t->are_saves_written = false;
    for (const wfi_save *k = t->saves; k; k = k->next)
        n_bytes += wfi_background_bytes(k->x.background);
    if (n_bytes > t->save_bytes) t->save_bytes = n_bytes;
    return WF_OK;
}

static wfi_save *take_save(wf_trainer *t) {
    wfi_save *s = t->saves;
    if (s) t->saves = s->next;
    return s;
}

wf_status wf_trainer_save_wait(wf_trainer *t) {
    wf_status status = WF_OK;
    for (wfi_save *s; status == WF_OK && (s = take_save(t));) {
        status = wfi_state_finish(t, "put a file in its place", complete(&s->x));
        wfi_state_release(&s->x);
        wfi_free(t->ctx, s);
    }
    return status;
}

wf_status wfi_trainer_poll_saves(wf_trainer *t) {
    bool are_written = t->are_saves_written;
    if (!t->job) are_written = true;
    for (const wfi_save *s = t->saves; s && !t->job; s = s->next)
        are_written &= wfi_background_is_done(s->x.background);
    return t->saves && are_written ? wf_trainer_save_wait(t) : WF_OK;
}

void wfi_trainer_abandon_saves(wf_trainer *t) {
    for (wfi_save *s; (s = take_save(t));) {
        wfi_state_release(&s->x);
        wfi_free(t->ctx, s);
    }
}

/* Known to all ranks of a job alike. */
static wf_status check_spoiled(const wf_trainer *t, const char *path) {
    if (!t->is_spoiled) return WF_OK;
    return wfi_fail(t->ctx, WF_NOT_FINITE,
                    "%s is not written: a step has left numbers that are not finite, or loading a "
                    "file was interrupted; load a state to replace them",
                    path);
}

/* Files of one step are written beside each other; those of another wait for them. */
static wf_status save_as(wf_trainer *t, wfi_state_call *x, const char *what,
                         wfi_state_scope scope) {
    WF_TRY(check_spoiled(t, x->path));
    if (t->saves && t->saves->n_steps != t->n_steps) WF_TRY(wf_trainer_save_wait(t));
    return t->save_async ? begin_save(t, x, what, scope) : wfi_state_perform(x, what, scope, save);
}

wf_status wf_trainer_describe(wf_trainer *t, const wf_metadata *metadata, int n_metadata) {
    wfi_pool pool = {.ctx = t->ctx};
    wf_metadata *about = wfi_pool_alloc(&pool, (size_t)n_metadata + 1, sizeof *about);
    bool ok = about != NULL;
    for (int k = 0; k < n_metadata && ok; k++) {
        about[k].key = wfi_pool_format(&pool, "%s", metadata[k].key);
        about[k].value = wfi_pool_format(&pool, "%s", metadata[k].value);
        ok = about[k].key && about[k].value;
    }
    if (!ok) {
        wfi_pool_release(&pool);
        return WF_NO_MEMORY;
    }
    wfi_pool_release(&t->about_pool);
    t->about_pool = pool;
    t->about = about;
    t->n_about = n_metadata;
    return WF_OK;
}

wf_status wf_trainer_save(wf_trainer *t, const char *path) {
    /* transformers and other libraries expect this entry. */
    const wf_metadata metadata = {"format", "pt"};
    wfi_state_call x = {.t = t, .path = path, .metadata = &metadata, .n_metadata = 1};
    return save_as(t, &x, "save weights", WFI_STATE_WEIGHTS);
}

wf_status wf_trainer_save_state(wf_trainer *t, const char *path, const wf_metadata *metadata,
                                int n_metadata) {
    WF_TRY(wfi_trainer_check_average(t, "save the state"));
    wfi_state_call x = {
        .t = t, .path = path, .is_state = true, .metadata = metadata, .n_metadata = n_metadata};
    return save_as(t, &x, "save its state", WFI_STATE_ALL);
}
