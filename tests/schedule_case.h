/* What the tests of schedules share: making one, with its times. */
#pragma once

#include "test.h"

#include "plan/schedule/timing.h"

#define CASE_STAGES 256

/* A schedule's lists and times; fails the test if it is illegal. */
typedef struct schedule_case {
    wf_context *ctx;
    wfi_schedule_request request;
    int device_of[CASE_STAGES];
    wfi_stage_times times[CASE_STAGES];
    wfi_stage_memory memory[CASE_STAGES];
    wfi_action_list *lists;
    wfi_timing timing;
} schedule_case;

/* The request's stages become devices, whose times the schedule's chunks divide equally; asked: 0,
 * or how many. Of a microbatch, `weight_held` is kept until W. */
static inline void schedule_case_cut(wf_context *ctx, const char *name, int asked,
                                     double weight_held, const wfi_schedule_request *request,
                                     schedule_case *c) {
    const wfi_schedule *schedule = wfi_schedule_find(name);
    int n_chunks = wfi_schedule_n_chunks(schedule, asked), n = request->n_stages * n_chunks;
    *c = (schedule_case){.ctx = ctx, .request = *request};
    assert_true(n <= CASE_STAGES);
    for (int s = 0; s < n; s++) {
        int d = c->device_of[s] = wfi_schedule_device_of(schedule, request->n_stages, s);
        const wfi_stage_times *t = &request->times[d];
        c->times[s] =
            (wfi_stage_times){t->forward / n_chunks, t->backward / n_chunks, t->weight / n_chunks};
        c->memory[s] = (wfi_stage_memory){1.0 / n_chunks, weight_held / n_chunks};
    }
    c->request.n_stages = n;
    c->request.times = c->times;
    c->request.n_devices = request->n_stages;
    c->request.device_of = c->device_of;
    c->request.memory = c->memory;
    TEST_OK(ctx, wfi_schedule_make(ctx, schedule, &c->request, &c->lists));
    TEST_OK(ctx, wfi_timing_init(ctx, &c->request, &c->timing));
    TEST_OK(ctx, wfi_timing_run(&c->request, c->lists, &c->timing));
}

static inline void schedule_case_begin(wf_context *ctx, const char *name,
                                       const wfi_schedule_request *request, schedule_case *c) {
    schedule_case_cut(ctx, name, 0, 1, request, c);
}

static inline void schedule_case_end(schedule_case *c) {
    wfi_timing_release(&c->timing);
    wfi_schedule_free(c->ctx, c->lists, c->request.n_devices);
}

static inline double schedule_case_cost(const schedule_case *c) {
    return c->request.by_stage_span ? c->timing.longest_span : c->timing.makespan;
}

static inline double schedule_case_peak(const schedule_case *c) {
    double most = 0;
    for (int d = 0; d < c->request.n_devices; d++)
        if (c->timing.peak[d] > most) most = c->timing.peak[d];
    return most;
}

/* The part of the longest device's time that the one with most work could do without. */
static inline double schedule_case_bubble(const schedule_case *c) {
    double most = 0;
    for (int d = 0; d < c->request.n_devices; d++) {
        double work = 0;
        for (int s = 0; s < c->request.n_stages; s++)
            if (c->device_of[s] == d)
                work += c->times[s].forward + c->times[s].backward + c->times[s].weight;
        if (work > most) most = work;
    }
    return 1 - c->request.n_micro * most / c->timing.longest_span;
}
