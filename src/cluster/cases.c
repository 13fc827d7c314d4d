/* The cases of a search: meshes, microbatches, schedules, and ways to save memory. */
#include "cluster/search.h"
#include "plan/lanes.h"

#include <string.h>

#define MOST_CHUNKS 8
/* A longer pipeline is not searched: published runs have at most 64 stages. */
#define MOST_STAGES 128
/* Microbatches of a recipe. */
#define MOST_MICRO 1000000

typedef struct maker {
    wfi_predictor *p;
    const wfi_bounds *b;
    wfi_take take;
    void *self;
    int64_t n_devices, n_heads, n_layers, batch;
    int per_node;
} maker;

static bool allows(wfi_axis_use use, int size) {
    return use == WFI_ANY_SIZE || (use == WFI_USED) == (size > 1);
}

/* ---- memory ---- */

/* Ways of a case to save memory, from the cheapest on. */
typedef struct saving {
    wfi_recompute recompute;
    wfi_space state, params, activations;
    bool by_unit; /* breadth-first: each unit once a step */
} saving;

#define HERE WFI_SPACE_DEVICE
#define HOST WFI_SPACE_HOST
#define DISK WFI_SPACE_DISK

static const saving savings[] = {
    {WFI_RECOMPUTE_NONE, HERE, HERE, HERE, false},
    {WFI_RECOMPUTE_SELECTIVE, HERE, HERE, HERE, false},
    {WFI_RECOMPUTE_ALL, HERE, HERE, HERE, false},
    {WFI_RECOMPUTE_ALL, HERE, HERE, HERE, true},
    {WFI_RECOMPUTE_NONE, HERE, HERE, HOST, false},
    {WFI_RECOMPUTE_NONE, HOST, HERE, HERE, false},
    {WFI_RECOMPUTE_ALL, HOST, HERE, HERE, false},
    {WFI_RECOMPUTE_ALL, HOST, HOST, HERE, false},
    {WFI_RECOMPUTE_ALL, HOST, HOST, HERE, true},
    {WFI_RECOMPUTE_ALL, DISK, DISK, HERE, false},
    {WFI_RECOMPUTE_ALL, DISK, DISK, HERE, true},
};

static bool suits(const maker *m, const wfi_case *c, const saving *s) {
    bool offloads = s->state != HERE || s->activations != HERE;
    bool moves = c->zero == 3 || s->params != HERE;
    if (s->by_unit && (c->pp > 1 || !moves)) return false;
    if (s->state == DISK && m->p->q.cluster->disk_bytes <= 0) return false;
    if (s->state == HOST && m->p->q.cluster->host_bytes <= 0) return false;
    return allows(m->b->offload, offloads ? 2 : 1);
}

static wf_status try_savings(const maker *m, wfi_case c) {
    const wfi_schedule *schedule = c.schedule;
    for (size_t k = 0; k < WFI_COUNT(savings); k++) {
        const saving *s = &savings[k];
        if (!suits(m, &c, s) || (c.has_root && k)) continue;
        c.recompute = s->recompute;
        c.offload[WFI_OFFLOAD_STATE] = s->state;
        c.offload[WFI_OFFLOAD_PARAMS] = s->params;
        c.offload[WFI_OFFLOAD_ACTIVATIONS] = s->activations;
        c.schedule = s->by_unit ? &wfi_schedule_breadth : schedule;
        WF_TRY(m->take(m->self, &c));
    }
    return WF_OK;
}

/* zero divides among all replicas; zero=3 also among those of a node. */
static wf_status try_zero(const maker *m, wfi_case c) {
    for (int zero = 0; zero <= WFI_N_ZERO; zero++) {
        int inside = m->per_node / (c.tp * (c.pp_stride < c.dp_stride ? c.pp : 1));
        if (!(m->b->zero >> zero & 1) || (zero && c.dp == 1)) continue;
        if (zero >= 2 && c.pp > 1) continue; /* sums of each microbatch would cross replicas */
        c.zero = zero;
        c.shard = c.dp;
        WF_TRY(try_savings(m, c));
        if (zero < 3 || inside < 2 || inside >= c.dp || c.dp % inside) continue;
        if (!wfi_lanes_allow(c.dp, c.dp / inside)) continue; /* as the plan's parser */
        c.shard = inside;
        WF_TRY(try_savings(m, c));
    }
    return WF_OK;
}

