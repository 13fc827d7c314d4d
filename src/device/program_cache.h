/* Compiled programs of devices, as files: $XDG_CACHE_HOME/weft, or ~/.cache/weft. A file's name is
 * the hash of all inputs of the program, so no file is ever out of date. Damaged files are not
 * used. Private to src/device. */
#pragma once

#include "base/base.h"

typedef struct wfi_program_cache {
    char folder[4096], path[4096]; /* empty: no cache */
} wfi_program_cache;

/* The file for a program of that kind of device, made of these texts. */
wfi_program_cache wfi_program_cache_find(const char *kind, const char *const *parts,
                                         size_t n_parts);
/* Reads a program; allocated by malloc; NULL: not in the cache. */
unsigned char *wfi_program_cache_read(const wfi_program_cache *cache, size_t *bytes_out);
/* Writes a program. On failure the next process compiles again. */
void wfi_program_cache_write(const wfi_program_cache *cache, const unsigned char *program,
                             size_t bytes);
