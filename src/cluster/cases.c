/* The cases of a search: meshes, microbatches, schedules, and ways to save memory. */
#include "cluster/search.h"
#include "plan/lanes.h"

#include <string.h>

/* On so few devices, all cases are tried. */
#define MOST_COMPLETE 8
#define MOST_CHUNKS   8 /* on more */
/* A longer pipeline is not searched: published runs have at most 64 stages. */
#define MOST_STAGES 128
/* Microbatches of a recipe. */
#define MOST_MICRO 1000000

typedef struct maker {
    wfi_predictor *p;
    const wfi_bounds *b;
    wfi_take take;
    void *self;
    int64_t n_devices, n_heads, n_layers, n_blocks, batch;
    int per_node;
    bool is_complete;
} maker;

static bool allows(wfi_axis_use use, int size) {
    return use == WFI_ANY_SIZE || (use == WFI_USED) == (size > 1);
}

/* ---- memory ---- */

/* Ways of a case to save memory. */
typedef struct saving {
    wfi_recompute recompute;
    wfi_space state, params, activations;
} saving;

#define HERE WFI_SPACE_DEVICE
#define HOST WFI_SPACE_HOST
#define DISK WFI_SPACE_DISK

/* All ways, or on many devices those with the host, and the one with the most on disks. */
#define N_SAVINGS     (3 * 3 * 3 * 3)
#define N_FEW_SAVINGS (3 * 2 * 2 * 2 + 1)

static saving saving_at(const maker *m, int k) {
    static const wfi_recompute repeats[] = {WFI_RECOMPUTE_NONE, WFI_RECOMPUTE_SELECTIVE,
                                            WFI_RECOMPUTE_ALL};
    static const wfi_space spaces[] = {HERE, HOST, DISK};
    int n = m->is_complete ? 3 : 2, far = k / 3;
    if (!m->is_complete && k == N_FEW_SAVINGS - 1)
        return (saving){WFI_RECOMPUTE_ALL, DISK, DISK, HERE};
    return (saving){repeats[k % 3], spaces[far % n], spaces[far / n % n], spaces[far / (n * n)]};
}

static bool has_space(const maker *m, wfi_space space) {
    const wf_cluster *c = m->p->q.cluster;
    return space == HERE || (space == HOST ? c->host_bytes : c->disk_bytes) > 0;
}

/* Breadth-first, each unit moves once a step, and its gradient is complete. */
static bool suits(const maker *m, const wfi_case *c, const saving *s) {
    bool offloads = s->state != HERE || s->params != HERE || s->activations != HERE;
    bool moves = c->zero >= 2 || s->params != HERE;
    if (c->schedule->by_unit && c->pp == 1 && !moves) return false;
    if (!has_space(m, s->state) || !has_space(m, s->params) || !has_space(m, s->activations))
        return false;
    return allows(m->b->offload, offloads ? 2 : 1) && !(c->has_root && offloads);
}

/* Nothing is faster than to save nothing. *is_useful_out becomes true if a case is of use. */
static wf_status try_savings(const maker *m, wfi_case c, bool *is_useful_out) {
    int n = m->is_complete ? N_SAVINGS : N_FEW_SAVINGS;
    bool suffices = false;
    for (int k = 0; k < n && !suffices; k++) {
        const saving s = saving_at(m, k);
        wfi_use use = WFI_USELESS;
        if (!suits(m, &c, &s)) continue;
        c.recompute = s.recompute;
        c.offload[WFI_OFFLOAD_STATE] = s.state;
        c.offload[WFI_OFFLOAD_PARAMS] = s.params;
        c.offload[WFI_OFFLOAD_ACTIVATIONS] = s.activations;
        WF_TRY(m->take(m->self, &c, &use));
        suffices = k == 0 && use == WFI_SUFFICIENT;
        *is_useful_out |= use != WFI_USELESS;
    }
    return WF_OK;
}

/* One stage may also run breadth-first. */
static wf_status try_orders(const maker *m, wfi_case c, bool *is_useful_out) {
    WF_TRY(try_savings(m, c, is_useful_out));
    if (c.pp > 1 || c.has_root) return WF_OK;
    c.schedule = &wfi_schedule_breadth;
    return try_savings(m, c, is_useful_out);
}

/* Fewer sums of gradients have fewer latencies; small ones end sooner after the last backward.
 * Buckets decide about time, hardly about memory. */
static wf_status try_buckets(const maker *m, wfi_case c) {
    static const double mib[] = {1, 16, 64, 256}; /* after the default, 4 */
    bool is_useful = false;
    WF_TRY(try_orders(m, c, &is_useful));
    for (size_t k = 0; k < WFI_COUNT(mib) && is_useful && c.dp > 1 && !c.has_root; k++) {
        c.bucket_bytes = mib[k] * (1 << 20);
        WF_TRY(try_orders(m, c, &is_useful));
    }
    return WF_OK;
}

