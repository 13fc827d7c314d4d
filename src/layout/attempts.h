/* Orders of blocks, and attempts. Private to src/layout. */
#pragma once

#include "layout/packing.h"

/* By keys, the largest first; then by bytes. */
void wfi_sort_blocks(const wfi_packing *m, int32_t *list, int32_t n);
void wfi_sort_by_size(const wfi_packing *m, int32_t *list, int32_t n);
/* Gives the blocks of the list offsets; those of the best attempt are in `best`. */
wf_status wfi_place_best(wfi_packing *m);
