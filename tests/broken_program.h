/* A small program with all that makes programs hard, and means to break it. */
#pragma once

#include "compile/compile.h"
#include "test.h"

/* Tied weights across units, batch norm, an input used late, layers that slices divide beside what
 * they read: all that makes it hard. Three units, or four with any config. */
static inline void mixed(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(8, 8), (wf_init){WF_INIT_NORMAL, 0.1f});
    wf_tensor none = {g, -1};
    wf_tensor h = wf_relu(wf_linear_with(x, tied, none));
    h = wf_cut(wf_add(h, x), "middle");
    h = wf_relu(wf_batch_norm(wf_linear(h, "net1", 8), "bn"));
    h = wf_cut(h, "late");
    h = wf_add(h, wf_linear(wf_tanh(wf_linear(h, "in", 8)), "out", 8));
    h = wf_linear_with(wf_add(h, x), tied, none);
    if (config) h = wf_cut(h, "last");
    wf_loss(wf_cross_entropy(wf_linear(h, "head", 5), y));
}

static inline wf_recipe mixed_recipe(int64_t lanes) {
    wf_recipe recipe = TEST_RECIPE(.batch = 8, .n_micro = 4, .n_lanes = lanes, .clip_norm = 1,
                                   .momentum = 0.9, .kernels = WF_KERNELS_REFERENCE);
    return recipe;
}

static inline wf_program *make_program_of_kind(wf_context *ctx, const char *plan_text,
                                               const wf_recipe *recipe, wf_program_kind kind,
                                               wfi_program_use use) {
    wf_program *p;
    wf_plan *plan = test_plan(ctx, plan_text);
    bool is_deep = wfi_plan_n_stages(plan, 1) > 3;
    wf_recipe sliced = *recipe;
    sliced.n_slices = plan->tp > 1 ? 2 * plan->tp : 1; /* two a rank */
    wf_model *model = test_model(ctx, "mixed", mixed, &is_deep, is_deep);
    TEST_OK(ctx,
            wfi_program_create(ctx, model, &sliced, plan, &wfi_backend_cpu, kind, use, NULL, &p));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return p;
}

static inline wf_program *make_program_of(wf_context *ctx, const char *plan_text,
                                          const wf_recipe *recipe, wfi_program_use use) {
    return make_program_of_kind(ctx, plan_text, recipe, WF_PROGRAM_TRAIN, use);
}

static inline wf_program *make_program_for(wf_context *ctx, const char *plan_text, int64_t lanes,
                                           wfi_program_use use) {
    wf_recipe recipe = mixed_recipe(lanes);
    return make_program_of(ctx, plan_text, &recipe, use);
}

static inline wf_program *make_program(wf_context *ctx, const char *plan_text, int64_t lanes) {
    return make_program_for(ctx, plan_text, lanes, WFI_USE_RUN);
}

static inline void restore(wf_program *p, const wf_program *saved, wfi_instruction *instructions,
                           int32_t *const *streams) {
    memcpy(p->instructions, instructions, (size_t)saved->n_instructions * sizeof *instructions);
    p->n_instructions = saved->n_instructions;
    int32_t k = 0;
    for (int32_t r = 0; r < p->n_ranks; r++)
        for (int s = 0; s < WFI_N_STREAMS; s++, k++) {
            int32_t n = streams[k][0];
            p->ranks[r].n_stream[s] = n;
            memcpy(p->ranks[r].stream[s], streams[k] + 1, (size_t)n * sizeof(int32_t));
        }
}

static inline void renumber(wf_program *p, int32_t rank, wfi_stream stream) {
    wfi_rank *r = &p->ranks[rank];
    for (int32_t k = 0; k < r->n_stream[stream]; k++)
        p->instructions[r->stream[stream][k]].position = k;
}

/* Takes instruction i out of its stream; what waited for it waits no more. The last
 * instruction takes its number, so that numbers stay dense. */
