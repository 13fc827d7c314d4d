/* Blocks that take turns. Private to src/layout. */
#pragma once

#include "layout/packing.h"

/* Tries rings, and keeps the plan without them if that needs no more. */
wf_status wfi_place_in_rings(wfi_packing *m, const wfi_rank *rank);
/* Tries chains, if the rank is large; whether they cost little memory. */
wf_status wfi_place_in_chains(wfi_packing *m, const wfi_rank *rank, bool *fits_out);
