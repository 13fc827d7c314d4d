/* Instructions in which several ranks take part.
 *
 * No thread blocks to wait for another: the parts of a transfer are tasks on the ranks' streams,
 * ordered by events. A receive copies from the sender's arena, unless a wire brings the bytes
 * (reads.h). The phases of a collective are in reduce.c.
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

/* ---- copies ---- */

static char *address(const wfi_executor *e, const wfi_location *at) {
    return (char *)wfi_executor_at(e, at->reference) + at->offset;
}

wf_status wfi_issue_fetch(const wfi_executor *e, int32_t i, const wfi_location *from,
                          const wfi_location *to, size_t bytes) {
    const wfi_instruction *now = &e->p->instructions[i];
    const wfi_worker *own = &e->workers[now->rank];
    const wfi_worker *owner = &e->workers[e->p->blocks[from->reference->block].rank];
    wfi_stream_queue *stream = own->streams[now->stream];
    char *data = address(e, to);
    if (!owner->is_apart)
        return wfi_memory_fetch(stream, data, owner->device, address(e, from), bytes);
    if (own->wire || !own->bounce) return WF_OK;
    const char *mirror = own->bounce_buffer + (data - own->arenas[WFI_SPACE_DEVICE].base);
    return wfi_memory_fetch(stream, data, NULL, mirror, bytes);
}

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
    wfi_executor_begin(e, i, true);
    wfi_executor_touch(e, &receive->references[0]);
    WF_TRY(wfi_issue_fetch(e, i, &(wfi_location){send->references, 0},
                           &(wfi_location){receive->references, 0}, receive->references->bytes));
    wfi_executor_end(e, i, true);
    return wfi_executor_check(e, i);
}

static wf_status run_send(void *self, void *argument) {
    wfi_executor_delay(self, (int32_t)(intptr_t)argument);
    return WF_OK;
}

static wf_status touch_received(const wfi_executor *e, int32_t i, int32_t phase) {
    (void)phase;
    const wfi_location from = {send_of(e, i)->references, 0};
    const wfi_location to = {e->p->instructions[i].references, 0};
    return wfi_issue_copy(e, &from, &to, to.reference->bytes);
}

static wf_status transfer_pair(wfi_executor *e, int32_t at) {
    static const wfi_work copy = {copy_received, touch_received}, sent = {run_send, NULL};
    int32_t a = e->p->order[at], b = e->p->order[at + 1];
    bool sends = e->p->instructions[a].kind == WFI_SEND;
    int32_t send = sends ? a : b, receive = sends ? b : a;
    WF_TRY(wfi_issue_depends(e, receive, receive));
    WF_TRY(wfi_issue_depends(e, receive, send));
    WF_TRY(wfi_issue_wait(e, receive, wfi_executor_event(e, send, 1))); /* earlier sends */
    wfi_reads_phase(e->reads);
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
        WF_TRY(wfi_issue_barrier(e, at, n_phases - number + 1));
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
    return is_change ? wfi_change_n_phases(e->p, now) + 2 : 1;
}

wf_status wfi_issue_transfer(wfi_executor *e, int32_t at) {
    bool is_pair = wfi_type_of(member(e, at, 0))->class == WFI_CLASS_TRANSFER;
    return is_pair ? transfer_pair(e, at) : transfer_all(e, at);
}