static inline void take_out(wf_program *p, int32_t i, int32_t *spare) {
    wfi_instruction gone = p->instructions[i];
    wfi_rank *r = &p->ranks[gone.rank];
    int32_t *list = r->stream[gone.stream];
    memmove(list + gone.position, list + gone.position + 1,
            (size_t)(r->n_stream[gone.stream] - gone.position - 1) * sizeof *list);
    r->n_stream[gone.stream]--;
    renumber(p, gone.rank, gone.stream);
    int32_t last = --p->n_instructions;
    p->instructions[i] = p->instructions[last];
    for (int32_t k = 0; k < p->n_instructions; k++) {
        wfi_instruction *now = &p->instructions[k];
        int32_t n = 0, *copy = spare;
        for (int32_t d = 0; d < now->n_depends; d++)
            if (now->depends[d] != i) *spare++ = now->depends[d] == last ? i : now->depends[d], n++;
        now->depends = copy;
        now->n_depends = n;
    }
    for (int32_t rank = 0; rank < p->n_ranks; rank++)
        for (int s = 0; s < WFI_N_STREAMS; s++)
            for (int32_t k = 0; k < p->ranks[rank].n_stream[s]; k++)
                if (p->ranks[rank].stream[s][k] == last) p->ranks[rank].stream[s][k] = i;
}

typedef struct breaker {
    wf_context *ctx;
    wf_program *p;
    wf_program saved;
    wfi_instruction *instructions;
    wfi_block *blocks;
    int32_t **streams;
    int32_t *spare; /* room for all dependencies */
    wfi_reference spare_references[64];
    int n_refused, n_accepted;
} breaker;

static inline breaker break_program(wf_context *ctx, wf_program *p) {
    breaker b = {.ctx = ctx, .p = p};
    b.saved = *p;
    size_t n = (size_t)p->n_instructions, n_depends = 0;
    b.instructions = test_malloc(n * sizeof *b.instructions);
    memcpy(b.instructions, p->instructions, n * sizeof *b.instructions);
    b.blocks = test_malloc((size_t)p->n_blocks * sizeof *b.blocks);
    memcpy(b.blocks, p->blocks, (size_t)p->n_blocks * sizeof *b.blocks);
    for (size_t i = 0; i < n; i++) n_depends += (size_t)p->instructions[i].n_depends;
    b.spare = test_malloc((n_depends + 1) * sizeof *b.spare);
    b.streams = test_malloc((size_t)p->n_ranks * WFI_N_STREAMS * sizeof *b.streams);
    for (int32_t r = 0, k = 0; r < p->n_ranks; r++)
        for (int s = 0; s < WFI_N_STREAMS; s++, k++) {
            size_t m = (size_t)p->ranks[r].n_stream[s];
            b.streams[k] = test_malloc((m + 1) * sizeof **b.streams);
            b.streams[k][0] = (int32_t)m;
            memcpy(b.streams[k] + 1, p->ranks[r].stream[s], m * sizeof **b.streams);
        }
    return b;
}

/* How a program is broken: at instruction i. False: it cannot be, there. */
typedef bool (*sabotage)(breaker *b, int32_t i);

static inline bool drop(breaker *b, int32_t i, wfi_instruction_kind kind) {
    if (b->p->instructions[i].kind != kind) return false;
    take_out(b->p, i, b->spare);
    return true;
}

static inline void end_breaker(breaker *b) {
    restore(b->p, &b->saved, b->instructions, b->streams);
    memcpy(b->p->blocks, b->blocks, (size_t)b->p->n_blocks * sizeof *b->blocks);
    TEST_OK(b->ctx, wf_program_check(b->p));
    for (int k = 0; k < b->p->n_ranks * WFI_N_STREAMS; k++) test_free(b->streams[k]);
    test_free(b->streams);
    test_free(b->spare);
    test_free(b->instructions);
    test_free(b->blocks);
    wf_program_destroy(b->p);
}
#define scoped_breaker __attribute__((cleanup(end_breaker))) breaker
