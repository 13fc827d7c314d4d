#include "comm/group/group.h"

#include "base/env.h"
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

/* ---- configuration of a group ---- */

/* The hash includes the terminating zero, so that "ab" "c" differs from "a" "bc". */
static uint64_t add_text(uint64_t hash, const char *text) {
    return text ? wfi_hash_add(hash, text, strlen(text) + 1) : hash;
}

/* The fingerprint of the settings that all ranks must share. */
static uint64_t fingerprint_of(const wf_group_config *c) {
    char numbers[64];
    if (c->struct_size != sizeof *c) return 0; /* refused after the first all-gather */
    snprintf(numbers, sizeof numbers, "%d %d", c->order_free != 0, c->n_roots);
    const char *algorithm = c->algorithm ? c->algorithm : "auto";
    return add_text(add_text(add_text(WFI_HASH_INIT, algorithm), numbers), c->wire);
}

static wf_status check_engine(const wf_group *g) {
    char none[64];
    snprintf(none, sizeof none, "'%s' has none", g->wire->name);
    const char *why = g->wire->no_engine ? g->wire->no_engine(g) : none;
    if (!why) return WF_OK;
    return wfi_fail(g->ctx, WF_UNSUPPORTED,
                    "the algorithm 'engine' is a wire's own all-reduce, and %s; choose direct, "
                    "pairwise, tree or root",
                    why);
}

const char *wf_group_algorithm_name(int i) {
    return wfi_allreduce_at(i) ? wfi_allreduce_at(i)->name : NULL;
}

int wf_group_algorithm_rotates(const char *name) {
    const wfi_allreduce *how = wfi_allreduce_find(name);
    return how && how->rotates;
}

static wf_status find_algorithm(wf_group *g, const wf_group_config *c) {
    const char *name = c->algorithm ? c->algorithm : "auto";
    g->how = wfi_allreduce_find(name);
    if (!g->how)
        return wfi_fail_unknown(g->ctx, WF_UNSUPPORTED, wf_group_algorithm_name, name,
                                "there is no algorithm '%s'", name);
    if (g->how == &wfi_allreduce_engine) WF_TRY(check_engine(g));
    if (c->n_roots > 1 && g->how != &wfi_allreduce_root)
        return wfi_fail(g->ctx, WF_INVALID_ARG,
                        "%d roots are given, but the algorithm is '%s'; only root has any",
                        c->n_roots, name);
    if (g->how->rotates && g->n > 2 && !c->order_free)
        return wfi_fail(g->ctx, WF_UNSUPPORTED,
                        "the algorithm '%s' adds in an order that rotates, so %d ranks would not "
                        "get the fixed order's bits; set order_free, or choose direct, pairwise, "
                        "tree or root",
                        name, g->n);
    return WF_OK;
}

static wf_status find_wire(wf_group *g, const char *name) {
    char known[64] = "", able[64] = "";
    const wfi_wire *named = NULL;
    for (int i = 0; wfi_wires[i]; i++) {
        const wfi_wire *wire = wfi_wires[i];
        size_t n_known = strlen(known), n_able = strlen(able);
        snprintf(known + n_known, sizeof known - n_known, "%s%s", n_known ? ", " : "", wire->name);
        if (name && !strcmp(name, wire->name)) named = wire;
        if (!wire->reaches(g)) continue;
        snprintf(able + n_able, sizeof able - n_able, "%s%s", n_able ? ", " : "", wire->name);
        if (!g->wire) g->wire = wire;
    }
    if (name && !named)
        return wfi_fail(g->ctx, WF_UNSUPPORTED, "there is no wire '%s' here; there are %s", name,
                        known);
    if (named) g->wire = named->reaches(g) ? named : NULL;
    if (g->wire) return WF_OK;
    return wfi_fail(g->ctx, WF_UNSUPPORTED, "the wire '%s' does not reach all ranks; %s can",
                    name ? name : "", able);
}

