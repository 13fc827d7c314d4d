/* The division of a step's samples over replicas. Private. */
#ifndef WFI_PART_H
#define WFI_PART_H

#include "base/base.h"

/* The first sample of microbatch `micro` of a step: if the microbatches do not divide its
 * samples, the last ones are a sample smaller. */
static inline int64_t wfi_first_sample(int64_t n_samples, int64_t n_micro, int64_t micro) {
    return micro * (n_samples / n_micro) + wfi_min_i64(micro, n_samples % n_micro);
}

#endif
