#include "workers/channel.h"

static int64_t n_words(const wfi_channel *c) {
    return (int64_t)(c->bytes / sizeof(int32_t));
}

/* Frees the handle of a call that is done. */
static wf_status finish(wf_work **work) {
    wf_work *done = *work;
    *work = NULL;
    return done ? wf_work_wait(done) : WF_OK;
}

wf_status wfi_channel_send(wfi_channel *c, wfi_message what, bool counts) {
    *(what == WFI_MESSAGE_ASKS ? &c->n_sent : &c->n_answered) += c->crosses && counts;
    if (!c->group) {
        __atomic_store_n(&c->newest, (int)what, __ATOMIC_RELEASE);
        return WF_OK;
    }
    WF_TRY(finish(&c->sending)); /* it was done before the other side's message came */
    return wf_group_send(c->group, c->buffer, n_words(c), WF_I32, c->peer, &c->sending);
}

wf_status wfi_channel_expect(wfi_channel *c) {
    if (!c->group) return WF_OK;
    return wf_group_recv(c->group, c->buffer, n_words(c), WF_I32, c->peer, &c->receiving);
}

wf_status wfi_channel_has(wfi_channel *c, wfi_message what, bool *has_out) {
    *has_out = c->group ? c->receiving && wf_work_is_done(c->receiving)
                        : __atomic_load_n(&c->newest, __ATOMIC_ACQUIRE) == (int)what;
    return *has_out ? finish(&c->receiving) : WF_OK;
}

wf_status wfi_channel_settle(wfi_channel *c) {
    if (!c->group) return WF_OK; /* and both threads of the process may be here */
    wf_status sent = finish(&c->sending), received = finish(&c->receiving); /* both handles */
    return sent != WF_OK ? sent : received;
}
