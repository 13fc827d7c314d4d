/* Rows of a table.
 *
 * embedding(ids I32 [...], table [rows, n]) -> y [..., n]
 * embedding_backward(dy, ids) -> dtable, node->shape is the table's
 * attr.embedding: which rows the table has, where it may be a part
 *
 * The row of an id that the table does not have is zero, and passes nothing back: so parts add up
 * to the whole without rounding. Ids that no part has are refused where they are fed. */
#include "op/plain.h"

#include "op/embedding.cl"

static wf_status embedding_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "if"));
    wf_shape y = wfi_in_shape(g, node, 0), table = wfi_in_shape(g, node, 1);
    if (table.n_dims != 2 || wf_shape_n_elem(&table) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "the table %s is not [rows, n]",
                           wfi_show(&table).text);
    if (y.n_dims == WF_MAX_DIMS)
        return wfi_op_fail(g, node, WF_SHAPE, "ids %s leave no room for another dim",
                           wfi_show(&y).text);
    y.dim[y.n_dims++] = table.dim[1];
    return wfi_node_output(g, node, WF_F32, &y);
}

/* A row of the table; -1: it has none for that id. */
static int64_t row_of(const wfi_call *call, int32_t id, int64_t n_rows) {
    int64_t row = id - call->attr->embedding.first;
    return row >= 0 && row < n_rows ? row : -1;
}

static wfi_numbers numbers_of(const wfi_call *call, const wf_shape *ids, const wf_shape *table) {
    int64_t n_ids = wf_shape_n_elem(ids);
    return (wfi_numbers){.n_groups = n_ids,
                         .n = {n_ids, table->dim[0], table->dim[1], call->attr->embedding.first}};
}

static wfi_numbers embedding_numbers(const wfi_call *call) {
    return numbers_of(call, &call->in[0].shape, &call->in[1].shape);
}

static wfi_numbers backward_numbers(const wfi_call *call) {
    return numbers_of(call, &call->in[1].shape, &call->out[0].shape);
}

PLAIN_REFERENCE(embedding_reference, embedding, embedding_numbers)

/* Adds in token order, in float: the order and the rounding of every implementation. */
static void embedding_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data;
    const int32_t *id = call->in[1].data;
    float *dtable = call->out[0].data;
    int64_t n_ids = wf_shape_n_elem(&call->in[1].shape);
    int64_t n_rows = call->out[0].shape.dim[0], n = call->out[0].shape.dim[1];
    memset(dtable, 0, (size_t)(n_rows * n) * sizeof *dtable);
    for (int64_t i = 0; i < n_ids; i++, dy += n) {
        int64_t row = row_of(call, id[i], n_rows);
        for (int64_t j = 0; j < n && row >= 0; j++) dtable[row * n + j] += dy[j];
    }
}

/* Sums the gradients of a row first, then adds the sum to it: rows without a token stay untouched.
 */
static void embedding_backward_add(const wfi_call *call) {
    const float *dy = call->in[0].data;
    const int32_t *id = call->in[1].data;
    int64_t n_ids = wf_shape_n_elem(&call->in[1].shape);
    int64_t n_rows = call->out[0].shape.dim[0], n = call->out[0].shape.dim[1];
    float *dtable = call->out[0].data, *sum = call->scratch;
    /* The first token of each row, and the next one of each token; n_ids: none. */
    int64_t *first = (int64_t *)(sum + wfi_round_up((size_t)n, 2)), *next = first + n_rows;
    for (int64_t r = 0; r < n_rows; r++) first[r] = n_ids;
    for (int64_t i = n_ids - 1; i >= 0; i--) {
        int64_t row = row_of(call, id[i], n_rows);
        if (row < 0) continue;
        next[i] = first[row];
        first[row] = i;
    }
    for (int64_t r = 0; r < n_rows; r++, dtable += n) {
        if (first[r] == n_ids) continue;
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int64_t i = first[r]; i < n_ids; i = next[i])
            for (int64_t j = 0; j < n; j++) sum[j] += dy[i * n + j];
        for (int64_t j = 0; j < n; j++) dtable[j] += sum[j];
    }
}

static size_t embedding_backward_add_scratch(const wf_graph *g, const wfi_node *node) {
    wf_shape ids = wfi_in_shape(g, node, 1);
    size_t n_places = (size_t)(node->shape.dim[0] + wf_shape_n_elem(&ids));
    return wfi_round_up((size_t)node->shape.dim[1], 2) * sizeof(float) + n_places * sizeof(int64_t);
}

/* Rows of the whole table. */
static int64_t n_rows_of(const wf_graph *g, const wfi_node *node) {
    int64_t n_classes = node->attr.embedding.n_classes;
    return n_classes ? n_classes : wfi_in_shape(g, node, 1).dim[0];
}

static const wfi_op_sample embedding_samples[] = {
    {.n_in = 2, .in = {WFI_DIMS(8), WFI_DIMS(5, 6)}, .ids = 1 << 0, .id_limit = 4},
    {.n_in = 2,
     .in = {WFI_DIMS(8), WFI_DIMS(5, 6)},
     .ids = 1 << 0,
     .id_limit = 5,
     .attr = {.embedding = {.n_classes = 5}}},
    {0}};

static bool may_be_part(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return node->attr.embedding.n_classes > 0;
}

static bool divide_classes(wfi_attr *attr, const wfi_op_part *part) {
    attr->embedding.first += part->begin;
    return true;
}

static const wfi_op_cut embedding_place[] = {{.name = "rows", .in = {1}, .out = {1}},
                                             {.name = "columns", .in = {WFI_WHOLE, 2}, .out = {-1}},
                                             {.name = "classes",
                                              .in = {WFI_WHOLE, 1},
                                              .out = {WFI_SUMMED},
                                              .applies = may_be_part,
                                              .divide = divide_classes},
                                             {0}};

const wfi_op wfi_op_embedding = {
    .name = "embedding",
    .roles = {.id_in = 1 << 0},
    .n_ids = n_rows_of,
    .tolerance = 0,
    .check = embedding_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_embedding_backward, .in = {WFI_DY, WFI_X}, .to = 1, .has_shape = true},
            {0}},
    .reference = embedding_reference,
    .numbers = embedding_numbers,
    .samples = embedding_samples,
    .place = embedding_place,
};

const wfi_op wfi_op_embedding_backward = {
    .name = "embedding_backward",
    .flags = WFI_OP_WEIGHT_GRADIENT,
    .tolerance = 5e-6f,
    .makes = {WFI_OWN_SHAPE},
    .work = {1, WFI_X},
    .reference = embedding_backward_reference,
    .numbers = backward_numbers,
    .add = embedding_backward_add,
    .add_scratch_bytes = embedding_backward_add_scratch,
};

wf_tensor wf_embedding_with(wf_tensor ids, wf_tensor table) {
    return wfi_build(&wfi_op_embedding, NULL, NULL, 2, (wf_tensor[]){ids, table});
}
