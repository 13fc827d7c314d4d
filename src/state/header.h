/* The header of a safetensors file: its tensors and metadata, checked against the file's length.
 * Private. */
#pragma once

#include "base/base.h"
#include <weft/checkpoint.h>

#define WFI_SAFETENSORS_PREFIX_BYTES 8
#define WFI_SAFETENSORS_MAX_HEADER   100000000 /* the format's own limit */

/* In __metadata__ of a training state: how many steps were taken. */
#define WFI_STEPS_KEY "weft.n_steps"
/* State of the schedule plateau: four numbers. */
#define WFI_PLATEAU_KEY "weft.plateau"
/* The part of the gradients' order of summation that a recipe may leave to the plan. */
#define WFI_SUMS_KEY "weft.sums"

typedef struct wfi_metadata_list {
    wf_metadata *pairs; /* ascending keys */
    size_t n, capacity;
} wfi_metadata_list;

typedef struct wfi_safetensors_index {
    wfi_pool pool;                 /* holds every string and shape */
    wf_safetensors_entry *entries; /* in the order of their bytes */
    size_t n_entries, entry_capacity;
    const wf_safetensors_entry **by_name; /* [n_entries] */
    wfi_metadata_list metadata;
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

/* ---- the index of a file that is divided into shards ---- */

#define WFI_SHARD_INDEX ".index.json" /* after the name that the file would have */

typedef struct wfi_shard_place {
    const char *name, *file; /* a tensor's name; a file of the index's own folder */
} wfi_shard_place;

typedef struct wfi_shard_index {
    wfi_pool pool;
    wfi_shard_place *places; /* ascending by file, then by name */
    size_t n_places, capacity;
    wfi_metadata_list metadata; /* what is text; transformers has numbers, too */
    int64_t total_bytes;        /* of all tensors, as the index says; -1: it does not */
} wfi_shard_index;

/* Parses a model.safetensors.index.json. Every tensor has one place, and no file is named that
 * could be in another folder. Errors: as of wfi_safetensors_parse. */
wf_status wfi_shard_index_parse(wf_context *ctx, const char *path, const char *text, size_t n_bytes,
                                wfi_shard_index *index_out);
void wfi_shard_index_release(wfi_shard_index *index);

/* ---- reading ---- */

/* One; or the index, and then its shards. */
int wfi_safetensors_n_files(const wf_safetensors *file);
const char *wfi_safetensors_path(const wf_safetensors *file, int k);
int wfi_safetensors_descriptor(const wf_safetensors *file, int k);

/* n_bytes of tensor i, converted to `dtype`, from `offset` in it; both lie inside, and are whole
 * elements. Tensors of types without conversion are read unchanged. `digest` (NULL is allowed) gets
 * the digest of the bytes in the file. Errors: IO. */
wf_status wfi_safetensors_read_part(const wf_safetensors *file, int i, wf_dtype dtype,
                                    uint64_t offset, void *dst, size_t n_bytes, uint32_t *digest);
/* Bytes in a file of an element of a type that can be converted to `dtype`; 0: the type cannot. */
size_t wfi_convert_bytes(const char *dtype_name, wf_dtype dtype);
/* n elements. F16 and BF16 exactly, F64 to the nearest; F32 is copied. */
void wfi_convert(const char *dtype_name, const void *src, size_t n, void *dst);
/* n doubles, for wfi_convert_to a type that is shorter than a float: not rounded to the nearest
 * twice.
 */
void wfi_convert_to_odd(const void *src, size_t n, float *dst);
/* n floats to the nearest of F16, BF16 or F32, ties to even. Returns the first that is finite and
 * too large for that; n: none. */
size_t wfi_convert_to(const char *dtype_name, const float *src, size_t n, void *dst);
/* Bytes of an element of the type; 0: the type is unknown, or its elements are not whole bytes. */
uint64_t wfi_safetensors_element_bytes(const char *dtype_name);

/* ---- digests ---- */

/* In __metadata__, with a tensor's name: the CRC-32 of its bytes, in eight hexadecimal digits. The
 * digest is a sum (xor) over the tensor's parts, so their number and order do not change it. */
#define WFI_SAFETENSORS_DIGEST "weft.crc32."
/* The digest of n_bytes that n_after bytes of the tensor follow. */
uint32_t wfi_safetensors_digest_part(const void *data, size_t n_bytes, uint64_t n_after);
/* In __metadata__, too: the CRC-32 of the file's header, or of the index's text, with zeros for its
 * own digits. */
#define WFI_SAFETENSORS_SEAL "weft.crc32"
/* Returns whether the key of metadata is that of a digest. */
bool wfi_safetensors_is_digest(const char *key);
/* Sets the seal in the text, if it has one. */
void wfi_safetensors_set_seal(char *text, size_t n);
/* Compares the text's seal, if it has one. Errors: CORRUPT. */
wf_status wfi_safetensors_check_seal(wf_context *ctx, const char *path, const char *text, size_t n);
/* Compares with the file's digest of tensor i, if the file has one. Errors: CORRUPT. */
wf_status wfi_safetensors_check_digest(const wf_safetensors *file, int i, uint32_t digest);

/* Declares a tensor of a file, of any type. Errors: those of wf_safetensors_writer_add_tensor. */
wf_status wfi_safetensors_writer_add_entry(wf_safetensors_writer *writer,
                                           const wf_safetensors_entry *entry);

/* ---- a file that several processes write ---- */

/* Fixes the layout, makes the shards' files and writes headers. As of the reader, one file or an
 * index and shards. Errors: those of the first write. */
wf_status wfi_safetensors_writer_share(wf_safetensors_writer *writer, int *n_files_out);
/* A writer of the same files; it declares the same tensors and shards, no metadata, and then joins
 * each file. Errors: IO, NO_MEMORY. */
wf_status wfi_safetensors_writer_join(wf_context *ctx, const char *path,
                                      wf_safetensors_writer **writer_out);
wf_status wfi_safetensors_writer_join_file(wf_safetensors_writer *writer, int k,
                                           const char *temporary, uint64_t data_start);
/* Before the first write: the file gets digests. Before it is committed, each tensor's is set.
 * `has_seal`: also one of the header. Weights have none, because other programs copy their
 * metadata into headers of their own. */
void wfi_safetensors_writer_add_digests(wf_safetensors_writer *writer, bool has_seal);
void wfi_safetensors_writer_set_digest(wf_safetensors_writer *writer, int i, uint32_t digest);
/* See wfi_replacement_write_through. Errors: IO. */
wf_status wfi_safetensors_writer_write_through(wf_safetensors_writer *writer);
/* The descriptor of file k; data_start_out (NULL is allowed) gets the offset of its tensors. */
int wfi_safetensors_writer_descriptor(const wf_safetensors_writer *writer, int k,
                                      uint64_t *data_start_out);
/* n_bytes of tensor i from `offset` in it; both lie inside. `data` NULL: another process writes
 * them. Errors: IO. */
wf_status wfi_safetensors_writer_write_part(wf_safetensors_writer *writer, int i, uint64_t offset,
                                            const void *data, size_t n_bytes);

/* Flushes all writes to the disk. Errors: IO. */
wf_status wfi_safetensors_writer_sync(const wf_safetensors_writer *writer);

/* A name from a file, fit for a sentence: a long one is cut. Returns `text`. */
#define WFI_NAME_TEXT 80
const char *wfi_name_text(const char *name, char text[WFI_NAME_TEXT]);
