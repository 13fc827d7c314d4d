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
} stream;

typedef struct simulation {
    const wf_program *p;
    double cores, now_us; /* cores of a rank */
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
static void begin_group(const simulation *s, const int32_t *group, int32_t n, const double *us,
                        double message_us, double *begin_us) {
    for (int32_t m = 0; m < n; m++)
        if (!can_begin(s, group[m])) return;
    for (int32_t m = 0; m < n; m++) {
        stream *own = stream_of(s, group[m]);
        *own = (stream){own->n_ended, true, n > 1 ? message_us : 0, us[group[m]]};
        begin_us[group[m]] = s->now_us;
    }
}

static bool works(const stream *s) {
    return s->runs && s->wait_us <= 0 && s->left_us > 0;
}

static bool is_over(const stream *s) {
    return s->runs && s->wait_us <= 0 && s->left_us <= 0;
}

static double speed_of(const simulation *s, int32_t rank) {
    double n = 0;
    for (int k = 0; k < WFI_N_STREAMS; k++) {
        bool is_compute = k == WFI_STREAM_COMPUTE;
        if (works(&s->streams[rank * WFI_N_STREAMS + k]))
            n += is_compute ? fmax(1, s->p->recipe.n_threads) : 1;
    }
    return n > s->cores ? s->cores / n : 1;
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
        double us = works(own) ? own->left_us / speed_of(s, k / WFI_N_STREAMS) : own->wait_us;
        step_us = fmin(step_us, us);
    }
    s->now_us += step_us;
    for (int32_t r = 0; r < s->p->n_ranks; r++) {
        double speed = speed_of(s, r);
        for (int k = 0; k < WFI_N_STREAMS; k++) {
            stream *own = &s->streams[r * WFI_N_STREAMS + k];
            if (own->runs && !is_over(own))
                spend(works(own) ? &own->left_us : &own->wait_us,
                      works(own) ? step_us * speed : step_us);
        }
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
static void run(simulation *s, const double *us, double message_us, double *begin_us,
                double *end_us) {
    const wf_program *p = s->p;
    for (int32_t n_left = p->n_instructions, before; n_left > 0;) {
        before = n_left;
        for (int32_t k = 0; k < s->n_streams; k++) {
            int32_t i = present(s, k);
            if (i >= 0 && !s->streams[k].runs)
                begin_group(s, p->order + s->first[i], wfi_n_together(p, s->first[i]), us,
                            message_us, begin_us);
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

wf_status wfi_simulate_cores(const wf_program *p, double cores, const double *us, double message_us,
                             double *begin_us, double *end_us) {
    simulation s = {.p = p, .cores = cores, .n_streams = p->n_ranks * WFI_N_STREAMS};
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
    if (status == WF_OK) run(&s, us, message_us, begin_us, end_us);
    wfi_pool_release(&pool);
    return status;
}
