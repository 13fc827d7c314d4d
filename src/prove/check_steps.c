/* The checker's part about the steps of changes (change.c): the executor moves pieces by them. The
 * reads and writes of each step are derived, through the staging, and compared with the meaning of
 * the change:
 *
 * - All members that take part in a piece name the same bytes of it.
 * - A member that gets a copy reads all of it, once, from the member that has it.
 * - A member that gets a sum adds the summands of all members, once, over the tree of base/tree.h.
 * - In an all-reduce each member follows the plan's algorithm (comm/algorithm) in each phase. That
 *   algorithms give every member the sum is proved by a test, comm_allreduce.
 * - Bytes are staged within the staging, and stay there until the step that reads them; beside all
 *   others of the phase, if the plan stages at once.
 * - Kernels add only operands in memory that they reach.
 */
#include "program/change.h"
#include "program/clock.h"
#include "prove/check.h"
#include "prove/term.h"

/* Elements that were copied to the staging, from its element `begin` on. */
typedef struct staged {
    int64_t begin;
    wfi_access from;
} staged;

/* Steps of one member in one phase, as they are followed. */
typedef struct course {
    const wf_program *p;
    const wfi_instruction *now;
    wfi_reduce_part part;
    bool is_given;           /* steps that the executor runs, not those that the change means */
    int64_t n_staging;       /* elements that the staging has */
    int64_t staged_at;       /* where it begins for the next step */
    int64_t taken;           /* its elements before this one are in use */
    staged *staged;          /* [n_staged] since the last step that was no STAGE */
    int32_t n_staged, found; /* found: of them, by the latest read */
} course;

typedef struct checker {
    const wf_program *p;
    const int32_t *members; /* [n] instructions of the collective */
    int32_t n, n_moved;
    int32_t *owners; /* [n_moved] which of these has the piece, or -1 */
    wfi_reduce_step *wanted;
    staged *staged[2]; /* by steps that are given, and by those that are wanted */
} checker;

static const char *stage(course *f, const wfi_reduce_step *step) {
    wfi_access from, to;
    (void)wfi_reduce_access(&f->part, step, 0, &from);
    (void)wfi_reduce_access(&f->part, step, 1, &to);
    int64_t begin = f->staged_at + to.begin;
    if (begin < f->taken) return "stages a piece over another one";
    if (begin + to.n > f->n_staging) return "stages more than its staging has room for";
    if (f->n_staged == f->part.n) return "stages more pieces than there are members";
    f->taken = begin + to.n;
    f->staged[f->n_staged++] = (staged){begin, from};
    return NULL;
}

/* Replaces an access to the staging by the source of that copy. Steps read it in order. */
static bool find_staged(course *f, wfi_access *access) {
    for (int32_t tries = 0; tries < f->n_staged; tries++) {
        f->found = (f->found + 1) % f->n_staged;
        const staged *s = &f->staged[f->found];
        if (s->begin != f->staged_at + access->begin || s->from.n != access->n) continue;
        *access = s->from;
        return true;
    }
    return false;
}

static bool reaches(const course *f, const wfi_reduce_step *step, const wfi_access *a) {
    const int32_t *ranks = f->p->groups[f->now->group].ranks;
    bool sums = step->kind != WFI_REDUCE_COPY && step->kind != WFI_REDUCE_JOIN;
    return !sums || !f->is_given ||
           wfi_plan_is_near(f->p->plan, ranks[f->part.own], ranks[a->rank]);
}

/* Adds the effect of the step to the term: where each operand comes from, and where the result
 * goes. */
