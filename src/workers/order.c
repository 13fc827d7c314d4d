/* Server 0's order of pushes: the order of arrival under the bound of staleness, or the order of a
 * record. A ticket is a place in it. */
#include "workers/bound.h"
#include "workers/run.h"

#include <math.h>
#include <string.h>

static int64_t pushes_of_a_step(const wf_workers *w) {
    return w->n_workers - w->recipe.n_backup;
}

/* Returns the number of updates so far, including granted ones. */
static int64_t version_now(const wf_workers *w) {
    const wfi_order *o = &w->order;
    return o->first_version +
           (wfi_workers_sums(w) ? o->n_granted / pushes_of_a_step(w) : o->n_granted);
}

wf_status wfi_order_create(wf_workers *w) {
    wfi_order *o = &w->order;
    size_t n_workers = (size_t)w->n_workers, n_micro = (size_t)w->vector.n_micro;
    o->version = wfi_pool_array(&w->pool, n_workers, sizeof *o->version, "workers");
    o->readers = wfi_pool_array(&w->pool, n_workers, sizeof *o->readers, "workers");
    o->next_batch = wfi_pool_array(&w->pool, n_workers, sizeof *o->next_batch, "workers");
    o->is_in = wfi_pool_array(&w->pool, n_workers, sizeof *o->is_in, "workers");
    o->records = wfi_pool_array(&w->pool, n_workers * n_micro, 2 * sizeof *o->records, "workers");
    return wfi_pool_status(&w->pool);
}

void wfi_order_begin(wf_workers *w, int64_t n_steps, bool starts) {
    wfi_order *o = &w->order;
    o->first_version = wfi_workers_sums(w) ? w->n_steps : w->n_steps * w->n_workers;
    o->n_granted = o->n_started = o->n_tickets = 0;
    o->n_wanted = n_steps * pushes_of_a_step(w);
    o->stop_reason = 0;
    o->n_readers = 0;
    o->n_begun = starts ? 0 : w->n_workers;
}

/* ---- parts of batches ---- */

/* Dropped pushes have changed nothing, so a replay leaves them out. */
const wfi_push *wfi_order_find(const wf_workers *w, int worker, size_t from, int64_t n_pushes) {
    const wfi_record *r = &w->record;
    for (; from < r->n_pushes && n_pushes > 0; from++) {
        const wfi_push *push = &r->pushes[from];
        if (push->is_dropped) continue;
        if (push->worker == worker || worker < 0) return push;
        n_pushes--;
    }
    return NULL;
}

/* Returns whether the worker computes another part in this run, from its note's version. */
static bool starts_another(wf_workers *w, const wfi_note *note) {
    wfi_order *o = &w->order;
    if (w->replays)
        return wfi_order_find(w, note->worker, o->replayed, o->n_wanted - o->n_granted) != NULL;
    if (wfi_workers_sums(w))
        return note->version < o->first_version + o->n_wanted / pushes_of_a_step(w);
    if (o->n_started >= o->n_wanted) return false;
    o->n_started++;
    return true;
}

/* Returns the minimum number of pushes of the run: those of the parts that workers have begun or
 * will begin. With staleness 0, workers with a push in the current step go on with the next step.
 */
static int64_t pushes_begun(const wf_workers *w) {
    const wfi_order *o = &w->order;
    int64_t n = pushes_of_a_step(w);
    if (!wfi_workers_sums(w)) return wfi_max_i64(o->n_started, 1);
    return o->n_granted + (o->n_granted % n ? n : 1);
}

/* The run ends after the parts that workers have begun, and the rest of their step. */
static void end_early(wf_workers *w) {
    wfi_order *o = &w->order;
    int64_t n = pushes_of_a_step(w);
    o->n_wanted = wfi_min_i64(o->n_wanted, (pushes_begun(w) + n - 1) / n * n);
}

/* ---- the bound ---- */

/* Returns whether all other gradients can still be applied in time after this one. */
static bool is_in_time(const wf_workers *w, int32_t worker) {
    const wfi_order *o = &w->order;
    int64_t bound = w->recipe.staleness * w->n_workers;
    int32_t last = wfi_bound_last(o->readers, o->n_readers, o->version, version_now(w), bound);
    for (int32_t k = 0; k <= last; k++)
        if (o->readers[k] == worker) return true;
    return false;
}

/* Notes that the worker computes from its version, or computes no further part. */
static void note_reader(wf_workers *w, const wfi_note *note) {
    wfi_order *o = &w->order;
    int32_t n = 0;
    for (int32_t k = 0; k < o->n_readers; k++)
        if (o->readers[k] != note->worker) o->readers[n++] = o->readers[k];
    o->version[note->worker] = note->version;
    if (!note->ends) o->readers[n++] = note->worker;
    o->n_readers = n;
}

/* ---- tickets ---- */

static wf_status count_staleness(wf_workers *w, int64_t steps) {
    while (w->n_staleness <= (size_t)steps) {
        WF_TRY(WFI_GROW(w->ctx, w->staleness, w->n_staleness, w->staleness_capacity, "staleness"));
        w->staleness[w->n_staleness++] = 0;
    }
    w->staleness[steps]++;
    return WF_OK;
}

static void add_result(wf_workers *w, const wfi_note *note, const double *records) {
    wf_step_result *r = &w->order.results[(w->order.n_granted - 1) / pushes_of_a_step(w)];
    if (w->recipe.clip_norm > 0) r->gradient_norm = sqrt(note->squares);
    for (int64_t m = 0; m < w->vector.n_micro; m++) r->loss += records[2 * m];
    r->n_rows += note->n_rows;
    r->n_hits += note->n_hits;
    r->lr = note->lr;
}

