#include "workers/channel.h"

enum { IDLE, ASKED, ANSWERED };

static void set_state(wfi_channel *c, int state) {
    __atomic_store_n(&c->state, state, __ATOMIC_RELEASE);
}

static bool has_state(const wfi_channel *c, int state) {
    return __atomic_load_n(&c->state, __ATOMIC_ACQUIRE) == state;
}

static int64_t n_words(const wfi_channel *c) {
    return (int64_t)(c->bytes / sizeof(int32_t));
}

/* Frees the handle of a call that is done. */
static wf_status finish(wf_work **work) {
    wf_work *done = *work;
    *work = NULL;
    return done ? wf_work_wait(done) : WF_OK;
}

static wf_status start_send(wfi_channel *c) {
    WF_TRY(finish(&c->sending)); /* it was done before the answer to it came */
    return wf_group_send(c->group, c->buffer, n_words(c), WF_I32, c->peer, &c->sending);
}

static wf_status start_receive(wfi_channel *c) {
    return wf_group_recv(c->group, c->buffer, n_words(c), WF_I32, c->peer, &c->receiving);
}

static wf_status has_received(wfi_channel *c, bool *is_out) {
    *is_out = c->receiving && wf_work_is_done(c->receiving);
    return *is_out ? finish(&c->receiving) : WF_OK;
}

wf_status wfi_channel_send(wfi_channel *c, bool counts) {
    c->n_sent += c->crosses && counts;
    if (c->group) return start_send(c);
    set_state(c, ASKED);
    return WF_OK;
}

wf_status wfi_channel_await(wfi_channel *c) {
    return c->group ? start_receive(c) : WF_OK;
}

wf_status wfi_channel_is_answered(wfi_channel *c, bool *is_out) {
    if (c->group) return has_received(c, is_out);
    *is_out = has_state(c, ANSWERED);
    if (*is_out) set_state(c, IDLE);
    return WF_OK;
}

wf_status wfi_channel_expect(wfi_channel *c) {
    return c->group ? start_receive(c) : WF_OK;
}

wf_status wfi_channel_is_asked(wfi_channel *c, bool *is_out) {
    if (c->group) return has_received(c, is_out);
    *is_out = has_state(c, ASKED);
    return WF_OK;
}

wf_status wfi_channel_answer(wfi_channel *c, bool counts) {
    c->n_answered += c->crosses && counts;
    if (c->group) return start_send(c);
    set_state(c, ANSWERED);
    return WF_OK;
}

wf_status wfi_channel_settle(wfi_channel *c) {
    if (!c->group) return WF_OK; /* and both threads of the process may be here */
    wf_status sent = finish(&c->sending), received = finish(&c->receiving); /* both handles */
    return sent != WF_OK ? sent : received;
}
