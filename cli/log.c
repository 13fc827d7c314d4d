/* The log of a run: one JSON object a line. */
#include "log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Copies the lines of old steps to a new file and puts it in the old one's place. */
static bool keep_lines(const char *path, int64_t keep_steps) {
    char temporary[4096], *line = NULL;
    size_t bytes = 0;
    snprintf(temporary, sizeof temporary, "%s.part", path);
    FILE *in = fopen(path, "r"), *out = in ? fopen(temporary, "w") : NULL;
    bool good = !in || out;
    while (in && out && getline(&line, &bytes, in) > 0) {
        json_t *entry = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const json_t *step = json_object_get(entry, "step");
        if (json_is_integer(step) && json_integer_value(step) <= keep_steps)
            good &= fputs(line, out) >= 0;
        json_decref(entry);
    }
    free(line);
    if (in) fclose(in);
    if (out) good &= fclose(out) == 0 && rename(temporary, path) == 0;
    return good;
}

bool log_open(run_log *log, const char *dir, int64_t keep_steps) {
    char path[4000];
    log->file = NULL;
    if (!dir) return true;
    snprintf(path, sizeof path, "%s/log.jsonl", dir);
    if (keep_steps && !keep_lines(path, keep_steps)) return false;
    log->file = fopen(path, keep_steps ? "a" : "w");
    return log->file != NULL;
}

static bool write_line(run_log *log, json_t *entry) {
    bool good = json_dumpf(entry, log->file, JSON_COMPACT) == 0 && fputc('\n', log->file) != EOF;
    json_decref(entry);
    return good;
}

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

bool log_step(run_log *log, int64_t step, int64_t epoch, const wf_step_result *result, double ms,
              bool has_accuracy) {
    if (!log->file) return true;
    json_t *entry =
        json_pack("{s:I, s:I, s:o, s:o, s:o}", "step", (json_int_t)step, "epoch", (json_int_t)epoch,
                  "loss", number(result->loss), "lr", number(result->lr), "ms", number(ms));
    if (has_accuracy && result->n_rows > 0)
        json_object_set_new(entry, "accuracy",
                            number((double)result->n_hits / (double)result->n_rows));
    if (result->gradient_norm > 0)
        json_object_set_new(entry, "gradient_norm", number(result->gradient_norm));
    return write_line(log, entry);
}

bool log_test(run_log *log, int64_t step, int64_t epoch, double loss, double accuracy) {
    if (!log->file) return true;
    json_t *entry =
        json_pack("{s:I, s:I, s:o, s:o}", "step", (json_int_t)step, "epoch", (json_int_t)epoch,
                  "test_loss", number(loss), "test_accuracy", number(accuracy));
    return write_line(log, entry) && fflush(log->file) == 0;
}

bool log_flush(run_log *log) {
    return !log->file || fflush(log->file) == 0;
}

bool log_close(run_log *log) {
    bool good = !log->file || fclose(log->file) == 0;
    log->file = NULL;
    return good;
}
