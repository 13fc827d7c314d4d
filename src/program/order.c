/* What happens before what: runs all streams of all lowered ranks symbolically, in rounds. An
 * instruction can run when it is at the head of its stream and its dependencies
 * have run in earlier rounds; a send and its receive, or the members of a collective, run at once.
 * The result is one legal order and, for each instruction, a vector clock.
 *
 * In a round each stream runs one instruction at most, one kind of stream after the other, so that
 * equal ranks are equally far: the order of a rank's instructions does not depend on which ranks
 * are like it, nor on whether they are lowered (classes.c).
 */
#include "program/passes.h"

#include <string.h>

typedef struct ordering {
    wf_program *p;
    int32_t *at;  /* [rank][stream] how many have run */
    int32_t *now; /* [rank][stream] the stream's latest, or -1 */
    int32_t *ran; /* [instruction] in which round, from 1 on; 0: not yet */
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

/* Whether what stands in front of it, and what it depends on, ran in earlier rounds. */
static bool is_ready(const ordering *o, int32_t i) {
    const wfi_instruction *now = &o->p->instructions[i];
    int32_t before = o->now[now->rank * WFI_N_STREAMS + (int)now->stream];
    if (before >= 0 && !has_run(o, before)) return false;
    for (int32_t k = 0; k < now->n_depends; k++)
        if (!has_run(o, now->depends[k])) return false;
    return true;
}

static bool is_pair(const wfi_instruction *send, const wfi_instruction *receive,
                    const wf_program *p) {
    return send->kind == WFI_SEND && receive->kind == WFI_RECEIVE && send->peer == receive->rank &&
           receive->peer == send->rank && send->id == receive->id &&
           send->micro == receive->micro &&
           p->blocks[send->references[0].block].kind ==
               p->blocks[receive->references[0].block].kind;
}

bool wfi_same_collective(const wf_program *p, const wfi_instruction *a, const wfi_instruction *b) {
    if (b->stream != WFI_STREAM_REDUCE || a->kind != b->kind || a->unit != b->unit ||
        a->from != b->from || a->to != b->to || a->group != b->group ||
        a->n_references != b->n_references)
        return false;
    for (int32_t k = 0; k < a->n_references; k++) {
        const wfi_block *x = &p->blocks[a->references[k].block],
                        *y = &p->blocks[b->references[k].block];
        if (wfi_reference_begin(p, &a->references[k]) != wfi_reference_begin(p, &b->references[k]))
            return false;
        if (x->kind != y->kind || x->id != y->id || x->depth != y->depth || x->micro != y->micro)
            return false;
    }
    return true;
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

static void run_group(ordering *o, const int32_t *group, int32_t n) {
    wf_program *p = o->p;
    size_t width = (size_t)p->n_clocks;
    int32_t *joined = p->clock + (size_t)group[0] * width;
    for (int32_t k = 0; k < n; k++) {
        const wfi_instruction *now = &p->instructions[group[k]];
        int32_t stream = now->rank * WFI_N_STREAMS + (int)now->stream;
        for (int32_t e = -1; e < now->n_depends; e++) {
            int32_t before = e < 0 ? o->now[stream] : now->depends[e];
            if (before < 0) continue;
            const int32_t *clock = p->clock + (size_t)before * width;
            for (size_t c = 0; c < width; c++)
                if (clock[c] > joined[c]) joined[c] = clock[c];
        }
    }
    for (int32_t k = 0; k < n; k++) {
        const wfi_instruction *now = &p->instructions[group[k]];
        int32_t stream = now->rank * WFI_N_STREAMS + (int)now->stream;
        joined[p->ranks[now->rank].row * WFI_N_STREAMS + (int)now->stream] = now->position + 1;
        o->now[stream] = group[k];
        o->at[stream]++;
        o->ran[group[k]] = o->round;
        p->order[o->n_run++] = group[k];
    }
    for (int32_t k = 1; k < n; k++)
        memcpy(p->clock + (size_t)group[k] * width, joined, width * sizeof *joined);
}

static wf_status deadlock(const ordering *o) {
    const wf_program *p = o->p;
    wfi_text text;
    wfi_text_init(&text, p->ctx);
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

static wf_status run_all(ordering *o, int32_t *group) {
    wf_program *p = o->p;
    bool moved = true;
    while (moved) {
        moved = false;
        o->round++;
        for (int s = 0; s < WFI_N_STREAMS; s++)
            for (int32_t k = 0; k < p->n_lowered; k++) {
                int32_t i = head(o, p->lowered[k], (wfi_stream)s);
                int32_t n = i >= 0 && is_ready(o, i) ? gather_group(o, i, group) : 0;
                if (n) run_group(o, group, n);
                moved |= n > 0;
            }
    }
    return o->n_run == p->n_instructions ? WF_OK : deadlock(o);
}

wf_status wfi_program_order(wf_program *p) {
    ordering o = {.p = p};
    size_t n_streams = (size_t)p->n_ranks * WFI_N_STREAMS, n = (size_t)p->n_instructions;
    p->n_clocks = p->n_lowered * WFI_N_STREAMS;
    wfi_free(p->ctx, p->clock);
    wfi_free(p->ctx, p->order);
    p->clock = wfi_alloc(p->ctx, n * (size_t)p->n_clocks, sizeof *p->clock, "the program's clocks");
    p->order = wfi_alloc(p->ctx, n, sizeof *p->order, "the program's order");
    o.at = wfi_alloc(p->ctx, n_streams, sizeof *o.at, "the program's order");
    o.now = wfi_alloc(p->ctx, n_streams, sizeof *o.now, "the program's order");
    o.ran = wfi_alloc(p->ctx, n, sizeof *o.ran, "the program's order");
    int32_t *group =
        wfi_alloc(p->ctx, (size_t)p->n_ranks + 1, sizeof *group, "the program's order");
    bool ok = p->clock && p->order && o.at && o.now && o.ran && group;
    if (ok) memset(o.now, -1, n_streams * sizeof *o.now);
    wf_status status = ok ? run_all(&o, group) : WF_NO_MEMORY;
    wfi_free(p->ctx, o.at);
    wfi_free(p->ctx, o.now);
    wfi_free(p->ctx, o.ran);
    wfi_free(p->ctx, group);
    return status;
}
