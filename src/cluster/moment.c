/* The moment of a step at which a device of weft's programs needs the most memory, from the order
 * in which blocks go backward: gradients come as activations go.
 */
#include "cluster/moment.h"
#include "optimizer/optimizer.h"

/* What a device has, and what it does while the moment is looked for. */
typedef struct device {
    const wfi_predictor *p;
    const wfi_case *c;
    const wfi_model_work *w;
    const wfi_stage_work *stage; /* at hand */
    double n, saved;             /* parameters, and bytes of a microbatch, of all its stages */
    double tied, received;       /* parameters of others that get a gradient here, one for all sums;
                                  * or of the first stage, whose gradients come from the last */
    double packed[2];            /* the same, as wfi_model_block's */
    double held;                 /* microbatches */
    int64_t n_lanes, each;       /* of the replica, and microbatches of a lane */
    bool gathers;                /* parameters */
    wfi_case_moment worst;
} device;

/* Of a microbatch on a stage: if weights have their gradients later, also what these read. */
static double kept_bytes(const wfi_case *c, const wfi_stage_work *s) {
    return c->schedule->splits_weight ? fmax(s->saved_bytes, s->weight_bytes) : s->saved_bytes;
}

static void look(device *d, double gradients, double activations, double buffers) {
    wfi_case_moment *m = &d->worst;
    if (d->c->offload[WFI_OFFLOAD_ACTIVATIONS] != WFI_SPACE_DEVICE) activations = 0;
    if (gradients + activations + buffers <= m->gradients + m->activations + m->buffers) return;
    *m = (wfi_case_moment){gradients, activations, buffers};
}

/* ---- gradients ---- */

/* Sums of gradients that are there before lane k adds its own: number n comes with lane 2^n - 1,
 * and all but one go with the last lane. */
static int count_sums(int64_t k) {
    int n = 0;
    for (; k; k >>= 1) n++;
    return n;
}

static bool needs_sum(int64_t k) {
    return !(k & (k + 1));
}

static bool updates_early(const device *d) {
    return d->c->offload[WFI_OFFLOAD_STATE] != WFI_SPACE_DEVICE && d->p->q.recipe->clip_norm <= 0;
}

/* Of so many gradients that are complete, those that stay: the own slice and two buckets, of which
 * the unit at hand is a part, or what waits for an early update. */
static double count_complete(const device *d, double n, double unit) {
    const wfi_case *c = d->c;
    double buckets = fmax(2 * c->bucket_bytes / 4 - unit, c->bucket_bytes / 4);
    double most = c->zero >= 2 ? n / c->shard + buckets : n;
    if (updates_early(d)) most = fmin(most, (c->dp > 1 ? buckets : 0) + d->w->updated[0]);
    return fmin(n, most);
}

/* ---- parameters and state from elsewhere ---- */

/* Elements of the units at hand and of those that come ahead of their use. */
static double count_ahead(const device *d, const double *in_a_row) {
    int ahead = d->c->prefetch, most = (int)wfi_min_i64(ahead, WFI_MOST_AHEAD);
    return in_a_row[most] * (ahead + 1) / (most + 1);
}

static double gathered_bytes(const device *d, const wfi_pass_bytes *pass) {
    return d->gathers ? 4 * count_ahead(d, pass->gathered) : 0;
}

static double fetched_bytes(const device *d, const double *in_a_row) {
    double each = 4.0 * wfi_recipe_n_states(d->p->q.recipe);
    if (d->c->offload[WFI_OFFLOAD_STATE] == WFI_SPACE_DEVICE) return 0;
    return each * count_ahead(d, in_a_row) / (d->c->zero ? d->c->shard : 1);
}

/* The state of units that are updated as the block goes backward. */
static double early_bytes(const device *d, const wfi_model_block *b) {
    return updates_early(d) ? fetched_bytes(d, b->updated) : 0;
}

/* ---- a block goes forward or backward ---- */

/* Blocks after this one have the gradients of `done` parameters; those up to it keep `left` bytes
 * of the microbatch. */
typedef struct place {
    const wfi_model_block *b;
    double done, left;
    double packed[2]; /* that forward still reads after this block, backward from it on */
    double tied;      /* gradients of others' parameters */
} place;

