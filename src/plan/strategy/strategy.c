#include "plan/strategy/strategy.h"

#include <stddef.h>
#include <string.h>

const wfi_strategy *const wfi_strategies[] = {&wfi_strategy_dp, &wfi_strategy_dataparallel, NULL};
const wfi_strategy *const wfi_zero_strategies[] = {&wfi_strategy_zero1, &wfi_strategy_zero2,
                                                   &wfi_strategy_zero3};

const wfi_strategy *wfi_strategy_find(const char *name) {
    for (int i = 0; wfi_strategies[i]; i++)
        if (!strcmp(wfi_strategies[i]->name, name)) return wfi_strategies[i];
    return NULL;
}