static wf_status check_config(wf_context *ctx, const wf_group_config *c, int32_t n) {
    WF_TRY(wfi_check_struct(ctx, c, sizeof *c, "wf_group_config"));
    if (c->n_roots < 0 || c->n_roots > n)
        return wfi_fail(ctx, WF_INVALID_ARG, "%d roots in a group of %d ranks", c->n_roots, n);
    if (c->timeout_ms < 0)
        return wfi_fail(ctx, WF_INVALID_ARG, "a timeout of %lld ms; every wait needs a deadline",
                        (long long)c->timeout_ms);
    return WF_OK;
}

/* Selects the wire and the algorithm for the ranks g->job_rank. */
static wf_status configure(wf_group *g, const wf_group_config *c) {
    WF_TRY(check_config(g->ctx, c, g->n));
    WF_TRY(find_wire(g, c->wire));
    WF_TRY(find_algorithm(g, c));
    g->n_roots = c->n_roots ? c->n_roots : 1;
    g->timeout_ms = c->timeout_ms ? c->timeout_ms : wfi_control_timeout_ms(g->job);
    return wfi_env_count(g->ctx, WFI_WEFT_STALL_MS, &g->stall_ms);
}

/* ---- bootstrap ---- */

/* The message of each rank: first its settings, at the end whether its part succeeded. */
typedef struct card {
    uint64_t fingerprint;
    int32_t color, key;
    int32_t is_ready;
} card;

static wf_status show_card(wfi_bootstrap *bootstrap, const card *own) {
    int64_t bytes[WFI_CONTROL_NUMBERS] = {0};
    memcpy(bytes, own, sizeof *own);
    return bootstrap->all_gather(bootstrap->self, bytes, bootstrap->all);
}

static card card_of(const wfi_bootstrap *bootstrap, int32_t place) {
    card c;
    memcpy(&c, bootstrap->all[place], sizeof c);
    return c;
}

static wf_status check_fingerprints(const wf_group *g, const wfi_bootstrap *bootstrap) {
    uint64_t first = card_of(bootstrap, bootstrap->place[0]).fingerprint;
    for (int32_t r = 1; r < g->n; r++)
        if (card_of(bootstrap, bootstrap->place[r]).fingerprint != first)
            return wfi_fail(g->ctx, WF_REMOTE,
                            "ranks disagree: rank %d of the group has another algorithm, order, "
                            "number of roots or wire than rank 0",
                            r);
    return WF_OK;
}

/* Fails unless all ranks of the group have made their part. */
static wf_status check_success(const wf_group *g, const wfi_bootstrap *bootstrap) {
    for (int32_t r = 0; r < g->n; r++)
        if (!card_of(bootstrap, bootstrap->place[r]).is_ready)
            return wfi_fail(g->ctx, WF_REMOTE, "rank %d of the group could not make its part of it",
                            r);
    return WF_OK;
}

/* Opens the wire of `g`, which is NULL if this rank is in no group. There are exactly two more
 * all-gathers, also after a failure. `status` is this rank's status so far. */
static wf_status open_group(wf_group *g, wfi_bootstrap *bootstrap, wf_status status) {
    int64_t nothing[WFI_CONTROL_NUMBERS] = {0};
    char sentence[WFI_SENTENCE_BYTES] = "";
    card ready = {0};
    if (g && status == WF_OK)
        status = g->wire->open(g, bootstrap);
    else
        WF_TRY(bootstrap->all_gather(bootstrap->self, nothing, bootstrap->all));
    ready.is_ready = g && status == WF_OK;
    if (status != WF_OK)
        snprintf(sentence, sizeof sentence, "%s", wf_context_error(bootstrap->ctx));
    WF_TRY(show_card(bootstrap, &ready));
    wf_status all = g ? check_success(g, bootstrap) : WF_OK;
    if (g && g->wire && g->wire->opened) g->wire->opened(g, all == WF_OK);
    return status == WF_OK ? all : wfi_fail(bootstrap->ctx, status, "%s", sentence);
}

