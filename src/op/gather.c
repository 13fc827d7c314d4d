/* An element of each row.
 *
 * gather(x [rows.., n], index I32 [rows..]) -> y [rows..]
 * gather_backward(dy, index) -> dx, node->shape
 *
 * An index outside the row gives 0, and has no gradient. */
#include "op/plain.h"

#include "op/gather.cl"

static wf_status gather_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fi"));
    wf_shape x = wfi_in_shape(g, node, 0), index = wfi_in_shape(g, node, 1), rows = x;
    if (x.n_dims < 2 || wfi_last_dim(&x) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "x %s has no rows of elements", wfi_show(&x).text);
    rows.n_dims--;
    if (!wfi_shape_equal(&rows, &index))
        return wfi_op_fail(g, node, WF_SHAPE, "x %s takes an index %s, not %s", wfi_show(&x).text,
                           wfi_show(&rows).text, wfi_show(&index).text);
    return wfi_node_output(g, node, WF_F32, &rows);
}

static wfi_numbers gather_numbers(const wfi_call *call) {
    return wfi_element_numbers(&call->out[0].shape, wfi_last_dim(&call->in[0].shape));
}

static wfi_numbers backward_numbers(const wfi_call *call) {
    return wfi_element_numbers(&call->in[0].shape, wfi_last_dim(&call->out[0].shape));
}

PLAIN_REFERENCE(gather_reference, gather, gather_numbers)
PLAIN_REFERENCE(scatter, gather_backward, backward_numbers)

static void gather_backward_reference(const wfi_call *call) {
    plain_clear(call);
    scatter(call);
}

static const wfi_op_sample samples[] = {
    /* One index is outside the row. */
    {.n_in = 2, .in = {WFI_DIMS(6, 5), WFI_DIMS(6)}, .ids = 1 << 1, .id_limit = 6},
    {0}};

static const wfi_op_cut place[] = {{.name = "rows", .in = {1, 1}, .out = {1}}, {0}};

const wfi_op wfi_op_gather = {
    .name = "gather",
    .check = gather_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_gather_backward, .in = {WFI_DY, WFI_X + 1}, .has_shape = true}, {0}},
    .reference = gather_reference,
    .numbers = gather_numbers,
    .samples = samples,
    .place = place,
};

const wfi_op wfi_op_gather_backward = {
    .name = "gather_backward",
    .makes = {WFI_OWN_SHAPE},
    .reference = gather_backward_reference,
    .numbers = backward_numbers,
};

wf_tensor wf_gather(wf_tensor x, wf_tensor index) {
    return wfi_build(&wfi_op_gather, NULL, NULL, 2, (wf_tensor[]){x, index});
}
