/* A key-value store that all ranks of a job share, for rendezvous and coordination.
 *
 *     wf_store_config config = WF_STORE_CONFIG_INIT;
 *     config.url = "tcp://127.0.0.1:29500", config.rank = rank, config.n_ranks = n_ranks;
 *     wf_store_open(ctx, &config, &store);
 *     wf_store_add(store, "ready", 1, &n_ready);
 *
 * URLs:
 *
 *   memory:               shared by the threads that use this handle
 *   file:///path          a file that the first process creates and the last one removes; an
 *                         existing file must belong to this user and must not be a link
 *   tcp://127.0.0.1:port  rank 0 serves on a thread, and other ranks connect; the address must be
 *                         this machine's. Rank 0 alone may give port 0: the system chooses one
 *
 * One job at a time uses a file or a port. Several threads may use a store at the same time. The
 * contents live until the last user closes the store; with tcp, until rank 0 closes it.
 *
 * A key has 1 to 128 printable characters without spaces. A value has 0 to 65,536 bytes. A store
 * holds at most 4,096 keys and 16 MiB.
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
    int rank, n_ranks; /* of this process or thread, and of the job; a rank must be unique */
    /* tcp: a secret, equal in all ranks of the job; other clients are refused. Only a proof of the
     * token is sent. NULL: the value of WEFT_TOKEN, if set; "": no token. */
    const char *token;
    int64_t timeout_ms; /* for every wait; 0 = WEFT_TIMEOUT_MS, or 600,000 */
} wf_store_config;

#define WF_STORE_CONFIG_INIT                                                                       \
    { sizeof(wf_store_config), "memory:", 0, 1, 0, 0 }

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a store. Errors: INVALID_ARG (url, rank or token; the file is from an earlier run, in use
 * by another job, a link, or open to other users; the port is in use; the token was refused),
 * CORRUPT (the file is not a store), IO, UNSUPPORTED (an address of another machine), TIMEOUT (tcp:
 * rank 0 does not listen), REMOTE (tcp: another program listens), DEVICE (tcp: the system refuses
 * to listen), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_store_open(wf_context *ctx, const wf_store_config *config,
                                            wf_store **store_out);
/* Closes the store. NULL is allowed. */
WF_API void wf_store_close(wf_store *store);
/* The store's URL; for tcp with the chosen port. Valid as long as the store. */
WF_API const char *wf_store_url(const wf_store *store);

/* Errors of all following functions: INVALID_ARG (a key or value out of bounds, the store is full),
 * IO, CORRUPT, REMOTE (tcp: rank 0 has closed the store, or died), TIMEOUT. */

/* Sets the key to `value`. */
WF_API WF_NODISCARD wf_status wf_store_set(wf_store *store, const char *key, const void *value,
                                           size_t bytes);
/* Waits until the key is set, then copies its value to `dst`. Errors: TIMEOUT (the key was not
 * set), INVALID_ARG (the value is larger than `dst_bytes`). */
WF_API WF_NODISCARD wf_status wf_store_get(wf_store *store, const char *key, void *dst,
                                           size_t dst_bytes, size_t *bytes_out);
/* Waits until all keys are set. Errors: TIMEOUT (the sentence names the missing keys). */
WF_API WF_NODISCARD wf_status wf_store_wait(wf_store *store, const char *const *keys, int n_keys);
/* Adds to the integer of a key atomically and returns the sum; a key that is not set counts as 0.
 * The integer is stored as text, which wf_store_get returns. Errors: INVALID_ARG (the value is not
 * an integer, or the sum overflows). */
WF_API WF_NODISCARD wf_status wf_store_add(wf_store *store, const char *key, int64_t amount,
                                           int64_t *sum_out);
/* Sets the key to `value` atomically if its value is `expected`, or, with `expected` NULL, if it is
 * not set. *was_set_out is 1 if the key was set to `value`, else 0. */
WF_API WF_NODISCARD wf_status wf_store_compare_set(wf_store *store, const char *key,
                                                   const void *expected, size_t expected_bytes,
                                                   const void *value, size_t bytes,
                                                   int *was_set_out);
/* Deletes the key. *was_set_out is 1 if it was set, else 0. */
WF_API WF_NODISCARD wf_status wf_store_delete(wf_store *store, const char *key, int *was_set_out);
/* Counts the keys. */
WF_API WF_NODISCARD wf_status wf_store_n_keys(wf_store *store, int64_t *n_out);

#ifdef __cplusplus
}
#endif
#endif
