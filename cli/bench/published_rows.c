/* Reading rows of published runs. */
#include "bench/published.h"
#include "samples.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/file.h>

#define MAX_TEXT 400

typedef struct field {
    const char *name;
    size_t offset;
    double least, most;
    bool is_optional;
} field;

#define AT(member) offsetof(published_row, member)

static const field texts[] = {
    {"name", AT(name), 1, MAX_TEXT, false},   {"source", AT(source), 0, MAX_TEXT, true},
    {"cluster", AT(cluster), 1, 4096, false}, {"dtype", AT(dtype), 1, 8, false},
    {"plan", AT(plan), 0, MAX_TEXT, false},   {NULL},
};
static const field counts[] = {
    {"gpus", AT(n_gpus), 1, 1e8, false},
    {"batch", AT(batch), 1, 1e9, false},
    {"microbatch", AT(n_micro_samples), 1, 1e9, false},
    {NULL},
};
static const field reals[] = {
    {"published_s", AT(seconds), 1e-9, 1e12, true},
    {"published_gb", AT(gb), 1e-9, 1e12, true},
    {NULL},
};
static const field model_texts[] = {{"family", AT(family), 1, 40, false}, {NULL}};
static const field model_counts[] = {
    {"layers", AT(layers), 1, 1e6, false}, {"hidden", AT(hidden), 1, 1e7, false},
    {"heads", AT(heads), 1, 1e6, false},   {"vocab", AT(vocab), 1, 1e9, false},
    {"tokens", AT(tokens), 1, 1e8, false}, {"kv_heads", AT(kv_heads), 1, 1e6, true},
    {"ffn", AT(ffn), 1, 1e8, true},        {NULL},
};

/* A row of a file, while it is read. */
typedef struct reader {
    const char *where;
    size_t number; /* from 1 */
    published_row *row;
} reader;

static exit_status refuse(const reader *r, const char *name, const char *why) {
    return complain(EXIT_FAILED, "%s: row %zu: %.80s %s", r->where, r->number, name, why);
}

static const field *find_field(const field *fields, const char *name) {
    for (; fields->name; fields++)
        if (!strcmp(fields->name, name)) return fields;
    return NULL;
}

/* ---- one field each ---- */

static exit_status read_text(const reader *r, const field *f, const json_t *value) {
    const char *text = json_string_value(value);
    size_t n = text ? strlen(text) : 0;
    if (!text || n < (size_t)f->least || n > (size_t)f->most)
        return refuse(r, f->name, "is not a text of its length");
    if (text_has_control(text)) return refuse(r, f->name, "holds a control character");
    memcpy((char *)r->row + f->offset, &text, sizeof text);
    return EXIT_DONE;
}

static exit_status read_count(const reader *r, const field *f, const json_t *value) {
    double x = json_number_value(value);
    if (!json_is_number(value) || x < f->least || x > f->most || x != floor(x))
        return complain(EXIT_FAILED, "%s: row %zu: %s is not a whole number from %.0f to %.0f",
                        r->where, r->number, f->name, f->least, f->most);
    int64_t n = (int64_t)x;
    memcpy((char *)r->row + f->offset, &n, sizeof n);
    return EXIT_DONE;
}

static exit_status read_real(const reader *r, const field *f, const json_t *value) {
    double x = json_is_null(value) ? NAN : json_number_value(value);
    if (!json_is_null(value) && !(x >= f->least && x <= f->most))
        return refuse(r, f->name, "is neither null nor a positive number");
    memcpy((char *)r->row + f->offset, &x, sizeof x);
    return EXIT_DONE;
}

static exit_status read_model_field(const reader *r, const char *name, const json_t *value) {
    const field *text = find_field(model_texts, name), *count = find_field(model_counts, name);
    if (text) return read_text(r, text, value);
    if (count) return read_count(r, count, value);
    return refuse(r, name, "is not a field of a row's model");
}

static exit_status read_field(const reader *r, const char *name, const json_t *value) {
    const field *text = find_field(texts, name), *count = find_field(counts, name),
                *real = find_field(reals, name);
    if (text) return read_text(r, text, value);
    if (count) return read_count(r, count, value);
    if (real) return read_real(r, real, value);
    if (!strcmp(name, "model") || !strcmp(name, "about")) return EXIT_DONE;
    if (strcmp(name, "fits") != 0) return refuse(r, name, "is not a field of a row");
    if (!json_is_boolean(value)) return refuse(r, name, "is not true or false");
    r->row->fits = json_is_true(value);
    return EXIT_DONE;
}

/* ---- a row ---- */

