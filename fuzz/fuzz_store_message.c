/* What strangers may send to the port of a tcp store: a stream of messages, cut where its lengths
 * say. A request that is accepted has one form; a table keeps to its bounds, whatever is asked. */
#include "base/bytes.h"
#include "comm/store/store.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void check_form(const uint8_t *bytes, size_t n, uint8_t *again) {
    wfi_store_request r;
    wfi_store_reply reply;
    if (wfi_store_request_read(bytes, n, &r) &&
        (wfi_store_request_write(&r, again) != n || memcmp(again, bytes, n) != 0))
        abort();
    if (wfi_store_reply_read(bytes, n, &reply) && wfi_store_reply_write(&reply, again) != n)
        abort();
}

static void converse(wf_context *ctx, const uint8_t *bytes, size_t n_bytes, bool is_known) {
    static uint8_t out[WFI_STORE_MAX_MESSAGE];
    const uint8_t challenge[WFI_STORE_CHALLENGE] = {1};
    wfi_store_table table;
    wfi_store_table_init(&table, ctx);
    for (size_t at = 0; n_bytes - at >= 4;) {
        const char *why = NULL;
        size_t n = wfi_get_number(bytes + at, 4);
        if (n > n_bytes - at - 4) break;
        check_form(bytes + at + 4, n, out);
        bool was_known = is_known;
        size_t n_out =
            wfi_store_converse(&table, "token", challenge, &is_known, bytes + at + 4, n, out, &why);
        if (!n_out && !why) abort(); /* no end without a reason */
        if (n_out > WFI_STORE_MAX_MESSAGE || table.n > WFI_STORE_MAX_KEYS) abort();
        if (!was_known && table.n) abort(); /* a stranger has changed something */
        if (!n_out) break;
        at += 4 + n;
    }
    wfi_store_table_release(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    converse(ctx, bytes, n_bytes, false);
    converse(ctx, bytes, n_bytes, true);
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    return 0;
}
