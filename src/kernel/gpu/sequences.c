/* Ops that pass values from token to token: attention and LSTMs. */
#include "kernel/gpu/node.h"

/* ---- attention ---- */

/* Scores in memory at once: those of as many heads as fit, at least of one. */
#define MOST_SCORE_BYTES ((int64_t)32 << 20)

/* A matrix of attention, n_tokens by elements of a head, or by tokens; `skip` bytes into an
 * operand. */
typedef struct side {
    int operand;
    size_t skip;
    int64_t row, apart;
    bool is_narrow; /* in scratch memory */
} side;

typedef struct attention {
    wfi_gpu_node *l;
    wfi_numbers told; /* of kernels */
    int64_t t, c, d, n_heads;
    int64_t n_at_once;      /* heads */
    size_t element, square; /* bytes; of scores in F32 */
    int n_wide;             /* squares of these; as many weights are made of them */
} attention;

/* Queries, keys or values of qkv, or of their gradients. */
static side third_of(const attention *s, int operand, int which) {
    return (side){operand, (size_t)(which * s->c) * s->element, 3 * s->c, s->d, false};
}

static side tokens_of(const attention *s, int operand) {
    return (side){operand, 0, s->c, s->d, false};
}

static side scores_of(const attention *s, int which) {
    return (side){WFI_GPU_SCRATCH, (size_t)which * s->square, s->t, s->t * s->t, false};
}

/* The weights overwrite their scores if both have the same type. */
static side weights_of(const attention *s, int which) {
    side weights = scores_of(s, which);
    weights.is_narrow = s->element < sizeof(float);
    if (weights.is_narrow)
        weights.skip = (size_t)s->n_wide * s->square + (size_t)which * s->square / 2;
    return weights;
}

static void take_side(wfi_gpu_node *l, int operand, side from) {
    wfi_gpu_planned *p = &l->all[l->n - 1];
    p->from[operand] = (int8_t)from.operand;
    p->skip[operand] = from.skip;
    p->launch.narrow |= (uint32_t)from.is_narrow << operand;
}

/* y = a b for each head; y has n columns, each a sum of k products. */
static void multiply(const attention *s, int64_t n, int64_t k, side a, bool a_is_turned, side b,
                     bool b_is_turned, side y) {
    const wfi_product p = {s->n_at_once, s->t, n, k, .b = 1};
    wfi_launch_arguments *numbers = wfi_gpu_add_product(s->l, WFI_GPU_product, &p);
    numbers->n[3 + a_is_turned] = a.row;
    numbers->n[4 - a_is_turned] = 1;
    numbers->n[5 + b_is_turned] = b.row;
    numbers->n[6 - b_is_turned] = 1;
    numbers->n[7] = a.apart;
    numbers->n[8] = b.apart;
    numbers->n[10] = y.row;
    numbers->n[11] = y.apart;
    take_side(s->l, 0, a);
    take_side(s->l, 1, b);
    take_side(s->l, WFI_GPU_OUT, y);
}

/* Operands move on from sample to sample, and from some heads to the next: rows of them, and
 * log_sum. */
static void set_step(const attention *s, int operand, int64_t row, size_t element) {
    s->l->loops[0].step[operand] = (size_t)(s->t * row) * element;
    s->l->loops[1].step[operand] = (size_t)(s->n_at_once * s->d) * element;
}

static attention begin_attention(wfi_gpu_node *l, int qkv, int log_sum, int n_wide) {
    const wfi_call call = wfi_call_of(l->g, l->node);
    const wfi_numbers told = l->node->op->numbers(&call);
    bool is_narrow = l->g->values[l->node->in[qkv]].dtype == WF_BF16;
    attention s = {l, told, .t = told.n[1], .c = told.n[2], .d = told.n[4], .n_wide = n_wide};
    s.n_heads = s.n_at_once = told.n[3];
    s.element = is_narrow ? sizeof(uint16_t) : sizeof(float);
    int64_t bytes = s.t * s.t * (int64_t)sizeof(float);
    while (s.n_at_once > 1 && (s.n_heads % s.n_at_once || s.n_at_once * bytes > MOST_SCORE_BYTES))
        s.n_at_once--;
    s.square = wfi_round_up((size_t)(s.n_at_once * bytes), 2 * WFI_ALIGN_BYTES);
    l->scratch_bytes = (size_t)n_wide * (s.square + (is_narrow ? s.square / 2 : 0));
    l->loops[0].n = in_shape(l, qkv)->dim[0];
    l->loops[1].n = s.n_heads / s.n_at_once;
    s.told.n_groups = s.n_at_once * s.t;
    set_step(&s, qkv, 3 * s.c, s.element);
    l->loops[0].step[log_sum] = (size_t)(s.n_heads * s.t) * sizeof(float);
    l->loops[1].step[log_sum] = (size_t)(s.n_at_once * s.t) * sizeof(float);
    return s;
}