/* ---- schedules and microbatches ---- */

static wf_status try_schedules(const maker *m, wfi_case c) {
    static const wfi_schedule *const plain[] = {&wfi_schedule_1f1b, &wfi_schedule_zb1,
                                                &wfi_schedule_zbv};
    for (size_t k = 0; k < WFI_COUNT(plain); k++) {
        c.schedule = plain[k];
        c.chunks = wfi_schedule_n_chunks(plain[k], 0);
        if (k && (c.pp == 1 || (int64_t)c.pp * c.chunks > m->n_layers)) continue;
        WF_TRY(try_zero(m, c));
    }
    c.schedule = &wfi_schedule_interleaved;
    for (c.chunks = 2; c.chunks <= MOST_CHUNKS && c.pp > 1; c.chunks++) {
        int64_t n = (int64_t)c.pp * c.chunks;
        if (n <= m->n_layers && m->n_layers % n == 0) WF_TRY(try_zero(m, c));
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

static wf_status try_micro(const maker *m, wfi_case c) {
    int64_t given = m->p->q.recipe->n_micro, own = m->batch / c.dp, first = first_samples(m, own);
    c.n_micro = given;
    if (given) return given % c.dp || given > m->batch ? WF_OK : try_schedules(m, c);
    for (int64_t b = first; b <= own && b <= 256 * first; b *= 2) {
        if (own % b) break;
        c.n_micro = m->batch / b;
        if (c.n_micro <= MOST_MICRO) WF_TRY(try_schedules(m, c));
    }
    return WF_OK;
}

/* ---- meshes ---- */

/* Lanes and slices that the recipe has are kept: ranks share them out. */
static bool keeps_recipe(const maker *m, int dp, int tp) {
    const wf_recipe *r = m->p->q.recipe;
    return (!r->n_lanes || r->n_lanes % dp == 0) && (!r->n_slices || r->n_slices % tp == 0);
}

static bool may_divide(const maker *m, int tp) {
    return tp == 1 || (m->n_heads && m->n_heads % tp == 0);
}

/* At most n, and as many as a plan may have and the batch has equal shares for. */
static int replicas(const maker *m, int64_t n) {
    n = wfi_max_i64(1, wfi_min_i64(wfi_min_i64(n, WFI_MAX_AXIS), m->batch));
    while (n > 1 && m->batch % n) n--;
    return (int)n;
}

/* sp costs nothing, but not every tp can divide the tokens. */
static bool divides_rows(const maker *m, int tp) {
    wfi_work *w;
    return tp > 1 && wfi_predictor_work(m->p, tp, &w) == WF_OK;
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
    return try_micro(m, c);
}

/* On more devices, only meshes whose replicas fit into a node leave some of them idle: the search
 * would take too long. */
#define MOST_IDLE 256

/* Replicas on all devices, on nodes by powers of two, on parts of a node, and none: links may be
 * too slow for more. */
static wf_status try_replicas(const maker *m, int tp, int pp) {
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
    maker m = {p,
               b,
               take,
               self,
               wf_cluster_n_devices(p->q.cluster),
               0,
               0,
               p->q.recipe->batch,
               devices_inside(p->q.cluster)};
    wfi_work *w;
    WF_TRY(wfi_predictor_work(p, 1, &w));
    m.n_heads = config ? config->n_heads : 0;
    m.n_layers = wfi_work_n_blocks(w) - (w->layer < 0 ? 0 : 2);
    int64_t most = wfi_min_i64(wfi_work_n_blocks(w), MOST_STAGES);
    for (int pp = 1; pp <= most && pp <= m.n_devices; pp++) {
        if (!is_tried(&m, pp)) continue;
        for (int tp = 1; tp <= m.per_node && (int64_t)tp * pp <= m.n_devices; tp++) {
            if (allows(b->pp, pp) && allows(b->tp, tp) && may_divide(&m, tp))
                WF_TRY(try_replicas(&m, tp, pp));
        }
    }
    return WF_OK;
}
