/* Loops compiled for several instruction sets give the same bits.
 *
 * label: serial
 */
#include "base/finite.h"
#include "base/random.h"
#include "comm/runtime/typed.h"
#include "kernel/cpu.h"
#include "kernel/vector/channels.h"
#include "kernel/vector/rows.h"
#include "kernel/vector/vector.h"
#include "test.h"

#include <math.h>

#define N 1037 /* no multiple of any vector */

static float odd_number(uint64_t *state) {
    static const float special[] = {0.0f,     -0.0f, 1e-45f, -3e-39f, 1.17549435e-38f, 3e38f,
                                    -3.4e38f, 1.0f,  1e-8f,  -1e20f,  1.9999999f};
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t r = *state >> 33;
    if (r % 16 == 0) return special[r / 16 % (sizeof special / sizeof *special)];
    return ((float)(r % 2000003) / 1000001 - 1) * (r % 3 ? 1.0f : 1e-4f);
}

typedef struct buffers {
    float param[N], gradient[N], state[WFI_MAX_STATES][N];
} buffers;

static void fill(buffers *b) {
    uint64_t seed = 7;
    memset(b->state, 0, sizeof b->state);
    for (int i = 0; i < N; i++) {
        b->param[i] = odd_number(&seed);
        b->gradient[i] = odd_number(&seed);
        b->state[0][i] = odd_number(&seed);
        b->state[1][i] = odd_number(&seed);
        if (b->state[1][i] < 0) b->state[1][i] = -b->state[1][i];
    }
}

static void update(const wf_recipe *recipe, wfi_variant variant, buffers *b) {
    fill(b);
    for (int step = 0; step < 5; step++) {
        const wfi_update u = {.recipe = recipe,
                              .lr = 0.01,
                              .step = step,
                              .scale = 0.37f,
                              .param = b->param,
                              .gradient = b->gradient,
                              .state = {b->state[0], b->state[1]},
                              .n = N};
        wfi_update_run(variant, &u);
        wfi_average_update(variant, recipe, step, b->param, b->state[2], N);
    }
}

TEST_CASE(updates) {
    static buffers start, one, other;
    int n_compared = 0;
    fill(&start);
    for (int k = 0; k < 5; k++) {
        wf_recipe r = TEST_RECIPE(.optimizer = k < 3    ? WF_SGD
                                               : k == 3 ? WF_ADAM
                                                        : WF_ADAMW,
                                  .momentum = k > 0 ? 0.9 : 0, .nesterov = k == 2,
                                  .weight_decay = 0.05, .ema = 0.9);
        update(&r, WFI_BASELINE, &one);
        assert_memory_not_equal(one.param, start.param, sizeof one.param);
        for (int v = WFI_AVX2; v <= (int)wfi_best_variant(); v++) {
            update(&r, (wfi_variant)v, &other);
            if (memcmp(&one, &other, sizeof one))
                fail_msg("optimizer %d: %s gives other bits", k, wfi_variant_name((wfi_variant)v));
            n_compared++;
        }
    }
    print_message("%d updates compared with the baseline's, best is %s\n", n_compared,
                  wfi_variant_name(wfi_best_variant()));
}

/* ---- other loops ---- */

/* What a loop reads, and, in place or beside, writes. */
typedef struct numbers {
    _Alignas(64) float in[5 * N];
    _Alignas(64) float out[5 * N];
    double sums[8];
    uint32_t n_bad;
} numbers;

static void adds(wfi_variant v, numbers *x) {
    wfi_cpu_add(v, x->out, x->in, N);
}

static void folds_statistics(wfi_variant v, numbers *x) {
    const wfi_statistics_call call = {.running_mean = x->out,
                                      .running_var = x->out + N,
                                      .mean = x->in,
                                      .var = x->in + N,
                                      .n = N,
                                      .n_reduced = 17,
                                      .momentum = 0.1};
    wfi_cpu_statistics(v, &call);
}

static void squares(wfi_variant v, numbers *x) {
    wfi_gradient_squares(v, x->in, 5 * N, x->sums);
}

