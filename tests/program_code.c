/* Compiled units broken behind the compiler's back: where kernels read and write is changed, one
 * operand after the other, and the check refuses each with the reason.
 *
 * label: serial
 */
#include "broken_program.h"
#include "compile/compile.h"
#include "small_models.h"

#define FURTHER 64 /* bytes */

/* Reads the first unit's weight and one of its own, both first in their unit and of one shape. */
static void two_weights(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor none = {g, -1};
    wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(192, 192), (wf_init){WF_INIT_NORMAL, 0.2f});
    wf_tensor h = wf_tanh(wf_linear_with(wf_reshape(x, WF_SHAPE(-1, 192)), tied, none));
    wf_cut(h, "second");
    wf_tensor own = wf_parameter(g, "own", WF_SHAPE(192, 192), (wf_init){WF_INIT_NORMAL, 0.2f});
    h = wf_tanh(wf_linear_with(wf_tanh(wf_linear_with(h, own, none)), tied, none));
    wf_loss(wf_cross_entropy(wf_linear(h, "fc", 10), y));
}

/* Two layers with hidden state in one unit. */
static void two_recurrences(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_lstm(wf_reshape(x, WF_SHAPE(-1, 3, 64)), "rnn", 0, 16);
    h = wf_reshape(wf_lstm(h, "rnn", 1, 16), WF_SHAPE(-1, 48));
    wf_loss(wf_cross_entropy(wf_linear(h, "fc", 10), y));
}

static const struct {
    const char *name;
    wf_model_function model;
    const char *plan;
    wf_dtype dtype;
} programs[] = {
    {"small_net", small_net, "", WF_F32},
    {"small_net, in two stages", small_net, "pp=2,schedule=zb1", WF_F32},
    {"small_net, bf16", small_net, "", WF_BF16},
    {"two_weights, bf16", two_weights, "pp=2", WF_BF16},
    {"plain_net", plain_net, "", WF_F32},
    {"two_recurrences", two_recurrences, "", WF_F32},
};
#define N_PROGRAMS (sizeof programs / sizeof *programs)

static wf_program *make_one(wf_context *ctx, size_t which) {
    wf_program *p;
    wf_recipe recipe = SMALL_RECIPE(.dtype = programs[which].dtype);
    scoped_model model = test_model(ctx, "a model", programs[which].model, NULL, 0);
    scoped_plan plan = test_plan(ctx, programs[which].plan);
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                    WFI_USE_RUN, NULL, &p));
    return p;
}

/* ---- what is tried ---- */

/* Operand k of a step of a segment. */
typedef struct attempt {
    wf_program *p;
    wfi_segment *segment;
    int32_t step;
    int k;
} attempt;

static wfi_segment_step *step_of(const attempt *a) {
    return &a->segment->steps[a->step];
}

static wfi_slot *slot_of(const attempt *a) {
    return &a->segment->slots[step_of(a)->operand[a->k].slot];
}

static bool is_input(const attempt *a) {
    const wfi_kernel *kernel = step_of(a)->kernel;
    return kernel->node && a->k < kernel->node->n_in;
}

static bool move(const attempt *a) {
    step_of(a)->operand[a->k].offset += FURTHER;
    slot_of(a)->bytes += FURTHER;
    return true;
}

static bool no_producer(const attempt *a) {
    wf_graph *g = a->p->graph;
    if (!is_input(a) || step_of(a)->kernel->writes[a->k]) return false;
    int32_t root = wfi_value_root(g, step_of(a)->kernel->node->in[a->k]);
    wfi_value *v = &g->values[root];
    /* Statistics and hidden state without a producer are refused for another reason. */
    wfi_block_kind kind = a->p->code->place[wfi_place_home(a->p->code, root)].kind;
    bool is_made =
        v->kind == WFI_VALUE_NODE && kind != WFI_BLOCK_STATS && kind != WFI_BLOCK_NEXT_HIDDEN;
    if (is_made) v->node = -1;
    return is_made;
}

static bool another_parameter(const attempt *a) {
    return slot_of(a)->kind == WFI_BLOCK_PARAM && !a->segment->is_pack && move(a);
}

static bool another_sum(const attempt *a) {
    return wfi_is_sum(slot_of(a)->kind) && move(a);
}

static bool packs_another_parameter(const attempt *a) {
    return a->segment->is_pack && a->k == 0 && move(a);
}

static bool packs_another_unit(const attempt *a) {
    if (!a->segment->is_pack || a->k || a->p->graph->n_units < 2) return false;
    slot_of(a)->id = (slot_of(a)->id + 1) % a->p->graph->n_units;
    return true;
}

static bool packs_elsewhere(const attempt *a) {
    return a->segment->is_pack && a->k == 1 && move(a);
}

/* An output into the first input that is at least as large. */
static bool over_an_input(const attempt *a) {
    wfi_segment_step *step = step_of(a);
    const wfi_kernel *kernel = step->kernel;
    if (!kernel->node || a->k != kernel->node->n_in || kernel->node->op->overwrites) return false;
    for (int i = 0; i < kernel->node->n_in; i++) {
        bool fits = kernel->bytes[i] >= kernel->bytes[a->k];
        if (!fits || step->operand[i].slot != step->operand[a->k].slot) continue;
        step->operand[a->k] = step->operand[i];
        return true;
    }
    return false;
}

static bool is_same(wfi_address a, wfi_address b) {
    return a.slot == b.slot && a.offset == b.offset;
}

