/* The memory plan: how close the peak comes to what is alive at once, and that this bound is one.
 *
 * label: once serial
 */
#include "program/program.h"
#include "test_program.h"

/* Most of a rank's peak that may be lost between blocks. */
#define MOST_FRAGMENTATION 0.03

static wf_program *make_sliced(wf_context *ctx, const char *name, wf_model_config config,
                               const char *plan_text, int64_t n_micro, int n_lanes, int n_slices,
                               const char *optimizer) {
    const wf_model_info *about = wf_model_registry_find(name);
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_program *p;
    char text[120];
    if (about->takes_tokens)
        config.n_tokens = 64, config.n_classes = about->has_sizes ? 256 : about->n_classes;
    else
        config.height = config.width = 32, config.n_classes = 10,
        config.small_stem = about->has_stem;
    snprintf(text, sizeof text, "batch=8,micro=%d,lanes=%d,slices=%d,optimizer=%s", (int)n_micro,
             n_lanes, n_slices, optimizer);
    TEST_OK(ctx, wf_recipe_parse(ctx, text, &recipe));
    wf_model *model = test_find_model(ctx, name, &config);
    wf_plan *plan = test_plan(ctx, plan_text);
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return p;
}

static wf_program *make_sized(wf_context *ctx, const char *name, wf_model_config config,
                              const char *plan_text, int64_t n_micro, int n_lanes,
                              const char *optimizer) {
    return make_sliced(ctx, name, config, plan_text, n_micro, n_lanes, 1, optimizer);
}

static wf_program *make(wf_context *ctx, const char *name, const char *plan_text, int64_t n_micro,
                        const char *optimizer) {
    const wf_model_config config = WF_MODEL_CONFIG_INIT;
    return make_sized(ctx, name, config, plan_text, n_micro, 4, optimizer);
}

/* Of the rank that loses most. */
static double worst_fragmentation(const wf_program *p) {
    double worst = 0;
    for (int r = 0; r < wf_program_n_ranks(p); r++) {
        wf_rank_summary rank = wf_program_rank(p, r);
        assert_true(rank.state_bytes <= rank.bound_bytes && rank.bound_bytes <= rank.peak_bytes);
        double share = 1 - (double)rank.bound_bytes / (double)rank.peak_bytes;
        if (share > worst) worst = share;
    }
    for (int32_t k = 0; k < p->n_lowered * WFI_N_SPACES; k++) {
        const wfi_arena_plan *r = &p->ranks[p->lowered[k / WFI_N_SPACES]].arenas[k % WFI_N_SPACES];
        double share = r->peak_bytes ? 1 - (double)r->bound_bytes / (double)r->peak_bytes : 0;
        if (share > worst) worst = share;
    }
    return worst;
}

TEST(little_is_lost_between_blocks) {
    static const char *const models[] = {"resnet18", "resnet50", "gpt2", "gpt2-tiny"};
    static const char *const plans[] = {"",
                                        "pp=2",
                                        "pp=2,schedule=zb1",
                                        "dp=4",
                                        "dp=2,pp=2",
                                        "pp=4,schedule=gpipe",
                                        "dp=2,allreduce=pairwise",
                                        "dataparallel=2",
                                        "dp=4,zero=1",
                                        "dp=4,zero=2",
                                        "dp=4,zero=3",
                                        "dp=2,zero=3,schedule=breadth",
                                        "dp=2,pp=2,zero=2",
                                        "dp=4,zero=3,shard=2",
                                        "dp=2,zero=3,schedule=breadth,recompute=all",
                                        "recompute=all",
                                        "dp=2,pp=2,recompute=selective",
                                        "pp=2,schedule=zb1,recompute=all",
                                        "dp=2,zero=2,offload=state",
                                        "dp=2,zero=3,offload=state+params",
                                        "offload=activations",
                                        "dp=2,pp=2,offload=state:disk+params:disk+activations:disk",
                                        "dp=2,zero=3,recompute=selective,offload=activations",
                                        "pp=2,schedule=interleaved",
                                        "pp=2,schedule=zbv",
                                        "pp=2,schedule=vhalf",
                                        "pp=2,schedule=zb2"};
    int n_over = 0;
    for (size_t m = 0; m < WFI_COUNT(models); m++)
        for (size_t k = m % TEST_SAMPLE; k < WFI_COUNT(plans); k += TEST_SAMPLE)
            for (int n_micro = 4; n_micro <= 8; n_micro *= 2) {
                if (!test_is_full() && n_micro != (k % 2 ? 4 : 8)) continue;
                scoped_program p = make(ctx, models[m], plans[k], n_micro, k % 2 ? "sgd" : "adamw");
                double share = worst_fragmentation(p);
                n_over += share > MOST_FRAGMENTATION;
                if (share > MOST_FRAGMENTATION)
                    print_error("%s, %s, %d microbatches: %.1f %% of a peak lies between blocks\n",
                                models[m], plans[k], n_micro, 100 * share);
            }
    assert_int_equal(n_over, 0);
}