static void draws(wfi_variant v, numbers *x) {
    wfi_random_key key = {7, wfi_random_name("a name")};
    wfi_random_draw_uniform(v, key, 3, (UINT64_C(1) << 34) - 77, N, x->out);
}

static void counts(wfi_variant v, numbers *x) {
    x->in[77] = INFINITY;
    x->in[1000] = -NAN;
    x->n_bad = wfi_count_not_finite(v, x->in, N);
}

static void combines(wfi_variant v, numbers *x) {
    static const wf_dtype dtypes[] = {WF_F32, WF_F64, WF_I32, WF_I64, WF_U8};
    static const wf_reduction ops[] = {WF_SUM, WF_MIN, WF_MAX};
    for (size_t k = 0; k < 15; k++) {
        const wfi_arithmetic a = {.dtype = dtypes[k / 3], .op = ops[k % 3]};
        int64_t n = 1024 / (int64_t)wf_dtype_bytes(a.dtype) - 3;
        wfi_combine(v, &a, x->in + 512 * (k % 3), x->in + 2048, n, x->out + 256 * k);
    }
}

/* Rows of scores that see 30 columns and more, in rows of 64. */
static void attends(wfi_variant v, numbers *x) {
    enum { N_ROWS = 9, STEP = 64, D = 21 };
    static float log_sum[N_ROWS];
    float *s = x->out, *ds = s + (N_ROWS + 1) * STEP, *y = ds + N_ROWS * STEP;
    wfi_rows rows = {.n = N_ROWS,
                     .n_columns = 40,
                     .step = STEP,
                     .n_seen = 30,
                     .more = 1,
                     .window = 25,
                     .s = s,
                     .ds = ds,
                     .log_sum = log_sum,
                     .y = y,
                     .dy = x->in + 4 * N,
                     .d = D,
                     .y_step = D + 2};
    for (int i = 0; i < N_ROWS * STEP; i++) s[i] = 8 * x->in[i], ds[i] = x->in[i + N];
    for (int i = 0; i < N_ROWS * (D + 2); i++) y[i] = x->in[i + 2 * N];
    wfi_rows_attend(v, &rows);
    wfi_rows_divide(v, &rows);
    for (int i = 0; i < N_ROWS * STEP; i++) s[i] = 8 * x->in[i];
    wfi_rows_attend_backward(v, &rows);
}

/* One that is no number makes its row so, whatever its bits are; the others stay. */
TEST_CASE(attends_to_nans) {
    enum { STEP = 32, D = 3 };
    static const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7fc00001, 0x7f800001,
                                    0x7fc0ffff, 0x7fffffff, 0xffffffff};
    for (int v = WFI_BASELINE; v <= (int)wfi_best_variant(); v++)
        for (size_t k = 0; k < sizeof nans / sizeof *nans; k++) {
            float s[3 * STEP] = {0}, ds[2 * STEP] = {0}, log_sum[2], y[2 * D] = {0},
                        dy[2 * D] = {0};
            const wfi_rows rows = {.n = 2,
                                   .n_columns = 20,
                                   .step = STEP,
                                   .n_seen = 20,
                                   .window = 20,
                                   .s = s,
                                   .ds = ds,
                                   .log_sum = log_sum,
                                   .y = y,
                                   .dy = dy,
                                   .d = D,
                                   .y_step = D};
            memcpy(&s[5], &nans[k], sizeof *s);
            wfi_rows_attend((wfi_variant)v, &rows);
            assert_true(isnan(s[5]) && isnan(log_sum[0]) && isnan(s[2 * STEP]));
            assert_true(s[STEP] == 1 && s[2 * STEP + 1] == 20);
            memcpy(&s[5], &nans[k], sizeof *s);
            log_sum[0] = 3;
            wfi_rows_attend_backward((wfi_variant)v, &rows);
            assert_true(isnan(s[5]) && isnan(ds[5]) && !isnan(s[STEP]) && !isnan(ds[STEP]));
        }
}

/* Two images of 300 pixels: more than are summed at once, and not four at a time. */
enum { N_IMAGES = 2, N_PIXELS = 299, STEP = (N_PIXELS + 1) * WFI_BLOCK_CHANNELS };

