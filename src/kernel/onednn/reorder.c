/* The graph's own reorder, between row-major images and C16. */
#include "kernel/onednn/onednn.h"

static wf_status describe(wfi_kernel *kernel, const wfi_onednn *state, wfi_owned_md from,
                          wfi_owned_md to, const char **reason_out) {
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_reorder(&state->lib, from, to, (wfi_after){WFI_NOTHING, 0}, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_FROM, 0));
    return wfi_bind(kernel, primitive, DNNL_ARG_TO, 1);
}

wf_status wfi_describe_layout(wfi_kernel *kernel, const wfi_kernel_options *options,
                              const char **reason_out) {
    (void)options;
    const wfi_onednn *state = wfi_onednn_of(kernel);
    wfi_md from = wfi_operand_md(kernel, 0), to = wfi_operand_md(kernel, 1);
    wfi_owned_md from_md, to_md;
    WF_TRY(wfi_md_own(&state->lib, &from, &from_md));
    wf_status status = wfi_md_own(&state->lib, &to, &to_md);
    if (status == WF_OK) {
        status = describe(kernel, state, from_md, to_md, reason_out);
        wfi_md_disown(&state->lib, to_md);
    }
    wfi_md_disown(&state->lib, from_md);
    return status;
}
