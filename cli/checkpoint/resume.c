/* Going on from a checkpoint. The checkpoint is not trusted: every number has its range, the data
 * is compared by its hash, and the data's path is not taken from the file of tensors, but from the
 * run's own run.json or from --data. */
#include "checkpoint/checkpoint.h"
#include "common/text.h"
#include "job/agree.h"
#include "restart/snapshot.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NOTE_BYTES 65536 /* no recipe comes near */

/* Required metadata of a checkpoint, by its keys in the file. */
static const char *const keys[] = {"weft.n_steps", "epoch", "sample",  "recipe",
                                   "data_hash",    "weft",  "library", "tests"};
#define N_KEYS (sizeof keys / sizeof *keys)

/* ---- rank 0 reads ---- */

static exit_status read_notes(const char *path, const wf_safetensors *file, json_t *record) {
    for (size_t k = 0; k < N_KEYS; k++) {
        const char *text = wf_safetensors_metadata(file, keys[k]);
        if (!text)
            return complain(EXIT_FAILED,
                            "%s does not record its %s: it was not written by weft train, or by an "
                            "older version; start a new run from its weights with --init",
                            path, keys[k]);
        if (strlen(text) > MAX_NOTE_BYTES)
            return complain(EXIT_FAILED, "%s: its %s has %zu bytes, more than the %d it may have",
                            path, keys[k], strlen(text), MAX_NOTE_BYTES);
        if (text_has_control(text))
            return complain(EXIT_FAILED, "%s: its %s holds a control character", path, keys[k]);
        json_object_set_new(record, keys[k], json_string(text));
    }
    return EXIT_DONE;
}

/* Where the run had its data: NULL if --data says so now. */
static exit_status read_data_path(const cli *c, json_t *record) {
    char path[4096];
    if (option_is_given(&c->o, OPT_data)) return EXIT_DONE;
    snprintf(path, sizeof path, "%s/run.json", c->o.out);
    json_t *about = about_read_json(c, path);
    json_t *data = json_object_get(json_object_get(about, "recipe"), "data");
    bool good = json_is_string(data) && strlen(json_string_value(data)) == json_string_length(data);
    if (good) json_object_set(record, "data", data);
    json_decref(about);
    if (good) return EXIT_DONE;
    return complain(EXIT_USAGE, "--resume: there is no %s with the path of the data; give --data",
                    path);
}

/* The record of a snapshot is weft's own. */
static exit_status read_snapshot_record(const cli *c, json_t *record) {
    json_t *own = json_loads(snapshot_record(c->snapshot, c->image), 0, NULL);
    bool good = own && !json_object_update(record, own);
    json_decref(own);
    return good ? read_data_path(c, record) : complain(EXIT_FAILED, "a snapshot has no record");
}

/* Under --restarts, a checkpoint that is damaged costs only the steps since the one before. */
static exit_status fail_to_read(const cli *c, wf_status status) {
    exit_status bad = complain_of(c, status);
    if (status == WF_CORRUPT) checkpoint_set_aside(c);
    return bad;
}

static exit_status read_record(const cli *c, json_t *record) {
    char path[4096];
    if (c->image) return read_snapshot_record(c, record);
    wf_safetensors *file;
    snprintf(path, sizeof path, "%s/state.safetensors", c->o.out);
    if (!checkpoint_exists(c))
        return complain(EXIT_FAILED,
                        "--resume: there is no run in %s, which has no state.safetensors; without "
                        "--resume a new run starts",
                        c->o.out);
    wf_status status = wf_safetensors_open(c->ctx, path, &file);
    if (status != WF_OK) return fail_to_read(c, status);
    exit_status bad = read_notes(path, file, record);
    wf_safetensors_close(file);
    return bad ? bad : read_data_path(c, record);
}

int64_t checkpoint_step(const cli *c) {
    char path[4096], *text = NULL;
    int64_t step;
    if (!c->o.out || !checkpoint_exists(c)) return -1;
    snprintf(path, sizeof path, "%.4000s/state.safetensors", c->o.out);
    wf_status status = wf_trainer_state_metadata(c->ctx, path, keys[0], &text);
    bool good = status == WF_OK && text && text_to_int(text, &step);
    if (text) wf_text_free(c->ctx, text);
    return good ? step : -1;
}

