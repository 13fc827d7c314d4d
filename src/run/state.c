/* State in and out: every call is a loop over the pieces of the program's state (state/pieces.h).
 *
 * Each process initialises, writes and reads what its own ranks hold. Bytes go from process to
 * process only where they are asked for (one tensor, the hash of all), or where a process does not
 * see the file that rank 0's has opened, because it is on another machine: then rank 0's process
 * writes and reads for it. No more than a chunk of state is on its way at a time. The streams are
 * idle meanwhile.
 */
#include "base/finite.h"
#include "run/background.h"
#include "run/trainer.h"
#include "state/header.h"
#include "state/match.h"
#include "state/pieces.h"

#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND_MOMENT "optimizer.second_moment."
#define MAX_STEPS     (INT64_C(1) << 53) /* no run comes near, and counting on cannot overflow */
#define CHUNK_BYTES   ((size_t)1 << 20)

/* ---- one call ---- */

/* Some bytes of pieces that hold the same. */
typedef struct part {
    const wfi_state_tensor *tensor;
    const wfi_state_piece *pieces; /* [n_equal] */
    int32_t n_equal;
    size_t at, bytes; /* in each piece */
    size_t offset;    /* in the tensor */
} part;

typedef struct transfer {
    wf_trainer *t, *to; /* `to`: of a copy from trainer to trainer */
    wfi_state_list list;
    char *buffer; /* [CHUNK_BYTES] */
    char *dst;    /* of a tensor that is read */
    const char *name;
    crypto_hash_sha256_state hash;
    /* of a file */
    const char *path;
    const wf_metadata *metadata;
    int n_metadata;
    wf_safetensors_writer *writer;
    wf_safetensors *file;
    bool *sees;    /* [n_workers] whether the rank's process has opened rank 0's file */
    int *index;    /* [n_tensors] of the file's tensors; -1: it is missing, and may be */
    bool is_state; /* not weights alone */
    bool moves;    /* what is read is not only looked at */
    /* [n_tensors] of what this process has written or looked at, and then of all. */
    uint32_t *digests;
    wfi_background *background; /* NULL: it is written at once */
    wf_status refused; /* the first number that no step can have left; the sentence is there */
} transfer;

typedef wf_status (*visit_fn)(transfer *x, const part *part);

static bool is_root(const wf_trainer *t) {
    return !t->job || wf_job_rank(t->job) == 0;
}

/* Whether processes see no more of each other's memory than they are sent. */
static bool is_by_messages(const wf_trainer *t) {
    return t->job && wfi_control_transport(t->job);
}

/* What fails in one process fails in all. */
static wf_status finish(const wf_trainer *t, const char *what, wf_status status) {
    char after[WFI_CONTROL_DOING];
    if (t->job && status != WF_OK)
        wfi_failure_set(wfi_control_failure(t->job), status, wf_context_error(t->ctx));
    if (!t->job || status != WF_OK) return status;
    snprintf(after, sizeof after, "go on after '%s'", what);
    return wfi_control_barrier(t->job, after);
}

static void release(transfer *x) {
    wf_context *ctx = x->t->ctx;
    wfi_background_destroy(x->background);
    wf_safetensors_writer_destroy(x->writer);
    wf_safetensors_close(x->file);
    wfi_state_list_release(&x->list);
    wfi_free(ctx, x->index);
    wfi_free(ctx, x->digests);
    wfi_free(ctx, x->sees);
    wfi_free(ctx, x->buffer);
    *x = (transfer){.t = x->t};
}

/* All processes of the job come to do it, and leave when all have done it. */
static wf_status perform(transfer *x, const char *what, wfi_state_scope scope,
                         wf_status (*act)(transfer *x)) {
    const wf_trainer *t = x->t;
    const wfi_ready *r = scope == WFI_STATE_GRADIENTS ? t->ran_last : t->ready[0];
    WF_TRY(wfi_trainer_barrier(t, what));
    x->buffer = wfi_alloc(t->ctx, CHUNK_BYTES, 1, "a part of the state");
    x->sees = wfi_alloc(t->ctx, (size_t)t->n_workers, sizeof *x->sees, "ranks");
    wf_status status = wfi_state_list_create(r->program, scope, &x->list);
    if (!x->buffer || !x->sees) status = WF_NO_MEMORY;
    for (int k = 0; k < t->n_workers && status == WF_OK; k++) x->sees[k] = true;
    if (status == WF_OK) status = act(x);
    if (status != WF_OK || !x->background) release(x);
    return finish(t, what, status);
}

