#include "execute/gate.h"

#include "comm/transport/transport.h"
#include "execute/issue.h"
#include "program/clock.h"

/* The most copies, by all ranks, that the wire moves at once. */
#define MOST_COPIES 512

_Static_assert(WFI_N_STREAMS <= WFI_CONTROL_STREAMS, "each stream has messages of its own");

wfi_carrier wfi_carrier_of(const wfi_worker *workers, int32_t n_ranks) {
    bool has_host_copies = false, has_wire = false;
    for (int32_t r = 0; r < n_ranks; r++) {
        has_host_copies |= workers[r].has_host_copy;
        has_wire |= workers[r].wire != NULL;
    }
    if (has_wire) return WFI_CARRIER_WIRE;
    if (workers->job && wfi_control_transport(workers->job)) return WFI_CARRIER_MESSAGES;
    return has_host_copies ? WFI_CARRIER_HOST : WFI_CARRIER_NONE;
}

static const wfi_worker *owner_of(const wfi_executor *e, const wfi_location *at) {
    return &e->workers[e->p->blocks[at->reference->block].rank];
}

static char *address(const wfi_executor *e, const wfi_location *at) {
    return (char *)wfi_executor_at(e, at->reference) + at->offset;
}

/* Where messages and other processes find memory of a local rank. */
static char *visible(const wfi_executor *e, const wfi_location *at) {
    const wfi_worker *own = owner_of(e, at);
    char *data = address(e, at);
    return own->has_host_copy ? own->host_copy + (data - own->arenas[WFI_SPACE_DEVICE].base) : data;
}

wf_status wfi_make_copy(const wfi_executor *e, int32_t i, const wfi_far_copy *copy) {
    const wfi_instruction *now = &e->p->instructions[i];
    const wfi_worker *own = &e->workers[now->rank], *owner = owner_of(e, &copy->from);
    wfi_stream_queue *stream = own->streams[now->stream];
    char *to = address(e, &copy->to);
    if (!owner->is_apart)
        return wfi_memory_fetch(stream, to, owner->device, address(e, &copy->from), copy->bytes);
    if (own->wire || !own->has_host_copy) return WF_OK;
    return wfi_memory_fetch(stream, to, NULL, visible(e, &copy->to), copy->bytes);
}

/* ---- gates ---- */

/* The part of this process's rank in a phase. */
typedef struct part {
    const wfi_executor *e;
    int32_t i; /* its instruction */
    uint64_t gate;
    int reads_in; /* the stream that reads, of every reader */
    int n;
} part;

static wf_status copy_to_host(void *self, const wfi_far_copy *copy) {
    const part *p = self;
    const wfi_executor *e = p->e;
    const wfi_worker *owner = owner_of(e, &copy->from);
    if (owner->owner.rank != e->p->instructions[p->i].rank) return WF_OK;
    return wfi_memory_copy(owner->device, owner->streams[e->p->instructions[p->i].stream],
                           visible(e, &copy->from), WFI_SPACE_HOST, address(e, &copy->from),
                           WFI_SPACE_DEVICE, copy->bytes);
}

static wf_status run_gate(void *self, void *argument) {
    const wfi_executor *e = self;
    part p = {.e = e, .i = wfi_argument_instruction(argument)};
    const wfi_worker *own = &e->workers[e->p->instructions[p.i].rank];
    if (!own->has_host_copy || own->wire) return WF_OK;
    wfi_executor_delay(e, p.i);
    return wfi_issue_copies(e, e->first[p.i], wfi_argument_phase(argument), copy_to_host, &p);
}

/* The event of the gate in phase `number` of instruction i. */
static wfi_event gate_of(const wfi_executor *e, int32_t i, int32_t number) {
    bool is_change = wfi_type_of(&e->p->instructions[i])->class == WFI_CLASS_CHANGE;
    return wfi_executor_event(e, i, wfi_issue_n_tasks(e, i) - (is_change ? 2 + 2 * number : 1));
}

