/* Unpacking of gzip files. Private. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

#define WFI_GZIP_MAX_HEAD 32 /* no header is longer */
/* How many bytes the unpacked file has, by its first n_head bytes. Errors: CORRUPT. */
typedef wf_status (*wfi_gzip_announced)(wf_context *ctx, const char *path, const uint8_t *head,
                                        size_t n_head, const void *self, size_t *n_bytes_out);

/* Unpacks all members of a gzip file; zeros may follow them. `announced` computes the length from
 * the first n_head bytes. The function allocates this length only if n_packed bytes can unpack to
 * it, and the members must have the same. `path` is for sentences. */
wf_status wfi_gzip_unpack(wf_context *ctx, const char *path, const uint8_t *packed, size_t n_packed,
                          size_t n_head, wfi_gzip_announced announced, const void *self,
                          uint8_t **bytes_out, size_t *n_bytes_out);
