/* Single pictures: what is decoded, resized and refused.
 *
 * label: serial
 */
#include "data_folder.h"
#include "write_picture.h"

#include "base/base.h"
#include "data/resize.h"
#include <zlib.h>

/* ---- decoding ---- */

static wf_status decode_file(folder *f, const char *path, wfi_picture *picture) {
    static uint8_t bytes[1 << 20];
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    return wfi_picture_decode(f->ctx, "it", bytes, n, picture);
}

/* Decodes to pixels that are near the formula's; `n_keep` of 3 channels count. */
static void expect_near(folder *f, const char *name, int (*value)(int x, int y, int c), int most) {
    wfi_picture picture;
    if (decode_file(f, folder_file(f, name), &picture) != WF_OK)
        fail_msg("%s: %s", name, wf_context_error(f->ctx));
    assert_int_equal(picture.width, 20);
    assert_int_equal(picture.height, 12);
    for (int y = 0; y < 12; y++)
        for (int x = 0; x < 20; x++)
            for (int c = 0; c < 3; c++) {
                int is = picture.rgb[(y * 20 + x) * 3 + c], wanted = value(x, y, c);
                if (abs(is - wanted) > most)
                    fail_msg("%s: pixel %d %d %d is %d, not %d", name, x, y, c, is, wanted);
            }
    wfi_free(f->ctx, picture.rgb);
}

static int slope(int x, int y, int c) {
    return 40 + 5 * x + 3 * y + 20 * c;
}
static int grey(int x, int y, int c) {
    return slope(x, y, 0);
}
static int negative(int x, int y, int c) {
    return 255 - slope(x, y, 0);
}
static int nibble(int x, int y, int c) {
    return x % 16 * 17;
}
/* Of Adobe's CMYK, where 255 is no ink: every colour times what black leaves. */
static int inked(int x, int y, int c) {
    return slope(x, y, c) * 200 / 255;
}

TEST_IN_FOLDER(decodes) {
    uint8_t px[12 * 20 * 8];
#define FILL(n, value)                                                                             \
    for (int i = 0; i < 12 * 20; i++)                                                              \
        for (int c = 0; c < (n); c++) {                                                            \
            int x = i % 20, y = i / 20;                                                            \
            px[i * (n) + c] = (uint8_t)(value);                                                    \
        }
    FILL(3, slope(x, y, c))
    assert_true(write_jpeg(folder_file(f, "rgb.jpg"), px, 20, 12, 3, 0));
    assert_true(write_jpeg(folder_file(f, "progressive.jpg"), px, 20, 12, 3, 1));
    assert_true(write_png(folder_file(f, "rgb.png"), px, 20, 12, 60, PNG_COLOR_TYPE_RGB, 8, 0));
    assert_true(write_png(folder_file(f, "laced.png"), px, 20, 12, 60, PNG_COLOR_TYPE_RGB, 8, 1));
    FILL(1, slope(x, y, 0))
    assert_true(write_jpeg(folder_file(f, "grey.jpg"), px, 20, 12, 1, 0));
    assert_true(write_png(folder_file(f, "grey.png"), px, 20, 12, 20, PNG_COLOR_TYPE_GRAY, 8, 0));
    assert_true(
        write_png(folder_file(f, "table.png"), px, 20, 12, 20, PNG_COLOR_TYPE_PALETTE, 8, 0));
    FILL(2, c ? 7 : slope(x, y, 0))
    assert_true(write_png(folder_file(f, "grey-alpha.png"), px, 20, 12, 40,
                          PNG_COLOR_TYPE_GRAY_ALPHA, 8, 0));
    FILL(4, c == 3 ? x : slope(x, y, c))
    assert_true(
        write_png(folder_file(f, "rgba.png"), px, 20, 12, 80, PNG_COLOR_TYPE_RGB_ALPHA, 8, 0));
    FILL(4, c == 3 ? 200 : slope(x, y, c))
    assert_true(write_jpeg(folder_file(f, "cmyk.jpg"), px, 20, 12, 4, 0));
    FILL(6, c % 2 ? 99 : slope(x, y, c / 2)) /* the upper byte stands first */
    assert_true(write_png(folder_file(f, "wide.png"), px, 20, 12, 120, PNG_COLOR_TYPE_RGB, 16, 0));
    for (int y = 0; y < 12; y++)
        for (int x = 0; x < 10; x++)
            px[y * 10 + x] = (uint8_t)((2 * x % 16) << 4 | (2 * x + 1) % 16);
    assert_true(write_png(folder_file(f, "four.png"), px, 20, 12, 10, PNG_COLOR_TYPE_GRAY, 4, 0));
    expect_near(f, "rgb.jpg", slope, 8);
    expect_near(f, "progressive.jpg", slope, 8);
    expect_near(f, "grey.jpg", grey, 8);
    expect_near(f, "cmyk.jpg", inked, 8);
    expect_near(f, "rgb.png", slope, 0);
    expect_near(f, "laced.png", slope, 0);
    expect_near(f, "grey.png", grey, 0);
    expect_near(f, "table.png", negative, 0);
    expect_near(f, "grey-alpha.png", grey, 0);
    expect_near(f, "rgba.png", slope, 0);
    expect_near(f, "wide.png", slope, 0);
    expect_near(f, "four.png", nibble, 0);
}

