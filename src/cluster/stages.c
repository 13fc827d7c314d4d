/* Blocks to stages: by the plan's cut, by the model's marks, in equal parts, or balanced by time.
 */
#include "cluster/predict.h"

#include <stdlib.h>
#include <string.h>

typedef struct division {
    wfi_predictor *p;
    const wfi_model_work *w;
    int64_t n_blocks;
    int n_stages;
    int64_t *first; /* [n_stages + 1] */
} division;

static double block_us(const division *d, const wfi_model_block *b) {
    double us = 0;
    if (d->p->q.accounting == WF_ACCOUNTING_WEFT) return b->planned_us;
    for (int k = 0; k < 4; k++) us += b->phase[k].us + b->phase[k].summed_us;
    return us;
}

/* ---- by names ---- */

/* The block called so; of equal layers, the number ends the name. */
static int64_t find_block(const wfi_model_work *w, const char *name, size_t n) {
    for (int32_t k = 0; k < w->n_kinds; k++) {
        const char *own = w->kinds[k].name;
        if (strlen(own) != n || strncmp(own, name, n)) continue;
        return w->layer >= 0 && k > w->layer ? k + w->n_layers - 1 : k;
    }
    if (w->layer < 0) return -1;
    const char *like = w->kinds[w->layer].name, *dot = strrchr(like, '.');
    size_t prefix = dot ? (size_t)(dot + 1 - like) : 0;
    if (!prefix || n <= prefix || strncmp(like, name, prefix)) return -1;
    char *end;
    long long number = strtoll(name + prefix, &end, 10), first = strtoll(dot + 1, NULL, 10);
    int64_t block = w->layer + number - first;
    return end == name + n && block > 0 && block < wfi_work_n_blocks(w) ? block : -1;
}

static wf_status divide_by_cut(const division *d, const char *cut) {
    int stage = 1;
    for (const char *at = cut; *at; stage++) {
        size_t n = strcspn(at, "+");
        int64_t block = find_block(d->w, at, n);
        if (block < 0 || stage >= d->n_stages || block <= d->first[stage - 1])
            return wfi_fail(d->p->ctx, WF_INVALID_ARG,
                            "plan: cut '%.*s' is not block %d of %d in the model's order", (int)n,
                            at, stage, d->n_stages);
        d->first[stage] = block;
        at += n + (at[n] == '+');
    }
    if (stage == d->n_stages) return WF_OK;
    return wfi_fail(d->p->ctx, WF_INVALID_ARG, "plan: %d stages need %d cuts; cut=%s names %d",
                    d->n_stages, d->n_stages - 1, cut, stage - 1);
}

static bool divide_by_marks(const division *d) {
    int n = 1;
    for (int64_t i = 1; i < d->n_blocks; i++) {
        const wfi_model_block *b = wfi_work_block(d->w, i);
        if (b->begins_stage && n++ < d->n_stages) d->first[n - 1] = i;
        if (!b->begins_stage) i += wfi_work_n_equal(d->w, i) - 1;
    }
    return n == d->n_stages;
}

/* ---- in equal parts ---- */

/* Each stage but the last has as many layers, rounded up; what is not a layer goes to the first and
 * to the last stage. Where only that makes stages equal, these two count as a layer each, as in
 * BLOOM. False: there are fewer layers than stages. */
static bool divide_equally(const division *d) {
    int64_t begin = 0, end = d->n_blocks;
    while (begin < end && !wfi_work_block(d->w, begin)->is_layer) begin++;
    while (end > begin && !wfi_work_block(d->w, end - 1)->is_layer) end--;
    int64_t n = end - begin, each = (n + d->n_stages - 1) / d->n_stages;
    bool counts_ends = n % d->n_stages && (n + 2) % d->n_stages == 0;
    if (n < d->n_stages || each * (d->n_stages - 1) >= n) return false;
    for (int s = 1; s < d->n_stages; s++) d->first[s] = begin + s * each - (counts_ends ? 1 : 0);
    return true;
}

/* ---- balanced ---- */

/* Of n equal blocks from i on, those that end a stage before `most`, if it has `us` already. */
static int64_t count_within(const division *d, int64_t i, int64_t n, double us, double most) {
    double room = floor((most - us) / fmax(block_us(d, wfi_work_block(d->w, i)), 1e-300));
    return (int64_t)fmax(0, fmin((double)n, room));
}

/* Returns whether no stage needs to be longer than `most`; first[] is set. */
static bool divide_within(const division *d, double most) {
    int64_t i = 0;
    for (int s = 0; s < d->n_stages; s++) {
        double us = 0;
        int64_t last = d->n_blocks - (d->n_stages - 1 - s); /* a block is left for each stage */
        int64_t n = 1, taken = 1;
        d->first[s] = i;
        for (; i < last && taken == n; i += taken) {
            n = wfi_min_i64(wfi_work_n_equal(d->w, i), last - i);
            taken = wfi_max_i64(count_within(d, i, n, us, most), i == d->first[s]);
            us += (double)taken * block_us(d, wfi_work_block(d->w, i));
        }
        if (us > most * (1 + 1e-9)) return false;
    }
    return i == d->n_blocks;
}

static void balance(const division *d) {
    double least = 0, most = 0;
    int64_t n;
    for (int64_t i = 0; i < d->n_blocks; i += n) {
        n = wfi_work_n_equal(d->w, i);
        double us = block_us(d, wfi_work_block(d->w, i));
        least = fmax(least, us);
        most += (double)n * us;
    }
    for (int k = 0; k < 40 && most - least > 1e-6 * most; k++) {
        double middle = (least + most) / 2;
        *(divide_within(d, middle) ? &most : &least) = middle;
    }
    (void)divide_within(d, most);
}

