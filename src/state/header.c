#include "state/header.h"
#include "base/bytes.h"
#include "state/members.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* No honest entry comes near: a name is not part of it, and a shape is a few numbers. */
#define MAX_ENTRY_BYTES 65536

/* Types of the format with elements of whole bytes. The reader passes other types on unchanged, so
 * that a newer writer's file still gives its known tensors. */
static const struct {
    const char *name;
    uint64_t bytes;
} known[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
             {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
             {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};

typedef struct parser {
    wf_context *ctx;
    const char *path;
    uint64_t n_data_bytes;
    wfi_safetensors_index *index;
    bool has_metadata;
} parser;

const char *wfi_name_text(const char *name, char text[WFI_NAME_TEXT]) {
    size_t n = strnlen(name, WFI_NAME_TEXT - 4);
    memcpy(text, name, n);
    if (name[n]) {
        while (n && ((unsigned char)name[n] & 0xc0) == 0x80) n--; /* not inside a character */
        memcpy(text + n, "...", 3);
        n += 3;
    }
    text[n] = 0;
    return text;
}

static WFI_PRINTF(3, 4) wf_status
    bad_tensor(const parser *p, const char *name, const char *format, ...) {
    char why[256], shown[WFI_NAME_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return wfi_fail(p->ctx, WF_CORRUPT, "%s: tensor %s %s", p->path, wfi_name_text(name, shown),
                    why);
}

/* ---- one entry ---- */

static bool read_size(const json_t *value, int64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *out = json_integer_value(value);
    return true;
}

uint64_t wfi_safetensors_element_bytes(const char *dtype_name) {
    for (size_t i = 0; i < WFI_COUNT(known); i++)
        if (strcmp(known[i].name, dtype_name) == 0) return known[i].bytes;
    return 0;
}

static wf_status read_dtype(parser *p, const json_t *value, wf_safetensors_entry *e,
                            uint64_t *elem_bytes_out) {
    if (!json_is_string(value)) return bad_tensor(p, e->name, "has no dtype string");
    const char *name = json_string_value(value);
    *elem_bytes_out = wfi_safetensors_element_bytes(name);
    e->dtype = WF_N_DTYPES;
    for (int t = 0; t < WF_N_DTYPES; t++)
        if (strcmp(wf_dtype_name((wf_dtype)t), name) == 0) e->dtype = (wf_dtype)t;
    e->dtype_name = wfi_pool_format(&p->index->pool, "%s", name);
    return e->dtype_name ? WF_OK : WF_NO_MEMORY;
}

static wf_status read_shape(parser *p, const json_t *value, wf_safetensors_entry *e) {
    if (!json_is_array(value)) return bad_tensor(p, e->name, "has no shape array");
    size_t n_dims = json_array_size(value);
    int64_t *dim = wfi_pool_alloc(&p->index->pool, n_dims, sizeof *dim);
    if (!dim) return WF_NO_MEMORY;
    for (size_t d = 0; d < n_dims; d++)
        if (!read_size(json_array_get(value, d), &dim[d]))
            return bad_tensor(p, e->name, "has a dim %zu that is not a size", d);
    e->n_dims = (int)n_dims;
    e->dim = dim;
    return WF_OK;
}

static wf_status read_offsets(parser *p, const json_t *value, wf_safetensors_entry *e) {
    int64_t begin, end;
    if (json_array_size(value) != 2 || !read_size(json_array_get(value, 0), &begin) ||
        !read_size(json_array_get(value, 1), &end))
        return bad_tensor(p, e->name, "has no pair of sizes as data_offsets");
    if (begin > end)
        return bad_tensor(p, e->name, "begins at byte %" PRId64 " after its end at %" PRId64, begin,
                          end);
    if ((uint64_t)end > p->n_data_bytes)
        return bad_tensor(p, e->name,
                          "ends at byte %" PRId64 ", but the file has %" PRIu64 " bytes of data: "
                          "it is truncated or damaged",
                          end, p->n_data_bytes);
    e->offset = (uint64_t)begin;
    e->n_bytes = (uint64_t)(end - begin);
    return WF_OK;
}

static wf_status check_size(const parser *p, const wf_safetensors_entry *e, uint64_t elem_bytes) {
    if (!elem_bytes) return WF_OK;
    uint64_t bytes = elem_bytes;
    for (int d = 0; d < e->n_dims; d++)
        if (__builtin_mul_overflow(bytes, (uint64_t)e->dim[d], &bytes))
            return bad_tensor(p, e->name, "has a shape whose size overflows 64 bits");
    if (bytes != e->n_bytes)
        return bad_tensor(p, e->name, "has %" PRIu64 " bytes, but its shape of %s makes %" PRIu64,
                          e->n_bytes, e->dtype_name, bytes);
    return WF_OK;
}

static wf_status read_entry(parser *p, const char *name, const json_t *value) {
    wfi_safetensors_index *index = p->index;
    WF_TRY(WFI_GROW(p->ctx, index->entries, index->n_entries, index->entry_capacity, p->path));
    wf_safetensors_entry e = {.name = wfi_pool_format(&index->pool, "%s", name)};
    if (!e.name) return WF_NO_MEMORY;
    const json_t *dtype = json_object_get(value, "dtype");
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (json_object_size(value) != 3 || !dtype || !shape || !offsets)
        return bad_tensor(p, name, "must have dtype, shape and data_offsets, and nothing else");
    uint64_t elem_bytes = 0;
    WF_TRY(read_dtype(p, dtype, &e, &elem_bytes));
    WF_TRY(read_shape(p, shape, &e));
    WF_TRY(read_offsets(p, offsets, &e));
    WF_TRY(check_size(p, &e, elem_bytes));
    index->entries[index->n_entries++] = e;
    return WF_OK;
}

/* ---- members ---- */

static wf_status header_member(void *self, wfi_members *place, const char *key) {
    parser *p = self;
    if (strcmp(key, "__metadata__") == 0) {
        if (p->has_metadata)
            return wfi_fail(p->ctx, WF_CORRUPT, "%s: __metadata__ occurs twice", p->path);
        p->has_metadata = true;
        return wfi_metadata_read(place, NULL, NULL, &p->index->pool, &p->index->metadata);
    }
    json_t *value;
    WF_TRY(wfi_members_value(place, MAX_ENTRY_BYTES, &value));
    wf_status status = read_entry(p, key, value);
    json_decref(value);
    return status;
}

/* ---- the whole ---- */

static int compare_offsets(const void *a, const void *b) {
    const wf_safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const wf_safetensors_entry *const *)a)->name,
                  (*(const wf_safetensors_entry *const *)b)->name);
}

