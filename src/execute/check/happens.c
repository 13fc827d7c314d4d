#include "execute/check/happens.h"
#include "program/text.h"

#include <string.h>

#define CHECKER "the happens-before checker"

/* The task that touched a stretch of memory in this step. Epochs count the tasks of a stream from
 * 1; 0: no task. */
typedef struct touch {
    int32_t epoch, instruction;
} touch;

/* Memory of one rank and space from `begin` to the next stretch. */
typedef struct stretch {
    size_t begin;
    int32_t history; /* touches [1 + n_streams]: the latest write, then reads since by stream */
    int32_t writer;  /* stream of the latest write */
} stretch;

typedef struct arena {
    stretch *stretches; /* ascending */
    int32_t n;
    size_t capacity;
} arena;

/* One stream of one rank. */
typedef struct track {
    int32_t *clock;    /* [n_streams] the next task happens after so many tasks of each */
    int32_t *at;       /* [n_tasks] the clock after each task: its row in `rows` */
    int32_t n_tasks;   /* of this step */
    int32_t n_awaited; /* by the host */
    size_t capacity;
    uint64_t first; /* epoch of the device's stream when the step began */
} track;

struct wfi_happens {
    const wf_program *p;
    const wfi_worker *workers;
    int32_t n_streams; /* of all ranks */
    track *tracks;     /* [n_streams] */
    arena *arenas;     /* [n_ranks][WFI_N_SPACES] */
    touch *touches;    /* [n_histories][1 + n_streams] */
    int32_t *rows;     /* [n_rows][n_streams] */
    int32_t n_histories, n_rows;
    size_t history_capacity, row_capacity;
    int32_t now; /* instruction of the task that is being issued */
};

/* ---- life ---- */

static wf_status fill(wfi_happens *r) {
    wf_context *ctx = r->p->ctx;
    r->tracks = wfi_alloc(ctx, (size_t)r->n_streams, sizeof *r->tracks, CHECKER);
    r->arenas = wfi_alloc(ctx, (size_t)r->p->n_ranks * WFI_N_SPACES, sizeof *r->arenas, CHECKER);
    if (!r->tracks || !r->arenas) return WF_NO_MEMORY;
    for (int32_t s = 0; s < r->n_streams; s++) {
        r->tracks[s].clock = wfi_alloc(ctx, (size_t)r->n_streams, sizeof(int32_t), CHECKER);
        if (!r->tracks[s].clock) return WF_NO_MEMORY;
    }
    return WF_OK;
}

wf_status wfi_happens_create(const wf_program *p, const wfi_worker *workers,
                             wfi_happens **happens_out) {
    wfi_happens *r = wfi_alloc(p->ctx, 1, sizeof *r, CHECKER);
    if (!r) return WF_NO_MEMORY;
    r->p = p;
    r->workers = workers;
    r->n_streams = p->n_ranks * WFI_N_STREAMS;
    wf_status status = fill(r);
    if (status != WF_OK) {
        wfi_happens_destroy(r);
        return status;
    }
    *happens_out = r;
    return WF_OK;
}

void wfi_happens_destroy(wfi_happens *r) {
    if (!r) return;
    wf_context *ctx = r->p->ctx;
    for (int32_t s = 0; s < r->n_streams && r->tracks; s++) {
        wfi_free(ctx, r->tracks[s].clock);
        wfi_free(ctx, r->tracks[s].at);
    }
    for (int32_t k = 0; k < r->p->n_ranks * WFI_N_SPACES && r->arenas; k++)
        wfi_free(ctx, r->arenas[k].stretches);
    wfi_free(ctx, r->tracks);
    wfi_free(ctx, r->arenas);
    wfi_free(ctx, r->touches);
    wfi_free(ctx, r->rows);
    wfi_free(ctx, r);
}

/* ---- clocks ---- */

static int32_t stream_of(const wfi_happens *r, int32_t i) {
    const wfi_instruction *now = &r->p->instructions[i];
    return now->rank * WFI_N_STREAMS + (int32_t)now->stream;
}

static wfi_stream_queue *queue_of(const wfi_happens *r, int32_t stream) {
    return r->workers[stream / WFI_N_STREAMS].streams[stream % WFI_N_STREAMS];
}

