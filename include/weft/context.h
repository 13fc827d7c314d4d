/* A context: allocator, log sink and last error. Nothing in weft is global.
 *
 * Create one first and destroy it last; every other object is made from it and
 * must be destroyed before it. A context may be used from several threads.
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

/* Host memory. `alloc` returns `bytes` bytes aligned to 64, or NULL; `free`
 * takes what `alloc` returned. Both may be called from any thread. */
typedef struct wf_allocator {
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *block);
    void *self;
} wf_allocator;

typedef enum wf_log_level { WF_LOG_ERROR, WF_LOG_WARN, WF_LOG_INFO, WF_LOG_DEBUG } wf_log_level;

/* Receives one complete line without its newline, escaped as by wf_text_escape. `topic` is a short
 * word such as "dispatch" or "memory"; lines of the topic "progress", of INFO, name the step that a
 * long call begins. Called from any thread, one call at a time. */
typedef void (*wf_log_sink)(void *self, wf_log_level level, const char *topic, const char *line);

typedef struct wf_context_config {
    size_t struct_size;     /* sizeof(wf_context_config), set by WF_CONTEXT_CONFIG_INIT */
    wf_allocator allocator; /* all zero: the C library's */
    wf_log_sink log;        /* NULL: nothing is logged */
    void *log_self;
    wf_log_level log_level; /* lines above this level are dropped */
} wf_context_config;

#define WF_CONTEXT_CONFIG_INIT                                                                     \
    { sizeof(wf_context_config), {0, 0, 0}, 0, 0, WF_LOG_INFO }

/* What the context's allocator has handed out so far. */
typedef struct wf_memory_count {
    uint64_t n_allocations; /* ever made */
    uint64_t n_live;        /* not yet freed */
    size_t live_bytes;
    size_t peak_bytes;
} wf_memory_count;

#ifdef __cplusplus
extern "C" {
#endif

/* `config` NULL means WF_CONTEXT_CONFIG_INIT. Errors: NO_MEMORY, INVALID_ARG (struct_size is not
 * this header's), DEVICE (the system gives libsodium no random numbers). */
WF_API WF_NODISCARD wf_status wf_context_create(const wf_context_config *config,
                                                wf_context **ctx_out);

/* NULL is allowed. Blocks that are still live are reported to the log. */
WF_API void wf_context_destroy(wf_context *ctx);

/* The sentence recorded by the calling thread's latest failed call on this
 * context, or by the latest of any thread if this one has none; "" if nothing
 * failed yet. Escaped as by wf_text_escape. Valid until the next failure. */
WF_API const char *wf_context_error(const wf_context *ctx);

/* `text` on one line that a terminal can show: names out of files may hold codes that it would
 * obey. A control character (also U+0080 to U+009F), and a byte that is no UTF-8, becomes \x1b or
 * \u009b. What does not fit into `dst` is cut off. Returns `dst`. */
WF_API char *wf_text_escape(const char *text, char *dst, size_t dst_bytes);

/* How many bytes from the beginning are whole characters of UTF-8: n_bytes if all is. */
WF_API size_t wf_text_valid(const void *text, size_t n_bytes);

/* How many characters must be changed, added or taken away to turn `a` into `b`; 64 where either
 * has that many. */
WF_API int wf_text_distance(const char *a, const char *b);

/* For functions of one's own that weft calls: records `sentence` as the calling thread's latest
 * error, and returns `status`. */
WF_API wf_status wf_context_fail(wf_context *ctx, wf_status status, const char *sentence);

WF_API wf_memory_count wf_context_memory(const wf_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