static size_t highest_peak(const wf_program *p) {
    size_t most = 0;
    for (int r = 0; r < wf_program_n_ranks(p); r++)
        most = (size_t)wfi_max_i64((int64_t)most, (int64_t)wf_program_rank(p, r).peak_bytes);
    return most;
}

/* A network of a size that people train. */
static wf_program *make_images(wf_context *ctx, const char *name, const char *plan_text) {
    wf_recipe recipe = TEST_RECIPE(.batch = 64, .n_micro = 8);
    scoped_model model = test_find_model(ctx, name, &TEST_MODEL(.height = 128, .width = 128));
    wf_program *p = test_program(ctx, model, &recipe, plan_text);
    return p;
}

/* The first chunk has the largest activations, and the last the most weights; on a V they are one
 * rank's. With the borders where work is balanced alone it would need a third more than 1f1b. */
TEST(both_ends_of_a_v_fit) {
    scoped_program one = make_images(ctx, "resnet50", "pp=2");
    scoped_program v = make_images(ctx, "resnet50", "pp=2,schedule=zbv");
    if (highest_peak(v) > highest_peak(one) / 100 * 110)
        fail_msg("%zu bytes, and %zu of 1f1b", highest_peak(v), highest_peak(one));
}

/* How many values lie where others lay, and how many of these in what a segment has read from
 * outside. */
static void count_overwritten(const wfi_code *code, int *n_out, int *n_spoiled_out) {
    *n_out = *n_spoiled_out = 0;
    for (int32_t v = 0; v < code->g->n_values; v++)
        *n_out += wfi_value_root(code->g, v) == v && code->place[v].home != v;
    for (int32_t u = 0; u < code->g->n_units; u++)
        for (int part = 0; part < WFI_N_PARTS; part++) {
            const wfi_segment *s = code->units[u].part[part];
            for (int32_t k = 0; s && k < s->n_slots; k++)
                *n_spoiled_out += (s->slots[k].access & WFI_SPOIL) != 0;
        }
}

/* Whether both steps touch the same bytes, and one of them writes there. */
static bool conflict(const wfi_segment_step *a, const wfi_segment_step *b) {
    for (int i = 0; i < a->kernel->n_operands; i++)
        for (int k = 0; k < b->kernel->n_operands; k++) {
            const wfi_address *x = &a->operand[i], *y = &b->operand[k];
            if (a->kernel->bytes[i] && b->kernel->bytes[k] && x->slot == y->slot &&
                (a->kernel->writes[i] || b->kernel->writes[k]) &&
                x->offset < y->offset + b->kernel->bytes[k] &&
                y->offset < x->offset + a->kernel->bytes[i])
                return true;
        }
    return false;
}

