/* weft bench model-parallel: PyTorch's tutorial "Single-Machine Model Parallel Best Practices"
 * as one command. A ResNet-50 trains on one device; on two, one after the other; and as a
 * pipeline, for each split of the batch and each schedule. One core and one thread a device,
 * or two devices of another kind.
 */
#include "bench/apart.h"
#include "bench/experiment.h"
#include "checkpoint/checkpoint.h"
#include "job/report.h"

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
static exit_status find_devices(experiment *e) {
    const char *list = e->c->o.devices;
    char kind[2][WF_DEVICE_NAME_BYTES];
    int n = 0;
    if (!list) return EXIT_DONE;
    wf_status status = wf_devices_count(e->c->ctx, list, &n);
    for (int rank = 0; rank < 2 && n == 2 && status == WF_OK; rank++) {
        status = wf_devices_name(e->c->ctx, list, rank, kind[rank]);
        kind[rank][strcspn(kind[rank], ":")] = '\0';
    }
    if (status != WF_OK) return complain_of(e->c, status);
    if (n != 2 || strcmp(kind[0], kind[1]) != 0)
        return complain(EXIT_USAGE, "--devices %.60s: the experiment has two devices of one kind",
                        list);
    if (!strcmp(kind[0], "cpu")) return EXIT_DONE;
    snprintf(e->device, sizeof e->device, "%.20s:1", kind[0]);
    e->devices = list;
    return EXIT_DONE;
}

/* ---- rows ---- */

static exit_status add(experiment *e, const char *name, const char *schedule, const char *cut,
                       int64_t split) {
    if (experiment_best(e, name, schedule, cut, split)) return EXIT_DONE;
    if (e->n_rows == MAX_ROWS) return complain(EXIT_FAILED, "more than %d rows", MAX_ROWS);
    e->rows[e->n_rows++] = (row){.name = name,
                                 .schedule = schedule,
                                 .cut = cut,
                                 .split = split,
                                 .n_ranks = strcmp(schedule, "none") ? 2 : 1};
    return EXIT_DONE;
}

static exit_status add_tutorial(experiment *e, const splits *s) {
    int64_t batch = e->c->o.recipe.batch;
    exit_status bad = add(e, "single device", "none", "", batch);
    for (int i = 0; i < s->count && !bad; i++) {
        bad = add(e, "single device", "none", "", s->n[i]);
        if (!bad) bad = add(e, "pipeline", "1f1b", "", s->n[i]);
    }
    if (!bad) bad = add(e, "model parallel", "naive", TUTORIAL_CUT, batch);
    if (!bad) bad = add(e, "pipeline", "1f1b", TUTORIAL_CUT, s->tutorial);
    if (!bad) bad = add(e, "pipeline", "gpipe", TUTORIAL_CUT, s->tutorial);
    if (!bad) bad = add(e, "pipeline", "gpipe", "", s->tutorial);
    return bad;
}

/* Each schedule at the splits that are best so far. */
static exit_status add_schedules(experiment *e, const splits *s, int n_candidates) {
    const row *single = experiment_best(e, "single device", NULL, NULL, 0);
    exit_status bad = add(e, "model parallel", "naive", TUTORIAL_CUT, single->split);
    bool taken[MAX_SPLITS] = {false};
    for (int n = 0; n < n_candidates && n < s->count && !bad; n++) {
        int best = -1;
        double least = 0;
        for (int i = 0; i < s->count; i++) {
            double mean = row_mean(experiment_best(e, "pipeline", "1f1b", "", s->n[i]));
            if (!taken[i] && (best < 0 || mean < least)) best = i, least = mean;
        }
        taken[best] = true;
        for (int k = 0; wf_schedule_name(k) && !bad; k++)
            if (strcmp(wf_schedule_name(k), "naive") != 0)
                bad = add(e, "pipeline", wf_schedule_name(k), "", s->n[best]);
    }
    return bad;
}

/* ---- rounds ---- */

static void show(experiment *e, const row *r, const char *doing) {
    char text[150];
    snprintf(text, sizeof text, "%s %d/%d  %s, %s, split %lld", doing, e->n_runs_done + 1,
             e->n_runs, r->name, r->schedule, (long long)r->split);
    progress_show(&e->bar, (double)e->n_runs_done / e->n_runs, text);
}

/* Runs all rows from `first` on, once; odd repeats run backwards, so no row always follows the same
 * one. */
static exit_status round_of(experiment *e, int first, int repeat) {
    exit_status bad = EXIT_DONE;
    for (int i = first; i < e->n_rows && !bad; i++) {
        row *r = &e->rows[repeat % 2 ? first + e->n_rows - 1 - i : i];
        show(e, r, "run");
        bad = experiment_learn(e, r);
        if (!bad) bad = experiment_run(e, r);
        e->n_runs_done++;
    }
    return bad;
}

/* The first round tells which splits are worth more rows; these then run as often as all. */
static exit_status run_all(experiment *e) {
    splits s;
    int n_candidates = e->c->o.quick ? 1 : 2;
    find_splits(&e->c->o, &s);
    exit_status bad = add_tutorial(e, &s);
    int n_first = e->n_rows;
    int n_more = 0; /* beside 1f1b, which is there already, and naive */
    while (wf_schedule_name(n_more + 2)) n_more++;
    e->n_runs = (n_first + 1 + n_candidates * n_more) * e->n_repeats;
    if (!bad) bad = round_of(e, 0, 0);
    if (!bad) bad = add_schedules(e, &s, n_candidates);
    e->n_runs = e->n_rows * e->n_repeats;
    if (!bad) bad = round_of(e, n_first, 0);
    for (int repeat = 1; repeat < e->n_repeats && !bad; repeat++) bad = round_of(e, 0, repeat);
    return bad;
}

static exit_status finish(experiment *e) {
    loss_account account;
    splits s;
    find_splits(&e->c->o, &s);
    experiment_sort(e);
    experiment_say(e);
    if (loss_of(e, &account)) loss_say(e, &account);
    effort_say(e->c, &e->spent);
    exit_status bad = experiment_write(e);
    return bad ? bad : experiment_plot(e, s.tutorial, TUTORIAL_CUT);
}

static void describe(const experiment *e) {
    const options *o = &e->c->o;
    say(e->c, "%s: %d batches of %lld images, %lld x %lld; repeats: %d\n", o->model, ROW_BATCHES,
        (long long)o->recipe.batch, (long long)o->image, (long long)o->image, e->n_repeats);
    if (e->devices) say(e->c, "devices: %s; alone: %s\n", e->devices, e->device);
    if (!e->devices && apart_n_cores() < 2)
        say(e->c, "there is one core only: two devices take turns on it, and gain nothing\n");
}

exit_status run_bench_model_parallel(cli *c) {
    experiment e = {.c = c};
    exit_status bad = resolve(c);
    if (!bad) bad = report_check(c);
    if (!bad) bad = find_devices(&e);
    if (!bad) bad = checkpoint_folder(c);
    if (!bad) bad = job_open(c, ROW_BATCHES + 1, &e.j);
    if (bad) return bad;
    interrupt_watch();
    e.n_repeats = (int)c->o.repeat;
    describe(&e);
    wf_status status = experiment_draw(&e);
    if (status != WF_OK) bad = complain_of(c, status);
    progress_open(&e.bar, !c->o.quiet);
    e.begin = effort_now();
    if (!bad) bad = run_all(&e);
    if (!bad) bad = complain_of(c, effort_since(c, &e.begin, &e.spent));
    progress_clear(&e.bar);
    if (!bad) bad = finish(&e);
    experiment_release(&e);
    return bad;
}
