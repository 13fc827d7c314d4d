/* An incident of BLOOM's public log, rebuilt: the embedding is tied to the head, they are in
 * different stages, and the gradient of one is not added to that of the other. There, the loss rose
 * after a restart. Here, the proof refuses the program and names the instruction; the sentences are
 * in docs/architecture.md.
 *
 * label: serial once
 */
#include "broken_program.h"
#include "compile/compile.h"

static wf_program *make_gpt(wf_context *ctx) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    wf_recipe recipe = TEST_RECIPE(.batch = 2, .n_micro = 2, .kernels = WF_KERNELS_REFERENCE);
    wf_program *p;
    scoped_model model = test_find_model(ctx, "gpt2-tiny", &config);
    scoped_plan plan = test_plan(ctx, "pp=2");
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                    WFI_USE_RUN, NULL, &p));
    return p;
}

static int32_t find_tie_of_embedding(const wf_program *p) {
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].kind == WFI_TIE &&
            !strncmp(p->graph->units[p->instructions[i].unit].name, "embed", 5))
            return i;
    fail_msg("the head's gradient is added to no embedding");
    return -1;
}

TEST(the_gradient_of_the_head_is_left_out) {
    wf_program *p = make_gpt(ctx);
    TEST_OK(ctx, wf_program_check(p));
    scoped_breaker b = break_program(ctx, p);
    take_out(p, find_tie_of_embedding(p), b.spare);
    TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, "of unit embed");
    printf("%s\n", wf_context_error(ctx));
}