/* The kernel that makes weights of scores. */
static void weigh(const attention *s, wfi_gpu_entry entry) {
    wfi_gpu_add_numbers(s->l, entry, s->told);
    for (int k = 0; k < s->n_wide; k++) {
        take_side(s->l, k, scores_of(s, k));
        take_side(s->l, WFI_GPU_OUT + k, weights_of(s, k));
    }
}

static void make_attention(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const attention s = begin_attention(l, 0, WFI_GPU_OUT + 1, 1);
    set_step(&s, WFI_GPU_OUT, s.c, s.element);
    multiply(&s, s.t, s.d, third_of(&s, 0, 0), false, third_of(&s, 0, 1), true, scores_of(&s, 0));
    weigh(&s, entry);
    multiply(&s, s.d, s.t, weights_of(&s, 0), false, third_of(&s, 0, 2), false,
             tokens_of(&s, WFI_GPU_OUT));
}

/* dy, qkv, y, L */
static void make_attention_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const attention s = begin_attention(l, 1, 3, 2);
    const side dy = tokens_of(&s, 0), p = weights_of(&s, 0), ds = weights_of(&s, 1);
    set_step(&s, 0, s.c, s.element);
    set_step(&s, 2, s.c, s.element);
    set_step(&s, WFI_GPU_OUT, 3 * s.c, s.element);
    multiply(&s, s.t, s.d, third_of(&s, 1, 0), false, third_of(&s, 1, 1), true, scores_of(&s, 0));
    multiply(&s, s.t, s.d, dy, false, third_of(&s, 1, 2), true, scores_of(&s, 1));
    weigh(&s, entry);
    take_side(l, 2, dy);
    take_side(l, 3, tokens_of(&s, 2));
    take_side(l, 4, (side){.operand = 3});
    multiply(&s, s.d, s.t, ds, false, third_of(&s, 1, 1), false, third_of(&s, WFI_GPU_OUT, 0));
    multiply(&s, s.d, s.t, ds, true, third_of(&s, 1, 0), false, third_of(&s, WFI_GPU_OUT, 1));
    multiply(&s, s.d, s.t, p, true, dy, false, third_of(&s, WFI_GPU_OUT, 2));
}

static void make_cached_attention(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_gpu_add_told(l, entry);
    if (l->all[0].launch.arguments.n[4] > 4 * WFI_GROUP_SIZE)
        l->reason = "heads of more than 256 elements";
}

/* ---- LSTMs ---- */

/* The gradients of each token's gates, and from these the gradients of x, both weights and the
 * biases.
 */
static void make_lstm_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 1), *y = in_shape(l, 5);
    int64_t rows = wfi_n_rows(x), h = wfi_last_dim(y), n_in = wfi_last_dim(x), gates = 4 * h;
    l->scratch_bytes = (size_t)(rows * gates + x->dim[0] * h) * sizeof(float);
    wfi_gpu_add_told(l, entry);
    const wfi_product dx = {1, rows, n_in, gates, .a = WFI_GPU_SCRATCH, .b = 2};
    const wfi_product dw_ih = {
        1, gates, n_in, rows, .a = WFI_GPU_SCRATCH, .b = 1, .a_is_transposed = true};
    const wfi_product dw_hh = {.n_matrices = 1, .m = gates, .n = h, .k = rows};
    (void)wfi_gpu_add_product(l, WFI_GPU_product, &dx);
    (void)wfi_gpu_add_product(l, WFI_GPU_product, &dw_ih);
    l->all[l->n - 1].from[WFI_GPU_OUT] = WFI_GPU_OUT + 1;
    wfi_launch_arguments *a = wfi_gpu_add_product(l, WFI_GPU_lstm_weight, &dw_hh);
    a->n[3] = gates;
    a->n[7] = x->dim[1];
    wfi_gpu_add_column_sum(l, WFI_GPU_SCRATCH, rows, gates, 3);
}

const wfi_gpu_row wfi_gpu_sequences[] = {
    {&wfi_op_self_attention, make_attention, WFI_GPU_attention_weights},
    {&wfi_op_self_attention_backward, make_attention_backward, WFI_GPU_attention_slopes},
    {&wfi_op_cached_attention, make_cached_attention, WFI_GPU_cached_attention},
    {&wfi_op_lstm_backward, make_lstm_backward, WFI_GPU_lstm_gates_backward},
    {&wfi_op_lstm_cell, wfi_gpu_add_cleared, WFI_GPU_lstm_cell},
    {0},
};
