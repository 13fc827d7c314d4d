/* Guarded memory: with WEFT_ARENA_GAP nothing that kernels, copies and collectives write lies
 * outside of what they were given, whatever the libraries say; and what does is noticed: writes of
 * 4 bytes too far are injected behind operands of kernels (all with WEFT_TEST_FULL=1), and of a
 * line behind what other instructions refer to.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "program/clock.h"
#include "small_models.h"

#define GAP "256"

/* ---- nothing is written outside ---- */

static const char *const plans[] = {"",
                                    "dp=2",
                                    "pp=2,schedule=zb1",
                                    "pp=2,schedule=zbv",
                                    "dp=2,pp=2,schedule=gpipe",
                                    "dp=2,allreduce=pairwise",
                                    "pp=2,schedule=zb1,recompute=all",
                                    "dp=2,recompute=selective",
                                    "dataparallel=2"};

TEST_CASE(small_models_stay_inside) {
    setenv("WEFT_ARENA_GAP", GAP, 1);
    wf_model_function functions[] = {small_net, plain_net};
    for (int f = 0; f < 2; f++)
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
            for (int kernels = 0; kernels < (k == 0 ? 2 : 1); kernels++) {
                if (f == 1 && strstr(plans[k], "zbv")) continue; /* it has two units */
                scoped_context ctx = test_context();
                wf_recipe recipe =
                    SMALL_RECIPE(.n_micro = 4, .n_lanes = 2, .clip_norm = 1,
                                 .kernels = kernels ? WF_KERNELS_REFERENCE : WF_KERNELS_FAST);
                scoped_trainer trainer =
                    planned_trainer(ctx, functions[f], &recipe, plans[k], NULL, 0);
                for (int s = 0; s < 2; s++) (void)small_step(ctx, trainer, s);
            }
    unsetenv("WEFT_ARENA_GAP");
}

#define ZOO_BATCH 4

/* Something for every input of the model. */
static int make_feeds(const wf_graph *g, wf_feed *feeds) {
    int n = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = &g->values[v];
        if (value->kind != WFI_VALUE_INPUT || value->alias >= 0) continue;
        size_t n_elem = wfi_value_bytes(g, v) / 4 / (size_t)g->batch * ZOO_BATCH;
        int32_t *data = test_calloc(n_elem, sizeof *data);
        wfi_random_key key = {3, (uint64_t)v};
        for (size_t i = 0; i < n_elem; i++) {
            float normal = wfi_random_normal(key, 0, i);
            if (value->dtype == WF_F32)
                memcpy(&data[i], &normal, sizeof normal);
            else
                data[i] = (int32_t)(i * 7 % 10);
        }
        feeds[n++] = (wf_feed){value->name, data, n_elem * 4};
    }
    return n;
}

static void train_registered(const char *name, const wf_model_config *model_config,
                             const char *plan_text) {
    wf_context *ctx = test_context();
    wf_recipe recipe = SMALL_RECIPE(.batch = ZOO_BATCH, .n_lanes = 2);
    wf_trainer *trainer;
    wf_step_result result;
    wf_feed feeds[4];
    wf_model *model = test_find_model(ctx, name, model_config);
    wf_plan *plan = test_plan(ctx, plan_text);
    TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, NULL, &trainer));
    int n_feeds = make_feeds(wf_trainer_program(trainer)->graph, feeds);
    TEST_OK(ctx, wf_trainer_step(trainer, feeds, n_feeds, ZOO_BATCH, &result));
    TEST_OK(ctx, wf_trainer_eval(trainer, feeds, n_feeds, ZOO_BATCH, &result));
    for (int k = 0; k < n_feeds; k++) test_free((void *)(uintptr_t)feeds[k].data);
    wf_trainer_destroy(trainer);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    test_context_end(ctx);
}

