/* Reports the memory that loops over elements access to the thread sanitizer. The sanitizer does
 * not instrument these loops: they are compiled without it (CMakeLists.txt) or belong to a library.
 * Reporting a range takes a hundredth of the time of its elements. Private. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Call this before the loop, on the loop's thread; without the thread sanitizer it does nothing. */
void wfi_touches(const void *data, size_t bytes, bool writes);
