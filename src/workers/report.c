/* Figures of the workers: memory, traffic, staleness, places. */
#include "workers/run.h"

static void count_channel(const wfi_channel *c, bool is_server, wf_workers_rank *r) {
    uint64_t n_out = is_server ? c->n_answered : c->n_sent,
             n_in = is_server ? c->n_sent : c->n_answered;
    if (c->group) n_in = n_out; /* the other side counts for itself: a message each way */
    r->sent_bytes += n_out * c->bytes;
    r->received_bytes += n_in * c->bytes;
}

static void count_worker(const wf_workers *w, const wfi_one_worker *one, wf_workers_rank *r) {
    count_channel(&one->asking, false, r);
    for (int k = 0; k < w->n_servers && one->pushing; k++)
        count_channel(&one->pushing[k], false, r);
}

static void fill_rank(const wf_workers *w, int rank, wf_workers_rank *r) {
    for (int k = 0; k < w->n_here; k++) {
        if (w->ranks[k].rank != rank) continue;
        r->memory = wf_trainer_memory_of(w->ranks[k].trainer, 0);
        r->memory.planned_peak_bytes =
            wfi_trainer_planned_peak(w->ranks[k].trainer, 0, WFI_SPACE_DEVICE, true);
        for (int i = 0; i < w->ranks[k].n; i++) count_worker(w, &w->ranks[k].workers[i], r);
    }
    for (int k = 0; k < w->n_servers_here; k++) {
        const wfi_server *s = &w->servers[k];
        if (s->rank != rank) continue;
        if (!s->number)
            for (int i = 0; i < w->n_workers; i++) count_channel(s->served[i].asking, true, r);
        for (int i = 0; i < w->n_workers; i++) count_channel(s->served[i].pushing, true, r);
    }
    r->memory.is_measured = 1;
    r->memory.planned_host_peak_bytes += wfi_workers_host_bytes(w, rank);
    r->memory.measured_host_peak_bytes += w->host_bytes[rank];
    if (w->averages.sent_bytes) r->sent_bytes = w->averages.sent_bytes;
    if (w->averages.sent_bytes) r->received_bytes = w->averages.received_bytes;
    r->sent_bytes /= (uint64_t)wfi_max_i64(w->n_run, 1);
    r->received_bytes /= (uint64_t)wfi_max_i64(w->n_run, 1);
}

/* The largest peaks of the parts of a rank's workers. */
static void plan_peaks(const wf_workers *w, int rank, size_t peaks[WFI_N_SPACES]) {
    bool is_whole = !wfi_workers_is_async(w) || !rank;
    for (int k = wfi_workers_first(w, rank); k < wfi_workers_first(w, rank + 1); k++) {
        int64_t ignored, n_samples;
        wf_recipe_part(&w->recipe, w->recipe.batch, w->n_workers, k, &ignored, &n_samples);
        for (int i = 0; i < w->n_planned; i++)
            for (int s = 0; s < WFI_N_SPACES; s++) {
                const wfi_planned *p = &w->planned[i];
                bool is_its = p->is_whole == is_whole && p->n_samples == n_samples;
                if (is_its && p->peaks[s] > peaks[s]) peaks[s] = p->peaks[s];
            }
    }
    for (int s = 0; s < WFI_N_SPACES && !rank; s++)
        if (w->test_peaks[s] > peaks[s]) peaks[s] = w->test_peaks[s];
}

static void plan_rank(const wf_workers *w, int rank, wf_workers_rank *r) {
    size_t peaks[WFI_N_SPACES] = {0};
    if (rank < w->n_ranks) plan_peaks(w, rank, peaks);
    r->memory.planned_peak_bytes = peaks[WFI_SPACE_DEVICE];
    r->memory.planned_host_peak_bytes = peaks[WFI_SPACE_HOST] + wfi_workers_host_bytes(w, rank);
    r->memory.planned_disk_peak_bytes = peaks[WFI_SPACE_DISK];
    r->sent_bytes = r->received_bytes = wfi_workers_sent_bytes(w, rank);
}

wf_status wf_workers_rank_get(wf_workers *w, int rank, wf_workers_rank *rank_out) {
    *rank_out = (wf_workers_rank){0};
    if (rank < 0 || rank >= wf_plan_n_ranks(w->plan)) return WF_OK;
    if (w->config.plan_only) {
        plan_rank(w, rank, rank_out);
        return WF_OK;
    }
    if (wfi_workers_is_here(w, rank)) fill_rank(w, rank, rank_out);
    if (!w->job) return WF_OK;
    return wf_group_broadcast(w->world, rank_out, rank_out,
                              (int64_t)(sizeof *rank_out / sizeof(int32_t)), WF_I32, rank, NULL);
}

int wf_workers_n(const wf_workers *w) {
    return w->n_workers;
}

const wf_recipe *wf_workers_recipe(const wf_workers *w) {
    return &w->recipe;
}

int64_t wf_workers_n_steps(const wf_workers *w) {
    return w->n_steps;
}

int64_t wf_workers_staleness(const wf_workers *w, int64_t steps) {
    return steps >= 0 && (size_t)steps < w->n_staleness ? w->staleness[steps] : -1;
}

void wf_workers_place(const wf_workers *w, int rank, int *first_out, int *n_out, int *server_out) {
    bool works = rank >= 0 && rank < w->n_ranks;
    *first_out = works ? wfi_workers_first(w, rank) : 0;
    *n_out = works ? wfi_workers_first(w, rank + 1) - *first_out : 0;
    *server_out = -1;
    for (int k = 0; k < w->n_servers; k++)
        if (wfi_workers_server_rank(w, k) == rank) *server_out = k;
}

wf_status wf_workers_recorded(wf_context *ctx, const char *record, int *n_workers_out) {
    wfi_record r;
    WF_TRY(wfi_record_read(ctx, record, &r));
    *n_workers_out = r.n_workers;
    wfi_record_release(&r);
    return WF_OK;
}

int64_t wf_workers_batch(const wf_workers *w, int worker) {
    bool is_known = w->order.next_batch && worker >= 0 && worker < w->n_workers;
    return is_known ? w->order.next_batch[worker] : w->n_steps;
}
