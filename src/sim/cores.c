/* The simulation for CPUs. The streams of a rank are threads on the rank's cores. While more of
 * them work than there are cores, all of them are slower by the same factor. So a copy beside the
 * compute stream is not free, as it would be on a GPU.
 */
#include "sim/cores.h"
#include "program/clock.h"

#include <math.h>

/* Rounding leaves as much of an instruction that is over. */
#define NOTHING_US 1e-6

typedef struct stream {
    int32_t n_ended; /* instructions */
    bool runs;
    double wait_us, left_us; /* of the instruction that runs: a message's latency, work */
    double speed;            /* of this work, until the next moment */
} stream;

typedef struct simulation {
    const wf_program *p;
    double cores, now_us; /* cores of a rank */
    const double *us, *crowded_us;
    int32_t n_streams;
    stream *streams; /* [rank][stream] */
    int32_t *first;  /* [n_instructions] place of its group in the order */
    bool *ended;     /* [n_instructions] */
} simulation;

static stream *stream_of(const simulation *s, int32_t i) {
    const wfi_instruction *now = &s->p->instructions[i];
    return &s->streams[now->rank * WFI_N_STREAMS + (int32_t)now->stream];
}

/* The first instruction of stream k that has not ended; -1: there is none. */
static int32_t present(const simulation *s, int32_t k) {
    const wfi_rank *r = &s->p->ranks[k / WFI_N_STREAMS];
    int32_t n = s->streams[k].n_ended;
    return n < r->n_stream[k % WFI_N_STREAMS] ? r->stream[k % WFI_N_STREAMS][n] : -1;
}

/* Whether the instruction is the first of its stream, after all that it depends on. A rank that
 * follows another one has the instructions of that rank, whose streams run them. */
static bool can_begin(const simulation *s, int32_t i) {
    const wfi_instruction *now = &s->p->instructions[i];
    const stream *own = stream_of(s, i);
    if (own->runs || present(s, (int32_t)(own - s->streams)) != i) return false;
    for (int32_t d = 0; d < now->n_depends; d++)
        if (!s->ended[now->depends[d]]) return false;
    return true;
}

/* Begins those of the group, if all can begin. */
static void begin_group(const simulation *s, const int32_t *group, int32_t n, double message_us,
                        double *begin_us) {
    for (int32_t m = 0; m < n; m++)
        if (!can_begin(s, group[m])) return;
    for (int32_t m = 0; m < n; m++) {
        stream *own = stream_of(s, group[m]);
        *own = (stream){own->n_ended, true, n > 1 ? message_us : 0, s->us[group[m]], 1};
        begin_us[group[m]] = s->now_us;
    }
}

static bool works(const stream *s) {
    return s->runs && s->wait_us <= 0 && s->left_us > 0;
}

static bool is_over(const stream *s) {
    return s->runs && s->wait_us <= 0 && s->left_us <= 0;
}

static bool is_unit(const simulation *s, int32_t i) {
    return wfi_type_of(&s->p->instructions[i])->cost == WFI_COST_UNIT;
}

/* Whether another rank slows down the instruction that stream k runs. Copies and sums compete for
 * memory with each other, but units leave most of it to them. Ranks that follow this one do the
 * same at the same time. */
static bool is_crowded(const simulation *s, int32_t k) {
    int32_t i = present(s, k), rank = k / WFI_N_STREAMS;
    bool is = s->p->ranks[rank].n_like > 1;
    for (int32_t other = 0; other < s->n_streams && !is; other++)
        is = other / WFI_N_STREAMS != rank && works(&s->streams[other]) &&
             (is_unit(s, i) || !is_unit(s, present(s, other)));
    return is;
}

/* Of a rank's cores, which its streams share. */
static double share_of(const simulation *s, int32_t rank) {
    double n = 0;
    for (int k = 0; k < WFI_N_STREAMS; k++) {
        bool is_compute = k == WFI_STREAM_COMPUTE;
        if (works(&s->streams[rank * WFI_N_STREAMS + k]))
            n += is_compute ? fmax(1, s->p->recipe.n_threads) : 1;
    }
    return n > s->cores ? s->cores / n : 1;
}

