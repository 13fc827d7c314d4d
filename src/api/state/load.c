/* Loading: all of a file is looked at before any of it is moved, so one that is not good changes
 * nothing. */
#include "api/state/state.h"
#include "base/finite.h"
#include "base/names.h"
#include "state/match.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_MOMENT "optimizer.second_moment."
#define MAX_STEPS     (INT64_C(1) << 53) /* no run comes near, and counting on cannot overflow */

/* Refuses numbers that no step can have left. */
static wf_status check_values(const wfi_state_call *x, const wfi_state_part *now) {
    const float *values = (const float *)x->buffer;
    const char *name = now->tensor->name;
    bool is_square = !strncmp(name, SECOND_MOMENT, sizeof SECOND_MOMENT - 1);
    bool is_float = wfi_value_at(x->list.graph, now->tensor->value)->dtype == WF_F32;
    size_t n = is_float ? now->bytes / sizeof *values : 0, bad = wfi_find_not_finite(values, n);
    for (size_t i = 0; is_square && i < bad; i++)
        if (values[i] < 0) bad = i;
    if (bad == n) return WF_OK;
    return wfi_fail(x->t->ctx, WF_CORRUPT,
                    "%s: element %zu of %s is %g: a run cannot resume from it", x->path,
                    now->offset / sizeof *values + bad, name, (double)values[bad]);
}

static wf_status load_part(wfi_state_call *x, const wfi_state_part *now) {
    int i = x->index[now->tensor - x->list.tensors];
    if (i < 0) return WF_OK;
    bool reads = wfi_state_serves(x, now);
    bool counts = !x->moves && x->t->workers[wfi_state_served_by(x, now->pieces->rank)].is_local;
    if (reads)
        WF_TRY(wfi_safetensors_read_part(
            x->file, i, wfi_value_at(x->list.graph, now->tensor->value)->dtype, now->offset,
            x->buffer, now->bytes, counts ? &x->digests[now->tensor - x->list.tensors] : NULL));
    if (x->moves) return wfi_state_put(x, now);
    if (reads && x->refused == WF_OK) x->refused = check_values(x, now);
    return WF_OK;
}

/* Reads the number of steps: only digits are valid, as a run writes them. */
static wf_status read_steps(const wfi_state_call *x, int64_t *n_out) {
    const char *text = wf_safetensors_metadata(x->file, WFI_STEPS_KEY);
    char *end = NULL, shown[WFI_NAME_TEXT];
    if (!text)
        return wfi_fail(x->t->ctx, WF_CORRUPT,
                        "%s is not a training state: it does not record the number of steps (load "
                        "weights alone with --init)",
                        x->path);
    errno = 0;
    long long n = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    if (n < 0 || *end || errno || n > MAX_STEPS)
        return wfi_fail(x->t->ctx, WF_CORRUPT,
                        "%s: its " WFI_STEPS_KEY
                        " is '%s', which is not a number of steps from 0 to %lld",
                        x->path, wfi_name_text(text, shown), (long long)MAX_STEPS);
    *n_out = n;
    return WF_OK;
}

/* Files from before the first evaluation, or of other schedules, have no plateau entry. */
static wf_status read_plateau(const wfi_state_call *x, wfi_plateau *plateau_out) {
    const char *text = wf_safetensors_metadata(x->file, WFI_PLATEAU_KEY);
    wfi_plateau p = {0};
    char shown[WFI_NAME_TEXT];
    *plateau_out = p;
    if (!text) return WF_OK;
    char *end = (char *)text;
    int64_t *const counts[] = {&p.n_evaluated, &p.n_cuts, &p.n_bad};
    for (size_t k = 0; k < WFI_COUNT(counts); k++) *counts[k] = strtoll(end, &end, 10);
    p.best = strtod(end, &end);
    bool good = !*end && p.n_evaluated > 0 && p.n_cuts >= 0 && p.n_bad >= 0 &&
                p.n_cuts <= p.n_evaluated && p.n_evaluated <= MAX_STEPS && !isnan(p.best) &&
                p.n_bad <= p.n_evaluated - (p.best < INFINITY);
    *plateau_out = p;
    if (good) return WF_OK;
    return wfi_fail(x->t->ctx, WF_CORRUPT,
                    "%s: its " WFI_PLATEAU_KEY
                    " is '%s', which does not hold the evaluations, cuts of the learning rate, "
                    "evaluations without improvement, and the best loss",
                    x->path, wfi_name_text(text, shown));
}

/* Another order of sums would change bits without a word. States that do not name theirs are
 * taken. */
static wf_status compare_sums(const wfi_state_call *x) {
    char now[WFI_SUMS_BYTES], shown[WFI_NAME_TEXT];
    const char *then = wf_safetensors_metadata(x->file, WFI_SUMS_KEY);
    if (!then || !strcmp(then, wfi_state_sums(x->t, now))) return WF_OK;
    return wfi_fail(x->t->ctx, WF_INVALID_ARG,
                    "%s was saved by a run with %s in its recipe; this trainer's %s sums gradients "
                    "in another order, which changes bits: use the saved values",
                    x->path, wfi_name_text(then, shown), now);
}

