/* Writing a safetensors file, or an index and shards. The first write fixes the layout: widest
 * elements first, then by name, so that every tensor is aligned if the file is; a shard is full
 * when the next tensor would make it larger than was asked for.
 *
 * The index names the shards and is renamed last, so a reader finds either the old shards or the
 * new ones. New shards alternate between two kinds of names, so that the present index names none
 * of them. The writer removes the old shards when the new index is in place. If both `path` and its
 * index exist, `path` counts: it is removed after an index appears, and appears before an index is
 * removed. */
#include "base/bytes.h"
#include "base/replace.h"
#include "state/header.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_SHARDS 300 /* each is open while it is written */
#define SHARD_NAME "-%05d-of-%05d.safetensors"

typedef struct declared {
    const char *name, *quoted; /* as it is, and as JSON */
    const char *dtype;         /* the latter */
    wf_shape shape;
    uint64_t elem_bytes, n_bytes, offset, n_written;
    int file;        /* of the writer's */
    bool is_written; /* as a whole */
    uint32_t digest;
} declared;

typedef struct output {
    wfi_replacement file;
    uint64_t data_start;
} output;

struct wf_safetensors_writer {
    wf_context *ctx;
    wfi_pool pool;
    const char *path;
    output *files; /* one; or the index, and then the shards */
    size_t n_files, file_capacity;
    declared *tensors;
    size_t n_tensors, tensor_capacity;
    wf_metadata *metadata; /* quoted */
    size_t n_metadata, metadata_capacity;
    uint64_t shard_bytes; /* 0: one file, however large */
    bool has_layout, has_digests, has_seal;
    bool is_joined; /* another process makes the files */
    bool is_committed;
};

/* ---- life ---- */

static output *add_file(wf_safetensors_writer *w) {
    static const output none = {.file = {.folder = -1, .fd = -1, .locked = -1}};
    if (WFI_GROW(w->ctx, w->files, w->n_files, w->file_capacity, w->path) != WF_OK) return NULL;
    output *added = &w->files[w->n_files++];
    *added = none;
    added->file.ctx = w->ctx;
    return added;
}

static wf_status create(wf_context *ctx, const char *path, bool is_joined,
                        wf_safetensors_writer **writer_out) {
    wf_safetensors_writer *w = wfi_alloc(ctx, 1, sizeof *w, "a safetensors writer");
    if (!w) return WF_NO_MEMORY;
    w->ctx = ctx;
    w->is_joined = is_joined;
    wfi_pool_init(&w->pool, ctx);
    w->path = wfi_pool_format(&w->pool, "%s", path);
    output *first = w->path ? add_file(w) : NULL;
    wf_status status = first ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK && !is_joined) status = wfi_replacement_begin(ctx, path, &first->file);
    if (status == WF_OK)
        *writer_out = w;
    else
        wf_safetensors_writer_destroy(w);
    return status;
}

wf_status wf_safetensors_writer_create(wf_context *ctx, const char *path,
                                       wf_safetensors_writer **writer_out) {
    return create(ctx, path, false, writer_out);
}

wf_status wfi_safetensors_writer_join(wf_context *ctx, const char *path,
                                      wf_safetensors_writer **writer_out) {
    return create(ctx, path, true, writer_out);
}

wf_status wfi_safetensors_writer_join_file(wf_safetensors_writer *w, int k, const char *temporary,
                                           uint64_t data_start) {
    w->files[k].data_start = data_start;
    return wfi_replacement_join(w->ctx, w->path, temporary, &w->files[k].file);
}

void wf_safetensors_writer_destroy(wf_safetensors_writer *w) {
    if (!w) return;
    for (size_t k = 0; k < w->n_files; k++) wfi_replacement_end(&w->files[k].file);
    wfi_free(w->ctx, w->files);
    wfi_free(w->ctx, w->tensors);
    wfi_free(w->ctx, w->metadata);
    wfi_pool_release(&w->pool);
    wfi_free(w->ctx, w);
}

/* ---- declarations ---- */

