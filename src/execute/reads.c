#include "execute/reads.h"

#include "comm/transport/transport.h"
#include "execute/batches.h"

#include <string.h>

#define LIST "reads between ranks"

/* Progress of this process's rank: completed tasks of its streams, and its latest put that each
 * stream of other ranks has read (index in the list plus 1; 0: none). */
typedef struct clock_row {
    int32_t done[WFI_N_STREAMS];
    int32_t taken[WFI_N_STREAMS];
} clock_row;

/* One stream of one rank. */
typedef struct track {
    clock_row clock; /* the next task begins after this */
    clock_row *rows; /* [n_tasks] the clock after each task */
    int32_t n_tasks;
    size_t capacity;
    int32_t departed[WFI_N_STREAMS]; /* of a local stream: puts that it has waited for */
} track;

/* Bytes that this rank sends to a task elsewhere (a put), or that one of its tasks receives. */
typedef struct message {
    clock_row need;     /* it begins after this */
    wfi_event departed; /* of a put, in this step */
    const wfi_worker *owner;
    size_t at, bytes; /* of a put, in the owner's arena */
} message;

/* A task of this rank may write to the bytes of a put, since it comes after the task that reads
 * them. But the network may still use the bytes, so the task also waits for the put to depart. */
typedef struct departure {
    int32_t task, put;
} departure;

struct wfi_reads {
    const wf_program *p;
    const wfi_worker *workers, *local;
    wfi_transport *transport; /* NULL: processes see each other's bounce buffers */
    wfi_batches *batches;     /* not NULL: a wire between devices moves the bytes */
    /* [n_ranks] tasks of its bounce stream in this step; and in all steps before. `brought`: for
     * each read of a bounce buffer by this rank, the task of the step that filled it. */
    int32_t *n_bounced, *brought;
    uint64_t *first_bounced;
    size_t brought_capacity;
    int32_t n_brought;
    track *tracks;     /* [n_ranks * WFI_N_STREAMS] while the program is listed; then NULL */
    message *messages; /* of a step, in order */
    departure *departures;
    size_t message_capacity, departure_capacity;
    int32_t n_departures;
    int32_t n_messages, n_tasks, n_awaited; /* so far: messages, tasks of this rank, departures */
    uint64_t first[WFI_N_STREAMS];          /* epochs of its streams when the step began */
    int32_t now;                            /* instruction of the task that is being issued */
};

_Static_assert(WFI_N_STREAMS <= WFI_CONTROL_STREAMS, "a clock has a place for each stream");

/* ---- life ---- */

wf_status wfi_reads_create(const wf_program *p, const wfi_worker *workers, wfi_reads **reads_out) {
    *reads_out = NULL;
    bool bounces = false;
    for (int32_t r = 0; r < p->n_ranks; r++) bounces |= workers[r].bounce != NULL;
    if (!workers[0].job || (!wfi_control_transport(workers[0].job) && !bounces)) return WF_OK;
    wfi_reads *c = wfi_alloc(p->ctx, 1, sizeof *c, LIST);
    if (!c) return WF_NO_MEMORY;
    *c = (wfi_reads){.p = p,
                     .workers = workers,
                     .local = &workers[wf_job_rank(workers[0].job)],
                     .transport = wfi_control_transport(workers[0].job)};
    c->tracks = wfi_alloc(p->ctx, (size_t)p->n_ranks * WFI_N_STREAMS, sizeof *c->tracks, LIST);
    c->n_bounced = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *c->n_bounced, LIST);
    c->first_bounced = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *c->first_bounced, LIST);
    *reads_out = c;
    WF_TRY(wfi_batches_create(p->ctx, workers, p->n_ranks, &c->batches));
    return c->tracks && c->n_bounced && c->first_bounced ? WF_OK : WF_NO_MEMORY;
}

static void forget_clocks(wfi_reads *c) {
    for (int32_t s = 0; s < c->p->n_ranks * WFI_N_STREAMS && c->tracks; s++)
        wfi_free(c->p->ctx, c->tracks[s].rows);
    wfi_free(c->p->ctx, c->tracks);
    c->tracks = NULL;
}

