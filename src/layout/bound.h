/* The least bytes that any plan needs. Private to src/layout. */
#pragma once

#include "layout/packing.h"

/* After so much work nothing else is tried, so that large programs take little longer than one
 * attempt does. */
#define WFI_MANY_LOOKS (WFI_MOST_LOOKS / 2)
/* Sets the lower bound of any packing, from the moment with the most bytes alone, or from several
 * moments and blocks. Blocks are in the order of their size. */
void wfi_find_bound(wfi_packing *m, bool all);
/* Raises m->needed_bytes to the bytes that the rank needs at the fullest place of its order. Its
 * state is placed. */
void wfi_find_needed(wfi_packing *m);
