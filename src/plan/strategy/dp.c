/* Distributed data parallel: every replica has all of the unit and makes the same update from the
 * same summed gradient. */
#include "plan/strategy/strategy.h"

const wfi_strategy wfi_strategy_dp = {
    .name = "dp",
    .parameter = WFI_REPLICATE,
    .gradient = WFI_REPLICATE,
    .state = WFI_REPLICATE,
    .buffer = WFI_REPLICATE,
};
