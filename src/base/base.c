/* Context: allocator, errors, log; pools and growing text. */
#include "base/base.h"
#include "base/sentence.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header of every block, from which free reads the block's size. 64 bytes keep the block's own
 * alignment. */
typedef union block_header {
    size_t bytes;
    char padding[WFI_ALIGN_BYTES];
} block_header;

#define N_SHARED_KINDS 4

typedef struct shared_object {
    const wfi_shared_kind *kind; /* NULL ends them */
    void *object;
} shared_object;

typedef struct kept_text {
    struct kept_text *next;
    char text[];
} kept_text;

struct wf_context {
    wf_allocator allocator;
    wf_log_sink log;
    void *log_self;
    wf_log_level log_level;
    pthread_mutex_t shared_lock;
    shared_object shared[N_SHARED_KINDS + 1];
    kept_text *texts;
    pthread_mutex_t lock; /* protects everything below and calls of the sink */
    wf_memory_count memory;
    wfi_sentences errors;
};

static void *libc_alloc(void *self, size_t bytes) {
    (void)self;
    void *block = NULL;
    return posix_memalign(&block, WFI_ALIGN_BYTES, bytes) ? NULL : block;
}

static void libc_free(void *self, void *block) {
    (void)self;
    free(block);
}

const char *wf_status_name(wf_status status) {
    switch (status) {
#define CASE(name, value, meaning)                                                                 \
    case WF_##name:                                                                                \
        return #name;
        WF_STATUS_LIST(CASE)
#undef CASE
    }
    return "UNKNOWN";
}

const char *wf_status_meaning(wf_status status) {
    switch (status) {
#define CASE(name, value, meaning)                                                                 \
    case WF_##name:                                                                                \
        return meaning;
        WF_STATUS_LIST(CASE)
#undef CASE
    }
    return "UNKNOWN";
}

wf_status wf_context_create(const wf_context_config *config, wf_context **ctx_out) {
    const wf_context_config defaults = WF_CONTEXT_CONFIG_INIT;
    if (!config) config = &defaults;
    if (!ctx_out || config->struct_size != sizeof *config) return WF_INVALID_ARG;
    if (sodium_init() < 0) return WF_DEVICE; /* once is enough, and it knows */
    wf_allocator allocator = config->allocator;
    if (!allocator.alloc || !allocator.free)
        allocator = (wf_allocator){libc_alloc, libc_free, NULL};
    wf_context *ctx = allocator.alloc(allocator.self, sizeof *ctx);
    if (!ctx) return WF_NO_MEMORY;
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = allocator;
    ctx->log = config->log;
    ctx->log_self = config->log_self;
    ctx->log_level = config->log_level;
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->shared_lock, NULL);
    *ctx_out = ctx;
    return WF_OK;
}

void wf_context_destroy(wf_context *ctx) {
    if (!ctx) return;
    int n_shared = 0;
    while (ctx->shared[n_shared].kind) n_shared++;
    while (n_shared-- > 0) ctx->shared[n_shared].kind->destroy(ctx->shared[n_shared].object);
    for (kept_text *next, *kept = ctx->texts; kept; kept = next) {
        next = kept->next;
        ctx->allocator.free(ctx->allocator.self, kept);
    }
    if (ctx->memory.n_live)
        wfi_log(ctx, WF_LOG_WARN, "memory", "%llu blocks of %zu bytes were never freed",
                (unsigned long long)ctx->memory.n_live, ctx->memory.live_bytes);
    pthread_mutex_destroy(&ctx->lock);
    pthread_mutex_destroy(&ctx->shared_lock);
    ctx->allocator.free(ctx->allocator.self, ctx);
}

