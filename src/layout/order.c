/* The order of execution: runs all streams of all lowered ranks symbolically, in rounds. An
 * instruction can run when it is at the head of its stream and its dependencies have run in earlier
 * rounds; a send and its receive, or the members of a collective, run at once. The result is one
 * legal order and, for each instruction, a vector clock. An instruction's clocks of other ranks are
 * kept until the last one that follows it has run; the clock, which stays, is of its own rank.
 *
 * In a round each stream runs one instruction at most, one kind of stream after the other, so that
 * equal ranks are equally far: the order of a rank's instructions does not depend on which ranks
 * are like it, nor on whether they are lowered (classes.c).
 */
#include "layout/layout.h"
#include "program/clock.h"
#include "program/stage.h"
#include "program/text.h"

#include <string.h>

typedef struct ordering {
    wf_program *p;
    size_t width;  /* of a row: all streams of all lowered ranks */
    int32_t *rows; /* [n_rows][width] vector clocks; of a free one the first is the next free */
    int32_t n_rows, free_row; /* the latter -1: there is none */
    size_t row_capacity;
    int32_t *row_of;    /* [instruction] or -1 */
    int32_t *n_waiting; /* [instruction] how many follow it at once and have not run */
    int32_t *at;        /* [rank][stream] how many have run */
    int32_t *now;       /* [rank][stream] the stream's latest, or -1 */
    int32_t *ran;       /* [instruction] in which round, from 1 on; 0: not yet */
    int32_t *blocker;   /* [rank][stream] a dependency of its head that had not run, or -1 */
    int32_t n_run, round;
} ordering;

static int32_t head(const ordering *o, int32_t rank, wfi_stream stream) {
    int32_t at = o->at[rank * WFI_N_STREAMS + (int)stream];
    const wfi_rank *r = &o->p->ranks[rank];
    return at < r->n_stream[stream] ? r->stream[stream][at] : -1;
}

static bool has_run(const ordering *o, int32_t i) {
    return o->ran[i] && o->ran[i] < o->round;
}

/* Whether its predecessor in the stream and its dependencies ran in earlier rounds. */
static bool is_ready(const ordering *o, int32_t i) {
    const wfi_instruction *now = &o->p->instructions[i];
    int32_t at = now->rank * WFI_N_STREAMS + (int)now->stream, before = o->now[at];
    if (before >= 0 && !has_run(o, before)) return false;
    for (int32_t k = 0; k < now->n_depends; k++)
        if (!has_run(o, now->depends[k])) {
            o->blocker[at] = now->depends[k];
            return false;
        }
    return true;
}

static bool is_blocked(const ordering *o, int32_t rank, int stream) {
    int32_t *blocker = &o->blocker[rank * WFI_N_STREAMS + stream];
    if (*blocker >= 0 && has_run(o, *blocker)) *blocker = -1;
    return *blocker >= 0;
}

static bool is_pair(const wfi_instruction *send, const wfi_instruction *receive,
                    const wf_program *p) {
    return send->kind == WFI_SEND && receive->kind == WFI_RECEIVE && send->peer == receive->rank &&
           receive->peer == send->rank && send->id == receive->id &&
           send->micro == receive->micro &&
           p->blocks[send->references[0].block].name.kind ==
               p->blocks[receive->references[0].block].name.kind;
}