TEST_CASE(networks_stay_inside) {
    static const char *const some[] = {"", "dp=2,pp=2"};
    wf_model_config images = WF_MODEL_CONFIG_INIT, tokens = WF_MODEL_CONFIG_INIT;
    images.height = images.width = 16;
    images.n_classes = 10;
    images.small_stem = 1;
    tokens.n_classes = 0;
    tokens.n_tokens = 12;
    setenv("WEFT_ARENA_GAP", GAP, 1);
    for (int k = 0; k < 2; k++) {
        wf_model_config flat = images;
        flat.small_stem = 0;
        train_registered("mlp", &flat, some[k]);
        train_registered("resnet18", &images, some[k]);
        train_registered("gpt2-tiny", &tokens, some[k]);
    }
    unsetenv("WEFT_ARENA_GAP");
}

/* ---- what is written outside is noticed ---- */

static const wfi_kernel_impl *real_impl;
static wfi_kernel_impl too_far;
static int which_operand; /* n_operands: the scratch memory */

static wf_status run_too_far(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                             void *scratch, const wfi_step_args *step) {
    WF_TRY(real_impl->run(kernel, stream, operands, scratch, step));
    char *end = which_operand < kernel->n_operands
                    ? (char *)operands[which_operand] + kernel->bytes[which_operand]
                    : (char *)scratch + kernel->scratch_bytes;
    for (int i = 0; i < 4; i++) end[i] = (char)~end[i];
    return WF_OK;
}

static wf_trainer *guarded_trainer(wf_context *ctx, const char *plan) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 4, .n_lanes = 2, .clip_norm = 1);
    return planned_trainer(ctx, small_net, &recipe, plan, NULL, 0);
}

/* Parameters' gradients lie side by side; so do statistics. */
static bool is_alone(const wfi_segment *segment, const wfi_address *a) {
    wfi_block_kind kind = segment->slots[a->slot].kind;
    return kind != WFI_BLOCK_GRADIENT && kind != WFI_BLOCK_STATS;
}

/* Whether operand `which` of step `s` is written and has a gap behind it; then bends the kernel. */
static bool bend(const wfi_segment *segment, int32_t s, int which) {
    wfi_segment_step *step = &segment->steps[s];
    wfi_kernel *kernel = step->kernel;
    bool is_scratch = which == kernel->n_operands;
    const wfi_address *a = is_scratch ? &step->scratch : &step->operand[which];
    size_t bytes = is_scratch ? kernel->scratch_bytes : kernel->bytes[which];
    if (a->slot < 0 || !bytes || !(is_scratch || kernel->writes[which])) return false;
    if (!is_alone(segment, a)) return false;
    real_impl = kernel->impl;
    too_far = *real_impl;
    too_far.run = run_too_far;
    which_operand = which;
    kernel->impl = &too_far;
    return true;
}

/* Number n of all operands of the first rank's kernels. False: there are fewer. */
static bool find_operand(const wf_program *p, int32_t n, const wfi_segment **segment_out,
                         int32_t *step_out, int *which_out) {
    for (int32_t u = 0; u < p->graph->n_units; u++)
        for (int k = 0; k < 2 * WFI_N_PARTS; k++) {
            const wfi_unit_code *unit = &p->code->units[u];
            const wfi_segment *segment = k % 2 ? unit->pack[k / 2] : unit->part[k / 2];
            for (int32_t s = 0; segment && s < segment->n_steps; s++)
                for (int i = 0; i <= segment->steps[s].kernel->n_operands; i++)
                    if (n-- == 0) {
                        *segment_out = segment;
                        *step_out = s;
                        *which_out = i;
                        return true;
                    }
        }
    return false;
}

