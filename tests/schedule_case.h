/* What the tests of schedules share: making one, with its times. */
#ifndef TESTS_SCHEDULE_CASE_H
#define TESTS_SCHEDULE_CASE_H

#include "test.h"

#include "plan/schedule/timing.h"

/* A schedule's lists and times; fails the test if it is illegal. */
typedef struct schedule_case {
    wf_context *ctx;
    wfi_schedule_request request;
    wfi_action_list *lists;
    wfi_timing timing;
} schedule_case;

static inline void schedule_case_begin(wf_context *ctx, const char *name,
                                       const wfi_schedule_request *request, schedule_case *c) {
    *c = (schedule_case){.ctx = ctx, .request = *request};
    TEST_OK(ctx, wfi_schedule_make(ctx, wfi_schedule_find(name), request, &c->lists));
    TEST_OK(ctx, wfi_timing_init(ctx, request, &c->timing));
    TEST_OK(ctx, wfi_timing_run(request, c->lists, &c->timing));
}

static inline void schedule_case_end(schedule_case *c) {
    wfi_timing_release(&c->timing);
    wfi_schedule_free(c->ctx, c->lists, c->request.n_stages);
}

static inline double schedule_case_cost(const schedule_case *c) {
    return c->request.by_stage_span ? c->timing.longest_span : c->timing.makespan;
}

static inline int schedule_case_peak(const schedule_case *c) {
    int most = 0;
    for (int s = 0; s < c->request.n_stages; s++)
        if (c->timing.peak[s] > most) most = c->timing.peak[s];
    return most;
}

#endif