/* Allocates a group for at most `n_most` ranks, without members. NULL: no memory. */
static wf_group *make_group(wf_job *job, int32_t n_most) {
    wf_context *ctx = wfi_control_context(job);
    wf_group *g = wfi_alloc(ctx, 1, sizeof *g, "a group");
    if (!g) return NULL;
    *g = (wf_group){.ctx = ctx, .job = job};
    size_t n = (size_t)n_most;
    wfi_pool_init(&g->pool, ctx);
    g->job_rank = wfi_pool_alloc(&g->pool, n, sizeof *g->job_rank);
    g->steps = wfi_pool_alloc(&g->pool, n + 1, sizeof *g->steps);
    g->cards = wfi_pool_alloc(&g->pool, n, sizeof *g->cards);
    g->place = wfi_pool_alloc(&g->pool, n, sizeof *g->place);
    if (wfi_pool_status(&g->pool) == WF_OK) return g;
    wf_group_destroy(g);
    return NULL;
}

/* ---- all ranks of the job ---- */

static wf_status gather_in_job(void *self, const void *own, void *all) {
    const wfi_control_numbers *gathered;
    WF_TRY(wfi_control_all_gather(self, "make a group", own, &gathered));
    memcpy(all, gathered, (size_t)wf_job_n_ranks(self) * sizeof *gathered);
    return WF_OK;
}

/* Returns the group, or destroys it after a failure. */
static wf_status finish(wf_group *g, wf_status status, wf_group **group_out) {
    if (status == WF_OK)
        *group_out = g;
    else
        wf_group_destroy(g);
    return status;
}

wf_status wf_group_create(wf_job *job, const wf_group_config *config, wf_group **group_out) {
    const wf_group_config defaults = WF_GROUP_CONFIG_INIT;
    if (!job || !group_out) return WF_INVALID_ARG;
    if (!config) config = &defaults;
    wf_group *g = make_group(job, wf_job_n_ranks(job));
    if (!g) return WF_NO_MEMORY;
    wfi_bootstrap bootstrap = {.ctx = g->ctx,
                               .all_gather = gather_in_job,
                               .self = job,
                               .place = g->place,
                               .all = g->cards};
    g->rank = wf_job_rank(job);
    g->n = wf_job_n_ranks(job);
    card own = {.fingerprint = fingerprint_of(config)};
    for (int32_t r = 0; r < g->n; r++) g->job_rank[r] = g->place[r] = r;
    wf_status status = show_card(&bootstrap, &own);
    if (status == WF_OK) status = check_fingerprints(g, &bootstrap);
    if (status == WF_OK) status = configure(g, config);
    if (status == WF_OK) status = open_group(g, &bootstrap, WF_OK);
    return finish(g, status, group_out);
}

/* ---- splitting ---- */

static wf_status gather_in_group(void *self, const void *own, void *all) {
    return wf_group_all_gather(wf_group_at(self, "wf_group_split"), own, all, WFI_CARD_BYTES, WF_U8,
                               NULL);
}

/* Adds the parent's ranks of that color to `g`, sorted by key, then by rank. */
static void choose_members(wf_group *g, const wf_group *parent, const wfi_bootstrap *bootstrap,
                           int32_t color) {
    int32_t *place = bootstrap->place;
    for (int32_t r = 0; r < parent->n; r++) {
        card c = card_of(bootstrap, r);
        if (c.color != color) continue;
        int32_t k = g->n++;
        for (; k > 0 && card_of(bootstrap, place[k - 1]).key > c.key; k--) place[k] = place[k - 1];
        place[k] = r;
    }
    for (int32_t k = 0; k < g->n; k++) {
        g->job_rank[k] = parent->job_rank[place[k]];
        if (place[k] == parent->rank) g->rank = k;
    }
}

