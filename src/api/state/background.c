#include "api/state/background.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct copied {
    int tensor;
    uint64_t offset, n_after;
    size_t n_bytes;
    void *data;
} copied;

struct wfi_background {
    wf_context *ctx;
    copied *parts;
    size_t n_parts, capacity, n_bytes;
    wf_safetensors_writer *writer;
    uint32_t *digests;
    pthread_t thread;
    bool has_thread;
    bool is_done; /* atomic access */
    int *n_writing;
    wf_status status; /* of the thread, and its sentence */
    char sentence[WFI_SENTENCE_BYTES];
};

wf_status wfi_background_create(wf_context *ctx, wfi_background **background_out) {
    wfi_background *b = wfi_alloc(ctx, 1, sizeof *b, "a save in the background");
    if (!b) return WF_NO_MEMORY;
    b->ctx = ctx;
    *background_out = b;
    return WF_OK;
}

static void join(wfi_background *b) {
    if (b->has_thread) pthread_join(b->thread, NULL);
    b->has_thread = false;
}

void wfi_background_destroy(wfi_background *b) {
    if (!b) return;
    join(b);
    for (size_t k = 0; k < b->n_parts; k++) wfi_free(b->ctx, b->parts[k].data);
    wfi_free(b->ctx, b->parts);
    wfi_free(b->ctx, b);
}

void *wfi_background_add(wfi_background *b, int tensor, uint64_t offset, size_t n_bytes,
                         uint64_t n_after) {
    static const char what[] = "a copy of the state, to be saved in the background";
    if (WFI_GROW(b->ctx, b->parts, b->n_parts, b->capacity, what) != WF_OK) return NULL;
    void *data = wfi_alloc(b->ctx, n_bytes, 1, what);
    if (!data) return NULL;
    b->parts[b->n_parts++] = (copied){tensor, offset, n_after, n_bytes, data};
    b->n_bytes += n_bytes;
    return data;
}

size_t wfi_background_bytes(const wfi_background *b) {
    return b->n_bytes;
}

static wf_status write_all(wfi_background *b) {
    for (size_t k = 0; k < b->n_parts; k++) {
        copied *p = &b->parts[k];
        b->digests[p->tensor] ^= wfi_safetensors_digest_part(p->data, p->n_bytes, p->n_after);
        WF_TRY(wfi_safetensors_writer_write_part(b->writer, p->tensor, p->offset, p->data,
                                                 p->n_bytes));
        wfi_free(b->ctx, p->data);
        p->data = NULL;
    }
    return b->n_parts ? wfi_safetensors_writer_sync(b->writer) : WF_OK;
}

static void *run(void *self) {
    wfi_background *b = self;
    b->status = write_all(b);
    if (b->status != WF_OK)
        snprintf(b->sentence, sizeof b->sentence, "%s", wf_context_error(b->ctx));
    __atomic_store_n(&b->is_done, true, __ATOMIC_RELEASE);
    if (b->n_writing) __atomic_sub_fetch(b->n_writing, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Signals are the caller's business. */
wf_status wfi_background_start(wfi_background *b, wf_safetensors_writer *writer, uint32_t *digests,
                               int *n_writing) {
    sigset_t all, before;
    b->writer = writer;
    b->digests = digests;
    b->n_writing = n_writing;
    if (n_writing) __atomic_add_fetch(n_writing, 1, __ATOMIC_RELAXED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&b->thread, NULL, run, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    b->has_thread = code == 0;
    if (b->has_thread) return WF_OK;
    if (n_writing) __atomic_sub_fetch(n_writing, 1, __ATOMIC_RELAXED);
    return wfi_fail(b->ctx, WF_NO_MEMORY,
                    "the thread that saves in the background cannot start: %s", strerror(code));
}

bool wfi_background_is_done(const wfi_background *b) {
    return __atomic_load_n(&b->is_done, __ATOMIC_ACQUIRE);
}

wf_status wfi_background_wait(wfi_background *b) {
    join(b);
    return b->status == WF_OK ? WF_OK : wfi_fail(b->ctx, b->status, "%s", b->sentence);
}
