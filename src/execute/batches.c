#include "execute/batches.h"

#define LIST "reads between ranks"
/* Reads of a phase, by all ranks, that are moved at once. */
#define MOST_READS 512

/* Bytes that are sent to `peer` or received from it; if `peer` is the own rank, bytes to sum. */
typedef struct part {
    int32_t peer;
    bool sends;
    size_t at, bytes; /* of the own arena */
} part;

/* A rank that takes part in a phase; `number` is that of the batch among its own. */
typedef struct member {
    int32_t rank, number;
} member;

typedef struct batch {
    int32_t first, n;                /* parts */
    int32_t first_member, n_members; /* of its phase */
    int32_t need[WFI_N_STREAMS];
} batch;

struct wfi_batches {
    wf_context *ctx;
    const wfi_worker *workers, *local;
    int32_t n_ranks, phase, n_reads;
    /* [n_ranks] batches of a step; the phase of the last; tasks of its stream before this step */
    int32_t *n_of, *phase_of;
    uint64_t *first;
    uint64_t begin[WFI_N_STREAMS]; /* of the own streams */
    batch *batches;
    part *parts;
    member *members;
    size_t batch_capacity, part_capacity, member_capacity;
    int32_t n_batches, n_parts, n_members, first_member, n_issued, n_moved;
};

/* ---- life ---- */

wf_status wfi_batches_create(wf_context *ctx, const wfi_worker *workers, int32_t n_ranks,
                             wfi_batches **batches_out) {
    const wfi_worker *local = &workers[wf_job_rank(workers[0].job)];
    *batches_out = NULL;
    if (!local->wire) return WF_OK;
    wfi_batches *b = wfi_alloc(ctx, 1, sizeof *b, LIST);
    if (!b) return WF_NO_MEMORY;
    *b = (wfi_batches){.ctx = ctx, .workers = workers, .local = local, .n_ranks = n_ranks};
    b->n_of = wfi_alloc(ctx, (size_t)n_ranks, sizeof *b->n_of, LIST);
    b->phase_of = wfi_alloc(ctx, (size_t)n_ranks, sizeof *b->phase_of, LIST);
    b->first = wfi_alloc(ctx, (size_t)n_ranks, sizeof *b->first, LIST);
    *batches_out = b;
    return b->n_of && b->phase_of && b->first ? WF_OK : WF_NO_MEMORY;
}

void wfi_batches_destroy(wfi_batches *b) {
    if (!b) return;
    wfi_free(b->ctx, b->n_of);
    wfi_free(b->ctx, b->phase_of);
    wfi_free(b->ctx, b->first);
    wfi_free(b->ctx, b->batches);
    wfi_free(b->ctx, b->parts);
    wfi_free(b->ctx, b->members);
    wfi_free(b->ctx, b);
}

/* ---- listing ---- */

void wfi_batches_phase(wfi_batches *b) {
    if (!b) return;
    b->phase++;
    b->n_reads = 0;
    b->first_member = b->n_members;
}

/* The rank has a batch of this phase. */
static wf_status enter(wfi_batches *b, int32_t rank) {
    if (b->phase_of[rank] == b->phase) return WF_OK;
    b->phase_of[rank] = b->phase;
    WF_TRY(WFI_GROW(b->ctx, b->members, b->n_members, b->member_capacity, LIST));
    b->members[b->n_members++] = (member){rank, ++b->n_of[rank]};
    if (b->workers[rank].is_local) {
        WF_TRY(WFI_GROW(b->ctx, b->batches, b->n_batches, b->batch_capacity, LIST));
        b->batches[b->n_batches++] = (batch){.first = b->n_parts, .first_member = b->first_member};
    }
    if (b->phase_of[b->local->owner.rank] == b->phase) {
        batch *own = &b->batches[b->n_batches - 1];
        own->n_members = b->n_members - own->first_member;
    }
    return WF_OK;
}

