/* A job at work: loader, trainer, steps, evaluation, and the first output. */
#include "common/text.h"
#include "common/tuned.h"
#include "job/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_EVAL_STREAMS 10

void job_find_streams(const job *j, int64_t n_streams_out[2]) {
    int64_t batch = j->c->o.recipe.batch, n_eval = batch < N_EVAL_STREAMS ? batch : N_EVAL_STREAMS;
    bool trains = j->c->command != FOR_EVAL;
    n_streams_out[WF_DATA_TRAIN] = j->is_recurrent ? trains ? batch : n_eval : 0;
    n_streams_out[WF_DATA_TEST] = j->is_recurrent ? n_eval : 0;
}

int64_t job_eval_samples(const job *j, wf_data_split split) {
    const wf_recipe *r = &j->c->o.recipe;
    int64_t n_streams[2];
    job_find_streams(j, n_streams);
    if (n_streams[split]) return n_streams[split];
    int64_t n = split == WF_DATA_TEST ? j->about.n_test : j->about.n_train;
    int64_t piece = r->batch / r->n_micro;
    return piece < n ? piece : n;
}

wf_status job_plan_tests(const job *j, wf_program *program) {
    int64_t n_streams[2];
    job_find_streams(j, n_streams);
    return wf_program_plan_tests(program, j->about.n_test, n_streams[WF_DATA_TEST]);
}

/* Which replica the process works for. */
static int own_replica(const job *j) {
    return wf_plan_coordinate(j->plan, "dp", wf_job_rank(j->c->job));
}

/* Whether this process reads its replica's samples only. */
static bool has_parts(const job *j) {
    return j->c->job && wf_plan_dp(j->plan) > 1 && !wf_plan_loads_at_root(j->plan) &&
           wf_plan_has_equal_parts(j->plan);
}

/* Decoding takes the cores that are left. */
static int n_loader_threads(const job *j) {
    int n_here = j->c->job ? wf_job_n_ranks(j->c->job) : 1, n_cores = wf_info_limits().n_cores;
    int n_used = j->c->o.recipe.n_threads * wf_plan_n_ranks(j->plan),
        n = (n_cores - n_used) / n_here;
    int64_t wanted = j->c->o.loader_threads;
    if (wanted) return wanted < 256 ? (int)wanted : 256;
    return n < 1 ? 1 : n < 64 ? n : 64;
}

/* Returns the configuration of a loader of whole batches. */
static wf_loader_config loader_config(const job *j, wf_data_split split, int64_t first_epoch,
                                      int64_t first_sample) {
    const options *o = &j->c->o;
    wf_loader_config config = WF_LOADER_CONFIG_INIT;
    bool trains = split == WF_DATA_TRAIN && j->c->command != FOR_EVAL;
    bool predicts = j->c->command == FOR_PREDICT;
    bool from_files = j->about.kind == WF_DATA_IMAGES && strcmp(o->data, "synthetic") != 0;
    config.split = split;
    config.batch = trains || predicts ? o->recipe.batch : job_eval_samples(j, split);
    config.shuffle = trains && !o->no_shuffle && !j->is_recurrent;
    config.augment = trains && !o->no_augment && from_files;
    config.mixup = trains ? o->mixup : 0;
    config.drop_last = trains && j->drop_last;
    config.n_workers = o->has_pictures ? n_loader_threads(j) : 1;
    config.first_epoch = first_epoch;
    config.first_sample = first_sample;
    return config;
}

wf_status job_loader(const job *j, wf_data_split split, int64_t first_epoch, int64_t first_sample,
                     wf_loader **loader_out) {
    wf_loader_config config = loader_config(j, split, first_epoch, first_sample);
    if (split == WF_DATA_TRAIN && j->c->command != FOR_EVAL && has_parts(j)) {
        config.n_parts = wf_plan_dp(j->plan);
        config.part = own_replica(j);
        config.n_micro = j->c->o.recipe.n_micro;
    }
    return wf_loader_create(j->data, &config, loader_out);
}

wf_status job_part_loader(const job *j, int64_t first_epoch, int64_t first_sample, int n_parts,
                          int part, wf_loader **loader_out) {
    wf_loader_config config = loader_config(j, WF_DATA_TRAIN, first_epoch, first_sample);
    config.n_parts = n_parts;
    config.part = part;
    config.n_micro = j->c->o.recipe.n_micro;
    return wf_loader_create(j->data, &config, loader_out);
}

/* Files say which model they are of. */
wf_status job_describe_trainer(const job *j, wf_trainer *trainer) {
    char *text = about_text(j->c, &j->saved, j->model, j->data);
    if (!text) return wf_context_fail(j->c->ctx, WF_NO_MEMORY, "no memory left");
    const wf_metadata about = {ABOUT_KEY, text};
    wf_status status = wf_trainer_describe(trainer, &about, 1);
    free(text);
    return status;
}

