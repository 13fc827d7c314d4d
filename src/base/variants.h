/* A loop over elements, compiled for several instruction sets and chosen at run time. Private.
 *
 * All variants give the same bits, but for which NaN comes of two: every operation is IEEE's,
 * nothing is contracted (no FMA), and a loop adds into each element by itself.
 * tests/base_variants.c compares them.
 */
#pragma once

typedef enum wfi_variant { WFI_BASELINE, WFI_AVX2, WFI_AVX512, WFI_N_VARIANTS } wfi_variant;

/* The best that this processor has; on others than x86 the baseline. */
wfi_variant wfi_best_variant(void);
const char *wfi_variant_name(wfi_variant variant);

#if defined(__x86_64__) && defined(__GNUC__)
#define WFI_TARGET_AVX2   __attribute__((target("avx2")))
#define WFI_TARGET_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))
#else
#define WFI_TARGET_AVX2
#define WFI_TARGET_AVX512
#endif
#define WFI_LOOP static inline __attribute__((always_inline))

/* Defines `name(variant, argument)`, which runs the loop `body(argument)`, declared WFI_LOOP, as
 * the variant. */
#define WFI_VARIANTS(name, type, body)        WFI_VARIANTS_AS(static, name, type, body)
#define WFI_PUBLIC_VARIANTS(name, type, body) WFI_VARIANTS_AS(, name, type, body)
#define WFI_VARIANTS_AS(linkage, name, type, body)                                                 \
    static void name##_baseline(const type *a) {                                                   \
        body(a);                                                                                   \
    }                                                                                              \
    WFI_TARGET_AVX2 static void name##_avx2(const type *a) {                                       \
        body(a);                                                                                   \
    }                                                                                              \
    WFI_TARGET_AVX512 static void name##_avx512(const type *a) {                                   \
        body(a);                                                                                   \
    }                                                                                              \
    linkage void name(wfi_variant variant, const type *a) {                                        \
        static void (*const variants[])(const type *a) = {name##_baseline, name##_avx2,            \
                                                          name##_avx512};                          \
        variants[variant](a);                                                                      \
    }
