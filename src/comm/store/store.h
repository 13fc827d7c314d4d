/* A store's insides: one table and one message, used by all kinds. Private to src/comm.
 *
 * Each operation is a request that gets its reply at once; who has to wait requests again, so a
 * server keeps nothing about who waits for what. Requests and replies have one form in bytes, which
 * is that of the connection and, with the length in front, that of the file.
 */
#ifndef WFI_STORE_H
#define WFI_STORE_H

#include "base/base.h"

#include <pthread.h>
#include <weft/store.h>

#define WFI_STORE_MAX_KEYS  4096
#define WFI_STORE_MAX_BYTES (16u << 20) /* of all keys and values */
#define WFI_STORE_HEAD      24          /* bytes of a message before key and values */
/* No message is longer: a key, a value and an expected one. */
#define WFI_STORE_MAX_MESSAGE (WFI_STORE_HEAD + WF_STORE_MAX_KEY + 2 * WF_STORE_MAX_VALUE)
#define WFI_STORE_PROOF       32 /* bytes: a hash of token and challenge */
#define WFI_STORE_CHALLENGE   32

typedef enum wfi_store_verb {
    WFI_STORE_HELLO = 1, /* value: the proof; the first message of a connection, and only that */
    WFI_STORE_SET,
    WFI_STORE_GET,
    WFI_STORE_ADD,
    WFI_STORE_COMPARE_SET,
    WFI_STORE_DELETE,
    WFI_STORE_COUNT,
    WFI_STORE_N_VERBS
} wfi_store_verb;

/* What points, points into the message or to the caller's. */
typedef struct wfi_store_request {
    wfi_store_verb verb;
    bool has_expected;
    uint32_t n_key, n_value, n_expected;
    int64_t amount;
    const char *key; /* n_key characters, no zero byte behind them */
    const uint8_t *value, *expected;
} wfi_store_request;

typedef enum wfi_store_result {
    WFI_STORE_DONE,
    WFI_STORE_ABSENT,   /* the key is not set */
    WFI_STORE_DIFFERS,  /* ... has another value */
    WFI_STORE_NO_COUNT, /* add: the value is no number, or would be too large */
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
/* Whether the bytes are a request, all of them, in the one form that it has. */
bool wfi_store_request_read(const uint8_t *bytes, size_t n, wfi_store_request *request_out);
/* `bytes_out` has room for WFI_STORE_MAX_MESSAGE; returns how many it became. */
size_t wfi_store_request_write(const wfi_store_request *request, uint8_t *bytes_out);
bool wfi_store_reply_read(const uint8_t *bytes, size_t n, wfi_store_reply *reply_out);
size_t wfi_store_reply_write(const wfi_store_reply *reply, uint8_t *bytes_out);
/* Four bytes, low ones first. */
void wfi_store_put_u32(uint8_t *bytes, uint32_t value);
uint32_t wfi_store_get_u32(const uint8_t *bytes);
/* What shows that one knows the token without saying it. */
void wfi_store_prove(const char *token, const uint8_t challenge[WFI_STORE_CHALLENGE],
                     uint8_t proof_out[WFI_STORE_PROOF]);

/* ---- table.c ---- */

typedef struct wfi_store_entry {
    uint32_t n_key, n_value;
    char *key; /* value behind it, in one block */
} wfi_store_entry;

typedef struct wfi_store_table {
    wf_context *ctx;
    wfi_store_entry *entries;
    size_t n, capacity, n_bytes;
    char number[24]; /* what add has made last, as text */
} wfi_store_table;

void wfi_store_table_init(wfi_store_table *table, wf_context *ctx);
void wfi_store_table_release(wfi_store_table *table);
/* Any request but HELLO. */
void wfi_store_table_act(wfi_store_table *table, const wfi_store_request *request,
                         wfi_store_reply *reply_out);

/* ---- kinds ---- */

typedef struct wfi_store_class {
    const char *scheme; /* what the URL begins with */
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

/* Sleeps a little longer each time, from 0.2 to 20 ms; begins with *nap_us = 0. */
void wfi_store_nap(int64_t *nap_us);

/* ---- server.c: the table of a tcp store, on a thread ---- */

typedef struct wfi_store_server wfi_store_server;

/* Takes over the listening socket, also if it fails. Who owes half a message, or the token, for
 * longer than `patience_ms` is cut off. */
wf_status wfi_store_server_start(wf_context *ctx, int listener, const char *token,
                                 int64_t patience_ms, wfi_store_server **server_out);
void wfi_store_server_stop(wfi_store_server *server);
/* The same as a message from outside; the reply's value is copied to `value_out`, which has room
 * for WF_STORE_MAX_VALUE. */
void wfi_store_server_act(wfi_store_server *server, const wfi_store_request *request,
                          wfi_store_reply *reply_out, uint8_t *value_out);
/* One message of a connection; *is_known becomes true with the right HELLO. Returns the length
 * of the reply in `reply_bytes`, or 0: the connection has to be closed, *why_out says why. */
size_t wfi_store_converse(wfi_store_table *table, const char *token,
                          const uint8_t challenge[WFI_STORE_CHALLENGE], bool *is_known,
                          const uint8_t *bytes, size_t n, uint8_t *reply_bytes,
                          const char **why_out);

/* ---- file.c ---- */

#define WFI_STORE_FILE_HEAD 48 /* bytes of a file before its records */
/* Reads records into the table. Returns how many bytes were whole records; a torn one at the
 * end is left. False: they are no records. */
bool wfi_store_replay(wfi_store_table *table, const uint8_t *bytes, size_t n, size_t *n_read_out);

#endif
