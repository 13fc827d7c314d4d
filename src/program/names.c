/* Names of blocks and streams. */
#include "program/program.h"

const char *wfi_block_kind_name(wfi_block_kind kind) {
    static const char *const names[] = {
#define ROW(name, text) [WFI_BLOCK_##name] = text,
        WFI_BLOCK_LIST(ROW)
#undef ROW
    };
    return (unsigned)kind < WFI_N_BLOCK_KINDS ? names[kind] : "?";
}

const char *wfi_stream_name(wfi_stream stream) {
    static const char *const names[] = {"compute", "copy", "send", "receive", "reduce"};
    return (unsigned)stream < WFI_N_STREAMS ? names[stream] : "?";
}