/* ---- messages ---- */

static wf_status post(void *self, const wfi_far_copy *copy) {
    part *p = self;
    const wfi_executor *e = p->e;
    const wfi_worker *owner = owner_of(e, &copy->from), *reader = owner_of(e, &copy->to);
    wfi_transport *transport = wfi_control_transport(e->workers->job);
    wfi_route route = {owner->owner.rank, reader->trainer, p->reads_in,
                       (int)e->p->instructions[p->i].stream, p->gate};
    if (reader->is_local)
        return wfi_transport_receive(transport, &route, visible(e, &copy->to), copy->bytes);
    route.peer = reader->owner.rank;
    return owner->is_local
               ? wfi_transport_put(transport, &route, visible(e, &copy->from), copy->bytes)
               : WF_OK;
}

static wf_status move_messages(part *p, wfi_stream_queue *stream, int32_t at, int32_t number) {
    const wfi_transport *transport = wfi_control_transport(p->e->workers->job);
    WF_TRY(wfi_issue_copies(p->e, at, number, post, p));
    WF_TRY(wfi_stream_wait(stream, wfi_transport_arrival(transport, p->reads_in)));
    return wfi_stream_wait(stream, wfi_transport_departure(transport, p->reads_in));
}

/* A stream waits only for bytes, not for other ranks' streams. So a rank waits itself for all of
 * its own instructions that happen before this one by way of other ranks. */
static wf_status await_own(wfi_executor *e, int32_t i) {
    const wf_program *p = e->p;
    const wfi_instruction *now = &p->instructions[i];
    const int32_t *clock = wfi_clock_of(p, i);
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        if (s == (int)now->stream || !clock[s]) continue;
        int32_t last = p->ranks[now->rank].stream[s][clock[s] - 1];
        WF_TRY(wfi_issue_wait(e, i, wfi_executor_event(e, last, 0)));
    }
    return WF_OK;
}

/* ---- a wire between devices ---- */

static wf_status move(void *self, const wfi_far_copy *copy) {
    part *p = self;
    const wfi_worker *owner = owner_of(p->e, &copy->from), *reader = owner_of(p->e, &copy->to);
    wfi_device_wire *wire = p->e->workers[p->e->p->instructions[p->i].rank].wire;
    if (owner != reader && ++p->n > MOST_COPIES) {
        WF_TRY(wfi_device_wire_end(wire));
        WF_TRY(wfi_device_wire_begin(wire));
        p->n = 1;
    }
    if (!owner->is_local && !reader->is_local) return WF_OK;
    char *data = address(p->e, owner->is_local ? &copy->from : &copy->to);
    if (owner == reader) return wfi_device_wire_sum(wire, data, copy->bytes / sizeof(float));
    return wfi_device_wire_move(wire, (owner->is_local ? reader : owner)->owner.rank,
                                owner->is_local, data, copy->bytes);
}

/* That this rank is ready has to be seen by the others before it waits for them here. */
static wf_status run_wire(void *self, void *argument) {
    const wfi_executor *e = self;
    part p = {.e = e, .i = wfi_argument_instruction(argument)};
    const wfi_worker *own = &e->workers[e->p->instructions[p.i].rank];
    wfi_stream_settle(own->wire_stream);
    WF_TRY(wfi_device_wire_begin(own->wire));
    WF_TRY(wfi_issue_copies(e, e->first[p.i], wfi_argument_phase(argument), move, &p));
    return wfi_device_wire_end(own->wire);
}

static wf_status count(void *self, const wfi_far_copy *copy) {
    part *p = self;
    p->n += owner_of(p->e, &copy->from)->is_local || owner_of(p->e, &copy->to)->is_local;
    return WF_OK;
}

static wf_status do_nothing(void *self, void *argument) {
    (void)self, (void)argument;
    return WF_OK;
}