exit_status checkpoint_resume_after_restart(cli *c) {
    struct {
        int64_t image, saved_step, resumes;
    } found = {0, -1, 0};
    int image;
    if (!restart_number()) return EXIT_DONE;
    if (c->is_root && c->o.out) checkpoint_restore_kept(c);
    if (c->is_root) {
        int64_t step = snapshot_newest(c->snapshot, &image);
        found.saved_step = checkpoint_step(c);
        if (step >= 0 && step >= found.saved_step) found.image = image;
        found.resumes = found.image || (c->o.out && checkpoint_exists(c));
    }
    if (c->job) TRY(complain_of(c, wf_job_broadcast(c->job, &found, sizeof found)));
    if (found.resumes) c->o.resume = 1;
    c->image = (int)found.image;
    c->saved_step = found.saved_step;
    return EXIT_DONE;
}

/* The next start takes an older state. */
static void drop_snapshot(const cli *c) {
    snapshot_forget(c->snapshot, c->image);
    if (c->is_root) history_retry(c->history);
}

/* ---- all ranks get it ---- */

/* Whether the value leaves the choice to weft, which is then no contradiction. */
static bool is_open(option_id id, const char *text) {
    if (id == OPT_stem) return !strcmp(text, "auto");
    if (id == OPT_n_micro && !strcmp(text, "auto")) return true;
    bool may_be = id == OPT_n_micro || id == OPT_n_lanes || id == OPT_n_slices;
    return (may_be || id == OPT_n_threads) && !strcmp(text, "0");
}

/* Options that were given must agree with the checkpoint; the others are taken from it. */
static exit_status merge(cli *c, const options *recorded) {
    options *o = &c->o;
    for (option_id id = 0; id < N_OPTIONS; id++) {
        char name[TEXT_BYTES], typed[TEXT_BYTES], was[TEXT_BYTES];
        if (!option_is_of_recipe(recorded, id) || id == OPT_data) continue;
        const char *old = option_text(recorded, id, was);
        if (!option_is_given(o, id) || is_open(id, option_text(o, id, typed))) {
            if (!option_is_given(recorded, id)) continue;
            if (!option_set(o, id, old)) return complain(EXIT_FAILED, "%s", o->error);
            o->given[id] = true;
            continue;
        }
        const char *new = option_text(o, id, typed);
        if (strcmp(new, old))
            return complain(
                EXIT_USAGE,
                "--resume: the run in %s has %s %.300s, not %.300s; leave the option out, or "
                "start another run",
                o->out, option_name(name, id), *old ? old : "none", *new ? new : "none");
    }
    return EXIT_DONE;
}

static exit_status take_recipe(cli *c, const char *text) {
    char where[300];
    options recorded;
    snprintf(where, sizeof where, "%.200s/state.safetensors", c->o.out ? c->o.out : "");
    options_init(&recorded);
    exit_status bad = options_read_json(&recorded, FOR_TRAIN, text, strlen(text), where)
                          ? merge(c, &recorded)
                          : complain(EXIT_FAILED, "%s", recorded.error);
    options_release(&recorded);
    return bad;
}

static const char *text_of(const json_t *record, const char *key) {
    const char *text = json_string_value(json_object_get(record, key));
    return text ? text : "";
}

/* Names the source of the checkpoint; a run with snapshots may have no --out. */
static const char *name_source(const cli *c, char text[4096]) {
    snprintf(text, 4096, c->image ? "the snapshot" : "%.4000s/state.safetensors", c->o.out);
    return text;
}

static exit_status take_number(const cli *c, const json_t *record, const char *key,
                               int64_t *value_out) {
    const char *text = text_of(record, key);
    char source[4096];
    if (isdigit((unsigned char)*text) && text_to_int(text, value_out)) return EXIT_DONE;
    return complain(EXIT_FAILED, "%s: its %s is '%.40s', which no run can have",
                    name_source(c, source), key, text);
}

static exit_status take(cli *c, const json_t *record, resumed *resumed_out) {
    const char *data = text_of(record, "data");
    char source[4096];
    resumed from = {0};
    exit_status bad = take_recipe(c, text_of(record, "recipe"));
    if (!bad && *data && !option_is_given(&c->o, OPT_data)) {
        if (!option_set(&c->o, OPT_data, data)) bad = complain(EXIT_FAILED, "%s", c->o.error);
        c->o.given[OPT_data] = true;
    }
    if (!bad) bad = take_number(c, record, "weft.n_steps", &from.n_steps);
    if (!bad) bad = take_number(c, record, "epoch", &from.next.epoch);
    if (!bad) bad = take_number(c, record, "sample", &from.next.sample);
    json_t *tests = json_loads(text_of(record, "tests"), JSON_REJECT_DUPLICATES, NULL);
    if (!bad && (!scores_read(&from.tests, tests) || from.tests.last_step > from.n_steps ||
                 from.tests.best_step > from.tests.last_step))
        bad = complain(EXIT_FAILED, "%s: its tests are not those of a run", name_source(c, source));
    json_decref(tests);
    snprintf(from.data_hash, sizeof from.data_hash, "%s", text_of(record, "data_hash"));
    made_by_text(text_of(record, "weft"), text_of(record, "library"), from.made_by);
    if (!bad) *resumed_out = from;
    return bad;
}