/* The instructions that run at once with i, i included; 0 if not all are there yet. */
static int32_t gather_group(const ordering *o, int32_t i, int32_t *group_out) {
    const wf_program *p = o->p;
    const wfi_instruction *now = &p->instructions[i];
    int32_t n = 0;
    if (now->kind == WFI_SEND || now->kind == WFI_RECEIVE) {
        bool sends = now->kind == WFI_SEND;
        if (now->peer < 0 || now->peer >= p->n_ranks || !wfi_rank_is_lowered(p, now->peer))
            return 0;
        int32_t other = head(o, now->peer, sends ? WFI_STREAM_RECEIVE : WFI_STREAM_SEND);
        if (other < 0 || !is_ready(o, other)) return 0;
        const wfi_instruction *peer = &p->instructions[other];
        if (!is_pair(sends ? now : peer, sends ? peer : now, p)) return 0;
        group_out[n++] = i;
        group_out[n++] = other;
        return n;
    }
    if (now->stream != WFI_STREAM_REDUCE) {
        group_out[n++] = i;
        return n;
    }
    if (now->group < 0 || now->group >= p->n_groups) return 0;
    const wfi_group *group = &p->groups[now->group];
    if (wfi_group_find(group, now->rank) < 0) return 0;
    for (int32_t m = 0; m < group->n; m++) {
        if (!wfi_rank_is_lowered(p, group->ranks[m])) continue;
        int32_t other = head(o, group->ranks[m], WFI_STREAM_REDUCE);
        if (other < 0 || !is_ready(o, other)) return 0;
        if (!wfi_same_collective(p, now, &p->instructions[other])) return 0;
        group_out[n++] = other;
    }
    return n;
}

/* ---- clocks ---- */

static int32_t *row_at(const ordering *o, int32_t row) {
    return o->rows + (size_t)row * o->width;
}

static wf_status take_row(ordering *o, int32_t *row_out) {
    if (o->free_row < 0) {
        WF_TRY(wfi_grow(o->p->ctx, (void **)&o->rows, (size_t)o->n_rows, &o->row_capacity,
                        o->width * sizeof *o->rows, "the program's clocks"));
        *row_out = o->n_rows++;
        return WF_OK;
    }
    *row_out = o->free_row;
    o->free_row = *row_at(o, *row_out);
    return WF_OK;
}

static void give_row(ordering *o, int32_t i) {
    *row_at(o, o->row_of[i]) = o->free_row;
    o->free_row = o->row_of[i];
    o->row_of[i] = -1;
}

static int32_t *latest_of(const ordering *o, const wfi_instruction *now) {
    return &o->now[now->rank * WFI_N_STREAMS + (int)now->stream];
}

static void join(int32_t *clock, const int32_t *other, size_t width) {
    for (size_t c = 0; c < width; c++)
        if (other[c] > clock[c]) clock[c] = other[c];
}

/* Joins the clocks before any of the group runs; the group no longer needs them. */
static void join_group(ordering *o, const int32_t *group, int32_t n, int32_t *joined) {
    memset(joined, 0, o->width * sizeof *joined);
    for (int32_t k = 0; k < n; k++) {
        const wfi_instruction *now = &o->p->instructions[group[k]];
        for (int32_t e = -1; e < now->n_depends; e++) {
            int32_t before = e < 0 ? *latest_of(o, now) : now->depends[e];
            if (before < 0) continue;
            join(joined, row_at(o, o->row_of[before]), o->width);
            if (!--o->n_waiting[before]) give_row(o, before);
        }
    }
}

static wf_status run_group(ordering *o, const int32_t *group, int32_t n, int32_t *joined) {
    wf_program *p = o->p;
    join_group(o, group, n, joined);
    for (int32_t k = 0; k < n; k++) {
        const wfi_instruction *now = &p->instructions[group[k]];
        joined[p->ranks[now->rank].row * WFI_N_STREAMS + (int)now->stream] = now->position + 1;
        *latest_of(o, now) = group[k];
        o->at[now->rank * WFI_N_STREAMS + (int)now->stream]++;
        o->ran[group[k]] = o->round;
        p->order[o->n_run++] = group[k];
    }
    for (int32_t k = 0; k < n; k++) {
        int32_t i = group[k], rank = p->instructions[i].rank;
        memcpy(p->clock + (size_t)i * WFI_N_STREAMS, joined + p->ranks[rank].row * WFI_N_STREAMS,
               WFI_N_STREAMS * sizeof *joined);
        if (!o->n_waiting[i]) continue;
        WF_TRY(take_row(o, &o->row_of[i]));
        memcpy(row_at(o, o->row_of[i]), joined, o->width * sizeof *joined);
    }
    return WF_OK;
}

