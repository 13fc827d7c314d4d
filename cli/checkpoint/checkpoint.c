/* Writing checkpoints: the trainer's state, the recipe and the place in the data. */
#include "checkpoint/checkpoint.h"
#include "common/text.h"
#include "job/report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void path_in(const cli *c, const char *name, char *path, size_t bytes) {
    snprintf(path, bytes, "%s/%s", c->o.out, name);
}

const char *checkpoint_path(const cli *c, const char *name, char path[4096]) {
    int n = snprintf(path, 4000, "%.3800s/%s.safetensors", c->o.out, name);
    if (access(path, F_OK)) snprintf(path + n, 4096 - (size_t)n, ".index.json");
    return path;
}

bool checkpoint_exists(const cli *c) {
    char path[4096];
    return access(checkpoint_path(c, "state", path), F_OK) == 0;
}

exit_status checkpoint_refuse_old(const cli *c) {
    char path[4096], *steps = NULL;
    path_in(c, "state.safetensors", path, sizeof path);
    if (!checkpoint_exists(c)) return EXIT_DONE;
    if (wf_trainer_state_metadata(c->ctx, path, "weft.n_steps", &steps) != WF_OK || !steps)
        return complain(EXIT_USAGE, "--out: %s already exists; choose another folder", path);
    complain(
        EXIT_USAGE,
        "--out: %s holds a run of %.20s steps: continue with --resume, or choose another folder",
        c->o.out, steps);
    wf_text_free(c->ctx, steps);
    return EXIT_USAGE;
}

exit_status checkpoint_describe(const job *j) {
    char path[4096], library[LIBRARY_BYTES];
    path_in(j->c, "run.json", path, sizeof path);
    json_t *about = json_pack("{s:s, s:s, s:s, s:o, s:o}", "weft", WEFT_VERSION, "library",
                              made_by_library(j->c, library), "plan", wf_plan_text(j->plan),
                              "recipe", options_recipe(&j->c->o), "data", report_data(j));
    char *text = json_dumps(about, JSON_INDENT(1)), *line = NULL;
    json_decref(about);
    int n = text ? asprintf(&line, "%s\n", text) : -1;
    free(text);
    if (n < 0) return complain(EXIT_FAILED, "%s cannot be written: no memory left", path);
    wf_status status = wf_file_replace(j->c->ctx, path, line, (size_t)n);
    free(line);
    return complain_of(j->c, status);
}

/* The recipe without the data's path: a file of tensors may come from anywhere, so it must not name
 * a file that --resume opens. */
char *checkpoint_recipe(const options *o) {
    json_t *recipe = options_recipe(o);
    json_object_del(recipe, option_about(OPT_data).key);
    char *text = json_dumps(recipe, JSON_COMPACT);
    json_decref(recipe);
    return text;
}

static char *tests_text(const scores *tests) {
    json_t *json = scores_json(tests);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return text;
}

char *checkpoint_record(const job *j, position next, const scores *tests, int64_t n_steps) {
    char library[LIBRARY_BYTES], numbers[3][TEXT_BYTES];
    const int64_t values[] = {n_steps, next.epoch, next.sample};
    char *recipe = checkpoint_recipe(&j->c->o), *tested = tests_text(tests),
         *about = about_text(j->c, &j->saved, j->model, j->data);
    for (int k = 0; k < 3; k++)
        snprintf(numbers[k], sizeof numbers[k], "%lld", (long long)values[k]);
    json_t *all =
        recipe && tested && about
            ? json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "weft.n_steps", numbers[0],
                        "epoch", numbers[1], "sample", numbers[2], "recipe", recipe, "data_hash",
                        j->data_hash, "weft", WEFT_VERSION, "library",
                        made_by_library(j->c, library), "tests", tested, ABOUT_KEY, about)
            : NULL;
    char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    free(recipe);
    free(tested);
    free(about);
    return text;
}

wf_status checkpoint_save_weights(const job *j, wf_trainer *trainer) {
    char path[4096];
    path_in(j->c, "model.safetensors", path, sizeof path);
    wf_status status = wf_trainer_save(trainer, path);
    if (status != WF_OK || !(j->c->o.recipe.ema > 0)) return status;
    path_in(j->c, "model_ema.safetensors", path, sizeof path);
    status = wf_trainer_use_average(trainer, 1);
    if (status == WF_OK) status = wf_trainer_save(trainer, path);
    return status == WF_OK ? wf_trainer_use_average(trainer, 0) : status;
}

wf_status checkpoint_save(const job *j, wf_trainer *trainer, position next, const scores *tests) {
    char path[4096], epoch[TEXT_BYTES], sample[TEXT_BYTES], library[LIBRARY_BYTES];
    char *recipe = checkpoint_recipe(&j->c->o), *tested = tests_text(tests);
    if (!recipe || !tested) {
        free(recipe);
        free(tested);
        return wf_context_fail(j->c->ctx, WF_NO_MEMORY, "no memory left");
    }
    snprintf(epoch, sizeof epoch, "%lld", (long long)next.epoch);
    snprintf(sample, sizeof sample, "%lld", (long long)next.sample);
    wf_metadata about[] = {{"weft", WEFT_VERSION},      {"library", made_by_library(j->c, library)},
                           {"recipe", recipe},          {"plan", wf_plan_text(j->plan)},
                           {"data_hash", j->data_hash}, {"epoch", epoch},
                           {"sample", sample},          {"tests", tested}};
    path_in(j->c, "state.safetensors", path, sizeof path);
    wf_status status = wf_trainer_save_state(trainer, path, about, sizeof about / sizeof *about);
    free(recipe);
    free(tested);
    return status == WF_OK ? checkpoint_save_weights(j, trainer) : status;
}
