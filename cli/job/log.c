/* The log of a run: one JSON object a line, and the same as events. */
#include "job/log.h"

#include "common/events.h"
#include "job/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static exit_status failed(const log_file *log, int code) {
    return complain(EXIT_FAILED, "the log %.300s cannot be written: %s", log->path, strerror(code));
}

static double seconds_since_1970(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Both copy the lines of old steps. `in` may be NULL. */
static bool copy_lines(FILE *in, FILE *out, int64_t keep_steps, int64_t *tested_step_out) {
    char *line = NULL;
    size_t bytes = 0;
    while (in && getline(&line, &bytes, in) > 0) {
        json_t *entry = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const json_t *step = json_object_get(entry, "step");
        bool is_kept = json_is_integer(step) && json_integer_value(step) <= keep_steps;
        if (is_kept) fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line); /* its end may lack */
        if (is_kept && json_object_get(entry, "test_loss"))
            *tested_step_out = json_integer_value(step);
        json_decref(entry);
    }
    free(line);
    return true;
}

static bool copy_events(FILE *in, FILE *out, int64_t keep_steps, int64_t *tested_step_out) {
    (void)tested_step_out;
    return events_copy(in, out, seconds_since_1970(), keep_steps);
}

typedef bool (*copy_function)(FILE *in, FILE *out, int64_t keep_steps, int64_t *tested_step_out);

/* Reads the part of a file to keep into memory; the caller frees *text_out. */
static wf_status read_old(const cli *c, const char *path, copy_function copy, int64_t keep_steps,
                          int64_t *tested_step_out, char **text_out, size_t *n_out) {
    int fd = -1;
    bool is_new = access(path, F_OK) && errno == ENOENT;
    FILE *out = open_memstream(text_out, n_out), *in = NULL;
    wf_status status = out ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK && keep_steps && !is_new) status = wf_file_open(c->ctx, path, &fd, NULL);
    if (fd >= 0 && !(in = fdopen(fd, "r"))) close(fd);
    if (status == WF_OK && !copy(in, out, keep_steps, tested_step_out)) status = WF_NO_MEMORY;
    if (in && ferror(in)) status = wf_context_fail(c->ctx, WF_IO, "the old log cannot be read");
    if (in) fclose(in);
    if (out && fclose(out)) status = WF_NO_MEMORY;
    return status;
}

/* Opens no link, and no file that would block the call. */
static FILE *open_end(const char *path) {
    int fd = open(path, O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "a");
    if (!file && fd >= 0) close(fd);
    return file;
}

static exit_status open_file(log_file *log, const cli *c, const char *dir, const char *name,
                             copy_function copy, int64_t keep_steps, int64_t *tested_step_out) {
    char *text = NULL;
    size_t n = 0;
    snprintf(log->path, sizeof log->path, "%s/%s", dir, name);
    wf_status status = read_old(c, log->path, copy, keep_steps, tested_step_out, &text, &n);
    if (status == WF_OK) status = wf_file_replace(c->ctx, log->path, text, n);
    free(text);
    if (status != WF_OK) return complain_of(c, status);
    log->file = open_end(log->path);
    return log->file ? EXIT_DONE : failed(log, errno);
}

exit_status log_open(run_log *log, const cli *c, const char *dir, int64_t keep_steps) {
    int64_t *tested = &log->tested_step;
    log->lines.file = log->events.file = NULL;
    *tested = -1;
    if (!dir) return EXIT_DONE;
    TRY(open_file(&log->lines, c, dir, "log.jsonl", copy_lines, keep_steps, tested));
    return open_file(&log->events, c, dir, LOG_EVENTS, copy_events, keep_steps, tested);
}

static exit_status write_line(const log_file *log, json_t *entry) {
    char *line = json_dumps(entry, JSON_COMPACT);
    bool good = line && fputs(line, log->file) >= 0 && fputc('\n', log->file) != EOF;
    int code = line ? errno : ENOMEM;
    free(line);
    json_decref(entry);
    return good ? EXIT_DONE : failed(log, code);
}

/* A point, as a field of the line and as an event under the name that it has in PyTorch's
 * tutorials. */
typedef struct point {
    const char *field, *tag; /* tag NULL: in the line only */
    double value;
} point;

static exit_status write_points(run_log *log, int64_t step, int64_t epoch, const point *points,
                                size_t n) {
    event_scalar scalars[EVENTS_SCALARS];
    size_t n_scalars = 0;
    if (!log->lines.file) return EXIT_DONE;
    json_t *entry = json_pack("{s:I, s:I}", "step", (json_int_t)step, "epoch", (json_int_t)epoch);
    for (size_t k = 0; k < n; k++) {
        json_object_set_new(entry, points[k].field, json_number(points[k].value));
        if (points[k].tag) scalars[n_scalars++] = (event_scalar){points[k].tag, points[k].value};
    }
    TRY(write_line(&log->lines, entry));
    bool good = events_write(log->events.file, seconds_since_1970(), step, scalars, n_scalars);
    if (!good) return failed(&log->events, errno);
    return now_seconds() - log->flushed >= 1 ? log_flush(log) : EXIT_DONE;
}

exit_status log_step(run_log *log, int64_t step, int64_t epoch, const wf_step_result *result,
                     double ms, bool has_accuracy, int64_t n_skipped) {
    point points[EVENTS_SCALARS] = {{"loss", "Loss/train", result->loss},
                                    {"lr", "Learning rate", result->lr},
                                    {"ms", NULL, ms}};
    size_t n = 3;
    if (has_accuracy && result->n_rows > 0)
        points[n++] =
            (point){"accuracy", "Accuracy/train", (double)result->n_hits / (double)result->n_rows};
    if (result->gradient_norm > 0)
        points[n++] = (point){"gradient_norm", "Gradient norm", result->gradient_norm};
    if (n_skipped) points[n++] = (point){"skipped", NULL, (double)n_skipped};
    return write_points(log, step, epoch, points, n);
}

exit_status log_test(run_log *log, int64_t step, int64_t epoch, double loss, double accuracy) {
    const point points[] = {{"test_loss", "Loss/test", loss},
                            {"test_accuracy", "Accuracy/test", accuracy}};
    if (step == log->tested_step) return EXIT_DONE;
    TRY(write_points(log, step, epoch, points, 2));
    return log_flush(log);
}

static exit_status flush(const log_file *log) {
    return log->file && fflush(log->file) ? failed(log, errno) : EXIT_DONE;
}

exit_status log_flush(run_log *log) {
    exit_status bad = flush(&log->lines);
    log->flushed = now_seconds();
    return bad ? bad : flush(&log->events);
}

static exit_status close_file(log_file *log) {
    FILE *file = log->file;
    log->file = NULL;
    return file && fclose(file) ? failed(log, errno) : EXIT_DONE;
}

exit_status log_close(run_log *log) {
    exit_status lines = close_file(&log->lines), events = close_file(&log->events);
    return lines ? lines : events;
}
