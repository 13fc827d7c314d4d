/* Cluster files: a table of numbers, and the levels of links. */
#include "cluster/cluster.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>
#include <unistd.h>
#include <weft/file.h>

#define PATH_TEXT 96
#define MAX_NODES 1e6
#define MAX_TOTAL 1e8

typedef struct number {
    const char *path;
    size_t offset;
    double least, most, missing;
} number;

static const number numbers[] = {
#define NUMBER(path, member, least, most, missing)                                                 \
    {path, offsetof(struct wf_cluster, member), least, most, missing},
    WFI_CLUSTER_NUMBERS(NUMBER)
#undef NUMBER
};

/* The numbers of a level. */
static const number level_numbers[] = {
    {"count", offsetof(wfi_level, count), 1, MAX_NODES, NAN},
    {"bandwidth", offsetof(wfi_level, bandwidth), 1e3, 1e15, NAN},
    {"latency_us", offsetof(wfi_level, latency_us), 0, 1e7, NAN},
};

typedef struct reader {
    wf_cluster *c;
    const char *where;
    bool is_given[WFI_COUNT(numbers)];
    bool has_name;
} reader;

static const char *name_of(int i) {
    if ((size_t)i < WFI_COUNT(numbers)) return numbers[i].path;
    static const char *const others[] = {"name",          "about",  "device.name",
                                         "software.name", "levels", "device.product.tiles"};
    size_t k = (size_t)i - WFI_COUNT(numbers);
    return k < WFI_COUNT(others) ? others[k] : NULL;
}

static wf_status refuse_key(const reader *r, const char *path) {
    const char *nearest = wfi_nearest_name(name_of, path);
    return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: '%.80s' is not a field of a cluster%s%s%s",
                    r->where, path, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                    nearest ? "'?" : "");
}

/* `value` at `path` into the member of `to`. */
static wf_status read_number(const reader *r, const number *n, const char *path,
                             const json_t *value, void *to) {
    double x = json_number_value(value);
    if (!json_is_number(value))
        return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: %s is not a number", r->where, path);
    if (!(x >= n->least && x <= n->most))
        return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: %s is %g; it must be from %g to %g", r->where,
                        path, x, n->least, n->most);
    memcpy((char *)to + n->offset, &x, sizeof x);
    return WF_OK;
}

static wf_status read_name(const reader *r, const char *path, const json_t *value,
                           char name[WFI_CLUSTER_NAME]) {
    const char *text = json_string_value(value);
    size_t n = text ? strlen(text) : 0;
    if (!n || n >= WFI_CLUSTER_NAME)
        return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: %s is not a text of 1 to %d bytes", r->where,
                        path, WFI_CLUSTER_NAME - 1);
    memcpy(name, text, n + 1);
    return WF_OK;
}

/* ---- levels ---- */

static wf_status read_level_field(const reader *r, const char *key, const char *path,
                                  const json_t *value, wfi_level *level) {
    for (size_t k = 0; k < WFI_COUNT(level_numbers); k++)
        if (!strcmp(key, level_numbers[k].path))
            return read_number(r, &level_numbers[k], path, value, level);
    if (!strcmp(key, "name")) return read_name(r, path, value, level->name);
    if (!strcmp(key, "shared") && json_is_boolean(value)) {
        level->is_shared = json_is_true(value);
        return WF_OK;
    }
    if (!strcmp(key, "shared"))
        return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: %s is not true or false", r->where, path);
    return strcmp(key, "of") ? refuse_key(r, path) : WF_OK;
}

/* A level joins members of the level before it. */
static wf_status check_level(const reader *r, int i, const json_t *json) {
    const wfi_level *level = &r->c->levels[i];
    const char *of = json_string_value(json_object_get(json, "of"));
    const char *before = i ? r->c->levels[i - 1].name : "device";
    static const char *const needed[] = {"name", "of", "count", "bandwidth", "latency_us"};
    for (size_t k = 0; k < WFI_COUNT(needed); k++)
        if (!json_object_get(json, needed[k]))
            return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: levels[%d].%s is missing", r->where, i,
                            needed[k]);
    if (!of || strcmp(of, before))
        return wfi_fail(r->c->ctx, WF_CORRUPT,
                        "%s: levels[%d] links members called '%.48s'; the level before is '%s'",
                        r->where, i, of ? of : "", before);
    if (level->count != floor(level->count))
        return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: levels[%d].count is %g, not a whole number",
                        r->where, i, level->count);
    return WF_OK;
}

