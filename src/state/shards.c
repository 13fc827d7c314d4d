/* The index of a file that is divided into shards, as transformers writes it:
 *
 *     {"metadata": {"total_size": N}, "weight_map": {NAME: FILE, ...}}
 *
 * The index may be untrusted, so it can name only files of its own folder. */
#include "state/members.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PLACE_BYTES 65536
#define MAX_FILE_NAME   255

typedef struct parser {
    wf_context *ctx;
    const char *path;
    wfi_shard_index *index;
    bool has_map, has_metadata;
} parser;

static wf_status bad_place(const parser *p, const char *name, const char *why) {
    char shown[WFI_NAME_TEXT];
    return wfi_fail(p->ctx, WF_CORRUPT, "%s: tensor %s %s", p->path, wfi_name_text(name, shown),
                    why);
}

static wf_status check_file(const parser *p, const char *name, const json_t *value) {
    const char *file = json_string_value(value);
    char shown[WFI_NAME_TEXT], tensor[WFI_NAME_TEXT];
    if (!file) return bad_place(p, name, "has a location that is not a file name");
    bool is_plain = *file && strlen(file) <= MAX_FILE_NAME && !strchr(file, '/') &&
                    strcmp(file, ".") && strcmp(file, "..");
    for (const char *c = file; *c; c++) is_plain &= (unsigned char)*c >= ' ' && *c != 0x7f;
    if (is_plain) return WF_OK;
    return wfi_fail(
        p->ctx, WF_CORRUPT,
        "%s: tensor %s is listed in '%s', which is not the name of a file in the same folder",
        p->path, wfi_name_text(name, tensor), wfi_name_text(file, shown));
}

static wf_status place_member(void *self, wfi_members *place, const char *key) {
    parser *p = self;
    wfi_shard_index *index = p->index;
    json_t *value;
    WF_TRY(wfi_members_value(place, MAX_PLACE_BYTES, &value));
    wf_status status = check_file(p, key, value);
    if (status == WF_OK)
        status = WFI_GROW(p->ctx, index->places, index->n_places, index->capacity, p->path);
    if (status == WF_OK) {
        wfi_shard_place *added = &index->places[index->n_places++];
        added->name = wfi_pool_format(&index->pool, "%s", key);
        added->file = wfi_pool_format(&index->pool, "%s", json_string_value(value));
        if (!added->name || !added->file) status = WF_NO_MEMORY;
    }
    json_decref(value);
    return status;
}

static void take_number(void *self, const char *key, const json_t *value) {
    wfi_shard_index *index = self;
    bool is_total = !strcmp(key, "total_size") && json_is_integer(value);
    if (is_total) index->total_bytes = json_integer_value(value);
}

static wf_status index_member(void *self, wfi_members *place, const char *key) {
    parser *p = self;
    bool is_map = !strcmp(key, "weight_map"), is_metadata = !strcmp(key, "metadata");
    if ((is_map && p->has_map) || (is_metadata && p->has_metadata))
        return wfi_fail(p->ctx, WF_CORRUPT, "%s: %s occurs twice", p->path, key);
    p->has_map |= is_map;
    p->has_metadata |= is_metadata;
    if (is_map) return wfi_members_each(place, place_member, p);
    if (is_metadata)
        return wfi_metadata_read(place, take_number, p->index, &p->index->pool,
                                 &p->index->metadata);
    json_t *ignored;
    WF_TRY(wfi_members_value(place, place->n_bytes, &ignored));
    json_decref(ignored);
    return WF_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const wfi_shard_place *)a)->name, ((const wfi_shard_place *)b)->name);
}

static int compare_places(const void *a, const void *b) {
    int order = strcmp(((const wfi_shard_place *)a)->file, ((const wfi_shard_place *)b)->file);
    return order ? order : compare_names(a, b);
}

static wf_status parse(parser *p, const char *text, size_t n_bytes) {
    wfi_shard_index *index = p->index;
    wfi_members place = {p->ctx, p->path, "it", text, n_bytes, 0};
    WF_TRY(wfi_members_each(&place, index_member, p));
    WF_TRY(wfi_members_end(&place));
    if (!p->has_map)
        return wfi_fail(p->ctx, WF_CORRUPT,
                        "%s has no weight_map, so it is not an index of safetensors files",
                        p->path);
    if (!index->n_places) return WF_OK;
    qsort(index->places, index->n_places, sizeof *index->places, compare_names);
    for (size_t i = 1; i < index->n_places; i++)
        if (compare_names(&index->places[i - 1], &index->places[i]) == 0)
            return bad_place(p, index->places[i].name, "occurs twice");
    qsort(index->places, index->n_places, sizeof *index->places, compare_places);
    return WF_OK;
}

wf_status wfi_shard_index_parse(wf_context *ctx, const char *path, const char *text, size_t n_bytes,
                                wfi_shard_index *index_out) {
    wfi_shard_index index = {.total_bytes = -1};
    wfi_pool_init(&index.pool, ctx);
    parser p = {.ctx = ctx, .path = path, .index = &index};
    wf_status status = parse(&p, text, n_bytes);
    if (status == WF_OK)
        *index_out = index;
    else
        wfi_shard_index_release(&index);
    return status;
}

void wfi_shard_index_release(wfi_shard_index *index) {
    wf_context *ctx = index->pool.ctx;
    wfi_free(ctx, index->places);
    wfi_free(ctx, index->metadata.pairs);
    wfi_pool_release(&index->pool);
}
