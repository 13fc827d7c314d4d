/* The checker's part inside units: every kernel stays within the slots of its segment,
 * and a temporary in the frame is read only while it holds what was written there.
 */
#include "program/program.h"

typedef struct range {
    size_t begin, end;
} range;

/* What the frame holds: ranges written and not yet overwritten. */
typedef struct frame {
    range *live;
    size_t n, capacity;
} frame;

static wf_status refuse(const wfi_code *code, const wfi_segment *segment, const wfi_kernel *kernel,
                        const char *what) {
    return wfi_fail(code->ctx, WF_BUG, "check: unit %s, %s (%s): %s",
                    code->g->units[segment->unit].name, kernel->label, kernel->impl->name, what);
}

static bool is_held(const frame *f, range r) {
    for (size_t k = 0; k < f->n; k++)
        if (f->live[k].begin <= r.begin && r.end <= f->live[k].end) return true;
    return false;
}

static wf_status hold(const wfi_code *code, frame *f, range r) {
    size_t n = 0;
    for (size_t k = 0; k < f->n; k++)
        if (f->live[k].end <= r.begin || r.end <= f->live[k].begin) f->live[n++] = f->live[k];
    f->n = n;
    WF_TRY(WFI_GROW(code->ctx, f->live, f->n, f->capacity, "the program check"));
    f->live[f->n++] = r;
    return WF_OK;
}

static range extent(const wfi_address *a, size_t bytes) {
    return (range){a->offset, a->offset + bytes};
}

static bool overlap(range a, range b) {
    return a.begin < b.end && b.begin < a.end;
}

static wf_status check_step(const wfi_code *code, const wfi_segment *segment,
                            const wfi_segment_step *step, frame *f) {
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
        bool in_frame = segment->slots[a->slot].kind == WFI_BLOCK_FRAME;
        if (in_frame && !writes[n] && !is_held(f, all[n]))
            return refuse(code, segment, kernel, "reads a temporary that is not there any more");
        for (int k = 0; k < n; k++)
            if (slot[k] == slot[n] && overlap(all[k], all[n]) && (writes[k] || writes[n]))
                return refuse(code, segment, kernel, "two of its operands share bytes");
        n++;
    }
    for (int k = 0; k < n; k++)
        if (writes[k] && segment->slots[slot[k]].kind == WFI_BLOCK_FRAME)
            WF_TRY(hold(code, f, all[k]));
    return WF_OK;
}

static wf_status check_segment(const wfi_code *code, const wfi_segment *segment) {
    if (!segment) return WF_OK;
    frame f = {NULL, 0, 0};
    wf_status status = WF_OK;
    for (int32_t s = 0; s < segment->n_steps && status == WF_OK; s++)
        status = check_step(code, segment, &segment->steps[s], &f);
    wfi_free(code->ctx, f.live);
    return status;
}

wf_status wfi_code_check(const wfi_code *code) {
    for (int32_t u = 0; u < code->g->n_units; u++)
        for (int part = 0; part < WFI_N_PARTS; part++) {
            WF_TRY(check_segment(code, code->units[u].pack[part]));
            WF_TRY(check_segment(code, code->units[u].part[part]));
        }
    return WF_OK;
}