static wf_status read_level(const reader *r, int i, json_t *json) {
    char path[PATH_TEXT];
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: levels[%d] is not an object", r->where, i);
    json_object_foreach(json, key, value) {
        snprintf(path, sizeof path, "levels[%d].%.60s", i, key);
        WF_TRY(read_level_field(r, key, path, value, &r->c->levels[i]));
    }
    return check_level(r, i, json);
}

static wf_status read_levels(const reader *r, const json_t *levels) {
    size_t n = json_array_size(levels);
    if (!json_is_array(levels) || n > WFI_MAX_LEVELS)
        return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: levels is not an array of at most %d", r->where,
                        WFI_MAX_LEVELS);
    r->c->n_levels = (int)n;
    for (int i = 0; i < (int)n; i++) WF_TRY(read_level(r, i, json_array_get(levels, (size_t)i)));
    if ((double)wf_cluster_n_devices(r->c) <= MAX_TOTAL) return WF_OK;
    return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: the levels have more than %g devices", r->where,
                    MAX_TOTAL);
}

/* ---- tiles ---- */

static wf_status read_tile(const reader *r, int i, const json_t *json) {
    wfi_tile *t = &r->c->tiles[i];
    t->m = json_number_value(json_array_get(json, 0));
    t->n = json_number_value(json_array_get(json, 1));
    t->share = json_number_value(json_array_get(json, 2));
    bool good = json_array_size(json) == 3 && t->m >= 1 && t->m <= 4096 && t->n >= 1 &&
                t->n <= 4096 && t->share >= 0.01 && t->share <= 1;
    if (good) return WF_OK;
    return wfi_fail(r->c->ctx, WF_CORRUPT,
                    "%s: device.product.tiles[%d] is not [rows, columns, share]: 1 to 4096, 1 to "
                    "4096, 0.01 to 1",
                    r->where, i);
}

static wf_status read_tiles(const reader *r, const json_t *tiles) {
    size_t n = json_array_size(tiles);
    if (!json_is_array(tiles) || n < 1 || n > WFI_MAX_TILES)
        return wfi_fail(r->c->ctx, WF_CORRUPT,
                        "%s: device.product.tiles is not an array of 1 to %d", r->where,
                        WFI_MAX_TILES);
    r->c->n_tiles = (int)n;
    for (int i = 0; i < (int)n; i++) WF_TRY(read_tile(r, i, json_array_get(tiles, (size_t)i)));
    return WF_OK;
}

/* ---- the whole ---- */

/* Returns whether an object at `path` may have fields. */
static bool is_object(const char *path) {
    size_t n = strlen(path);
    for (int i = 0; name_of(i); i++)
        if (!strncmp(name_of(i), path, n) && name_of(i)[n] == '.') return true;
    return false;
}

static wf_status read_object(reader *r, const json_t *json, const char *prefix);

static wf_status read_field(reader *r, const char *path, const json_t *value) {
    for (size_t k = 0; k < WFI_COUNT(numbers); k++)
        if (!strcmp(path, numbers[k].path)) {
            r->is_given[k] = true;
            return read_number(r, &numbers[k], path, value, r->c);
        }
    char unused[WFI_CLUSTER_NAME];
    if (!strcmp(path, "levels")) return read_levels(r, value);
    if (!strcmp(path, "device.product.tiles")) return read_tiles(r, value);
    if (!strcmp(path, "about") && json_is_string(value)) return WF_OK;
    if (!strcmp(path, "name")) {
        r->has_name = true;
        return read_name(r, path, value, r->c->name);
    }
    if (!strcmp(path, "device.name") || !strcmp(path, "software.name"))
        return read_name(r, path, value, unused);
    if (!is_object(path)) return refuse_key(r, path);
    return read_object(r, value, path);
}

