/* Pictures for tests, by the libraries' own writers. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

/* [height, width, n_channels] of 1, 3 or 4 channels, 4 being CMYK. 0: it could not be written. */
static inline int write_jpeg(const char *path, const uint8_t *pixels, int width, int height,
                             int n_channels, int is_progressive) {
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path, "wb");
    if (!file) return 0;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = n_channels;
    jpeg.in_color_space = n_channels == 1 ? JCS_GRAYSCALE : n_channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 95, TRUE);
    if (is_progressive) jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + (size_t)y * width * n_channels);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return fclose(file) == 0;
}

/* Rows of `row_bytes`, as the colour type and the bits say; a palette is the 256 greys, backwards.
 */
static inline int write_png(const char *path, const uint8_t *rows, int width, int height,
                            size_t row_bytes, int color, int bits, int is_interlaced) {
    FILE *file = fopen(path, "wb");
    if (!file) return 0;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, bits, color,
                 is_interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_BASE, PNG_FILTER_TYPE_BASE);
    if (color == PNG_COLOR_TYPE_PALETTE) {
        png_color palette[256];
        png_byte alpha[256];
        for (int i = 0; i < 256; i++) {
            palette[i].red = palette[i].green = palette[i].blue = (png_byte)(255 - i);
            alpha[i] = (png_byte)i;
        }
        png_set_PLTE(png, info, palette, 1 << bits);
        png_set_tRNS(png, info, alpha, 1 << bits, NULL);
    }
    png_write_info(png, info);
    int n_passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < n_passes; pass++)
        for (int y = 0; y < height; y++) png_write_row(png, rows + (size_t)y * row_bytes);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return fclose(file) == 0;
}

static inline int write_rgb_png(const char *path, const uint8_t *rgb, int width, int height) {
    return write_png(path, rgb, width, height, (size_t)width * 3, PNG_COLOR_TYPE_RGB, 8, 0);
}
