/* Instructions in which several ranks take part, over shared memory of one process.
 *
 * Nobody stops a thread to meet another: the parts of an exchange are tasks on the
 * ranks' streams, ordered by events. A receive copies from the sender's arena; an
 * all-reduce lets each rank sum one slice of everybody's gradient, in the order of the
 * tree, and then copies the other slices from their owners.
 */
#include "run/issue.h"

#include "plan/lanes.h"

#include <string.h>

/* Elements summed at a time: a tree of buffers of this size stays in the cache. */
#define N_AT_ONCE 1024
/* Slices begin at multiples of a cache line. */
#define N_LINE 16

static const wfi_instruction *member(const wfi_executor *e, int32_t first, int32_t m) {
    return &e->p->instructions[e->p->order[first + m]];
}

static wf_status do_nothing(void *self, void *argument) {
    (void)self, (void)argument;
    return WF_OK;
}

/* Work only for the sake of its place: what follows it follows all that came before. */
static const wfi_work place = {do_nothing, NULL};

/* ---- send and receive ---- */

static const wfi_instruction *send_of(const wfi_executor *e, int32_t receive) {
    int32_t k = e->first[receive];
    return member(e, k, member(e, k, 0)->kind == WFI_SEND ? 0 : 1);
}

static wf_status copy_received(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    const wfi_instruction *receive = &e->p->instructions[i], *send = send_of(e, i);
    wfi_executor_delay(e, i);
    wfi_executor_begin(e, i);
    size_t bytes = send->references[0].bytes;
    void *to = wfi_executor_touch(e, &receive->references[0], bytes);
    memcpy(to, wfi_executor_touch(e, &send->references[0], bytes), bytes);
    wfi_executor_end(e, i);
    return WF_OK;
}

static wf_status touch_received(const wfi_executor *e, int32_t i) {
    const wfi_reference *from = &send_of(e, i)->references[0];
    const wfi_reference *to = &e->p->instructions[i].references[0];
    WF_TRY(wfi_release_touch(e->release, from, 0, from->bytes, WFI_READ));
    return wfi_release_touch(e->release, to, 0, from->bytes, WFI_WRITE);
}

static wf_status exchange_pair(wfi_executor *e, int32_t at) {
    static const wfi_work copy = {copy_received, touch_received};
    int32_t a = e->p->order[at], b = e->p->order[at + 1];
    bool sends = e->p->instructions[a].kind == WFI_SEND;
    int32_t send = sends ? a : b, receive = sends ? b : a;
    WF_TRY(wfi_issue_depends(e, receive, receive));
    WF_TRY(wfi_issue_depends(e, receive, send));
    WF_TRY(wfi_issue_wait(e, receive, wfi_issue_event(e, send))); /* earlier sends go first */
    WF_TRY(wfi_issue(e, receive, &copy));
    e->done[receive] = wfi_issue_event(e, receive);
    /* The send is a task of its own stream, too: what comes later there, to whatever
     * rank, may count on it and on all that it waited for. */
    WF_TRY(wfi_issue_wait(e, send, e->done[receive]));
    WF_TRY(wfi_issue(e, send, &place));
    e->done[send] = wfi_issue_event(e, send);
    return WF_OK;
}

/* ---- collectives ---- */

/* Sums n elements of `count` arrays over the tree of lanes.h into `out`. */
static void sum_tree(const float *const *in, int32_t count, int64_t n, float *out) {
    if (count == 1) {
        memcpy(out, in[0], (size_t)n * sizeof *out);
        return;
    }
    float right[N_AT_ONCE];
    int32_t left = (int32_t)wfi_lane_split(count);
    sum_tree(in, left, n, out);
    sum_tree(in + left, count - left, n, right);
    for (int64_t i = 0; i < n; i++) out[i] += right[i];
}

