/* Regular files, and whole ones in memory. Sentences begin with the path. Private. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

#pragma GCC visibility push(default) /* for libweft-data, too (CMakeLists.txt) */

/* wf_file_open with further flags, such as O_NOFOLLOW: a link is refused. */
wf_status wfi_file_open(wf_context *ctx, const char *path, int flags, int *fd_out,
                        uint64_t *bytes_out);

bool wfi_file_exists(const char *path); /* as a regular file */

wf_status wfi_file_size(wf_context *ctx, const char *path, size_t *n_bytes_out);

/* Reads exactly n_bytes, all there is. */
wf_status wfi_file_read_into(wf_context *ctx, const char *path, uint8_t *dst, size_t n_bytes);

/* Free with wfi_free. */
wf_status wfi_file_read(wf_context *ctx, const char *path, uint8_t **bytes_out,
                        size_t *n_bytes_out);

#pragma GCC visibility pop
