/* Checkpoints as safetensors files, read strictly and written atomically.
 *
 *     wf_safetensors_open(ctx, "model.safetensors", &file);
 *     int i = wf_safetensors_find(file, "fc.weight");
 *     if (i >= 0) wf_safetensors_read(file, i, weight, weight_bytes);
 *     wf_safetensors_close(file);
 *
 * A writer fills a temporary file in the target's folder. The commit then replaces the target in
 * one step. Before the commit, and after any error, the old file is untouched.
 *
 * Several threads may use a reader at the same time. One thread at a time may use a writer.
 */
#ifndef WEFT_CHECKPOINT_H
#define WEFT_CHECKPOINT_H

#include <weft/context.h>
#include <weft/types.h>

typedef struct wf_safetensors wf_safetensors;
typedef struct wf_safetensors_writer wf_safetensors_writer;

/* One key-value pair of a file's __metadata__, in UTF-8. */
typedef struct wf_metadata {
    const char *key, *value;
} wf_metadata;

/* One tensor of a file. A file may hold dtypes and numbers of dims that weft does not support. */
typedef struct wf_safetensors_entry {
    const char *name;
    const char *dtype_name; /* the file's name of the dtype: "F32", "F16", ... */
    wf_dtype dtype;         /* WF_N_DTYPES if weft does not support the dtype */
    int n_dims;
    const int64_t *dim; /* [n_dims] */
    uint64_t offset;    /* bytes from the start of the file's data part */
    uint64_t n_bytes;
} wf_safetensors_entry;

/* One tensor to write; row-major. */
typedef struct wf_tensor_data {
    const char *name;
    wf_dtype dtype;
    wf_shape shape;
    const void *data;
} wf_tensor_data;