void wfi_happens_begin(wfi_happens *r) {
    size_t width = (size_t)r->n_streams;
    for (int32_t s = 0; s < r->n_streams; s++) {
        track *t = &r->tracks[s];
        t->n_tasks = t->n_awaited = 0;
        t->first = wfi_stream_record(queue_of(r, s)).epoch;
        memset(t->clock, 0, width * sizeof *t->clock);
    }
    r->n_rows = 0;
    if (r->n_histories)
        memset(r->touches, 0, (size_t)r->n_histories * (width + 1) * sizeof *r->touches);
}

wf_status wfi_happens_task(wfi_happens *r, int32_t i) {
    int32_t s = stream_of(r, i);
    track *t = &r->tracks[s];
    size_t row_bytes = (size_t)r->n_streams * sizeof *r->rows;
    WF_TRY(WFI_GROW(r->p->ctx, t->at, t->n_tasks, t->capacity, CHECKER));
    WF_TRY(wfi_grow(r->p->ctx, (void **)&r->rows, (size_t)r->n_rows, &r->row_capacity, row_bytes,
                    CHECKER));
    t->at[t->n_tasks++] = r->n_rows;
    t->clock[s] = t->n_tasks;
    memcpy(r->rows + (size_t)r->n_rows++ * (size_t)r->n_streams, t->clock, row_bytes);
    r->now = i;
    return WF_OK;
}

/* The stream of an event and its epoch in this step: 0 or less if it is an older one. */
static int32_t find_event(const wfi_happens *r, wfi_event event, int64_t *epoch_out) {
    for (int32_t s = 0; s < r->n_streams; s++)
        if (queue_of(r, s) == event.stream) {
            *epoch_out = (int64_t)(event.epoch - r->tracks[s].first);
            return s;
        }
    *epoch_out = 0;
    return 0;
}

/* An event that has happened before the step orders nothing in it. Nor does an event of a task that
 * is issued later: the clock of that task is not known yet. */
void wfi_happens_wait(wfi_happens *r, int32_t i, wfi_event event) {
    int64_t epoch;
    const track *from = &r->tracks[find_event(r, event, &epoch)];
    if (epoch < 1 || epoch > from->n_tasks) return;
    int32_t *clock = r->tracks[stream_of(r, i)].clock;
    const int32_t *row = r->rows + (size_t)from->at[epoch - 1] * (size_t)r->n_streams;
    for (int32_t s = 0; s < r->n_streams; s++)
        if (row[s] > clock[s]) clock[s] = row[s];
}

void wfi_happens_host_wait(wfi_happens *r, wfi_event event) {
    int64_t epoch;
    track *from = &r->tracks[find_event(r, event, &epoch)];
    if (epoch > from->n_awaited) from->n_awaited = (int32_t)epoch;
}

wf_status wfi_happens_end(wfi_happens *r) {
    for (int32_t s = 0; s < r->n_streams; s++) {
        const track *t = &r->tracks[s];
        int64_t n_given = (int64_t)(wfi_stream_record(queue_of(r, s)).epoch - t->first);
        if (n_given != t->n_tasks || t->n_awaited != t->n_tasks)
            return wfi_fail(r->p->ctx, WF_BUG,
                            "events: stream %s of rank %d was given %lld tasks in this step, of "
                            "which the checker saw %d and the host awaited %d",
                            wfi_stream_name((wfi_stream)(s % WFI_N_STREAMS)), s / WFI_N_STREAMS,
                            (long long)n_given, t->n_tasks, t->n_awaited);
    }
    return WF_OK;
}

/* ---- memory ---- */

static touch *history_of(const wfi_happens *r, const stretch *s) {
    return r->touches + (size_t)s->history * (size_t)(r->n_streams + 1);
}

static wf_status add_history(wfi_happens *r, int32_t *history_out) {
    size_t n_touches = (size_t)r->n_streams + 1;
    WF_TRY(wfi_grow(r->p->ctx, (void **)&r->touches, (size_t)r->n_histories, &r->history_capacity,
                    n_touches * sizeof *r->touches, CHECKER));
    *history_out = r->n_histories++;
    return WF_OK;
}

