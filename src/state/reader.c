/* Reading a safetensors file or its shards: the headers once, each tensor when it is asked for.
 * With pread and not mmap, so that a file that shrinks meanwhile is an error and no signal. */
#include "base/file.h"
#include "state/header.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files are little-endian, and so is weft");

/* A file; the index of shards has no tensors. */
typedef struct part {
    char *path;
    int fd;
    uint64_t data_start; /* bytes from the start of the file */
    int first;           /* tensors in the parts before */
    wfi_safetensors_index index;
} part;

struct wf_safetensors {
    wf_context *ctx;
    part *parts; /* the file; or the index, and then the shards */
    size_t n_parts, capacity;
};

static wf_status read_at(const wf_safetensors *file, const part *p, void *dst, size_t n_bytes,
                         uint64_t offset) {
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t n =
            pread(p->fd, (char *)dst + done, n_bytes - done, (off_t)(offset + (uint64_t)done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return wfi_fail(file->ctx, WF_IO, "%s cannot be read at byte %" PRIu64 ": %s", p->path,
                            offset + done, strerror(errno));
        if (n == 0)
            return wfi_fail(file->ctx, WF_IO,
                            "%s became shorter after it was opened: it ends at "
                            "byte %" PRIu64,
                            p->path, offset + done);
        done += (size_t)n;
    }
    return WF_OK;
}

/* ---- opening ---- */

/* Takes `path`, also after an error. */
static wf_status add_part(wf_safetensors *file, char *path, int flags, uint64_t *n_bytes_out) {
    wf_status status =
        path ? WFI_GROW(file->ctx, file->parts, file->n_parts, file->capacity, path) : WF_NO_MEMORY;
    if (status != WF_OK) {
        wfi_free(file->ctx, path);
        return status;
    }
    part *p = &file->parts[file->n_parts++];
    *p = (part){.path = path, .fd = -1};
    if (file->n_parts > 1) p->first = p[-1].first + (int)p[-1].index.n_entries;
    wfi_pool_init(&p->index.pool, file->ctx);
    return wfi_file_open(file->ctx, path, flags, &p->fd, n_bytes_out);
}

static wf_status read_tensors(wf_safetensors *file, uint64_t file_bytes) {
    wf_context *ctx = file->ctx;
    part *p = &file->parts[file->n_parts - 1];
    uint8_t prefix[WFI_SAFETENSORS_PREFIX_BYTES] = {0};
    size_t n_header;
    if (file_bytes >= sizeof prefix) WF_TRY(read_at(file, p, prefix, sizeof prefix, 0));
    WF_TRY(wfi_safetensors_prefix(ctx, p->path, prefix, file_bytes, &n_header));
    char *header = wfi_alloc(ctx, n_header ? n_header : 1, 1, p->path);
    if (!header) return WF_NO_MEMORY;
    p->data_start = sizeof prefix + n_header;
    wf_status status = read_at(file, p, header, n_header, sizeof prefix);
    if (status == WF_OK) status = wfi_safetensors_check_seal(ctx, p->path, header, n_header);
    if (status == WF_OK)
        status = wfi_safetensors_parse(ctx, p->path, header, n_header, file_bytes - p->data_start,
                                       &p->index);
    wfi_free(ctx, header);
    return status;
}

/* Both are sorted by name. */
static wf_status compare_with_index(const wf_safetensors *file, const part *shard,
                                    const wfi_shard_place *places, size_t n) {
    const char *index = file->parts->path;
    char shown[WFI_NAME_TEXT];
    size_t n_held = shard->index.n_entries;
    for (size_t i = 0; i < n || i < n_held; i++) {
        const char *held = i < n_held ? shard->index.by_name[i]->name : NULL;
        const char *placed = i < n ? places[i].name : NULL;
        int order = !held ? -1 : !placed ? 1 : strcmp(placed, held);
        if (order < 0)
            return wfi_fail(file->ctx, WF_CORRUPT, "%s has no tensor %s, though %s places it there",
                            shard->path, wfi_name_text(placed, shown), index);
        if (order > 0)
            return wfi_fail(file->ctx, WF_CORRUPT,
                            "%s has a tensor %s, which %s does not place there", shard->path,
                            wfi_name_text(held, shown), index);
    }
    return WF_OK;
}

static wf_status open_shards(wf_safetensors *file, const wfi_shard_index *index) {
    const char *path = file->parts->path, *slash = strrchr(path, '/');
    int n_folder = slash ? (int)(slash + 1 - path) : 0;
    for (size_t i = 0, n; i < index->n_places; i += n) {
        const wfi_shard_place *places = &index->places[i];
        uint64_t n_bytes;
        for (n = 1; i + n < index->n_places && !strcmp(places[n].file, places->file);) n++;
        char *name = wfi_sprintf(file->ctx, "%.*s%s", n_folder, path, places->file);
        WF_TRY(add_part(file, name, O_NOFOLLOW, &n_bytes));
        WF_TRY(read_tensors(file, n_bytes));
        WF_TRY(compare_with_index(file, &file->parts[file->n_parts - 1], places, n));
        path = file->parts->path;
    }
    return WF_OK;
}

/* Compares the index's total size, if the index has one, with that of the shards. */
static wf_status check_total(const wf_safetensors *file, const wfi_shard_index *index) {
    uint64_t total = 0;
    for (size_t k = 1; k < file->n_parts; k++)
        for (size_t i = 0; i < file->parts[k].index.n_entries; i++)
            total += file->parts[k].index.entries[i].n_bytes;
    if (index->total_bytes < 0 || (uint64_t)index->total_bytes == total) return WF_OK;
    return wfi_fail(file->ctx, WF_CORRUPT,
                    "%s states that its tensors have %" PRId64
                    " bytes (total_size), but its shards "
                    "have %" PRIu64 ": one of them belongs to another file",
                    file->parts->path, index->total_bytes, total);
}

static wf_status read_index(wf_safetensors *file, uint64_t n_bytes, wfi_shard_index *index_out) {
    part *p = file->parts;
    if (n_bytes > WFI_SAFETENSORS_MAX_HEADER)
        return wfi_fail(file->ctx, WF_CORRUPT,
                        "%s has %" PRIu64 " bytes, more than the %d that an index may have",
                        p->path, n_bytes, WFI_SAFETENSORS_MAX_HEADER);
    char *text = wfi_alloc(file->ctx, (size_t)n_bytes + 1, 1, p->path);
    if (!text) return WF_NO_MEMORY;
    wf_status status = read_at(file, p, text, (size_t)n_bytes, 0);
    if (status == WF_OK)
        status = wfi_safetensors_check_seal(file->ctx, p->path, text, (size_t)n_bytes);
    if (status == WF_OK)
        status = wfi_shard_index_parse(file->ctx, p->path, text, (size_t)n_bytes, index_out);
    wfi_free(file->ctx, text);
    return status;
}

static wf_status open_index(wf_safetensors *file, uint64_t n_bytes) {
    wfi_shard_index index;
    WF_TRY(read_index(file, n_bytes, &index));
    wf_status status = open_shards(file, &index);
    if (status == WF_OK) status = check_total(file, &index);
    wfi_safetensors_index *own = &file->parts->index;
    wfi_pool_release(&own->pool);
    own->pool = index.pool;
    own->metadata = index.metadata;
    wfi_free(file->ctx, index.places);
    return status;
}

/* Finds the file of `path`. For a folder this is the average of its weights, if present, or the
 * model in it. For a missing file it is the index of its shards. */
static wf_status find_file(wf_context *ctx, const char *path, char **found_out) {
    static const char *const ends[] = {"",
                                       "/model_ema.safetensors",
                                       "/model_ema.safetensors" WFI_SHARD_INDEX,
                                       "/model.safetensors",
                                       WFI_SHARD_INDEX,
                                       "/model.safetensors" WFI_SHARD_INDEX};
    struct stat st;
    for (size_t i = 0; i < WFI_COUNT(ends); i++) {
        char *file = wfi_sprintf(ctx, "%s%s", path, ends[i]);
        if (!file) return WF_NO_MEMORY;
        *found_out = file;
        if (stat(file, &st) == 0 && !S_ISDIR(st.st_mode)) return WF_OK;
        wfi_free(ctx, file);
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return wfi_fail(ctx, WF_IO,
                        "%s holds neither model.safetensors nor model.safetensors" WFI_SHARD_INDEX,
                        path);
    *found_out = wfi_strdup(ctx, path); /* opening it reports the error */
    return *found_out ? WF_OK : WF_NO_MEMORY;
}

static wf_status open_file(wf_safetensors *file, const char *path) {
    uint64_t n_bytes;
    char *found;
    WF_TRY(find_file(file->ctx, path, &found));
    size_t n = strlen(found), n_end = sizeof ".json" - 1;
    bool is_index = n > n_end && !strcmp(found + n - n_end, ".json");
    WF_TRY(add_part(file, found, 0, &n_bytes));
    return is_index ? open_index(file, n_bytes) : read_tensors(file, n_bytes);
}

wf_status wf_safetensors_open(wf_context *ctx, const char *path, wf_safetensors **file_out) {
    wf_safetensors *file = wfi_alloc(ctx, 1, sizeof *file, "a safetensors file");
    if (!file) return WF_NO_MEMORY;
    file->ctx = ctx;
    wf_status status = open_file(file, path);
    if (status != WF_OK) {
        wf_safetensors_close(file);
        return status;
    }
    *file_out = file;
    return WF_OK;
}

void wf_safetensors_close(wf_safetensors *file) {
    if (!file) return;
    for (size_t k = 0; k < file->n_parts; k++) {
        part *p = &file->parts[k];
        if (p->fd >= 0) close(p->fd);
        wfi_safetensors_index_release(&p->index);
        wfi_free(file->ctx, p->path);
    }
    wfi_free(file->ctx, file->parts);
    wfi_free(file->ctx, file);
}

/* ---- looking into it ---- */

int wf_safetensors_n_tensors(const wf_safetensors *file) {
    const part *last = &file->parts[file->n_parts - 1];
    return last->first + (int)last->index.n_entries;
}

/* The last part that begins at or before tensor i: parts without tensors come first. */
static const part *part_of(const wf_safetensors *file, int i) {
    const part *p = &file->parts[file->n_parts - 1];
    while (p->first > i) p--;
    return p;
}

const wf_safetensors_entry *wf_safetensors_get(const wf_safetensors *file, int i) {
    if (i < 0 || i >= wf_safetensors_n_tensors(file)) return NULL;
    const part *p = part_of(file, i);
    return &p->index.entries[i - p->first];
}

static int compare_name(const void *name, const void *entry) {
    return strcmp(name, (*(const wf_safetensors_entry *const *)entry)->name);
}

int wf_safetensors_find(const wf_safetensors *file, const char *name) {
    for (size_t k = 0; k < file->n_parts; k++) {
        const wfi_safetensors_index *index = &file->parts[k].index;
        const wf_safetensors_entry **found = index->n_entries
                                                 ? bsearch(name, index->by_name, index->n_entries,
                                                           sizeof *index->by_name, compare_name)
                                                 : NULL;
        if (found) return file->parts[k].first + (int)(*found - index->entries);
    }
    return -1;
}

static int compare_key(const void *key, const void *pair) {
    return strcmp(key, ((const wf_metadata *)pair)->key);
}

const char *wf_safetensors_metadata(const wf_safetensors *file, const char *key) {
    const wfi_metadata_list *list = &file->parts->index.metadata;
    if (!list->n) return NULL;
    const wf_metadata *pair = bsearch(key, list->pairs, list->n, sizeof *list->pairs, compare_key);
    return pair ? pair->value : NULL;
}

const wf_metadata *wf_safetensors_metadata_get(const wf_safetensors *file, int i) {
    const wfi_metadata_list *list = &file->parts->index.metadata;
    return i >= 0 && (size_t)i < list->n ? &list->pairs[i] : NULL;
}

int wfi_safetensors_n_files(const wf_safetensors *file) {
    return (int)file->n_parts;
}

int wfi_safetensors_descriptor(const wf_safetensors *file, int k) {
    return file->parts[k].fd;
}

const char *wfi_safetensors_path(const wf_safetensors *file, int k) {
    return file->parts[k].path;
}

/* ---- tensors ---- */

static wf_status read_as_it_is(const wf_safetensors *file, int i, uint64_t offset, void *dst,
                               size_t n_bytes, uint32_t *digest) {
    const part *p = part_of(file, i);
    const wf_safetensors_entry *e = &p->index.entries[i - p->first];
    WF_TRY(read_at(file, p, dst, n_bytes, p->data_start + e->offset + offset));
    if (digest) *digest ^= wfi_safetensors_digest_part(dst, n_bytes, e->n_bytes - offset - n_bytes);
    return WF_OK;
}

wf_status wfi_safetensors_read_part(const wf_safetensors *file, int i, wf_dtype dtype,
                                    uint64_t offset, void *dst, size_t n_bytes, uint32_t *digest) {
    const char *held = wf_safetensors_get(file, i)->dtype_name;
    size_t held_bytes = wfi_convert_bytes(held, dtype), bytes = wf_dtype_bytes(dtype);
    if (!held_bytes) return read_as_it_is(file, i, offset, dst, n_bytes, digest);
    uint64_t chunk[2048];
    size_t most = sizeof chunk / held_bytes, n_now;
    for (size_t done = 0, n = n_bytes / bytes; done < n; done += n_now) {
        n_now = n - done < most ? n - done : most;
        WF_TRY(read_as_it_is(file, i, (offset / bytes + done) * held_bytes, chunk,
                             n_now * held_bytes, digest));
        wfi_convert(held, chunk, n_now, (char *)dst + done * bytes);
    }
    return WF_OK;
}

static int compare_digest_key(const void *name, const void *pair) {
    size_t n = sizeof WFI_SAFETENSORS_DIGEST - 1;
    const char *key = ((const wf_metadata *)pair)->key;
    int order = strncmp(WFI_SAFETENSORS_DIGEST, key, n);
    return order ? order : strcmp(name, key + n);
}

wf_status wfi_safetensors_check_digest(const wf_safetensors *file, int i, uint32_t digest) {
    const wfi_metadata_list *list = &file->parts->index.metadata;
    const char *name = wf_safetensors_get(file, i)->name;
    if (!list->n) return WF_OK;
    const wf_metadata *pair =
        bsearch(name, list->pairs, list->n, sizeof *list->pairs, compare_digest_key);
    char text[16], shown[WFI_NAME_TEXT], said[WFI_NAME_TEXT];
    snprintf(text, sizeof text, "%08" PRIx32, digest);
    if (!pair || !strcmp(pair->value, text)) return WF_OK;
    return wfi_fail(file->ctx, WF_CORRUPT,
                    "%s: tensor %s is damaged: the CRC-32 of its bytes is %s, but the file records "
                    "%s; take another copy of the file",
                    part_of(file, i)->path, wfi_name_text(name, shown), text,
                    wfi_name_text(pair->value, said));
}

wf_status wf_safetensors_read(const wf_safetensors *file, int i, void *dst, size_t dst_bytes) {
    const wf_safetensors_entry *e = wf_safetensors_get(file, i);
    char shown[WFI_NAME_TEXT], dtype[WFI_NAME_TEXT];
    if (!e)
        return wfi_fail(file->ctx, WF_INVALID_ARG, "%s has %d tensors, and none with number %d",
                        file->parts->path, wf_safetensors_n_tensors(file), i);
    const char *path = part_of(file, i)->path;
    if (e->dtype == WF_N_DTYPES)
        return wfi_fail(file->ctx, WF_UNSUPPORTED,
                        "%s: tensor %s is of type %s, which weft cannot use; convert it to F32",
                        path, wfi_name_text(e->name, shown), wfi_name_text(e->dtype_name, dtype));
    if (e->n_bytes != dst_bytes)
        return wfi_fail(file->ctx, WF_SHAPE,
                        "%s: tensor %s has %" PRIu64 " bytes, but %zu were requested", path,
                        wfi_name_text(e->name, shown), e->n_bytes, dst_bytes);
    uint32_t digest = 0;
    WF_TRY(read_as_it_is(file, i, 0, dst, dst_bytes, &digest));
    return wfi_safetensors_check_digest(file, i, digest);
}
