/* The table of kinds of blocks. */
#include "code/code.h"

const wfi_block_type wfi_block_types[] = {
#define ROW(name, text, owner, offload)                                                            \
    [WFI_BLOCK_##name] = {text, WFI_OWNER_##owner, WFI_OFFLOAD_##offload},
    WFI_BLOCK_LIST(ROW)
#undef ROW
};

const char *wfi_block_kind_name(wfi_block_kind kind) {
    return (unsigned)kind < WFI_N_BLOCK_KINDS ? wfi_block_types[kind].name : "?";
}
