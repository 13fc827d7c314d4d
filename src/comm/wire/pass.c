/* send and recv: the receiver copies the sender's buffer, whole or window by window, and the sender
 * waits for the completion. */
#include "comm/wire/memory.h"

#include <string.h>

enum { SENT_HANDLE, SENT_N_ELEM, SENT_DTYPE, SENT_IS_WINDOW };

static size_t chunk_bytes(const wfi_operation *o, size_t at, bool is_window) {
    size_t left = (size_t)o->n_elem * wf_dtype_bytes(o->dtype) - at;
    return is_window && left > WFI_WINDOW_BYTES ? WFI_WINDOW_BYTES : left;
}

static wf_status send_all(wfi_memory *m, const wfi_operation *o) {
    wfi_group_channel *c = wfi_memory_channel(m, m->group->rank, o->root);
    size_t bytes = (size_t)o->n_elem * wf_dtype_bytes(o->dtype), at = 0, n;
    wfi_handle handle = bytes ? m->find(m, o->in, bytes) : 0;
    bool is_window = handle == WFI_HANDLE_NONE;
    if (is_window) WF_TRY(wfi_memory_make_window(m));
    do {
        n = chunk_bytes(o, at, is_window);
        if (is_window) memcpy(m->window, (const char *)o->in + at, n);
        c->sent.message[SENT_HANDLE] = handle;
        c->sent.message[SENT_N_ELEM] = (uint64_t)o->n_elem;
        c->sent.message[SENT_DTYPE] = o->dtype;
        c->sent.message[SENT_IS_WINDOW] = is_window;
        uint64_t number = c->sent.epoch + 1;
        __atomic_store_n(&c->sent.epoch, number, __ATOMIC_SEQ_CST);
        if (m->messages)
            WF_TRY(m->messages->send_channel(m, o->root, true));
        else
            wfi_shared_epoch_wake(&c->sent);
        WF_TRY(wfi_memory_wait_for(m, &c->received, number, o->root, &(wfi_memory_deadline){0}));
        if (m->messages && n) WF_TRY(m->messages->pass(m, o));
        at += n;
    } while (at < bytes);
    return WF_OK;
}

/* Without shared memory the receiver acknowledges the call, then receives the bytes. */
static wf_status take(wfi_memory *m, wfi_group_channel *c, uint64_t number,
                      const wfi_operation *o) {
    __atomic_store_n(&c->received.epoch, number, __ATOMIC_SEQ_CST);
    WF_TRY(m->messages->send_channel(m, o->root, false));
    return o->n_elem ? m->messages->pass(m, o) : WF_OK;
}

static wf_status receive_all(wfi_memory *m, const wfi_operation *o) {
    wfi_group_channel *c = wfi_memory_channel(m, o->root, m->group->rank);
    size_t bytes = (size_t)o->n_elem * wf_dtype_bytes(o->dtype), at = 0, n;
    do {
        uint64_t number = c->received.epoch + 1;
        char *from = NULL;
        WF_TRY(wfi_memory_wait_for(m, &c->sent, number, o->root, &(wfi_memory_deadline){0}));
        const uint64_t *message = c->sent.message;
        bool is_window = message[SENT_IS_WINDOW];
        if (message[SENT_N_ELEM] != (uint64_t)o->n_elem || message[SENT_DTYPE] != o->dtype)
            return wfi_memory_mismatch(m, o->root);
        n = chunk_bytes(o, at, is_window);
        if (m->messages) return take(m, c, number, o);
        if (is_window)
            WF_TRY(wfi_memory_window(m, o->root, WFI_WINDOW_IN, &from));
        else if (n)
            WF_TRY(m->resolve(m, o->root, message[SENT_HANDLE], &from));
        WF_TRY(wfi_memory_touch(m));
        if (n) memcpy((char *)o->out + at, from, n);
        wfi_memory_let_go(m);
        __atomic_store_n(&c->received.epoch, number, __ATOMIC_SEQ_CST);
        wfi_shared_epoch_wake(&c->received);
        at += n;
    } while (at < bytes);
    return WF_OK;
}

wf_status wfi_memory_pass(wf_group *g, const wfi_operation *o) {
    wfi_memory *m = g->state;
    bool sends = o->collective == WFI_COLLECTIVE_SEND;
    WF_TRY(wfi_memory_check(m));
    wfi_call_write(&m->segment->members[g->rank].call, o);
    wf_status status = sends ? send_all(m, o) : receive_all(m, o);
    if (status != WF_OK) return wfi_memory_fail(m, status);
    uint64_t bytes = (uint64_t)o->n_elem * wf_dtype_bytes(o->dtype);
    wfi_group_add_traffic(g, sends ? (wf_traffic){bytes, 0} : (wf_traffic){0, bytes});
    return WF_OK;
}
