/* mpi: ranks that share no memory. Each has a copy of the group's segment, which messages of the
 * other ranks update. Buffers are sent phase by phase (mpi_phase.c). The job's transport carries
 * all messages and makes the calls of MPI. */
#include "comm/wire/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages between ranks ---- */

typedef enum message_kind { ARRIVED, SENT, RECEIVED, FAILED, LEFT } message_kind;

typedef struct group_message {
    int32_t kind, status;
    uint64_t epoch, message[3];
    wfi_group_call call; /* the rank's current call */
    char sentence[WFI_SENTENCE_BYTES];
} group_message;

_Static_assert(sizeof(group_message) <= WFI_TRANSPORT_BYTES, "it fits into a message");

static wf_status send_message(const wfi_memory *m, int32_t rank, const group_message *w) {
    const wfi_mpi_group *g = wfi_mpi_of(m);
    size_t bytes = w->kind == FAILED ? sizeof *w : offsetof(group_message, sentence);
    return wfi_transport_send(g->transport, g->known.serial, m->group->job_rank[rank], w, bytes);
}

static wf_status send_to_all(const wfi_memory *m, const group_message *w) {
    wf_status status = WF_OK;
    for (int32_t k = 0; k < m->group->n && status == WF_OK; k++)
        if (k != m->group->rank) status = send_message(m, k, w);
    return status;
}

static wf_status send_arrival(wfi_memory *m) {
    const wfi_member *own = &m->segment->members[m->group->rank];
    const wfi_shared_epoch *arrival = &own->arrival[m->epoch & 1];
    group_message w = {.kind = ARRIVED, .epoch = m->epoch, .call = own->call};
    memcpy(w.message, arrival->message, sizeof w.message);
    return send_to_all(m, &w);
}

static wf_status send_channel(wfi_memory *m, int32_t rank, bool is_sender) {
    int32_t own = m->group->rank;
    const wfi_shared_epoch *e = is_sender ? &wfi_memory_channel(m, own, rank)->sent
                                          : &wfi_memory_channel(m, rank, own)->received;
    group_message w = {.kind = is_sender ? SENT : RECEIVED,
                       .epoch = e->epoch,
                       .call = m->segment->members[own].call};
    memcpy(w.message, e->message, sizeof w.message);
    return send_message(m, rank, &w);
}

/* Sent once: a rank that receives the failure fails as well. */
static void send_failure(wfi_memory *m) {
    wfi_mpi_group *g = wfi_mpi_of(m);
    const wfi_failure_entry *first = wfi_failure_first(&m->segment->failure);
    if (g->has_sent_failure || !first) return;
    group_message w = {.kind = FAILED, .status = first->status};
    g->has_sent_failure = true;
    snprintf(w.sentence, sizeof w.sentence, "%s", first->sentence);
    (void)send_to_all(m, &w);
}

/* ---- receiving: on the progress thread ---- */