void wfi_reads_destroy(wfi_reads *c) {
    if (!c) return;
    forget_clocks(c);
    wfi_free(c->p->ctx, c->messages);
    wfi_free(c->p->ctx, c->departures);
    wfi_free(c->p->ctx, c->n_bounced);
    wfi_free(c->p->ctx, c->first_bounced);
    wfi_free(c->p->ctx, c->brought);
    wfi_batches_destroy(c->batches);
    wfi_free(c->p->ctx, c);
}

void wfi_reads_begin(wfi_reads *c) {
    forget_clocks(c);
    c->n_messages = c->n_tasks = c->n_awaited = c->n_brought = 0;
    if (c->batches) wfi_batches_begin(c->batches);
    for (int32_t r = 0; r < c->p->n_ranks && !c->batches; r++) {
        wfi_stream_queue *bounce = c->workers[r].bounce;
        if (!bounce) continue;
        c->first_bounced[r] = wfi_stream_record(bounce).epoch;
        if (!c->workers[r].is_local) wfi_remote_stream_count(bounce, (uint64_t)c->n_bounced[r]);
    }
    for (int s = 0; s < WFI_N_STREAMS; s++)
        c->first[s] = wfi_stream_record(c->local->streams[s]).epoch;
}

/* ---- listing ---- */

static track *track_of(const wfi_reads *c, int32_t i) {
    const wfi_instruction *now = &c->p->instructions[i];
    return &c->tracks[now->rank * WFI_N_STREAMS + (int32_t)now->stream];
}

static wf_status list_departures(wfi_reads *c, track *t) {
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        if (t->clock.taken[s] <= t->departed[s]) continue;
        t->departed[s] = t->clock.taken[s];
        WF_TRY(WFI_GROW(c->p->ctx, c->departures, c->n_departures, c->departure_capacity, LIST));
        c->departures[c->n_departures++] = (departure){c->n_tasks, t->departed[s] - 1};
    }
    return WF_OK;
}

static wf_status list_task(wfi_reads *c, const wfi_instruction *now) {
    track *t = track_of(c, c->now);
    if (c->workers[now->rank].is_local) WF_TRY(list_departures(c, t));
    WF_TRY(WFI_GROW(c->p->ctx, t->rows, t->n_tasks, t->capacity, LIST));
    clock_row *row = &t->rows[t->n_tasks++];
    *row = t->clock;
    if (c->workers[now->rank].is_local) row->done[now->stream] = t->n_tasks;
    return WF_OK;
}

static void raise_to(int32_t *clock, const int32_t *other) {
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (other[s] > clock[s]) clock[s] = other[s];
}

void wfi_reads_wait(wfi_reads *c, int32_t i, const wfi_stream_queue *other, uint64_t n_tasks) {
    const track *from = &c->tracks[other->owner->rank * WFI_N_STREAMS + other->number];
    track *t = track_of(c, i);
    if (!n_tasks || n_tasks > (uint64_t)from->n_tasks) return;
    const clock_row *row = &from->rows[n_tasks - 1];
    raise_to(t->clock.done, row->done);
    raise_to(t->clock.taken, row->taken);
    if (c->workers[other->owner->rank].is_local) raise_to(t->departed, row->taken);
}

static wf_status list_message(wfi_reads *c, bool is_put) {
    track *reader = track_of(c, c->now);
    int32_t stream = (int32_t)c->p->instructions[c->now].stream;
    WF_TRY(WFI_GROW(c->p->ctx, c->messages, c->n_messages, c->message_capacity, LIST));
    message *m = &c->messages[c->n_messages++];
    *m = (message){.need = reader->clock};
    if (is_put)
        reader->clock.taken[stream] = reader->rows[reader->n_tasks - 1].taken[stream] =
            c->n_messages;
    else
        m->need.done[stream] = reader->n_tasks - 1;
    return WF_OK;
}

