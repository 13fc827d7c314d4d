/* Ops that pass values from token to token: attention and LSTMs. */
#include "kernel/gpu/node.h"

/* ---- attention ---- */

/* Scores in memory at once: those of as many heads as fit, at least of one. */
#define MOST_SCORE_BYTES ((int64_t)32 << 20)

/* A matrix of attention, n_tokens by elements of a head, or by tokens; `skip` bytes into an
 * operand, and `step` bytes from one iteration of a loop to the next. */
typedef struct side {
    int operand;
    size_t skip;
    int64_t row, apart;
    bool is_narrow; /* in scratch memory */
    size_t step[WFI_GPU_LOOPS];
} side;

/* Loops go over samples, over heads of keys, and over the heads of queries that share one. Without
 * sharing, the second goes over several heads at once. */
typedef struct attention {
    wfi_gpu_node *l;
    wfi_numbers told; /* of kernels */
    int64_t t, c, d, n_heads, n_keys;
    int64_t n_shared;       /* heads of queries that share one of keys */
    int64_t n_at_once;      /* heads */
    int64_t keys_at_once;   /* heads of keys: all of these, or the shared one */
    size_t element, square; /* bytes; of scores in F32 */
    int n_wide;             /* squares of these; as many weights are made of them */
} attention;

/* Tokens of queries, from head `first` on. */
static side queries_of(const attention *s, int operand, int64_t first, int64_t row) {
    size_t head = (size_t)s->d * s->element;
    return (side){.operand = operand,
                  .skip = (size_t)first * head,
                  .row = row,
                  .apart = s->d,
                  .step = {(size_t)(s->t * row) * s->element,
                           (size_t)(s->keys_at_once * s->n_shared) * head,
                           (size_t)s->n_at_once * head}};
}

static side tokens_of(const attention *s, int operand) {
    return queries_of(s, operand, 0, s->c);
}

/* Queries, keys or values of qkv, or of their gradients. */
static side third_of(const attention *s, int operand, int which) {
    int64_t first = which ? s->n_heads + (which - 1) * s->n_keys : 0;
    side third = queries_of(s, operand, first, s->told.n[7]);
    if (!which) return third;
    if (s->n_shared > 1) third.apart = 0;
    third.step[1] /= (size_t)s->n_shared;
    third.step[2] = 0;
    return third;
}

static side log_sums_of(const attention *s, int operand) {
    size_t head = (size_t)s->t * sizeof(float);
    return (side){.operand = operand,
                  .step = {(size_t)s->n_heads * head,
                           (size_t)(s->keys_at_once * s->n_shared) * head,
                           (size_t)s->n_at_once * head}};
}

static side scores_of(const attention *s, int which) {
    return (side){.operand = WFI_GPU_SCRATCH,
                  .skip = (size_t)which * s->square,
                  .row = s->t,
                  .apart = s->t * s->t};
}

/* The weights overwrite their scores if both have the same type. */
static side weights_of(const attention *s, int which) {
    side weights = scores_of(s, which);
    weights.is_narrow = s->element < sizeof(float);
    if (weights.is_narrow)
        weights.skip = (size_t)s->n_wide * s->square + (size_t)which * s->square / 2;
    return weights;
}

/* The gradients of keys or values for each of the heads that share them; after the weights. */
static side summands_of(const attention *s, int which) {
    size_t head = (size_t)(s->t * s->d) * sizeof(float);
    return (side){.operand = WFI_GPU_SCRATCH,
                  .skip = s->l->scratch_bytes + (size_t)(which * s->n_shared) * head,
                  .row = s->d,
                  .apart = s->t * s->d,
                  .step = {0, 0, (size_t)s->n_at_once * head}};
}

