/* One rank's workers in an asynchronous run: each pulls, computes and pushes. The rank computes for
 * one of them at a time, and meanwhile the messages of the others are under way. */
#include "workers/run.h"

#include "api/share.h"

#include <string.h>

/* ---- messages ---- */

/* The vector's part in the message to server k. */
static float *part_at(const wf_workers *w, const wfi_one_worker *one, int k) {
    char *message = one->pushing[k].buffer;
    return (float *)(void *)(message + wfi_message_head(w, k));
}

static wf_status ask(wf_workers *w, wfi_one_worker *one, wfi_ask what) {
    one->note.worker = one->number;
    one->note.ask = (int32_t)what;
    one->note.version = one->version;
    one->note.stops = wfi_max_i64(one->stops, wfi_workers_stops(w));
    memcpy(one->asking.buffer, &one->note, sizeof one->note);
    one->stage = WFI_WORKER_ASKS;
    WF_TRY(wfi_channel_send(&one->asking, WFI_MESSAGE_ASKS, wfi_note_counts(&one->note)));
    return wfi_channel_expect(&one->asking);
}

/* With the ticket, the gradient goes to all servers at once. */
static wf_status push(wf_workers *w, wfi_one_worker *one) {
    memcpy(&one->note, one->asking.buffer, sizeof one->note);
    one->sent_ns = wfi_workers_now(w);
    for (int k = 0; k < w->n_servers; k++) {
        memcpy(one->pushing[k].buffer, &one->note, sizeof one->note);
        one->has_answer[k] = false;
        WF_TRY(wfi_channel_send(&one->pushing[k], WFI_MESSAGE_ASKS, wfi_note_counts(&one->note)));
    }
    for (int k = 0; k < w->n_servers; k++) WF_TRY(wfi_channel_expect(&one->pushing[k]));
    one->stage = WFI_WORKER_PUSHES;
    return WF_OK;
}

static wf_status pull(wf_workers *w, wfi_one_worker *one) {
    bool has_all = true;
    for (int k = 0; k < w->n_servers; k++) {
        if (!one->has_answer[k])
            WF_TRY(wfi_channel_has(&one->pushing[k], WFI_MESSAGE_ANSWERS, &one->has_answer[k]));
        has_all &= one->has_answer[k];
    }
    if (!has_all) return WF_OK;
    wfi_workers_note(w, wfi_workers_rank_of(w, one->number), one->sent_ns, -1, WF_SPAN_TRANSFER,
                     WFI_STREAM_SEND);
    for (int k = 0; k < w->n_servers; k++) {
        const wfi_note *answer = one->pushing[k].buffer;
        one->version = answer->version;
        one->stops = wfi_max_i64(one->stops, answer->stops);
    }
    one->stage = one->note.ends ? WFI_WORKER_ENDED : WFI_WORKER_READY;
    return WF_OK;
}

/* ---- a gradient ---- */

static wf_status move_vector(const wfi_worker_rank *rank, const wfi_one_worker *one, bool reads) {
    const wf_workers *w = rank->all;
    for (int k = 0; k < w->n_servers; k++) {
        size_t first = wfi_vector_cut(&w->vector, w->n_servers, k),
               end = wfi_vector_cut(&w->vector, w->n_servers, k + 1);
        float *part = part_at(w, one, k);
        WF_TRY(wfi_image_move(rank->trainer, &w->vector,
                              reads ? WFI_IMAGE_GRADIENTS : WFI_IMAGE_PARAMETERS, 0, first, end,
                              part, reads));
    }
    return WF_OK;
}

static double squares_of(const wf_workers *w, const wfi_one_worker *one) {
    double total = 0;
    for (int k = 0; k < w->n_servers; k++) {
        const float *part = part_at(w, one, k);
        size_t n = wfi_vector_cut(&w->vector, w->n_servers, k + 1) -
                   wfi_vector_cut(&w->vector, w->n_servers, k);
        for (size_t i = 0; i < n; i++) total += (double)part[i] * (double)part[i];
    }
    return total;
}

static int64_t rows_of(const wf_workers *w, int64_t n_samples) {
    const wf_graph *g = w->vector.program->graph;
    return n_samples * (g->n_rows / g->batch);
}

/* No worker knows the others' labels, so the reader counts those that are ignored. */
static wf_status check_rows(const wf_workers *w, const wf_worker_part *part, int64_t n_rows) {
    int64_t n_ignored = rows_of(w, part->n_samples) - n_rows;
    if (!wfi_workers_sums(w) || n_ignored <= part->n_ignored) return WF_OK;
    return wfi_fail(w->ctx, WF_INVALID_ARG,
                    "workers: a part has %lld ignored labels, and its batch %lld; with staleness "
                    "0, config.read has to count those of the whole batch in part.n_ignored",
                    (long long)n_ignored, (long long)part->n_ignored);
}

