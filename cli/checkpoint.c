/* Checkpoints of a run: the trainer's state, the recipe and the place in the data. */
#include "checkpoint.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void path_in(const cli *c, const char *name, char *path, size_t bytes) {
    snprintf(path, bytes, "%s/%s", c->o.out, name);
}

exit_status checkpoint_folder(const cli *c) {
    char path[3000];
    if (strlen(c->o.out) >= sizeof path) return complain(EXIT_USAGE, "--out: the path is too long");
    strcpy(path, c->o.out);
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/') continue;
        char was = *at;
        *at = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return complain(EXIT_FAILED, "--out: %s cannot be made: %s", path, strerror(errno));
        *at = was;
        if (!was) break;
    }
    return EXIT_DONE;
}

exit_status checkpoint_refuse_old(const cli *c) {
    char path[4096], *steps = NULL;
    path_in(c, "state.safetensors", path, sizeof path);
    if (access(path, F_OK)) return EXIT_DONE;
    if (wf_trainer_state_note(c->ctx, path, "weft.n_steps", &steps) != WF_OK || !steps)
        return complain(EXIT_USAGE, "--out: %s is there already; choose another folder", path);
    complain(EXIT_USAGE,
             "--out: %s holds a run of %.20s steps: go on with --resume, or choose another folder",
             c->o.out, steps);
    wf_text_free(c->ctx, steps);
    return EXIT_USAGE;
}

wf_status checkpoint_save(const job *j, wf_trainer *trainer, position next) {
    char path[4096], epoch[TEXT_BYTES], sample[TEXT_BYTES];
    json_t *recipe = options_recipe(&j->c->o);
    char *recipe_text = json_dumps(recipe, JSON_COMPACT);
    json_decref(recipe);
    snprintf(epoch, sizeof epoch, "%lld", (long long)next.epoch);
    snprintf(sample, sizeof sample, "%lld", (long long)next.sample);
    wf_note notes[] = {{"weft", WEFT_VERSION},
                       {"recipe", recipe_text ? recipe_text : ""},
                       {"plan", wf_plan_text(j->plan)},
                       {"epoch", epoch},
                       {"sample", sample}};
    path_in(j->c, "state.safetensors", path, sizeof path);
    wf_status status = wf_trainer_save_state(trainer, path, notes, sizeof notes / sizeof *notes);
    free(recipe_text);
    if (status != WF_OK) return status;
    path_in(j->c, "model.safetensors", path, sizeof path);
    return wf_trainer_save(trainer, path);
}

/* Whether the value leaves the choice to weft, which is then no contradiction. */
static bool is_open(option_id id, const char *text) {
    if (id == OPT_stem) return !strcmp(text, "auto");
    if (id == OPT_micro && !strcmp(text, "auto")) return true;
    return (id == OPT_micro || id == OPT_lanes || id == OPT_threads) && !strcmp(text, "0");
}

/* What was given must agree with what was recorded; what was not given is taken over. */
static exit_status merge(cli *c, const options *recorded) {
    options *o = &c->o;
    for (option_id id = 0; id < N_OPTIONS; id++) {
        char name[TEXT_BYTES], typed[TEXT_BYTES], was[TEXT_BYTES];
        if (option_table[id].scope != OF_RECIPE) continue;
        const char *old = option_text(recorded, id, was);
        if (!option_is_given(o, id) || is_open(id, option_text(o, id, typed))) {
            if (!option_is_given(recorded, id)) continue;
            if (!option_set(o, id, old)) return complain(EXIT_FAILED, "%s", o->error);
            o->given[id] = true;
            continue;
        }
        const char *new = option_text(o, id, typed);
        if (strcmp(new, old))
            return complain(EXIT_USAGE,
                            "--resume: the run in %s has %s %s, not %s; leave the option out, or "
                            "start another run",
                            o->out, option_name(name, id), old, new);
    }
    return EXIT_DONE;
}

exit_status checkpoint_read_recipe(cli *c) {
    char path[4096], *text = NULL;
    if (!c->o.out) return complain(EXIT_USAGE, "--resume wants --out, the folder of the run");
    path_in(c, "state.safetensors", path, sizeof path);
    wf_status status = wf_trainer_state_note(c->ctx, path, "recipe", &text);
    if (status != WF_OK) return complain_of(c, status);
    if (!text) return complain(EXIT_FAILED, "%s holds no recipe; a run cannot go on from it", path);
    options recorded;
    options_init(&recorded);
    exit_status bad = EXIT_DONE;
    if (!options_read_json(&recorded, FOR_TRAIN, text, strlen(text), path))
        bad = complain(EXIT_FAILED, "%s", recorded.error);
    else
        bad = merge(c, &recorded);
    options_release(&recorded);
    wf_text_free(c->ctx, text);
    return bad;
}

static exit_status read_place(const cli *c, const char *path, const char *key, int64_t *value_out) {
    char *text = NULL;
    wf_status status = wf_trainer_state_note(c->ctx, path, key, &text);
    if (status != WF_OK) return complain_of(c, status);
    bool good = text && text_to_int(text, value_out) && *value_out >= 0;
    wf_text_free(c->ctx, text);
    return good ? EXIT_DONE : complain(EXIT_FAILED, "%s: its '%s' is no number", path, key);
}

exit_status checkpoint_load(const job *j, wf_trainer *trainer, position *next_out) {
    char path[4096];
    path_in(j->c, "state.safetensors", path, sizeof path);
    exit_status bad = read_place(j->c, path, "epoch", &next_out->epoch);
    if (!bad) bad = read_place(j->c, path, "sample", &next_out->sample);
    if (bad) return bad;
    return complain_of(j->c, wf_trainer_load_state(trainer, path));
}