/* Replicas that divide: all, those of a node, or, of few replicas, as many as the parser accepts.
 */
static bool may_shard(const maker *m, const wfi_case *c, int shard) {
    int inside = m->per_node / (c->tp * (c->pp_stride < c->dp_stride ? c->pp : 1));
    if (shard == c->dp) return true;
    if (c->dp % shard || !wfi_lanes_allow(c->dp, c->dp / shard)) return false;
    return c->dp <= MOST_COMPLETE || (c->zero == 3 && shard == inside && inside > 1);
}

/* In a pipeline, zero=2 sums whole gradients first, as zero=1 does. */
static wf_status try_zero(const maker *m, wfi_case c) {
    for (int zero = 0; zero <= WFI_N_ZERO; zero++) {
        if (!(m->b->zero >> zero & 1) || (zero && c.dp == 1)) continue;
        if (zero == 2 && c.pp > 1) continue;
        c.zero = zero;
        c.shard = c.dp;
        do {
            if (may_shard(m, &c, c.shard)) WF_TRY(try_buckets(m, c));
        } while (zero && --c.shard > 1);
    }
    return WF_OK;
}

/* ---- schedules and microbatches ---- */

static wf_status try_schedules(const maker *m, wfi_case c) {
    static const wfi_schedule *const plain[] = {
        &wfi_schedule_1f1b, &wfi_schedule_gpipe, &wfi_schedule_zb1,
        &wfi_schedule_zb2,  &wfi_schedule_zbv,   &wfi_schedule_vhalf,
        &wfi_schedule_vmin, &wfi_schedule_naive, &wfi_schedule_breadth};
    for (size_t k = 0; k < WFI_COUNT(plain); k++) {
        c.schedule = plain[k];
        c.chunks = wfi_schedule_n_chunks(plain[k], 0);
        if (k && (c.pp == 1 || (int64_t)c.pp * c.chunks > m->n_blocks)) continue;
        if (!m->is_complete && plain[k]->by_unit) continue;
        WF_TRY(try_zero(m, c));
    }
    c.schedule = &wfi_schedule_interleaved;
    int64_t most = m->is_complete ? m->n_blocks / c.pp : MOST_CHUNKS;
    for (c.chunks = 2; c.chunks <= most && c.pp > 1; c.chunks++) {
        int64_t n = (int64_t)c.pp * c.chunks;
        if (m->is_complete || (n <= m->n_layers && m->n_layers % n == 0)) WF_TRY(try_zero(m, c));
    }
    return WF_OK;
}

/* The smallest microbatch that divides a replica's samples and makes no more of them than a recipe
 * may have. */
static int64_t first_samples(const maker *m, int64_t own) {
    int64_t least = (m->batch + MOST_MICRO - 1) / MOST_MICRO, b = least;
    while (b < wfi_min_i64(own, 256 * least) && own % b) b++;
    return b;
}

/* Lanes that the recipe has divide its microbatches. */
static wf_status try_n_micro(const maker *m, wfi_case c, int64_t n) {
    int64_t lanes = m->p->q.recipe->n_lanes;
    if (n % c.dp || n > m->batch || n > MOST_MICRO || (lanes && n % lanes)) return WF_OK;
    c.n_micro = n;
    return try_schedules(m, c);
}

/* Microbatches that are given, or as many as lanes, if no equal ones suit these; or 0. */
static int64_t given_micro(const maker *m) {
    const wf_recipe *r = m->p->q.recipe;
    return !r->n_micro && r->n_lanes && m->batch % r->n_lanes ? r->n_lanes : r->n_micro;
}

/* On many devices, microbatches of powers of two and of all samples of a replica. */
static wf_status try_micro(const maker *m, wfi_case c) {
    int64_t given = given_micro(m), own = m->batch / c.dp, first = first_samples(m, own);
    if (given) return try_n_micro(m, c, given);
    for (int64_t b = first; b <= own && b <= 256 * first; b = m->is_complete ? b + 1
                                                              : own % b      ? own
                                                                             : 2 * b)
        if (own % b == 0) WF_TRY(try_n_micro(m, c, m->batch / b));
    return WF_OK;
}

/* ---- meshes ---- */

/* Lanes and slices that the recipe has are kept: ranks share them out. */
static bool keeps_recipe(const maker *m, int dp, int tp) {
    const wf_recipe *r = m->p->q.recipe;
    return (!r->n_lanes || wfi_lanes_allow(r->n_lanes, dp)) &&
           (!r->n_slices || wfi_lanes_allow(r->n_slices, tp));
}

static bool may_divide(const maker *m, int tp) {
    return !m->n_heads || m->n_heads % tp == 0;
}