/* Neighbours change places: that passes only if they have nothing to do with each other. */
static int swap_steps(const wfi_code *code, wfi_segment *segment) {
    int n_refused = 0;
    for (int32_t k = 0; segment && k + 1 < segment->n_steps; k++) {
        wfi_segment_step *steps = segment->steps, first = steps[k];
        steps[k] = steps[k + 1], steps[k + 1] = first;
        bool passes = wfi_code_check(code) == WF_OK;
        if (passes && conflict(&steps[k], &steps[k + 1]))
            fail_msg("unit %s: %s before %s", code->g->units[segment->unit].name,
                     steps[k].kernel->label, steps[k + 1].kernel->label);
        n_refused += !passes;
        first = steps[k], steps[k] = steps[k + 1], steps[k + 1] = first;
    }
    return n_refused;
}

/* Whether operand i of the step is value v. */
static bool is_value(const wfi_code *code, const wfi_segment_step *step, int i, int32_t v) {
    const wfi_node *node = step->kernel->node;
    if (!node || i >= node->n_in + node->n_out) return !node && i == 0 && step->summand == v;
    int32_t operand = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
    return operand >= 0 && wfi_value_root(code->g, operand) == v;
}

/* What an op makes, and all that is done with it, in the place of an input that the segment makes
 * for others: that never passes. */
static int overwrite_what_stays(const wfi_code *code, wfi_segment *segment) {
    int n_refused = 0;
    for (int32_t k = 0; segment && k < segment->n_steps; k++) {
        const wfi_segment_step step = segment->steps[k];
        const wfi_node *node = step.kernel->node;
        for (int i = 0; node && i < node->n_in; i++) {
            int32_t from = node->in[i] < 0 ? -1 : wfi_value_root(code->g, node->in[i]);
            int32_t to = wfi_value_root(code->g, node->out[0]); /* rows are a part of it */
            wfi_segment_step kept[64];
            if (from < 0 || !(node->op->overwrites >> i & 1) || segment->n_steps > 64 ||
                code->place[from].kind == WFI_BLOCK_WORKSPACE ||
                !wfi_segment_makes(segment, code->g, from) ||
                step.kernel->bytes[i] != step.kernel->bytes[node->n_in])
                continue;
            memcpy(kept, segment->steps, (size_t)segment->n_steps * sizeof *kept);
            for (int32_t s = k; s < segment->n_steps; s++)
                for (int o = 0; o < segment->steps[s].kernel->n_operands; o++)
                    if (is_value(code, &segment->steps[s], o, to))
                        segment->steps[s].operand[o] = step.operand[i];
            if (wfi_code_check(code) == WF_OK)
                fail_msg("unit %s: %s over what stays", code->g->units[segment->unit].name,
                         step.kernel->label);
            memcpy(segment->steps, kept, (size_t)segment->n_steps * sizeof *kept);
            n_refused++;
        }
    }
    return n_refused;
}

/* Ops write over what nobody reads any more: a cross entropy's gradient lies over the logits,
 * unless it has to stay for the weight gradient. The proof knows what is where. */
TEST(ops_write_over_inputs) {
    static const struct {
        const char *model, *plan;
        int n_slices, least, least_spoiled;
    } cases[] = {{"gpt2-tiny", "", 1, 14, 3},
                 {"gpt2-tiny", "", 4, 12, 4},
                 {"gpt2-tiny", "pp=2,schedule=zb1,recompute=selective", 1, 14, 0},
                 {"resnet18", "", 1, 20, 8}};
    const wf_model_config config = WF_MODEL_CONFIG_INIT;
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        scoped_program p =
            make_sliced(ctx, cases[k].model, config, cases[k].plan, 4, 4, cases[k].n_slices, "sgd");
        int n, n_spoiled, n_refused = 0, n_stay = 0;
        count_overwritten(p->code, &n, &n_spoiled);
        assert_true(n >= cases[k].least && n_spoiled >= cases[k].least_spoiled);
        for (int32_t i = 0; i < p->graph->n_nodes; i++) {
            const wfi_node *node = &p->graph->nodes[i];
            if (!strcmp(node->op->name, "cross_entropy_backward") && !p->code->splits_weight)
                assert_int_equal(p->code->place[node->out[0]].home,
                                 wfi_value_root(p->graph, node->in[0]));
        }
        for (int32_t u = 0; u < p->graph->n_units; u++)
            for (int part = 0; part < WFI_N_PARTS; part++) {
                n_refused += swap_steps(p->code, p->code->units[u].part[part]);
                n_stay += overwrite_what_stays(p->code, p->code->units[u].part[part]);
            }
        assert_true(n_refused > 20 && n_stay > 4);
        TEST_OK(ctx, wfi_code_check(p->code));
        TEST_OK(ctx, wf_program_check(p));
    }
}

