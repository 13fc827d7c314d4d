#include "data/gzip.h"
#include "base/base.h"

#include <zlib.h>

/* Deflate cannot pack tighter than this (zlib's technical notes: 1032 to 1), so an end that
 * claims more is wrong. */
#define MAX_RATIO      1032
#define MIN_GZIP_BYTES 18 /* header 10, trailer 8 */

static void *zlib_alloc(void *ctx, unsigned n, unsigned bytes) {
    return wfi_alloc(ctx, n, bytes, "unpacking");
}

static void zlib_free(void *ctx, void *block) {
    wfi_free(ctx, block);
}

/* zlib counts in 32 bits: hand it pieces. */
static unsigned piece(size_t n_bytes) {
    return n_bytes < 1u << 30 ? (unsigned)n_bytes : 1u << 30;
}

static int inflate_all(z_stream *z, const uint8_t *packed, size_t n_packed, uint8_t *dst,
                       size_t n_bytes, size_t *n_left_out) {
    size_t in_left = n_packed, out_left = n_bytes;
    int code = Z_OK;
    z->next_in = (Bytef *)packed; /* zlib does not write there */
    z->next_out = dst;
    while (code == Z_OK) {
        unsigned in = piece(in_left), out = piece(out_left);
        z->avail_in = in;
        z->avail_out = out;
        code = inflate(z, Z_NO_FLUSH);
        in_left -= in - z->avail_in;
        out_left -= out - z->avail_out;
    }
    *n_left_out = in_left;
    return code == Z_STREAM_END && out_left ? Z_BUF_ERROR : code;
}

/* Inflates into dst, which has room for n_bytes; Z_STREAM_END: they were all. */
static int inflate_into(wf_context *ctx, const uint8_t *packed, size_t n_packed, uint8_t *dst,
                        size_t n_bytes, size_t *n_left_out, const char **why_out) {
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free, .opaque = ctx};
    int code = inflateInit2(&z, 16 + MAX_WBITS); /* 16: gzip, with its checksum */
    if (code != Z_OK) return code;
    code = inflate_all(&z, packed, n_packed, dst, n_bytes, n_left_out);
    *why_out = z.msg ? z.msg : "its end or its length is wrong";
    inflateEnd(&z);
    return code;
}

static wf_status unzip_failed(wf_context *ctx, const char *path, int code, size_t n_bytes,
                              const char *why) {
    if (code == Z_MEM_ERROR) return wfi_no_memory(ctx, n_bytes, path);
    return wfi_fail(ctx, WF_CORRUPT, "%s is truncated or damaged: it does not unpack (%s)", path,
                    why);
}

/* Compares the length in the file's own header with the end of its gzip data, which counts modulo
 * 2^32, and with the largest ratio of deflate. Until then only the header has been unpacked. */
static wf_status check_length(wf_context *ctx, const char *path, const uint8_t *packed,
                              size_t n_packed, size_t n_bytes) {
    const uint8_t *trailer = packed + n_packed - 4;
    size_t claimed = (size_t)trailer[0] | (size_t)trailer[1] << 8 | (size_t)trailer[2] << 16 |
                     (size_t)trailer[3] << 24;
    if (claimed / MAX_RATIO > n_packed)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated or damaged: its end claims %zu bytes, more than %zu "
                        "packed bytes can hold",
                        path, claimed, n_packed);
    if (n_bytes != claimed)
        return wfi_fail(
            ctx, WF_CORRUPT,
            "%s is truncated or damaged: its header announces %zu bytes, the end of its "
            "gzip data %zu",
            path, n_bytes, claimed);
    return WF_OK;
}

wf_status wfi_gzip_unpack(wf_context *ctx, const char *path, const uint8_t *packed, size_t n_packed,
                          size_t n_head, wfi_gzip_announced announced, const void *self,
                          uint8_t **bytes_out, size_t *n_bytes_out) {
    uint8_t head[WFI_GZIP_MAX_HEAD] = {0};
    size_t n_bytes, n_left = 0;
    const char *why = "";
    if (n_packed < MIN_GZIP_BYTES || packed[0] != 0x1f || packed[1] != 0x8b)
        return wfi_fail(ctx, WF_CORRUPT, "%s is not a gzip file", path);
    /* Z_BUF_ERROR: the room is full, and that is all that was wanted. */
    int code = inflate_into(ctx, packed, n_packed, head, n_head, &n_left, &why);
    if (code != Z_BUF_ERROR && code != Z_STREAM_END)
        return unzip_failed(ctx, path, code, n_head, why);
    WF_TRY(announced(ctx, path, head, n_head, self, &n_bytes));
    WF_TRY(check_length(ctx, path, packed, n_packed, n_bytes));
    uint8_t *bytes = wfi_alloc(ctx, n_bytes ? n_bytes : 1, 1, path);
    if (!bytes) return WF_NO_MEMORY;
    code = inflate_into(ctx, packed, n_packed, bytes, n_bytes, &n_left, &why);
    wf_status status = WF_OK;
    if (code != Z_STREAM_END)
        status = unzip_failed(ctx, path, code, n_bytes, why);
    else if (n_left)
        status = wfi_fail(ctx, WF_CORRUPT, "%s has %zu bytes after the end of its gzip data", path,
                          n_left);
    if (status != WF_OK) {
        wfi_free(ctx, bytes);
        return status;
    }
    *bytes_out = bytes;
    *n_bytes_out = n_bytes;
    return WF_OK;
}
