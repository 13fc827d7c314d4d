/* Reading the log back: a run that continues after a restart reports all of its steps. */
#include "job/log.h"

#include <math.h>
#include <stdlib.h>

/* Returns the samples of the step after `n_done` steps. */
static int64_t samples_of(const job *j, int64_t n_done) {
    int64_t batch = j->c->o.recipe.batch, left = j->about.n_train - n_done % j->n_epoch * batch;
    return left < batch ? left : batch;
}

/* Fills both arrays, which begin with the step after `first`. */
static void read_lines(FILE *file, int64_t first, int64_t last, double *loss, double *ms,
                       int64_t *n_skipped) {
    char *line = NULL;
    size_t bytes = 0;
    while (getline(&line, &bytes, file) > 0) {
        json_t *entry = json_loads(line, 0, NULL);
        const json_t *step = json_object_get(entry, "step");
        int64_t k = json_is_integer(step) ? json_integer_value(step) - first - 1 : -1;
        if (k >= 0 && k < last - first && json_object_get(entry, "ms")) {
            loss[k] = json_member(entry, "loss");
            ms[k] = json_member(entry, "ms");
            if (json_object_get(entry, "skipped"))
                *n_skipped += (int64_t)json_member(entry, "skipped");
        }
        json_decref(entry);
    }
    free(line);
}

exit_status log_read(const run_log *log, const job *j, int64_t first, int64_t last, record *r) {
    int64_t n = last - first;
    if (!log->lines.file || n <= 0) return EXIT_DONE;
    double *loss = calloc((size_t)n, sizeof *loss), *ms = calloc((size_t)n, sizeof *ms);
    FILE *file = fopen(log->lines.path, "re");
    bool is_whole = loss && ms;
    for (int64_t k = 0; k < n && is_whole; k++) loss[k] = ms[k] = NAN;
    if (file && is_whole) read_lines(file, first, last, loss, ms, &r->n_skipped);
    if (file) fclose(file);
    for (int64_t k = 0; k < n && is_whole; k++)
        is_whole = record_add(r, loss[k], ms[k], job_items(j, samples_of(j, first + k)));
    free(loss);
    free(ms);
    return is_whole ? EXIT_DONE : complain(EXIT_FAILED, "no memory left");
}