static wf_status match(wfi_state_call *x) {
    wf_context *ctx = x->t->ctx;
    int n = x->list.n_tensors;
    wfi_wanted *wanted = wfi_alloc(ctx, (size_t)n, sizeof *wanted, "a list of tensors");
    if (!wanted) return WF_NO_MEMORY;
    for (int i = 0; i < n; i++) {
        const wfi_state_tensor *tensor = &x->list.tensors[i];
        wf_dtype dtype = wfi_value_at(x->list.graph, tensor->value)->dtype;
        wanted[i] = (wfi_wanted){tensor->name, dtype, tensor->shape};
    }
    wf_status status = wfi_match_weights(ctx, x->file, wanted, n, x->skip, x->index);
    wfi_free(ctx, wanted);
    return status;
}

static wf_status open_file(wfi_state_call *x, wfi_state_opened *o) {
    WF_TRY(wf_safetensors_open(x->t->ctx, x->path, &x->file));
    if (x->is_state) WF_TRY(read_steps(x, &o->n_steps));
    if (x->is_state) WF_TRY(read_plateau(x, &o->plateau));
    if (x->is_state) WF_TRY(compare_sums(x));
    o->n_files = wfi_safetensors_n_files(x->file);
    wfi_state_describe(x, 0, o);
    return match(x);
}

/* By rank 0's process, which has the file. */
static wf_status check_digests(const wfi_state_call *x) {
    for (int32_t i = 0; i < x->list.n_tensors && wfi_trainer_is_root(x->t); i++)
        if (x->index[i] >= 0)
            WF_TRY(wfi_safetensors_check_digest(x->file, x->index[i], x->digests[i]));
    return WF_OK;
}

/* All is looked at before any of it is moved: a file that is not good changes nothing. */
static wf_status load(wfi_state_call *x) {
    wf_trainer *t = x->t;
    wfi_state_opened o = {0};
    size_t n = (size_t)x->list.n_tensors;
    x->index = wfi_pool_alloc(&x->pool, n, sizeof *x->index);
    if (!x->index) return WF_NO_MEMORY;
    WF_TRY(wfi_state_create_digests(x));
    if (wfi_trainer_is_root(t)) WF_TRY(open_file(x, &o));
    WF_TRY(wfi_state_tell(x, &o));
    if (!wfi_trainer_is_root(t) && wf_safetensors_open(t->ctx, o.path, &x->file) != WF_OK)
        x->file = NULL;
    if (x->file && wfi_safetensors_n_files(x->file) != o.n_files) o.n_files = 0;
    WF_TRY(wfi_state_compare_files(x, &o));
    if (t->job) WF_TRY(wf_job_broadcast(t->job, x->index, n * sizeof *x->index));
    WF_TRY(wfi_state_visit_all(x, load_part));
    WF_TRY(wfi_state_gather_digests(x));
    WF_TRY(check_digests(x));
    /* A number may be bad because a bit has flipped: then the digest error is reported first. */
    WF_TRY(wfi_trainer_barrier(t, "compare digests"));
    WF_TRY(x->refused);
    WF_TRY(wfi_trainer_barrier(t, "check its part of a file"));
    bool was_spoiled = t->is_spoiled;
    t->is_spoiled = x->moves = true;
    WF_TRY(wfi_state_visit_all(x, load_part));
    t->is_spoiled = was_spoiled && !x->is_state;
    if (!x->is_state) return WF_OK;
    t->n_steps = o.n_steps;
    t->plateau = o.plateau;
    t->resets_hidden[WF_PROGRAM_TRAIN] = false;
    t->resets_hidden[WF_PROGRAM_FORWARD] = true; /* no file has that */
    return WF_OK;
}

static wf_status load_but(wfi_state_call *x) {
    wfi_text names;
    WF_TRY(load(x));
    if (!x->skipped_out) return WF_OK;
    wfi_text_init(&names, x->t->ctx);
    wfi_text_add(&names, "%s", "");
    for (int32_t i = 0; i < x->list.n_tensors; i++)
        if (wfi_names_has(x->skip, wfi_bare_name(x->list.tensors[i].name)))
            wfi_text_add(&names, "%s%s", names.n ? ", " : "", x->list.tensors[i].name);
    *x->skipped_out = names.data;
    return wfi_text_status(&names);
}

wf_status wf_trainer_load_weights_but(wf_trainer *t, const char *path, const char *skip,
                                      char **skipped_out) {
    wfi_state_call x = {.t = t, .path = path, .skip = skip, .skipped_out = skipped_out};
    WF_TRY(wfi_trainer_check_average(t, "load weights"));
    WF_TRY(wf_trainer_save_wait(t)); /* perhaps of the same file */
    return wfi_state_perform(&x, "load weights", WFI_STATE_WEIGHTS, load_but);
}

wf_status wf_trainer_load_weights(wf_trainer *t, const char *path) {
    return wf_trainer_load_weights_but(t, path, NULL, NULL);
}

wf_status wf_trainer_load_state(wf_trainer *t, const char *path) {
    WF_TRY(wfi_trainer_check_average(t, "load the state"));
    WF_TRY(wf_trainer_save_wait(t));
    return wfi_state_perform(&(wfi_state_call){.t = t, .path = path, .is_state = true},
                             "load its state", WFI_STATE_ALL, load);
}

wf_status wf_trainer_state_metadata(wf_context *ctx, const char *path, const char *key,
                                    char **value_out) {
    wf_safetensors *file;
    WF_TRY(wf_safetensors_open(ctx, path, &file));
    const char *value = wf_safetensors_metadata(file, key);
    char *copy = value ? wfi_strdup(ctx, value) : NULL;
    wf_safetensors_close(file);
    if (value && !copy) return WF_NO_MEMORY;
    *value_out = copy;
    return WF_OK;
}
