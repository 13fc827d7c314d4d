/* What loops over elements touch, for the thread sanitizer. It does not see them: they are compiled
 * without it (CMakeLists.txt), or are a library's. A range that is told at once takes a hundredth
 * of the time that its elements would. Private. */
#ifndef WFI_RACE_H
#define WFI_RACE_H

#include <stdbool.h>
#include <stddef.h>

/* Told before the loop runs, on its thread; without the thread sanitizer it does nothing. */
void wfi_touches(const void *data, size_t bytes, bool writes);

#endif
