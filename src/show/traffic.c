/* Counts the traffic of each rank in one step: sends and receives, and copies between its device
 * and other spaces. A rank that reads another's memory receives, and the other one sends, over any
 * wire. */
#include "program/change.h"
#include "program/map.h"
#include "show/show.h"

#include <string.h>

typedef struct bytes {
    size_t sent, received;
} bytes;

/* The traffic of the members of a group for pieces of one size. Many are of the same one. */
typedef struct tally {
    int32_t n;
    int64_t n_elem;
    bytes *members; /* [n] */
} tally;

typedef struct counting {
    wf_program *p;
    tally *tallies; /* of all-reduces, which are by one algorithm */
    int32_t n_tallies;
    size_t capacity;
    bytes *members; /* [n_ranks] in another change */
    bytes **totals; /* [n_groups] of the members of each group with lowered ranks; or NULL */
} counting;

/* Returns how many operands it reads. */
static int32_t count_step(const wfi_reduce_part *part, const wfi_reduce_step *step,
                          bytes *members) {
    wfi_access a;
    int32_t n_reads = 0;
    for (int32_t i = 0; wfi_reduce_access(part, step, i, &a); i++) {
        n_reads += !a.writes;
        if (a.rank == part->own || a.writes) continue;
        members[a.rank].sent += (size_t)a.n * sizeof(float);
        members[part->own].received += (size_t)a.n * sizeof(float);
    }
    return n_reads;
}

/* That the members' devices have kernels which sum so many ranks at once. */
static wf_status check_sum(const wf_program *p, const wfi_instruction *now, int32_t n) {
    const wfi_device_class *kind = wfi_plan_device(p->plan, p->groups[now->group].ranks[0]).kind;
    int most = wfi_backend_of(kind)->most_summed;
    if (!most || n <= most) return WF_OK;
    return wfi_fail(p->ctx, WF_UNSUPPORTED,
                    "a sum of more than %d ranks on %s devices at once; choose allreduce=tree, "
                    "without zero",
                    most, kind->name);
}

/* An engine's traffic is unknown. The count assumes a ring, the least possible. */
static int32_t list_steps(const counting *c, const wfi_instruction *now,
                          const wfi_reduce_part *part, int32_t r) {
    if (wfi_change_algorithm(c->p, now) == &wfi_allreduce_engine)
        return wfi_allreduce_ring.steps(part, c->p->steps);
    return wfi_change_steps(c->p, now, part->own, r, part->phase, c->p->steps);
}

/* The traffic of all members for gradient r of an all-reduce, lowered or not; `now` is one's
 * instruction. */
static wf_status count_gradient(const counting *c, const wfi_instruction *now, int32_t r,
                                bytes *members) {
    int64_t n_elem = (int64_t)(now->references[r].bytes / sizeof(float));
    wfi_reduce_part part = {.n = c->p->groups[now->group].n, .n_elem = n_elem};
    bool is_engine = wfi_change_algorithm(c->p, now) == &wfi_allreduce_engine;
    int32_t n_phases =
        is_engine ? wfi_allreduce_ring.n_phases(part.n) : wfi_change_n_phases(c->p, now);
    for (part.own = 0; part.own < part.n; part.own++)
        for (part.phase = 0; part.phase < n_phases; part.phase++) {
            int32_t n = list_steps(c, now, &part, r);
            for (int32_t k = 0; k < n; k++)
                WF_TRY(check_sum(c->p, now, count_step(&part, &c->p->steps[k], members)));
        }
    return WF_OK;
}

/* The same, counted once for each size. */
static wf_status find_tally(counting *c, const wfi_instruction *now, int32_t r,
                            const bytes **members_out) {
    wf_context *ctx = c->p->ctx;
    int32_t n = c->p->groups[now->group].n;
    int64_t n_elem = (int64_t)(now->references[r].bytes / sizeof(float));
    for (int32_t k = 0; k < c->n_tallies; k++)
        if (c->tallies[k].n == n && c->tallies[k].n_elem == n_elem) {
            *members_out = c->tallies[k].members;
            return WF_OK;
        }
    WF_TRY(WFI_GROW(ctx, c->tallies, c->n_tallies, c->capacity, "counting bytes"));
    bytes *members = wfi_alloc(ctx, (size_t)n, sizeof *members, "counting bytes");
    if (!members) return WF_NO_MEMORY;
    c->tallies[c->n_tallies++] = (tally){n, n_elem, members};
    *members_out = members;
    return count_gradient(c, now, r, members);
}

/* For another change a receiver reads a piece from its owner, and a sum from all members. Adds the
 * traffic of all members to `all`, and differences from it to those of single ones. */
static void count_piece(const counting *c, const wfi_instruction *now, int32_t r, bytes *all) {
    const wfi_piece piece = wfi_named_piece(c->p, now, r);
    size_t n_others = (size_t)c->p->groups[now->group].n - 1;
    size_t size = piece.extent.bytes / (size_t)piece.n_owners;
    for (int32_t owner = piece.owner; owner < piece.owner + piece.n_owners; owner++) {
        int32_t from = now->from == WFI_AT ? 0 : owner, to = now->to == WFI_AT ? 0 : owner;
        if (wfi_is_reduction(now)) {
            all->sent += size;
            c->members[to].sent -= size; /* one's own */
            c->members[to].received += n_others * size;
        } else if (now->to == WFI_REPLICATE) {
            all->received += size;
            c->members[from].sent += n_others * size;
            c->members[from].received -= size;
        } else {
            c->members[from].sent += from == to ? 0 : size;
            c->members[to].received += from == to ? 0 : size;
        }
    }
}

