/* Writing a safetensors file. The first write fixes the layout: widest elements first,
 * then by name, so that every tensor is aligned if the file is. */
#include "base/replace.h"
#include "state/header.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

typedef struct declared {
    const char *name, *quoted; /* as it is, and as JSON */
    wf_dtype dtype;
    wf_shape shape;
    uint64_t n_bytes, offset, n_written;
    bool is_written; /* as a whole */
    uint32_t digest;
} declared;

struct wf_safetensors_writer {
    wf_context *ctx;
    wfi_pool pool;
    wfi_replacement file;
    declared *tensors;
    size_t n_tensors, tensor_capacity;
    wf_metadata *metadata; /* quoted */
    size_t n_metadata, metadata_capacity;
    bool has_layout, has_digests;
    uint64_t data_start;
};

/* ---- life ---- */

static wf_status create(wf_context *ctx, const char *path, const wfi_shared_file *shared,
                        wf_safetensors_writer **writer_out) {
    wf_safetensors_writer *w = wfi_alloc(ctx, 1, sizeof *w, "a safetensors writer");
    if (!w) return WF_NO_MEMORY;
    w->ctx = ctx;
    wfi_pool_init(&w->pool, ctx);
    if (shared) w->data_start = shared->data_start;
    wf_status status = shared ? wfi_replacement_join(ctx, path, shared->temporary, &w->file)
                              : wfi_replacement_begin(ctx, path, &w->file);
    if (status != WF_OK) {
        wfi_free(ctx, w);
        return status;
    }
    *writer_out = w;
    return WF_OK;
}

wf_status wf_safetensors_writer_create(wf_context *ctx, const char *path,
                                       wf_safetensors_writer **writer_out) {
    return create(ctx, path, NULL, writer_out);
}

wf_status wfi_safetensors_writer_join(wf_context *ctx, const char *path,
                                      const wfi_shared_file *shared,
                                      wf_safetensors_writer **writer_out) {
    return create(ctx, path, shared, writer_out);
}

void wf_safetensors_writer_destroy(wf_safetensors_writer *w) {
    if (!w) return;
    wfi_replacement_end(&w->file);
    wfi_free(w->ctx, w->tensors);
    wfi_free(w->ctx, w->metadata);
    wfi_pool_release(&w->pool);
    wfi_free(w->ctx, w);
}

/* ---- declarations ---- */

static wf_status refuse(const wf_safetensors_writer *w, const char *name, const char *why) {
    char shown[WFI_NAME_TEXT];
    return wfi_fail(w->ctx, WF_INVALID_ARG, "%s: %s %s", w->file.path, wfi_name_text(name, shown),
                    why);
}

/* A string as JSON; jansson checks that it is UTF-8. */
static wf_status quote(wf_safetensors_writer *w, const char *text, const char **quoted_out) {
    json_t *string = json_string(text);
    if (!string) return refuse(w, text, "is not UTF-8");
    char *dumped = json_dumps(string, JSON_ENCODE_ANY);
    json_decref(string);
    if (!dumped) return wfi_no_memory(w->ctx, strlen(text), "a name");
    *quoted_out = wfi_pool_format(&w->pool, "%s", dumped);
    free(dumped);
    return *quoted_out ? WF_OK : WF_NO_MEMORY;
}

wf_status wf_safetensors_writer_add_metadata(wf_safetensors_writer *w, const char *key,
                                             const char *value) {
    wf_metadata pair;
    if (w->has_layout) return refuse(w, key, "comes too late: tensors are being written");
    if (w->has_digests && !strncmp(key, WFI_SAFETENSORS_DIGEST, sizeof WFI_SAFETENSORS_DIGEST - 1))
        return refuse(w, key, "is a digest, which whoever writes the tensors adds");
    WF_TRY(quote(w, key, &pair.key));
    WF_TRY(quote(w, value, &pair.value));
    for (size_t i = 0; i < w->n_metadata; i++)
        if (strcmp(w->metadata[i].key, pair.key) == 0)
            return refuse(w, key, "is in the metadata already");
    WF_TRY(WFI_GROW(w->ctx, w->metadata, w->n_metadata, w->metadata_capacity, "metadata"));
    w->metadata[w->n_metadata++] = pair;
    return WF_OK;
}

static wf_status measure(const wf_safetensors_writer *w, declared *t) {
    if ((unsigned)t->dtype >= WF_N_DTYPES) return refuse(w, t->name, "has an unknown dtype");
    if (t->shape.n_dims < 0 || t->shape.n_dims > WF_MAX_DIMS)
        return refuse(w, t->name, "has an impossible number of dims");
    t->n_bytes = wf_dtype_bytes(t->dtype);
    for (int d = 0; d < t->shape.n_dims; d++)
        if (t->shape.dim[d] < 0 ||
            __builtin_mul_overflow(t->n_bytes, (uint64_t)t->shape.dim[d], &t->n_bytes) ||
            t->n_bytes > INT64_MAX)
            return refuse(w, t->name, "has a shape that is negative or overflows 63 bits");
    return WF_OK;
}

