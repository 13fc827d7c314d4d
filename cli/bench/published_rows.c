/* Reading rows of published runs. */
#include "bench/published.h"
#include "bench/rounds.h"
#include "common/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/file.h>

#define MAX_TEXT 400

typedef enum kind { TEXT, COUNT, REAL, TRUTH, OBJECT, ANY } kind;

typedef struct field {
    const char *path; /* in a row */
    kind kind;
    bool is_optional;
    double least, most; /* of a text: its length */
} field;

static const field fields[] = {
    {"name", TEXT, false, 1, MAX_TEXT},
    {"source", TEXT, true, 0, MAX_TEXT},
    {"cluster", TEXT, false, 1, 4096},
    {"dtype", TEXT, false, 1, 8},
    {"plan", TEXT, false, 0, MAX_TEXT},
    {"gpus", COUNT, false, 1, 1e8},
    {"batch", COUNT, false, 1, 1e9},
    {"microbatch", COUNT, false, 1, 1e9}, /* samples of a replica */
    {"cp", COUNT, true, 1, 1024},         /* context-parallel ranks, for each of the plan's */
    {"published_s", REAL, true, 1e-9, 1e12},
    {"published_gb", REAL, true, 1e-9, 1e12},
    {"fits", TRUTH, true, 0, 0},
    {"about", ANY, true, 0, 0},
    {"model", OBJECT, true, 0, 0},
    {"model.family", TEXT, false, 1, 40},
    {"model.layers", COUNT, false, 1, 1e6},
    {"model.hidden", COUNT, false, 1, 1e7},
    {"model.heads", COUNT, false, 1, 1e6},
    {"model.vocab", COUNT, false, 1, 1e9},
    {"model.tokens", COUNT, false, 1, 1e8},
    {"model.kv_heads", COUNT, true, 1, 1e6},
    {"model.ffn", COUNT, true, 1, 1e8},
};
#define N_FIELDS (sizeof fields / sizeof *fields)

/* `place` of a row: "rows.json: row 1 (name)". */
static exit_status refuse(const char *place, const char *name, const char *why) {
    return complain(EXIT_USAGE, "%s: %.80s %s", place, name, why);
}

static exit_status check_field(const char *place, const field *f, const char *name,
                               const json_t *value) {
    const char *text = json_string_value(value);
    double x = text ? (double)strlen(text) : json_number_value(value);
    bool is_within = x >= f->least && x <= f->most;
    if (f->kind == TEXT && (!text || !is_within))
        return refuse(place, name, "is not a text of its length");
    if (f->kind == TEXT && text_has_control(text))
        return refuse(place, name, "holds a control character");
    if (f->kind == COUNT && (!json_is_number(value) || !is_within || x != floor(x)))
        return complain(EXIT_USAGE, "%s: %s is not a whole number from %.0f to %.0f", place, name,
                        f->least, f->most);
    if (f->kind == REAL && !json_is_null(value) && (!json_is_number(value) || !is_within))
        return refuse(place, name, "is neither null nor a positive number");
    if (f->kind == TRUTH && !json_is_boolean(value))
        return refuse(place, name, "is not true or false");
    return EXIT_DONE;
}

/* Whether the field is one of the object, a row ("") or its model ("model."). */
static bool is_of(const field *f, const char *prefix) {
    return *prefix ? !strncmp(f->path, prefix, strlen(prefix)) : !strchr(f->path, '.');
}

static exit_status check_object(const char *place, const char *name, const json_t *object,
                                const char *prefix) {
    const char *key;
    json_t *value;
    size_t n = strlen(prefix);
    if (!json_is_object(object)) return refuse(place, name, "is missing or not an object");
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        const field *f = fields;
        while (f < fields + N_FIELDS && !(is_of(f, prefix) && !strcmp(f->path + n, key))) f++;
        if (f == fields + N_FIELDS)
            return refuse(place, key,
                          n ? "is not a field of a row's model" : "is not a field of a row");
        TRY(check_field(place, f, key, value));
    }
    for (const field *f = fields; f < fields + N_FIELDS; f++)
        if (is_of(f, prefix) && !f->is_optional && !json_object_get(object, f->path + n))
            return refuse(place, f->path + n, "is missing");
    return EXIT_DONE;
}

static exit_status check_row(const char *place, const json_t *row) {
    const json_t *model = json_object_get(row, "model");
    const char *family = row_text(model, "family");
    TRY(check_object(place, "the row", row, ""));
    TRY(check_object(place, "model", model, "model."));
    if (strcmp(family, "gpt") != 0 && strcmp(family, "llama") != 0)
        return refuse(place, family, "is not a family of models; there are gpt and llama");
    bool has_result = json_object_get(row, "fits") || !isnan(row_number(row, "published_s")) ||
                      !isnan(row_number(row, "published_gb"));
    return has_result ? EXIT_DONE : refuse(place, "published_s", "is missing");
}

/* ---- a file ---- */

static exit_status add_rows(json_t *all, const json_t *rows, const char *where) {
    size_t n = json_array_size(rows);
    exit_status bad = EXIT_DONE;
    if (!json_is_array(rows) || !n || n > PUBLISHED_MAX_ROWS)
        return complain(EXIT_USAGE, "%s: rows is not an array of 1 to %d rows", where,
                        PUBLISHED_MAX_ROWS);
    for (size_t i = 0; i < n && !bad; i++) {
        json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        char place[300];
        snprintf(place, sizeof place, "%.180s: row %zu%s%.60s%s", where, i + 1, name ? " (" : "",
                 name ? name : "", name ? ")" : "");
        bad = check_row(place, row);
        if (bad) break;
        json_object_set_new(row, "place", json_string(place));
        json_array_append(all, row);
    }
    return bad;
}

exit_status published_parse(json_t *rows, const char *text, size_t n_bytes, const char *where) {
    json_error_t error;
    json_t *json = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json) return complain(EXIT_USAGE, "%s: line %d: %.160s", where, error.line, error.text);
    const char *key;
    json_t *value;
    exit_status bad = EXIT_DONE;
    json_object_foreach(json, key, value) {
        if (strcmp(key, "rows") != 0 && !bad)
            bad = complain(EXIT_USAGE, "%s: '%.80s' is not a field; there is rows", where, key);
    }
    if (!bad) bad = add_rows(rows, json_object_get(json, "rows"), where);
    json_decref(json);
    return bad;
}

exit_status published_read(const cli *c, json_t *rows, const char *path) {
    uint64_t n_bytes;
    int fd;
    TRY(complain_of(c, wf_file_open(c->ctx, path, &fd, &n_bytes)));
    char *text = n_bytes <= PUBLISHED_MAX_BYTES ? malloc(n_bytes + 1) : NULL;
    ssize_t got = text ? read(fd, text, n_bytes) : -1;
    close(fd);
    exit_status bad = EXIT_DONE;
    if (n_bytes > PUBLISHED_MAX_BYTES)
        bad = complain(EXIT_FAILED, "%s: a file of rows has at most %d bytes", path,
                       PUBLISHED_MAX_BYTES);
    else if (got < 0 || (uint64_t)got != n_bytes)
        bad = complain(EXIT_FAILED, "%s cannot be read", path);
    if (!bad) bad = published_parse(rows, text, n_bytes, path);
    free(text);
    return bad;
}
