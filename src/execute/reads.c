#include "execute/reads.h"

#include "comm/transport/transport.h"
#include "execute/batches.h"

#include <string.h>

#define LIST "reads between ranks"

/* Progress of this process's rank: completed tasks of its streams, and its latest put for each
 * stream of other ranks (index in the list plus 1; 0: none). */
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

/* Bytes of this rank that a task elsewhere reads. */
typedef struct put {
    int32_t need[WFI_N_STREAMS]; /* tasks of this rank's streams, after which it is sent */
    wfi_event departed;          /* in this step */
    const wfi_worker *owner;
    size_t at, bytes; /* of its arena */
} put;

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
    track *tracks; /* [n_ranks * WFI_N_STREAMS] while the program is listed; then NULL */
    put *puts;     /* of a step, in order */
    departure *departures;
    size_t put_capacity, departure_capacity;
    int32_t n_departures;
    int32_t n_puts, n_tasks, n_awaited; /* so far: puts, tasks of this rank, departures */
    uint64_t first[WFI_N_STREAMS];      /* epochs of its streams when the step began */
    int32_t now;                        /* instruction of the task that is being issued */
    bool has_received;                  /* for it */
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
    wfi_free(c->p->ctx, c->puts);
    wfi_free(c->p->ctx, c->departures);
    wfi_free(c->p->ctx, c->n_bounced);
    wfi_free(c->p->ctx, c->first_bounced);
    wfi_free(c->p->ctx, c->brought);
    wfi_batches_destroy(c->batches);
    wfi_free(c->p->ctx, c);
}