static wf_status visit_piece(transfer *x, visit_fn visit, part *now) {
    size_t size = wfi_state_element_bytes(&x->list, now->tensor);
    size_t n_bytes = (size_t)now->pieces->n * size;
    for (now->at = 0; now->at < n_bytes; now->at += now->bytes) {
        now->bytes = n_bytes - now->at < CHUNK_BYTES ? n_bytes - now->at : CHUNK_BYTES;
        now->offset = (size_t)now->pieces->first * size + now->at;
        WF_TRY(visit(x, now));
    }
    return WF_OK;
}

static wf_status visit_tensor(transfer *x, visit_fn visit, const wfi_state_tensor *tensor) {
    part now = {.tensor = tensor};
    for (int32_t k = 0; k < tensor->n_pieces; k += now.n_equal) {
        now.pieces = &tensor->pieces[k];
        now.n_equal = wfi_state_n_equal(tensor, now.pieces);
        WF_TRY(visit_piece(x, visit, &now));
    }
    return WF_OK;
}

static wf_status visit_all(transfer *x, visit_fn visit) {
    for (int32_t i = 0; i < x->list.n_tensors; i++)
        WF_TRY(visit_tensor(x, visit, &x->list.tensors[i]));
    return WF_OK;
}

/* ---- between memories ---- */

static wf_status put(const wf_trainer *t, const wfi_state_piece *piece, size_t at, const void *src,
                     size_t bytes) {
    char *base = t->workers[piece->rank].arenas[piece->space].base;
    return wfi_memory_copy(t->workers[piece->rank].copier, NULL, base + piece->at + at,
                           piece->space, src, WFI_SPACE_HOST, bytes);
}

wf_status wfi_trainer_fetch(const wf_trainer *t, int rank, wfi_space space, size_t at, size_t bytes,
                            int to, void *dst) {
    const wfi_worker *w = &t->workers[rank];
    bool wants = !t->job || to < 0 || wf_job_rank(t->job) == to;
    if (w->is_local || (wants && !is_by_messages(t)))
        WF_TRY(wfi_memory_copy(w->copier, NULL, dst, WFI_SPACE_HOST, w->arenas[space].base + at,
                               space, bytes));
    if (!is_by_messages(t)) return WF_OK;
    for (int r = 0; r < t->n_workers; r++)
        if (to < 0 || to == r) WF_TRY(wfi_control_move(t->job, rank, r, dst, dst, bytes));
    return wfi_control_moved(t->job);
}

static wf_status fetch_part(const transfer *x, const part *now, int to, void *dst) {
    return wfi_trainer_fetch(x->t, now->pieces->rank, now->pieces->space, now->pieces->at + now->at,
                             now->bytes, to, dst);
}

/* Whose process has to do with a file for that rank. */
static int served_by(const transfer *x, int rank) {
    return x->sees[rank] ? rank : 0;
}

/* Whether this process has to fill the buffer for somebody. */
static bool serves(const transfer *x, const part *now) {
    bool is_here = false;
    for (int32_t k = 0; k < now->n_equal; k++)
        is_here |= x->t->workers[served_by(x, now->pieces[k].rank)].is_local;
    return is_here;
}