wf_status wfi_context_share(wf_context *ctx, const wfi_shared_kind *kind, void **shared_out) {
    wf_status status = WF_OK;
    pthread_mutex_lock(&ctx->shared_lock);
    shared_object *s = ctx->shared;
    while (s->kind && s->kind != kind) s++;
    if (s == ctx->shared + N_SHARED_KINDS)
        status = wfi_fail(ctx, WF_BUG, "a context shares at most %d kinds", N_SHARED_KINDS);
    else if (!s->kind)
        status = kind->create(ctx, &s->object);
    if (status == WF_OK) {
        s->kind = kind;
        *shared_out = s->object;
    }
    pthread_mutex_unlock(&ctx->shared_lock);
    return status;
}

wf_status wfi_context_keep(wf_context *ctx, const char *text, const char **kept_out) {
    size_t n = strlen(text) + 1;
    pthread_mutex_lock(&ctx->shared_lock);
    kept_text *kept = ctx->texts;
    while (kept && strcmp(kept->text, text)) kept = kept->next;
    if (!kept && (kept = ctx->allocator.alloc(ctx->allocator.self, sizeof *kept + n))) {
        memcpy(kept->text, text, n);
        kept->next = ctx->texts;
        ctx->texts = kept;
    }
    pthread_mutex_unlock(&ctx->shared_lock);
    if (!kept) return wfi_no_memory(ctx, n, "a text");
    *kept_out = kept->text;
    return WF_OK;
}

const char *wf_context_error(const wf_context *ctx) {
    if (!ctx) return "";
    pthread_mutex_lock((pthread_mutex_t *)&ctx->lock);
    const char *sentence = wfi_sentences_get(&ctx->errors);
    pthread_mutex_unlock((pthread_mutex_t *)&ctx->lock);
    return sentence;
}

wf_memory_count wf_context_memory(const wf_context *ctx) {
    pthread_mutex_lock((pthread_mutex_t *)&ctx->lock);
    wf_memory_count count = ctx->memory;
    pthread_mutex_unlock((pthread_mutex_t *)&ctx->lock);
    return count;
}

static wf_status record(wf_context *ctx, wf_status status, const char *text) {
    char line[WFI_SENTENCE_BYTES] = "";
    wf_text_escape(text, line, sizeof line);
    pthread_mutex_lock(&ctx->lock);
    wfi_sentences_put(&ctx->errors, line);
    pthread_mutex_unlock(&ctx->lock);
    wfi_log(ctx, WF_LOG_DEBUG, "error", "%s: %s", wf_status_name(status), line);
    return status;
}

wf_status wfi_fail(wf_context *ctx, wf_status status, const char *format, ...) {
    char line[WFI_SENTENCE_BYTES] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return record(ctx, status, line);
}

wf_status wf_context_fail(wf_context *ctx, wf_status status, const char *sentence) {
    return wfi_fail(ctx, status, "%s", sentence);
}

const char *wfi_nearest_name(const char *(*name)(int i), const char *unknown) {
    const char *nearest = NULL;
    int least = strlen(unknown) > 4 ? 3 : 2;
    for (int i = 0; name(i); i++) {
        int distance = wf_text_distance(unknown, name(i));
        if (distance < least) nearest = name(i), least = distance;
    }
    return nearest;
}

wf_status wfi_fail_unknown(wf_context *ctx, wf_status status, const char *(*name)(int i),
                           const char *unknown, const char *format, ...) {
    char sentence[WFI_SENTENCE_BYTES];
    const char *near = wfi_nearest_name(name, unknown);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    if (near && n >= 0 && n < (int)sizeof sentence)
        n += snprintf(sentence + n, sizeof sentence - (size_t)n, "; did you mean %s?", near);
    for (int i = 0; name(i) && n >= 0 && n < (int)sizeof sentence; i++)
        n += snprintf(sentence + n, sizeof sentence - (size_t)n, "%s%s",
                      i      ? ", "
                      : near ? " There are "
                             : "; there are ",
                      name(i));
    return wfi_fail(ctx, status, "%s", sentence);
}

wf_status wfi_fail_at(wf_context *ctx, wf_status status, const char *format, ...) {
    char line[WFI_SENTENCE_BYTES] = "";
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof line)
        snprintf(line + n, sizeof line - (size_t)n, ": %s", wf_context_error(ctx));
    return record(ctx, status, line);
}

