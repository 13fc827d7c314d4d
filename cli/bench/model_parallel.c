/* weft bench model-parallel: PyTorch's tutorial "Single-Machine Model Parallel Best Practices"
 * as one command. A ResNet-50 trains on one device; on two, one after the other; and as a
 * pipeline, for each split of the batch and each schedule. One core and one thread a device,
 * or two devices of another kind.
 */
#include "bench/experiment.h"

#include <stdlib.h>
#include <string.h>

#define TUTORIAL_BATCH 120
#define TUTORIAL_MICRO 6 /* its split of 20 */
#define TUTORIAL_CUT   "layer3"
#define QUICK_BATCH    40
#define QUICK_IMAGE    96
#define QUICK_SPLIT    5 /* smaller ones are left out */
#define MAX_BATCH      4096
#define MAX_SPLITS     64

typedef struct splits {
    int64_t n[MAX_SPLITS];
    int count;
    int64_t tutorial; /* the one that makes as many microbatches as the tutorial has */
} splits;

/* ---- options ---- */

/* The tutorial's, and 15, or for another batch all that divide it. */
static void find_splits(const options *o, splits *s) {
    static const int64_t tutorial[] = {1, 3, 5, 8, 10, 12, 15, 20, 40, 60};
    int64_t batch = o->recipe.batch;
    *s = (splits){.tutorial = 1};
    if (batch == TUTORIAL_BATCH && !o->quick) {
        s->count = (int)(sizeof tutorial / sizeof *tutorial);
        memcpy(s->n, tutorial, sizeof tutorial);
    } else {
        for (int64_t n = 1; n <= batch / 2; n++)
            if (batch % n == 0 && (!o->quick || n >= QUICK_SPLIT || n > batch / 4))
                s->n[s->count++] = n;
        if (!s->count) s->n[s->count++] = 1;
    }
    for (int i = 0; i < s->count; i++)
        if (s->n[i] * TUTORIAL_MICRO <= batch || !i) s->tutorial = s->n[i];
}

static bool set(options *o, option_id id, const char *value) {
    if (option_is_given(o, id)) return true;
    o->given[id] = true;
    return option_set(o, id, value);
}

/* Fills in the tutorial's values for options that are not given. */
static exit_status resolve(cli *c) {
    options *o = &c->o;
    if (!set(o, OPT_model, "resnet50") || !set(o, OPT_data, "synthetic") ||
        !set(o, OPT_loss, "mse") || !set(o, OPT_lr, "0.001") || !set(o, OPT_n_threads, "1") ||
        !set(o, OPT_out, "model-parallel"))
        return complain(EXIT_FAILED, "%s", o->error);
    if (!option_is_given(o, OPT_batch)) o->recipe.batch = o->quick ? QUICK_BATCH : TUTORIAL_BATCH;
    if (!option_is_given(o, OPT_n_lanes)) o->recipe.n_lanes = 1; /* a row has one replica */
    if (!o->image && o->quick) o->image = QUICK_IMAGE;
    if (!option_is_given(o, OPT_repeat)) o->repeat = o->quick ? 3 : 10;
    if (strncmp(o->model, "resnet", 6))
        return complain(EXIT_USAGE,
                        "--model %.40s: the experiment cuts at %s, which resnets have: resnet18, "
                        "resnet34, resnet50",
                        o->model, TUTORIAL_CUT);
    if (o->recipe.batch < 2 || o->recipe.batch > MAX_BATCH)
        return complain(EXIT_USAGE, "--batch %lld: batches of 2 to %d images can be split",
                        (long long)o->recipe.batch, MAX_BATCH);
    if (o->repeat < 1 || o->repeat > 1000)
        return complain(EXIT_USAGE, "--repeat must be 1 to 1000");
    return EXIT_DONE;
}

/* Two devices of one kind, as the bits of each kind are its own: rows are compared. One rank is on
 * the first of the kind. */
static exit_status find_devices(experiment *e, const cli *c) {
    const char *list = c->o.devices;
    char kind[2][WF_DEVICE_NAME_BYTES];
    int n = 0;
    if (!list) return EXIT_DONE;
    wf_status status = wf_devices_count(c->ctx, list, &n);
    for (int rank = 0; rank < 2 && n == 2 && status == WF_OK; rank++) {
        status = wf_devices_name(c->ctx, list, rank, kind[rank]);
        kind[rank][strcspn(kind[rank], ":")] = '\0';
    }
    if (status != WF_OK) return complain_of(c, status);
    if (n != 2 || strcmp(kind[0], kind[1]) != 0)
        return complain(EXIT_USAGE, "--devices %.60s: the experiment has two devices of one kind",
                        list);
    if (!strcmp(kind[0], "cpu")) return EXIT_DONE;
    snprintf(e->device, sizeof e->device, "%.20s:1", kind[0]);
    e->devices = list;
    return EXIT_DONE;
}

/* ---- rows ---- */

/* The fastest row of that name, schedule, cut (NULL: any) and split (0: any); NULL if there is
 * none. */
static json_t *find_best(const rounds *b, const char *name, const char *schedule, const char *cut,
                         int64_t split) {
    const char *const wanted[][2] = {{"name", name}, {"schedule", schedule}, {"cut", cut}};
    json_t *best = NULL;
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        bool is_one = !split || row_number(row, "split") == (double)split;
        for (size_t k = 0; k < 3; k++)
            is_one &= !wanted[k][1] || !strcmp(wanted[k][1], row_text(row, wanted[k][0]));
        if (is_one && (!best || row_mean(row, "seconds") < row_mean(best, "seconds"))) best = row;
    }
    return best;
}