wf_trainer_config job_trainer_config(const job *j) {
    const options *o = &j->c->o;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.devices = o->devices;
    config.job = j->c->job;
    config.own_batch = has_parts(j);
    config.device_memory_bytes = o->device_memory;
    config.shard_bytes = o->shard_size;
    config.host_memory_bytes = o->host_memory;
    config.folder = o->out;
    config.save_async = o->save_async;
    config.keep_undo = o->on_nan == ON_NAN_SKIP;
    config.no_init = o->resume && j->c->command == FOR_TRAIN;
    config.profile = o->profile;
    config.trace = o->trace != NULL;
    config.forward_only = (j->c->command & (FOR_EVAL | FOR_PREDICT)) != 0;
    return config;
}

wf_status job_trainer(const job *j, wf_trainer **trainer_out) {
    const options *o = &j->c->o;
    const wf_trainer_config config = job_trainer_config(j);
    wf_recipe recipe = o->recipe;
    if (j->c->command == FOR_EVAL)
        recipe.batch =
            recipe.n_micro * job_eval_samples(j, j->about.n_test ? WF_DATA_TEST : WF_DATA_TRAIN);
    progress waiting;
    progress_wait(j->c, &waiting);
    wf_status status =
        wf_trainer_create(j->c->ctx, j->model, &recipe, j->plan, &config, trainer_out);
    progress_wait_end(j->c);
    if (status == WF_OK && j->c->is_root) tuned_warn(j->c, wf_trainer_program(*trainer_out));
    if (status == WF_OK && !config.forward_only) status = job_describe_trainer(j, *trainer_out);
    if (status == WF_OK && !config.forward_only)
        job_describe_chosen(j, wf_trainer_program(*trainer_out));
    return status;
}

wf_status job_prepare_eval(const job *j, wf_trainer *trainer, wf_data_split split) {
    int64_t n = split == WF_DATA_TEST ? j->about.n_test : j->about.n_train;
    if (!n) return WF_OK;
    int64_t piece = job_eval_samples(j, split);
    wf_status status = wf_trainer_prepare_eval(trainer, piece);
    if (status == WF_OK && n % piece) status = wf_trainer_prepare_eval(trainer, n % piece);
    return status;
}

exit_status job_complain_of_eval(const job *j, wf_status status, const char *advice) {
    if (status != WF_DOES_NOT_FIT) return complain_of(j->c, status);
    job_say_cap(j->c);
    return complain(EXIT_DOES_NOT_FIT, "%s; %s", wf_context_error(j->c->ctx), advice);
}

#define MOST_FEEDS 5

int job_feeds(const wf_batch *batch, wf_feed *feeds) {
    size_t share_bytes = (size_t)batch->n_samples * sizeof *batch->share;
    feeds[0] = (wf_feed){"x", batch->x, batch->x_bytes};
    feeds[1] = (wf_feed){"y", batch->y, batch->y_bytes};
    if (!batch->share) return 2;
    feeds[2] = (wf_feed){"y_partner", batch->y_partner, batch->y_bytes};
    feeds[3] = (wf_feed){"share", batch->share, share_bytes};
    feeds[4] = (wf_feed){"partner_share", batch->partner_share, share_bytes};
    return MOST_FEEDS;
}

wf_status job_step(const job *j, wf_trainer *trainer, const wf_batch *batch,
                   wf_step_result *result_out) {
    wf_feed feeds[MOST_FEEDS];
    int n_feeds = job_feeds(batch, feeds);
    if (!batch->first_sample) wf_trainer_reset_hidden(trainer, WF_PROGRAM_TRAIN);
    wf_status status = wf_trainer_step(trainer, feeds, n_feeds, batch->n_samples, result_out);
    if (status == WF_OK || status == WF_NOT_FINITE)
        j->c->stop = (exit_status)result_out->stop_reason;
    return status;
}

bool job_reads_eval(const job *j) {
    return !has_parts(j) || own_replica(j) == 0;
}

static wf_status eval_piece(wf_trainer *trainer, wf_loader *loader, int64_t n_samples,
                            wf_step_result *result_out) {
    wf_feed feeds[MOST_FEEDS];
    const wf_batch *batch;
    if (!loader) return wf_trainer_eval(trainer, NULL, 0, n_samples, result_out);
    TRY(wf_loader_next(loader, &batch));
    int n_feeds = job_feeds(batch, feeds);
    return wf_trainer_eval(trainer, feeds, n_feeds, n_samples, result_out);
}