/* The gradient of a large weight is added where it is summed: no segment has memory for all of it.
 */
TEST(large_gradients_are_not_kept_apart) {
    scoped_program p = make(ctx, "gpt2", "", 8, "sgd");
    size_t table_bytes = 0;
    for (int32_t v = 0; v < p->graph->n_values; v++)
        if (p->graph->values[v].kind == WFI_VALUE_PARAM &&
            wfi_value_bytes(p->graph, v) > table_bytes)
            table_bytes = wfi_value_bytes(p->graph, v);
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].name.kind == WFI_BLOCK_WORKSPACE)
            assert_true(p->blocks[b].bytes < table_bytes / 4);
}

/* Each proposal is what it says, and fits; where memory grows, what is cheaper is proposed first.
 */
TEST(proposals_fit) {
    scoped_program p = make(ctx, "gpt2-tiny", "dp=4", 4, "adamw");
    size_t peak = wf_program_rank(p, 0).peak_bytes;
    wf_proposal *found;
    int n;
    for (int share = 90; share >= 50; share -= 10) {
        size_t memory = peak / 100 * (size_t)share;
        TEST_OK(ctx, wf_program_propose(p, memory, 0, 0, &found, &n));
        if (share == 90) assert_int_equal(n, WF_MAX_PROPOSALS);
        for (int k = 0; k < n; k++) {
            scoped_program other = make(ctx, "gpt2-tiny", found[k].plan, found[k].n_micro, "adamw");
            scoped_timeline timeline;
            size_t most = highest_peak(other);
            assert_int_equal(most, found[k].peak_bytes);
            assert_true(most <= memory);
            TEST_OK(ctx, wf_program_simulate(other, NULL, &timeline));
            assert_float_equal(wf_timeline_step_us(timeline), found[k].step_us, 1e-9);
            assert_true(k == 0 || found[k - 1].step_us <= found[k].step_us);
        }
        wf_proposals_destroy(ctx, found, n);
    }
    /* What is kept on the host has to fit there. */
    for (size_t host = 0; host < 2; host++) {
        bool offloads = false;
        for (size_t share = 90; share >= 30; share -= 20) {
            TEST_OK(ctx, wf_program_propose(p, peak / 100 * share, host, 0, &found, &n));
            for (int k = 0; k < n; k++)
                offloads |= strstr(found[k].plan, "offload") && !strstr(found[k].plan, ":disk");
            wf_proposals_destroy(ctx, found, n);
        }
        assert_int_equal(offloads, host == 0);
    }
    TEST_OK(ctx, wf_program_propose(p, 1000, 0, 0, &found, &n));
    assert_int_equal(n, 0);
    TEST_OK(ctx, wf_program_propose(p, 0, 0, 0, &found, &n));
    assert_int_equal(n, WF_MAX_PROPOSALS);
    wf_proposals_destroy(ctx, found, n);
}

