/* DataParallel: the first replica has the unit and updates it; in each step the others get a copy
 * of its parameters and give back their gradients. */
#include "plan/strategy/strategy.h"

const wfi_strategy wfi_strategy_dataparallel = {
    .name = "dataparallel",
    .parameter = WFI_AT,
    .gradient = WFI_AT,
    .state = WFI_AT,
    .buffer = WFI_AT,
};