/* What batch norm reads, writes, and gives back: images, then numbers a channel. */
typedef struct images {
    float x[N_IMAGES * STEP], addend[N_IMAGES * STEP], dy[N_IMAGES * STEP], y[N_IMAGES * STEP],
        dx[N_IMAGES * STEP], daddend[N_IMAGES * STEP];
    float scale[16], shift[16], mean[16], var[16], dscale[16], dshift[16];
} images;

static wfi_channels channels_of(images *i, bool is_narrow, bool relu, bool adds) {
    return (wfi_channels){.n = N_IMAGES,
                          .n_pixels = N_PIXELS,
                          .step = STEP,
                          .is_narrow = is_narrow,
                          .relu = relu,
                          .eps = 1e-5,
                          .x = i->x,
                          .addend = adds ? i->addend : NULL,
                          .y = i->y,
                          .scale = i->scale,
                          .shift = i->shift,
                          .mean = i->mean,
                          .var = i->var,
                          .dy = i->dy,
                          .dx = i->dx,
                          .daddend = adds && relu ? i->daddend : NULL,
                          .dscale = i->dscale,
                          .dshift = i->dshift};
}

static void fill_images(images *i, bool is_narrow) {
    static float wide[N_IMAGES * STEP];
    float *all = (float *)i;
    uint64_t seed = 11;
    for (size_t k = 0; k < sizeof *i / sizeof *all; k++) {
        float number = odd_number(&seed);
        all[k] = fabsf(number) < 2 ? number : 0.5f;
    }
    for (size_t k = 0; k < 3 && is_narrow; k++, all += N_IMAGES * STEP) {
        memcpy(wide, all, sizeof wide);
        wfi_combine(WFI_BASELINE, &(wfi_arithmetic){.dtype = WF_F32}, wide, NULL, N_IMAGES * STEP,
                    all);
    }
}

static void run_images(wfi_variant v, bool is_narrow, bool relu, bool adds, images *i) {
    fill_images(i, is_narrow);
    wfi_channels c = channels_of(i, is_narrow, relu, adds);
    wfi_channels_normalize(v, &c);
    wfi_channels_differentiate(v, &c);
}

TEST_CASE(batch_norms) {
    static images one, other;
    for (int way = 0; way < 8; way++) {
        bool is_narrow = way & 1, relu = way & 2, adds = way & 4;
        run_images(WFI_BASELINE, is_narrow, relu, adds, &one);
        for (int v = WFI_AVX2; v <= (int)wfi_best_variant(); v++) {
            run_images((wfi_variant)v, is_narrow, relu, adds, &other);
            if (memcmp(&one, &other, sizeof one))
                fail_msg("batch norm %d: %s gives other bits", way,
                         wfi_variant_name((wfi_variant)v));
        }
    }
}

/* What is fused has the bits of one after the other. */
TEST_CASE(fused_batch_norms) {
    static images plain, fused;
    run_images(wfi_best_variant(), false, false, false, &plain);
    run_images(wfi_best_variant(), false, true, true, &fused);
    for (int k = 0; k < N_IMAGES * STEP; k++) {
        if (k % STEP >= N_PIXELS * WFI_BLOCK_CHANNELS) continue;
        float sum = plain.y[k] + plain.addend[k], expected = sum <= 0 ? 0 : sum;
        assert_memory_equal(&fused.y[k], &expected, sizeof expected);
        plain.dy[k] = expected <= 0 ? 0 : plain.dy[k];
        assert_memory_equal(&fused.daddend[k], &plain.dy[k], sizeof expected);
    }
    wfi_channels c = channels_of(&plain, false, false, false);
    wfi_channels_differentiate(wfi_best_variant(), &c);
    assert_memory_equal(fused.dx, plain.dx, sizeof plain.dx);
    assert_memory_equal(fused.mean, plain.mean, 4 * sizeof plain.mean);
    run_images(wfi_best_variant(), false, true, false, &fused);
    fill_images(&plain, false);
    for (int k = 0; k < N_IMAGES * STEP; k++)
        if (fused.y[k] == 0 && k % STEP < N_PIXELS * WFI_BLOCK_CHANNELS) plain.dy[k] = 0;
    memcpy(plain.mean, fused.mean, 2 * sizeof plain.mean);
    wfi_channels_differentiate(wfi_best_variant(), &c);
    assert_memory_equal(fused.dx, plain.dx, sizeof plain.dx);
    assert_memory_equal(fused.dscale, plain.dscale, 2 * sizeof plain.dscale);
}

