/* Instructions in which several ranks take part.
 *
 * No thread blocks to wait for another: the parts of a transfer are tasks on the ranks' streams,
 * ordered by events. A receive copies from the sender's arena, unless the bytes are carried
 * (gate.h). The phases of a collective are in reduce.c.
 */
#include "execute/issue.h"
#include "program/change.h"

static const wfi_instruction *member(const wfi_executor *e, int32_t first, int32_t m) {
    return &e->p->instructions[e->p->order[first + m]];
}

static wf_status do_nothing(void *self, void *argument) {
    (void)self, (void)argument;
    return WF_OK;
}

/* An empty task that orders others: tasks after it come after all tasks before it. */
static const wfi_work place = {do_nothing, NULL};

/* ---- send and receive ---- */

static wfi_far_copy find_received(const wfi_executor *e, int32_t at) {
    bool sends = member(e, at, 0)->kind == WFI_SEND;
    const wfi_reference *to = member(e, at, sends)->references;
    return (wfi_far_copy){{member(e, at, !sends)->references, 0}, {to, 0}, to->bytes};
}

static wf_status copy_received(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    const wfi_far_copy copy = find_received(e, e->first[i]);
    wfi_executor_delay(e, i);
    wfi_executor_begin(e, i, true);
    wfi_executor_touch(e, copy.to.reference);
    WF_TRY(wfi_make_copy(e, i, &copy));
    wfi_executor_end(e, i, true);
    return wfi_executor_check(e, i);
}

static wf_status run_send(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    wfi_executor_delay(e, i);
    wfi_executor_touch(e, e->p->instructions[i].references);
    return WF_OK;
}

static wf_status touch_received(const wfi_executor *e, int32_t i, int32_t phase) {
    (void)phase;
    const wfi_far_copy copy = find_received(e, e->first[i]);
    if (e->carrier <= WFI_CARRIER_HOST)
        WF_TRY(wfi_issue_touch(e, copy.from.reference, 0, copy.bytes, WFI_READ));
    return wfi_issue_touch(e, copy.to.reference, 0, copy.bytes, WFI_WRITE);
}

static wf_status transfer_pair(wfi_executor *e, int32_t at) {
    static const wfi_work copy = {copy_received, touch_received}, sent = {run_send, wfi_touch_sent};
    int32_t a = e->p->order[at], b = e->p->order[at + 1];
    bool sends = e->p->instructions[a].kind == WFI_SEND;
    int32_t send = sends ? a : b, receive = sends ? b : a;
    WF_TRY(wfi_issue_depends(e, receive, receive));
    WF_TRY(wfi_issue_depends(e, receive, send));
    int32_t n_tasks = wfi_issue_n_tasks(e, send);
    WF_TRY(wfi_issue_wait(e, receive, wfi_executor_event(e, send, n_tasks))); /* earlier sends */
    if (e->carrier) WF_TRY(wfi_issue_depends(e, send, send));
    WF_TRY(wfi_issue_gates(e, at, 0));
    if (e->carrier == WFI_CARRIER_HOST)
        WF_TRY(wfi_issue_wait(e, receive, wfi_executor_event(e, send, 1)));
    WF_TRY(wfi_issue(e, receive, 0, &copy));
    /* The send is also a task of its own stream. So later sends of that stream, to any rank, come
     * after it and after all that it waited for. */
    WF_TRY(wfi_issue_wait(e, send, wfi_executor_event(e, receive, 0)));
    return wfi_issue(e, send, 0, &sent);
}

/* ---- collectives ---- */

/* A member is there, does its part of each phase, and is through. */
static wf_status transfer_all(wfi_executor *e, int32_t at) {
    const int32_t *group = e->p->order + at;
    int32_t n = e->n_group[group[0]], n_phases = wfi_change_n_phases(e->p, member(e, at, 0));
    for (int32_t m = 0; m < n; m++) {
        WF_TRY(wfi_issue_depends(e, group[m], group[m]));
        WF_TRY(wfi_issue(e, group[m], 0, &place));
    }
    for (int32_t number = 0; number < n_phases; number++) {
        int32_t n_left = wfi_issue_n_tasks(e, group[0]) - 1 - (1 + (e->carrier > 0)) * number;
        WF_TRY(wfi_issue_barrier(e, at, n_left));
        WF_TRY(wfi_issue_gates(e, at, number));
        if (e->carrier == WFI_CARRIER_HOST) WF_TRY(wfi_issue_barrier(e, at, n_left - 1));
        WF_TRY(wfi_issue_phase(e, at, number));
    }
    /* No member goes on while another may still read its memory. */
    WF_TRY(wfi_issue_barrier(e, at, 1));
    for (int32_t m = 0; m < n; m++) WF_TRY(wfi_issue(e, group[m], 0, &place));
    return WF_OK;
}

/* ---- both ---- */

int32_t wfi_issue_n_tasks(const wfi_executor *e, int32_t i) {
    const wfi_instruction *now = &e->p->instructions[i];
    bool is_change = wfi_type_of(now)->class == WFI_CLASS_CHANGE;
    int32_t n_gates = e->carrier && (is_change || wfi_type_of(now)->class == WFI_CLASS_TRANSFER);
    return is_change ? (1 + n_gates) * wfi_change_n_phases(e->p, now) + 2 : 1 + n_gates;
}

static bool is_pair(const wfi_executor *e, int32_t at) {
    return wfi_type_of(member(e, at, 0))->class == WFI_CLASS_TRANSFER;
}

wf_status wfi_issue_copies(const wfi_executor *e, int32_t at, int32_t number, wfi_far_copy_fn *fn,
                           void *self) {
    if (!is_pair(e, at)) return wfi_reduce_copies(e, at, number, fn, self);
    const wfi_far_copy copy = find_received(e, at);
    return fn(self, &copy);
}

wf_status wfi_issue_transfer(wfi_executor *e, int32_t at) {
    return is_pair(e, at) ? transfer_pair(e, at) : transfer_all(e, at);
}
