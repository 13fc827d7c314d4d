/* The base of all folders: errors, memory, log. Private. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>
#include <weft/types.h>

/* Passes a failure up. The callee has recorded the sentence. */
#define WF_TRY(call)                                                                               \
    do {                                                                                           \
        wf_status wfi_status_ = (call);                                                            \
        if (wfi_status_ != WF_OK) return wfi_status_;                                              \
    } while (0)

#define WFI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Bisects [low, high): both end at the first index, named `middle`, for which is_before is false.
 */
#define WFI_BISECT(low, high, middle, is_before)                                                   \
    while ((low) < (high)) {                                                                       \
        __typeof__(low) middle = (low) + ((high) - (low)) / 2;                                     \
        if (is_before)                                                                             \
            (low) = middle + 1;                                                                    \
        else                                                                                       \
            (high) = middle;                                                                       \
    }

#if defined(__GNUC__)
#define WFI_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define WFI_PRINTF(text, first)
#endif

#pragma GCC visibility push(default) /* for libweft-data, too (CMakeLists.txt) */

/* A longer sentence is cut off. */
#define WFI_SENTENCE_BYTES 1024
/* Records a sentence as this thread's latest error and returns `status`. */
wf_status wfi_fail(wf_context *ctx, wf_status status, const char *format, ...) WFI_PRINTF(3, 4);
/* The sentence about the name `unknown`; if one of name(0), name(1), ... up to NULL is near, "; did
 * you mean " and that; then "; there are " and all of them. */
wf_status wfi_fail_unknown(wf_context *ctx, wf_status status, const char *(*name)(int i),
                           const char *unknown, const char *format, ...) WFI_PRINTF(5, 6);
/* The one of these names that may have been meant: at most two characters, and less than half, are
 * different. NULL: none. */
const char *wfi_nearest_name(const char *(*name)(int i), const char *unknown);
/* The same, in front of this thread's latest sentence and a colon: where it happened. */
wf_status wfi_fail_at(wf_context *ctx, wf_status status, const char *format, ...) WFI_PRINTF(3, 4);
wf_status wfi_no_memory(wf_context *ctx, size_t bytes, const char *what);

/* That a caller's configuration is there, and was begun with this header's ..._INIT; its first
 * member is its struct_size. Nothing else of it may be read before. Errors: INVALID_ARG. */
wf_status wfi_check_struct(wf_context *ctx, const void *config, size_t bytes, const char *name);

void wfi_log(wf_context *ctx, wf_log_level level, const char *topic, const char *format, ...)
    WFI_PRINTF(4, 5);
bool wfi_log_enabled(const wf_context *ctx, wf_log_level level);
/* Logs the progress of a long call, as "lowering rank 1 of 48". */
#define WFI_PROGRESS(ctx, ...) wfi_log((ctx), WF_LOG_INFO, "progress", __VA_ARGS__)

/* Counted, zeroed, 64-byte aligned memory of the context's allocator; NULL after recording the
 * error. The error message names the memory by `what`. */
void *wfi_alloc(wf_context *ctx, size_t n, size_t elem_bytes, const char *what);
void wfi_free(wf_context *ctx, void *block);
char *wfi_strdup(wf_context *ctx, const char *text);
char *wfi_sprintf(wf_context *ctx, const char *format, ...) WFI_PRINTF(2, 3);

/* Makes room for one more element in a growing array: `*array` has `n` used of
 * `*capacity`. */
wf_status wfi_grow(wf_context *ctx, void **array, size_t n, size_t *capacity, size_t elem_bytes,
                   const char *what);
#define WFI_GROW(ctx, array, n, capacity, what)                                                    \
    wfi_grow((ctx), (void **)&(array), (size_t)(n), &(capacity), sizeof(*(array)), (what))

/* An object that a context has once, such as a library's handles for all devices of a kind. The
 * first call of wfi_context_share creates it. The context destroys its objects in reverse order of
 * creation; their memory does not come from its allocator. */
typedef struct wfi_shared_kind {
    wf_status (*create)(wf_context *ctx, void **shared_out);
    void (*destroy)(void *shared);
} wfi_shared_kind;
/* `kind` is static. Any thread. Errors: those of create, each time. */
wf_status wfi_context_share(wf_context *ctx, const wfi_shared_kind *kind, void **shared_out);
/* The context's copy of `text`, which lives as long as the context. Equal texts share one copy. Any
 * thread. */
wf_status wfi_context_keep(wf_context *ctx, const char *text, const char **kept_out);

/* A bump allocator that frees all its blocks together. */
typedef struct wfi_pool {
    wf_context *ctx;
    struct wfi_pool_chunk *chunk;
    bool failed;
} wfi_pool;
void wfi_pool_init(wfi_pool *pool, wf_context *ctx);
void *wfi_pool_alloc(wfi_pool *pool, size_t n, size_t elem_bytes);
/* The same in an allocation of its own, with `what` for the error message: for large arrays. */
void *wfi_pool_array(wfi_pool *pool, size_t n, size_t elem_bytes, const char *what);
/* NO_MEMORY if an allocation has failed, which returned NULL. */
wf_status wfi_pool_status(const wfi_pool *pool);
char *wfi_pool_format(wfi_pool *pool, const char *format, ...) WFI_PRINTF(2, 3);
void wfi_pool_release(wfi_pool *pool);

/* A string that grows; after a failed allocation it stays inert and wfi_text_status returns the
 * error. Begins as {.ctx = ctx}; free with wfi_free(ctx, text.data). */
typedef struct wfi_text {
    wf_context *ctx;
    char *data;
    size_t n, capacity;
    bool failed;
} wfi_text;
void wfi_text_init(wfi_text *text, wf_context *ctx);
void wfi_text_add(wfi_text *text, const char *format, ...) WFI_PRINTF(2, 3);
wf_status wfi_text_status(const wfi_text *text);

static inline size_t wfi_round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
static inline int64_t wfi_min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t wfi_max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Everything in device memory starts at a multiple of this. */
#define WFI_ALIGN_BYTES 64

#pragma GCC visibility pop
