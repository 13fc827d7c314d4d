/* Stores of each kind, with two handles, and a folder for files. */
#pragma once

#include "comm/store/store.h"
#include "test.h"

#include <unistd.h>

typedef enum store_kind { MEMORY, FILE_STORE, TCP, N_KINDS } store_kind;
static char folder[64];

static inline wf_store_config config_of(const char *url, int rank, int n_ranks) {
    wf_store_config config = WF_STORE_CONFIG_INIT;
    config.url = url;
    config.rank = rank;
    config.n_ranks = n_ranks;
    return config;
}

static inline const char *file_url(const char *name) {
    static char url[128];
    snprintf(url, sizeof url, "file://%s/%s", folder, name);
    return url;
}

static inline void close_two(wf_store *two[2]) {
    if (two[1] != two[0]) wf_store_close(two[1]);
    wf_store_close(two[0]);
}

/* A store with two handles; those of memory are one. */
static inline wf_status try_two(wf_context *ctx, store_kind kind, int64_t timeout_ms,
                                wf_store *two[2]) {
    const char *url = kind == MEMORY       ? "memory:"
                      : kind == FILE_STORE ? file_url("two")
                                           : "tcp://127.0.0.1:0";
    two[0] = two[1] = NULL;
    for (int rank = 0; rank < 2; rank++) {
        wf_store_config config = config_of(url, rank, 2);
        config.timeout_ms = timeout_ms;
        if (kind == TCP && rank) config.url = wf_store_url(two[0]);
        if (kind == MEMORY && rank) {
            two[1] = two[0];
            continue;
        }
        wf_status status = wf_store_open(ctx, &config, &two[rank]);
        if (status == WF_OK) continue;
        wf_store_close(two[0]);
        return status;
    }
    return WF_OK;
}

static inline void open_two(wf_context *ctx, store_kind kind, int64_t timeout_ms,
                            wf_store *two[2]) {
    TEST_OK(ctx, try_two(ctx, kind, timeout_ms, two));
}

static inline int make_folder(void **state) {
    snprintf(folder, sizeof folder, "/tmp/weft-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* Fails if a store has left its file. */
static inline int remove_folder(void **state) {
    return rmdir(folder);
}
