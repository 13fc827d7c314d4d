/* Checkpoints: safetensors files, read strictly and written atomically.
 *
 *     wf_safetensors_open(ctx, "model.safetensors", &file);
 *     int i = wf_safetensors_find(file, "fc.weight");
 *     if (i >= 0) wf_safetensors_read(file, i, weight, weight_bytes);
 *     wf_safetensors_close(file);
 *
 * A writer fills a temporary file beside the target; commit puts it in the target's
 * place in one step. Until then, and after any error, the old file is untouched.
 *
 * A reader may be used by several threads; a writer by one at a time.
 */
#ifndef WEFT_CHECKPOINT_H
#define WEFT_CHECKPOINT_H

#include <weft/context.h>
#include <weft/types.h>

typedef struct wf_safetensors wf_safetensors;
typedef struct wf_safetensors_writer wf_safetensors_writer;

/* One pair of a file's __metadata__. UTF-8. */
typedef struct wf_metadata {
    const char *key, *value;
} wf_metadata;

/* One tensor of a file. Files may hold dtypes and numbers of dims that weft cannot use. */
typedef struct wf_safetensors_entry {
    const char *name;
    const char *dtype_name; /* as the file says: "F32", "F16", ... */
    wf_dtype dtype;         /* WF_N_DTYPES if weft has no such type */
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

/* `path` is a file; or an index of shards, model.safetensors.index.json; or a folder with
 * model_ema.safetensors (the average of a model's weights), model.safetensors, or the index of
 * either; or a name X of which there is only X.index.json. Shards are files of the index's own
 * folder and no links; each has just the tensors that the index says, as many bytes in all as its
 * total_size says, if it does, and `file` has those of all, in the order of the shards' names.
 * Reads and checks the headers: sizes and offsets must agree with the file's length to
 * the byte, without holes, overlaps or names that occur twice. Errors: IO, CORRUPT (the
 * sentence names the file, the tensor and the rule), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_safetensors_open(wf_context *ctx, const char *path,
                                                  wf_safetensors **file_out);
WF_API void wf_safetensors_close(wf_safetensors *file); /* NULL is allowed */

WF_API int wf_safetensors_n_tensors(const wf_safetensors *file);

/* Tensor i in the order of the data; NULL past the last. Borrowed. */
WF_API const wf_safetensors_entry *wf_safetensors_get(const wf_safetensors *file, int i);

/* The number of the tensor called `name`; -1 if there is none. */
WF_API int wf_safetensors_find(const wf_safetensors *file, const char *name);

/* The value of a key of __metadata__, or of the index's metadata; NULL if it is not there.
 * Borrowed. */
WF_API const char *wf_safetensors_metadata(const wf_safetensors *file, const char *key);

/* Pair i in ascending byte order of the keys; NULL past the last. Borrowed. */
WF_API const wf_metadata *wf_safetensors_metadata_get(const wf_safetensors *file, int i);

/* Copies the bytes of tensor i. Errors: INVALID_ARG (no tensor i), UNSUPPORTED (its
 * dtype), SHAPE (dst_bytes is not its n_bytes), IO, CORRUPT (it has not the digest that a trainer
 * has written beside it). */
WF_API WF_NODISCARD wf_status wf_safetensors_read(const wf_safetensors *file, int i, void *dst,
                                                  size_t dst_bytes);

/* ---- writing ---- */

/* Writes a whole file, atomically. Errors: those of the writer below. */
WF_API WF_NODISCARD wf_status wf_safetensors_write(wf_context *ctx, const char *path,
                                                   const wf_tensor_data *tensors, int n_tensors,
                                                   const wf_metadata *metadata, int n_metadata);

/* Makes the temporary file in the folder of `path`. Errors: IO, NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_create(wf_context *ctx, const char *path,
                                                           wf_safetensors_writer **writer_out);

/* Text that is copied into __metadata__. Before the first write. Errors: INVALID_ARG (not
 * UTF-8, a key that is there already, too late), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_add_metadata(wf_safetensors_writer *writer,
                                                                 const char *key,
                                                                 const char *value);

/* Divides what is written into shards of at most that many bytes of tensors, or one tensor, and an
 * index, if it is more: model-00001-of-00003.safetensors and so on, or
 * model-b-00001-of-00003.safetensors in turn, and model.safetensors.index.json, for the path
 * model.safetensors. What they replace is removed after the commit: shards with such names, and
 * `path`. 0: one file. Errors: INVALID_ARG (too late). The first write refuses more than 300
 * shards. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_divide(wf_safetensors_writer *writer,
                                                           uint64_t shard_bytes);

/* Declares tensor 0, 1, 2, ...; all of them before the first write. Errors: INVALID_ARG
 * (not UTF-8, a name that is there already, a bad shape or dtype, too late), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_add_tensor(wf_safetensors_writer *writer,
                                                               const char *name, wf_dtype dtype,
                                                               const wf_shape *shape);

/* The bytes of the i-th declared tensor; in any order, each one once. `data` may be NULL
 * for a tensor without elements. Errors: INVALID_ARG (no such tensor, written before, a
 * mistake in the declarations), SHAPE (n_bytes is not its size), IO (e.g. the disk is
 * full). */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_write(wf_safetensors_writer *writer, int i,
                                                          const void *data, size_t n_bytes);

/* Brings everything to the disk and puts the file in the place of `path`. Errors:
 * INVALID_ARG (a tensor has not been written), IO. */
WF_API WF_NODISCARD wf_status wf_safetensors_writer_commit(wf_safetensors_writer *writer);

/* Removes the temporary file unless it was committed. NULL is allowed. */
WF_API void wf_safetensors_writer_destroy(wf_safetensors_writer *writer);

/* ---- from file to file ---- */

typedef struct wf_convert_config {
    size_t struct_size;
    const char *dtype;    /* "f16", "bf16" or "f32"; NULL: of each tensor what it is */
    uint64_t shard_bytes; /* as of wf_safetensors_writer_divide */
} wf_convert_config;
#define WF_CONVERT_CONFIG_INIT                                                                     \
    { sizeof(wf_convert_config), NULL, 0 }

/* Writes what is in `from` (see wf_safetensors_open) to `to`, atomically, some of a tensor at a
 * time: floating point numbers of 16, 32 and 64 bits in the given type, rounded to the nearest,
 * ties to even; all else as it is. Digests are compared, and written; other metadata is copied.
 * `to` may be `from`. Gives the number of tensors, and their bytes in `to`. Errors: CORRUPT
 * (damaged; the sentence names the tensor), NOT_FINITE (a number is too large for the type: tensor,
 * element and value are named, and nothing is written), INVALID_ARG (another type; rounding a
 * training state, from which a run would not go on as it was), UNSUPPORTED (more dims than weft
 * has), IO. */
WF_API WF_NODISCARD wf_status wf_safetensors_convert(wf_context *ctx, const char *from,
                                                     const char *to,
                                                     const wf_convert_config *config,
                                                     int *n_tensors_out, uint64_t *n_bytes_out);

#ifdef __cplusplus
}
#endif
#endif