typedef exit_status (*read_one)(const reader *r, const char *name, const json_t *value);

static exit_status read_object(const reader *r, const char *name, const json_t *object,
                               read_one one) {
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return refuse(r, name, "is missing or not an object");
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        exit_status bad = one(r, key, value);
        if (bad) return bad;
    }
    return EXIT_DONE;
}

static exit_status check_given(const reader *r, const json_t *object, const field *fields) {
    for (; fields->name; fields++)
        if (!fields->is_optional && !json_object_get(object, fields->name))
            return refuse(r, fields->name, "is missing");
    return EXIT_DONE;
}

static exit_status check_row(const reader *r, const json_t *json) {
    const json_t *model = json_object_get(json, "model");
    exit_status bad = check_given(r, json, texts);
    if (!bad) bad = check_given(r, json, counts);
    if (!bad) bad = check_given(r, model, model_texts);
    if (!bad) bad = check_given(r, model, model_counts);
    if (bad) return bad;
    if (strcmp(r->row->family, "gpt") != 0 && strcmp(r->row->family, "llama") != 0)
        return refuse(r, r->row->family, "is not a family of models; there are gpt and llama");
    bool is_told = json_is_number(json_object_get(json, "published_s")) ||
                   json_is_number(json_object_get(json, "published_gb")) || r->row->fits >= 0;
    return is_told ? EXIT_DONE : refuse(r, "published_s", "is missing");
}

static exit_status read_row(const char *where, size_t number, const json_t *json,
                            published_row *row) {
    *row = (published_row){.source = "", .seconds = NAN, .gb = NAN, .fits = -1};
    reader r = {where, number, row};
    exit_status bad = read_object(&r, "the row", json, read_field);
    if (!bad) bad = read_object(&r, "model", json_object_get(json, "model"), read_model_field);
    return bad ? bad : check_row(&r, json);
}

/* ---- a file ---- */

static exit_status add_rows(published *p, const json_t *rows, const char *where) {
    size_t n = json_array_size(rows);
    if (!json_is_array(rows) || !n || n > PUBLISHED_MAX_ROWS)
        return complain(EXIT_FAILED, "%s: rows is not an array of 1 to %d rows", where,
                        PUBLISHED_MAX_ROWS);
    published_row *all = realloc(p->rows, (p->n_rows + n) * sizeof *all);
    if (!all) return complain(EXIT_FAILED, "no memory left");
    p->rows = all;
    for (size_t i = 0; i < n; i++) {
        exit_status bad = read_row(where, i + 1, json_array_get(rows, i), &all[p->n_rows]);
        if (bad) return bad;
        p->n_rows++;
    }
    return EXIT_DONE;
}

/* Texts of the rows live as long as `json`. */
static exit_status keep_json(published *p, json_t *json) {
    if (!p->json) p->json = json_array();
    if (p->json && !json_array_append_new(p->json, json)) return EXIT_DONE;
    return complain(EXIT_FAILED, "no memory left");
}

exit_status published_parse(published *p, const char *text, size_t n_bytes, const char *where) {
    json_error_t error;
    json_t *json = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json) return complain(EXIT_FAILED, "%s: line %d: %.160s", where, error.line, error.text);
    exit_status bad = keep_json(p, json);
    const char *key;
    json_t *value;
    if (bad) return bad;
    json_object_foreach(json, key, value) if (strcmp(key, "rows") != 0) return complain(
        EXIT_FAILED, "%s: '%.80s' is not a field; there is rows", where, key);
    return add_rows(p, json_object_get(json, "rows"), where);
}

exit_status published_read(const cli *c, published *p, const char *path) {
    uint64_t n_bytes;
    int fd;
    wf_status status = wf_file_open(c->ctx, path, &fd, &n_bytes);
    if (status != WF_OK) return complain_of(c, status);
    char *text = n_bytes <= PUBLISHED_MAX_BYTES ? malloc(n_bytes + 1) : NULL;
    ssize_t got = text ? read(fd, text, n_bytes) : -1;
    close(fd);
    exit_status bad = EXIT_DONE;
    if (n_bytes > PUBLISHED_MAX_BYTES)
        bad = complain(EXIT_FAILED, "%s: a file of rows has at most %d bytes", path,
                       PUBLISHED_MAX_BYTES);
    else if (got < 0 || (uint64_t)got != n_bytes)
        bad = complain(EXIT_FAILED, "%s cannot be read", path);
    if (!bad) bad = published_parse(p, text, n_bytes, path);
    free(text);
    return bad;
}

void published_release(published *p) {
    json_decref(p->json);
    free(p->rows);
}