static const char *follow(course *f, const wfi_reduce_step *step, wfi_term *done) {
    bool is_sum = step->kind == WFI_REDUCE_SUM || step->kind == WFI_REDUCE_STAGED;
    wfi_access a;
    *done = wfi_term_mix(*done, is_sum ? WFI_REDUCE_SUM : (uint64_t)step->kind);
    for (int32_t i = 0; wfi_reduce_access(&f->part, step, i, &a); i++) {
        bool is_staged = a.window == WFI_WINDOW_STAGING;
        if (is_staged && (a.writes || !find_staged(f, &a)))
            return "adds bytes of its staging that were not copied there";
        if (!is_staged && !reaches(f, step, &a)) return "adds bytes that its kernels do not reach";
        *done = wfi_term_mix(wfi_term_mix(*done, (uint64_t)a.rank), (uint64_t)a.window);
        *done = wfi_term_mix(wfi_term_mix(*done, (uint64_t)a.begin), (uint64_t)a.n);
        *done = wfi_term_mix(*done, a.writes);
    }
    f->n_staged = f->found = 0;
    return NULL;
}

static const char *follow_all(course *f, const wfi_reduce_step *steps, int32_t n, wfi_term *done) {
    const char *wrong = NULL;
    for (int32_t k = 0; k < n && !wrong; k++) {
        bool stages = steps[k].kind == WFI_REDUCE_STAGE;
        wrong = stages ? stage(f, &steps[k]) : follow(f, &steps[k], done);
        if (f->is_given) f->staged_at += wfi_change_staged_by(f->p, steps, k);
        if (!stages && !(f->is_given && f->p->plan->stages_at_once)) f->taken = 0;
    }
    return wrong;
}

/* The member from which others copy piece r, or -1. */
static int32_t find_owner(const checker *c, const wfi_instruction *now, int32_t r) {
    const wfi_group *group = &c->p->groups[now->group];
    int32_t k = c->owners[r];
    if (k >= 0) return wfi_group_find(group, c->p->instructions[c->members[k]].rank);
    int32_t owner = wfi_named_piece(c->p, now, r).owner;
    bool follows = owner >= 0 && !wfi_rank_is_lowered(c->p, group->ranks[owner]);
    return follows ? owner : -1;
}

/* The steps that the change means for piece r; -1: there are none that could give it. */
static int32_t list_wanted(const checker *c, const course *f, int32_t r) {
    const wfi_allreduce *how = wfi_change_algorithm(c->p, f->now);
    if (how) return how->steps(&f->part, c->wanted);
    bool sums = wfi_is_reduction(f->now);
    wfi_reduce_step step = {.kind = sums ? WFI_REDUCE_SUM : WFI_REDUCE_COPY, .end = f->part.n_elem};
    if (!(f->now->references[r].access & WFI_WRITE)) return 0;
    if (!sums) step.left = find_owner(c, f->now, r);
    return step.left < 0 ? -1 : wfi_reduce_push(c->wanted, 0, step);
}

/* Whether both are the same copies, without staging: then following them finds nothing wrong. */
static bool are_equal_copies(const wfi_reduce_step *x, const wfi_reduce_step *y, int32_t n) {
    bool are = true;
    for (int32_t k = 0; k < n && are; k++)
        are = x[k].kind == WFI_REDUCE_COPY && y[k].kind == WFI_REDUCE_COPY &&
              x[k].left == y[k].left && x[k].begin == y[k].begin && x[k].end == y[k].end &&
              x[k].left_in == y[k].left_in && x[k].left_in != WFI_WINDOW_STAGING &&
              x[k].target == y[k].target && x[k].to == y[k].to && x[k].to != WFI_WINDOW_STAGING &&
              x[k].at == y[k].at;
    return are;
}