static wf_status check_contiguous(const parser *p) {
    const wfi_safetensors_index *index = p->index;
    uint64_t end = 0;
    for (size_t i = 0; i < index->n_entries; i++) {
        const wf_safetensors_entry *e = &index->entries[i];
        if (e->offset < end)
            return bad_tensor(p, e->name,
                              "begins at byte %" PRIu64 ", inside another that ends at %" PRIu64,
                              e->offset, end);
        if (e->offset > end)
            return bad_tensor(p, e->name, "begins at byte %" PRIu64 " after a hole from %" PRIu64,
                              e->offset, end);
        end = e->offset + e->n_bytes;
    }
    if (end < p->n_data_bytes)
        return wfi_fail(p->ctx, WF_CORRUPT, "%s: %" PRIu64 " bytes follow its last tensor", p->path,
                        p->n_data_bytes - end);
    return WF_OK;
}

static wf_status sort_and_check(parser *p) {
    wfi_safetensors_index *index = p->index;
    size_t n = index->n_entries;
    index->by_name = wfi_alloc(p->ctx, n ? n : 1, sizeof *index->by_name, p->path);
    if (!index->by_name) return WF_NO_MEMORY;
    if (n) qsort(index->entries, n, sizeof *index->entries, compare_offsets);
    for (size_t i = 0; i < n; i++) index->by_name[i] = &index->entries[i];
    if (n) qsort(index->by_name, n, sizeof *index->by_name, compare_names);
    for (size_t i = 1; i < n; i++)
        if (compare_names(&index->by_name[i - 1], &index->by_name[i]) == 0)
            return bad_tensor(p, index->by_name[i]->name, "occurs twice");
    return check_contiguous(p);
}

static wf_status parse(parser *p, const char *header, size_t n_header) {
    if (!n_header || header[0] != '{')
        return wfi_fail(p->ctx, WF_CORRUPT,
                        "%s: its header does not begin with {, so it is not a safetensors file",
                        p->path);
    wfi_members place = {p->ctx, p->path, "its header", header, n_header, 0};
    WF_TRY(wfi_members_each(&place, header_member, p));
    WF_TRY(wfi_members_end(&place));
    return sort_and_check(p);
}

wf_status wfi_safetensors_parse(wf_context *ctx, const char *path, const char *header,
                                size_t n_header, uint64_t n_data_bytes,
                                wfi_safetensors_index *index_out) {
    wfi_safetensors_index index = {0};
    wfi_pool_init(&index.pool, ctx);
    parser p = {ctx, path, n_data_bytes, &index, false};
    wf_status status = parse(&p, header, n_header);
    if (status == WF_OK)
        *index_out = index;
    else
        wfi_safetensors_index_release(&index);
    return status;
}

void wfi_safetensors_index_release(wfi_safetensors_index *index) {
    wf_context *ctx = index->pool.ctx;
    wfi_free(ctx, index->entries);
    wfi_free(ctx, index->by_name);
    wfi_free(ctx, index->metadata.pairs);
    wfi_pool_release(&index->pool);
}

wf_status wfi_safetensors_prefix(wf_context *ctx, const char *path, const uint8_t *prefix,
                                 uint64_t file_bytes, size_t *n_header_out) {
    if (file_bytes < WFI_SAFETENSORS_PREFIX_BYTES)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated or not a safetensors file: it has only %" PRIu64 " bytes",
                        path, file_bytes);
    uint64_t n = wfi_get_number(prefix, WFI_SAFETENSORS_PREFIX_BYTES);
    if (n > WFI_SAFETENSORS_MAX_HEADER)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s announces a header of %" PRIu64
                        " bytes, more than the %d that a safetensors file may have",
                        path, n, WFI_SAFETENSORS_MAX_HEADER);
    if (n > file_bytes - WFI_SAFETENSORS_PREFIX_BYTES)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated: it announces a header of %" PRIu64
                        " bytes, but has %" PRIu64 " in all",
                        path, n, file_bytes);
    *n_header_out = (size_t)n;
    return WF_OK;
}
