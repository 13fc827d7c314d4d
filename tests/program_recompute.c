/* What is computed again before its backward: which activations are kept no longer, what that costs
 * and saves, which choice recompute=auto makes, and what the proof refuses.
 *
 * label: serial
 */
#include "broken_program.h"

#include "plan/costs.h"
#include "program/clock.h"
#include "program/stage.h"

#include <math.h>

typedef struct network {
    const char *name;
    wf_optimizer optimizer;
    int64_t batch, image, n_tokens;
} network;
static const network tiny = {"gpt2-tiny", WF_ADAMW, 8, 0, 64};
static const network resnet = {"resnet18", WF_SGD, 512, 32, 0};
static const network bottleneck = {"resnet50", WF_SGD, 512, 32, 0};

static wf_program *make_network(wf_context *ctx, const network *net, const char *plan_text,
                                int64_t n_micro, size_t memory_bytes) {
    wf_program *p;
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_model_config config =
        TEST_MODEL(.n_tokens = net->n_tokens, .n_classes = net->n_tokens ? 256 : 10);
    if (net->image) config.height = config.width = net->image;
    config.dropout = net->n_tokens ? 0.1 : 0;
    recipe.batch = net->batch;
    recipe.n_micro = n_micro;
    recipe.n_slices = 1;
    recipe.n_threads = 1;
    recipe.optimizer = net->optimizer;
    wf_model *model = test_find_model(ctx, net->name, &config);
    wf_plan *plan = test_plan(ctx, plan_text);
    wf_plan_use_memory(plan, memory_bytes);
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return p;
}

static size_t peak_of(const wf_program *p) {
    size_t most = 0;
    for (int r = 0; r < wf_program_n_ranks(p); r++) {
        size_t peak = wf_program_rank(p, r).peak_bytes;
        if (peak > most) most = peak;
    }
    return most;
}

static int count_kind(const wf_program *p, wfi_instruction_kind kind) {
    int n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) n += p->instructions[i].kind == kind;
    return n;
}

/* ---- what is kept ---- */

/* Each step further keeps less, at its peak, too; what is kept no more is not in a block. */
TEST(less_is_kept) {
    static const char *const ways[] = {"none", "selective", "all"};
    static const char *const grids[] = {"", "dp=2,", "pp=2,schedule=gpipe,", "pp=2,schedule=zb1,",
                                        "dp=2,pp=2,"};
    static const network *const networks[] = {&tiny, &bottleneck};
    for (size_t n = 0; n < WFI_COUNT(networks); n++)
        for (size_t g = 0; g < WFI_COUNT(grids); g++) {
            size_t peak[3] = {0, 0, 0};
            double kept[3] = {0, 0, 0};
            for (int k = 0; k < 3; k++) {
                char plan[80];
                snprintf(plan, sizeof plan, "%srecompute=%s", grids[g], ways[k]);
                scoped_program p = make_network(ctx, networks[n], plan, 4, 0);
                for (int r = 0; r < wf_program_n_ranks(p); r++)
                    peak[k] += wf_program_rank(p, r).peak_bytes;
                for (int32_t b = 0; b < p->n_blocks; b++) {
                    wfi_block_kind kind = p->blocks[b].name.kind;
                    bool is_kept = kind == WFI_BLOCK_SAVED || kind == WFI_BLOCK_SAVED_W;
                    if (is_kept) kept[k] += (double)p->blocks[b].bytes;
                }
                assert_true((count_kind(p, WFI_RECOMPUTE) > 0) == (k > 0));
            }
            if (!(peak[2] < peak[1] && peak[1] < peak[0]))
                fail_msg("%s, '%s': peaks %zu, %zu, %zu", networks[n]->name, grids[g], peak[0],
                         peak[1], peak[2]);
            if (!(kept[2] == 0 && 0 < kept[1] && kept[1] < 0.9 * kept[0]))
                fail_msg("%s, '%s': kept %.0f, %.0f, %.0f", networks[n]->name, grids[g], kept[0],
                         kept[1], kept[2]);
        }
}