/* This rank's part of a split. *group_out is NULL without a color. */
static wf_status split(wf_group *parent, const card *own, const wf_group_config *config,
                       wfi_bootstrap *bootstrap, wf_group **group_out) {
    WF_TRY(show_card(bootstrap, own));
    if (own->color < 0) return open_group(NULL, bootstrap, WF_OK);
    wf_group *g = make_group(parent->job, parent->n);
    if (!g) return open_group(NULL, bootstrap, WF_NO_MEMORY);
    choose_members(g, parent, bootstrap, own->color);
    wf_status status = check_fingerprints(g, bootstrap);
    if (status == WF_OK) status = configure(g, config);
    return finish(g, open_group(g, bootstrap, status), group_out);
}

wf_status wf_group_split(wf_group *parent, int color, int key, const wf_group_config *config,
                         wf_group **group_out) {
    const wf_group_config defaults = WF_GROUP_CONFIG_INIT;
    wf_group *g = NULL;
    if (!parent) return WF_INVALID_ARG;
    if (!group_out) return wfi_fail(parent->ctx, WF_INVALID_ARG, "wf_group_split: NULL");
    if (!config) config = &defaults;
    wfi_bootstrap bootstrap = {.ctx = parent->ctx,
                               .all_gather = gather_in_group,
                               .self = parent,
                               .place = parent->place,
                               .all = parent->cards};
    card own = {.fingerprint = fingerprint_of(config), .color = color < 0 ? -1 : color, .key = key};
    wf_status status = split(parent, &own, config, &bootstrap, &g);
    if (status == WF_OK) *group_out = g;
    return status;
}

/* ---- destruction and queries ---- */

void wf_group_destroy(wf_group *g) {
    if (!g) return;
    wfi_works_destroy(g);
    if (g->state) g->wire->close(g);
    wfi_pool_release(&g->pool);
    wfi_free(g->ctx, g);
}

int wf_group_rank(const wf_group *g) {
    return g->rank;
}

int wf_group_n_ranks(const wf_group *g) {
    return g->n;
}

static int32_t n_local(const wf_group *g, int32_t below) {
    int32_t n = 0;
    for (int32_t r = 0; r < below; r++) n += wfi_control_is_local(g->job, g->job_rank[r]);
    return n;
}

int wf_group_local_rank(const wf_group *g) {
    return n_local(g, g->rank);
}

int wf_group_n_local_ranks(const wf_group *g) {
    return n_local(g, g->n);
}

int wf_group_job_rank(const wf_group *g, int rank) {
    return rank >= 0 && rank < g->n ? g->job_rank[rank] : -1;
}

const char *wf_group_wire(const wf_group *g) {
    return g->wire->name;
}

const char *wf_group_algorithm(const wf_group *g, size_t bytes) {
    const wfi_operation o = {.collective = WFI_COLLECTIVE_ALL_REDUCE};
    return wfi_group_algorithm(g, &o, bytes)->name;
}

wf_traffic wf_group_traffic(const wf_group *g) {
    return (wf_traffic){__atomic_load_n(&g->traffic.sent_bytes, __ATOMIC_RELAXED),
                        __atomic_load_n(&g->traffic.received_bytes, __ATOMIC_RELAXED)};
}

wf_status wf_group_alloc(wf_group *g, size_t bytes, void **block_out) {
    if (!g) return WF_INVALID_ARG;
    if (!block_out) return wfi_fail(g->ctx, WF_INVALID_ARG, "wf_group_alloc: NULL");
    return g->wire->alloc(g, bytes ? bytes : 1, block_out);
}

void wf_group_free(wf_group *g, void *block) {
    if (g && block) g->wire->free(g, block);
}

wf_group *wf_group_at(wf_group *g, const char *site) {
    if (g) g->site = site;
    return g;
}