static int64_t shares_of(const maker *m) {
    int64_t given = given_micro(m);
    return given ? given : m->batch;
}

/* At most n, and as many as a plan may have and the recipe has equal shares for. */
static int replicas(const maker *m, int64_t n) {
    n = wfi_max_i64(1, wfi_min_i64(wfi_min_i64(n, WFI_MAX_AXIS), shares_of(m)));
    while (n > 1 && shares_of(m) % n) n--;
    return (int)n;
}

/* sp costs nothing, but not every model has rows to divide, and not every tp divides the tokens. */
static bool divides_rows(const maker *m, int tp) {
    wfi_model_work *w;
    return tp > 1 && wfi_predictor_work(m->p, tp, &w) == WF_OK && w->has_rows;
}

static wf_status try_mesh(const maker *m, int tp, int pp, int dp) {
    wfi_case c = {.dp = dp, .pp = pp, .tp = tp, .divides_rows = divides_rows(m, tp), .shard = dp};
    c.has_root = m->b->has_root;
    c.batch = m->batch;
    c.bucket_bytes = (double)WFI_DEFAULT_BUCKET_BYTES;
    c.prefetch = WFI_DEFAULT_PREFETCH;
    c.pp_stride = tp;
    c.dp_stride = tp * pp;
    if ((int64_t)dp * pp * tp > WFI_MOST_RANKS) return WF_OK;
    if (!allows(m->b->dp, dp) || !keeps_recipe(m, dp, tp)) return WF_OK;
    if (!c.divides_rows || !m->is_complete) return try_micro(m, c);
    WF_TRY(try_micro(m, c));
    c.divides_rows = false;
    return try_micro(m, c);
}

/* On more devices, only meshes whose replicas fit into a node leave some of them idle: the search
 * would take too long. */
#define MOST_IDLE 256

/* Replicas on all devices, on nodes by powers of two, on parts of a node, and none: links may be
 * too slow for more. */
static wf_status try_replicas(const maker *m, int tp, int pp) {
    for (int dp = (int)(m->n_devices / pp / tp); m->is_complete && dp > 0; dp--)
        if (shares_of(m) % dp == 0) WF_TRY(try_mesh(m, tp, pp, dp));
    if (m->is_complete) return WF_OK;
    int64_t n = (int64_t)tp * pp, n_devices = m->b->has_root ? m->per_node : m->n_devices;
    int64_t fewer = m->per_node;
    int last = 0;
    bool may_idle = n_devices <= MOST_IDLE || m->b->dp == WFI_UNUSED || n <= m->per_node;
    while (2 * fewer < n_devices) fewer *= 2;
    for (int64_t d = n_devices; d >= n && (may_idle || d == n_devices); d = fewer, fewer /= 2) {
        int dp = d % n ? last : replicas(m, d / n);
        if (dp != last) WF_TRY(try_mesh(m, tp, pp, dp));
        last = dp;
    }
    return may_idle && last != 1 ? try_mesh(m, tp, pp, 1) : WF_OK;
}

/* Long pipelines are tried if their stages are equal, or a multiple of eight. */
static bool is_tried(const maker *m, int pp) {
    return pp <= 32 || pp % 8 == 0 || m->n_layers % pp == 0;
}

static int devices_inside(const wf_cluster *c) {
    return c->n_levels ? (int)c->levels[0].count : 1;
}

wf_status wfi_each_case(wfi_predictor *p, const wfi_bounds *b, wfi_take take, void *self) {
    const wf_model_config *config = wf_model_config_of(p->q.model);
    maker m = {.p = p, .b = b, .take = take, .self = self, .batch = p->q.recipe->batch};
    wfi_model_work *w;
    WF_TRY(wfi_predictor_work(p, 1, &w));
    m.n_devices = wf_cluster_n_devices(p->q.cluster);
    m.is_complete = m.n_devices <= MOST_COMPLETE;
    m.per_node = devices_inside(p->q.cluster);
    m.n_heads = config ? config->n_heads : 0;
    m.n_blocks = wfi_work_n_blocks(w);
    m.n_layers = m.n_blocks - (w->layer < 0 ? 0 : 2);
    int64_t most = wfi_min_i64(m.n_blocks, MOST_STAGES);
    int64_t most_tp = m.is_complete ? m.n_devices : m.per_node;
    for (int pp = 1; pp <= most && pp <= m.n_devices; pp++) {
        if (!is_tried(&m, pp)) continue;
        for (int tp = 1; tp <= most_tp && (int64_t)tp * pp <= m.n_devices; tp++) {
            if (allows(b->pp, pp) && allows(b->tp, tp) && may_divide(&m, tp))
                WF_TRY(try_replicas(&m, tp, pp));
        }
    }
    return WF_OK;
}