/* The table of names bounds how deep this goes. */
static wf_status read_object(reader *r, const json_t *json, const char *prefix) {
    char path[PATH_TEXT];
    const char *key;
    json_t *value;
    if (!json_is_object(json))
        return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: %s is not an object", r->where,
                        *prefix ? prefix : "the file");
    json_object_foreach((json_t *)(uintptr_t)json, key, value) {
        snprintf(path, sizeof path, "%.40s%s%.50s", prefix, *prefix ? "." : "", key);
        WF_TRY(read_field(r, path, value));
    }
    return WF_OK;
}

static wf_status read_all(reader *r, const json_t *json) {
    WF_TRY(read_object(r, json, ""));
    if (!r->has_name) return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: name is missing", r->where);
    for (size_t k = 0; k < WFI_COUNT(numbers); k++) {
        if (r->is_given[k]) continue;
        if (isnan(numbers[k].missing))
            return wfi_fail(r->c->ctx, WF_CORRUPT, "%s: %s is missing", r->where, numbers[k].path);
        memcpy((char *)r->c + numbers[k].offset, &numbers[k].missing, sizeof(double));
    }
    return WF_OK;
}

wf_status wf_cluster_parse(wf_context *ctx, const char *text, size_t n_bytes, const char *where,
                           wf_cluster **cluster_out) {
    json_error_t error;
    if (n_bytes > WFI_MAX_FILE_BYTES)
        return wfi_fail(ctx, WF_CORRUPT, "%s: %zu bytes; a cluster file has at most %d", where,
                        n_bytes, WFI_MAX_FILE_BYTES);
    json_t *json = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json) return wfi_fail(ctx, WF_CORRUPT, "%s, line %d: %s", where, error.line, error.text);
    reader r = {.where = where, .c = wfi_alloc(ctx, 1, sizeof *r.c, "a cluster")};
    wf_status status = r.c ? WF_OK : WF_NO_MEMORY;
    if (r.c) {
        r.c->ctx = ctx;
        r.c->tiles[0] = (wfi_tile){1, 1, 1};
        r.c->n_tiles = 1;
        status = read_all(&r, json);
    }
    json_decref(json);
    if (status == WF_OK)
        *cluster_out = r.c;
    else
        wf_cluster_destroy(r.c);
    return status;
}

static wf_status read_file(wf_context *ctx, const char *path, int fd, uint64_t n_bytes,
                           wf_cluster **cluster_out) {
    if (n_bytes > WFI_MAX_FILE_BYTES)
        return wfi_fail(ctx, WF_CORRUPT, "%s: %llu bytes; a cluster file has at most %d", path,
                        (unsigned long long)n_bytes, WFI_MAX_FILE_BYTES);
    char *text = wfi_alloc(ctx, (size_t)n_bytes + 1, 1, "a cluster file");
    if (!text) return WF_NO_MEMORY;
    ssize_t n = read(fd, text, (size_t)n_bytes);
    wf_status status = n < 0 ? wfi_fail(ctx, WF_IO, "%s: the file cannot be read", path)
                             : wf_cluster_parse(ctx, text, (size_t)n, path, cluster_out);
    wfi_free(ctx, text);
    return status;
}

wf_status wf_cluster_load(wf_context *ctx, const char *name, wf_cluster **cluster_out) {
    const char *text = wf_cluster_shipped_text(name);
    uint64_t n_bytes;
    int fd;
    if (text) return wf_cluster_parse(ctx, text, strlen(text), name, cluster_out);
    if (!strchr(name, '/') && !strchr(name, '.'))
        return wfi_fail_unknown(ctx, WF_INVALID_ARG, wf_cluster_shipped, name,
                                "no cluster comes with weft under the name '%.60s', and a path "
                                "has a / or a dot",
                                name);
    WF_TRY(wf_file_open(ctx, name, &fd, &n_bytes));
    wf_status status = read_file(ctx, name, fd, n_bytes, cluster_out);
    close(fd);
    return status;
}
