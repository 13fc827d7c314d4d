/* ZeRO stage 2: the same as stage 1, and of a gradient that is summed only the slice is kept. */
#include "plan/strategy/strategy.h"

const wfi_strategy wfi_strategy_zero2 = {
    .name = "zero=2",
    .parameter = WFI_REPLICATE,
    .gradient = WFI_SHARD,
    .state = WFI_SHARD,
    .buffer = WFI_REPLICATE,
    .frees_gradient = true,
};
