/* The header of a safetensors file: what is in it, checked against the file's length.
 * Private. */
#ifndef WFI_STATE_HEADER_H
#define WFI_STATE_HEADER_H

#include "base/base.h"
#include <weft/checkpoint.h>

#define WFI_SAFETENSORS_PREFIX_BYTES 8
#define WFI_SAFETENSORS_MAX_HEADER   100000000 /* the format's own limit */

typedef struct wfi_safetensors_index {
    wfi_pool pool;                 /* holds every string and shape */
    wf_safetensors_entry *entries; /* in the order of their bytes */
    size_t n_entries, entry_capacity;
    const wf_safetensors_entry **by_name; /* [n_entries] */
    wf_metadata *metadata;                /* ascending keys */
    size_t n_metadata, metadata_capacity;
} wfi_safetensors_index;

/* The header's length from the file's first bytes (fewer than 8 if it has no more).
 * Errors: CORRUPT. `path` is for sentences, here and below. */
wf_status wfi_safetensors_prefix(wf_context *ctx, const char *path, const uint8_t *prefix,
                                 uint64_t file_bytes, size_t *n_header_out);

/* Parses `header`, which n_data_bytes of data follow. Errors: CORRUPT, NO_MEMORY; after
 * them there is nothing to release. */
wf_status wfi_safetensors_parse(wf_context *ctx, const char *path, const char *header,
                                size_t n_header, uint64_t n_data_bytes,
                                wfi_safetensors_index *index_out);
void wfi_safetensors_index_release(wfi_safetensors_index *index);

const char *wfi_safetensors_path(const wf_safetensors *file);

int wfi_safetensors_descriptor(const wf_safetensors *file);

/* n_bytes of tensor i from `offset` in it; both lie inside. Any dtype. Errors: IO. */
wf_status wfi_safetensors_read_part(const wf_safetensors *file, int i, uint64_t offset, void *dst,
                                    size_t n_bytes);

/* ---- digests ---- */

/* In __metadata__, with a tensor's name: the CRC-32 of its bytes, in eight hexadecimal digits. It
 * is a sum (xor) over the tensor's parts, so it does not tell how many there were, nor in which
 * order they came. */
#define WFI_SAFETENSORS_DIGEST "weft.crc32."
/* What n_bytes add, if n_after bytes of the tensor follow them. */
uint32_t wfi_safetensors_digest_part(const void *data, size_t n_bytes, uint64_t n_after);
/* Compares with what the file says of tensor i, if it says anything. Errors: CORRUPT. */
wf_status wfi_safetensors_check_digest(const wf_safetensors *file, int i, uint32_t digest);

/* ---- a file that several processes write ---- */

/* What the others need of the process that creates the file and will commit it. */
typedef struct wfi_shared_file {
    const char *temporary;
    uint64_t data_start; /* bytes from the begin of the file */
} wfi_shared_file;

/* Fixes the layout and writes the header. Errors: those of the first write. */
wf_status wfi_safetensors_writer_share(wf_safetensors_writer *writer, wfi_shared_file *shared_out);
/* A writer of the same file; it declares the same tensors, and no metadata. Errors: IO, NO_MEMORY.
 */
wf_status wfi_safetensors_writer_join(wf_context *ctx, const char *path,
                                      const wfi_shared_file *shared,
                                      wf_safetensors_writer **writer_out);
/* Before the first write: the file gets digests. Before it is committed, each tensor's is set. */
void wfi_safetensors_writer_add_digests(wf_safetensors_writer *writer);
void wfi_safetensors_writer_set_digest(wf_safetensors_writer *writer, int i, uint32_t digest);
/* See wfi_replacement_write_through. Errors: IO. */
wf_status wfi_safetensors_writer_write_through(wf_safetensors_writer *writer);
int wfi_safetensors_writer_descriptor(const wf_safetensors_writer *writer);
/* n_bytes of tensor i from `offset` in it; both lie inside. `data` NULL: another process writes
 * them. Errors: IO. */
wf_status wfi_safetensors_writer_write_part(wf_safetensors_writer *writer, int i, uint64_t offset,
                                            const void *data, size_t n_bytes);

/* A name from a file, fit for a sentence: a long one is cut. Returns `text`. */
#define WFI_NAME_TEXT 80
const char *wfi_name_text(const char *name, char text[WFI_NAME_TEXT]);

#endif
