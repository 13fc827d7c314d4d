#include "execute/recorded.h"

#include "base/env.h"

/* Of an instruction; its rank's thread alone looks at it. */
struct wfi_recorded {
    void *captured;   /* the device's; NULL: not yet */
    const char *base; /* of the arena that it is about, which may move between steps */
    double loss_scale;
    bool has_run, is_refused;
};

wf_status wfi_recorded_create(const wf_program *p, wfi_recorded **recorded_out) {
    int64_t replays;
    WF_TRY(wfi_env_count(p->ctx, WFI_WEFT_REPLAY, &replays));
    if (!replays) return WF_OK;
    *recorded_out = wfi_alloc(p->ctx, (size_t)p->n_instructions, sizeof **recorded_out, "replays");
    return *recorded_out ? WF_OK : WF_NO_MEMORY;
}

static void forget(const wfi_device *device, wfi_recorded *r) {
    if (r->captured) device->kind->forget(device, r->captured);
    r->captured = NULL;
}

void wfi_recorded_destroy(const wfi_executor *e) {
    for (int32_t i = 0; i < e->p->n_instructions && e->recorded; i++)
        forget(e->workers[e->p->instructions[i].rank].device, &e->recorded[i]);
    wfi_free(e->p->ctx, e->recorded);
}

static unsigned what_is_read(const wfi_segment *segment) {
    unsigned flags = 0;
    for (int32_t s = 0; s < segment->n_steps; s++) {
        const wfi_node *node = segment->steps[s].kernel->node;
        if (node) flags |= node->op->flags & WFI_OP_READS;
    }
    return flags;
}

/* Whether a captured segment would be valid in this step. Queueing a single kernel takes no longer
 * than a replay, so it is not captured. */
static bool is_steady(const wfi_executor *e, const wfi_instruction *now, const wfi_recorded *r) {
    unsigned read = what_is_read(now->segment);
    bool scales_alike = !r->captured || r->loss_scale == e->step.args.loss_scale;
    return now->segment->n_steps > 1 && !(read & WFI_OP_READS_STEP) &&
           (!(read & WFI_OP_READS_SCALE) || scales_alike);
}

typedef struct segment_call {
    wfi_executor *e;
    const wfi_instruction *now;
    wfi_segment_run run;
} segment_call;

static wf_status launch(void *self, void *argument) {
    const segment_call *call = self;
    (void)argument;
    return call->run(call->e, call->now, true);
}

static void capture(wfi_executor *e, const wfi_instruction *now, wfi_segment_run run,
                    wfi_stream_queue *stream, wfi_recorded *r) {
    segment_call call = {e, now, run};
    r->captured = stream->device->kind->capture(stream, launch, &call, NULL);
    r->base = e->workers[now->rank].arenas[WFI_SPACE_DEVICE].base;
    r->loss_scale = e->step.args.loss_scale;
    r->is_refused = !r->captured;
}

wf_status wfi_recorded_run(wfi_executor *e, const wfi_instruction *now, wfi_segment_run run) {
    const wfi_worker *w = &e->workers[now->rank];
    wfi_stream_queue *stream = w->streams[now->stream];
    wfi_recorded *r = e->recorded ? &e->recorded[now - e->p->instructions] : NULL;
    bool may = r && !r->is_refused && w->device->kind->capture && !e->profile->is_on;
    if (may && r->captured && r->base != w->arenas[WFI_SPACE_DEVICE].base) forget(w->device, r);
    if (!may || !r->has_run || !is_steady(e, now, r)) {
        if (r) r->has_run = true;
        return run(e, now, true);
    }
    if (!r->captured)
        capture(e, now, run, stream, r);
    else
        WF_TRY(run(e, now, false));
    return r->captured ? w->device->kind->replay(stream, r->captured) : run(e, now, true);
}
