/* Internals of a store: one table and one message format, used by all kinds. Private to src/comm.
 *
 * Each request gets its reply at once. A client that has to wait repeats its request, so the server
 * keeps no list of waiting clients. Requests and replies have one encoding, which connections use
 * and, after a length, the file.
 */
#pragma once

#include "base/base.h"

#include <pthread.h>
#include <weft/store.h>

#define WFI_STORE_MAX_KEYS  4096
#define WFI_STORE_MAX_BYTES (16u << 20) /* of all keys and values */
#define WFI_STORE_HEAD      24          /* bytes of a message before key and values */
/* The limit of a message: a key, a value and an expected value. */
#define WFI_STORE_MAX_MESSAGE (WFI_STORE_HEAD + WF_STORE_MAX_KEY + 2 * WF_STORE_MAX_VALUE)
#define WFI_STORE_PROOF       32 /* bytes: a hash of token and challenge */
#define WFI_STORE_CHALLENGE   32

typedef enum wfi_store_verb {
    WFI_STORE_HELLO = 1, /* value: the proof; only the first message of a connection */
    WFI_STORE_SET,
    WFI_STORE_GET,
    WFI_STORE_ADD,
    WFI_STORE_COMPARE_SET,
    WFI_STORE_DELETE,
    WFI_STORE_COUNT,
    WFI_STORE_N_VERBS
} wfi_store_verb;

/* Pointers refer to the message or to memory of the caller. */
typedef struct wfi_store_request {
    wfi_store_verb verb;
    bool has_expected;
    uint32_t n_key, n_value, n_expected;
    int64_t amount;
    const char *key; /* n_key characters without a terminating zero */
    const uint8_t *value, *expected;
} wfi_store_request;

typedef enum wfi_store_result {
    WFI_STORE_DONE,
    WFI_STORE_ABSENT,   /* the key is not set */
    WFI_STORE_DIFFERS,  /* the key has another value */
    WFI_STORE_NO_COUNT, /* add: the value is not a number, or would be too large */
    WFI_STORE_FULL,
    WFI_STORE_NO_ROOM, /* no memory left */
    WFI_STORE_UNKNOWN, /* wrong token */
    WFI_STORE_N_RESULTS
} wfi_store_result;

typedef struct wfi_store_reply {
    wfi_store_result result;
    int64_t number;
    uint32_t n_value;
    const uint8_t *value; /* in the table or the message: until the next request */
} wfi_store_reply;

/* ---- message.c ---- */

bool wfi_store_key_is_good(const char *key, size_t n);
/* Whether the bytes are exactly one request in its valid encoding. */
bool wfi_store_request_read(const uint8_t *bytes, size_t n, wfi_store_request *request_out);
/* Writes at most WFI_STORE_MAX_MESSAGE bytes; returns how many. */
size_t wfi_store_request_write(const wfi_store_request *request, uint8_t *bytes_out);
bool wfi_store_reply_read(const uint8_t *bytes, size_t n, wfi_store_reply *reply_out);
size_t wfi_store_reply_write(const wfi_store_reply *reply, uint8_t *bytes_out);
/* The proof that a client knows the token, which it does not send. */
void wfi_store_prove(const char *token, const uint8_t challenge[WFI_STORE_CHALLENGE],
                     uint8_t proof_out[WFI_STORE_PROOF]);

/* ---- table.c ---- */

typedef struct wfi_store_entry {
    uint32_t n_key, n_value;
    char *key; /* followed by the value, in one block */
} wfi_store_entry;

typedef struct wfi_store_table {
    wf_context *ctx;
    wfi_store_entry *entries;
    size_t n, capacity, n_bytes;
    char number[24]; /* the last result of add, as text */
} wfi_store_table;

void wfi_store_table_init(wfi_store_table *table, wf_context *ctx);
void wfi_store_table_release(wfi_store_table *table);
/* Executes any request except HELLO. */
void wfi_store_table_act(wfi_store_table *table, const wfi_store_request *request,
                         wfi_store_reply *reply_out);

/* ---- kinds ---- */

typedef struct wfi_store_class {
    const char *scheme; /* the beginning of the URL */
    wf_status (*open)(wf_store *store, const wf_store_config *config);
    void (*close)(wf_store *store);
    /* The reply's value lives until the store's next request. */
    wf_status (*act)(wf_store *store, const wfi_store_request *request, int64_t deadline_ms,
                     wfi_store_reply *reply_out);
} wfi_store_class;

extern const wfi_store_class wfi_store_memory;
extern const wfi_store_class wfi_store_file;
extern const wfi_store_class wfi_store_tcp;

struct wf_store {
    wf_context *ctx;
    const wfi_store_class *kind;
    char *url;
    int rank, n_ranks;
    int64_t timeout_ms;
    pthread_mutex_t lock; /* one request at a time */
    void *state;          /* of the kind; NULL until it has opened */
};

/* Sleeps longer each time, from 0.2 to 20 ms; initially *nap_us = 0. */
void wfi_store_nap(int64_t *nap_us);

/* ---- server.c: the table of a tcp store, on a thread ---- */

typedef struct wfi_store_server wfi_store_server;

/* Takes over the listening socket, also on failure. A client that owes half a message, or the
 * token, for longer than `patience_ms` is disconnected. */
wf_status wfi_store_server_start(wf_context *ctx, int listener, const char *token,
                                 int64_t patience_ms, wfi_store_server **server_out);
void wfi_store_server_stop(wfi_store_server *server);
/* Executes a request of rank 0. The reply's value is copied to `value_out`, which has room for
 * WF_STORE_MAX_VALUE. */
void wfi_store_server_act(wfi_store_server *server, const wfi_store_request *request,
                          wfi_store_reply *reply_out, uint8_t *value_out);
/* Executes one message of a connection; the right HELLO sets *is_known. Returns the length of the
 * reply in `reply_bytes`, or 0: the connection has to be closed for the reason *why_out. */
size_t wfi_store_converse(wfi_store_table *table, const char *token,
                          const uint8_t challenge[WFI_STORE_CHALLENGE], bool *is_known,
                          const uint8_t *bytes, size_t n, uint8_t *reply_bytes,
                          const char **why_out);

/* ---- file.c ---- */

#define WFI_STORE_FILE_HEAD 48 /* bytes of a file before its records */
/* Replays records into the table. Returns the bytes of complete records; an incomplete one at the
 * end is left. False: the bytes are not records. */
bool wfi_store_replay(wfi_store_table *table, const uint8_t *bytes, size_t n, size_t *n_read_out);