static exit_status add(rounds *b, const char *name, const char *schedule, const char *cut,
                       int64_t split) {
    char shown[100];
    if (find_best(b, name, schedule, cut, split)) return EXIT_DONE;
    snprintf(shown, sizeof shown, "%s, %s, split %lld", name, schedule, (long long)split);
    json_t *times = json_array();
    for (int rank = 0; rank < (strcmp(schedule, "none") ? 2 : 1); rank++)
        json_array_append_new(times, json_pack("{s:f, s:f, s:f, s:f}", "compute", 0.0, "bubble",
                                               0.0, "transfer", 0.0, "wait", 0.0));
    return rounds_add(
        b,
        json_pack("{s:s, s:s, s:s, s:I, s:n, s:n, s:n, s:n, s:n, s:[], s:f, s:n, s:n, s:I, s:s, "
                  "s:s, s:o, s:{s:[], s:[]}}",
                  ".name", shown, "name", name, "schedule", schedule, "split", (json_int_t)split,
                  "seconds_mean", "seconds_std", "speedup", "predicted_seconds",
                  "images_per_second", "seconds", "cpu_seconds", 0.0, "loss", "plan", "micro",
                  (json_int_t)(b->c->o.recipe.batch / split), "cut", cut, "second_stage", "",
                  "rank_times", times, "peak_bytes", "planned", "measured"),
        MAX_ROWS);
}

static exit_status add_tutorial(rounds *b) {
    int64_t batch = b->c->o.recipe.batch;
    splits s;
    find_splits(&b->c->o, &s);
    TRY(add(b, "single device", "none", "none", batch));
    for (int i = 0; i < s.count; i++) {
        TRY(add(b, "single device", "none", "none", s.n[i]));
        TRY(add(b, "pipeline", "1f1b", "balanced", s.n[i]));
    }
    TRY(add(b, "model parallel", "naive", TUTORIAL_CUT, batch));
    TRY(add(b, "pipeline", "1f1b", TUTORIAL_CUT, s.tutorial));
    TRY(add(b, "pipeline", "gpipe", TUTORIAL_CUT, s.tutorial));
    return add(b, "pipeline", "gpipe", "balanced", s.tutorial);
}

static exit_status add_rows(rounds *b) {
    experiment *e = (experiment *)b;
    const options *o = &b->c->o;
    TRY(job_open(b->c, ROW_BATCHES + 1, &e->j));
    b->recipe = options_recipe(o);
    json_object_del(b->recipe, "micro"); /* each row has its own */
    say(b->c, "%s: %d batches of %lld images, %lld x %lld; repeats: %lld\n", o->model, ROW_BATCHES,
        (long long)o->recipe.batch, (long long)o->image, (long long)o->image, (long long)o->repeat);
    if (e->devices) say(b->c, "devices: %s; alone: %s\n", e->devices, e->device);
    if (!e->devices && apart_n_cores() < 2)
        say(b->c, "there is one core only: two devices take turns on it, and gain nothing\n");
    TRY(complain_of(b->c, experiment_draw(e)));
    return add_tutorial(b);
}

/* The first round tells which splits are worth more rows, of each schedule; these then run as often
 * as all. */
static exit_status add_schedules(rounds *b) {
    const json_t *single = find_best(b, "single device", NULL, NULL, 0);
    size_t n_first = json_array_size(b->rows);
    bool taken[MAX_SPLITS] = {false};
    splits s;
    find_splits(&b->c->o, &s);
    exit_status bad =
        add(b, "model parallel", "naive", TUTORIAL_CUT, (int64_t)row_number(single, "split"));
    for (int n = 0; n < (b->c->o.quick ? 1 : 2) && n < s.count && !bad; n++) {
        int best = -1;
        double least = 0;
        for (int i = 0; i < s.count; i++) {
            double mean = row_mean(find_best(b, "pipeline", "1f1b", "balanced", s.n[i]), "seconds");
            if (!taken[i] && (best < 0 || mean < least)) best = i, least = mean;
        }
        taken[best] = true;
        for (int k = 0; wf_schedule_name(k) && !bad; k++)
            if (strcmp(wf_schedule_name(k), "naive") != 0)
                bad = add(b, "pipeline", wf_schedule_name(k), "balanced", s.n[best]);
    }
    b->n_runs += (int)(json_array_size(b->rows) - n_first);
    return bad ? bad : rounds_once(b, n_first, 0, experiment_run);
}

/* ---- the command ---- */

static json_t *describe(const rounds *b) {
    json_t *schedules = json_array();
    splits s;
    find_splits(&b->c->o, &s);
    for (int k = 0; wf_schedule_name(k); k++)
        json_array_append_new(schedules, json_string(wf_schedule_name(k)));
    return json_pack("{s:i, s:s?, s:o, s:I, s:s}", "batches", ROW_BATCHES, "devices",
                     ((const experiment *)b)->devices, "schedules", schedules, "split",
                     (json_int_t)s.tutorial, "cut", TUTORIAL_CUT);
}

exit_status run_bench_model_parallel(cli *c) {
    static const bench parts = {add_rows, experiment_run, add_schedules, describe};
    experiment e = {.devices = NULL};
    exit_status bad = resolve(c);
    if (!bad) bad = find_devices(&e, c);
    if (!bad) bad = rounds_bench(&e.all, c, &parts);
    for (int i = 0; i < e.n_costs; i++) wf_costs_destroy(e.costs[i].costs);
    free(e.x);
    free(e.y);
    job_close(&e.j);
    return bad;
}