static const char *check_piece(const checker *c, course *f, int32_t r) {
    const wfi_reference *piece = &f->now->references[r];
    wfi_term done = 1, wanted = 1;
    if (piece->bytes % sizeof(float)) return "moves a piece that is not made of 4-byte elements";
    f->part.n_elem = (int64_t)(piece->bytes / sizeof(float));
    course meant = {.p = f->p, .now = f->now, .part = f->part, .n_staging = INT64_MAX};
    meant.staged = c->staged[1];
    int32_t n_wanted = list_wanted(c, f, r), n;
    if (n_wanted < 0) return "copies a piece that no member has";
    n = wfi_change_steps(f->p, f->now, f->part.own, r, f->part.phase, f->p->steps);
    if (n == n_wanted && are_equal_copies(c->wanted, f->p->steps, n)) return NULL;
    const char *wrong = follow_all(&meant, c->wanted, n_wanted, &wanted);
    if (!wrong) wrong = follow_all(f, f->p->steps, n, &done);
    if (!wrong && done != wanted)
        return "has steps that do not copy each piece from its owner, or sum it over all members";
    return wrong;
}

static wf_status check_member(const checker *c, int32_t i) {
    const wf_program *p = c->p;
    const wfi_instruction *now = &p->instructions[i];
    const wfi_allreduce *how = wfi_change_algorithm(p, now);
    const wfi_group *group = &p->groups[now->group];
    int32_t n_phases = how ? how->n_phases(group->n) : 1;
    bool stages = now->n_references > c->n_moved;
    if (wfi_change_n_phases(p, now) != n_phases)
        return wfi_check_refuse(p, i, "has more phases, or fewer, than its algorithm");
    for (int32_t phase = 0; phase < n_phases; phase++) {
        course f = {.p = p, .now = now, .is_given = true, .staged = c->staged[0]};
        f.part = (wfi_reduce_part){
            .n = group->n, .own = wfi_group_find(group, now->rank), .phase = phase};
        if (stages) f.n_staging = (int64_t)(now->references[c->n_moved].bytes / sizeof(float));
        for (int32_t r = 0; r < c->n_moved; r++) {
            const char *wrong = check_piece(c, &f, r);
            if (wrong) return wfi_check_refuse(p, i, wrong);
        }
    }
    return WF_OK;
}

/* Finds the owners, and compares the bytes of each piece with theirs. */
static wf_status check_bytes(const checker *c) {
    const wf_program *p = c->p;
    for (int32_t r = 0; r < c->n_moved; r++) {
        c->owners[r] = -1;
        for (int32_t k = 0; k < c->n && c->owners[r] < 0; k++)
            if (p->instructions[c->members[k]].references[r].access & WFI_READ) c->owners[r] = k;
        if (c->owners[r] < 0) continue;
        const wfi_reference *own = &p->instructions[c->members[c->owners[r]]].references[r];
        for (int32_t k = 0; k < c->n; k++) {
            const wfi_reference *other = &p->instructions[c->members[k]].references[r];
            bool is_same = other->bytes == own->bytes &&
                           wfi_reference_begin(p, other) == wfi_reference_begin(p, own);
            if (other->access && !is_same)
                return wfi_check_refuse(p, c->members[k], "moves other bytes than its owner has");
        }
    }
    return WF_OK;
}

wf_status wfi_check_steps(const wf_program *p, const int32_t *members, int32_t n) {
    const wfi_instruction *first = &p->instructions[*members];
    size_t most = (size_t)p->groups[first->group].n;
    checker c = {.p = p, .members = members, .n = n, .n_moved = wfi_n_moved(p, first)};
    c.owners = wfi_alloc(p->ctx, (size_t)c.n_moved, sizeof *c.owners, "the program check");
    c.wanted = wfi_alloc(p->ctx, most, sizeof *c.wanted, "the program check");
    c.staged[0] = wfi_alloc(p->ctx, 2 * most, sizeof *c.staged[0], "the program check");
    bool ok = c.owners && c.wanted && c.staged[0];
    if (ok) c.staged[1] = c.staged[0] + most;
    wf_status status = ok ? check_bytes(&c) : WF_NO_MEMORY;
    for (int32_t k = 0; k < n && status == WF_OK; k++) status = check_member(&c, members[k]);
    wfi_free(p->ctx, c.owners);
    wfi_free(p->ctx, c.wanted);
    wfi_free(p->ctx, c.staged[0]);
    return status;
}