/* A microbatch of a lane, and its number in the lane. The only one of a lane is its last. */
typedef enum turn { FIRST, MIDDLE, LAST } turn;

static int64_t number_of(const device *d, turn t) {
    return t == FIRST ? 0 : t == MIDDLE ? 1 : d->each - 1;
}

/* Weights in kernels' formats: each is made for its first use, and ends with its last one. */
static double packed_bytes(const device *d, const place *at, int64_t k, turn t, int pass) {
    bool is_first = k == 0 && number_of(d, t) == 0, is_last = k == d->n_lanes - 1 && t == LAST;
    const double *all = d->packed, own = at->b->pass[pass].packed;
    if (d->gathers || (is_first && is_last)) return own;
    if (!pass) return (is_last ? at->packed[0] : all[0]) + (is_first ? 0 : all[1]);
    if (is_last) return at->packed[1];
    return all[0] + (is_first ? all[1] - at->packed[1] + own : all[1]);
}

/* What the device keeps of the microbatches that it holds, but for one on the stage at hand. */
static double others_bytes(const device *d, int64_t k, turn t) {
    double left = (double)((d->n_lanes - k) * d->each - number_of(d, t));
    return fmax(0, fmin(d->held, left) * d->saved - kept_bytes(d->c, d->stage));
}

static double buffer_bytes(const device *d, const place *at, int64_t k, turn t, int pass) {
    bool adds = pass && number_of(d, t) > 0;
    return gathered_bytes(d, &at->b->pass[pass]) + packed_bytes(d, at, k, t, pass) +
           (adds ? at->b->added_bytes : 0);
}

static void look_forward(device *d, const place *at, int64_t k, turn t) {
    bool has_own = number_of(d, t) > 0;
    double sums = (count_sums(k) + (has_own && needs_sum(k))) * d->n + (has_own ? d->tied : 0);
    look(d, 4 * sums, others_bytes(d, k, t) + at->left,
         at->b->pass[0].transient + buffer_bytes(d, at, k, t, 0));
}

/* Gradients while the first unit of the block is computed, or, at its end, the last one. */
static double count_gradients(const device *d, const place *at, int64_t k, turn t, bool end) {
    int before = count_sums(k), during = before + needs_sum(k);
    bool is_last = k == d->n_lanes - 1;
    double unit = at->b->unit_own, behind = at->done + (end ? at->b->n_parameters - unit : 0);
    double tied = end || number_of(d, t) > 0 ? d->tied : at->tied + at->b->unit_tied;
    if (t == MIDDLE) return during * d->n + tied;
    if (number_of(d, t) > 0) before = during;
    double done = t == LAST && is_last ? count_complete(d, behind, unit) : during * behind;
    return tied + done + during * unit + before * (d->n - behind - unit);
}

static void look_backward(device *d, const place *at, int64_t k, turn t) {
    double buffers = buffer_bytes(d, at, k, t, 1);
    if (k == d->n_lanes - 1 && t == LAST) buffers += early_bytes(d, at->b);
    for (int end = 0; end < 2; end++) {
        double gone = end ? at->b->saved_bytes - at->b->unit_saved_bytes : 0;
        look(d, 4 * count_gradients(d, at, k, t, end), others_bytes(d, k, t) + at->left - gone,
             (end ? at->b->pass[1].alive : at->b->pass[1].transient) + buffers);
    }
}

/* The last microbatch of lane k, where each block takes all of them before the next does; the last
 * unit of a model goes back at once. */
static void look_by_unit(device *d, const place *at, int64_t k) {
    double n = (double)d->n_lanes * (double)d->each, own = at->b->saved_bytes;
    bool is_last = at->done == 0 && at->b->n_units == 1;
    double gone = is_last ? (n - 1) * own : (double)(k * d->each) * own;
    const wfi_pass_bytes *pass = at->b->pass;
    double sums = count_complete(d, at->done, at->b->unit_own) + at->b->n_parameters +
                  at->b->unit_own * (count_sums(k) + needs_sum(k) - 1);
    look(d, 4 * (sums + d->tied), n * at->left - gone,
         pass[1].transient + (n - 1) * pass[1].crossing +
             (d->gathers ? pass[1].packed : at->packed[1]) +
             (d->each > 1 ? at->b->added_bytes : 0) + gathered_bytes(d, &pass[1]) +
             early_bytes(d, at->b));
    look(d, 0, n * at->left - (is_last ? gone : 0),
         pass[0].transient + (n - 1) * pass[0].crossing + pass[0].packed +
             gathered_bytes(d, &pass[0]));
}