wf_status job_eval(const job *j, wf_trainer *trainer, wf_data_split split, double *loss_out,
                   double *accuracy_out) {
    wf_loader *loader = NULL;
    double loss = 0;
    int64_t n_rows = 0, n_hits = 0, piece = job_eval_samples(j, split);
    int64_t n_samples = split == WF_DATA_TEST ? j->about.n_test : j->about.n_train;
    wf_status status = job_reads_eval(j) ? job_loader(j, split, 0, 0, &loader) : WF_OK;
    wf_trainer_reset_hidden(trainer, WF_PROGRAM_FORWARD);
    for (int64_t first = 0; first < n_samples && status == WF_OK; first += piece) {
        wf_step_result result;
        int64_t n_left = n_samples - first;
        if (interrupt_agreed(j->c)) status = WF_INTERRUPTED;
        if (status == WF_OK)
            status = eval_piece(trainer, loader, n_left < piece ? n_left : piece, &result);
        if (status != WF_OK) break;
        j->c->stop = (exit_status)result.stop_reason;
        loss += result.loss * (double)result.n_rows;
        n_rows += result.n_rows;
        n_hits += result.n_hits;
    }
    wf_loader_destroy(loader);
    if (status != WF_OK) return status;
    bool has_labels = j->about.targets == WF_TARGETS_LABELS || j->is_tokens;
    *loss_out = n_rows ? loss / (double)n_rows : NAN;
    *accuracy_out = n_rows && has_labels ? (double)n_hits / (double)n_rows : NAN;
    return WF_OK;
}

/* ---- output before the run ---- */

/* Only a whole recipe is wrapped: a start has few lines. */
static void say_wrapped(const job *j, const char *label, const char *const *words, int n) {
    int column = 0;
    for (int i = 0; i < n; i++) {
        bool is_full = j->c->o.verbose && column + (int)strlen(words[i]) > 90;
        if (i == 0 || is_full) {
            say(j->c, "%s%-8s", i ? "\n" : "", i ? "" : label);
            column = 8;
        }
        say(j->c, "%s%s", column > 8 ? " " : "", words[i]);
        column += (int)strlen(words[i]) + 1;
    }
    say(j->c, "\n");
}

/* Whether the line of the recipe names it: always if weft chose its value for this model. */
static bool is_shown(const options *o, option_id id, const char *value) {
    char text[TEXT_BYTES];
    const char *usual = option_default(id, text);
    bool is_chosen = id == OPT_n_micro || id == OPT_n_lanes || id == OPT_n_slices;
    bool is_given = option_is_given(o, id) && (!usual || strcmp(value, usual) != 0);
    return o->verbose || is_chosen || is_given || id == OPT_model || id == OPT_data;
}

/* The recipe as options: those that are not defaults, and with --verbose all that would give it
 * again anywhere. */
static void say_recipe(const job *j) {
    const options *o = &j->c->o;
    char *words[2 * N_OPTIONS];
    int n = 0;
    for (option_id id = 0; id < N_OPTIONS; id++) {
        char name[TEXT_BYTES], text[TEXT_BYTES];
        const option about = option_about(id);
        const char *value = option_text(o, id, text);
        bool is_flag = about.kind == OPTION_FLAG;
        if (about.scope != OF_RECIPE || option_no_use(o, id) || !(about.commands & j->c->command))
            continue;
        if (!*value || (is_flag && !strcmp(value, "false")) || !is_shown(o, id, value)) continue;
        if (id == OPT_tuned) value = "..."; /* which --kernels gives as well */
        size_t bytes = TEXT_BYTES + strlen(value) + 2;
        if (!(words[n] = malloc(bytes))) break;
        snprintf(words[n++], bytes, "%s%s%s", option_name(name, id), is_flag ? "" : " ",
                 is_flag ? "" : value);
    }
    say_wrapped(j, "recipe", (const char *const *)words, n);
    while (n > 0) free(words[--n]);
}

json_t *job_needed_json(const job *j) {
    const wf_recipe *r = &j->needed;
    json_t *needed = r->n_micro || r->n_lanes || r->n_slices ? json_object() : json_null();
    if (r->n_micro) json_object_set_new(needed, "micro", json_integer((json_int_t)r->n_micro));
    if (r->n_lanes) json_object_set_new(needed, "lanes", json_integer((json_int_t)r->n_lanes));
    if (r->n_slices) json_object_set_new(needed, "slices", json_integer((json_int_t)r->n_slices));
    return needed;
}

/* Prints the values that the plan needs and the given options do not have. */
static void say_needed(const job *j) {
    json_t *value, *needed = job_needed_json(j);
    const char *name;
    if (!json_is_null(needed)) {
        say(j->c, "%-8sneeds", "");
        json_object_foreach(needed, name, value)
            say(j->c, " --%s %lld", name, (long long)json_integer_value(value));
        say(j->c, ": another recipe than the default, with other numbers\n");
    }
    json_decref(needed);
}

