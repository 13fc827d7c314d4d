/* Reading a safetensors file: the header once, each tensor when it is asked for. With
 * pread and not mmap, so that a file that shrinks meanwhile is an error and no signal. */
#include "state/header.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/file.h>
#include <zlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files are little-endian, and so is weft");

struct wf_safetensors {
    wf_context *ctx;
    char *path;
    int fd;
    uint64_t data_start; /* bytes from the start of the file */
    wfi_safetensors_index index;
};

static wf_status read_at(const wf_safetensors *file, void *dst, size_t n_bytes, uint64_t offset) {
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t n =
            pread(file->fd, (char *)dst + done, n_bytes - done, (off_t)(offset + (uint64_t)done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return wfi_fail(file->ctx, WF_IO, "%s cannot be read at byte %" PRIu64 ": %s",
                            file->path, offset + done, strerror(errno));
        if (n == 0)
            return wfi_fail(file->ctx, WF_IO,
                            "%s became shorter after it was opened: it ends at "
                            "byte %" PRIu64,
                            file->path, offset + done);
        done += (size_t)n;
    }
    return WF_OK;
}

static wf_status read_header(wf_safetensors *file, uint64_t file_bytes) {
    wf_context *ctx = file->ctx;
    uint8_t prefix[WFI_SAFETENSORS_PREFIX_BYTES] = {0};
    size_t n_header;
    if (file_bytes >= sizeof prefix) WF_TRY(read_at(file, prefix, sizeof prefix, 0));
    WF_TRY(wfi_safetensors_prefix(ctx, file->path, prefix, file_bytes, &n_header));
    char *header = wfi_alloc(ctx, n_header ? n_header : 1, 1, file->path);
    if (!header) return WF_NO_MEMORY;
    file->data_start = sizeof prefix + n_header;
    wf_status status = read_at(file, header, n_header, sizeof prefix);
    if (status == WF_OK)
        status = wfi_safetensors_parse(ctx, file->path, header, n_header,
                                       file_bytes - file->data_start, &file->index);
    wfi_free(ctx, header);
    return status;
}

static wf_status open_file(wf_safetensors *file, const char *path) {
    uint64_t file_bytes;
    file->path = wfi_strdup(file->ctx, path);
    if (!file->path) return WF_NO_MEMORY;
    WF_TRY(wf_file_open(file->ctx, path, &file->fd, &file_bytes));
    return read_header(file, file_bytes);
}

wf_status wf_safetensors_open(wf_context *ctx, const char *path, wf_safetensors **file_out) {
    wf_safetensors *file = wfi_alloc(ctx, 1, sizeof *file, "a safetensors file");
    if (!file) return WF_NO_MEMORY;
    file->ctx = ctx;
    file->fd = -1;
    wfi_pool_init(&file->index.pool, ctx);
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
    if (file->fd >= 0) close(file->fd);
    wfi_safetensors_index_release(&file->index);
    wfi_free(file->ctx, file->path);
    wfi_free(file->ctx, file);
}

int wf_safetensors_n_tensors(const wf_safetensors *file) {
    return (int)file->index.n_entries;
}

const wf_safetensors_entry *wf_safetensors_get(const wf_safetensors *file, int i) {
    return i >= 0 && (size_t)i < file->index.n_entries ? &file->index.entries[i] : NULL;
}

static int compare_name(const void *name, const void *entry) {
    return strcmp(name, (*(const wf_safetensors_entry *const *)entry)->name);
}

int wf_safetensors_find(const wf_safetensors *file, const char *name) {
    const wfi_safetensors_index *index = &file->index;
    const wf_safetensors_entry **found =
        bsearch(name, index->by_name, index->n_entries, sizeof *index->by_name, compare_name);
    return found ? (int)(*found - index->entries) : -1;
}

static int compare_key(const void *key, const void *pair) {
    return strcmp(key, ((const wf_metadata *)pair)->key);
}

const char *wf_safetensors_metadata(const wf_safetensors *file, const char *key) {
    const wfi_safetensors_index *index = &file->index;
    if (!index->n_metadata) return NULL;
    const wf_metadata *pair =
        bsearch(key, index->metadata, index->n_metadata, sizeof *index->metadata, compare_key);
    return pair ? pair->value : NULL;
}

const wf_metadata *wf_safetensors_metadata_get(const wf_safetensors *file, int i) {
    return i >= 0 && (size_t)i < file->index.n_metadata ? &file->index.metadata[i] : NULL;
}

int wfi_safetensors_descriptor(const wf_safetensors *file) {
    return file->fd;
}

const char *wfi_safetensors_path(const wf_safetensors *file) {
    return file->path;
}

wf_status wfi_safetensors_read_part(const wf_safetensors *file, int i, uint64_t offset, void *dst,
                                    size_t n_bytes) {
    return read_at(file, dst, n_bytes, file->data_start + file->index.entries[i].offset + offset);
}

uint32_t wfi_safetensors_digest_part(const void *data, size_t n_bytes, uint64_t n_after) {
    return (uint32_t)crc32_combine(crc32_z(0, data, n_bytes), 0, (z_off_t)n_after);
}

static int compare_digest_key(const void *name, const void *pair) {
    size_t n = sizeof WFI_SAFETENSORS_DIGEST - 1;
    const char *key = ((const wf_metadata *)pair)->key;
    int order = strncmp(WFI_SAFETENSORS_DIGEST, key, n);
    return order ? order : strcmp(name, key + n);
}

wf_status wfi_safetensors_check_digest(const wf_safetensors *file, int i, uint32_t digest) {
    const wfi_safetensors_index *index = &file->index;
    const char *name = index->entries[i].name;
    if (!index->n_metadata) return WF_OK;
    const wf_metadata *pair = bsearch(name, index->metadata, index->n_metadata,
                                      sizeof *index->metadata, compare_digest_key);
    char text[16], shown[WFI_NAME_TEXT], said[WFI_NAME_TEXT];
    snprintf(text, sizeof text, "%08" PRIx32, digest);
    if (!pair || !strcmp(pair->value, text)) return WF_OK;
    return wfi_fail(file->ctx, WF_CORRUPT,
                    "%s: tensor %s is damaged: the CRC-32 of its bytes is %s, and %s was written "
                    "beside them; take another copy of the file",
                    file->path, wfi_name_text(name, shown), text, wfi_name_text(pair->value, said));
}

wf_status wf_safetensors_read(const wf_safetensors *file, int i, void *dst, size_t dst_bytes) {
    const wf_safetensors_entry *e = wf_safetensors_get(file, i);
    char shown[WFI_NAME_TEXT], dtype[WFI_NAME_TEXT];
    if (!e)
        return wfi_fail(file->ctx, WF_INVALID_ARG, "%s has %d tensors, and none with number %d",
                        file->path, wf_safetensors_n_tensors(file), i);
    if (e->dtype == WF_N_DTYPES)
        return wfi_fail(file->ctx, WF_UNSUPPORTED,
                        "%s: tensor %s is of type %s, which weft cannot use; convert it to F32",
                        file->path, wfi_name_text(e->name, shown),
                        wfi_name_text(e->dtype_name, dtype));
    if (e->n_bytes != dst_bytes)
        return wfi_fail(file->ctx, WF_SHAPE,
                        "%s: tensor %s has %" PRIu64 " bytes, but %zu were asked for", file->path,
                        wfi_name_text(e->name, shown), e->n_bytes, dst_bytes);
    WF_TRY(read_at(file, dst, dst_bytes, file->data_start + e->offset));
    return wfi_safetensors_check_digest(file, i, wfi_safetensors_digest_part(dst, dst_bytes, 0));
}
