/* ZeRO stage 3, also known as FSDP: of everything a replica keeps a slice. A unit's parameters are
 * gathered before they are used, and freed after. */
#include "plan/strategy/strategy.h"

const wfi_strategy wfi_strategy_zero3 = {
    .name = "zero=3",
    .parameter = WFI_SHARD,
    .gradient = WFI_SHARD,
    .state = WFI_SHARD,
    .buffer = WFI_REPLICATE,
    .frees_gradient = true,
};