static wf_status refuse(const wf_safetensors_writer *w, const char *name, const char *why) {
    char shown[WFI_NAME_TEXT];
    return wfi_fail(w->ctx, WF_INVALID_ARG, "%s: %s %s", w->path, wfi_name_text(name, shown), why);
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

wf_status wf_safetensors_writer_divide(wf_safetensors_writer *w, uint64_t shard_bytes) {
    if (w->has_layout)
        return refuse(w, "a size of shards", "comes too late: tensors are being written");
    w->shard_bytes = shard_bytes;
    return WF_OK;
}

wf_status wf_safetensors_writer_add_metadata(wf_safetensors_writer *w, const char *key,
                                             const char *value) {
    wf_metadata pair;
    if (w->has_layout) return refuse(w, key, "comes too late: tensors are being written");
    if (w->has_digests && wfi_safetensors_is_digest(key))
        return refuse(w, key, "is a digest, which the writer adds itself");
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
    if (t->shape.n_dims < 0 || t->shape.n_dims > WF_MAX_DIMS)
        return refuse(w, t->name, "has an impossible number of dims");
    t->n_bytes = t->elem_bytes;
    for (int d = 0; d < t->shape.n_dims; d++)
        if (t->shape.dim[d] < 0 ||
            __builtin_mul_overflow(t->n_bytes, (uint64_t)t->shape.dim[d], &t->n_bytes) ||
            t->n_bytes > INT64_MAX)
            return refuse(w, t->name, "has a shape that is negative or overflows 63 bits");
    return WF_OK;
}

static wf_status declare(wf_safetensors_writer *w, const char *name, declared t) {
    if (w->has_layout) return refuse(w, name, "comes too late: tensors are being written");
    if (strcmp(name, "__metadata__") == 0) return refuse(w, name, "is not a valid tensor name");
    for (size_t i = 0; i < w->n_tensors; i++)
        if (strcmp(w->tensors[i].name, name) == 0) return refuse(w, name, "is declared already");
    t.name = wfi_pool_format(&w->pool, "%s", name);
    if (!t.name) return WF_NO_MEMORY;
    WF_TRY(quote(w, name, &t.quoted));
    WF_TRY(quote(w, t.dtype, &t.dtype));
    if (t.elem_bytes) WF_TRY(measure(w, &t));
    WF_TRY(WFI_GROW(w->ctx, w->tensors, w->n_tensors, w->tensor_capacity, "tensors to write"));
    w->tensors[w->n_tensors++] = t;
    return WF_OK;
}

wf_status wf_safetensors_writer_add_tensor(wf_safetensors_writer *w, const char *name,
                                           wf_dtype dtype, const wf_shape *shape) {
    if ((unsigned)dtype >= WF_N_DTYPES) return refuse(w, name, "has an unknown dtype");
    return declare(w, name,
                   (declared){.dtype = wf_dtype_name(dtype),
                              .shape = *shape,
                              .elem_bytes = wf_dtype_bytes(dtype)});
}

/* For an unknown type only the number of bytes is known. */
wf_status wfi_safetensors_writer_add_entry(wf_safetensors_writer *w,
                                           const wf_safetensors_entry *entry) {
    declared t = {.dtype = entry->dtype_name,
                  .shape.n_dims = entry->n_dims,
                  .elem_bytes = wfi_safetensors_element_bytes(entry->dtype_name),
                  .n_bytes = entry->n_bytes};
    char shown[WFI_NAME_TEXT];
    if (entry->n_dims > WF_MAX_DIMS)
        return wfi_fail(w->ctx, WF_UNSUPPORTED, "%s: tensor %s has %d dims, more than %d", w->path,
                        wfi_name_text(entry->name, shown), entry->n_dims, WF_MAX_DIMS);
    for (int d = 0; d < entry->n_dims; d++) t.shape.dim[d] = entry->dim[d];
    return declare(w, entry->name, t);
}

/* ---- names of shards ---- */

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* `path` without its end, and one of two kinds: -00001-of-00003.safetensors or
 * -b-00001-of-00003.safetensors follows. */
static char *shard_path(const wf_safetensors_writer *w, bool is_second, int k, int n) {
    size_t n_path = strlen(w->path), n_end = sizeof ".safetensors" - 1;
    if (n_path > n_end && !strcmp(w->path + n_path - n_end, ".safetensors")) n_path -= n_end;
    return wfi_sprintf(w->ctx, "%.*s%s" SHARD_NAME, (int)n_path, w->path, is_second ? "-b" : "", k,
                       n);
}

/* Whether a name differs from `shard`, one's own, by its two numbers alone. */
static bool is_of_kind(const char *name, const char *shard) {
    size_t n = strlen(shard) - strlen("-00001-of-00003.safetensors");
    char again[64];
    int k, n_shards;
    if (strncmp(name, shard, n) || sscanf(name + n, SHARD_NAME, &k, &n_shards) != 2) return false;
    snprintf(again, sizeof again, SHARD_NAME, k, n_shards);
    return !strcmp(name + n, again);
}

/* Whether the new shards use the second kind of names: the present index uses the first. */
static bool takes_second(const wf_safetensors_writer *w) {
    wf_safetensors *present;
    char *index = wfi_sprintf(w->ctx, "%s" WFI_SHARD_INDEX, w->path);
    char *first = shard_path(w, false, 1, 1);
    bool is_named = false;
    if (index && first && access(index, F_OK) == 0 &&
        wf_safetensors_open(w->ctx, index, &present) == WF_OK) {
        for (int k = 1; k < wfi_safetensors_n_files(present); k++)
            is_named |= is_of_kind(wfi_safetensors_path(present, k), first);
        wf_safetensors_close(present);
    }
    wfi_free(w->ctx, first);
    wfi_free(w->ctx, index);
    return is_named;
}

static wf_status create_shards(wf_safetensors_writer *w, int n) {
    bool is_second = n && !w->is_joined && takes_second(w);
    for (int k = 1; k <= n; k++) {
        output *added = add_file(w);
        if (!added) return WF_NO_MEMORY;
        if (w->is_joined) continue;
        char *path = shard_path(w, is_second, k, n);
        if (!path) return WF_NO_MEMORY;
        wf_status status = wfi_replacement_begin(w->ctx, path, &added->file);
        wfi_free(w->ctx, path);
        WF_TRY(status);
    }
    if (!n || w->is_joined) return WF_OK;
    char *index = wfi_sprintf(w->ctx, "%s" WFI_SHARD_INDEX, w->path);
    if (!index) return WF_NO_MEMORY;
    wfi_free(w->ctx, w->files[0].file.path);
    w->files[0].file.path = index;
    return WF_OK;
}

/* ---- layout ---- */

static int compare_layout(const void *a, const void *b) {
    const declared *x = *(const declared *const *)a, *y = *(const declared *const *)b;
    if (x->elem_bytes != y->elem_bytes) return x->elem_bytes > y->elem_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void add_tensor_text(wfi_text *text, const declared *t) {
    wfi_text_add(text, "%s:{\"dtype\":%s,\"shape\":[", t->quoted, t->dtype);
    for (int d = 0; d < t->shape.n_dims; d++)
        wfi_text_add(text, "%s%" PRId64, d ? "," : "", t->shape.dim[d]);
    wfi_text_add(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->offset,
                 t->offset + t->n_bytes);
}

static void add_metadata_text(const wf_safetensors_writer *w, wfi_text *text, const char *comma) {
    for (size_t i = 0; i < w->n_metadata; i++, comma = ",")
        wfi_text_add(text, "%s%s:%s", comma, w->metadata[i].key, w->metadata[i].value);
    if (w->has_seal) {
        wfi_text_add(text, "%s\"" WFI_SAFETENSORS_SEAL "\":\"00000000\"", comma);
        comma = ",";
    }
    for (size_t i = 0; i < w->n_tensors && w->has_digests; i++, comma = ",")
        wfi_text_add(text, "%s\"" WFI_SAFETENSORS_DIGEST "%s:\"%08" PRIx32 "\"", comma,
                     w->tensors[i].quoted + 1, w->tensors[i].digest);
}

/* A shard's metadata has only the key that transformers requires; the rest is in the index. */
static void add_header_text(const wf_safetensors_writer *w, declared *const *sorted, int file,
                            wfi_text *text) {
    const char *comma = "";
    wfi_text_add(text, "{");
    if (file || w->n_metadata || w->has_seal || (w->has_digests && w->n_tensors)) {
        wfi_text_add(text, "\"__metadata__\":{");
        if (file)
            wfi_text_add(text, "\"format\":\"pt\"");
        else
            add_metadata_text(w, text, "");
        wfi_text_add(text, "}");
        comma = ",";
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        if (sorted[i]->file != file) continue;
        wfi_text_add(text, "%s", comma);
        add_tensor_text(text, sorted[i]);
        comma = ",";
    }
    wfi_text_add(text, "}");
    if (text->n % 8) wfi_text_add(text, "%*s", (int)(8 - text->n % 8), "");
}

static void add_index_text(const wf_safetensors_writer *w, wfi_text *text) {
    uint64_t total = 0;
    for (size_t i = 0; i < w->n_tensors; i++) total += w->tensors[i].n_bytes;
    wfi_text_add(text, "{\"metadata\":{\"total_size\":%" PRIu64, total);
    add_metadata_text(w, text, ",");
    wfi_text_add(text, "},\n\"weight_map\":{");
    for (size_t i = 0; i < w->n_tensors; i++)
        wfi_text_add(text, "%s\n%s:\"%s\"", i ? "," : "", w->tensors[i].quoted,
                     base_name(w->files[w->tensors[i].file].file.path));
    wfi_text_add(text, "}}\n");
}

static wf_status write_header(wf_safetensors_writer *w, output *to, const char *text, size_t n) {
    if (n > WFI_SAFETENSORS_MAX_HEADER)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "%s: names, shapes and metadata make a header of %zu bytes, more than the "
                        "%d that a safetensors file may have",
                        w->path, n, WFI_SAFETENSORS_MAX_HEADER);
    uint8_t prefix[WFI_SAFETENSORS_PREFIX_BYTES];
    wfi_put_number(prefix, sizeof prefix, n);
    WF_TRY(wfi_replacement_write(&to->file, prefix, sizeof prefix, 0));
    WF_TRY(wfi_replacement_write(&to->file, text, n, sizeof prefix));
    to->data_start = sizeof prefix + n;
    return WF_OK;
}

/* File 0 of several is the index; `sorted` is NULL for its text. */
static wf_status write_text(wf_safetensors_writer *w, declared *const *sorted, int file) {
    wfi_text text = {.ctx = w->ctx};
    output *to = &w->files[file];
    if (sorted)
        add_header_text(w, sorted, file, &text);
    else
        add_index_text(w, &text);
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK && w->has_seal) wfi_safetensors_set_seal(text.data, text.n);
    if (status == WF_OK)
        status = sorted ? write_header(w, to, text.data, text.n)
                        : wfi_replacement_write(&to->file, text.data, text.n, 0);
    wfi_free(w->ctx, text.data);
    return status;
}