void wfi_reads_begin(wfi_reads *c) {
    forget_clocks(c);
    c->n_puts = c->n_tasks = c->n_awaited = c->n_brought = 0;
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

static wf_status list_put(wfi_reads *c, int stream) {
    track *reader = track_of(c, c->now);
    WF_TRY(WFI_GROW(c->p->ctx, c->puts, c->n_puts, c->put_capacity, LIST));
    memcpy(c->puts[c->n_puts++].need, reader->clock.done, sizeof c->puts->need);
    reader->clock.taken[stream] = reader->rows[reader->n_tasks - 1].taken[stream] = c->n_puts;
    return WF_OK;
}

/* ---- a step ---- */

/* The stream waits until it may write where others have read. */
static wf_status await_departures(wfi_reads *c, int stream) {
    for (; c->n_awaited < c->n_departures; c->n_awaited++) {
        const departure *d = &c->departures[c->n_awaited];
        if (d->task != c->n_tasks) break;
        WF_TRY(wfi_stream_wait(c->local->streams[stream], c->puts[d->put].departed));
    }
    return WF_OK;
}

wf_status wfi_reads_task(wfi_reads *c, int32_t i) {
    const wfi_instruction *now = &c->p->instructions[i];
    c->now = i;
    c->has_received = false;
    if (c->tracks)
        WF_TRY(list_task(c, now));
    else if (c->workers[now->rank].is_local)
        WF_TRY(await_departures(c, (int)now->stream));
    c->n_tasks += c->workers[now->rank].is_local;
    return WF_OK;
}

/* ---- bounce buffers ---- */

static wf_status copy_to_bounce(void *self, void *argument) {
    const put *now = argument;
    const wfi_worker *w = now->owner;
    (void)self;
    return wfi_memory_copy(w->device, w->bounce, w->bounce_buffer + now->at, WFI_SPACE_HOST,
                           w->arenas[WFI_SPACE_DEVICE].base + now->at, WFI_SPACE_DEVICE,
                           now->bytes);
}

/* The bytes are brought to where others see them, or can be sent. */
static wf_status bounce(const wfi_reads *c, const wfi_worker *owner, put *now, size_t at,
                        size_t bytes) {
    now->owner = owner;
    now->at = at;
    now->bytes = bytes;
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (now->need[s])
            WF_TRY(
                wfi_stream_wait(owner->bounce, (wfi_event){owner->streams[s],
                                                           c->first[s] + (uint64_t)now->need[s]}));
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

static wf_status send(wfi_reads *c, const wfi_worker *owner, const wfi_worker *reader, int stream,
                      wfi_space space, size_t at, size_t bytes) {
    put *now = &c->puts[c->n_puts++];
    const char *data = owner->arenas[space].base + at;
    uint64_t need[WFI_CONTROL_STREAMS] = {0};
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (now->need[s]) need[s] = c->first[s] + (uint64_t)now->need[s];
    if (owner->bounce) {
        WF_TRY(bounce(c, owner, now, at, bytes));
        need[WFI_N_STREAMS] = wfi_stream_record(owner->bounce).epoch;
        data = owner->bounce_buffer + at;
    }
    if (!c->transport) return WF_OK;
    wfi_put what = {
        .to = reader->owner.rank, .trainer = reader->trainer, .stream = stream, .need = need};
    WF_TRY(wfi_transport_put(c->transport, &what, data, bytes));
    now->departed = wfi_transport_departure(c->transport, stream);
    return WF_OK;
}

/* ---- a wire between devices ---- */

void wfi_reads_phase(wfi_reads *c) {
    if (c && c->tracks) wfi_batches_phase(c->batches);
}

bool wfi_reads_moves(const wfi_reads *c, int32_t rank) {
    return c && c->batches && !c->workers[rank].is_local;
}

/* Listing: `need` is the progress of this process's rank: its streams' tasks before the read if it
 * is the reader, else the tasks that the reader has waited for. */
static wf_status list_moved(wfi_reads *c, const wfi_worker *owner, const wfi_worker *reader,
                            size_t at, size_t bytes) {
    const track *t = track_of(c, c->now);
    int32_t need[WFI_N_STREAMS];
    memcpy(need, t->clock.done, sizeof need);
    if (reader->is_local) need[c->p->instructions[c->now].stream] = t->n_tasks - 1;
    return wfi_batches_list(c->batches, owner, reader, need, at, bytes);
}

static wf_status move(wfi_reads *c, const wfi_worker *owner, const wfi_worker *reader, int stream,
                      size_t at, size_t bytes) {
    wfi_event moved;
    c->has_received = reader->is_local;
    if (c->tracks) return list_moved(c, owner, reader, at, bytes);
    if (!owner->is_local && !reader->is_local) return WF_OK;
    WF_TRY(wfi_batches_move(c->batches, &moved));
    return reader->is_local ? wfi_stream_wait(c->local->streams[stream], moved) : WF_OK;
}

void wfi_reads_write(wfi_reads *c, const wfi_reference *reference, size_t offset) {
    const wfi_block *block = &c->p->blocks[reference->block];
    if (!c->batches || !c->has_received) return;
    if (c->tracks) wfi_batches_write(c->batches, block->offset + reference->offset + offset);
    c->has_received = false;
}

wf_status wfi_reads_read(wfi_reads *c, const wfi_reference *reference, size_t offset,
                         size_t bytes) {
    const wfi_block *block = &c->p->blocks[reference->block];
    const wfi_instruction *now = &c->p->instructions[c->now];
    const wfi_worker *owner = &c->workers[block->rank], *reader = &c->workers[now->rank];
    int stream = (int)now->stream;
    size_t at = block->offset + reference->offset + offset;
    if (owner == reader || !bytes) return WF_OK;
    if (c->batches) return move(c, owner, reader, stream, at, bytes);
    if (c->tracks) WF_TRY(list_bounced(c, owner, reader));
    if (!owner->is_local && !reader->is_local) return WF_OK;
    if (c->tracks) return owner->is_local ? list_put(c, stream) : WF_OK;
    if (owner->is_local) return send(c, owner, reader, stream, block->space, at, bytes);
    if (!c->transport) return await_bounced(c, owner, stream);
    c->has_received = true;
    return wfi_transport_receive(c->transport, block->rank, stream,
                                 owner->arenas[block->space].base + at, bytes);
}

wf_status wfi_reads_join(wfi_reads *c, const wfi_reference *reference) {
    const wfi_block *block = &c->p->blocks[reference->block];
    const wfi_worker *own = &c->workers[block->rank];
    int stream = (int)c->p->instructions[c->now].stream;
    return move(c, own, own, stream, block->offset + reference->offset, reference->bytes);
}

wf_status wfi_reads_arrive(wfi_reads *c, int32_t i) {
    int stream = (int)c->p->instructions[i].stream;
    if (!c->has_received || c->batches) return WF_OK;
    return wfi_stream_wait(c->local->streams[stream], wfi_transport_arrival(c->transport, stream));
}

wf_status wfi_reads_end(const wfi_reads *c) {
    for (int s = 0; s < WFI_N_STREAMS && c->transport; s++)
        WF_TRY(wfi_event_wait(wfi_transport_departure(c->transport, s)));
    return wfi_batches_end(c->batches);
}