wf_status wf_safetensors_writer_add_tensor(wf_safetensors_writer *w, const char *name,
                                           wf_dtype dtype, const wf_shape *shape) {
    declared t = {.dtype = dtype, .shape = *shape};
    if (w->has_layout) return refuse(w, name, "comes too late: tensors are being written");
    if (strcmp(name, "__metadata__") == 0) return refuse(w, name, "is no name for a tensor");
    for (size_t i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i].name, name) == 0) return refuse(w, name, "is declared already");
    t.name = wfi_pool_format(&w->pool, "%s", name);
    if (!t.name) return WF_NO_MEMORY;
    WF_TRY(quote(w, name, &t.quoted));
    WF_TRY(measure(w, &t));
    WF_TRY(WFI_GROW(w->ctx, w->tensors, w->n_tensors, w->tensor_capacity, "tensors to write"));
    w->tensors[w->n_tensors++] = t;
    return WF_OK;
}

/* ---- layout ---- */

static int compare_layout(const void *a, const void *b) {
    const declared *x = *(const declared *const *)a, *y = *(const declared *const *)b;
    size_t x_bytes = wf_dtype_bytes(x->dtype), y_bytes = wf_dtype_bytes(y->dtype);
    if (x_bytes != y_bytes) return x_bytes > y_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void add_tensor_text(wfi_text *text, const declared *t) {
    wfi_text_add(text, "%s:{\"dtype\":\"%s\",\"shape\":[", t->quoted, wf_dtype_name(t->dtype));
    for (int d = 0; d < t->shape.n_dims; d++)
        wfi_text_add(text, "%s%" PRId64, d ? "," : "", t->shape.dim[d]);
    wfi_text_add(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->offset,
                 t->offset + t->n_bytes);
}

static void add_header_text(const wf_safetensors_writer *w, declared *const *sorted,
                            wfi_text *text) {
    const char *comma = "";
    size_t n_digests = w->has_digests ? w->n_tensors : 0;
    wfi_text_add(text, "{");
    if (w->n_metadata || n_digests) {
        wfi_text_add(text, "\"__metadata__\":{");
        for (size_t i = 0; i < w->n_metadata; i++, comma = ",")
            wfi_text_add(text, "%s%s:%s", comma, w->metadata[i].key, w->metadata[i].value);
        for (size_t i = 0; i < n_digests; i++, comma = ",")
            wfi_text_add(text, "%s\"" WFI_SAFETENSORS_DIGEST "%s:\"%08" PRIx32 "\"", comma,
                         sorted[i]->quoted + 1, sorted[i]->digest);
        wfi_text_add(text, "}");
    }
    for (size_t i = 0; i < w->n_tensors; i++, comma = ",") {
        wfi_text_add(text, "%s", comma);
        add_tensor_text(text, sorted[i]);
    }
    wfi_text_add(text, "}");
    if (text->n % 8) wfi_text_add(text, "%*s", (int)(8 - text->n % 8), "");
}

static wf_status write_header(wf_safetensors_writer *w, const char *text, size_t n) {
    if (n > WFI_SAFETENSORS_MAX_HEADER)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "%s: names, shapes and metadata make a header of %zu bytes, more than the "
                        "%d that a safetensors file may have",
                        w->file.path, n, WFI_SAFETENSORS_MAX_HEADER);
    uint8_t prefix[WFI_SAFETENSORS_PREFIX_BYTES];
    for (size_t i = 0; i < sizeof prefix; i++) prefix[i] = (uint8_t)(n >> 8 * i);
    WF_TRY(wfi_replacement_write(&w->file, prefix, sizeof prefix, 0));
    WF_TRY(wfi_replacement_write(&w->file, text, n, sizeof prefix));
    w->data_start = sizeof prefix + n;
    return WF_OK;
}

static wf_status lay_out_sorted(wf_safetensors_writer *w, declared **sorted) {
    uint64_t end = 0;
    for (size_t i = 0; i < w->n_tensors; i++) sorted[i] = &w->tensors[i];
    if (w->n_tensors) qsort(sorted, w->n_tensors, sizeof *sorted, compare_layout);
    for (size_t i = 0; i < w->n_tensors; i++) {
        sorted[i]->offset = end;
        if (__builtin_add_overflow(end, sorted[i]->n_bytes, &end) || end > INT64_MAX)
            return refuse(w, sorted[i]->name, "makes the file longer than 63 bits can say");
    }
    wfi_text text;
    wfi_text_init(&text, w->ctx);
    wf_status status = WF_OK;
    if (w->file.temporary) { /* otherwise the process that made it has written the header */
        add_header_text(w, sorted, &text);
        status = wfi_text_status(&text);
        if (status == WF_OK) status = write_header(w, text.data, text.n);
    }
    wfi_free(w->ctx, text.data);
    w->has_layout = status == WF_OK;
    return status;
}

