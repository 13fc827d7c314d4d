/* The checker's part inside units: every kernel stays within the slots of its segment,
 * and a temporary in the workspace is read only while what was written there is in it. What is
 * computed again is what was computed before.
 */
#include "pass/pass.h"
#include "program/program.h"

typedef struct range {
    size_t begin, end;
} range;

/* What is in the workspace: ranges written and not yet overwritten. */
typedef struct workspace {
    range *live;
    size_t n, capacity;
} workspace;

static wf_status refuse(const wfi_code *code, const wfi_segment *segment, const wfi_kernel *kernel,
                        const char *what) {
    return wfi_fail(code->ctx, WF_BUG, "check: unit %s, %s (%s): %s",
                    code->g->units[segment->unit].name, kernel->label, kernel->impl->name, what);
}

static bool is_live(const workspace *w, range r) {
    for (size_t k = 0; k < w->n; k++)
        if (w->live[k].begin <= r.begin && r.end <= w->live[k].end) return true;
    return false;
}

static wf_status add_live(const wfi_code *code, workspace *w, range r) {
    size_t n = 0;
    for (size_t k = 0; k < w->n; k++)
        if (w->live[k].end <= r.begin || r.end <= w->live[k].begin) w->live[n++] = w->live[k];
    w->n = n;
    WF_TRY(WFI_GROW(code->ctx, w->live, w->n, w->capacity, "the program check"));
    w->live[w->n++] = r;
    return WF_OK;
}

static range extent(const wfi_address *a, size_t bytes) {
    return (range){a->offset, a->offset + bytes};
}

static bool overlap(range a, range b) {
    return a.begin < b.end && b.begin < a.end;
}

static wf_status check_step(const wfi_code *code, const wfi_segment *segment,
                            const wfi_segment_step *step, workspace *w) {
    const wfi_kernel *kernel = step->kernel;
    range all[WFI_MAX_OPERANDS + 1];
    int32_t slot[WFI_MAX_OPERANDS + 1];
    bool writes[WFI_MAX_OPERANDS + 1];
    int n = 0;
    size_t scratch_bytes = kernel->scratch_bytes;
    if (step->kernel_add && step->kernel_add->scratch_bytes > scratch_bytes)
        scratch_bytes = step->kernel_add->scratch_bytes;
    for (int i = 0; i <= kernel->n_operands; i++) {
        bool is_scratch = i == kernel->n_operands;
        const wfi_address *a = is_scratch ? &step->scratch : &step->operand[i];
        size_t bytes = is_scratch ? scratch_bytes : kernel->bytes[i];
        if (!bytes) continue;
        if (a->slot < 0 || a->slot >= segment->n_slots ||
            a->offset + bytes > segment->slots[a->slot].bytes)
            return refuse(code, segment, kernel, "an operand reaches beyond its slot");
        all[n] = extent(a, bytes);
        slot[n] = a->slot;
        writes[n] = is_scratch || kernel->writes[i];
        bool in_workspace = segment->slots[a->slot].kind == WFI_BLOCK_WORKSPACE;
        if (in_workspace && !writes[n] && !is_live(w, all[n]))
            return refuse(code, segment, kernel, "reads a temporary that is not there any more");
        for (int k = 0; k < n; k++)
            if (slot[k] == slot[n] && overlap(all[k], all[n]) && (writes[k] || writes[n]))
                return refuse(code, segment, kernel, "two of its operands share bytes");
        n++;
    }
    for (int k = 0; k < n; k++)
        if (writes[k] && segment->slots[slot[k]].kind == WFI_BLOCK_WORKSPACE)
            WF_TRY(add_live(code, w, all[k]));
    return WF_OK;
}

static wf_status check_segment(const wfi_code *code, const wfi_segment *segment) {
    if (!segment) return WF_OK;
    workspace w = {NULL, 0, 0};
    wf_status status = WF_OK;
    for (int32_t s = 0; s < segment->n_steps && status == WF_OK; s++)
        status = check_step(code, segment, &segment->steps[s], &w);
    wfi_free(code->ctx, w.live);
    return status;
}

wf_status wfi_code_check(const wfi_code *code) {
    WF_TRY(wfi_graph_check_recompute(code->g));
    for (int32_t u = 0; u < code->g->n_units; u++)
        for (int part = 0; part < WFI_N_PARTS; part++) {
            WF_TRY(check_segment(code, code->units[u].pack[part]));
            WF_TRY(check_segment(code, code->units[u].part[part]));
        }
    return WF_OK;
}