/* Whether an operand of steps first to end - 1 lies there. */
static bool is_used(const wfi_segment *s, int32_t first, int32_t end, wfi_address at) {
    for (int32_t k = first; k < end; k++)
        for (int i = 0; i < s->steps[k].kernel->n_operands; i++)
            if (is_same(s->steps[k].operand[i], at)) return true;
    return false;
}

/* A value that is saved where an earlier one was, which this segment reads no more. */
static bool over_a_saved_value(const attempt *a) {
    wfi_segment *s = a->segment;
    const wfi_address to = step_of(a)->operand[a->k];
    const wfi_kernel *kernel = step_of(a)->kernel;
    if (slot_of(a)->kind != WFI_BLOCK_SAVED || is_input(a) || !kernel->node) return false;
    if (is_used(s, 0, a->step, to)) return false;
    for (int32_t early = 0; early < a->step; early++) {
        const wfi_kernel *before = s->steps[early].kernel;
        int out = before->node ? before->node->n_in : 0;
        const wfi_address from = s->steps[early].operand[out];
        if (!before->node || from.slot != to.slot || before->bytes[out] != kernel->bytes[a->k] ||
            is_used(s, a->step, s->n_steps, from))
            continue;
        for (int32_t k = a->step; k < s->n_steps; k++)
            for (int i = 0; i < s->steps[k].kernel->n_operands; i++)
                if (is_same(s->steps[k].operand[i], to)) s->steps[k].operand[i] = from;
        return true;
    }
    return false;
}

static const struct {
    const char *name;
    bool (*apply)(const attempt *a);
    const char *words;
    bool is_pack; /* may be tried nowhere: not every processor wants packed weights */
} attempts[] = {
    {"a value that no node makes", no_producer, "reads a value that no node makes", false},
    {"another parameter", another_parameter, "reads another parameter", false},
    {"another parameter's gradient", another_sum, "adds a gradient to that of another", false},
    {"another parameter is packed", packs_another_parameter, "packed copy of another", true},
    {"another unit's parameter is packed", packs_another_unit, "packed copy of another", true},
    {"a parameter is packed elsewhere", packs_elsewhere, "packed copy of another", true},
    {"an output over an input", over_an_input, "two of its operands share bytes", false},
    {"a saved value over another", over_a_saved_value, "not exist at the end", false},
};
#define N_ATTEMPTS (sizeof attempts / sizeof *attempts)

static int n_tried[N_ATTEMPTS], n_packs;

/* What an attempt may change, as it was. */
typedef struct kept {
    wfi_segment_step steps[64];
    wfi_slot slots[32];
} kept;

static void copy_segment(wfi_segment *s, kept *k, bool restores) {
    assert_true((size_t)s->n_steps < WFI_COUNT(k->steps) &&
                (size_t)s->n_slots < WFI_COUNT(k->slots));
    memcpy(restores ? s->steps : k->steps, restores ? k->steps : s->steps,
           (size_t)s->n_steps * sizeof *s->steps);
    memcpy(restores ? s->slots : k->slots, restores ? k->slots : s->slots,
           (size_t)s->n_slots * sizeof *s->slots);
}

static void try_operand(wf_context *ctx, const attempt *a, const char *program) {
    const wfi_code *code = a->p->variants[0].code;
    wf_graph *g = a->p->graph;
    wfi_value *values = test_malloc((size_t)g->n_values * sizeof *values);
    memcpy(values, g->values, (size_t)g->n_values * sizeof *values);
    kept before;
    copy_segment(a->segment, &before, false);
    for (size_t which = 0; which < N_ATTEMPTS; which++) {
        bool is_tried = step_of(a)->kernel->bytes[a->k] && attempts[which].apply(a);
        wf_status status = is_tried ? wfi_code_check(code) : WF_OK;
        n_tried[which] += is_tried;
        copy_segment(a->segment, &before, true);
        memcpy(g->values, values, (size_t)g->n_values * sizeof *values);
        if (is_tried && (status != WF_BUG || !strstr(wf_context_error(ctx), attempts[which].words)))
            fail_msg("%s, unit %s, %s, operand %d, %s: '%s' instead of '%s'", program,
                     g->units[a->segment->unit].name, step_of(a)->kernel->label, a->k,
                     attempts[which].name, status ? wf_context_error(ctx) : "it is right",
                     attempts[which].words);
    }
    test_free(values);
}

static void try_segment(wf_context *ctx, wf_program *p, wfi_segment *segment, const char *program) {
    for (int32_t s = 0; segment && s < segment->n_steps; s++)
        for (int k = 0; k < segment->steps[s].kernel->n_operands; k++)
            if (segment->steps[s].operand[k].slot >= 0)
                try_operand(ctx, &(attempt){p, segment, s, k}, program);
    n_packs += segment && segment->is_pack;
}

TEST(every_operand) {
    for (size_t which = 0; which < N_PROGRAMS; which++) {
        scoped_program p = make_one(ctx, which);
        for (int32_t u = 0; u < p->graph->n_units; u++)
            for (int part = 0; part < WFI_N_PARTS; part++) {
                try_segment(ctx, p, p->code->units[u].part[part], programs[which].name);
                try_segment(ctx, p, p->code->units[u].pack[part], programs[which].name);
            }
        TEST_OK(ctx, wf_program_check(p));
    }
    for (size_t which = 0; which < N_ATTEMPTS; which++) {
        print_message("%s: tried %d times\n", attempts[which].name, n_tried[which]);
        assert_true(n_tried[which] > (attempts[which].is_pack && !n_packs ? -1 : 0));
    }
}
