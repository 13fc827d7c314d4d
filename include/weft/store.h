/* A store: a few keys with values that all ranks of a job see, to find each other and to agree
 * on something before, or beside, what they compute.
 *
 *     wf_store_config config = WF_STORE_CONFIG_INIT;
 *     config.url = "tcp://127.0.0.1:29500", config.rank = rank, config.n_ranks = n_ranks;
 *     wf_store_open(ctx, &config, &store);
 *     wf_store_add(store, "ready", 1, &n_ready);
 *
 *   memory:               within this process: the threads that have this handle
 *   file:///path          a file, made by the first who comes and removed by the last who leaves;
 *                         one that is there already has to be this user's, and no link
 *   tcp://127.0.0.1:port  rank 0 serves on a thread, the others connect. Only addresses of this
 *                         machine; port 0 is for rank 0 alone and lets the system choose
 *
 * A file or a port is one job's at a time. A store may be used from several threads. What it
 * holds goes with the last that has it open: with tcp, with rank 0.
 *
 * A key has 1 to 128 printable characters without spaces; a value 0 to 65,536 bytes; all of them
 * together 4,096 keys and 16 MiB.
 */
#ifndef WEFT_STORE_H
#define WEFT_STORE_H

#include <weft/context.h>

#define WF_STORE_MAX_KEY   128
#define WF_STORE_MAX_VALUE 65536

typedef struct wf_store wf_store;

typedef struct wf_store_config {
    size_t struct_size;
    const char *url;
    int rank, n_ranks; /* this process's or thread's, and of all; two cannot be the same */
    /* tcp: the same in all ranks of the job, who connects without it is refused. It is not sent,
     * only a proof of it. NULL: what WEFT_TOKEN says, if it is set; "": none. */
    const char *token;
    int64_t timeout_ms; /* of every wait; 0 = WEFT_TIMEOUT_MS, or 600,000 */
} wf_store_config;

#define WF_STORE_CONFIG_INIT                                                                       \
    { sizeof(wf_store_config), "memory:", 0, 1, 0, 0 }

#ifdef __cplusplus
extern "C" {
#endif

/* Errors: INVALID_ARG (url, rank or token; the file is left from an earlier run, in use by another
 * job, a link, or not this user's alone; the port is taken; the token was refused), CORRUPT (the
 * file is no store), IO, UNSUPPORTED (an address of another machine), TIMEOUT (tcp: rank 0 does not
 * listen). */
WF_API WF_NODISCARD wf_status wf_store_open(wf_context *ctx, const wf_store_config *config,
                                            wf_store **store_out);
/* NULL is allowed. */
WF_API void wf_store_close(wf_store *store);
/* Of tcp, with the port that was chosen; else as it was given. Lives as long as the store. */
WF_API const char *wf_store_url(const wf_store *store);

/* All of the following: INVALID_ARG for keys and values out of bounds, also if the store is
 * full; IO; CORRUPT; REMOTE (tcp: rank 0 has closed the store, or died); TIMEOUT. */

WF_API WF_NODISCARD wf_status wf_store_set(wf_store *store, const char *key, const void *value,
                                           size_t bytes);
/* Waits until the key is set, and copies its value to `dst`. Errors: TIMEOUT: nobody has set it;
 * INVALID_ARG: the value has more than `dst_bytes`. */
WF_API WF_NODISCARD wf_status wf_store_get(wf_store *store, const char *key, void *dst,
                                           size_t dst_bytes, size_t *bytes_out);
/* Waits until all of the keys are set. Errors: TIMEOUT: the sentence names those that are not. */
WF_API WF_NODISCARD wf_status wf_store_wait(wf_store *store, const char *const *keys, int n_keys);
/* Adds to a whole number, 0 if the key is not set, in one step with what others add. It is kept
 * as text, as wf_store_get returns it. Errors: INVALID_ARG: the value is no number, or would be
 * too large. */
WF_API WF_NODISCARD wf_status wf_store_add(wf_store *store, const char *key, int64_t amount,
                                           int64_t *sum_out);
/* Sets the key to `value` if it has the value `expected`; if `expected` is NULL, if it is not
 * set. *was_set_out says whether it was so. */
WF_API WF_NODISCARD wf_status wf_store_compare_set(wf_store *store, const char *key,
                                                   const void *expected, size_t expected_bytes,
                                                   const void *value, size_t bytes,
                                                   int *was_set_out);
WF_API WF_NODISCARD wf_status wf_store_delete(wf_store *store, const char *key, int *was_set_out);
WF_API WF_NODISCARD wf_status wf_store_n_keys(wf_store *store, int64_t *n_out);

#ifdef __cplusplus
}
#endif
#endif
