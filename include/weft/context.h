/* The context: allocator, log sink and last error. Nothing in weft is global.
 *
 * Create a context first and destroy it last. Every other object is made from a context and must
 * be destroyed before it. Several threads may use a context at the same time.
 *
 *     wf_context *ctx;
 *     if (wf_context_create(NULL, &ctx)) return 1;
 *     ...
 *     if (status) fprintf(stderr, "%s\n", wf_context_error(ctx));
 *     wf_context_destroy(ctx);
 */
#ifndef WEFT_CONTEXT_H
#define WEFT_CONTEXT_H

#include <stddef.h>
#include <stdint.h>
#include <weft/status.h>

typedef struct wf_context wf_context;

/* Allocator of host memory. `alloc` returns `bytes` bytes aligned to 64, or NULL; `free` takes a
 * block that `alloc` returned. Any thread may call both. */
typedef struct wf_allocator {
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *block);
    void *self;
} wf_allocator;

typedef enum wf_log_level { WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG } wf_log_level;

/* Receives one complete line without its newline, escaped as by wf_text_escape. `topic` is a short
 * word such as "dispatch" or "memory". Lines of the topic "progress", at level INFO, name the step
 * that a long call begins. Any thread may call the sink; calls do not overlap. */
typedef void (*wf_log_sink)(void *self, wf_log_level level, const char *topic, const char *line);

typedef struct wf_context_config {
    size_t struct_size;     /* sizeof(wf_context_config), set by WF_CONTEXT_CONFIG_INIT */
    wf_allocator allocator; /* all zero: the C library's */
    wf_log_sink log;        /* NULL: no log */
    void *log_self;
    wf_log_level log_level; /* lines above this level are dropped */
} wf_context_config;

#define WF_CONTEXT_CONFIG_INIT                                                                     \
    { sizeof(wf_context_config), {0, 0, 0}, 0, 0, WF_LOG_INFO }

/* Statistics of the context's allocator. */
typedef struct wf_memory_count {
    uint64_t n_allocations; /* since the context was created */
    uint64_t n_live;        /* not yet freed */
    size_t live_bytes;
    size_t peak_bytes;
} wf_memory_count;

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a context. `config` NULL means WF_CONTEXT_CONFIG_INIT. Errors: NO_MEMORY, INVALID_ARG
 * (struct_size differs from this header's), DEVICE (the system gives libsodium no random
 * numbers). */
WF_API WF_NODISCARD wf_status wf_context_create(const wf_context_config *config,
                                                wf_context **ctx_out);

/* Destroys the context and logs the blocks that are still allocated. NULL is allowed. */
WF_API void wf_context_destroy(wf_context *ctx);

/* The sentence of the calling thread's latest failed call on this context. If no call of this
 * thread has failed, the latest sentence of any thread; "" before the first failure. Escaped as by
 * wf_text_escape. Valid until the next failure. */
WF_API const char *wf_context_error(const wf_context *ctx);

/* Writes `text` to `dst` as one line that is safe to print on a terminal: names from files may
 * contain control codes. Each control character (also U+0080 to U+009F), and each byte that is not
 * UTF-8, becomes an escape such as \x1b or \u009b. Text that does not fit into `dst` is cut off.
 * Returns `dst`. */
WF_API char *wf_text_escape(const char *text, char *dst, size_t dst_bytes);

/* The number of leading bytes that are whole UTF-8 characters; n_bytes if all are. */
WF_API size_t wf_text_valid(const void *text, size_t n_bytes);

/* The edit distance: how many bytes must be changed, added or removed to turn `a` into `b`. 64 if
 * either text has 64 bytes or more. */
WF_API int wf_text_distance(const char *a, const char *b);

/* Records `sentence` as the calling thread's latest error. For callbacks that weft calls. Errors:
 * always `status`. */
WF_API wf_status wf_context_fail(wf_context *ctx, wf_status status, const char *sentence);

/* The allocator's statistics now. */
WF_API wf_memory_count wf_context_memory(const wf_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