/* Each process reports its gate to the others, and waits for theirs. */
static wf_status move_by_wire(part *p, wfi_stream_queue *stream, int32_t at, int32_t number) {
    const wfi_executor *e = p->e;
    const wfi_worker *own = &e->workers[e->p->instructions[p->i].rank];
    wfi_stream_queue *wire = own->wire_stream;
    WF_TRY(wfi_issue_copies(e, at, number, count, p));
    for (int32_t m = 0; m < e->n_group[p->i]; m++) {
        int32_t k = e->p->order[at + m];
        if (k != p->i && wfi_control_transport(own->job))
            WF_TRY(wfi_control_notify(own->job, own->trainer, e->p->instructions[k].rank,
                                      stream->number, p->gate));
        if (p->n) WF_TRY(wfi_stream_wait(wire, gate_of(e, k, number)));
    }
    if (!p->n) return WF_OK;
    WF_TRY(wfi_stream_push(wire, do_nothing, NULL, NULL));
    WF_TRY(wfi_stream_push(wire, run_wire, (void *)(uintptr_t)e, wfi_argument(p->i, number)));
    return wfi_stream_wait(stream, wfi_stream_record(wire));
}

/* ---- the checker's view ---- */

static wf_status touch_sent(void *self, const wfi_far_copy *copy) {
    const part *p = self;
    if (owner_of(p->e, &copy->from)->owner.rank != p->e->p->instructions[p->i].rank) return WF_OK;
    return wfi_issue_touch(p->e, copy->from.reference, copy->from.offset, copy->bytes, WFI_READ);
}

wf_status wfi_touch_sent(const wfi_executor *e, int32_t i, int32_t number) {
    part p = {.e = e, .i = i};
    if (e->carrier <= WFI_CARRIER_HOST) return WF_OK;
    return wfi_issue_copies(e, e->first[i], number, touch_sent, &p);
}

static int32_t member_of(const wfi_executor *e, int32_t at, int32_t rank) {
    while (e->p->instructions[e->p->order[at]].rank != rank) at++;
    return e->p->order[at];
}

/* The bytes come after the gate of their owner. */
static wf_status order_copy(void *self, const wfi_far_copy *copy) {
    const part *p = self;
    int32_t from = member_of(p->e, p->i, owner_of(p->e, &copy->from)->owner.rank);
    int32_t to = member_of(p->e, p->i, owner_of(p->e, &copy->to)->owner.rank);
    wfi_happens_wait(p->e->happens, to, gate_of(p->e, from, p->n));
    return WF_OK;
}

/* ---- all ---- */

wf_status wfi_issue_gates(wfi_executor *e, int32_t at, int32_t number) {
    static const wfi_work gate = {run_gate, NULL};
    const int32_t *group = e->p->order + at;
    int32_t n = e->n_group[group[0]], own = -1;
    part p = {.e = e, .reads_in = (int)e->p->instructions[group[0]].stream};
    if (e->carrier == WFI_CARRIER_NONE) return WF_OK;
    for (int32_t m = 0; m < n; m++) {
        const wfi_instruction *now = &e->p->instructions[group[m]];
        if (e->workers[now->rank].is_local) own = group[m];
        if (now->kind == WFI_RECEIVE) p.reads_in = (int)now->stream;
        if (e->carrier > WFI_CARRIER_HOST && !number) WF_TRY(await_own(e, group[m]));
        WF_TRY(wfi_issue(e, group[m], number, &gate));
    }
    if (e->happens && e->carrier > WFI_CARRIER_HOST)
        WF_TRY(wfi_issue_copies(e, at, number, order_copy, &(part){.e = e, .i = at, .n = number}));
    if (own < 0 || e->carrier == WFI_CARRIER_HOST) return WF_OK;
    wfi_event begins = gate_of(e, own, number);
    p.i = own;
    p.gate = begins.epoch;
    return (e->carrier == WFI_CARRIER_WIRE ? move_by_wire : move_messages)(&p, begins.stream, at,
                                                                           number);
}