/* A unit by its own name, and a group of units; the others keep theirs. */
TEST(named_units) {
    scoped_program none = make_network(ctx, &bottleneck, "", 1, 0);
    wf_program *p =
        make_network(ctx, &bottleneck, "recompute=layer2+layer1.0:selective+layer3.0.conv3", 1, 0);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        const wfi_unit_code *code = &p->code->units[u], *whole = &none->code->units[u];
        const char *name = p->graph->units[u].name;
        bool all = !strncmp(name, "layer2", 6) || !strcmp(name, "layer3.0.conv3");
        bool some = !strcmp(name, "layer1.0");
        assert_true(all    ? code->bytes[WFI_BLOCK_SAVED] == 0 && whole->bytes[WFI_BLOCK_SAVED] > 0
                    : some ? 0 < code->bytes[WFI_BLOCK_SAVED] &&
                                 code->bytes[WFI_BLOCK_SAVED] < whole->bytes[WFI_BLOCK_SAVED]
                           : code->bytes[WFI_BLOCK_SAVED] == whole->bytes[WFI_BLOCK_SAVED]);
        assert_true((code->part[WFI_PART_R] != NULL) == (all || some));
    }
    wf_program_destroy(p);
    wf_plan *plan;
    wf_recipe recipe = mixed_recipe(2);
    static const struct {
        const char *text, *sentence;
    } cases[] = {{"recompute=middle+nowhere",
                  "no unit is called 'nowhere' (position 1); the units are first, middle, late"},
                 {"dp=2,recompute=lat", "no unit is called 'lat' (position 6)"},
                 {"recompute=all+middle", "no unit is called 'all'"},
                 {"recompute=late+middle+late:selective", "names unit late twice"}};
    scoped_model model = test_model(ctx, "mixed", mixed, NULL, 0);
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        plan = test_plan(ctx, cases[k].text);
        TEST_REFUSED(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p),
                     WF_INVALID_ARG, cases[k].sentence);
        wf_plan_destroy(plan);
    }
}

/* What activation functions, norms and dropout give: not what linear layers and attention give. */
TEST(only_what_is_cheap) {
    scoped_program p = make_network(ctx, &tiny, "recompute=selective", 1, 0);
    const wf_graph *g = p->graph;
    int n = 0;
    for (int32_t k = 0; k < g->n_nodes; k++) {
        const wfi_node *node = &g->nodes[k];
        if (node->phase != WFI_R) continue;
        n++;
        assert_true(node->op->flags & WFI_OP_CHEAP);
        assert_null(strstr(node->op->name, "linear"));
    }
    /* ln_1, ln_2, gelu; and the head's ln_f */
    assert_int_equal(n, 2 * 3 + 1);
    double extra = 0, forward = 0;
    for (int32_t u = 0; u < g->n_units; u++) {
        extra += p->costs->units[u].recompute_us;
        forward += p->costs->units[u].forward_us;
    }
    assert_true(0 < extra && extra < 0.7 * forward);
}

/* With divided parameters, those that are gathered for the backward serve: nothing more moves. */
TEST(gathered_once_more) {
    static const char *const schedules[] = {"1f1b", "breadth"};
    for (int k = 0; k < 2; k++) {
        size_t sent[2];
        for (int all = 0; all < 2; all++) {
            char plan[80];
            snprintf(plan, sizeof plan, "dp=2,zero=3,schedule=%s,recompute=%s", schedules[k],
                     all ? "all" : "none");
            scoped_program p = make_network(ctx, &tiny, plan, 8, 0);
            sent[all] = wf_program_rank(p, 0).sent_bytes;
        }
        assert_int_equal(sent[0], sent[1]);
    }
}

/* ---- time ---- */

static double step_us(const wf_program *p, int *n_again, double *again_us) {
    scoped_timeline t = NULL;
    TEST_OK(p->ctx, wf_program_simulate(p, NULL, &t));
    double us = wf_timeline_step_us(t);
    *n_again = 0;
    *again_us = 0;
    for (int k = 0; k < wf_timeline_n_spans(t); k++) {
        wf_span span = wf_timeline_span(t, k);
        if (span.kind != WF_SPAN_RECOMPUTE) continue;
        assert_memory_equal(span.name, "recompute ", 10);
        assert_string_equal(span.name + 10, span.unit);
        *again_us += span.end_us - span.begin_us;
        ++*n_again;
    }
    return us;
}

