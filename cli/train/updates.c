#include "train/updates.h"

#include "common/output.h"
#include "job/progress.h"
#include "job/report.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Refuses options that need the program of all ranks. */
static exit_status check_choices(const cli *c) {
    const options *o = &c->o;
    bool is_auto = o->plan && !strcmp(o->plan, "auto");
    const char *refused = is_auto                           ? "--plan auto"
                          : o->recipe.n_micro == MICRO_AUTO ? "--micro auto"
                          : option_is_given(o, OPT_costs) && o->costs == COSTS_MEASURED
                              ? "--costs measured"
                              : NULL;
    if (!refused || !updates_need_workers(o)) return EXIT_DONE;
    return complain(EXIT_USAGE,
                    "%s needs --update sync; with workers, give --plan dp=N and a number of "
                    "microbatches",
                    refused);
}

exit_status updates_check(cli *c) {
    options *o = &c->o;
    int n_workers;
    TRY(check_choices(c));
    if (o->replay && o->recipe.update != WF_UPDATE_ASYNC)
        return complain(EXIT_USAGE,
                        "--replay has no effect here: it is an option of --update async");
    if (!o->replay || o->recipe.n_workers) return EXIT_DONE;
    wf_status status = wf_workers_recorded(c->ctx, o->replay, &n_workers);
    if (status == WF_OK) o->recipe.n_workers = n_workers;
    return complain_of(c, status);
}

exit_status updates_check_record(const cli *c) {
    return c->is_root && c->o.record ? output_check_file("the record", c->o.record) : EXIT_DONE;
}

void updates_warn(const updates *w, int64_t n_steps) {
    int64_t each = w->j->c->o.recipe.local_steps;
    bool is_local = w->j->c->o.recipe.update == WF_UPDATE_LOCAL;
    if (!is_local || n_steps % each == 0 || !w->j->c->is_root) return;
    complain(EXIT_DONE,
             "the run ended after step %lld, in a round of --local-steps %lld, with an average of "
             "its own: a run without that end has other numbers",
             (long long)n_steps, (long long)each);
}

/* ---- data ---- */

static wf_status open_loader(updates *w, int worker, int64_t batch) {
    const job *j = w->j;
    wf_loader_destroy(w->loaders[worker]);
    w->loaders[worker] = NULL;
    w->next[worker] = batch;
    return job_part_loader(j, batch / j->n_epoch, batch % j->n_epoch * j->c->o.recipe.batch, w->n,
                           worker, &w->loaders[worker]);
}

static wf_status read_part(void *self, int worker, int64_t batch, wf_worker_part *part_out) {
    updates *w = self;
    const wf_batch *read;
    if (!w->loaders[worker] || w->next[worker] != batch) TRY(open_loader(w, worker, batch));
    TRY(wf_loader_next(w->loaders[worker], &read));
    w->next[worker]++;
    part_out->n_feeds = job_feeds(read, part_out->feeds);
    part_out->n_samples = read->n_samples;
    part_out->n_batch = read->n_all;
    return WF_OK;
}

/* ---- the workers ---- */

static int find_stop(void *self) {
    (void)self;
    return (int)interrupt_status();
}

/* The first n steps of the stretch are done. */
static void time_steps(updates *w, int64_t n) {
    if (n <= w->n_timed || n > w->n_stretch) return;
    double now = now_seconds(), each = (now - w->timed_s) * 1e3 / (double)(n - w->n_timed);
    while (w->n_timed < n) w->ms[w->n_timed++] = each;
    w->timed_s = now;
}

static void show(void *self, int64_t n_steps, double loss) {
    updates *w = self;
    const job *j = w->j;
    time_steps(w, n_steps - w->first);
    progress_step(w->bar, n_steps, (n_steps - 1) / j->n_epoch, loss, NAN,
                  job_items(j, j->c->o.recipe.batch));
}