wf_status wfi_no_memory(wf_context *ctx, size_t bytes, const char *what) {
    return wfi_fail(ctx, WF_NO_MEMORY, "no host memory left: %zu bytes for %s were refused", bytes,
                    what);
}

wf_status wfi_check_struct(wf_context *ctx, const void *config, size_t bytes, const char *name) {
    if (!config) return wfi_fail(ctx, WF_INVALID_ARG, "%s is NULL", name);
    size_t given = *(const size_t *)config;
    if (given == bytes) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "%s has %zu bytes, this library's has %zu; begin it with its _INIT and compile "
                    "against this version's header",
                    name, given, bytes);
}

bool wfi_log_enabled(const wf_context *ctx, wf_log_level level) {
    return ctx->log && level <= ctx->log_level;
}

void wfi_log(wf_context *ctx, wf_log_level level, const char *topic, const char *format, ...) {
    if (!wfi_log_enabled(ctx, level)) return;
    char text[WFI_SENTENCE_BYTES], line[WFI_SENTENCE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    wf_text_escape(text, line, sizeof line);
    pthread_mutex_lock(&ctx->lock);
    ctx->log(ctx->log_self, level, topic, line);
    pthread_mutex_unlock(&ctx->lock);
}

/* The first `n_unset` bytes are not zeroed. */
static void *alloc_bytes(wf_context *ctx, size_t bytes, size_t n_unset, const char *what) {
    block_header *header = NULL;
    if (bytes <= SIZE_MAX - sizeof *header)
        header = ctx->allocator.alloc(ctx->allocator.self, sizeof *header + bytes);
    if (!header) {
        (void)wfi_no_memory(ctx, bytes, what);
        return NULL;
    }
    header->bytes = bytes;
    pthread_mutex_lock(&ctx->lock);
    wf_memory_count *m = &ctx->memory;
    m->n_allocations++;
    m->n_live++;
    m->live_bytes += bytes;
    if (m->live_bytes > m->peak_bytes) m->peak_bytes = m->live_bytes;
    pthread_mutex_unlock(&ctx->lock);
    memset((char *)(header + 1) + n_unset, 0, bytes - n_unset);
    return header + 1;
}

void *wfi_alloc(wf_context *ctx, size_t n, size_t elem_bytes, const char *what) {
    size_t bytes;
    if (__builtin_mul_overflow(n, elem_bytes, &bytes)) bytes = SIZE_MAX;
    return alloc_bytes(ctx, bytes, 0, what);
}

void wfi_free(wf_context *ctx, void *block) {
    if (!block) return;
    block_header *header = (block_header *)block - 1;
    pthread_mutex_lock(&ctx->lock);
    ctx->memory.n_live--;
    ctx->memory.live_bytes -= header->bytes;
    pthread_mutex_unlock(&ctx->lock);
    ctx->allocator.free(ctx->allocator.self, header);
}

char *wfi_strdup(wf_context *ctx, const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = wfi_alloc(ctx, bytes, 1, "a string");
    return copy ? memcpy(copy, text, bytes) : NULL;
}

char *wfi_sprintf(wf_context *ctx, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : wfi_alloc(ctx, (size_t)n + 1, 1, "a string");
    if (text) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

wf_status wfi_grow(wf_context *ctx, void **array, size_t n, size_t *capacity, size_t elem_bytes,
                   const char *what) {
    if (n < *capacity) return WF_OK;
    size_t larger = *capacity ? *capacity * 2 : 4, bytes;
    if (__builtin_mul_overflow(larger, elem_bytes, &bytes)) bytes = SIZE_MAX;
    void *moved = alloc_bytes(ctx, bytes, bytes == SIZE_MAX ? 0 : n * elem_bytes, what);
    if (!moved) return WF_NO_MEMORY;
    if (n) memcpy(moved, *array, n * elem_bytes);
    wfi_free(ctx, *array);
    *array = moved;
    *capacity = larger;
    return WF_OK;
}

/* ---- pool ---- */

struct wfi_pool_chunk {
    struct wfi_pool_chunk *next;
    size_t n_used, n_bytes;
    char padding[WFI_ALIGN_BYTES - 3 * sizeof(size_t)];
};

void wfi_pool_init(wfi_pool *pool, wf_context *ctx) {
    *pool = (wfi_pool){.ctx = ctx};
}

wf_status wfi_pool_status(const wfi_pool *pool) {
    return pool->failed ? WF_NO_MEMORY : WF_OK;
}

/* NULL: no memory. */
static struct wfi_pool_chunk *add_chunk(wfi_pool *pool, size_t n, size_t elem_bytes,
                                        const char *what) {
    size_t bytes;
    struct wfi_pool_chunk *chunk = NULL;
    if (__builtin_mul_overflow(n, elem_bytes, &bytes) || bytes > SIZE_MAX / 4)
        (void)wfi_no_memory(pool->ctx, SIZE_MAX, what);
    else
        chunk = wfi_alloc(pool->ctx, 1, sizeof *chunk + bytes, what);
    pool->failed |= !chunk;
    if (!chunk) return NULL;
    chunk->n_bytes = bytes;
    return chunk;
}

void *wfi_pool_array(wfi_pool *pool, size_t n, size_t elem_bytes, const char *what) {
    struct wfi_pool_chunk *chunk = add_chunk(pool, n, elem_bytes, what);
    if (!chunk) return NULL;
    /* The pool's first chunk is the one with room. */
    struct wfi_pool_chunk **next = pool->chunk ? &pool->chunk->next : &pool->chunk;
    chunk->n_used = chunk->n_bytes;
    chunk->next = *next;
    *next = chunk;
    return chunk + 1;
}

void *wfi_pool_alloc(wfi_pool *pool, size_t n, size_t elem_bytes) {
    size_t bytes;
    if (__builtin_mul_overflow(n, elem_bytes, &bytes) || bytes > SIZE_MAX / 4) bytes = SIZE_MAX / 2;
    bytes = wfi_round_up(bytes ? bytes : 1, 16);
    struct wfi_pool_chunk *chunk = pool->chunk;
    if (!chunk || chunk->n_bytes - chunk->n_used < bytes) {
        chunk = add_chunk(pool, bytes > 16384 ? bytes : 16384, 1, "a pool");
        if (!chunk) return NULL;
        chunk->next = pool->chunk;
        pool->chunk = chunk;
    }
    void *block = (char *)(chunk + 1) + chunk->n_used;
    chunk->n_used += bytes;
    return block;
}

char *wfi_pool_format(wfi_pool *pool, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : wfi_pool_alloc(pool, (size_t)n + 1, 1);
    if (text) vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void wfi_pool_release(wfi_pool *pool) {
    for (struct wfi_pool_chunk *chunk = pool->chunk, *next; chunk; chunk = next) {
        next = chunk->next;
        wfi_free(pool->ctx, chunk);
    }
    pool->chunk = NULL;
}

/* ---- text ---- */

void wfi_text_init(wfi_text *text, wf_context *ctx) {
    *text = (wfi_text){.ctx = ctx};
}

void wfi_text_add(wfi_text *text, const char *format, ...) {
    if (text->failed) return;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    size_t need = n < 0 ? 0 : text->n + (size_t)n + 1;
    if (need > text->capacity) {
        size_t capacity = need * 2 < 256 ? 256 : need * 2;
        char *moved = wfi_alloc(text->ctx, capacity, 1, "a text");
        if (moved && text->n) memcpy(moved, text->data, text->n);
        if (moved) {
            wfi_free(text->ctx, text->data);
            text->data = moved;
            text->capacity = capacity;
        } else {
            text->failed = true;
        }
    }
    if (!text->failed && n >= 0) {
        vsnprintf(text->data + text->n, (size_t)n + 1, format, again);
        text->n += (size_t)n;
    }
    va_end(again);
}

wf_status wfi_text_status(const wfi_text *text) {
    return text->failed ? WF_NO_MEMORY : WF_OK;
}
