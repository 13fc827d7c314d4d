/* Names of blocks, instructions and streams. */
#include "program/program.h"

const char *wfi_block_kind_name(wfi_block_kind kind) {
    static const char *const names[] = {
#define ROW(name, text) [WFI_BLOCK_##name] = text,
        WFI_BLOCK_LIST(ROW)
#undef ROW
    };
    return (unsigned)kind < WFI_N_BLOCK_KINDS ? names[kind] : "?";
}

const char *wfi_instruction_kind_name(wfi_instruction_kind kind) {
    static const char *const names[] = {
#define ROW(name, text) [WFI_##name] = text,
        WFI_INSTRUCTION_LIST(ROW)
#undef ROW
    };
    return (unsigned)kind < WFI_N_INSTRUCTION_KINDS ? names[kind] : "?";
}

const char *wfi_instruction_name(const wfi_instruction *now) {
    const char *change = wfi_change_name(now->from, now->to);
    return now->kind == WFI_CHANGE && change ? change : wfi_instruction_kind_name(now->kind);
}

const char *wfi_stream_name(wfi_stream stream) {
    static const char *const names[] = {"compute", "copy", "send", "receive", "reduce"};
    return (unsigned)stream < WFI_N_STREAMS ? names[stream] : "?";
}