const char *job_device(const job *j, int rank, char name[WF_DEVICE_NAME_BYTES]) {
    const char *devices = j->c->o.devices;
    /* Without a list, and in a process of its own, each rank has one. */
    if (!devices || wf_devices_name(j->c->ctx, devices, rank, name) != WF_OK)
        snprintf(name, WF_DEVICE_NAME_BYTES, "cpu:%d", rank);
    return name;
}

/* "cpu:0 is shared by ranks 0, 2; cpu:1 by ranks 1, 3" */
static void say_shared(const job *j) {
    int n_ranks = wf_plan_n_ranks(j->plan);
    bool any = false;
    for (int r = 0; r < n_ranks && j->c->o.devices; r++) {
        char name[WF_DEVICE_NAME_BYTES], other[WF_DEVICE_NAME_BYTES];
        int n_before = 0, n_after = 0;
        job_device(j, r, name);
        for (int k = 0; k < r; k++) n_before += !strcmp(job_device(j, k, other), name);
        for (int k = r + 1; k < n_ranks; k++) n_after += !strcmp(job_device(j, k, other), name);
        if (n_before || !n_after) continue;
        say(j->c, any ? "; %s by ranks %d" : "devices %s is shared by ranks %d", name, r);
        any = true;
        for (int k = r + 1; k < n_ranks; k++)
            if (!strcmp(job_device(j, k, other), name)) say(j->c, ", %d", k);
    }
    if (any) say(j->c, "\n");
}

/* Prints the normalization that another program must apply to pixels for this model. */
static void say_normalization(const job *j) {
    const wf_data_description *about = &j->about;
    bool from_files = about->kind == WF_DATA_IMAGES && strcmp(j->c->o.data, "synthetic") != 0;
    if (!from_files || j->c->o.normalize == WF_NORMALIZE_NONE) return;
    say(j->c, "%-8s(pixel / 255 - mean) / std: mean", "");
    for (int64_t k = 0; k < about->channels; k++) say(j->c, " %.6g", about->mean[k]);
    say(j->c, ", std");
    for (int64_t k = 0; k < about->channels; k++) say(j->c, " %.6g", about->std[k]);
    say(j->c, "\n");
}

static void say_data(const job *j) {
    const wf_data_description *about = &j->about;
    char train[TEXT_BYTES], test[TEXT_BYTES], classes[TEXT_BYTES];
    text_of_thousands(train, about->n_train);
    text_of_thousands(test, about->n_test);
    text_of_thousands(classes, about->n_classes);
    say(j->c, "%-8s%s: %s training and %s test samples of ", "data", j->c->o.data, train, test);
    if (j->is_tokens)
        say(j->c, "%lld tokens, vocabulary %s", (long long)about->n_tokens, classes);
    else
        say(j->c, "%lld x %lld x %lld, %s classes", (long long)about->channels,
            (long long)about->height, (long long)about->width, classes);
    if (j->drop_last && j->c->command == FOR_TRAIN)
        say(j->c, "; an epoch drops the last %lld, too few for %lld microbatches",
            (long long)(about->n_train % j->c->o.recipe.batch), (long long)j->c->o.recipe.n_micro);
    say(j->c, "\n");
    if (j->c->o.verbose) say_normalization(j);
}

/* With the cores that the run leaves idle. */
static void say_plan(const job *j) {
    int n_ranks = wf_plan_n_ranks(j->plan), n_cores = wf_info_limits().n_cores;
    int n_used = j->c->o.recipe.n_threads * n_ranks;
    bool is_idle = !j->c->o.devices && !j->c->job && j->c->command != FOR_PLAN && n_used < n_cores;
    bool is_chosen = j->c->o.plan && !strcmp(j->c->o.plan, "auto");
    say(j->c, "%-8s%s%s (%d rank%s", "plan", is_chosen ? "auto: " : "", wf_plan_text(j->plan),
        n_ranks, n_ranks == 1 ? "" : "s");
    if (j->is_default_plan) say(j->c, ": the default is replicas");
    if (is_idle)
        say(j->c, " on %d of %d cores; --threads %d uses more", n_used, n_cores, n_cores / n_ranks);
    say(j->c, ")\n");
    say_needed(j);
    if (j->c->command == FOR_PLAN || j->c->o.verbose) say_shared(j);
}

void job_describe(const job *j) {
    bool is_planned = j->c->command == FOR_PLAN;
    if (j->c->o.verbose) job_say_cap(j->c);
    if (is_planned) say_plan(j);
    if (!is_planned) say_data(j);
    say_recipe(j);
    if (!is_planned) say_plan(j);
    if (is_planned) say_data(j);
}

void job_describe_chosen(const job *j, const wf_program *program) {
    if (strcmp(wf_plan_text(j->plan), wf_program_plan(program)))
        say(j->c, "%-8s%s\n", "chosen", wf_program_plan(program));
}