/* In words: a replay has to be of the same model, data and recipe. */
static char *identify(const job *j) {
    json_t *recipe = options_recipe(&j->c->o);
    json_object_del(recipe, option_about(OPT_data).key);
    json_object_set_new(recipe, "data_hash", json_string(j->data_hash));
    char *text = json_dumps(recipe, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(recipe);
    return text;
}

static wf_status create(updates *w, char *identity) {
    const job *j = w->j;
    const options *o = &j->c->o;
    wf_workers_config config = WF_WORKERS_CONFIG_INIT;
    wf_trainer_config trainer = job_trainer_config(j);
    trainer.no_init = 0; /* workers take the weights over by themselves */
    config.trainer = &trainer;
    config.read = read_part;
    config.progress = show;
    config.stops = find_stop;
    config.self = w;
    config.record = o->record;
    config.replay = o->replay;
    config.identity = identity;
    w->n = (int)o->recipe.n_workers;
    w->loaders = calloc((size_t)w->n, sizeof(wf_loader *));
    w->next = calloc((size_t)w->n, sizeof *w->next);
    if (!w->loaders || !w->next || !identity)
        return wf_context_fail(j->c->ctx, WF_NO_MEMORY, "no memory left");
    return wf_workers_create(j->c->ctx, j->model, &o->recipe, j->plan, &config, &w->workers);
}

wf_status updates_open(const job *j, progress *bar, updates *updates_out) {
    *updates_out = (updates){.j = j, .bar = bar};
    bool names = j->c->o.record || j->c->o.replay;
    wf_status status = names ? job_hash_data((job *)j) : WF_OK;
    char *identity = names ? identify(j) : strdup("");
    if (status == WF_OK) status = create(updates_out, identity);
    free(identity);
    return status;
}

void updates_close(updates *w) {
    for (int k = 0; k < w->n && w->loaders; k++) wf_loader_destroy(w->loaders[k]);
    wf_workers_destroy(w->workers);
    free(w->loaders);
    free(w->next);
    *w = (struct updates){0};
}

/* ---- stretches ---- */

static int64_t up_to(int64_t n_done, int64_t every) {
    return every - n_done % every;
}

/* Results and the record's pushes of more would take much memory at once. */
#define MOST_STEPS 65536

int64_t updates_stretch(const job *j, int64_t n_done) {
    const options *o = &j->c->o;
    int64_t n = j->n_steps - n_done;
    if (n > MOST_STEPS) n = MOST_STEPS;
    int64_t tests = o->test_every ? o->test_every : j->n_epoch;
    int64_t saves = o->save_every ? o->save_every : j->n_epoch;
    if (j->about.n_test && up_to(n_done, tests) < n) n = up_to(n_done, tests);
    if (o->out && up_to(n_done, saves) < n) n = up_to(n_done, saves);
    if (o->recipe.update != WF_UPDATE_LOCAL || n_done + n >= j->n_steps) return n;
    /* Between two averages there are no common parameters. */
    int64_t each = o->recipe.local_steps, end = (n_done + n + each - 1) / each * each;
    return end < j->n_steps ? end - n_done : j->n_steps - n_done;
}

wf_status updates_run(updates *w, int64_t first, int64_t n, wf_step_result *results, double *ms,
                      int64_t *n_ran_out) {
    w->ms = ms;
    w->first = first;
    w->n_stretch = n;
    w->n_timed = 0;
    w->timed_s = now_seconds();
    wf_status status = wf_workers_run(w->workers, n, results, n_ran_out);
    time_steps(w, *n_ran_out);
    return status;
}

/* ---- files ---- */

/* The file and the state are of one step: a run that stops between the two finds the older pair. */
static void path_of(const updates *w, int64_t step, char path[4096]) {
    snprintf(path, 4096, "%.4000s/workers-%lld.safetensors", w->j->c->o.out, (long long)step);
}

wf_status updates_save(const updates *w, int64_t n_steps) {
    char path[4096];
    path_of(w, n_steps, path);
    return wf_workers_save(w->workers, path);
}

void updates_forget(const updates *w, int64_t step, int64_t other) {
    DIR *folder = w->j->c->is_root ? opendir(w->j->c->o.out) : NULL;
    for (struct dirent *f; folder && (f = readdir(folder));) {
        long long found;
        int end = 0;
        (void)sscanf(f->d_name, "workers-%lld.safetensors%n", &found, &end);
        if (end && !f->d_name[end] && found != step && found != other)
            unlinkat(dirfd(folder), f->d_name, 0);
    }
    if (folder) closedir(folder);
}

wf_status updates_load(const updates *w, int64_t n_steps) {
    char path[4096];
    path_of(w, n_steps, path);
    return wf_workers_load(w->workers, path);
}

/* ---- reports ---- */

static json_t *staleness_json(const updates *w) {
    json_t *all = json_array();
    for (int64_t k = 0; wf_workers_staleness(w->workers, k) >= 0; k++)
        json_array_append_new(all, json_integer((json_int_t)wf_workers_staleness(w->workers, k)));
    return all;
}

wf_status updates_report(const updates *w, json_t *report) {
    static const char *const replaced[] = {"peak_bytes", "host_peak_bytes", "disk_peak_bytes"};
    json_t *sent = json_array(), *received = json_array();
    for (int k = 0; k < 3 && report; k++) json_object_del(report, replaced[k]);
    for (int r = 0; r < wf_plan_n_ranks(w->j->plan); r++) {
        wf_workers_rank of;
        TRY(wf_workers_rank_get(w->workers, r, &of));
        if (report) report_add_peaks(report, &of.memory, 3);
        json_array_append_new(sent, json_integer((json_int_t)of.sent_bytes));
        json_array_append_new(received, json_integer((json_int_t)of.received_bytes));
    }
    json_object_set_new(report, "sent_bytes", sent);
    json_object_set_new(report, "received_bytes", received);
    if (!report) return WF_OK;
    json_object_set_new(report, "plan", json_string(wf_plan_text(w->j->plan)));
    if (w->j->c->o.recipe.update == WF_UPDATE_ASYNC)
        json_object_set_new(report, "staleness", staleness_json(w));
    if (w->j->c->o.record) json_object_set_new(report, "record", json_string(w->j->c->o.record));
    return WF_OK;
}

void updates_say(const updates *w) {
    int64_t n = 0, old = 0, most = 0;
    for (int64_t k = 0; wf_workers_staleness(w->workers, k) >= 0; k++) {
        n += wf_workers_staleness(w->workers, k);
        old += k * wf_workers_staleness(w->workers, k);
        if (wf_workers_staleness(w->workers, k)) most = k;
    }
    if (n)
        say(w->j->c, "%-8sgradients were %.2f steps old on average, %lld at most\n", "stale",
            (double)old / (double)n, (long long)most);
}
