/* Instructions of the steady phase, one period apart: which blocks of the short form have one
 * offset, and which of its instructions stands for one of the whole step.
 */
#include "compile/short_form.h"
#include "layout/layout.h"
#include "program/stage.h"
#include "program/text.h"

/* A rank's instructions, of the whole step or of the short form. */
typedef struct rank_code {
    int32_t begin, end;
} rank_code;

static rank_code next_rank(const wf_program *p, int32_t begin) {
    int32_t end = begin;
    while (end < p->n_instructions && p->instructions[end].rank == p->instructions[begin].rank)
        end++;
    return (rank_code){begin, end};
}

/* The first of the rank's actions that begins there or later. */
static int32_t find_action(const wfi_short_form *f, int32_t rank, int32_t place) {
    int32_t k = 0;
    while (k < f->lists[rank].n && f->sequence.begin[rank][k] < place) k++;
    return k;
}

/* A cut of a rank's list: actions [action, action + n) are left out. In the short form the period
 * before it is [begin, end) of its instructions, and the period after it ends at `after`. */
typedef struct cut {
    int32_t action, n;
    int32_t begin, end, after;
} cut;

static cut find_cut(const wfi_short_form *f, int32_t rank, int32_t number) {
    cut c;
    const int32_t *emitted = f->short_sequence.emitted[rank];
    c.action = find_action(f, rank, f->cuts[number]);
    c.n = find_action(f, rank, f->cuts[number] + f->n_places) - c.action;
    int32_t n_period = (int32_t)(c.n / (f->n_left_out / f->n_period)), k = c.action - number * c.n;
    c.begin = emitted[k - n_period];
    c.end = emitted[k];
    c.after = emitted[k + n_period];
    return c;
}

static bool is_same(const wfi_instruction *a, const wfi_instruction *b) {
    return a->kind == b->kind && a->rank == b->rank && a->stream == b->stream &&
           a->unit == b->unit && a->id == b->id && a->peer == b->peer && a->group == b->group &&
           a->from == b->from && a->to == b->to && a->part == b->part && a->first == b->first &&
           a->segment == b->segment && a->n_references == b->n_references &&
           a->n_depends == b->n_depends;
}

/* Blocks take turns in one order. */
static bool add_turn(const wf_program *s, int32_t *next, int32_t a, int32_t b) {
    const wfi_block *x = &s->blocks[a], *y = &s->blocks[b];
    bool is_alike = x->name.kind == y->name.kind && x->name.owner == y->name.owner &&
                    x->space == y->space && x->bytes == y->bytes && x->begin == y->begin &&
                    x->is_state == y->is_state;
    if (a == b || x->name.kind == WFI_BLOCK_RECORD) return is_alike;
    if (!is_alike || x->is_state || (next[a] >= 0 && next[a] != b)) return false;
    next[a] = b;
    return true;
}

/* Whether instruction i comes again n instructions later. */
static bool comes_again(const wf_program *s, int32_t i, int32_t n, int32_t *next) {
    const wfi_instruction *a = &s->instructions[i], *b = &s->instructions[i + n];
    bool is = is_same(a, b);
    for (int32_t k = 0; is && k < a->n_depends; k++) is = a->depends[k] + n == b->depends[k];
    for (int32_t k = 0; is && k < a->n_references; k++) {
        const wfi_reference *x = &a->references[k], *y = &b->references[k];
        is = x->offset == y->offset && x->bytes == y->bytes && x->access == y->access &&
             add_turn(s, next, x->block, y->block);
    }
    return is;
}

wf_status wfi_short_form_next(const wfi_short_form *f, int32_t *next, bool *is_periodic_out) {
    const wf_program *s = f->shorter;
    bool is = true;
    for (int32_t b = 0; b < s->n_blocks; b++) next[b] = -1;
    for (int32_t k = 0; k < s->n_lowered && is; k++)
        for (int32_t number = 0; number < f->n_cuts && is; number++) {
            cut c = find_cut(f, s->lowered[k], number);
            int32_t n = c.end - c.begin;
            is = n > 0 && c.after - c.end == n;
            for (int32_t i = c.begin; i < c.end && is; i++) is = comes_again(s, i, n, next);
        }
    *is_periodic_out = is;
    return WF_OK;
}

wf_status wfi_short_form_mark(const wfi_short_form *f) {
    wf_program *s = f->shorter;
    s->n_cuts = f->n_cuts;
    s->n_period = f->n_period;
    s->n_times = f->n_left_out / f->n_period;
    s->repeats = wfi_pool_alloc(&s->pool, (size_t)(s->n_lowered * s->n_cuts), sizeof *s->repeats);
    if (!s->repeats) return WF_NO_MEMORY;
    for (int32_t k = 0; k < s->n_lowered; k++)
        for (int32_t number = 0; number < s->n_cuts; number++) {
            cut c = find_cut(f, s->lowered[k], number);
            s->repeats[k * s->n_cuts + number] = (wfi_repeat){c.begin, c.end, c.after};
            s->ranks[s->lowered[k]].n_repeated += s->n_times * (c.end - c.begin);
        }
    return WF_OK;
}

