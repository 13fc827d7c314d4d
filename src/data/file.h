/* Whole files in memory. Sentences begin with the path. Private. */
#ifndef WFI_DATA_FILE_H
#define WFI_DATA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

bool wfi_file_exists(const char *path); /* as a regular file */

wf_status wfi_file_size(wf_context *ctx, const char *path, size_t *n_bytes_out);

/* Reads exactly n_bytes, all there is. */
wf_status wfi_file_read_into(wf_context *ctx, const char *path, uint8_t *dst, size_t n_bytes);

/* Free with wfi_free. */
wf_status wfi_file_read(wf_context *ctx, const char *path, uint8_t **bytes_out,
                        size_t *n_bytes_out);

#define WFI_FILE_MAX_HEAD 32 /* no header is longer */
/* How many bytes the unpacked file has, by its first n_head bytes. Errors: CORRUPT. */
typedef wf_status (*wfi_file_announced)(wf_context *ctx, const char *path, const uint8_t *head,
                                        size_t n_head, const void *self, size_t *n_bytes_out);

/* Unpacks one gzip member that must end where the bytes end. `announced` computes the length from
 * the first n_head bytes. The function allocates this length only if the member's end has the same
 * and n_packed bytes can unpack to it. `path` is for sentences. */
wf_status wfi_file_unzip(wf_context *ctx, const char *path, const uint8_t *packed, size_t n_packed,
                         size_t n_head, wfi_file_announced announced, const void *self,
                         uint8_t **bytes_out, size_t *n_bytes_out);

#endif