wf_status wfi_batches_list(wfi_batches *b, const wfi_worker *owner, const wfi_worker *reader,
                           const int32_t *need, const size_t at[2], size_t bytes) {
    if (owner != reader && ++b->n_reads > MOST_READS) {
        wfi_batches_phase(b);
        b->n_reads = 1;
    }
    WF_TRY(enter(b, owner->owner.rank));
    WF_TRY(enter(b, reader->owner.rank));
    if (!owner->is_local && !reader->is_local) return WF_OK;
    int32_t peer = owner->is_local ? reader->owner.rank : owner->owner.rank;
    WF_TRY(WFI_GROW(b->ctx, b->parts, b->n_parts, b->part_capacity, LIST));
    b->parts[b->n_parts++] = (part){peer, owner->is_local, at[!owner->is_local], bytes};
    batch *now = &b->batches[b->n_batches - 1];
    now->n++;
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (need[s] > now->need[s]) now->need[s] = need[s];
    return WF_OK;
}

/* ---- a step ---- */

void wfi_batches_begin(wfi_batches *b) {
    b->n_issued = b->n_moved = 0;
    for (int32_t r = 0; r < b->n_ranks; r++) {
        wfi_stream_queue *stream = b->workers[r].bounce;
        b->first[r] = wfi_stream_record(stream).epoch;
        if (!b->workers[r].is_local) wfi_remote_stream_count(stream, 2 * (uint64_t)b->n_of[r]);
    }
    for (int s = 0; s < WFI_N_STREAMS; s++)
        b->begin[s] = wfi_stream_record(b->local->streams[s]).epoch;
}

/* The rank is ready for its batch of that number. */
static wfi_event ready(const wfi_batches *b, int32_t rank, int32_t number) {
    return (wfi_event){b->workers[rank].bounce, b->first[rank] + 2 * (uint64_t)number - 1};
}

static wf_status be_ready(void *self, void *argument) {
    (void)self, (void)argument;
    return WF_OK;
}

/* That this rank is ready has to be seen by the others before it waits for them here. */
static wf_status move_batch(void *self, void *argument) {
    const wfi_batches *b = self;
    const batch *now = argument;
    wfi_stream_settle(b->local->bounce);
    WF_TRY(wfi_device_wire_begin(b->local->wire));
    for (const part *p = &b->parts[now->first]; p < &b->parts[now->first + now->n]; p++) {
        void *data = b->local->arenas[WFI_SPACE_DEVICE].base + p->at;
        WF_TRY(p->peer == b->local->owner.rank
                   ? wfi_device_wire_sum(b->local->wire, data, p->bytes / sizeof(float))
                   : wfi_device_wire_move(b->local->wire, p->peer, p->sends, data, p->bytes));
    }
    return wfi_device_wire_end(b->local->wire);
}

static wf_status issue(wfi_batches *b, batch *now) {
    wfi_stream_queue *stream = b->local->bounce;
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (now->need[s])
            WF_TRY(wfi_stream_wait(
                stream, (wfi_event){b->local->streams[s], b->begin[s] + (uint64_t)now->need[s]}));
    WF_TRY(wfi_stream_push(stream, be_ready, NULL, NULL));
    const member *first = &b->members[now->first_member];
    for (const member *m = first; m < first + now->n_members; m++) {
        if (m->rank == b->local->owner.rank) continue;
        /* Its process tells us, and is told. */
        WF_TRY(wfi_stream_wait(b->workers[m->rank].bounce, wfi_stream_record(stream)));
        WF_TRY(wfi_stream_wait(stream, ready(b, m->rank, m->number)));
    }
    return wfi_stream_push(stream, move_batch, b, now);
}

wf_status wfi_batches_move(wfi_batches *b, wfi_event *moved_out) {
    if (b->n_issued < b->n_batches && b->n_moved == b->batches[b->n_issued].first)
        WF_TRY(issue(b, &b->batches[b->n_issued++]));
    b->n_moved++;
    *moved_out = wfi_stream_record(b->local->bounce);
    return WF_OK;
}

wf_status wfi_batches_end(const wfi_batches *b) {
    return b ? wfi_event_wait(wfi_stream_record(b->local->bounce)) : WF_OK;
}
