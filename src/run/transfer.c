/* Instructions in which several ranks take part, over memory that all of them see.
 *
 * Nobody stops a thread to wait for another: the parts of a transfer are tasks on the
 * ranks' streams, ordered by events. A receive copies from the sender's arena. What
 * members of a collective do is in reduce.c.
 */
#include "run/issue.h"

static const wfi_instruction *member(const wfi_executor *e, int32_t first, int32_t m) {
    return &e->p->instructions[e->p->order[first + m]];
}

static wf_status do_nothing(void *self, void *argument) {
    (void)self, (void)argument;
    return WF_OK;
}

/* Work only for the sake of its place: what follows it follows all that came before. */
static const wfi_work place = {do_nothing, NULL};

/* ---- send and receive ---- */

static const wfi_instruction *send_of(const wfi_executor *e, int32_t receive) {
    int32_t k = e->first[receive];
    return member(e, k, member(e, k, 0)->kind == WFI_SEND ? 0 : 1);
}

static wf_status copy_received(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    const wfi_instruction *receive = &e->p->instructions[i], *send = send_of(e, i);
    wfi_executor_delay(e, i);
    wfi_executor_begin(e, i);
    void *to = wfi_executor_touch(e, &receive->references[0]);
    const wfi_worker *w = &e->workers[receive->rank];
    WF_TRY(wfi_memory_copy(w->device, w->streams[receive->stream], to, WFI_SPACE_DEVICE,
                           wfi_executor_touch(e, &send->references[0]), WFI_SPACE_DEVICE,
                           receive->references[0].bytes));
    wfi_executor_end(e, i);
    return wfi_executor_check(e, i);
}

static wf_status touch_received(const wfi_executor *e, int32_t i) {
    const wfi_reference *from = &send_of(e, i)->references[0];
    const wfi_reference *to = &e->p->instructions[i].references[0];
    WF_TRY(wfi_issue_touch(e, from, 0, from->bytes, WFI_READ));
    return wfi_issue_touch(e, to, 0, to->bytes, WFI_WRITE);
}

static wf_status transfer_pair(wfi_executor *e, int32_t at) {
    static const wfi_work copy = {copy_received, touch_received};
    int32_t a = e->p->order[at], b = e->p->order[at + 1];
    bool sends = e->p->instructions[a].kind == WFI_SEND;
    int32_t send = sends ? a : b, receive = sends ? b : a;
    WF_TRY(wfi_issue_depends(e, receive, receive));
    WF_TRY(wfi_issue_depends(e, receive, send));
    WF_TRY(wfi_issue_wait(e, receive, wfi_issue_event(e, send))); /* earlier sends go first */
    WF_TRY(wfi_issue(e, receive, &copy));
    e->done[receive] = wfi_issue_event(e, receive);
    /* The send is a task of its own stream, too: what comes later there, to whatever
     * rank, may count on it and on all that it waited for. */
    WF_TRY(wfi_issue_wait(e, send, e->done[receive]));
    WF_TRY(wfi_issue(e, send, &place));
    e->done[send] = wfi_issue_event(e, send);
    return WF_OK;
}

/* ---- collectives ---- */

/* Each member does `work` after every member has come this far. */
static wf_status issue_all(wfi_executor *e, int32_t at, const wfi_work *work) {
    WF_TRY(wfi_issue_barrier(e, at));
    for (int32_t m = 0; m < e->n_group[e->p->order[at]]; m++)
        WF_TRY(wfi_issue(e, e->p->order[at + m], work));
    return WF_OK;
}

static wf_status transfer_all(wfi_executor *e, int32_t at) {
    int32_t n = e->n_group[e->p->order[at]];
    for (int32_t m = 0; m < n; m++) {
        int32_t k = e->p->order[at + m];
        WF_TRY(wfi_issue_depends(e, k, k));
        WF_TRY(wfi_issue(e, k, &place)); /* "I am here" */
    }
    WF_TRY(wfi_issue_reduce(e, at));
    /* Nobody goes on while another may still read its memory. */
    WF_TRY(issue_all(e, at, &place));
    for (int32_t m = 0; m < n; m++) {
        int32_t k = e->p->order[at + m];
        e->done[k] = wfi_issue_event(e, k);
    }
    return WF_OK;
}

wf_status wfi_executor_transfer(wfi_executor *e, int32_t at) {
    bool is_pair = e->p->instructions[e->p->order[at]].stream != WFI_STREAM_REDUCE;
    return is_pair ? transfer_pair(e, at) : transfer_all(e, at);
}
