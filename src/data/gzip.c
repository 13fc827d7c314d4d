#include "data/gzip.h"
#include "base/base.h"

#include <zlib.h>

/* Deflate cannot pack tighter than this (zlib's technical notes: 1032 to 1), so a header that
 * announces more is wrong. */
#define MAX_RATIO 1032

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

static bool starts_member(const uint8_t *at, size_t n) {
    return n >= 2 && at[0] == 0x1f && at[1] == 0x8b;
}

/* Unpacks one member after the other. */
static int inflate_all(z_stream *z, const uint8_t *packed, size_t *in_left, uint8_t *dst,
                       size_t *out_left) {
    int code = Z_OK;
    z->next_in = (Bytef *)packed; /* zlib does not write there */
    z->next_out = dst;
    while (code == Z_OK) {
        unsigned in = piece(*in_left), out = piece(*out_left);
        z->avail_in = in;
        z->avail_out = out;
        code = inflate(z, Z_NO_FLUSH);
        *in_left -= in - z->avail_in;
        *out_left -= out - z->avail_out;
        if (code == Z_STREAM_END && starts_member(z->next_in, *in_left)) code = inflateReset(z);
    }
    return code;
}

/* Inflates into dst, which has room for n_bytes. OK: the members had as many or, if only the head
 * is wanted, more. */
static wf_status inflate_into(wf_context *ctx, const char *path, const uint8_t *packed,
                              size_t n_packed, uint8_t *dst, size_t n_bytes, bool is_head) {
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free, .opaque = ctx};
    size_t in_left = n_packed, out_left = n_bytes;
    int code = inflateInit2(&z, 16 + MAX_WBITS); /* 16: gzip, with its checksum */
    if (code == Z_OK) {
        code = inflate_all(&z, packed, &in_left, dst, &out_left);
        inflateEnd(&z);
    }
    if (code == Z_MEM_ERROR) return wfi_no_memory(ctx, n_bytes, path);
    if (is_head && (code == Z_STREAM_END || (code == Z_BUF_ERROR && !out_left))) return WF_OK;
    if (code == Z_BUF_ERROR && !out_left && in_left)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is damaged: it unpacks to more than the %zu bytes that its header "
                        "announces",
                        path, n_bytes);
    if (code != Z_STREAM_END || out_left)
        return wfi_fail(ctx, WF_CORRUPT, "%s is truncated or damaged: it does not unpack (%s)",
                        path, z.msg ? z.msg : "its end or its length is wrong");
    while (in_left && !packed[n_packed - in_left]) in_left--; /* tapes and disks pad with zeros */
    if (in_left)
        return wfi_fail(ctx, WF_CORRUPT, "%s has %zu bytes after the end of its gzip data", path,
                        in_left);
    return WF_OK;
}

wf_status wfi_gzip_unpack(wf_context *ctx, const char *path, const uint8_t *packed, size_t n_packed,
                          size_t n_head, wfi_gzip_announced announced, const void *self,
                          uint8_t **bytes_out, size_t *n_bytes_out) {
    uint8_t head[WFI_GZIP_MAX_HEAD] = {0};
    size_t n_bytes;
    if (!starts_member(packed, n_packed))
        return wfi_fail(ctx, WF_CORRUPT, "%s is not a gzip file", path);
    WF_TRY(inflate_into(ctx, path, packed, n_packed, head, n_head, true));
    WF_TRY(announced(ctx, path, head, n_head, self, &n_bytes));
    if (n_bytes / MAX_RATIO > n_packed)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated or damaged: its header announces %zu bytes, more than %zu "
                        "packed bytes can hold",
                        path, n_bytes, n_packed);
    uint8_t *bytes = wfi_alloc(ctx, n_bytes ? n_bytes : 1, 1, path);
    if (!bytes) return WF_NO_MEMORY;
    wf_status status = inflate_into(ctx, path, packed, n_packed, bytes, n_bytes, false);
    if (status != WF_OK) {
        wfi_free(ctx, bytes);
        return status;
    }
    *bytes_out = bytes;
    *n_bytes_out = n_bytes;
    return WF_OK;
}
