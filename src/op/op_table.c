#include "op/op_table.h"

const wfi_op *const wfi_op_table[] = {
#define ENTRY(name) &wfi_op_##name,
    WFI_OP_LIST(ENTRY)
#undef ENTRY
        NULL,
};