/* With tests of so many samples at once beside the step; 0: as many as a microbatch has. */
static wf_program *make_tested(wf_context *ctx, const char *model, const char *plan_text,
                               int64_t n_micro, int64_t n_at_once) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    if (!strcmp(model, "lstm")) config.hidden = config.embedding = 16;
    wf_program *p = make_sized(ctx, model, config, plan_text, n_micro, 4, "sgd");
    TEST_OK(ctx, wf_program_plan_tests(p, 75, n_at_once));
    TEST_REFUSED(ctx, wf_program_plan_tests(p, 75, 0), WF_INVALID_ARG, "planned once");
    return p;
}

/* No test has more samples at once than there are. */
TEST(tests_are_of_what_there_is) {
    scoped_program step = make(ctx, "gpt2-tiny", "", 4, "sgd");
    scoped_program all = make_tested(ctx, "gpt2-tiny", "", 4, 75);
    scoped_program more = make_tested(ctx, "gpt2-tiny", "", 4, 300);
    assert_true(highest_peak(all) > highest_peak(step));
    assert_int_equal(highest_peak(more), highest_peak(all));
}

/* What is proposed has room for the tests, too, of the proposal's own microbatches. */
TEST(proposals_have_room_for_tests) {
    static const struct {
        const char *model;
        int64_t n_at_once;
        bool is_larger; /* a test than a step: hidden state of tests is behind a step's memory */
    } cases[] = {{"lstm", 0, true},
                 {"lstm", 50, true},
                 {"mlp", 50, false},
                 {"gpt2-tiny", 50, true},
                 {"resnet18", 50, false}};
    for (size_t c = 0; c < WFI_COUNT(cases); c++) {
        scoped_program p = make_tested(ctx, cases[c].model, "", 4, cases[c].n_at_once);
        size_t peak = highest_peak(p);
        int n_all = 0;
        for (size_t share = 100; share >= 60; share -= 40) {
            size_t memory = peak / 100 * share;
            wf_proposal *found;
            int n;
            TEST_OK(ctx, wf_program_propose(p, memory, 0, 0, &found, &n));
            for (int k = 0; k < n; k++, n_all++) {
                scoped_program other = make_tested(ctx, cases[c].model, found[k].plan,
                                                   found[k].n_micro, cases[c].n_at_once);
                assert_int_equal(highest_peak(other), found[k].peak_bytes);
                TEST_OK(ctx, wf_program_fits(other, memory, 0, NULL, NULL));
            }
            wf_proposals_destroy(ctx, found, n);
        }
        assert_true(n_all > 0);
        TEST_REFUSED(ctx, wf_program_fits(p, peak - 1, 0, NULL, NULL), WF_DOES_NOT_FIT,
                     cases[c].is_larger ? " for tests, 1 byte more than" : "iB, 1 byte more than");
    }
}

/* Of those that have several stages a rank, too. */
TEST(schedules_are_proposed) {
    static const char *const schedules[] = {"zbv", "interleaved", "vhalf", "vmin"};
    bool seen[WFI_COUNT(schedules)] = {false};
    scoped_program p = make_images(ctx, "resnet18", "pp=2,schedule=gpipe");
    for (size_t share = 100; share >= 60; share -= 20) {
        wf_proposal *found;
        int n;
        TEST_OK(ctx, wf_program_propose(p, highest_peak(p) / 100 * share, 0, 0, &found, &n));
        for (int k = 0; k < n; k++)
            for (size_t s = 0; s < WFI_COUNT(schedules); s++)
                seen[s] |= strstr(found[k].plan, schedules[s]) != NULL;
        wf_proposals_destroy(ctx, found, n);
    }
    for (size_t s = 0; s < WFI_COUNT(schedules); s++)
        if (!seen[s]) fail_msg("nobody is told of %s", schedules[s]);
}

/* gpt2-tiny with more layers. */
static wf_program *make_layers(wf_context *ctx, const wf_proposal *by, int64_t n_layers,
                               int n_lanes, const char *optimizer) {
    wf_model_config config =
        TEST_MODEL(.hidden = 64, .n_positions = 64, .n_heads = 4, .n_layers = n_layers);
    return make_sized(ctx, "gpt", config, by->plan, by->n_micro, n_lanes, optimizer);
}