static wf_status lay_out(wf_safetensors_writer *w) {
    if (w->has_layout) return WF_OK;
    declared **sorted = wfi_alloc(w->ctx, w->n_tensors + 1, sizeof *sorted, "a file's layout");
    if (!sorted) return WF_NO_MEMORY;
    wf_status status = lay_out_sorted(w, sorted);
    wfi_free(w->ctx, sorted);
    return status;
}

/* ---- data ---- */

wf_status wfi_safetensors_writer_share(wf_safetensors_writer *w, wfi_shared_file *shared_out) {
    WF_TRY(lay_out(w));
    *shared_out = (wfi_shared_file){.temporary = w->file.temporary, .data_start = w->data_start};
    return WF_OK;
}

wf_status wfi_safetensors_writer_write_through(wf_safetensors_writer *w) {
    return wfi_replacement_write_through(&w->file);
}

void wfi_safetensors_writer_add_digests(wf_safetensors_writer *w) {
    w->has_digests = true;
}

void wfi_safetensors_writer_set_digest(wf_safetensors_writer *w, int i, uint32_t digest) {
    w->tensors[i].digest = digest;
}

int wfi_safetensors_writer_descriptor(const wf_safetensors_writer *w) {
    return w->file.fd;
}

wf_status wfi_safetensors_writer_write_part(wf_safetensors_writer *w, int i, uint64_t offset,
                                            const void *data, size_t n_bytes) {
    declared *t = &w->tensors[i];
    WF_TRY(lay_out(w));
    t->n_written += n_bytes;
    if (!data) return WF_OK;
    return wfi_replacement_write(&w->file, data, n_bytes, w->data_start + t->offset + offset);
}

wf_status wf_safetensors_writer_write(wf_safetensors_writer *w, int i, const void *data,
                                      size_t n_bytes) {
    if (i < 0 || (size_t)i >= w->n_tensors)
        return wfi_fail(w->ctx, WF_INVALID_ARG, "%s: %zu tensors are declared, and none is %d",
                        w->file.path, w->n_tensors, i);
    declared *t = &w->tensors[i];
    char shown[WFI_NAME_TEXT];
    if (t->is_written) return refuse(w, t->name, "is written already");
    if (n_bytes != t->n_bytes)
        return wfi_fail(w->ctx, WF_SHAPE,
                        "%s: tensor %s was declared with %" PRIu64 " bytes, but is given %zu",
                        w->file.path, wfi_name_text(t->name, shown), t->n_bytes, n_bytes);
    WF_TRY(wfi_safetensors_writer_write_part(w, i, 0, data, n_bytes));
    t->is_written = true;
    return WF_OK;
}

wf_status wf_safetensors_writer_commit(wf_safetensors_writer *w) {
    if (!w->file.temporary) return refuse(w, "the file", "is committed already");
    /* Digests are known when all is written: the header's second text is as long as its first. */
    w->has_layout &= !w->has_digests;
    WF_TRY(lay_out(w)); /* also of a file without tensors */
    for (size_t i = 0; i < w->n_tensors; i++)
        if (w->tensors[i].n_written != w->tensors[i].n_bytes)
            return refuse(w, w->tensors[i].name, "was declared, but not written");
    return wfi_replacement_commit(&w->file);
}

/* ---- all at once ---- */

static wf_status write_all(wf_safetensors_writer *w, const wf_tensor_data *tensors, int n_tensors,
                           const wf_metadata *metadata, int n_metadata) {
    for (int i = 0; i < n_metadata; i++)
        WF_TRY(wf_safetensors_writer_add_metadata(w, metadata[i].key, metadata[i].value));
    for (int i = 0; i < n_tensors; i++)
        WF_TRY(wf_safetensors_writer_add_tensor(w, tensors[i].name, tensors[i].dtype,
                                                &tensors[i].shape));
    for (int i = 0; i < n_tensors; i++)
        WF_TRY(wf_safetensors_writer_write(w, i, tensors[i].data, (size_t)w->tensors[i].n_bytes));
    return wf_safetensors_writer_commit(w);
}

wf_status wf_safetensors_write(wf_context *ctx, const char *path, const wf_tensor_data *tensors,
                               int n_tensors, const wf_metadata *metadata, int n_metadata) {
    wf_safetensors_writer *w;
    WF_TRY(wf_safetensors_writer_create(ctx, path, &w));
    wf_status status = write_all(w, tensors, n_tensors, metadata, n_metadata);
    wf_safetensors_writer_destroy(w);
    return status;
}