static void take_side(wfi_gpu_node *l, int operand, side from) {
    wfi_gpu_planned *p = &l->all[l->n - 1];
    p->from[operand] = (int8_t)from.operand;
    p->skip[operand] = from.skip;
    for (int k = 0; k < WFI_GPU_LOOPS; k++) p->step[k][operand] = from.step[k];
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

static attention begin_attention(wfi_gpu_node *l, int qkv, int n_wide) {
    const wfi_call call = wfi_call_of(l->g, l->node);
    const wfi_numbers told = l->node->op->numbers(&call);
    bool is_narrow = l->g->values[l->node->in[qkv]].dtype == WF_BF16;
    attention s = {l, told, .t = told.n[1], .c = told.n[2], .d = told.n[4], .n_wide = n_wide};
    s.n_heads = told.n[3];
    s.n_keys = told.n[6];
    s.n_shared = s.n_heads / s.n_keys;
    s.element = is_narrow ? sizeof(uint16_t) : sizeof(float);
    int64_t bytes = s.t * s.t * (int64_t)sizeof(float), n = s.n_shared > 1 ? s.n_shared : s.n_heads;
    s.n_at_once = n;
    while (s.n_at_once > 1 && (n % s.n_at_once || s.n_at_once * bytes > MOST_SCORE_BYTES))
        s.n_at_once--;
    s.keys_at_once = s.n_shared > 1 ? 1 : s.n_at_once;
    s.square = wfi_round_up((size_t)(s.n_at_once * bytes), 2 * WFI_ALIGN_BYTES);
    l->scratch_bytes = (size_t)n_wide * (s.square + (is_narrow ? s.square / 2 : 0));
    l->n_loops[0] = in_shape(l, qkv)->dim[0];
    l->n_loops[1] = s.n_keys / s.keys_at_once;
    l->n_loops[2] = s.keys_at_once * s.n_shared / s.n_at_once;
    s.told.n_groups = s.n_at_once * s.t;
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
    const attention s = begin_attention(l, 0, 1);
    multiply(&s, s.t, s.d, third_of(&s, 0, 0), false, third_of(&s, 0, 1), true, scores_of(&s, 0));
    weigh(&s, entry);
    take_side(l, WFI_GPU_OUT + 1, log_sums_of(&s, WFI_GPU_OUT + 1));
    multiply(&s, s.d, s.t, weights_of(&s, 0), false, third_of(&s, 0, 2), false,
             tokens_of(&s, WFI_GPU_OUT));
}

/* Adds up the gradients of the keys and values that heads share. Only the last iteration of the
 * loop over these heads has all summands, and it overwrites the sums of the others. */
static void add_shared(const attention *s) {
    wfi_launch_arguments *a = wfi_gpu_add_elements(s->l, WFI_GPU_attention_shared, s->t * s->d);
    a->n[1] = s->d;
    a->n[2] = s->n_shared;
    a->n[3] = s->told.n[7];
    for (int which = 0; which < 2; which++) {
        side summands = summands_of(s, which);
        summands.step[2] = 0;
        take_side(s->l, which, summands);
        take_side(s->l, WFI_GPU_OUT + which, third_of(s, WFI_GPU_OUT, 1 + which));
    }
    s->l->scratch_bytes += (size_t)(2 * s->n_shared * s->t * s->d) * sizeof(float);
}

/* dy, qkv, y, L */
static void make_attention_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const attention s = begin_attention(l, 1, 2);
    const side dy = tokens_of(&s, 0), p = weights_of(&s, 0), ds = weights_of(&s, 1);
    bool shares = s.n_shared > 1;
    multiply(&s, s.t, s.d, third_of(&s, 1, 0), false, third_of(&s, 1, 1), true, scores_of(&s, 0));
    multiply(&s, s.t, s.d, dy, false, third_of(&s, 1, 2), true, scores_of(&s, 1));
    weigh(&s, entry);
    take_side(l, 2, dy);
    take_side(l, 3, tokens_of(&s, 2));
    take_side(l, 4, log_sums_of(&s, 3));
    multiply(&s, s.d, s.t, ds, false, third_of(&s, 1, 1), false, third_of(&s, WFI_GPU_OUT, 0));
    multiply(&s, s.d, s.t, ds, true, third_of(&s, 1, 0), false,
             shares ? summands_of(&s, 0) : third_of(&s, WFI_GPU_OUT, 1));
    multiply(&s, s.d, s.t, p, true, dy, false,
             shares ? summands_of(&s, 1) : third_of(&s, WFI_GPU_OUT, 2));
    if (shares) add_shared(&s);
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
