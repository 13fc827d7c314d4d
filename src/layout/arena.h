/* One arena. Private to src/layout. */
#pragma once

#include "layout/packing.h"

/* Empties the arena, places the state in it, and lists all other blocks in m->every. */
void wfi_place_state(wfi_packing *m);
/* Gives all blocks of the rank in the space an offset. */
wf_status wfi_place_arena(wfi_packing *m);