static double speed_of(const simulation *s, int32_t k) {
    int32_t i = present(s, k);
    double share = share_of(s, k / WFI_N_STREAMS);
    bool slows = s->crowded_us && s->crowded_us[i] > 0 && is_crowded(s, k);
    return slows ? share * s->us[i] / s->crowded_us[i] : share;
}

static void spend(double *us, double by) {
    *us = *us - by < NOTHING_US ? 0 : *us - by;
}

/* To the next moment at which the latency or the work of an instruction is over. */
static void advance(simulation *s) {
    double step_us = INFINITY;
    for (int32_t k = 0; k < s->n_streams; k++) {
        stream *own = &s->streams[k];
        if (!own->runs || is_over(own)) continue;
        if (works(own)) own->speed = speed_of(s, k);
        step_us = fmin(step_us, works(own) ? own->left_us / own->speed : own->wait_us);
    }
    s->now_us += step_us;
    for (int32_t k = 0; k < s->n_streams; k++) {
        stream *own = &s->streams[k];
        if (works(own))
            spend(&own->left_us, step_us * own->speed);
        else if (own->runs && !is_over(own))
            spend(&own->wait_us, step_us);
    }
}

/* Ends those of the group, if all are over. */
static void end_group(const simulation *s, const int32_t *group, int32_t n, double *end_us,
                      int32_t *n_left) {
    for (int32_t m = 0; m < n; m++)
        if (!is_over(stream_of(s, group[m]))) return;
    for (int32_t m = 0; m < n; m++) {
        stream *own = stream_of(s, group[m]);
        *own = (stream){.n_ended = own->n_ended + 1};
        s->ended[group[m]] = true;
        end_us[group[m]] = s->now_us;
        --*n_left;
    }
}

/* An instruction without work ends when it begins. */
static void run(simulation *s, double message_us, double *begin_us, double *end_us) {
    const wf_program *p = s->p;
    for (int32_t n_left = p->n_instructions, before; n_left > 0;) {
        before = n_left;
        for (int32_t k = 0; k < s->n_streams; k++) {
            int32_t i = present(s, k);
            if (i >= 0 && !s->streams[k].runs)
                begin_group(s, p->order + s->first[i], wfi_n_together(p, s->first[i]), message_us,
                            begin_us);
        }
        for (int32_t k = 0; k < s->n_streams; k++) {
            int32_t i = present(s, k);
            if (i >= 0 && s->streams[k].runs)
                end_group(s, p->order + s->first[i], wfi_n_together(p, s->first[i]), end_us,
                          &n_left);
        }
        if (n_left == before) advance(s);
    }
}

wf_status wfi_simulate_cores(const wf_program *p, double cores, const double *us,
                             const double *crowded_us, double message_us, double *begin_us,
                             double *end_us) {
    simulation s = {.p = p,
                    .cores = cores,
                    .us = us,
                    .crowded_us = crowded_us,
                    .n_streams = p->n_ranks * WFI_N_STREAMS};
    size_t n = (size_t)p->n_instructions;
    wfi_pool pool = {.ctx = p->ctx};
    s.streams = wfi_pool_array(&pool, (size_t)s.n_streams, sizeof *s.streams, "a simulation");
    s.first = wfi_pool_array(&pool, n, sizeof *s.first, "a simulation");
    s.ended = wfi_pool_array(&pool, n, sizeof *s.ended, "a simulation");
    wf_status status = wfi_pool_status(&pool);
    for (int32_t k = 0, end; k < p->n_instructions && status == WF_OK; k = end) {
        end = k + wfi_n_together(p, k);
        for (int32_t m = k; m < end; m++) s.first[p->order[m]] = k;
    }
    if (status == WF_OK) run(&s, message_us, begin_us, end_us);
    wfi_pool_release(&pool);
    return status;
}