/* ---- sums ---- */

static void add_phase(const wfi_phase_work *work, int phase, double n, wfi_stage_work *to) {
    to->us[phase] += n * work->us;
    to->summed_us[phase] += n * work->summed_us;
    to->flops[phase] += n * work->flops;
}

/* The papers repeat the forward of layers, or of their attention, and neither that of the embedding
 * nor that of the head. */
static void add_repeated(const wfi_case *c, const wfi_model_block *b, double n,
                         wfi_stage_work *to) {
    if (!b->is_layer || c->recompute == WFI_RECOMPUTE_NONE) return;
    bool is_all = c->recompute == WFI_RECOMPUTE_ALL;
    add_phase(is_all ? &b->phase[WFI_F] : &b->attention, WFI_R, n, to);
}

/* Adds n equal blocks. */
static void add_blocks(const wfi_predictor *p, const wfi_case *c, const wfi_model_block *b,
                       double n, wfi_stage_work *to) {
    for (int k = 0; k < 4; k++) add_phase(&b->phase[k], k, n, to);
    if (p->q.accounting == WF_ACCOUNTING_MEGATRON) add_repeated(c, b, n, to);
    to->n_blocks += n;
    to->n_parameters += n * b->n_parameters;
    to->n_used += n * b->n_used;
    to->saved_bytes += n * wfi_block_saved_bytes(p, c, b);
    to->weight_bytes += n * b->weight_bytes;
    for (int k = 0; k < 2; k++) to->packed_bytes[k] += n * b->pass[k].packed;
    double transient = wfi_block_transient_bytes(p, c, b);
    if (b->is_layer) to->layer_bytes = fmax(to->layer_bytes, transient);
    if (!b->is_layer) to->end_bytes = fmax(to->end_bytes, transient);
}

static void sum_blocks(const division *d, const wfi_case *c, wfi_stage_work *stages) {
    double element = d->p->precision == WFI_F32 ? 4 : 2;
    int64_t n;
    for (int s = 0; s < d->n_stages; s++) {
        for (int64_t i = d->first[s]; i < d->first[s + 1]; i += n) {
            n = wfi_min_i64(wfi_work_n_equal(d->w, i), d->first[s + 1] - i);
            add_blocks(d->p, c, wfi_work_block(d->w, i), (double)n, &stages[s]);
        }
        stages[s].first = d->first[s];
        stages[s].end = d->first[s + 1];
        stages[s].input_bytes = element * wfi_work_block(d->w, d->first[s])->input_elements;
    }
}

double wfi_device_used(const wfi_case *c, const wfi_stage_work *stages, int device) {
    int n_stages = c->pp * c->chunks,
        last = wfi_schedule_device_of(c->schedule, c->pp, n_stages - 1);
    double n = 0;
    for (int k = 0; k < c->chunks; k++) n += stages[wfi_case_stage(c, device, k)].n_used;
    bool has_both = device == last && device == wfi_schedule_device_of(c->schedule, c->pp, 0);
    if (!has_both) return n;
    return n - stages[n_stages - 1].n_used + stages[n_stages - 1].n_parameters;
}

static wf_status divide(const division *d, const wfi_case *c) {
    d->first[0] = 0;
    d->first[d->n_stages] = d->n_blocks;
    if (d->n_stages > d->n_blocks)
        return wfi_fail(d->p->ctx, WF_INVALID_ARG,
                        "plan: %d stages (pp=%d, %d a rank), but the model has %lld blocks",
                        d->n_stages, c->pp, c->chunks, (long long)d->n_blocks);
    if (c->cut && strcmp(c->cut, WFI_CUT_BALANCED)) return divide_by_cut(d, c->cut);
    bool is_done = false;
    if (!c->cut && d->p->q.accounting == WF_ACCOUNTING_MEGATRON) is_done = divide_equally(d);
    if (!c->cut && !is_done) is_done = divide_by_marks(d);
    if (!is_done) balance(d);
    return WF_OK;
}

static wf_status find_division(division *d, const wfi_case *c) {
    wfi_predictor *p = d->p;
    for (int k = 0; k < WFI_MAX_DIVISIONS && !c->cut; k++)
        if (p->divisions[k].work == d->w && p->divisions[k].n_stages == d->n_stages) {
            d->first = p->divisions[k].first;
            return WF_OK;
        }
    wfi_known_division *known = &p->divisions[p->next_division++ % WFI_MAX_DIVISIONS];
    wfi_free(p->ctx, known->first);
    *known = (wfi_known_division){c->cut ? NULL : d->w, d->n_stages, NULL};
    known->first = wfi_alloc(p->ctx, (size_t)d->n_stages + 1, sizeof *known->first, "stages");
    d->first = known->first;
    wf_status status = d->first ? divide(d, c) : WF_NO_MEMORY;
    if (status != WF_OK) known->work = NULL;
    return status;
}

wf_status wfi_stages_create(wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                            wfi_stage_work **stages_out) {
    division d = {.p = p, .w = w, .n_blocks = wfi_work_n_blocks(w), .n_stages = c->pp * c->chunks};
    WF_TRY(find_division(&d, c));
    *stages_out = wfi_alloc(p->ctx, (size_t)d.n_stages, sizeof **stages_out, "stages");
    if (!*stages_out) return WF_NO_MEMORY;
    sum_blocks(&d, c, *stages_out);
    return WF_OK;
}