static void slice_of(int64_t n, int32_t count, int32_t m, int64_t *begin_out, int64_t *end_out) {
    int64_t n_lines = (n + N_LINE - 1) / N_LINE;
    *begin_out = wfi_min_i64(n_lines * m / count * N_LINE, n);
    *end_out = wfi_min_i64(n_lines * (m + 1) / count * N_LINE, n);
}

/* The gradients of all members, by replica. */
static int32_t gather_gradients(const wfi_executor *e, int32_t i, float **gradient,
                                int64_t *n_out) {
    int32_t count = e->n_group[i];
    for (int32_t m = 0; m < count; m++) {
        const wfi_instruction *peer = member(e, e->first[i], m);
        gradient[e->p->ranks[peer->rank].replica] = wfi_executor_at(e, &peer->references[0]);
    }
    *n_out = (int64_t)(e->p->instructions[i].references[0].bytes / sizeof(float));
    return count;
}

/* First half: the rank's own slice becomes the sum. Nobody else reads that slice. */
static wf_status reduce_slice(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    float *gradient[WFI_MAX_RANKS];
    const float *part[WFI_MAX_RANKS];
    int64_t n, begin, end;
    wfi_executor_delay(e, i);
    wfi_executor_begin(e, i);
    const wfi_instruction *now = &e->p->instructions[i];
    wfi_executor_touch(e, &now->references[0], now->references[0].bytes);
    int32_t count = gather_gradients(e, i, gradient, &n), own = e->p->ranks[now->rank].replica;
    slice_of(n, count, own, &begin, &end);
    for (int64_t k = begin; k < end; k += N_AT_ONCE) {
        float sum[N_AT_ONCE];
        int64_t size = wfi_min_i64(N_AT_ONCE, end - k);
        for (int32_t m = 0; m < count; m++) part[m] = gradient[m] + k;
        sum_tree(part, count, size, sum);
        memcpy(gradient[own] + k, sum, (size_t)size * sizeof *sum);
    }
    return WF_OK;
}

static wf_status touch_reduced(const wfi_executor *e, int32_t i) {
    const wfi_instruction *now = &e->p->instructions[i];
    int32_t count = e->n_group[i];
    int64_t n = (int64_t)(now->references[0].bytes / sizeof(float)), begin, end;
    slice_of(n, count, e->p->ranks[now->rank].replica, &begin, &end);
    size_t offset = (size_t)begin * sizeof(float), bytes = (size_t)(end - begin) * sizeof(float);
    for (int32_t m = 0; m < count; m++) {
        const wfi_reference *r = &member(e, e->first[i], m)->references[0];
        WF_TRY(wfi_release_touch(e->release, r, offset, bytes, WFI_READ));
    }
    return wfi_release_touch(e->release, &now->references[0], offset, bytes, WFI_WRITE);
}

/* Second half: the other slices come from their owners. */
static wf_status collect_slices(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    float *gradient[WFI_MAX_RANKS];
    int64_t n, begin, end;
    int32_t count = gather_gradients(e, i, gradient, &n);
    int32_t own = e->p->ranks[e->p->instructions[i].rank].replica;
    for (int32_t m = 0; m < count; m++) {
        slice_of(n, count, m, &begin, &end);
        if (m != own)
            memcpy(gradient[own] + begin, gradient[m] + begin,
                   (size_t)(end - begin) * sizeof(float));
    }
    wfi_executor_end(e, i);
    return WF_OK;
}

static wf_status touch_collected(const wfi_executor *e, int32_t i) {
    const wfi_instruction *now = &e->p->instructions[i];
    int32_t count = e->n_group[i];
    int64_t n = (int64_t)(now->references[0].bytes / sizeof(float)), begin, end;
    for (int32_t m = 0; m < count; m++) {
        const wfi_instruction *peer = member(e, e->first[i], m);
        if (peer == now) continue;
        slice_of(n, count, e->p->ranks[peer->rank].replica, &begin, &end);
        size_t offset = (size_t)begin * sizeof(float);
        size_t bytes = (size_t)(end - begin) * sizeof(float);
        WF_TRY(wfi_release_touch(e->release, &peer->references[0], offset, bytes, WFI_READ));
        WF_TRY(wfi_release_touch(e->release, &now->references[0], offset, bytes, WFI_WRITE));
    }
    return WF_OK;
}