/* The sum of a synchronous step is made in the order of microbatches. */
static void add_results_of_step(wf_workers *w, double lr) {
    wfi_order *o = &w->order;
    wf_step_result *r = &o->results[(o->n_granted - 1) / pushes_of_a_step(w)];
    size_t n = 2 * (size_t)w->vector.n_micro;
    for (int k = 0; k < w->n_workers; k++) {
        for (size_t m = 0; m < n && o->is_in[k]; m += 2) r->loss += o->records[(size_t)k * n + m];
        o->is_in[k] = false;
    }
    r->lr = lr;
}

static void finish_step(wf_workers *w, wfi_note *note) {
    wfi_order *o = &w->order;
    int64_t n = pushes_of_a_step(w);
    if (o->n_granted % n == 0) {
        wf_step_result *r = &o->results[o->n_granted / n - 1];
        r->loss = r->n_rows ? r->loss / (double)r->n_rows : 0;
    }
    note->n_done = o->n_granted / n;
    note->loss = note->n_done ? o->results[note->n_done - 1].loss : 0;
}

static wf_status grant_sum(wf_workers *w, wfi_note *note, const double *records) {
    wfi_order *o = &w->order;
    size_t n = 2 * (size_t)w->vector.n_micro;
    o->n_granted++;
    note->step = note->version;
    note->lr = wf_recipe_lr(&w->recipe, note->step);
    note->is_last = o->n_granted % pushes_of_a_step(w) == 0;
    o->is_in[note->worker] = true;
    memcpy(o->records + (size_t)note->worker * n, records, n * sizeof *records);
    wf_step_result *r = &o->results[(o->n_granted - 1) / pushes_of_a_step(w)];
    r->n_rows += note->n_rows;
    r->n_hits += note->n_hits;
    if (note->is_last) add_results_of_step(w, note->lr);
    note->version++;
    return count_staleness(w, 0);
}

static wf_status grant_update(wf_workers *w, wfi_note *note, const double *records) {
    int64_t now = version_now(w), n = w->n_workers, steps = (now - note->version + n - 1) / n;
    w->order.n_granted++;
    note->step = now;
    note->lr = wf_recipe_lr(&w->recipe, now / n) / (double)n;
    if (w->recipe.staleness_lr && steps > 1) note->lr /= (double)steps;
    note->is_last = 1;
    add_result(w, note, records);
    note->version = now + 1;
    return count_staleness(w, steps);
}

/* Whether the push is the next one, and whether it is in time for its step. */
static wf_status is_next(const wf_workers *w, const wfi_note *note, bool *is_out) {
    const wfi_order *o = &w->order;
    *is_out = o->n_begun == w->n_workers;
    if (!*is_out) return WF_OK;
    if (!w->replays) {
        bool is_bound = w->recipe.staleness && w->recipe.staleness < WF_STALENESS_UNBOUNDED;
        *is_out = !is_bound || is_in_time(w, note->worker);
        return WF_OK;
    }
    const wfi_push *next = wfi_order_find(w, -1, o->replayed, 1);
    *is_out = next && next->worker == note->worker;
    if (!*is_out || (next->batch == note->batch && next->version == note->version)) return WF_OK;
    return wfi_fail(w->ctx, WF_CORRUPT,
                    "%s: push %zu is of batch %lld and version %lld, and the run is at batch %lld "
                    "and version %lld: it was not recorded by such a run",
                    w->config.replay, (size_t)(next - w->record.pushes), (long long)next->batch,
                    (long long)next->version, (long long)note->batch, (long long)note->version);
}

/* Passes the record's next applied push. Dropped pushes before and after it advance their workers'
 * batches, too, as in the recorded run. */
static void pass_push(wf_workers *w) {
    const wfi_record *r = &w->record;
    size_t at = (size_t)(wfi_order_find(w, -1, w->order.replayed, 1) - r->pushes) + 1;
    while (at < r->n_pushes && r->pushes[at].is_dropped) at++;
    for (; w->order.replayed < at; w->order.replayed++) {
        const wfi_push *push = &r->pushes[w->order.replayed];
        w->order.next_batch[push->worker] = push->batch + 1;
    }
}

static wf_status note_push(wf_workers *w, const wfi_note *note, bool is_dropped) {
    const wfi_push push = {note->worker, is_dropped, note->batch, note->version};
    if (w->replays) pass_push(w);
    if (!w->replays) w->order.next_batch[note->worker] = note->batch + 1;
    return w->records ? wfi_record_add(&w->record, &push) : WF_OK;
}

static wf_status grant_push(wf_workers *w, wfi_note *note, const double *records) {
    bool is_late = wfi_workers_sums(w) && note->version < version_now(w);
    WF_TRY(note_push(w, note, is_late));
    if (is_late) {
        note->ask = WFI_ASK_DROPPED;
        note->version = version_now(w);
        return WF_OK;
    }
    WF_TRY(wfi_workers_sums(w) ? grant_sum(w, note, records) : grant_update(w, note, records));
    finish_step(w, note);
    return WF_OK;
}

wf_status wfi_order_grant(wf_workers *w, wfi_note *note, const double *records, bool *granted_out) {
    wfi_order *o = &w->order;
    *granted_out = note->ask == WFI_ASK_START;
    if (note->stops > o->stop_reason && !w->replays) o->stop_reason = note->stops;
    if (o->stop_reason) end_early(w);
    if (note->ask == WFI_ASK_START) {
        o->n_begun++;
        note->version = version_now(w);
    } else {
        WF_TRY(is_next(w, note, granted_out));
        if (!*granted_out) return WF_OK;
        WF_TRY(grant_push(w, note, records));
    }
    note->number = o->n_tickets++;
    note->ends = !starts_another(w, note);
    note_reader(w, note);
    return WF_OK;
}
