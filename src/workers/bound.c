#include "workers/bound.h"

int32_t wfi_bound_last(const int32_t *readers, int32_t n, const int64_t *versions, int64_t version,
                       int64_t bound) {
    for (int32_t k = 0; k < n && bound >= 0; k++)
        if (version + 1 + k - versions[readers[k]] > bound) return k;
    return n - 1;
}