static wf_status compute(wfi_worker_rank *rank, wfi_one_worker *one) {
    wf_workers *w = rank->all;
    wf_worker_part part = {0};
    wf_step_result result;
    int64_t first, ignored, n_rows = 0, begin_ns = wfi_workers_now(w);
    WF_TRY(w->config.read(w->config.self, one->number, one->batch, &part));
    WF_TRY(move_vector(rank, one, false));
    wf_recipe_part(&w->recipe, part.n_batch, w->n_workers, one->number, &first, &ignored);
    if (wfi_workers_sums(w)) n_rows = rows_of(w, part.n_batch) - part.n_ignored;
    wfi_share share = {.step = one->batch, .first_sample = first, .n_rows = n_rows};
    wfi_trainer_share(rank->trainer, &share);
    wfi_trainer_count_to(rank->trainer, one->batch); /* errors name the step */
    WF_TRY(wf_trainer_gradients(rank->trainer, part.feeds, part.n_feeds, part.n_samples, &result));
    WF_TRY(check_rows(w, &part, result.n_rows));
    WF_TRY(move_vector(rank, one, true));
    float *stats = (float *)(void *)((char *)one->pushing[0].buffer + sizeof(wfi_note));
    if (w->vector.n_stats) WF_TRY(wfi_image_read_stats(rank->trainer, &w->vector, stats));
    double *records = (double *)(void *)((char *)one->asking.buffer + sizeof(wfi_note));
    wfi_trainer_records(rank->trainer, records);
    one->note = (wfi_note){.batch = one->batch++,
                           .n_rows = result.n_rows,
                           .n_hits = result.n_hits,
                           .squares = w->recipe.clip_norm > 0 ? squares_of(w, one) : 0};
    wfi_workers_note(w, rank->rank, begin_ns, one->version, WF_SPAN_BACKWARD_WEIGHT,
                     WFI_STREAM_COMPUTE);
    return ask(w, one, WFI_ASK_PUSH);
}

/* ---- the loop ---- */

static void show(wf_workers *w, const wfi_one_worker *one) {
    int64_t n = one->note.n_done;
    if (one->number || n <= w->shown) return;
    w->shown = n;
    if (w->config.progress) w->config.progress(w->config.self, w->n_steps + n, one->note.loss);
}

/* Moves the worker's messages on. */
static wf_status advance(wf_workers *w, wfi_one_worker *one, bool *moved_out) {
    wfi_worker_stage before = one->stage;
    bool has_ticket = false;
    if (one->stage == WFI_WORKER_ASKS)
        WF_TRY(wfi_channel_has(&one->asking, WFI_MESSAGE_ANSWERS, &has_ticket));
    if (has_ticket) WF_TRY(push(w, one));
    if (has_ticket) show(w, one);
    if (one->stage == WFI_WORKER_PUSHES) WF_TRY(pull(w, one));
    *moved_out |= one->stage != before;
    return WF_OK;
}

static wf_status begin(wfi_worker_rank *rank, bool starts) {
    for (int k = 0; k < rank->n; k++) {
        wfi_one_worker *one = &rank->workers[k];
        one->stops = 0;
        if (starts) WF_TRY(ask(rank->all, one, WFI_ASK_START));
    }
    return WF_OK;
}

wf_status wfi_worker_rank_run(wfi_worker_rank *rank, bool starts) {
    wf_workers *w = rank->all;
    wfi_nap nap = wfi_nap_begin(w);
    WF_TRY(begin(rank, starts));
    for (;;) {
        int n_ended = 0, next = -1;
        bool moved = false;
        for (int k = 0; k < rank->n; k++) {
            wfi_one_worker *one = &rank->workers[k];
            WF_TRY(advance(w, one, &moved));
            n_ended += one->stage == WFI_WORKER_ENDED;
            bool is_older = next < 0 || one->batch < rank->workers[next].batch;
            if (one->stage == WFI_WORKER_READY && is_older) next = k;
        }
        if (n_ended == rank->n) break;
        if (next >= 0)
            WF_TRY(compute(rank, &rank->workers[next]));
        else if (!moved)
            WF_TRY(wfi_nap_take(&nap, "a server"));
        if (moved || next >= 0) nap = wfi_nap_begin(w);
    }
    for (int k = 0; k < rank->n; k++) {
        WF_TRY(wfi_channel_settle(&rank->workers[k].asking));
        for (int s = 0; s < w->n_servers; s++)
            WF_TRY(wfi_channel_settle(&rank->workers[k].pushing[s]));
    }
    return WF_OK;
}