/* ---- the whole step ---- */

typedef struct copying {
    const wfi_short_form *f;
    wf_program *p;
    bool *is_placed; /* [n_blocks] */
} copying;

static wf_status fail(const copying *c, int32_t i) {
    wfi_text text;
    wfi_text_init(&text, c->p->ctx);
    wfi_instruction_text(c->p, i, &text);
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK)
        status = wfi_fail(c->p->ctx, WF_BUG, "the steady phase does not repeat at: %s", text.data);
    wfi_free(c->p->ctx, text.data);
    return status;
}

static size_t offset_of(const copying *c, const wfi_block *block, int32_t other) {
    const wf_program *s = c->f->shorter;
    int64_t first = wfi_first_micro(c->p, 0, wfi_mesh_at(&c->p->mesh, WFI_DP, block->rank));
    if (!s->ring_of[other]) return s->blocks[other].offset;
    return wfi_ring_offset(&s->rings[s->ring_of[other] - 1], block->name.micro, first);
}

/* Blocks of instruction i of the step have the offsets of those of instruction j of the short form.
 * Records have their own. */
static wf_status copy_one(const copying *c, int32_t i, int32_t j) {
    const wfi_instruction *to = &c->p->instructions[i], *from = &c->f->shorter->instructions[j];
    bool is = to->kind == from->kind && to->unit == from->unit && to->segment == from->segment &&
              (to->kind == WFI_REPORT || to->n_references == from->n_references);
    for (int32_t k = 0; is && k < to->n_references && to->kind != WFI_REPORT; k++) {
        int32_t b = to->references[k].block;
        wfi_block *block = &c->p->blocks[b];
        const wfi_block *other = &c->f->shorter->blocks[from->references[k].block];
        if (block->name.kind == WFI_BLOCK_RECORD) continue;
        size_t offset = offset_of(c, block, from->references[k].block);
        is = block->bytes == other->bytes && block->space == other->space &&
             (!c->is_placed[b] || block->offset == offset);
        block->offset = offset;
        c->is_placed[b] = true;
    }
    return is ? WF_OK : fail(c, i);
}

static wf_status copy_rank(const copying *c, rank_code to, rank_code from) {
    const wfi_short_form *f = c->f;
    int32_t rank = c->p->instructions[to.begin].rank, i = to.begin, j = from.begin;
    const int32_t *emitted = f->sequence.emitted[rank];
    for (int32_t number = 0; number < f->n_cuts; number++) {
        cut own = find_cut(f, rank, number);
        for (; i < emitted[own.action]; i++, j++) WF_TRY(copy_one(c, i, j));
        if (j != own.end) return fail(c, i);
        for (; i < emitted[own.action + own.n]; i++, j++) {
            if (j == own.after) j = own.begin;
            WF_TRY(copy_one(c, i, j));
        }
        if (j != own.end) return fail(c, i - 1);
    }
    for (; i < to.end && j < from.end; i++, j++) WF_TRY(copy_one(c, i, j));
    return i == to.end && j == from.end ? WF_OK : fail(c, i - 1);
}

/* State has the same places in both, and so has the instruction at the peak. */
static void copy_arenas(const copying *c, int32_t rank, rank_code code, rank_code short_code) {
    wfi_rank *to = &c->p->ranks[rank];
    const wfi_rank *from = &c->f->shorter->ranks[rank];
    for (int k = 0; k < WFI_N_SPACES; k++) to->arenas[k] = from->arenas[k];
    for (int32_t k = 0; k < to->end_block - to->first_block; k++) {
        wfi_block *block = &c->p->blocks[to->first_block + k];
        if (block->is_state) block->offset = c->f->shorter->blocks[from->first_block + k].offset;
    }
    wfi_place_records(c->p, to);
    int32_t n_out = (code.end - code.begin) - (short_code.end - short_code.begin);
    to->peak_instruction = code.begin + from->peak_instruction - short_code.begin;
    for (int32_t number = 0; number < c->f->n_cuts; number++)
        if (from->peak_instruction >= find_cut(c->f, rank, number).end)
            to->peak_instruction += n_out / c->f->n_cuts;
}

wf_status wfi_short_form_copy(const wfi_short_form *f, wf_program *p) {
    copying c = {.f = f, .p = p};
    wf_status status = WF_OK;
    c.is_placed = wfi_alloc(p->ctx, (size_t)p->n_blocks, sizeof *c.is_placed, "the memory plan");
    if (!c.is_placed) return WF_NO_MEMORY;
    rank_code to = {0, 0}, from = {0, 0};
    for (int32_t k = 0; k < p->n_lowered && status == WF_OK; k++) {
        int32_t rank = p->lowered[k];
        to = next_rank(p, to.end);
        from = next_rank(f->shorter, from.end);
        status = copy_rank(&c, to, from);
        copy_arenas(&c, rank, to, from);
    }
    wfi_free(p->ctx, c.is_placed);
    return status;
}