/* How many read each one's clock: those that depend on it, and the next of its stream. */
static void count_waiting(ordering *o) {
    const wf_program *p = o->p;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        o->row_of[i] = -1;
        for (int32_t d = 0; d < now->n_depends; d++) o->n_waiting[now->depends[d]]++;
    }
    for (int32_t k = 0; k < p->n_lowered; k++)
        for (int s = 0; s < WFI_N_STREAMS; s++) {
            const wfi_rank *rank = &p->ranks[p->lowered[k]];
            for (int32_t at = 0; at + 1 < rank->n_stream[s]; at++)
                o->n_waiting[rank->stream[s][at]]++;
        }
}

static wf_status deadlock(const ordering *o) {
    const wf_program *p = o->p;
    wfi_text text = {.ctx = p->ctx};
    int n_told = 0;
    for (int32_t k = 0; k < p->n_lowered; k++)
        for (int s = 0; s < WFI_N_STREAMS && n_told < 4; s++) {
            int32_t i = head(o, p->lowered[k], (wfi_stream)s);
            if (i < 0) continue;
            wfi_text_add(&text, "%s", n_told++ ? "; " : "");
            wfi_instruction_text(p, i, &text);
        }
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK)
        status = wfi_fail(p->ctx, WF_BUG, "the program deadlocks after %d of %d instructions: %s",
                          o->n_run, p->n_instructions, text.data ? text.data : "");
    wfi_free(p->ctx, text.data);
    return status;
}

static wf_status run_all(ordering *o, int32_t *group, int32_t *joined) {
    wf_program *p = o->p;
    bool moved = true;
    while (moved) {
        moved = false;
        o->round++;
        for (int s = 0; s < WFI_N_STREAMS; s++)
            for (int32_t k = 0; k < p->n_lowered; k++) {
                if (is_blocked(o, p->lowered[k], s)) continue;
                int32_t i = head(o, p->lowered[k], (wfi_stream)s);
                int32_t n = i >= 0 && is_ready(o, i) ? gather_group(o, i, group) : 0;
                if (n) WF_TRY(run_group(o, group, n, joined));
                moved |= n > 0;
            }
    }
    return o->n_run == p->n_instructions ? WF_OK : deadlock(o);
}

wf_status wfi_program_order(wf_program *p) {
    ordering o = {.p = p};
    wfi_pool pool = {.ctx = p->ctx};
    const char *what = "the program's order";
    size_t n_streams = (size_t)p->n_ranks * WFI_N_STREAMS, n = (size_t)p->n_instructions;
    o.width = (size_t)p->n_lowered * WFI_N_STREAMS;
    o.free_row = -1;
    wfi_free(p->ctx, p->clock);
    wfi_free(p->ctx, p->order);
    p->clock = wfi_alloc(p->ctx, n * WFI_N_STREAMS, sizeof *p->clock, "the program's clocks");
    p->order = wfi_alloc(p->ctx, n, sizeof *p->order, what);
    o.at = wfi_pool_array(&pool, n_streams, sizeof *o.at, what);
    o.now = wfi_pool_array(&pool, n_streams, sizeof *o.now, what);
    o.ran = wfi_pool_array(&pool, n, sizeof *o.ran, what);
    o.row_of = wfi_pool_array(&pool, n, sizeof *o.row_of, what);
    o.blocker = wfi_pool_array(&pool, n_streams, sizeof *o.blocker, what);
    o.n_waiting = wfi_pool_array(&pool, n, sizeof *o.n_waiting, what);
    int32_t *group = wfi_pool_array(&pool, (size_t)p->n_ranks + 1, sizeof *group, what);
    int32_t *joined = wfi_pool_array(&pool, o.width, sizeof *joined, what);
    bool ok = p->clock && p->order && !pool.failed;
    if (ok) memset(o.now, -1, n_streams * sizeof *o.now);
    if (ok) memset(o.blocker, -1, n_streams * sizeof *o.blocker);
    if (ok) count_waiting(&o);
    wf_status status = ok ? run_all(&o, group, joined) : WF_NO_MEMORY;
    wfi_free(p->ctx, o.rows);
    wfi_pool_release(&pool);
    return status;
}