/* The group is that of a stage's replicas, of ranks that share a norm, or of ranks that divide
 * slices. */
static int kind_of(const wf_program *p, int32_t g) {
    return (g >= p->first_norm_group) + (g >= p->first_slice_group);
}

/* Whether a group without a lowered rank has the traffic of another one: the group with the lowered
 * ranks that its ranks follow. */
static bool is_like(const wf_program *p, const wfi_group *group, int32_t g) {
    const wfi_group *other = &p->groups[g];
    if (other == group) return true;
    if (other->n_lowered || other->stage != group->stage || other->n != group->n ||
        kind_of(p, g) != kind_of(p, (int32_t)(group - p->groups)))
        return false;
    return wfi_group_find(group, p->ranks[*other->ranks].like) >= 0 &&
           (other->part < 0) == (group->part < 0);
}

/* Adds the traffic of a change: that of each member, and `all` of every one. */
static wf_status add_members(counting *c, int32_t g, const bytes *members, bytes all,
                             size_t n_times) {
    int32_t n = c->p->groups[g].n;
    if (!c->totals[g])
        c->totals[g] = wfi_alloc(c->p->ctx, (size_t)n, sizeof **c->totals, "counting bytes");
    if (!c->totals[g]) return WF_NO_MEMORY;
    for (int32_t m = 0; m < n; m++) {
        c->totals[g][m].sent += n_times * (members[m].sent + all.sent);
        c->totals[g][m].received += n_times * (members[m].received + all.received);
    }
    return WF_OK;
}

/* Adds the traffic of a group to its ranks and to those of the groups that are like it. */
static void share_total(wf_program *p, int32_t own, const bytes *total) {
    for (int32_t g = 0; g < p->n_groups && total; g++) {
        int32_t n = is_like(p, &p->groups[own], g) ? p->groups[own].n : 0;
        for (int32_t m = 0; m < n; m++) {
            wfi_rank *rank = &p->ranks[p->groups[g].ranks[m]];
            rank->sent_bytes += total[m].sent;
            rank->received_bytes += total[m].received;
        }
    }
}

static wf_status count_change(counting *c, const wfi_instruction *now, size_t n_times) {
    const wfi_group *group = &c->p->groups[now->group];
    const bytes *members = c->members;
    bool has_algorithm = wfi_change_algorithm(c->p, now) != NULL;
    bytes all = {0, 0};
    if (!has_algorithm && wfi_is_reduction(now)) WF_TRY(check_sum(c->p, now, group->n));
    memset(c->members, 0, (size_t)group->n * sizeof *c->members);
    for (int32_t r = 0; r < wfi_n_moved(c->p, now); r++) {
        if (!has_algorithm) {
            count_piece(c, now, r, &all);
            continue;
        }
        WF_TRY(find_tally(c, now, r, &members));
        WF_TRY(add_members(c, now->group, members, all, n_times));
    }
    return has_algorithm ? WF_OK : add_members(c, now->group, members, all, n_times);
}

/* Counts transfers between two ranks or two spaces; ranks that follow do the same. */
static void count_moves(wf_program *p) {
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        bool is_moved = now->kind == WFI_FETCH || now->kind == WFI_EVICT || now->kind == WFI_SEND;
        size_t size = is_moved ? (size_t)wfi_times_of(p, i) * now->references[0].bytes : 0;
        if (now->kind == WFI_FETCH) p->ranks[now->rank].fetched_bytes += size;
        if (now->kind == WFI_EVICT) p->ranks[now->rank].evicted_bytes += size;
        if (now->kind != WFI_SEND) continue;
        p->ranks[now->rank].sent_bytes += size;
        p->ranks[now->peer].received_bytes += size;
    }
}

/* Members of one collective may do different things, so those that follow are counted one by one.
 */
static wf_status count_changes(counting *c) {
    wf_program *p = c->p;
    for (int32_t at = 0; at < p->n_instructions; at++) {
        const wfi_instruction *now = &p->instructions[p->order[at]];
        if (now->kind != WFI_CHANGE) continue;
        WF_TRY(count_change(c, now, (size_t)wfi_times_of(p, p->order[at])));
        at += p->groups[now->group].n_lowered - 1; /* the members stand side by side */
    }
    return WF_OK;
}

wf_status wfi_program_count_traffic(wf_program *p) {
    counting c = {.p = p};
    c.members = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *c.members, "counting bytes");
    c.totals = wfi_alloc(p->ctx, (size_t)p->n_groups, sizeof *c.totals, "counting bytes");
    for (int32_t r = 0; r < p->n_ranks; r++)
        p->ranks[r].sent_bytes = p->ranks[r].received_bytes = 0;
    count_moves(p);
    wfi_program_share(p);
    wf_status status = c.members && c.totals ? count_changes(&c) : WF_NO_MEMORY;
    for (int32_t g = 0; g < p->n_groups && c.totals; g++) {
        if (status == WF_OK) share_total(p, g, c.totals[g]);
        wfi_free(p->ctx, c.totals[g]);
    }
    for (int32_t k = 0; k < c.n_tallies; k++) wfi_free(p->ctx, c.tallies[k].members);
    wfi_free(p->ctx, c.tallies);
    wfi_free(p->ctx, c.totals);
    wfi_free(p->ctx, c.members);
    return status;
}