/* ---- a step ---- */

/* The stream waits until it may write where others have read. */
static wf_status await_departures(wfi_reads *c, int stream) {
    for (; c->n_awaited < c->n_departures; c->n_awaited++) {
        const departure *d = &c->departures[c->n_awaited];
        if (d->task != c->n_tasks) break;
        WF_TRY(wfi_stream_wait(c->local->streams[stream], c->messages[d->put].departed));
    }
    return WF_OK;
}

wf_status wfi_reads_task(wfi_reads *c, int32_t i) {
    const wfi_instruction *now = &c->p->instructions[i];
    c->now = i;
    if (c->tracks)
        WF_TRY(list_task(c, now));
    else if (c->workers[now->rank].is_local)
        WF_TRY(await_departures(c, (int)now->stream));
    c->n_tasks += c->workers[now->rank].is_local;
    return WF_OK;
}

/* ---- bounce buffers ---- */

static wf_status copy_to_bounce(void *self, void *argument) {
    const message *now = argument;
    const wfi_worker *w = now->owner;
    (void)self;
    return wfi_memory_copy(w->device, w->bounce, w->bounce_buffer + now->at, WFI_SPACE_HOST,
                           w->arenas[WFI_SPACE_DEVICE].base + now->at, WFI_SPACE_DEVICE,
                           now->bytes);
}

/* The bytes are brought to where others see them, or can be sent. */
static wf_status bounce(const wfi_reads *c, const wfi_worker *owner, message *now) {
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (now->need.done[s])
            WF_TRY(wfi_stream_wait(
                owner->bounce,
                (wfi_event){owner->streams[s], c->first[s] + (uint64_t)now->need.done[s]}));
    return wfi_stream_push(owner->bounce, copy_to_bounce, NULL, now);
}

/* Listed: a task of any rank reads of any other's. */
static wf_status list_bounced(wfi_reads *c, const wfi_worker *owner, const wfi_worker *reader) {
    if (!owner->bounce) return WF_OK;
    int32_t number = ++c->n_bounced[owner->owner.rank];
    if (!reader->is_local) return WF_OK;
    WF_TRY(WFI_GROW(c->p->ctx, c->brought, c->n_brought, c->brought_capacity, LIST));
    c->brought[c->n_brought++] = number;
    return WF_OK;
}

static wf_status await_bounced(wfi_reads *c, const wfi_worker *owner, int stream) {
    if (!owner->bounce) return WF_OK;
    uint64_t number = (uint64_t)c->brought[c->n_brought++];
    return wfi_stream_wait(
        c->local->streams[stream],
        (wfi_event){owner->bounce, c->first_bounced[owner->owner.rank] + number});
}

/* ---- messages ---- */

/* Where messages find a local rank's memory: memory that only its device sees has a mirror. */
static char *memory_of(const wfi_worker *w, wfi_space space) {
    return w->bounce ? w->bounce_buffer : w->arenas[space].base;
}

static void find_need(const wfi_reads *c, const message *now, uint64_t *need) {
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (now->need.done[s]) need[s] = c->first[s] + (uint64_t)now->need.done[s];
}

static wf_status send(wfi_reads *c, const wfi_worker *owner, const wfi_worker *reader,
                      wfi_space space, size_t at, size_t bytes) {
    message *now = &c->messages[c->n_messages++];
    uint64_t need[WFI_CONTROL_STREAMS] = {0};
    now->owner = owner;
    now->at = at;
    now->bytes = bytes;
    find_need(c, now, need);
    if (owner->bounce) {
        WF_TRY(bounce(c, owner, now));
        need[WFI_N_STREAMS] = wfi_stream_record(owner->bounce).epoch;
    }
    if (!c->transport) return WF_OK;
    const wfi_route route = {.peer = reader->owner.rank,
                             .trainer = reader->trainer,
                             .stream = (int)c->p->instructions[c->now].stream,
                             .need = need};
    WF_TRY(wfi_transport_put(c->transport, &route, memory_of(owner, space) + at, bytes));
    now->departed = wfi_transport_departure(c->transport, route.stream);
    return WF_OK;
}

