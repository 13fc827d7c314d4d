#include "data/picture.h"
#include "base/base.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#define MAX_SCANS 500 /* no encoder makes so many of a progressive JPEG; each costs a pass */
#define WHY_BYTES 200

/* The state of decoding a picture. The libraries use longjmp on an error; this holds the objects to
 * free. */
typedef struct decoding {
    wf_context *ctx;
    const char *path;
    const uint8_t *bytes;
    size_t n_bytes, at;
    wfi_picture picture;
    uint8_t *row; /* of CMYK */
    wf_status status;
    char why[WHY_BYTES];
    jmp_buf back;
} decoding;

static wf_status allocate(decoding *d, uint64_t width, uint64_t height) {
    if (!width || !height || width > WFI_PICTURE_MAX_PIXELS ||
        height > WFI_PICTURE_MAX_PIXELS / width)
        return wfi_fail(d->ctx, WF_CORRUPT,
                        "%s announces a picture of %" PRIu64 " x %" PRIu64
                        " pixels; there must be 1 to %d in all",
                        d->path, width, height, WFI_PICTURE_MAX_PIXELS);
    d->picture.width = (int64_t)width;
    d->picture.height = (int64_t)height;
    d->picture.rgb = wfi_alloc(d->ctx, (size_t)(width * height), 3, d->path);
    return d->picture.rgb ? WF_OK : WF_NO_MEMORY;
}

/* ---- JPEG ---- */

static void jpeg_failed(j_common_ptr c) {
    decoding *d = c->client_data;
    char why[JMSG_LENGTH_MAX];
    c->err->format_message(c, why);
    snprintf(d->why, sizeof d->why, "%s", why);
    longjmp(d->back, 1);
}

/* Warnings by which pixels are lost are errors; extra bytes and odd headers are not. */
static void jpeg_message(j_common_ptr c, int level) {
    switch (level < 0 ? c->err->msg_code : 0) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
        jpeg_failed(c);
        break;
    default:
        break;
    }
}

static void jpeg_progress(j_common_ptr c) {
    decoding *d = c->client_data;
    if (((j_decompress_ptr)c)->input_scan_number <= MAX_SCANS) return;
    snprintf(d->why, sizeof d->why, "it has more than %d scans", MAX_SCANS);
    longjmp(d->back, 1);
}

static uint8_t times_255th(unsigned a, unsigned b) {
    unsigned product = a * b + 128;
    return (uint8_t)(((product >> 8) + product) >> 8);
}

/* Adobe's CMYK is inverted: 255 is no ink. */
static void from_cmyk(const uint8_t *cmyk, int64_t n, uint8_t *rgb) {
    for (int64_t i = 0; i < n; i++, cmyk += 4, rgb += 3)
        for (int k = 0; k < 3; k++)
            rgb[k] = (uint8_t)(cmyk[3] - times_255th(255u - cmyk[k], cmyk[3]));
}

static void read_jpeg_rows(decoding *d, j_decompress_ptr jpeg) {
    int64_t width = d->picture.width;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = d->picture.rgb + (int64_t)jpeg->output_scanline * width * 3;
        JSAMPROW row = d->row ? d->row : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (d->row) from_cmyk(d->row, width, to);
    }
}

/* Leaves the status and the picture in `d`. */
static void decode_jpeg(decoding *d) {
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress = {.progress_monitor = jpeg_progress};
    struct jpeg_decompress_struct jpeg = {.err = jpeg_std_error(&errors), .client_data = d};
    errors.error_exit = jpeg_failed;
    errors.emit_message = jpeg_message;
    if (setjmp(d->back)) {
        jpeg_destroy_decompress(&jpeg);
        return;
    }
    jpeg_create_decompress(&jpeg);
    jpeg.progress = &progress;
    jpeg_mem_src(&jpeg, d->bytes, (unsigned long)d->n_bytes);
    jpeg_read_header(&jpeg, TRUE);
    bool is_cmyk = jpeg.num_components == 4;
    jpeg.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    d->status = allocate(d, jpeg.image_width, jpeg.image_height);
    if (d->status == WF_OK && is_cmyk &&
        !(d->row = wfi_alloc(d->ctx, jpeg.image_width, 4, d->path)))
        d->status = WF_NO_MEMORY;
    if (d->status == WF_OK) {
        jpeg_start_decompress(&jpeg);
        read_jpeg_rows(d, &jpeg);
    }
    jpeg_destroy_decompress(&jpeg);
}

/* ---- PNG ---- */

static void png_failed(png_structp png, png_const_charp why) {
    decoding *d = png_get_error_ptr(png);
    snprintf(d->why, sizeof d->why, "%s", why);
    longjmp(d->back, 1);
}

static void png_warned(png_structp png, png_const_charp why) {
    (void)png;
    (void)why;
}

static void png_read(png_structp png, png_bytep to, size_t n) {
    decoding *d = png_get_io_ptr(png);
    if (n > d->n_bytes - d->at) png_error(png, "the file ends too early");
    memcpy(to, d->bytes + d->at, n);
    d->at += n;
}

static void read_png_rows(decoding *d, png_structp png, png_infop info) {
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_strip_16(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    int n_passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)d->picture.width * 3)
        png_error(png, "its rows do not become RGB");
    for (int pass = 0; pass < n_passes; pass++)
        for (int64_t y = 0; y < d->picture.height; y++)
            png_read_row(png, d->picture.rgb + y * d->picture.width * 3, NULL);
}

static void decode_png(decoding *d) {
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, png_failed, png_warned);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info) {
        d->status = wfi_no_memory(d->ctx, d->n_bytes, d->path);
    } else if (!setjmp(d->back)) {
        png_set_read_fn(png, d, png_read);
        png_set_user_limits(png, WFI_PICTURE_MAX_PIXELS, WFI_PICTURE_MAX_PIXELS);
        png_read_info(png, info);
        d->status = allocate(d, png_get_image_width(png, info), png_get_image_height(png, info));
        if (d->status == WF_OK) read_png_rows(d, png, info);
    }
    png_destroy_read_struct(&png, &info, NULL);
}

/* ---- either ---- */

wf_status wfi_picture_decode(wf_context *ctx, const char *path, const uint8_t *bytes,
                             size_t n_bytes, wfi_picture *picture_out) {
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    decoding d = {.ctx = ctx, .path = path, .bytes = bytes, .n_bytes = n_bytes};
    if (n_bytes > sizeof jpeg && !memcmp(bytes, jpeg, sizeof jpeg))
        decode_jpeg(&d);
    else if (n_bytes > sizeof png && !memcmp(bytes, png, sizeof png))
        decode_png(&d);
    else
        d.status = wfi_fail(ctx, WF_CORRUPT, "%s is neither JPEG nor PNG", path);
    wfi_free(ctx, d.row);
    if (*d.why) d.status = wfi_fail(ctx, WF_CORRUPT, "%s is truncated or damaged: %s", path, d.why);
    if (d.status != WF_OK) {
        wfi_free(ctx, d.picture.rgb);
        return d.status;
    }
    *picture_out = d.picture;
    return WF_OK;
}
