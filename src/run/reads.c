#include "run/reads.h"

#include "comm/transport/transport.h"

#include <string.h>

/* How many tasks of each stream of this process's rank are done. */
typedef struct clock_row {
    uint64_t done[WFI_CONTROL_STREAMS];
} clock_row;

/* One stream of one rank. */
typedef struct track {
    clock_row clock; /* what comes next begins after this */
    clock_row *rows; /* [n_tasks] the same for the tasks of this step */
    int32_t n_tasks;
    size_t capacity;
    uint64_t first; /* epoch of the stream when the step began */
} track;

struct wfi_reads {
    const wf_program *p;
    const wfi_worker *workers;
    wfi_transport *transport;
    track *tracks;     /* [n_ranks * WFI_N_STREAMS] */
    int32_t now;       /* the instruction whose task is being issued */
    bool has_received; /* for it */
};

_Static_assert(WFI_N_STREAMS <= WFI_CONTROL_STREAMS, "a clock has a place for each stream");

/* ---- life ---- */

wf_status wfi_reads_create(const wf_program *p, const wfi_worker *workers, wfi_reads **reads_out) {
    *reads_out = NULL;
    if (!workers[0].job || !wfi_control_transport(workers[0].job)) return WF_OK;
    wfi_reads *c = wfi_alloc(p->ctx, 1, sizeof *c, "what ranks read of each other");
    if (!c) return WF_NO_MEMORY;
    *c =
        (wfi_reads){.p = p, .workers = workers, .transport = wfi_control_transport(workers[0].job)};
    c->tracks = wfi_alloc(p->ctx, (size_t)p->n_ranks * WFI_N_STREAMS, sizeof *c->tracks,
                          "what ranks read of each other");
    *reads_out = c;
    return c->tracks ? WF_OK : WF_NO_MEMORY;
}

void wfi_reads_destroy(wfi_reads *c) {
    if (!c) return;
    for (int32_t s = 0; s < c->p->n_ranks * WFI_N_STREAMS && c->tracks; s++)
        wfi_free(c->p->ctx, c->tracks[s].rows);
    wfi_free(c->p->ctx, c->tracks);
    wfi_free(c->p->ctx, c);
}

/* ---- clocks ---- */

static track *track_of(const wfi_reads *c, int32_t i) {
    const wfi_instruction *now = &c->p->instructions[i];
    return &c->tracks[now->rank * WFI_N_STREAMS + (int32_t)now->stream];
}

void wfi_reads_begin(wfi_reads *c) {
    for (int32_t s = 0; s < c->p->n_ranks * WFI_N_STREAMS; s++) {
        track *t = &c->tracks[s];
        t->n_tasks = 0;
        t->first =
            wfi_stream_record(c->workers[s / WFI_N_STREAMS].streams[s % WFI_N_STREAMS]).epoch;
        t->clock = (clock_row){{0}};
    }
}

wf_status wfi_reads_task(wfi_reads *c, int32_t i) {
    const wfi_instruction *now = &c->p->instructions[i];
    track *t = track_of(c, i);
    WF_TRY(WFI_GROW(c->p->ctx, t->rows, t->n_tasks, t->capacity, "what ranks read of each other"));
    clock_row *row = &t->rows[t->n_tasks++];
    *row = t->clock;
    if (c->workers[now->rank].is_local) row->done[now->stream] = t->first + (uint64_t)t->n_tasks;
    c->now = i;
    c->has_received = false;
    return WF_OK;
}

/* One that has happened before the step orders nothing in it. */
void wfi_reads_wait(wfi_reads *c, int32_t i, wfi_event event) {
    if (!event.stream) return;
    const track *from =
        &c->tracks[event.stream->owner->rank * WFI_N_STREAMS + event.stream->number];
    if (event.epoch <= from->first || event.epoch - from->first > (uint64_t)from->n_tasks) return;
    const clock_row *row = &from->rows[event.epoch - from->first - 1];
    clock_row *clock = &track_of(c, i)->clock;
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (row->done[s] > clock->done[s]) clock->done[s] = row->done[s];
}

/* ---- bytes ---- */

wf_status wfi_reads_read(wfi_reads *c, const wfi_reference *reference, size_t offset,
                         size_t bytes) {
    const wfi_block *block = &c->p->blocks[reference->block];
    const wfi_instruction *now = &c->p->instructions[c->now];
    if (block->rank == now->rank || !bytes) return WF_OK;
    char *data = c->workers[block->rank].arenas[block->space].base + block->offset +
                 reference->offset + offset;
    if (c->workers[now->rank].is_local) {
        c->has_received = true;
        return wfi_transport_receive(c->transport, block->rank, (int)now->stream, data, bytes);
    }
    if (!c->workers[block->rank].is_local) return WF_OK;
    const track *t = track_of(c, c->now);
    wfi_put put = {.to = now->rank,
                   .trainer = c->workers[now->rank].trainer,
                   .stream = (int)now->stream,
                   .epoch = t->first + (uint64_t)t->n_tasks,
                   .need = t->clock.done};
    return wfi_transport_put(c->transport, &put, data, bytes);
}

wf_status wfi_reads_arrive(wfi_reads *c, int32_t i) {
    const wfi_instruction *now = &c->p->instructions[i];
    if (!c->has_received) return WF_OK;
    return wfi_stream_wait(c->workers[now->rank].streams[now->stream],
                           wfi_transport_arrival(c->transport, (int)now->stream));
}