/* The bytes come when the stream's earlier tasks are done, and are there before its next task. */
static wf_status receive(wfi_reads *c, const wfi_worker *owner, const wfi_worker *reader,
                         wfi_space space, size_t at, size_t bytes) {
    const message *now = &c->messages[c->n_messages++];
    int stream = (int)c->p->instructions[c->now].stream;
    uint64_t need[WFI_CONTROL_STREAMS] = {0}, departed[WFI_CONTROL_STREAMS] = {0};
    find_need(c, now, need);
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (now->need.taken[s]) departed[s] = c->messages[now->need.taken[s] - 1].departed.epoch;
    const wfi_route route = {owner->owner.rank, reader->trainer, stream, need, departed};
    WF_TRY(wfi_transport_receive(c->transport, &route, memory_of(reader, space) + at, bytes));
    return wfi_stream_wait(reader->streams[stream], wfi_transport_arrival(c->transport, stream));
}

/* ---- a wire between devices ---- */

void wfi_reads_phase(wfi_reads *c) {
    if (c && c->tracks) wfi_batches_phase(c->batches);
}

/* Listing: `need` is the progress of this process's rank: its streams' tasks before the read if it
 * is the reader, else the tasks that the reader has waited for. */
static wf_status list_moved(wfi_reads *c, const wfi_worker *owner, const wfi_worker *reader,
                            const size_t at[2], size_t bytes) {
    const track *t = track_of(c, c->now);
    int32_t need[WFI_N_STREAMS];
    memcpy(need, t->clock.done, sizeof need);
    if (reader->is_local) need[c->p->instructions[c->now].stream] = t->n_tasks - 1;
    return wfi_batches_list(c->batches, owner, reader, need, at, bytes);
}

static wf_status move(wfi_reads *c, const wfi_worker *owner, const wfi_worker *reader,
                      const size_t at[2], size_t bytes) {
    wfi_event moved;
    if (c->tracks) return list_moved(c, owner, reader, at, bytes);
    if (!owner->is_local && !reader->is_local) return WF_OK;
    WF_TRY(wfi_batches_move(c->batches, &moved));
    int stream = (int)c->p->instructions[c->now].stream;
    return reader->is_local ? wfi_stream_wait(reader->streams[stream], moved) : WF_OK;
}

/* ---- copies ---- */

static size_t place_of(const wfi_reads *c, const wfi_location *place) {
    return c->p->blocks[place->reference->block].offset + place->reference->offset + place->offset;
}

wf_status wfi_reads_copy(wfi_reads *c, const wfi_location *from, const wfi_location *to,
                         size_t bytes) {
    const wfi_block *source = &c->p->blocks[from->reference->block],
                    *target = &c->p->blocks[to->reference->block];
    const wfi_worker *owner = &c->workers[source->rank], *reader = &c->workers[target->rank];
    const size_t at[] = {place_of(c, from), place_of(c, to)};
    if (c->batches) return move(c, owner, reader, at, bytes);
    if (c->tracks) WF_TRY(list_bounced(c, owner, reader));
    if (!owner->is_local && !reader->is_local) return WF_OK;
    bool is_put = owner->is_local;
    if (c->tracks) return is_put || c->transport ? list_message(c, is_put) : WF_OK;
    if (is_put) return send(c, owner, reader, source->space, at[0], bytes);
    return c->transport ? receive(c, owner, reader, target->space, at[1], bytes)
                        : await_bounced(c, owner, (int)c->p->instructions[c->now].stream);
}

wf_status wfi_reads_end(const wfi_reads *c) {
    for (int s = 0; s < WFI_N_STREAMS && c->transport; s++)
        WF_TRY(wfi_event_wait(wfi_transport_departure(c->transport, s)));
    return wfi_batches_end(c->batches);
}