#ifdef __cplusplus
extern "C" {
#endif

/* ---- reading ---- */

/* Opens a checkpoint, then reads and checks its headers. `path` is one of:
 *
 *   a safetensors file
 *   the index of a sharded checkpoint, model.safetensors.index.json
 *   a folder that contains model_ema.safetensors (the average of a model's weights),
 *     model.safetensors, or the index of either
 *   a name X of which only X.index.json exists
 *
 * Sizes and offsets must match the file's length to the byte, without holes, overlaps or duplicate
 * names. Shards must be regular files in the index's folder, not links. Each shard must contain
 * exactly the tensors that the index lists for it, and all together total_size bytes, if the
 * index has that field. `file` then contains the tensors of all shards, in the order of the shards'
 * names. Errors: IO, CORRUPT (the sentence names the file, the tensor and the rule), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_safetensors_open(wf_context *ctx, const char *path,
                                                  wf_safetensors **file_out);
WF_API void wf_safetensors_close(wf_safetensors *file); /* NULL is allowed */

/* The number of tensors. */
WF_API int wf_safetensors_n_tensors(const wf_safetensors *file);

/* Tensor i in the order of the data; NULL past the last. Borrowed. */
WF_API const wf_safetensors_entry *wf_safetensors_get(const wf_safetensors *file, int i);

/* The index of the tensor called `name`; -1 if the file does not contain it. */
WF_API int wf_safetensors_find(const wf_safetensors *file, const char *name);

/* The value of a key of __metadata__ or of the index's metadata; NULL if neither has the key.
 * Borrowed. */
WF_API const char *wf_safetensors_metadata(const wf_safetensors *file, const char *key);

/* Pair i in ascending byte order of the keys; NULL past the last. Borrowed. */
WF_API const wf_metadata *wf_safetensors_metadata_get(const wf_safetensors *file, int i);

/* Copies the bytes of tensor i to `dst`. Errors: INVALID_ARG (i is out of range), UNSUPPORTED (its
 * dtype), SHAPE (dst_bytes is not its n_bytes), IO, CORRUPT (the bytes do not match the digest that
 * a trainer stored with the tensor). */
WF_API WF_NODISCARD wf_status wf_safetensors_read(const wf_safetensors *file, int i, void *dst,
                                                  size_t dst_bytes);

/* ---- writing ---- */

/* Writes a whole file atomically. Errors: those of the writer below. */
WF_API WF_NODISCARD wf_status wf_safetensors_write(wf_context *ctx, const char *path,
                                                   const wf_tensor_data *tensors, int n_tensors,
                                                   const wf_metadata *metadata, int n_metadata);

/* Creates a writer, with its temporary file in the folder of `path`. Errors: IO, NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_create(wf_context *ctx, const char *path,
                                                           wf_safetensors_writer **writer_out);

/* Adds a pair to __metadata__; both texts are copied. Call it before the first write. Errors:
 * INVALID_ARG (not UTF-8, a duplicate key, too late), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_add_metadata(wf_safetensors_writer *writer,
                                                                 const char *key,
                                                                 const char *value);

/* Splits the output into shards of at most `shard_bytes` bytes of tensors each; a larger tensor
 * gets a shard of its own. 0, the default, writes one file, and so does an output that fits into
 * one shard. For the path model.safetensors, the shards are model-00001-of-00003.safetensors and
 * so on, with the index model.safetensors.index.json. Consecutive saves alternate between these
 * names and model-b-00001-of-00003.safetensors. After the commit the writer removes the files that
 * the new ones replace: older shards with such names, and `path`. Errors: INVALID_ARG (called after
 * the first write). The first write refuses more than 300 shards. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_divide(wf_safetensors_writer *writer,
                                                           uint64_t shard_bytes);

/* Declares tensor 0, 1, 2, ... Declare all tensors before the first write. Errors: INVALID_ARG
 * (not UTF-8, a duplicate name, a bad shape or dtype, too late), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_add_tensor(wf_safetensors_writer *writer,
                                                               const char *name, wf_dtype dtype,
                                                               const wf_shape *shape);

/* Writes the bytes of the i-th declared tensor. Tensors may come in any order, each one once.
 * `data` may be NULL for a tensor without elements. Errors: INVALID_ARG (i is out of range or
 * already written, a mistake in the declarations), SHAPE (n_bytes is not the tensor's size), IO
 * (for example, the disk is full). */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_write(wf_safetensors_writer *writer, int i,
                                                          const void *data, size_t n_bytes);

/* Flushes everything to disk and replaces `path`. Errors: INVALID_ARG (a tensor has not been
 * written), IO. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_commit(wf_safetensors_writer *writer);

/* Removes the temporary file unless it was committed. NULL is allowed. */
WF_API void wf_safetensors_writer_destroy(wf_safetensors_writer *writer);

/* ---- from file to file ---- */

typedef struct wf_convert_config {
    size_t struct_size;
    const char *dtype;    /* "f16", "bf16" or "f32"; NULL: each tensor keeps its dtype */
    uint64_t shard_bytes; /* as in wf_safetensors_writer_divide */
} wf_convert_config;
#define WF_CONVERT_CONFIG_INIT                                                                     \
    { sizeof(wf_convert_config), NULL, 0 }

/* Copies the checkpoint `from` (see wf_safetensors_open) to `to`, atomically and piece by piece.
 * Floating-point tensors of 16, 32 and 64 bits get the configured dtype, rounded to nearest, ties
 * to even; other tensors keep theirs. Digests are checked and written anew; other metadata is
 * copied. `to` may be `from`. The outputs are the number of tensors and their bytes in `to`.
 * Errors: CORRUPT (damaged data; the sentence names the tensor), NOT_FINITE (a number overflows
 * the dtype; the sentence names tensor, element and value, and `to` is untouched), INVALID_ARG
 * (an unknown dtype; or rounding of a training state, which would change a resumed run),
 * UNSUPPORTED (more than WF_MAX_DIMS dims), IO. */
WF_API WF_NODISCARD wf_status wf_safetensors_convert(wf_context *ctx, const char *from,
                                                     const char *to,
                                                     const wf_convert_config *config,
                                                     int *n_tensors_out, uint64_t *n_bytes_out);

#ifdef __cplusplus
}
#endif
#endif