/* Each remedy is proposed to someone, and the larger model fits, too. */
TEST(remedies_and_layers) {
    static const char *const remedies[] = {"zero=1",
                                           "zero=3",
                                           "shard=2",
                                           "breadth",
                                           "recompute=selective",
                                           "recompute=all",
                                           "offload=activations",
                                           "offload=state",
                                           "offload=state+params",
                                           "offload=state:disk+params:disk"};
    bool seen[WFI_COUNT(remedies)] = {false};
    int n_larger = 0;
    static const struct {
        const char *plan, *optimizer;
        int64_t n_micro;
        int n_lanes, n_test; /* at once, which take more than a step of what is proposed; 0: none */
    } whose[] = {{"", "adamw", 8, 4, 0},
                 {"dp=4", "adamw", 8, 4, 0},
                 {"", "sgd", 1, 1, 0},
                 {"dp=4", "adamw", 8, 4, 20}};
    const wf_model_config tiny = WF_MODEL_CONFIG_INIT;
    for (size_t c = 0; c < WFI_COUNT(whose); c++) {
        scoped_program p = make_sized(ctx, "gpt2-tiny", tiny, whose[c].plan, whose[c].n_micro,
                                      whose[c].n_lanes, whose[c].optimizer);
        TEST_OK(ctx, wf_program_plan_tests(p, whose[c].n_test, whose[c].n_test));
        size_t peak = wf_program_rank(p, 0).peak_bytes;
        for (size_t share = 95; share >= 20; share -= 5) {
            size_t memory = peak / 100 * share;
            wf_proposal *found;
            int n;
            wf_status status = wf_program_fits(p, memory, 0, &found, &n);
            assert_int_equal(status, WF_DOES_NOT_FIT);
            for (int k = 0; k < n; k++)
                for (size_t r = 0; r < WFI_COUNT(remedies); r++)
                    seen[r] |= strstr(found[k].plan, remedies[r]) != NULL;
            int64_t n_layers = n ? found[0].n_layers : 0;
            assert_true(n_layers >= (n ? 2 : 0) && n_layers <= 16);
            if (n_layers > 2) {
                scoped_program larger =
                    make_layers(ctx, &found[0], n_layers, whose[c].n_lanes, whose[c].optimizer);
                TEST_OK(ctx, wf_program_plan_tests(larger, whose[c].n_test, whose[c].n_test));
                TEST_OK(ctx, wf_program_fits(larger, memory, 0, NULL, NULL));
                n_larger++;
            }
            wf_proposals_destroy(ctx, found, n);
        }
    }
    for (size_t r = 0; r < WFI_COUNT(remedies); r++)
        if (!seen[r]) fail_msg("nobody is told of %s", remedies[r]);
    assert_true(n_larger > 2);
}

/* Workspaces of a unit's forward lie at one place or two, however many microbatches there are; and
 * no more is lost than elsewhere. */
TEST(blocks_of_large_ranks_take_turns) {
    wf_model_config config = TEST_MODEL(.n_layers = 500, .hidden = 16, .n_heads = 2);
    scoped_program p = make_sized(ctx, "gpt", config, "dp=1", 8, 4, "adamw");
    assert_true(p->n_blocks > 16384);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        size_t offsets[3];
        int n = 0;
        for (int32_t b = 0; b < p->n_blocks && n < 3; b++) {
            const wfi_block *block = &p->blocks[b];
            if (block->name.kind != WFI_BLOCK_WORKSPACE || block->name.owner != u ||
                p->instructions[block->name.turn].kind != WFI_FORWARD)
                continue;
            int k = 0;
            while (k < n && offsets[k] != block->offset) k++;
            if (k == n) offsets[n++] = block->offset;
        }
        assert_true(n <= 2);
    }
    assert_true(worst_fragmentation(p) < 0.01);
}