static void converts(wfi_variant v, numbers *x) {
    const wfi_arithmetic widens = {.dtype = WF_BF16}, rounds = {.dtype = WF_F32};
    x->in[9] = NAN;
    wfi_combine(v, &widens, x->in, NULL, N, x->out);
    wfi_combine(v, &rounds, x->in, NULL, N, x->out + N);
}

TEST_CASE(loops) {
    static const struct {
        const char *name;
        void (*run)(wfi_variant v, numbers *x);
    } all[] = {{"add", adds},          {"statistics", folds_statistics},
               {"squares", squares},   {"uniform", draws},
               {"not finite", counts}, {"combine", combines},
               {"convert", converts},  {"attend", attends}};
    static numbers start, one, other;
    uint64_t seed = 5;
    for (int i = 0; i < 5 * N; i++) {
        start.in[i] = odd_number(&seed);
        start.out[i] = odd_number(&seed);
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        one = start;
        all[k].run(WFI_BASELINE, &one);
        assert_memory_not_equal(&one, &start, sizeof one);
        for (int v = WFI_AVX2; v <= (int)wfi_best_variant(); v++) {
            other = start;
            all[k].run((wfi_variant)v, &other);
            if (memcmp(&one, &other, sizeof one))
                fail_msg("%s: %s gives other bits", all[k].name, wfi_variant_name((wfi_variant)v));
        }
    }
}

/* To the nearest, of two as near to the even one; a NaN stays one, whatever its bits are. */
TEST_CASE(rounds_to_bf16) {
    static const struct {
        uint32_t bits;
        uint16_t want;
    } cases[] = {
        {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
        {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x80000000, 0x8000},
        {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x7fc00000, 0x7fc0}, {0x7f800001, 0x7fc0},
        {0xff800001, 0xffc0}, {0x7fffffff, 0x7fff}, {0xffffffff, 0xffff}, {0x7fbf8000, 0x7fff},
    };
    const wfi_arithmetic rounds = {.dtype = WF_F32};
    for (int v = WFI_BASELINE; v <= (int)wfi_best_variant(); v++)
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            float in[40];
            uint16_t out[40];
            for (int i = 0; i < 40; i++) memcpy(&in[i], &cases[k].bits, sizeof *in);
            wfi_combine((wfi_variant)v, &rounds, in, NULL, 40, out);
            for (int i = 0; i < 40; i++) assert_int_equal(out[i], cases[k].want);
            wfi_vector vector;
            memcpy(&vector, in, sizeof vector);
            wfi_vector_store(out, 1, true, &vector);
            for (int i = 0; i < WFI_LANES; i++) assert_int_equal(out[1 + i], cases[k].want);
        }
}

/* A stretch of whole blocks has the sums that it has in the whole. */
TEST_CASE(sums_of_stretches) {
    static float gradient[9 * WFI_NORM_BLOCK_ELEMENTS + 5];
    const size_t n = sizeof gradient / sizeof *gradient;
    double whole[10], part[10];
    uint64_t seed = 3;
    for (size_t i = 0; i < n; i++) gradient[i] = odd_number(&seed);
    wfi_gradient_squares(wfi_best_variant(), gradient, n, whole);
    for (size_t begin = 0; begin < 10; begin++)
        for (size_t end = begin + 1; end <= 10; end++) {
            size_t first = begin * WFI_NORM_BLOCK_ELEMENTS, last = end * WFI_NORM_BLOCK_ELEMENTS;
            wfi_gradient_squares(wfi_best_variant(), gradient + first,
                                 (last < n ? last : n) - first, part);
            assert_memory_equal(part, whole + begin, (end - begin) * sizeof *part);
        }
}
