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

/* Unpacks one gzip member that must end where the bytes end. Memory is taken for as many bytes as
 * `announced` makes of the first n_head of them, and only if those are what the member's end claims
 * and what so many packed bytes can hold. `path` is for sentences. */
wf_status wfi_file_unzip(wf_context *ctx, const char *path, const uint8_t *packed, size_t n_packed,
                         size_t n_head, wfi_file_announced announced, const void *self,
                         uint8_t **bytes_out, size_t *n_bytes_out);

#endif
