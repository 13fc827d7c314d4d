/* The comparison of replicas: ranks that keep the same piece of the state have the same bytes of
 * it, unless memory or a processor is faulty. Each rank hashes its own pieces; only hashes travel.
 */
#include "api/state/state.h"
#include "base/names.h"

#include <stdio.h>
#include <string.h>

#define N_BLOCK (sizeof(wfi_control_numbers) / sizeof(int64_t))

/* A piece that several ranks keep. */
typedef struct replicated {
    const wfi_state_tensor *tensor;
    const wfi_state_piece *pieces; /* [n] */
    int32_t n;
} replicated;

typedef struct comparison {
    wfi_state_call call; /* the first member: the visit gets its address */
    replicated block[N_BLOCK];
    size_t n_block;
    wfi_control_numbers *own; /* [n_workers] hashes of a block, of this process's ranks */
    int64_t n_bytes;          /* compared */
    bool differs[WFI_MAX_RANKS], is_undecided;
    char first_name[120]; /* of a tensor that differs */
} comparison;

/* ---- hashing ---- */

/* Multiplication by an odd number is a bijection, so two words that differ never hash alike. */
static uint64_t add_words(uint64_t hash, const char *bytes, size_t n) {
    for (size_t at = 0; at < n; at += sizeof hash) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, n - at < sizeof word ? n - at : sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

static size_t bytes_of(const comparison *c, const replicated *r) {
    return (size_t)r->pieces->n * wfi_state_element_bytes(&c->call.list, r->tensor);
}

static wf_status hash_piece(const comparison *c, const replicated *r, const wfi_state_piece *piece,
                            uint64_t *hash_out) {
    const wfi_worker *w = &c->call.t->workers[piece->rank];
    const char *from = w->arenas[piece->space].base + piece->at;
    size_t n = bytes_of(c, r), now;
    *hash_out = n;
    for (size_t at = 0; at < n; at += now) {
        now = n - at < WFI_STATE_CHUNK_BYTES ? n - at : WFI_STATE_CHUNK_BYTES;
        WF_TRY(wfi_memory_copy(w->copier, NULL, c->call.buffer, WFI_SPACE_HOST, from + at,
                               piece->space, now));
        *hash_out = add_words(*hash_out, c->call.buffer, now);
    }
    return WF_OK;
}

/* ---- comparing ---- */

/* Returns how many of the n hashes equal the k-th. */
static int32_t count_equal(const uint64_t *hashes, int32_t n, int32_t k) {
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) count += hashes[i] == hashes[k];
    return count;
}

/* More than half of the ranks with one hash are right. Without a majority, any rank may be wrong.
 */
static void judge(comparison *c, const replicated *r, const uint64_t *hashes) {
    int32_t most = 0;
    if (count_equal(hashes, r->n, 0) == r->n) return;
    for (int32_t k = 0; k < r->n; k++) {
        int32_t count = count_equal(hashes, r->n, k);
        if (count > most) most = count;
    }
    bool has_majority = 2 * most > r->n;
    c->is_undecided |= !has_majority;
    for (int32_t k = 0; k < r->n; k++)
        c->differs[r->pieces[k].rank] |= !has_majority || count_equal(hashes, r->n, k) < most;
    if (!*c->first_name) snprintf(c->first_name, sizeof c->first_name, "%s", r->tensor->name);
}

/* In a job each process has hashed the pieces of one rank. */
static wf_status compare_block(comparison *c) {
    const wf_trainer *t = c->call.t;
    const wfi_control_numbers *all = c->own;
    uint64_t hashes[WFI_MAX_RANKS];
    for (size_t b = 0; b < c->n_block; b++) {
        const replicated *r = &c->block[b];
        for (int32_t k = 0; k < r->n; k++) {
            int32_t rank = r->pieces[k].rank;
            if (t->workers[rank].is_local)
                WF_TRY(hash_piece(c, r, &r->pieces[k], (uint64_t *)&c->own[rank][b]));
        }
    }
    if (t->job)
        WF_TRY(
            wfi_control_all_gather(t->job, "compare replicas", c->own[wf_job_rank(t->job)], &all));
    for (size_t b = 0; b < c->n_block; b++) {
        const replicated *r = &c->block[b];
        for (int32_t k = 0; k < r->n; k++)
            memcpy(&hashes[k], &all[r->pieces[k].rank][b], sizeof *hashes);
        judge(c, r, hashes);
    }
    c->n_block = 0;
    return WF_OK;
}

static wf_status compare_all(wfi_state_call *x) {
    comparison *c = (comparison *)x;
    c->own = wfi_pool_alloc(&x->pool, (size_t)x->t->n_workers, sizeof *c->own);
    WF_TRY(wfi_pool_status(&x->pool));
    for (int32_t i = 0; i < x->list.n_tensors; i++) {
        const wfi_state_tensor *tensor = &x->list.tensors[i];
        const wfi_state_piece *piece = tensor->pieces, *end = piece + tensor->n_pieces;
        for (int32_t n; piece < end; piece += n) {
            n = wfi_state_n_equal(tensor, piece);
            if (n == 1) continue;
            replicated r = {tensor, piece, n};
            c->block[c->n_block++] = r;
            c->n_bytes += (int64_t)bytes_of(c, &r);
            if (c->n_block == N_BLOCK) WF_TRY(compare_block(c));
        }
    }
    return c->n_block ? compare_block(c) : WF_OK;
}

/* ---- the sentence ---- */

static bool differs(const void *self, int rank) {
    return ((const comparison *)self)->differs[rank];
}

static wf_status fail_of(const comparison *c) {
    const wf_trainer *t = c->call.t;
    char ranks[200];
    wfi_name_ranks(WFI_MAX_RANKS, differs, c, ranks, sizeof ranks);
    if (c->is_undecided)
        return wfi_fail(t->ctx, WF_CORRUPT,
                        "after step %lld, %s keep different copies of the state, first in %s, and "
                        "no majority shows which one is right: memory or a processor is faulty",
                        (long long)t->n_steps, ranks, c->first_name);
    return wfi_fail(t->ctx, WF_CORRUPT,
                    "after step %lld, the state of %s differs from that of most replicas, first in "
                    "%s: its memory or processor is faulty",
                    (long long)t->n_steps, ranks, c->first_name);
}

wf_status wf_trainer_verify(wf_trainer *t, int64_t *n_bytes_out) {
    comparison c = {.call = {.t = t}};
    if (n_bytes_out) *n_bytes_out = 0;
    WF_TRY(wfi_trainer_check_average(t, "verify replicas"));
    WF_TRY(wfi_state_perform(&c.call, "verify replicas",
                             t->forward_only ? WFI_STATE_WEIGHTS : WFI_STATE_ALL, compare_all));
    if (n_bytes_out) *n_bytes_out = c.n_bytes;
    t->is_faulty = false;
    for (int r = 0; r < t->n_workers && !c.is_undecided; r++)
        t->is_faulty |= c.differs[r] && t->workers[r].is_local;
    return *c.first_name ? fail_of(&c) : WF_OK;
}

int wf_trainer_is_faulty(const wf_trainer *t) {
    return t->is_faulty;
}