static void store_epoch(wfi_shared_epoch *e, const group_message *w) {
    memcpy(e->message, w->message, sizeof w->message);
    __atomic_store_n(&e->epoch, w->epoch, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(e);
}

static void copy_call(wfi_group_call *to, const wfi_group_call *from) {
    for (int k = 0; k < WFI_CALL_WORDS; k++)
        __atomic_store_n(&to->word[k], from->word[k], __ATOMIC_RELAXED);
}

static void receive_message(void *self, int job_rank, const void *data) {
    wfi_memory *m = self;
    const wf_group *g = m->group;
    const group_message *w = data;
    int32_t rank = 0;
    while (rank < g->n && g->job_rank[rank] != job_rank) rank++;
    if (rank == g->n) return;
    wfi_member *member = &m->segment->members[rank];
    if (w->kind <= RECEIVED) copy_call(&member->call, &w->call);
    switch ((message_kind)w->kind) {
    case ARRIVED:
        store_epoch(&member->arrival[w->epoch & 1], w);
        break;
    case SENT:
        store_epoch(&wfi_memory_channel(m, rank, g->rank)->sent, w);
        break;
    case RECEIVED:
        store_epoch(&wfi_memory_channel(m, g->rank, rank)->received, w);
        break;
    case FAILED:
        wfi_failure_receive(&m->segment->failure, w->status, w->sentence);
        break;
    case LEFT:
        __atomic_store_n(&member->has_left, 1, __ATOMIC_RELEASE);
        break;
    }
}

/* ---- buffers: each rank accesses only its own ---- */

static wfi_handle find(wfi_memory *m, const void *data, size_t bytes) {
    (void)m, (void)data, (void)bytes;
    return 0;
}

static wf_status resolve(wfi_memory *m, int32_t rank, wfi_handle handle, char **data_out) {
    (void)m, (void)rank, (void)handle;
    *data_out = NULL;
    return WF_OK;
}

/* ---- the group ---- */

static const wfi_message_ops messages = {
    .send_arrival = send_arrival,
    .send_channel = send_channel,
    .send_failure = send_failure,
    .begin = wfi_mpi_begin,
    .end = wfi_mpi_end,
    .find = wfi_mpi_find,
    .engine = wfi_mpi_engine,
    .pass = wfi_mpi_pass,
    .awaited = wfi_mpi_awaited,
};

static bool reaches(const wf_group *g) {
    return wfi_control_transport(g->job) != NULL;
}

/* The first slot that is free on all ranks of the group. */
static int32_t choose_slot(const wf_group *g, const wfi_bootstrap *bootstrap) {
    for (int32_t slot = 0; slot < WFI_TRANSPORT_SLOTS; slot++) {
        uint64_t bit = UINT64_C(1) << (slot % 64), taken = 0;
        for (int32_t k = 0; k < g->n; k++)
            taken |= (uint64_t)bootstrap->all[bootstrap->place[k]][slot / 64] & bit;
        if (!taken) return slot;
    }
    return -1;
}

static void free_group(wf_context *ctx, wfi_mpi_group *g) {
    wfi_free(ctx, g->steps);
    wfi_free(ctx, g->brought);
    wfi_free(ctx, g);
}

static wf_status enter(wfi_memory *m, int32_t slot, uint64_t serial) {
    wfi_transport *transport = wfi_control_transport(m->group->job);
    wfi_mpi_group *g = wfi_alloc(m->group->ctx, 1, sizeof *g, "a group's wire");
    if (!g) return WF_NO_MEMORY;
    *g = (wfi_mpi_group){.transport = transport,
                         .known = {.serial = serial, .receive = receive_message, .self = m},
                         .slot = slot};
    size_t n = (size_t)m->group->n;
    g->steps = wfi_alloc(m->group->ctx, n + 1, sizeof *g->steps, "a group's wire");
    if (!g->steps) {
        free_group(m->group->ctx, g);
        return WF_NO_MEMORY;
    }
    wfi_transport_slots *slots = wfi_transport_slots_of(transport);
    slots->taken[slot / 64] |= UINT64_C(1) << (slot % 64);
    g->bounce = &slots->bounce[slot];
    m->find = find;
    m->resolve = resolve;
    m->own = g;
    m->messages = &messages;
    m->moved = g->known.done;

    wfi_transport_enter(transport, &g->known);
    return WF_OK;
}

static wf_status open_group(wf_group *g, wfi_bootstrap *bootstrap) {
    wfi_transport_slots *slots = wfi_transport_slots_of(wfi_control_transport(g->job));
    int64_t own[WFI_CONTROL_NUMBERS];
    _Static_assert(sizeof slots->taken < sizeof own, "a card has room for the slots and a serial");
    memcpy(own, slots->taken, sizeof slots->taken);
    own[WFI_CONTROL_NUMBERS - 1] =
        (int64_t)((uint64_t)wf_job_rank(g->job) << 48 | ++slots->n_groups);
    WF_TRY(bootstrap->all_gather(bootstrap->self, own, bootstrap->all));
    int32_t slot = choose_slot(g, bootstrap);
    uint64_t serial = (uint64_t)bootstrap->all[bootstrap->place[0]][WFI_CONTROL_NUMBERS - 1];
    if (slot < 0)
        return wfi_fail(g->ctx, WF_UNSUPPORTED,
                        "ranks that share no memory can be in %d groups at once; destroy some",
                        WFI_TRANSPORT_SLOTS);
    wfi_group_segment *segment = calloc(1, wfi_round_up(wfi_segment_bytes(g->n), 64));
    wfi_memory *m = NULL;
    if (!segment) return wfi_no_memory(g->ctx, wfi_segment_bytes(g->n), "a group");
    wf_status status = wfi_memory_create(g, segment, &m);
    if (status != WF_OK) {
        free(segment);
        return status;
    }
    g->state = m;
    WF_TRY(enter(m, slot, serial));
    return g->how == &wfi_allreduce_engine ? wfi_mpi_open_engine(m) : WF_OK;
}

/* The engine is opened by all ranks of the job, so a group of some ranks cannot open one. */
static const char *no_engine(const wf_group *g) {
    if (!wfi_transport_has_engine(wfi_control_transport(g->job))) return "'mpi' has none here";
    return g->n < wf_job_n_ranks(g->job) ? "only a group of all ranks of the job can have it"
                                         : NULL;
}

/* Messages of a broken group may still be under way, so its slot, and with it its tags, is never
 * reused. */
static void leave(wfi_memory *m) {
    wfi_mpi_group *g = wfi_mpi_of(m);
    bool is_broken = wfi_failure_status(&m->segment->failure) != WF_OK;
    (void)send_to_all(m, &(group_message){.kind = LEFT});
    if (is_broken && !wfi_transport_cancel(g->transport, &g->known)) g->is_torn = true;
    wfi_transport_depart(g->transport, &g->known);
    if (!is_broken)
        wfi_transport_slots_of(g->transport)->taken[g->slot / 64] &=
            ~(UINT64_C(1) << (g->slot % 64));
    if (g->is_torn) { /* MPI may still access these buffers */
        m->window = NULL, m->staging = NULL;
    } else {
        free(g->bounce->data);
        *g->bounce = (wfi_bounce){0};
    }
    free_group(m->group->ctx, g);
}

static void close_group(wf_group *g) {
    wfi_memory *m = g->state;
    if (m->own) leave(m);
    wfi_free(g->ctx, m->window);
    free(m->segment);
    wfi_memory_destroy(m);
}

/* ---- operations ---- */

static wf_status poll_while(wf_group *group, const wfi_operation *o,
                            wf_status (*run)(wf_group *group, const wfi_operation *o)) {
    wfi_mpi_group *g = wfi_mpi_of(group->state);
    wfi_transport_poll(g->transport, true);
    wf_status status = run(group, o);
    /* After a failure the caller owns its buffers again. */
    if (status != WF_OK && !wfi_transport_cancel(g->transport, &g->known)) g->is_torn = true;
    wfi_transport_poll(g->transport, false);
    return status;
}

static wf_status run(wf_group *g, const wfi_operation *o) {
    return poll_while(g, o, wfi_memory_run);
}

static wf_status pass(wf_group *g, const wfi_operation *o) {
    return poll_while(g, o, wfi_memory_pass);
}

const wfi_wire wfi_wire_mpi = {
    .name = "mpi",
    .reaches = reaches,
    .no_engine = no_engine,
    .open = open_group,
    .close = close_group,
    .alloc = wfi_memory_alloc,
    .free = wfi_memory_free,
    .run = run,
    .pass = pass,
};
