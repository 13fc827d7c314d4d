/* One call of a collective, and its fingerprint for the consistency check. Private. */
#pragma once

#include "comm/algorithm/collective.h"
#include "comm/runtime/typed.h"

typedef struct wfi_operation {
    wfi_collective collective;
    wf_dtype dtype;
    wf_reduction op;
    int32_t root; /* root of the collective; send, recv: the other rank; otherwise 0 */
    int64_t n_elem;
    const wfi_allreduce *how; /* NULL if the collective does not sum */
    uint64_t number;          /* among the group's collectives, from 1 */
    const char *site;
    const void *in;
    void *out;
} wfi_operation;

/* The fingerprint of the call; matching calls have the same. */
uint64_t wfi_operation_fingerprint(const wfi_operation *operation);

/* A call in shared memory. Other ranks may read it at any time, so each word is atomic. */
#define WFI_CALL_WORDS 12
typedef struct wfi_group_call {
    uint64_t word[WFI_CALL_WORDS];
} wfi_group_call;
void wfi_call_write(wfi_group_call *call, const wfi_operation *operation);

#define WFI_CALL_TEXT 192
/* "wf_group_all_reduce of 5 F32 (sum, direct) at toy.c:31"; "nothing" before the first. Returns
 * text. */
const char *wfi_call_describe(const wfi_group_call *call, char text[WFI_CALL_TEXT]);
/* "wf_group_all_reduce at toy.c:31" */
const char *wfi_call_name(const wfi_group_call *call, char text[WFI_CALL_TEXT]);
