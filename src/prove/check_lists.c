/* The checker's first part: the lists of instructions are lists. */
#include "program/need.h"
#include "program/text.h"
#include "prove/check.h"

wf_status wfi_check_refuse(const wf_program *p, int32_t i, const char *what) {
    wfi_text text;
    wfi_text_init(&text, p->ctx);
    wfi_instruction_text(p, i, &text);
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK) status = wfi_fail(p->ctx, WF_BUG, "check: %s: %s", text.data, what);
    wfi_free(p->ctx, text.data);
    return status;
}

static wf_status check_instruction(const wf_program *p, int32_t i) {
    const wfi_instruction *now = &p->instructions[i];
    for (int32_t d = 0; d < now->n_depends; d++)
        if (p->instructions[now->depends[d]].rank != now->rank)
            return wfi_check_refuse(p, i, "depends on another rank's instruction directly");
    /* Not as text: that looks at the blocks. */
    for (int32_t k = 0; k < now->n_references; k++) {
        int32_t b = now->references[k].block;
        if (b < 0 || b >= p->n_blocks || p->blocks[b].rank != now->rank)
            return wfi_fail(p->ctx, WF_BUG,
                            "check: rank %d, instruction %d (%s): reference %d is to block %d of "
                            "%d, which is not the rank's",
                            now->rank, i, wfi_instruction_name(now), k, b, p->n_blocks);
    }
    int32_t n = wfi_n_references_needed(p, now);
    if (n == now->n_references) return WF_OK;
    return wfi_fail(p->ctx, WF_BUG,
                    "check: rank %d, instruction %d (%s) has %d references, it needs %d", now->rank,
                    i, wfi_instruction_name(now), now->n_references, n);
}

wf_status wfi_check_lists(const wf_program *p) {
    int32_t n = 0;
    for (int32_t at = 0; at < p->n_lowered; at++)
        for (int s = 0; s < WFI_N_STREAMS; s++)
            for (int32_t k = 0; k < p->ranks[p->lowered[at]].n_stream[s]; k++, n++) {
                int32_t r = p->lowered[at], i = p->ranks[r].stream[s][k];
                const wfi_instruction *now = &p->instructions[i];
                if (now->rank != r || (int)now->stream != s || now->position != k)
                    return wfi_check_refuse(p, i, "is at another position than it states");
                WF_TRY(check_instruction(p, i));
            }
    if (n != p->n_instructions)
        return wfi_fail(p->ctx, WF_BUG, "check: %d instructions are in streams, %d exist", n,
                        p->n_instructions);
    return WF_OK;
}