/* Every block that this rank lacks comes from the one that has it. */
static wf_status gather_blocks(void *self, void *argument) {
    const wfi_executor *e = self;
    int32_t i = (int32_t)(intptr_t)argument;
    const wfi_instruction *now = &e->p->instructions[i];
    wfi_executor_delay(e, i);
    wfi_executor_begin(e, i);
    for (int32_t k = 0; k < now->n_references; k++)
        for (int32_t m = 0; m < e->n_group[i]; m++) {
            const wfi_reference *from = &member(e, e->first[i], m)->references[k];
            if (now->references[k].access != WFI_WRITE || !(from->access & WFI_READ)) continue;
            memcpy(wfi_executor_touch(e, &now->references[k], from->bytes),
                   wfi_executor_touch(e, from, from->bytes), from->bytes);
        }
    wfi_executor_end(e, i);
    return WF_OK;
}

static wf_status touch_gathered(const wfi_executor *e, int32_t i) {
    const wfi_instruction *now = &e->p->instructions[i];
    for (int32_t k = 0; k < now->n_references; k++)
        for (int32_t m = 0; m < e->n_group[i]; m++) {
            const wfi_reference *from = &member(e, e->first[i], m)->references[k];
            if (now->references[k].access != WFI_WRITE || !(from->access & WFI_READ)) continue;
            WF_TRY(wfi_release_touch(e->release, from, 0, from->bytes, WFI_READ));
            WF_TRY(wfi_release_touch(e->release, &now->references[k], 0, from->bytes, WFI_WRITE));
        }
    return WF_OK;
}

/* Each member does `work` after every member has come this far. */
static wf_status issue_together(wfi_executor *e, int32_t at, int32_t n, const wfi_work *work) {
    wfi_event here[WFI_MAX_RANKS];
    for (int32_t m = 0; m < n; m++) here[m] = wfi_issue_event(e, e->p->order[at + m]);
    for (int32_t m = 0; m < n; m++) {
        int32_t i = e->p->order[at + m];
        for (int32_t k = 0; k < n; k++)
            if (k != m) WF_TRY(wfi_issue_wait(e, i, here[k]));
        WF_TRY(wfi_issue(e, i, work));
    }
    return WF_OK;
}

static wf_status exchange_all(wfi_executor *e, int32_t at) {
    static const wfi_work reduce = {reduce_slice, touch_reduced};
    static const wfi_work collect = {collect_slices, touch_collected};
    static const wfi_work gather = {gather_blocks, touch_gathered};
    int32_t i = e->p->order[at], n = e->n_group[i];
    for (int32_t m = 0; m < n; m++) {
        int32_t k = e->p->order[at + m];
        WF_TRY(wfi_issue_depends(e, k, k));
        WF_TRY(wfi_issue(e, k, &place)); /* "I am here" */
    }
    if (e->p->instructions[i].kind == WFI_ALL_REDUCE) {
        WF_TRY(issue_together(e, at, n, &reduce));
        WF_TRY(issue_together(e, at, n, &collect));
    } else {
        WF_TRY(issue_together(e, at, n, &gather));
    }
    /* Nobody goes on while another may still read its memory. */
    WF_TRY(issue_together(e, at, n, &place));
    for (int32_t m = 0; m < n; m++) {
        int32_t k = e->p->order[at + m];
        e->done[k] = wfi_issue_event(e, k);
    }
    return WF_OK;
}

wf_status wfi_executor_exchange(wfi_executor *e, int32_t at) {
    bool is_pair = e->p->instructions[e->p->order[at]].stream != WFI_STREAM_REDUCE;
    return is_pair ? exchange_pair(e, at) : exchange_all(e, at);
}
