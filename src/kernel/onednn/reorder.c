/* Reorders: the graph's own between row-major images and C16, and those inside of
 * other kernels. */
#include "kernel/onednn/onednn.h"

static wf_status bind(wfi_kernel *kernel, wfi_primitive *primitive, int arg, int operand,
                      size_t offset_bytes) {
    if (operand != WFI_SCRATCH && offset_bytes == 0)
        return wfi_bind(kernel, primitive, arg, operand);
    return wfi_bind_at(kernel, primitive, arg, operand, offset_bytes);
}

wf_status wfi_add_move(wfi_kernel *kernel, const wfi_md *from, int from_operand, size_t from_bytes,
                       const wfi_md *to, int to_operand, size_t to_bytes) {
    const wfi_onednn_library *lib = &wfi_onednn_of(kernel)->lib;
    const char *reason = "";
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    wfi_owned_md from_md, to_md;
    WF_TRY(wfi_md_own(lib, from, &from_md));
    wf_status status = wfi_md_own(lib, to, &to_md);
    if (status == WF_OK) {
        status = wfi_describe_reorder(lib, from_md, to_md, false, &desc);
        wfi_md_disown(lib, to_md);
    }
    wfi_md_disown(lib, from_md);
    WF_TRY(status);
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, &reason, &primitive));
    WF_TRY(bind(kernel, primitive, DNNL_ARG_FROM, from_operand, from_bytes));
    return bind(kernel, primitive, DNNL_ARG_TO, to_operand, to_bytes);
}

/* x -> x in the other layout */
wf_status wfi_describe_layout(wfi_kernel *kernel, const char **reason_out) {
    (void)reason_out;
    wfi_md from = wfi_operand_md(kernel, 0), to = wfi_operand_md(kernel, 1);
    return wfi_add_move(kernel, &from, 0, 0, &to, 1, 0);
}