static void look_at(device *d, const place *at, int64_t k) {
    if (d->c->schedule->by_unit && d->c->pp == 1 && d->n_lanes * d->each > 1) {
        look_by_unit(d, at, k);
        return;
    }
    for (int t = d->each > 1 ? FIRST : LAST; t <= LAST; t++) {
        if (t == MIDDLE && d->each < 3) continue;
        look_forward(d, at, k, (turn)t);
        look_backward(d, at, k, (turn)t);
    }
}

/* The first of the blocks that are equal to block i and on its stage. */
static int64_t first_equal(const device *d, int64_t i) {
    const wfi_model_work *w = d->w;
    bool is_layer = w->layer >= 0 && i >= w->layer && i < w->layer + w->n_layers;
    return is_layer ? wfi_max_i64(w->layer, d->stage->first) : i;
}

/* Of equal blocks, the first or the last needs the most. */
static void look_at_stage(device *d, int64_t k) {
    place at = {.left = d->stage->saved_bytes, .packed = {0, d->packed[1]}, .tied = d->received};
    int64_t first;
    for (int64_t i = d->stage->end - 1; i >= d->stage->first; i = first - 1) {
        first = first_equal(d, i);
        const wfi_model_block *b = at.b = wfi_work_block(d->w, i);
        double n = (double)(i - first);
        at.packed[0] += b->pass[0].packed;
        look_at(d, &at, k);
        at.done += n * b->n_parameters;
        at.left -= n * b->saved_bytes;
        at.packed[0] += n * b->pass[0].packed;
        at.packed[1] -= n * b->pass[1].packed;
        if (n > 0) look_at(d, &at, k);
        at.done += b->n_parameters;
        at.tied += b->n_used - b->n_parameters;
        at.left -= b->saved_bytes;
        at.packed[1] -= b->pass[1].packed;
    }
}

/* ---- a device ---- */

/* Of lanes with equally many sums the first one needs the most: no later one holds more. */
static bool needs_look(const device *d, int64_t k) {
    return needs_sum(k) || !(k & (k - 1)) || k == d->n_lanes - 1;
}

static void add_stage(device *d, const wfi_stage_work *s) {
    d->saved += kept_bytes(d->c, s);
    d->n += s->n_parameters;
    d->tied += s->n_used - s->n_parameters;
    for (int k = 0; k < 2; k++) d->packed[k] += s->packed_bytes[k];
}

wfi_case_moment wfi_moment_find(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                                const wfi_stage_work *stages, int at, double held) {
    int64_t n = wfi_case_n_micro(c), lanes = p->q.recipe->n_lanes / c->dp;
    device d = {.p = p, .c = c, .w = w, .held = held};
    d.n_lanes = wfi_max_i64(1, wfi_min_i64(lanes, n));
    d.each = wfi_max_i64(1, n / d.n_lanes);
    for (int s = 0; s < c->pp * c->chunks; s++)
        if (wfi_schedule_device_of(c->schedule, c->pp, s) == at) add_stage(&d, &stages[s]);
    const wfi_stage_work *last = &stages[c->pp * c->chunks - 1];
    if (wfi_schedule_device_of(c->schedule, c->pp, 0) == at && d.tied == 0)
        d.tied = d.received = last->n_used - last->n_parameters;
    d.gathers = c->zero == 3 || c->offload[WFI_OFFLOAD_PARAMS] != WFI_SPACE_DEVICE;
    for (int s = 0; s < c->pp * c->chunks; s++) {
        d.stage = &stages[s];
        if (wfi_schedule_device_of(c->schedule, c->pp, s) != at) continue;
        for (int64_t k = 0; k < d.n_lanes; k++)
            if (needs_look(&d, k)) look_at_stage(&d, k);
    }
    look(&d, 4 * count_complete(&d, d.n, 0), 0, fetched_bytes(&d, w->updated)); /* the update */
    return d.worst;
}