TEST_CASE(kernels_that_write_too_far) {
    int n_tried = 0, n_unnoticed = 0;
    int32_t stride = getenv("WEFT_TEST_FULL") ? 1 : 5;
    bool more = true;
    setenv("WEFT_ARENA_GAP", GAP, 1);
    for (int32_t n = 0; more; n += stride) {
        scoped_context ctx = test_context();
        scoped_trainer trainer = guarded_trainer(ctx, "");
        const wfi_segment *segment;
        int32_t step;
        int which;
        const wf_program *p = trainer->ready[0]->program;
        while ((more = find_operand(p, n, &segment, &step, &which)) && !bend(segment, step, which))
            n++;
        if (more) {
            wfi_kernel *kernel = segment->steps[step].kernel;
            wf_status status = small_try_step(trainer, 0, NULL);
            n_tried++;
            n_unnoticed += status == WF_OK;
            if (status == WF_OK)
                print_message("%s (%s), operand %d: not noticed\n", kernel->label, real_impl->name,
                              which);
            else
                assert_non_null(strstr(wf_context_error(ctx), "wrote outside"));
            kernel->impl = real_impl;
        }
    }
    unsetenv("WEFT_ARENA_GAP");
    print_message("kernels: %d tried, %d unnoticed\n", n_tried, n_unnoticed);
    assert_true(n_tried > 15);
    assert_int_equal(n_unnoticed, 0);
}

/* Instructions that are no kernels touch what their references say, so a reference of a line
 * more, which the check would refuse, is a write too far. */
static bool lengthen(wf_program *p, int32_t i) {
    wfi_instruction *now = &p->instructions[i];
    if (now->segment || now->kind == WFI_LOAD || now->kind == WFI_SEND) return false;
    for (int32_t k = 0; k < now->n_references; k++) {
        wfi_reference *r = &now->references[k];
        if (!r->bytes || !(r->access & WFI_WRITE)) continue;
        if (p->blocks[r->block].name.kind == WFI_BLOCK_STAGING) continue;
        if (now->kind == WFI_FOLD_STATS || now->kind == WFI_NORM || now->kind == WFI_TIE) continue;
        for (int32_t m = 0; m < p->n_instructions; m++) /* on all sides */
            if (m == i || wfi_same_collective(p, now, &p->instructions[m]))
                p->instructions[m].references[k].bytes += 64;
        return true;
    }
    return false;
}

TEST_CASE(copies_that_write_too_far) {
    static const char *const some[] = {"dp=2,pp=2", "dataparallel=2", "dp=2,allreduce=pairwise"};
    int n_tried = 0, n_unnoticed = 0;
    bool is_tried[WFI_N_INSTRUCTION_NAMES] = {false};
    setenv("WEFT_ARENA_GAP", GAP, 1);
    for (size_t k = 0; k < sizeof some / sizeof *some; k++)
        for (int32_t i = 0, n = 1; i < n; i += 8) { /* not each: there are many alike */
            wf_context *ctx = test_context();
            wf_trainer *trainer = guarded_trainer(ctx, some[k]);
            wf_program *p = trainer->ready[0]->program;
            n = p->n_instructions;
            while (i < n && !lengthen(p, i)) i++;
            if (i < n) {
                wf_status status = small_try_step(trainer, 0, NULL);
                n_tried++;
                n_unnoticed += status == WF_OK;
                is_tried[wfi_instruction_name_number(&p->instructions[i])] = true;
                if (status == WF_OK)
                    print_message("plan '%s', %s: not noticed\n", some[k],
                                  wfi_instruction_name(&p->instructions[i]));
                else
                    assert_non_null(strstr(wf_context_error(ctx), "wrote outside"));
            }
            wf_trainer_destroy(trainer);
            test_context_end(ctx);
        }
    unsetenv("WEFT_ARENA_GAP");
    int n_kinds = 0;
    for (int kind = 0; kind < WFI_N_INSTRUCTION_NAMES; kind++) n_kinds += is_tried[kind];
    print_message("others: %d tried of %d kinds, %d unnoticed\n", n_tried, n_kinds, n_unnoticed);
    assert_true(n_tried > 12 && n_kinds > 5);
    assert_int_equal(n_unnoticed, 0);
}