/* In which file each tensor is, and where. */
static wf_status assign(wf_safetensors_writer *w, declared **sorted, int *n_shards_out) {
    uint64_t end = 0;
    int shard = 1;
    for (size_t i = 0; i < w->n_tensors; i++) {
        declared *t = sorted[i];
        if (w->shard_bytes && end && (end > w->shard_bytes || t->n_bytes > w->shard_bytes - end)) {
            shard++;
            end = 0;
        }
        t->file = shard;
        t->offset = end;
        if (__builtin_add_overflow(end, t->n_bytes, &end) || end > INT64_MAX)
            return refuse(w, t->name, "makes the file longer than 63 bits can count");
    }
    for (size_t i = 0; i < w->n_tensors && shard == 1; i++) sorted[i]->file = 0;
    *n_shards_out = shard == 1 ? 0 : shard;
    if (shard <= MAX_SHARDS) return WF_OK;
    return wfi_fail(w->ctx, WF_INVALID_ARG,
                    "%s: shards of %" PRIu64 " bytes would be more than %d files; take larger ones",
                    w->path, w->shard_bytes, MAX_SHARDS);
}

static wf_status lay_out_sorted(wf_safetensors_writer *w, declared **sorted) {
    int n_shards = 0;
    for (size_t i = 0; i < w->n_tensors; i++) sorted[i] = &w->tensors[i];
    if (w->n_tensors) qsort(sorted, w->n_tensors, sizeof *sorted, compare_layout);
    WF_TRY(assign(w, sorted, &n_shards));
    if (w->n_files == 1) WF_TRY(create_shards(w, n_shards)); /* the second time they are there */
    for (int k = n_shards ? 1 : 0; k <= n_shards && !w->is_joined; k++)
        WF_TRY(write_text(w, sorted, k));
    w->has_layout = true;
    return WF_OK;
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

wf_status wfi_safetensors_writer_share(wf_safetensors_writer *w, int *n_files_out) {
    WF_TRY(lay_out(w));
    *n_files_out = (int)w->n_files;
    return WF_OK;
}

wf_status wfi_safetensors_writer_write_through(wf_safetensors_writer *w) {
    for (size_t k = 0; k < w->n_files; k++)
        WF_TRY(wfi_replacement_write_through(&w->files[k].file));
    return WF_OK;
}

wf_status wfi_safetensors_writer_sync(const wf_safetensors_writer *w) {
    for (size_t k = 0; k < w->n_files; k++) WF_TRY(wfi_replacement_sync(&w->files[k].file));
    return WF_OK;
}

void wfi_safetensors_writer_add_digests(wf_safetensors_writer *w, bool has_seal) {
    w->has_digests = true;
    w->has_seal = has_seal;
}

void wfi_safetensors_writer_set_digest(wf_safetensors_writer *w, int i, uint32_t digest) {
    w->tensors[i].digest = digest;
}

int wfi_safetensors_writer_descriptor(const wf_safetensors_writer *w, int k,
                                      uint64_t *data_start_out) {
    if (data_start_out) *data_start_out = w->files[k].data_start;
    return w->files[k].file.fd;
}

wf_status wfi_safetensors_writer_write_part(wf_safetensors_writer *w, int i, uint64_t offset,
                                            const void *data, size_t n_bytes) {
    declared *t = &w->tensors[i];
    WF_TRY(lay_out(w));
    t->n_written += n_bytes;
    if (!data) return WF_OK;
    const output *to = &w->files[t->file];
    return wfi_replacement_write(&to->file, data, n_bytes, to->data_start + t->offset + offset);
}

wf_status wf_safetensors_writer_write(wf_safetensors_writer *w, int i, const void *data,
                                      size_t n_bytes) {
    if (i < 0 || (size_t)i >= w->n_tensors)
        return wfi_fail(w->ctx, WF_INVALID_ARG, "%s: %zu tensors are declared, and none is %d",
                        w->path, w->n_tensors, i);
    declared *t = &w->tensors[i];
    char shown[WFI_NAME_TEXT];
    if (t->is_written) return refuse(w, t->name, "is written already");
    if (n_bytes != t->n_bytes)
        return wfi_fail(w->ctx, WF_SHAPE,
                        "%s: tensor %s was declared with %" PRIu64 " bytes, but is given %zu",
                        w->path, wfi_name_text(t->name, shown), t->n_bytes, n_bytes);
    WF_TRY(wfi_safetensors_writer_write_part(w, i, 0, data, n_bytes));
    t->is_written = true;
    return WF_OK;
}

/* Removes the files that the new ones replace under other names, or the new ones if they were not
 * put in place. */
static void remove_others(wf_safetensors_writer *w) {
    const wfi_replacement *first = &w->files[0].file;
    bool is_there = !first->temporary;
    char *index = wfi_sprintf(w->ctx, "%s" WFI_SHARD_INDEX, w->path);
    char *kinds[] = {shard_path(w, false, 1, 1), shard_path(w, true, 1, 1)};
    DIR *entries = wfi_folder_open(first->folder);
    if (index && is_there)
        (void)unlinkat(first->folder, base_name(w->n_files > 1 ? w->path : index), 0);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        bool is_shard = false, is_own = false;
        for (size_t i = 0; i < WFI_COUNT(kinds); i++)
            is_shard |= kinds[i] && is_of_kind(entry->d_name, base_name(kinds[i]));
        for (size_t k = 1; k < w->n_files; k++)
            is_own |= !strcmp(entry->d_name, base_name(w->files[k].file.path));
        if (is_shard && is_own != is_there) (void)unlinkat(first->folder, entry->d_name, 0);
    }
    if (entries) closedir(entries);
    for (size_t i = 0; i < WFI_COUNT(kinds); i++) wfi_free(w->ctx, kinds[i]);
    wfi_free(w->ctx, index);
}

static wf_status put_in_place(wf_safetensors_writer *w) {
    for (size_t k = 1; k < w->n_files; k++) WF_TRY(wfi_replacement_commit(&w->files[k].file));
    return wfi_replacement_commit(&w->files[0].file);
}

wf_status wf_safetensors_writer_commit(wf_safetensors_writer *w) {
    if (w->is_committed) return refuse(w, "the file", "is committed already");
    WF_TRY(lay_out(w)); /* also of a file without tensors */
    for (size_t i = 0; i < w->n_tensors; i++)
        if (w->tensors[i].n_written != w->tensors[i].n_bytes)
            return refuse(w, w->tensors[i].name, "was declared, but not written");
    /* Digests are known when all is written: the header's second text is as long as its first. */
    w->has_layout = w->n_files > 1 || !w->has_digests;
    WF_TRY(w->n_files > 1 ? write_text(w, NULL, 0) : lay_out(w));
    wf_status status = put_in_place(w);
    w->is_committed = status == WF_OK;
    /* Only shards and a trainer's file (with digests) replace files under other names. */
    if (w->shard_bytes || w->has_digests) remove_others(w);
    return status;
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