exit_status checkpoint_read(cli *c, exit_status bad, resumed *resumed_out) {
    if (!c->o.out && !c->image)
        return complain(EXIT_USAGE, "--resume needs --out, the folder of the run");
    json_t *record = json_object();
    if (!bad && c->is_root) bad = read_record(c, record);
    char *text = !bad && c->is_root ? json_dumps(record, JSON_COMPACT) : NULL;
    if (!bad && c->is_root && !text) bad = complain(EXIT_FAILED, "no memory left");
    json_decref(record);
    bad = agree_on_text(c, bad, &text);
    record = bad ? NULL : json_loads(text, 0, NULL);
    if (!bad) bad = take(c, record, resumed_out);
    json_decref(record);
    free(text);
    if (bad && c->image) drop_snapshot(c);
    return bad;
}

/* ---- properties that must not change ---- */

/* Every epoch has the same number of steps, so the place follows from the step. */
static exit_status check_place(const job *j, const resumed *from) {
    int64_t batch = j->c->o.recipe.batch;
    char source[4096];
    if (from->next.epoch == from->n_steps / j->n_epoch && from->next.sample % batch == 0 &&
        from->next.sample / batch == from->n_steps % j->n_epoch)
        return EXIT_DONE;
    return complain(EXIT_FAILED,
                    "%s: after %lld steps of %lld samples no run is at sample %lld of epoch %lld",
                    name_source(j->c, source), (long long)from->n_steps, (long long)batch,
                    (long long)from->next.sample, (long long)from->next.epoch);
}

static exit_status check_data(job *j, const resumed *from) {
    TRY(complain_of(j->c, job_hash_data(j)));
    if (!strcmp(j->data_hash, from->data_hash)) return EXIT_DONE;
    if (j->c->image) history_give_up(j->c->history);
    if (j->c->image)
        return complain(
            EXIT_FAILED,
            "--data %s has changed since the run began: its hash is %.8s..., not %.8s...",
            j->c->o.data, j->data_hash, from->data_hash);
    return complain(EXIT_FAILED,
                    "--resume: %s does not hold the data that the run in %s was trained on (its "
                    "hash is %.8s..., not %.8s...); give its path with --data, or start another "
                    "run from these weights: --init %s/model.safetensors and another --out",
                    j->c->o.data, j->c->o.out, j->data_hash, from->data_hash, j->c->o.out);
}

/* Another processor or another library sums in another order. */
static exit_status check_builds(const cli *c, const resumed *from) {
    char made_by[MADE_BY_BYTES], library[LIBRARY_BYTES];
    made_by_text(WEFT_VERSION, made_by_library(c, library), made_by);
    if (!strcmp(made_by, from->made_by)) return EXIT_DONE;
    if (c->o.strict)
        return complain(EXIT_FAILED,
                        "--strict: the checkpoint was made by %s, and this is %s: the run would "
                        "not continue with the same bits",
                        from->made_by, made_by);
    if (c->is_root)
        complain(EXIT_DONE,
                 "the checkpoint was made by %s, and this is %s: the run may continue with other "
                 "bits (--strict refuses that)",
                 from->made_by, made_by);
    return EXIT_DONE;
}

/* A damaged snapshot is dropped, and the next start takes an older state: the other snapshot, a
 * checkpoint, or none. */
static exit_status load_snapshot(job *j, wf_trainer *trainer) {
    cli *c = j->c;
    wf_status status = snapshot_read(c->snapshot, trainer, c->image);
    if (status != WF_CORRUPT) return complain_of(c, status);
    drop_snapshot(c);
    if (c->lost) snprintf(c->lost, LOST_BYTES, "%s", wf_context_error(c->ctx));
    return c->lost ? EXIT_RANK : complain(EXIT_RANK, "%s", wf_context_error(c->ctx));
}

exit_status checkpoint_load(job *j, wf_trainer *trainer, const resumed *from) {
    char path[4096];
    TRY(check_data(j, from));
    TRY(check_place(j, from));
    TRY(check_builds(j->c, from));
    if (j->c->image) return load_snapshot(j, trainer);
    snprintf(path, sizeof path, "%s/state.safetensors", j->c->o.out);
    wf_status status = wf_trainer_load_state(trainer, path);
    if (status != WF_OK) return fail_to_read(j->c, status);
    /* A run that was stopped between the two files left an older model, or none. */
    return complain_of(j->c, checkpoint_save_weights(j, trainer));
}