TEST(time_is_counted) {
    scoped_program none = make_network(ctx, &tiny, "", 4, 0);
    scoped_program all = make_network(ctx, &tiny, "recompute=all", 4, 0);
    int n, n_all;
    double us, us_all, before = step_us(none, &n, &us), after = step_us(all, &n_all, &us_all);
    double forward = 0, again = 0;
    for (int32_t u = 0; u < all->graph->n_units; u++) {
        forward += all->costs->units[u].forward_us;
        again += all->costs->units[u].recompute_us;
    }
    assert_int_equal(n, 0);
    assert_int_equal(n_all, 4 * 3); /* the embedding keeps nothing */
    assert_float_equal(us_all, 4 * again, 1e-6 * us_all);
    assert_float_equal(after, before + us_all, 1e-3 * after);
    /* What a block ends with, a linear layer, nobody reads again. */
    assert_true(0.5 * forward < again && again < 0.9 * forward);
    /* Measured costs of a program that does nothing again: the share is this program's. */
    scoped_timeline t;
    scoped_costs costs;
    TEST_OK(ctx, wfi_costs_copy(ctx, none->costs, &costs));
    for (int32_t u = 0; u < none->graph->n_units; u++) costs->units[u].forward_us *= 2;
    TEST_OK(ctx, wf_program_simulate(all, costs, &t));
    double more = wf_timeline_step_us(t) - after;
    assert_float_equal(more, 4 * (forward + again), 1e-3 * more);
}

/* In a pipeline it begins while the gradient is still on its way. */
TEST(before_the_gradient_comes) {
    scoped_program p = make_network(ctx, &tiny, "pp=2,recompute=all", 4, 0);
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (now->kind != WFI_RECOMPUTE || now->rank != 0) continue;
        for (int32_t j = 0; j < p->n_instructions; j++) {
            const wfi_instruction *receive = &p->instructions[j];
            if (receive->kind == WFI_RECEIVE && receive->rank == 0 && receive->micro == now->micro)
                assert_false(wfi_happens_before(p, j, i) &&
                             !strcmp(p->graph->units[now->unit].name, "h.0"));
        }
    }
}

/* ---- auto ---- */

static double extra_us(const wf_program *p) {
    double us = 0;
    for (int32_t u = 0; u < p->graph->n_units; u++) us += p->costs->units[u].recompute_us;
    return us;
}

/* Against all 27 choices for the units that keep something, if these have a little less memory:
 * what blocks lose by their places nobody can know before. */
TEST(the_least_time_that_fits) {
    static const char *const units[] = {"h.0", "h.1", "head"};
    double us[27];
    size_t peak[27], least = SIZE_MAX, most = 0;
    for (int k = 0; k < 27; k++) {
        char plan[120] = "";
        for (int u = 0, digits = k; u < 3; u++, digits /= 3)
            if (digits % 3)
                snprintf(plan + strlen(plan), sizeof plan - strlen(plan), "%s%s%s",
                         *plan ? "+" : "recompute=", units[u], digits % 3 == 1 ? ":selective" : "");
        scoped_program p = make_network(ctx, &tiny, plan, 1, 0);
        us[k] = extra_us(p);
        peak[k] = peak_of(p);
        if (peak[k] < least) least = peak[k];
        if (peak[k] > most) most = peak[k];
    }
    for (int step = 0; step <= 8; step++) {
        size_t memory = least + (most - least) * (size_t)step / 8;
        double best = INFINITY;
        for (int k = 0; k < 27; k++)
            if (peak[k] <= memory - memory / 20 && us[k] < best) best = us[k];
        scoped_program p = make_network(ctx, &tiny, "recompute=auto", 1, memory);
        assert_true(peak_of(p) <= memory);
        if (extra_us(p) > best * 1.0001)
            fail_msg("%zu bytes: %s takes %g us more, the best %g", memory, wf_program_plan(p),
                     extra_us(p), best);
        scoped_plan plan;
        TEST_OK(ctx, wf_plan_parse(ctx, wf_program_plan(p), &plan)); /* it can be given */
        assert_string_equal(wf_plan_text(plan), wf_program_plan(p));
    }
}

/* Each stage for itself; nothing where there is no cap, or it is not reached; the least memory
 * where nothing fits. */