/* From the buffers of the processes that serve to all ranks that hold the part. */
static wf_status put_part(const transfer *x, const part *now) {
    const wf_trainer *t = x->t;
    for (int32_t k = 0; k < now->n_equal; k++) {
        int rank = now->pieces[k].rank, from = served_by(x, rank);
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

/* ---- what a run begins with ---- */

static wf_status draw_part(transfer *x, const part *now) {
    int64_t size = (int64_t)wfi_state_element_bytes(&x->list, now->tensor);
    if (serves(x, now))
        wfi_state_draw(&x->list, now->tensor, x->t->recipe.seed, (int64_t)now->offset / size,
                       (int64_t)now->bytes / size, x->buffer);
    return put_part(x, now);
}

/* Gaps between tensors and the optimizer's state are zero. */
static wf_status initialise(transfer *x) {
    const wf_program *p = x->t->ready[0]->program;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        const wfi_worker *w = &x->t->workers[block->rank];
        if (block->is_state && w->is_local)
            WF_TRY(wfi_memory_fill(w->device, NULL, w->arenas[block->space].base + block->offset,
                                   block->space, 0, block->bytes));
    }
    return visit_all(x, draw_part);
}

wf_status wfi_trainer_initialise(wf_trainer *t) {
    return perform(&(transfer){.t = t}, "initialise", WFI_STATE_WEIGHTS, initialise);
}

static wf_status copy_part(transfer *x, const part *now) {
    WF_TRY(fetch_part(x, now, 0, x->buffer));
    return put(x->to, now->pieces, now->at, x->buffer, now->bytes);
}

static wf_status copy(transfer *x) {
    return visit_all(x, copy_part);
}

wf_status wfi_trainer_copy_weights(wf_trainer *from, wf_trainer *to) {
    return perform(&(transfer){.t = from, .to = to}, "copy weights", WFI_STATE_WEIGHTS, copy);
}

/* ---- which processes have the same file ---- */

/* What rank 0's process tells of a file that it has opened. */
typedef struct opened {
    int64_t identity[4]; /* of all */
    int64_t n_steps, n_files;
    uint64_t data_start;
    char path[WFI_CONTROL_TOLD - 7 * sizeof(int64_t)]; /* empty: nobody else can open it */
} opened;

static int descriptor(const transfer *x, int k, uint64_t *data_start_out) {
    return x->writer ? wfi_safetensors_writer_descriptor(x->writer, k, data_start_out)
                     : wfi_safetensors_descriptor(x->file, k);
}

/* No two files of two machines have this in common, nor have their shards. */
static void identify(const transfer *x, int64_t n_files, int64_t identity_out[4]) {
    uint64_t all[4] = {0};
    for (int k = 0; k < n_files; k++) {
        struct stat st = {0};
        (void)fstat(descriptor(x, k, NULL), &st);
        const uint64_t of[4] = {
            (uint64_t)st.st_ino, (uint64_t)st.st_size,
            (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec,
            (uint64_t)st.st_ctim.tv_sec * 1000000000 + (uint64_t)st.st_ctim.tv_nsec};
        for (int i = 0; i < 4; i++) all[i] = all[i] * UINT64_C(0x100000001B3) ^ of[i];
    }
    memcpy(identity_out, all, sizeof all);
}

/* By rank 0's process. Others may be in other folders, and this one may have been moved: hence the
 * name that the system knows. */
static void describe(const transfer *x, int k, opened *o) {
    char own[40];
    identify(x, o->n_files, o->identity);
    snprintf(own, sizeof own, "/proc/self/fd/%d", descriptor(x, k, &o->data_start));
    ssize_t n = readlink(own, o->path, sizeof o->path);
    o->path[n < 0 || (size_t)n == sizeof o->path ? 0 : n] = 0;
}

static wf_status tell(const transfer *x, opened *o) {
    return x->t->job ? wfi_control_broadcast(x->t->job, "open rank 0's file", o, sizeof *o) : WF_OK;
}

/* Fills x->sees. */
static wf_status compare_files(const transfer *x, const opened *o) {
    const wf_trainer *t = x->t;
    const wfi_control_numbers *all;
    wfi_control_numbers own = {0};
    if (!t->job) return WF_OK;
    if (x->writer || x->file) {
        identify(x, o->n_files, own);
        own[0] = !memcmp(own, o->identity, sizeof o->identity);
    }
    WF_TRY(wfi_control_all_gather(t->job, "compare files", own, &all));
    for (int r = 0; r < t->n_workers; r++) x->sees[r] = all[r][0];
    return WF_OK;
}

/* ---- digests of tensors ---- */

#define DIGESTS_TOLD (sizeof(wfi_control_numbers) / (sizeof(uint32_t)))

static wf_status create_digests(transfer *x) {
    x->digests = wfi_alloc(x->t->ctx, (size_t)x->list.n_tensors + DIGESTS_TOLD, sizeof *x->digests,
                           "digests");
    return x->digests ? WF_OK : WF_NO_MEMORY;
}

/* From those of each process's parts to those of all parts. */
static wf_status gather_digests(transfer *x) {
    const wfi_control_numbers *all;
    wfi_control_numbers own;
    for (int32_t i = 0; i < x->list.n_tensors && x->t->job; i += (int32_t)DIGESTS_TOLD) {
        uint32_t sum[DIGESTS_TOLD] = {0}, of[DIGESTS_TOLD];
        memcpy(own, x->digests + i, sizeof own);
        WF_TRY(wfi_control_all_gather(x->t->job, "compare digests", own, &all));
        for (int r = 0; r < x->t->n_workers; r++) {
            memcpy(of, all[r], sizeof of);
            for (size_t k = 0; k < DIGESTS_TOLD; k++) sum[k] ^= of[k];
        }
        memcpy(x->digests + i, sum, sizeof sum);
    }
    return WF_OK;
}

/* ---- saving ---- */

static wf_status declare(const transfer *x) {
    WF_TRY(wf_safetensors_writer_divide(x->writer, x->t->shard_bytes));
    for (int32_t i = 0; i < x->list.n_tensors; i++) {
        const wfi_value *value = wfi_value_at(x->list.graph, x->list.tensors[i].value);
        WF_TRY(wf_safetensors_writer_add_tensor(x->writer, x->list.tensors[i].name, value->dtype,
                                                &value->shape));
    }
    return WF_OK;
}

static wf_status create_file(transfer *x, opened *o) {
    int n_files;
    char steps[32];
    WF_TRY(wf_safetensors_writer_create(x->t->ctx, x->path, &x->writer));
    wfi_safetensors_writer_add_digests(x->writer);
    snprintf(steps, sizeof steps, "%lld", (long long)x->t->n_steps);
    if (x->is_state) WF_TRY(wf_safetensors_writer_add_metadata(x->writer, WFI_STEPS_KEY, steps));
    for (int k = 0; k < x->n_metadata; k++)
        WF_TRY(wf_safetensors_writer_add_metadata(x->writer, x->metadata[k].key,
                                                  x->metadata[k].value));
    WF_TRY(declare(x));
    WF_TRY(wfi_safetensors_writer_share(x->writer, &n_files));
    o->n_files = n_files;
    return WF_OK;
}

static wf_status join_file(transfer *x, int k, const opened *o) {
    int ignored;
    if (!k) {
        WF_TRY(wfi_safetensors_writer_join(x->t->ctx, x->path, &x->writer));
        WF_TRY(declare(x));
        WF_TRY(wfi_safetensors_writer_share(x->writer, &ignored));
    }
    return x->writer ? wfi_safetensors_writer_join_file(x->writer, k, o->path, o->data_start)
                     : WF_OK;
}

/* What does not see rank 0's files does not write. */
static wf_status create_files(transfer *x, opened *o) {
    if (is_root(x->t)) WF_TRY(create_file(x, o));
    for (int k = 0; !k || k < o->n_files; k++) {
        if (is_root(x->t)) describe(x, k, o);
        WF_TRY(tell(x, o));
        if (is_root(x->t) || join_file(x, k, o) == WF_OK) continue;
        wf_safetensors_writer_destroy(x->writer);
        x->writer = NULL;
    }
    return compare_files(x, o);
}

/* At once; or it is copied, to be written in the background. */
static wf_status save_part(transfer *x, const part *now) {
    int writer = served_by(x, now->pieces->rank), tensor = (int)(now->tensor - x->list.tensors);
    bool writes = x->t->workers[writer].is_local, is_later = writes && x->background;
    uint64_t n_after =
        wfi_value_bytes(x->list.graph, now->tensor->value) - now->offset - now->bytes;
    void *to = is_later
                   ? wfi_background_add(x->background, tensor, now->offset, now->bytes, n_after)
                   : x->buffer;
    if (!to) return WF_NO_MEMORY;
    WF_TRY(fetch_part(x, now, writer, to));
    if (is_later || (!writes && !is_root(x->t))) return WF_OK;
    if (writes) x->digests[tensor] ^= wfi_safetensors_digest_part(to, now->bytes, n_after);
    return wfi_safetensors_writer_write_part(x->writer, tensor, now->offset, writes ? to : NULL,
                                             now->bytes);
}

/* Whether a rank on another machine than this process's sees the file. */
static bool is_seen_elsewhere(const transfer *x) {
    bool is_seen = false;
    for (int r = 0; r < x->t->n_workers && x->t->job; r++)
        is_seen |= x->sees[r] && !wfi_control_is_local(x->t->job, r);
    return is_seen;
}

static wf_status commit(const transfer *x) {
    for (int32_t i = 0; i < x->list.n_tensors; i++)
        wfi_safetensors_writer_set_digest(x->writer, i, x->digests[i]);
    return wf_safetensors_writer_commit(x->writer);
}

/* Until the last step the old file is whole, and what fails before removes the new one. */
static wf_status complete(transfer *x) {
    if (x->background) WF_TRY(wfi_background_wait(x->background));
    WF_TRY(gather_digests(x));
    WF_TRY(wfi_trainer_barrier(x->t, "write its part of a file"));
    return is_root(x->t) ? commit(x) : WF_OK;
}

static wf_status save(transfer *x) {
    wf_trainer *t = x->t;
    opened o = {0};
    WF_TRY(create_digests(x));
    WF_TRY(create_files(x, &o));
    if (x->writer && is_seen_elsewhere(x)) WF_TRY(wfi_safetensors_writer_write_through(x->writer));
    WF_TRY(visit_all(x, save_part));
    if (!x->background) return complete(x);
    return wfi_background_start(x->background, x->writer, x->digests,
                                t->job ? wfi_control_n_writing(t->job) : NULL);
}

/* ---- in the background ---- */

/* A file that is being written, or waits to be put in its place. */
typedef struct wfi_save {
    transfer x;
    int64_t n_steps; /* what it is of */
    struct wfi_save *next;
} wfi_save;

static wf_status begin_save(wf_trainer *t, const transfer *wanted, const char *what,
                            wfi_state_scope scope) {
    wfi_save *s = wfi_alloc(t->ctx, 1, sizeof *s, "a save in the background"), **last = &t->saves;
    size_t n_bytes = 0;
    if (!s) return WF_NO_MEMORY;
    s->x = *wanted;
    s->n_steps = t->n_steps;
    wf_status status = wfi_background_create(t->ctx, &s->x.background);
    if (status == WF_OK) status = perform(&s->x, what, scope, save);
    if (status != WF_OK) {
        release(&s->x);
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
        status = finish(t, "put a file in its place", complete(&s->x));
        release(&s->x);
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
        release(&s->x);
        wfi_free(t->ctx, s);
    }
}

/* Known to all ranks of a job alike. */
static wf_status check_spoiled(const wf_trainer *t, const char *path) {
    if (!t->is_spoiled) return WF_OK;
    return wfi_fail(
        t->ctx, WF_NOT_FINITE,
        "%s is not written: a step has left numbers that are not finite, or a file broke "
        "off while it was loaded; a state that is loaded replaces them",
        path);
}

/* Files of one step are written beside each other; those of another wait for them. */
static wf_status save_as(wf_trainer *t, transfer *x, const char *what, wfi_state_scope scope) {
    WF_TRY(check_spoiled(t, x->path));
    if (t->saves && t->saves->n_steps != t->n_steps) WF_TRY(wf_trainer_save_wait(t));
    return t->save_async ? begin_save(t, x, what, scope) : perform(x, what, scope, save);
}

wf_status wf_trainer_save(wf_trainer *t, const char *path) {
    /* What transformers and others expect to find. */
    const wf_metadata metadata = {"format", "pt"};
    transfer x = {.t = t, .path = path, .metadata = &metadata, .n_metadata = 1};
    return save_as(t, &x, "save weights", WFI_STATE_WEIGHTS);
}

wf_status wf_trainer_save_state(wf_trainer *t, const char *path, const wf_metadata *metadata,
                                int n_metadata) {
    transfer x = {
        .t = t, .path = path, .is_state = true, .metadata = metadata, .n_metadata = n_metadata};
    return save_as(t, &x, "save its state", WFI_STATE_ALL);
}

/* ---- loading ---- */

/* Refuses numbers that no step can have left. */
static wf_status check_values(const transfer *x, const part *now) {
    const float *values = (const float *)x->buffer;
    const char *name = now->tensor->name;
    bool is_square = !strncmp(name, SECOND_MOMENT, sizeof SECOND_MOMENT - 1);
    bool is_float = wfi_value_at(x->list.graph, now->tensor->value)->dtype == WF_F32;
    size_t n = is_float ? now->bytes / sizeof *values : 0, bad = wfi_find_not_finite(values, n);
    for (size_t i = 0; is_square && i < bad; i++)
        if (values[i] < 0) bad = i;
    if (bad == n) return WF_OK;
    return wfi_fail(x->t->ctx, WF_CORRUPT,
                    "%s: element %zu of %s is %g: a run cannot go on from it", x->path,
                    now->offset / sizeof *values + bad, name, (double)values[bad]);
}

static wf_status load_part(transfer *x, const part *now) {
    int i = x->index[now->tensor - x->list.tensors];
    if (i < 0) return WF_OK;
    bool reads = serves(x, now);
    bool counts = !x->moves && x->t->workers[served_by(x, now->pieces->rank)].is_local;
    if (reads)
        WF_TRY(wfi_safetensors_read_part(
            x->file, i, wfi_value_at(x->list.graph, now->tensor->value)->dtype, now->offset,
            x->buffer, now->bytes, counts ? &x->digests[now->tensor - x->list.tensors] : NULL));
    if (x->moves) return put_part(x, now);
    if (reads && x->refused == WF_OK) x->refused = check_values(x, now);
    return WF_OK;
}

/* Digits and nothing else: what a run can have counted. */
static wf_status read_steps(const transfer *x, int64_t *n_out) {
    const char *text = wf_safetensors_metadata(x->file, WFI_STEPS_KEY);
    char *end = NULL, shown[WFI_NAME_TEXT];
    if (!text)
        return wfi_fail(x->t->ctx, WF_CORRUPT,
                        "%s is no training state: it does not say how many steps were taken (load "
                        "weights alone with --init)",
                        x->path);
    errno = 0;
    long long n = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    if (n < 0 || *end || errno || n > MAX_STEPS)
        return wfi_fail(x->t->ctx, WF_CORRUPT,
                        "%s: its " WFI_STEPS_KEY
                        " is '%s', which is no number of steps from 0 to %lld",
                        x->path, wfi_name_text(text, shown), (long long)MAX_STEPS);
    *n_out = n;
    return WF_OK;
}

static wf_status match(transfer *x) {
    wf_context *ctx = x->t->ctx;
    int n = x->list.n_tensors;
    wfi_wanted *wanted = wfi_alloc(ctx, (size_t)n, sizeof *wanted, "a list of tensors");
    if (!wanted) return WF_NO_MEMORY;
    for (int i = 0; i < n; i++) {
        const wfi_value *value = wfi_value_at(x->list.graph, x->list.tensors[i].value);
        wanted[i] = (wfi_wanted){x->list.tensors[i].name, value->dtype, value->shape};
    }
    wf_status status = wfi_match_weights(ctx, x->file, wanted, n, x->index);
    wfi_free(ctx, wanted);
    return status;
}

static wf_status open_file(transfer *x, opened *o) {
    WF_TRY(wf_safetensors_open(x->t->ctx, x->path, &x->file));
    if (x->is_state) WF_TRY(read_steps(x, &o->n_steps));
    o->n_files = wfi_safetensors_n_files(x->file);
    describe(x, 0, o);
    return match(x);
}

/* By rank 0's process, which has the file. */
static wf_status check_digests(const transfer *x) {
    for (int32_t i = 0; i < x->list.n_tensors && is_root(x->t); i++)
        if (x->index[i] >= 0)
            WF_TRY(wfi_safetensors_check_digest(x->file, x->index[i], x->digests[i]));
    return WF_OK;
}

/* All is looked at before any of it is moved: a file that is not good changes nothing. */
static wf_status load(transfer *x) {
    wf_trainer *t = x->t;
    opened o = {0};
    size_t n = (size_t)x->list.n_tensors;
    x->index = wfi_alloc(t->ctx, n, sizeof *x->index, "a list of tensors");
    if (!x->index) return WF_NO_MEMORY;
    WF_TRY(create_digests(x));
    if (is_root(t)) WF_TRY(open_file(x, &o));
    WF_TRY(tell(x, &o));
    if (!is_root(t) && wf_safetensors_open(t->ctx, o.path, &x->file) != WF_OK) x->file = NULL;
    if (x->file && wfi_safetensors_n_files(x->file) != o.n_files) o.n_files = 0;
    WF_TRY(compare_files(x, &o));
    if (t->job) WF_TRY(wf_job_broadcast(t->job, x->index, n * sizeof *x->index));
    WF_TRY(visit_all(x, load_part));
    WF_TRY(gather_digests(x));
    WF_TRY(check_digests(x));
    /* A number may be bad because a bit has flipped: then that is what to tell. */
    WF_TRY(wfi_trainer_barrier(t, "compare digests"));
    WF_TRY(x->refused);
    WF_TRY(wfi_trainer_barrier(t, "check its part of a file"));
    bool was_spoiled = t->is_spoiled;
    t->is_spoiled = x->moves = true;
    WF_TRY(visit_all(x, load_part));
    t->is_spoiled = was_spoiled && !x->is_state;
    if (x->is_state) t->n_steps = o.n_steps;
    return WF_OK;
}

wf_status wf_trainer_load_weights(wf_trainer *t, const char *path) {
    return perform(&(transfer){.t = t, .path = path}, "load weights", WFI_STATE_WEIGHTS, load);
}

wf_status wf_trainer_load_state(wf_trainer *t, const char *path) {
    return perform(&(transfer){.t = t, .path = path, .is_state = true}, "load its state",
                   WFI_STATE_ALL, load);
}

wf_status wf_trainer_state_metadata(wf_context *ctx, const char *path, const char *key,
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

/* ---- the hash of all weights ---- */

static wf_status hash_part(transfer *x, const part *now) {
    WF_TRY(fetch_part(x, now, 0, x->buffer));
    crypto_hash_sha256_update(&x->hash, (const unsigned char *)x->buffer, now->bytes);
    return WF_OK;
}

/* In rank 0's process; what the others count is of no use. */
static wf_status hash(transfer *x) {
    crypto_hash_sha256_init(&x->hash);
    for (int32_t i = 0; i < x->list.n_tensors; i++) {
        const wfi_state_tensor *tensor = &x->list.tensors[i];
        crypto_hash_sha256_update(&x->hash, (const unsigned char *)tensor->name,
                                  strlen(tensor->name) + 1);
        WF_TRY(visit_tensor(x, hash_part, tensor));
    }
    crypto_hash_sha256_final(&x->hash, (unsigned char *)x->dst);
    return WF_OK;
}

wf_status wf_trainer_weights_sha256(wf_trainer *t, char hex_out[65]) {
    unsigned char digest[crypto_hash_sha256_BYTES];
    transfer x = {.t = t, .dst = (char *)digest};
    WF_TRY(perform(&x, "read weights", WFI_STATE_WEIGHTS, hash));
    if (t->job)
        WF_TRY(wfi_control_broadcast(t->job, "hear the weights' hash", digest, sizeof digest));
    sodium_bin2hex(hex_out, 65, digest, sizeof digest);
    return WF_OK;
}

/* ---- single tensors ---- */

static wf_status check_tensor(const wf_trainer *t, const char *name, size_t dst_bytes,
                              const wfi_value **value_out) {
    const wf_graph *g = wfi_trainer_graph(t);
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind != WFI_VALUE_PARAM && value->kind != WFI_VALUE_BUFFER) continue;
        if (strcmp(value->name, name)) continue;
        if (wfi_value_bytes(g, v) != dst_bytes)
            return wfi_fail(t->ctx, WF_SHAPE, "'%s' has %zu bytes, not %zu", name,
                            wfi_value_bytes(g, v), dst_bytes);
        *value_out = value;
        return WF_OK;
    }
    return wfi_fail(t->ctx, WF_INVALID_ARG, "the model has no parameter or buffer '%s'", name);
}

static wf_status read_part(transfer *x, const part *now) {
    return fetch_part(x, now, -1, x->dst + now->offset);
}

static wf_status read_one(transfer *x) {
    return visit_tensor(x, read_part, wfi_state_find(&x->list, x->name));
}

wf_status wf_trainer_read(wf_trainer *t, const char *name, void *dst, size_t dst_bytes) {
    const wfi_value *ignored;
    WF_TRY(check_tensor(t, name, dst_bytes, &ignored));
    return perform(&(transfer){.t = t, .name = name, .dst = dst}, "read a tensor",
                   WFI_STATE_WEIGHTS, read_one);
}

wf_status wf_trainer_read_gradient(wf_trainer *t, const char *name, void *dst, size_t dst_bytes) {
    const wfi_value *value;
    if (!t->keep_gradients || !t->ran_last || t->ran_last->kind != WF_PROGRAM_TRAIN)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "gradients are read right after a step, of a trainer with keep_gradients");
    WF_TRY(check_tensor(t, name, dst_bytes, &value));
    if (value->kind != WFI_VALUE_PARAM)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "'%s' is a buffer and has no gradient", name);
    if (value->is_frozen)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "'%s' is frozen and has no gradient", name);
    return perform(&(transfer){.t = t, .name = name, .dst = dst}, "read a gradient",
                   WFI_STATE_GRADIENTS, read_one);
}
