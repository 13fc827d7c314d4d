/* One call of a collective: what a rank asks for, and what the others compare. Private. */
#ifndef WFI_OPERATION_H
#define WFI_OPERATION_H

#include "comm/algorithm/collective.h"
#include "comm/runtime/typed.h"

typedef struct wfi_operation {
    wfi_collective collective;
    wf_dtype dtype;
    wf_reduction op;
    int32_t root; /* of those that have one; send, recv: the other rank; otherwise 0 */
    int64_t n_elem;
    const wfi_allreduce *how; /* of those that sum, otherwise NULL */
    uint64_t number;          /* of the group's collectives, from 1 on */
    const char *site;
    const void *in;
    void *out;
} wfi_operation;

/* The same for calls that match. */
uint64_t wfi_operation_fingerprint(const wfi_operation *operation);

/* What an operation was, in memory that other ranks read at any time: so words, each atomic. */
#define WFI_CALL_WORDS 12
typedef struct wfi_call {
    uint64_t word[WFI_CALL_WORDS];
} wfi_call;
void wfi_call_write(wfi_call *call, const wfi_operation *operation);

#define WFI_CALL_TEXT 192
/* "wf_group_all_reduce of 5 F32 (sum, direct) at toy.c:31"; "nothing" before the first. Returns
 * text. */
const char *wfi_call_describe(const wfi_call *call, char text[WFI_CALL_TEXT]);
/* "wf_group_all_reduce at toy.c:31" */
const char *wfi_call_name(const wfi_call *call, char text[WFI_CALL_TEXT]);

#endif
