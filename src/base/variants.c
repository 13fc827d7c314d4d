#include "base/variants.h"

wfi_variant wfi_best_variant(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return WFI_AVX512;
    if (__builtin_cpu_supports("avx2")) return WFI_AVX2;
#endif
    return WFI_BASELINE;
}

const char *wfi_variant_name(wfi_variant variant) {
    static const char *const names[] = {"baseline", "avx2", "avx512"};
    return names[variant];
}