/* Index of the stretch that holds the byte at `at`. */
static int32_t find_stretch(const arena *a, size_t at) {
    int32_t low = 0, high = a->n;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (a->stretches[middle].begin <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Makes a stretch begin at `at`, with the history of the one it is cut from. After the
 * first step all are there. */
static wf_status divide(wfi_happens *r, arena *a, size_t at, int32_t *index_out) {
    if (a->n == 0) {
        WF_TRY(WFI_GROW(r->p->ctx, a->stretches, 0, a->capacity, CHECKER));
        WF_TRY(add_history(r, &a->stretches[0].history));
        a->n = 1; /* all of the arena */
    }
    int32_t k = find_stretch(a, at);
    *index_out = k;
    if (a->stretches[k].begin == at) return WF_OK;
    stretch right = {.begin = at, .writer = a->stretches[k].writer};
    WF_TRY(WFI_GROW(r->p->ctx, a->stretches, a->n, a->capacity, CHECKER));
    WF_TRY(add_history(r, &right.history));
    memcpy(history_of(r, &right), history_of(r, &a->stretches[k]),
           (size_t)(r->n_streams + 1) * sizeof *r->touches);
    memmove(a->stretches + k + 2, a->stretches + k + 1,
            (size_t)(a->n - k - 1) * sizeof *a->stretches);
    a->stretches[k + 1] = right;
    a->n++;
    *index_out = k + 1;
    return WF_OK;
}

/* The access that is not known to be over, or NULL. */
static const touch *find_conflict(const wfi_happens *r, const stretch *s, const int32_t *clock,
                                  bool writes, bool *is_write_out) {
    const touch *history = history_of(r, s);
    *is_write_out = true;
    if (history[0].epoch > clock[s->writer]) return &history[0];
    *is_write_out = false;
    for (int32_t k = 0; k < r->n_streams && writes; k++)
        if (history[1 + k].epoch > clock[k]) return &history[1 + k];
    return NULL;
}

static wf_status refuse(const wfi_happens *r, const wfi_reference *reference, size_t begin,
                        bool writes, const touch *other, bool other_wrote) {
    const wf_program *p = r->p;
    const wfi_block *block = &p->blocks[reference->block];
    wfi_text text = {.ctx = p->ctx};
    wfi_instruction_text(p, r->now, &text);
    wfi_text_add(&text, " %s byte %zu of rank %d (%s), which ", writes ? "writes" : "reads", begin,
                 block->rank, wfi_block_kind_name(block->name.kind));
    wfi_instruction_text(p, other->instruction, &text);
    wfi_text_add(&text, " %s", other_wrote ? "wrote" : "reads");
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK)
        status = wfi_fail(p->ctx, WF_BUG, "events: %s: no event orders them", text.data);
    wfi_free(p->ctx, text.data);
    return status;
}

wf_status wfi_happens_touch(wfi_happens *r, const wfi_reference *reference, size_t offset,
                            size_t bytes, int access) {
    if (!bytes) return WF_OK;
    const wfi_block *block = &r->p->blocks[reference->block];
    arena *a = &r->arenas[block->rank * WFI_N_SPACES + (int32_t)block->space];
    size_t begin = block->offset + reference->offset + offset;
    int32_t first, end, own = stream_of(r, r->now);
    bool writes = access & WFI_WRITE, other_wrote;
    const track *t = &r->tracks[own];
    WF_TRY(divide(r, a, begin, &first));
    WF_TRY(divide(r, a, begin + bytes, &end));
    for (int32_t k = first; k < end; k++) {
        stretch *s = &a->stretches[k];
        const touch *other = find_conflict(r, s, t->clock, writes, &other_wrote);
        if (other)
            return refuse(r, reference, s->begin > begin ? s->begin : begin, writes, other,
                          other_wrote);
        touch *history = history_of(r, s);
        history[writes ? 0 : 1 + own] = (touch){t->n_tasks, r->now};
        if (!writes) continue;
        s->writer = own;
        memset(history + 1, 0, (size_t)r->n_streams * sizeof *history);
    }
    return WF_OK;
}