TEST(by_stage) {
    scoped_program none = make_network(ctx, &resnet, "pp=2,schedule=gpipe", 4, 0);
    scoped_program all = make_network(ctx, &resnet, "pp=2,schedule=gpipe,recompute=all", 4, 0);
    size_t first = wf_program_rank(none, 0).peak_bytes,
           second = wf_program_rank(none, 1).peak_bytes;
    size_t caps[] = {0, first, first - 1, second, 1000};
    assert_true(second < first && wf_program_rank(all, 0).peak_bytes < second);
    for (size_t k = 0; k < WFI_COUNT(caps); k++) {
        scoped_program p =
            make_network(ctx, &resnet, "pp=2,schedule=gpipe,recompute=auto", 4, caps[k]);
        for (int32_t u = 0; u < p->graph->n_units && k < 4; u++) {
            int32_t stage = wfi_program_stage_of(p, u);
            bool is_full = (stage ? second : first) > caps[k] && caps[k];
            if (!is_full) assert_true(p->costs->units[u].recompute_us == 0);
        }
        if ((extra_us(p) > 0) != (k >= 2)) fail_msg("%zu bytes: %s", caps[k], wf_program_plan(p));
        if (k == 1 || k == 2 || k == 3) {
            if (peak_of(p) > caps[k])
                fail_msg("%s: %zu of %zu bytes", wf_program_plan(p), peak_of(p), caps[k]);
        }
        if (k == 4) assert_true(peak_of(p) <= peak_of(none) && peak_of(p) <= peak_of(all));
        if (k < 2) assert_string_equal(wf_program_plan(p), "dp=1,pp=2,schedule=gpipe");
    }
}

/* ---- what the proof refuses ---- */

static wfi_node *find_copy(const wf_program *p, const char *op) {
    for (int32_t n = 0; n < p->graph->n_nodes; n++)
        if (p->graph->nodes[n].phase == WFI_R && !strcmp(p->graph->nodes[n].op->name, op))
            return &p->graph->nodes[n];
    fail_msg("no %s is computed again", op);
    return NULL;
}

TEST(another_is_refused) {
    static const char words[] = "is to be computed again, and is not the same";
    wf_program *p = make_network(ctx, &tiny, "recompute=all", 1, 0);
    wfi_node *copy = find_copy(p, "dropout"), kept = *copy;
    copy->attr.dropout.name++; /* another mask */
    TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, words);
    *copy = kept;
    copy->attr.dropout.p = 0.2;
    TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, words);
    *copy = kept;
    copy->out[0] = p->graph->nodes[copy->repeats].out[0]; /* over what was kept */
    TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, words);
    *copy = kept;
    wfi_node *other = find_copy(p, "linear");
    kept = *other;
    other->in[0] = find_copy(p, "gelu")->in[0];
    TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, words);
    *other = kept;
    TEST_OK(ctx, wf_program_check(p));
    wf_program_destroy(p);
    p = make_network(ctx, &bottleneck, "recompute=selective", 4, 0);
    copy = find_copy(p, "batch_norm"); /* folded twice, or the second time instead of the first */
    int32_t first = p->graph->stats[0].mean;
    p->graph->stats[0].mean = copy->out[1];
    TEST_REFUSED(ctx, wf_program_check(p), WF_BUG, "folds statistics that are repeated");
    p->graph->stats[0].mean = first;
    TEST_OK(ctx, wf_program_check(p));
    wf_program_destroy(p);
}

/* Of another microbatch, at another time, or not at all. */
TEST(elsewhere_is_refused) {
    scoped_program p = make_program(ctx, "recompute=all", 2);
    int n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        wfi_instruction *now = &p->instructions[i], kept = *now;
        if (now->kind != WFI_RECOMPUTE) continue;
        now->micro = (now->micro + 1) % 4;
        assert_int_equal(wf_program_check(p), WF_BUG);
        *now = kept;
        now->kind = WFI_FORWARD;
        assert_int_equal(wf_program_check(p), WF_OK); /* the same segment, by another name */
        *now = kept;
        now->segment = p->code->units[now->unit].part[WFI_PART_F];
        assert_int_equal(wf_program_check(p), WF_BUG);
        *now = kept;
        n++;
    }
    assert_int_equal(n, 4 * 3);
    TEST_OK(ctx, wf_program_check(p));
}
