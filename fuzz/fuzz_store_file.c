/* The log of a store in a file. What is read twice gives the same table, and only whole records
 * count. */
#include "comm/store/store.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    wfi_store_table table, again;
    size_t n_read = 0, n_again = 0;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    wfi_store_table_init(&table, ctx);
    wfi_store_table_init(&again, ctx);
    bool is_log = wfi_store_replay(&table, bytes, n_bytes, &n_read);
    if (n_read > n_bytes) abort();
    if (is_log && (!wfi_store_replay(&again, bytes, n_read, &n_again) || n_again != n_read ||
                   again.n != table.n || again.n_bytes != table.n_bytes))
        abort();
    wfi_store_table_release(&again);
    wfi_store_table_release(&table);
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    return 0;
}
