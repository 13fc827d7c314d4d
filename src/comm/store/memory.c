/* A store within the process. */
#include "comm/store/store.h"

static wf_status memory_open(wf_store *store, const wf_store_config *config) {
    (void)config;
    wfi_store_table *table = wfi_alloc(store->ctx, 1, sizeof *table, "a store");
    if (!table) return WF_NO_MEMORY;
    wfi_store_table_init(table, store->ctx);
    store->state = table;
    return WF_OK;
}

static void memory_close(wf_store *store) {
    wfi_store_table_release(store->state);
    wfi_free(store->ctx, store->state);
}

static wf_status memory_act(wf_store *store, const wfi_store_request *request, int64_t deadline_ms,
                            wfi_store_reply *reply_out) {
    (void)deadline_ms;
    wfi_store_table_act(store->state, request, reply_out);
    return WF_OK;
}

const wfi_store_class wfi_store_memory = {"memory:", memory_open, memory_close, memory_act};
