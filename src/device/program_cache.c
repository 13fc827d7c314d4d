#include "device/program_cache.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGEST_BYTES crypto_hash_sha256_BYTES

wfi_program_cache wfi_program_cache_find(const char *kind, const char *const *parts,
                                         size_t n_parts) {
    wfi_program_cache cache = {"", ""};
    const char *home = getenv("HOME"), *root = getenv("XDG_CACHE_HOME");
    unsigned char digest[DIGEST_BYTES];
    char hex[2 * DIGEST_BYTES + 1];
    crypto_hash_sha256_state hash;
    bool has_root = root && *root == '/';
    if (!has_root && (!home || *home != '/')) return cache;
    crypto_hash_sha256_init(&hash);
    for (size_t i = 0; i < n_parts; i++)
        crypto_hash_sha256_update(&hash, (const unsigned char *)parts[i], strlen(parts[i]) + 1);
    crypto_hash_sha256_final(&hash, digest);
    sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
    int n = snprintf(cache.folder, sizeof cache.folder, has_root ? "%s/weft" : "%s/.cache/weft",
                     has_root ? root : home);
    if (n >= 0 && (size_t)n < sizeof cache.folder)
        n = snprintf(cache.path, sizeof cache.path, "%.3900s/%s-%s", cache.folder, kind, hex);
    if (n < 0 || (size_t)n >= sizeof cache.path) cache.path[0] = '\0';
    return cache;
}

unsigned char *wfi_program_cache_read(const wfi_program_cache *cache, size_t *bytes_out) {
    FILE *file = *cache->path ? fopen(cache->path, "rbe") : NULL;
    unsigned char expected[DIGEST_BYTES], digest[DIGEST_BYTES], *program = NULL;
    struct stat about;
    if (file && !fstat(fileno(file), &about) && about.st_size > (off_t)DIGEST_BYTES) {
        *bytes_out = (size_t)about.st_size - DIGEST_BYTES;
        program = malloc(*bytes_out);
        bool is_whole = program && fread(expected, DIGEST_BYTES, 1, file) == 1 &&
                        fread(program, *bytes_out, 1, file) == 1;
        if (is_whole) crypto_hash_sha256(digest, program, *bytes_out);
        if (!is_whole || memcmp(digest, expected, DIGEST_BYTES) != 0) {
            free(program);
            program = NULL;
        }
    }
    if (file) fclose(file);
    return program;
}

/* Renames the complete file to its path, as several processes may write the same program. */
void wfi_program_cache_write(const wfi_program_cache *cache, const unsigned char *program,
                             size_t bytes) {
    char path[4200], parent[sizeof cache->folder];
    unsigned char digest[DIGEST_BYTES];
    if (!*cache->path) return;
    snprintf(parent, sizeof parent, "%s", cache->folder);
    *strrchr(parent, '/') = '\0';
    if (mkdir(cache->folder, 0700) && errno == ENOENT &&
        (mkdir(parent, 0700) || mkdir(cache->folder, 0700)))
        return;
    snprintf(path, sizeof path, "%s-XXXXXX", cache->path);
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!file) {
        if (fd >= 0) close(fd);
        return;
    }
    crypto_hash_sha256(digest, program, bytes);
    bool is_written =
        fwrite(digest, DIGEST_BYTES, 1, file) == 1 && fwrite(program, bytes, 1, file) == 1;
    is_written &= !fclose(file);
    if (!is_written || rename(path, cache->path)) unlink(path);
}