static void refuse_bytes(folder *f, const uint8_t *bytes, size_t n, const char *words) {
    wfi_picture picture;
    expect_failure(f->ctx, wfi_picture_decode(f->ctx, "it", bytes, n, &picture), WF_CORRUPT, words);
}

/* Whatever its length, a picture that ends early is refused, and a bit that has flipped does no
 * harm. */
TEST_IN_FOLDER(refuses_what_is_damaged) {
    uint8_t px[12 * 20 * 3], bytes[4096];
    for (int i = 0; i < (int)sizeof px; i++) px[i] = (uint8_t)(i * i * 31);
    for (int k = 0; k < 3; k++) {
        const char *path = folder_file(f, "it");
        assert_true(k ? write_jpeg(path, px, 20, 12, 3, k - 1) : write_rgb_png(path, px, 20, 12));
        FILE *in = fopen(path, "rb");
        size_t n = fread(bytes, 1, sizeof bytes, in);
        fclose(in);
        assert_in_range(n, 300, sizeof bytes - 1);
        for (size_t cut = 0; cut < n - 40; cut++)
            refuse_bytes(f, bytes, cut, cut > 8 ? "truncated or damaged" : "it");
        for (size_t i = 0; i < n; i++) {
            wfi_picture picture = {0};
            bytes[i] ^= 0x24;
            size_t before = wf_context_memory(f->ctx).n_live;
            if (wfi_picture_decode(f->ctx, "it", bytes, n, &picture) == WF_OK)
                wfi_free(f->ctx, picture.rgb);
            assert_int_equal(wf_context_memory(f->ctx).n_live, before);
            bytes[i] ^= 0x24;
        }
        /* A header that announces more than there may be: nothing is allocated for it. */
        for (size_t i = 0; i + 4 < n && !k; i++)
            if (!memcmp(bytes + i, "IHDR", 4)) {
                memcpy(bytes + i + 4, (uint8_t[]){0, 1, 0, 0, 0, 1, 0, 0}, 8);
                uint32_t crc = (uint32_t)crc32(0, bytes + i, 17);
                for (int b = 0; b < 4; b++)
                    bytes[i + 17 + (size_t)b] = (uint8_t)(crc >> (24 - 8 * b));
                refuse_bytes(f, bytes, n, "announces a picture of 65536 x 65536 pixels");
                break;
            }
        for (size_t i = 0; i + 9 < n && k; i++)
            if (bytes[i] == 0xff && (bytes[i + 1] == 0xc0 || bytes[i + 1] == 0xc2)) {
                memset(bytes + i + 5, 0xfd, 4);
                refuse_bytes(f, bytes, n, "announces a picture of 65021 x 65021 pixels");
                break;
            }
    }
    refuse_bytes(f, (const uint8_t *)"GIF89a, and more", 16, "it is neither JPEG nor PNG");
    refuse_bytes(f, bytes, 0, "it is neither JPEG nor PNG");
}

/* ---- resizing: bit by bit what the Python Imaging Library makes (tests/golden/make_resize.py)
 * ---- */

TEST_IN_FOLDER(resizes) {
    static const struct {
        wfi_box part;
        int width, height;
        uint32_t crc;
    } cases[] = {
        {{0, 0, 37, 29}, 50, 41, 0x48450016}, {{0, 0, 37, 29}, 16, 9, 0x81dd15c7},
        {{5, 3, 20, 17}, 24, 24, 0x2108ec8c}, {{30, 20, 7, 9}, 1, 3, 0xfa6fca62},
        {{0, 0, 37, 29}, 37, 5, 0xc735b242},  {{2, 1, 1, 1}, 4, 4, 0xcb3fb102},
    };
    uint8_t px[37 * 29 * 3], whole[50 * 41 * 3], window[50 * 41 * 3];
    for (int i = 0; i < 37 * 29 * 3; i++) {
        int c = i % 3, x = i / 3 % 37, y = i / 111;
        px[i] = (uint8_t)(x * 7 + y * 13 + c * 50 + x * y);
    }
    const wfi_picture picture = {37, 29, px};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int w = cases[k].width, h = cases[k].height;
        assert_int_equal(
            wfi_picture_resize(f->ctx, &picture, cases[k].part, w, h, (wfi_box){0, 0, w, h}, whole),
            WF_OK);
        assert_int_equal(crc32(0, whole, (uInt)(w * h * 3)), cases[k].crc);
        /* A part of the result is that part of the whole. */
        wfi_box middle = {w / 3, h / 4, w - w / 3, h - h / 4 - h / 5};
        assert_int_equal(wfi_picture_resize(f->ctx, &picture, cases[k].part, w, h, middle, window),
                         WF_OK);
        for (int64_t y = 0; y < middle.height; y++)
            assert_memory_equal(window + y * middle.width * 3,
                                whole + ((middle.y + y) * w + middle.x) * 3,
                                (size_t)middle.width * 3);
    }
}
