/* ZeRO stage 1 (Rajbhandari et al., 2020): every replica has all parameters and a slice of the
 * optimizer's state; it updates that slice, and all gather the new parameters. */
#include "plan/strategy/strategy.h"

const wfi_strategy wfi_strategy_zero1 = {
    .name = "zero=1",
    .parameter = WFI_REPLICATE,
    .gradient = WFI_SHARD,
    .state = WFI_SHARD,
    .buffer = WFI_REPLICATE,
};
