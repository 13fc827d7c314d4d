/* The log of a run: one JSON object a line. */
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static exit_status failed(const run_log *log, int code) {
    return complain(EXIT_FAILED, "the log %.300s cannot be written: %s", log->path, strerror(code));
}

/* Copies the lines of old steps. */
static void copy_lines(FILE *in, FILE *out, int64_t keep_steps) {
    char *line = NULL;
    size_t bytes = 0;
    while (getline(&line, &bytes, in) > 0) {
        json_t *entry = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const json_t *step = json_object_get(entry, "step");
        if (json_is_integer(step) && json_integer_value(step) <= keep_steps) fputs(line, out);
        json_decref(entry);
    }
    free(line);
}

/* The lines to keep, in memory; the caller frees *text_out. */
static wf_status read_lines(const cli *c, const char *path, int64_t keep_steps, char **text_out,
                            size_t *n_out) {
    int fd = -1;
    bool is_new = access(path, F_OK) && errno == ENOENT;
    FILE *out = open_memstream(text_out, n_out), *in = NULL;
    wf_status status = out ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK && keep_steps && !is_new) status = wf_file_open(c->ctx, path, &fd, NULL);
    if (fd >= 0 && !(in = fdopen(fd, "r"))) close(fd);
    if (in) copy_lines(in, out, keep_steps);
    if (in && ferror(in)) status = wf_context_fail(c->ctx, WF_IO, "the old log cannot be read");
    if (in) fclose(in);
    if (out && fclose(out)) status = WF_NO_MEMORY;
    return status;
}

/* Never through a link, and never to what would make the call wait. */
static FILE *open_end(const char *path) {
    int fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "a");
    if (!file && fd >= 0) close(fd);
    return file;
}

exit_status log_open(run_log *log, const cli *c, const char *dir, int64_t keep_steps) {
    char *text = NULL;
    size_t n = 0;
    log->file = NULL;
    if (!dir) return EXIT_DONE;
    snprintf(log->path, sizeof log->path, "%s/log.jsonl", dir);
    wf_status status = read_lines(c, log->path, keep_steps, &text, &n);
    if (status == WF_OK) status = wf_file_replace(c->ctx, log->path, text, n);
    free(text);
    if (status != WF_OK) return complain_of(c, status);
    log->file = open_end(log->path);
    return log->file ? EXIT_DONE : failed(log, errno);
}

static exit_status write_line(run_log *log, json_t *entry) {
    char *line = json_dumps(entry, JSON_COMPACT);
    bool good = line && fputs(line, log->file) >= 0 && fputc('\n', log->file) != EOF;
    int code = line ? errno : ENOMEM;
    free(line);
    json_decref(entry);
    return good ? EXIT_DONE : failed(log, code);
}

static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

exit_status log_step(run_log *log, int64_t step, int64_t epoch, const wf_step_result *result,
                     double ms, bool has_accuracy) {
    if (!log->file) return EXIT_DONE;
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

exit_status log_test(run_log *log, int64_t step, int64_t epoch, double loss, double accuracy) {
    if (!log->file) return EXIT_DONE;
    json_t *entry =
        json_pack("{s:I, s:I, s:o, s:o}", "step", (json_int_t)step, "epoch", (json_int_t)epoch,
                  "test_loss", number(loss), "test_accuracy", number(accuracy));
    exit_status bad = write_line(log, entry);
    return bad ? bad : log_flush(log);
}

exit_status log_flush(run_log *log) {
    return log->file && fflush(log->file) ? failed(log, errno) : EXIT_DONE;
}

exit_status log_close(run_log *log) {
    FILE *file = log->file;
    log->file = NULL;
    return file && fclose(file) ? failed(log, errno) : EXIT_DONE;
}
