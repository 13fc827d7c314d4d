/* Predictions against the formulas of the papers, and plans that cannot be predicted.
 *
 * label: serial
 */
#include "cluster/predict.h"
#include "test.h"

#include <math.h>

typedef struct shape {
    int64_t layers, hidden, heads, vocab, tokens, batch, micro;
} shape;

typedef struct run {
    wf_context *ctx;
    wf_cluster *cluster;
    wf_model *model;
    wf_plan *plan;
    wf_recipe recipe;
    wf_prediction_request q;
} run;

static run begin(const shape *s, const char *cluster, int nodes, const char *plan) {
    run r = {.ctx = test_context(), .recipe = WF_RECIPE_INIT, .q = WF_PREDICTION_REQUEST_INIT};
    wf_model_config config =
        TEST_MODEL(.n_layers = s->layers, .hidden = s->hidden, .n_heads = s->heads,
                   .n_classes = s->vocab, .n_tokens = s->tokens);
    TEST_OK(r.ctx, wf_model_find(r.ctx, "gpt", &config, &r.model));
    TEST_OK(r.ctx, wf_cluster_load(r.ctx, cluster, &r.cluster));
    TEST_OK(r.ctx, wf_cluster_set_nodes(r.cluster, nodes));
    TEST_OK(r.ctx, wf_plan_parse(r.ctx, plan, &r.plan));
    r.recipe.batch = s->batch, r.recipe.n_micro = s->batch / s->micro;
    r.recipe.optimizer = WF_ADAMW;
    r.q.cluster = r.cluster, r.q.model = r.model, r.q.plan = r.plan;
    r.q.dtype = "f16", r.q.accounting = WF_ACCOUNTING_MEGATRON;
    return r;
}

static wf_prediction predict(run *r) {
    wf_prediction p = WF_PREDICTION_INIT;
    r->q.recipe = &r->recipe;
    TEST_OK(r->ctx, wf_predict(r->ctx, &r->q, &p));
    return p;
}

static void end(run *r) {
    wf_plan_destroy(r->plan);
    wf_model_destroy(r->model);
    wf_cluster_destroy(r->cluster);
    test_context_end(r->ctx);
}

static wf_prediction predict_once(const shape *s, const char *cluster, int nodes,
                                  const char *plan) {
    run r = begin(s, cluster, nodes, plan);
    wf_prediction p = predict(&r);
    end(&r);
    return p;
}

static void near(double value, double wanted, double relative) {
    if (fabs(value / wanted - 1) > relative) fail_msg("%.10g, expected %.10g", value, wanted);
}

/* Narayanan et al., 2021: a layer's matrices are counted four times with recompute=all. */
static double paper_flops(const shape *s) {
    double l = (double)s->layers, h = (double)s->hidden, t = (double)s->tokens;
    return 96 * (double)s->batch * t * l * h * h *
           (1 + t / (6 * h) + (double)s->vocab / (16 * l * h));
}

/* Korthikanti et al., 2022: the same without recomputation. */
static double model_flops(const shape *s) {
    double l = (double)s->layers, h = (double)s->hidden, t = (double)s->tokens;
    return 72 * (double)s->batch * t * l * h * h *
           (1 + t / (6 * h) + (double)s->vocab / (12 * l * h));
}

static const shape gpt_1_7b = {24, 2304, 24, 51200, 2048, 512, 16};
static const shape gpt_76b = {60, 10240, 80, 51200, 2048, 1792, 2};
static const shape gpt_1t = {128, 25600, 160, 51200, 2048, 512, 1};

TEST_CASE(flops) {
    static const struct {
        const shape *s;
        int nodes;
        const char *plan;
    } cases[] = {
        {&gpt_1_7b, 4, "dp=32,recompute=all"},
        {&gpt_76b, 128, "dp=32,pp=4,tp=8,schedule=interleaved,chunks=3,recompute=all"},
        {&gpt_1t, 64, "pp=64,tp=8,recompute=all"},
    };
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        wf_prediction p = predict_once(cases[k].s, "dgx-a100", cases[k].nodes, cases[k].plan);
        near(p.hardware_flops, paper_flops(cases[k].s), 1e-4);
        near(p.model_flops, model_flops(cases[k].s), 1e-4);
        near(p.hfu / p.mfu, p.hardware_flops / p.model_flops, 1e-9);
        double terms = p.forward_ms + p.backward_ms + p.recompute_ms + p.tp_ms + p.bubble_ms +
                       p.pp_ms + p.dp_ms + p.optimizer_ms + p.offload_ms;
        near(p.step_ms, terms, 1e-9);
    }
}

/* Rajbhandari et al., 2020: 2 + 2 + 12 bytes, divided by N from the state on. */
TEST_CASE(zero_bytes) {
    const shape s = {36, 4096, 32, 51200, 2048, 64, 1};
    static const char *const plans[] = {"dp=64", "dp=64,zero=1", "dp=64,zero=2", "dp=64,zero=3"};
    const double each[] = {16, 4 + 12.0 / 64, 2 + 14.0 / 64, 16.0 / 64};
    for (int k = 0; k < 4; k++) {
        run r = begin(&s, "dgx-a100", 8, plans[k]);
        r.cluster->bytes[WFI_F16][WFI_BYTES_GRADIENT] = 2; /* the file has Megatron's 4 */
        wf_prediction p = predict(&r);
        near(p.parameter_bytes + p.gradient_bytes + p.state_bytes, each[k] * p.n_parameters, 1e-9);
        near(p.n_parameters, 7.5e9, 0.01);
        end(&r);
    }
}

/* Korthikanti et al., 2022: bytes of a layer, by which two models of 22 billion differ. */
TEST_CASE(activations) {
    static const struct {
        const char *plan;
        double fixed, divided, scores; /* of sbh: 10 and 24/t, 5as/(ht) */
    } cases[] = {{"dp=1", 10, 24, 8},
                 {"tp=8", 10, 24 / 8.0, 1},
                 {"tp=8,sp", 10 / 8.0, 24 / 8.0, 1},
                 {"tp=8,recompute=selective", 10, 24 / 8.0, 0},
                 {"tp=8,sp,recompute=selective", 10 / 8.0, 24 / 8.0, 0},
                 {"tp=8,recompute=all", 2, 0, 0},
                 {"tp=8,sp,recompute=all", 2 / 8.0, 0, 0}};
    shape s = {48, 6144, 64, 51200, 2048, 4, 4};
    double sbh = 2048.0 * 4 * 6144, scores = 5 * 64 * 2048.0 / 6144 / 8;
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        s.layers = 48;
        double all = predict_once(&s, "dgx-a100", 1, cases[k].plan).activation_bytes;
        s.layers = 47;
        double fewer = predict_once(&s, "dgx-a100", 1, cases[k].plan).activation_bytes;
        near(all - fewer, sbh * (cases[k].fixed + cases[k].divided + cases[k].scores * scores),
             1e-6);
    }
}

/* Where one thread draws dropout's random numbers, a layer draws them for the scores and twice for
 * the hidden values; their masks are then elements, no bytes. */
TEST_CASE(draws) {
    const shape s = {4, 256, 8, 1024, 128, 4, 1};
    run r = begin(&s, "dgx-a100", 1, "dp=1");
    wf_prediction without = predict(&r);
    r.cluster->random_per_s = 1e9;
    wf_prediction with = predict(&r);
    double drawn = 128.0 * 128 * 8 + 2 * 128.0 * 256;
    near(with.forward_ms - without.forward_ms, 4 * 4 * drawn / 1e6, 1e-6);
    near(with.activation_bytes - without.activation_bytes, 4 * drawn, 1e-6);
    end(&r);
}

/* Two nodes of four devices: links of 4 and of 1 GB/s, 1 and 10 us. */
static wf_cluster two_nodes(bool is_shared) {
    return (wf_cluster){
        .n_levels = 2,
        .levels = {{.count = 4, .bandwidth = 4e9, .latency_us = 1},
                   {.count = 2, .bandwidth = 1e9, .latency_us = 10, .is_shared = is_shared}}};
}

/* A ring moves (n - 1) / n of the bytes, and for a sum twice, over the slowest link that it
 * crosses; rings of other ranks of the node cross it, too. A send of one rank of a node has a
 * shared link alone. */
TEST_CASE(exchanges) {
    const wfi_traffic_kind sum = WFI_TRAFFIC_ALL_REDUCE, send = WFI_TRAFFIC_SEND;
    const struct {
        wfi_traffic_kind kind;
        double n, stride, us;
    } cases[] = {{sum, 4, 1, 8000 * 0.25 * 1.5 + 6},
                 {WFI_TRAFFIC_REDUCE_SCATTER, 4, 1, 8000 * 0.25 * 0.75 + 3},
                 {WFI_TRAFFIC_ALL_GATHER, 4, 1, 8000 * 0.25 * 0.75 + 3},
                 {sum, 2, 2, 8000 * 0.25 + 2},
                 {sum, 8, 1, 8000 * 1.75 + 140},
                 {sum, 2, 4, 8000 * 4 + 20},
                 {sum, 4, 2, 8000 * 2 * 1.5 + 60},
                 {send, 1, 1, 8000 * 0.25 + 1},
                 {send, 1, 4, 8000 + 10},
                 {send, 4, 4, 8000 * 4 + 10},
                 {sum, 1, 1, 0}};
    const wf_cluster shared = two_nodes(true), divided = two_nodes(false);
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        double us = wfi_traffic_us(&shared, cases[k].kind, 8e6, cases[k].n, cases[k].stride);
        if (fabs(us - cases[k].us) > 1e-6) fail_msg("case %zu: %g us", k, us);
    }
    assert_true(wfi_traffic_us(&divided, send, 8e6, 1, 4) == 8000 * 4 + 10);
}

/* The same links, 8 MB and 8 ranks. Within a node a rank has 4 GB/s; of the link between nodes it
 * has a quarter, or all of it if it sends for its node alone. */
TEST_CASE(allreduces) {
    const struct {
        const wfi_allreduce *how;
        double us;
    } cases[] = {{&wfi_allreduce_ring, 14 * (10 + 1000)},
                 {&wfi_allreduce_direct, 2 * (10 + 32000 / 2.0)},
                 {&wfi_allreduce_pairwise, 2 * (2 + 1500) + 2 * (10 + 4000)},
                 {&wfi_allreduce_tree, 4 * (1 + 2000) + 2 * (10 + 8000)},
                 {&wfi_allreduce_root, 2 * (10 + 32000)},
                 {&wfi_allreduce_auto, 2 * (2 + 1500) + 2 * (10 + 4000)},
                 {NULL, 2 * (2 + 1500) + 2 * (10 + 4000)}};
    const wf_cluster c = two_nodes(true);
    for (size_t k = 0; k < WFI_COUNT(cases); k++)
        near(wfi_allreduce_us(&c, cases[k].how, 8e6, 8, 1), cases[k].us, 1e-9);
    near(wfi_allreduce_us(&c, NULL, 8, 8, 1), 2 * (10 + 0.016), 1e-9); /* direct */
    assert_true(wfi_allreduce_us(&c, NULL, 8e6, 1, 1) == 0);
}

/* 3 tiles of 4 x 4 on 2 units: a full wave, and half of one that takes three quarters. */
TEST_CASE(products) {
    wf_cluster c = {.memory_bandwidth = 1e12,
                    .memory_efficiency = 0.5,
                    .launch_us = 5,
                    .peak_flops = {4e9, 8e9, 8e9},
                    .efficiency = 0.5,
                    .half_k = 8,
                    .units = 2,
                    .wave = 0.5,
                    .unaligned = 0.25,
                    .ragged = 0.5,
                    .tiles = {{4, 4, 1}},
                    .n_tiles = 1};
    double us = 1.75 * 2 * 4 * 4 * (8 + 8) / 2e3 * 2; /* f32, k = 8 */
    near(wfi_product_us(&c, WFI_F32, 1, 4, 12, 8), 5 + us, 1e-9);
    near(wfi_product_us(&c, WFI_F32, 3, 4, 4, 8), 5 + us, 1e-9);
    near(wfi_product_us(&c, WFI_F16, 1, 4, 12, 8), 5 + us / 2 / 0.25, 1e-9);
    near(wfi_product_us(&c, WFI_F16, 1, 8, 8, 8), 5 + us / 2 / 0.5 * 2 / 1.75, 1e-9);
    near(wfi_product_us(&c, WFI_F16, 2, 4, 8, 8), 5 + us / 2 * 2 / 1.75, 1e-9);
    c.memory_bandwidth = 1e6; /* 2 bytes an element, at half the bandwidth */
    near(wfi_product_us(&c, WFI_F16, 2, 4, 8, 8), 5 + 2 * (32 + 64 + 32) * 2 / 0.5, 1e-9);
    near(wfi_bytes_us(&c, 100), 5 + 200, 1e-9);
}

/* A pipeline's bubble is (p - 1) / (v m) of the ideal time, if stages are equal. */
TEST(bubbles) {
    const wfi_stage_times one = {1, 1, 1};
    static const struct {
        const char *schedule;
        int pp, chunks, n_micro;
    } cases[] = {{"1f1b", 8, 1, 64},        {"1f1b", 8, 1, 4096},        {"gpipe", 4, 1, 100},
                 {"interleaved", 8, 3, 64}, {"interleaved", 8, 3, 4096}, {"1f1b", 64, 1, 4096},
                 {"1f1b", 128, 1, 4096}};
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        int n = cases[k].pp * cases[k].chunks;
        wfi_stage_times times[128];
        wfi_pipeline p;
        wfi_case c = {.dp = 1,
                      .pp = cases[k].pp,
                      .tp = 1,
                      .chunks = cases[k].chunks,
                      .schedule = wfi_schedule_find(cases[k].schedule),
                      .batch = cases[k].n_micro,
                      .n_micro = cases[k].n_micro};
        for (int s = 0; s < n; s++) times[s] = one;
        TEST_OK(ctx, wfi_pipeline_run(ctx, &c, times, 0, 0, &p));
        double ideal = 3.0 * cases[k].chunks * cases[k].n_micro;
        near(p.makespan_us, ideal + 3.0 * (cases[k].pp - 1), 1e-9);
        double held = strcmp(cases[k].schedule, "gpipe") ? cases[k].pp : cases[k].n_micro;
        if (cases[k].chunks == 1) near(p.held[0], held, 1e-9);
        wfi_free(ctx, p.held);
    }
}

static void random_times(wfi_stage_times *times, int n) {
    for (int k = 0; k < n; k++)
        times[k] = (wfi_stage_times){1 + rand() % 9, 1 + rand() % 9, rand() % 9};
}

/* No pipeline is faster or keeps less than its bounds, with stages of any times. */
TEST(bounds) {
    int n_equal = 0;
    for (int k = 0; k < 6000; k++) {
        const wfi_schedule *schedule = wfi_schedules[rand() % 10];
        int pp = 2 + rand() % 7, v = schedule->any_chunks ? 2 + rand() % 3 : 0;
        wfi_case c = {.dp = 1, .pp = pp, .tp = 1, .schedule = schedule};
        wfi_stage_times times[40];
        wfi_pipeline p;
        c.batch = c.n_micro = 1 + rand() % (4 * pp), c.chunks = wfi_schedule_n_chunks(schedule, v);
        double busy = rand() % 3, hidden = rand() % 3, held[8];
        random_times(times, pp * c.chunks);
        double least = wfi_pipeline_least_us(&c, times, busy, busy + hidden);
        wfi_pipeline_least_held(&c, held);
        TEST_OK(ctx, wfi_pipeline_run(ctx, &c, times, busy, hidden, &p));
        if (least > p.makespan_us + 1e-6 || least < p.makespan_us / 8)
            fail_msg("%s, %d: %g us, at least %g", schedule->name, pp, p.makespan_us, least);
        for (int d = 0; d < pp; d++) {
            if (held[d] > p.held[d] + 1e-6)
                fail_msg("%s, device %d of %d, %d: keeps %g, at least %g", schedule->name, d, pp,
                         (int)c.n_micro, p.held[d], held[d]);
            n_equal += fabs(held[d] - p.held[d]) < 1e-3;
        }
        wfi_free(ctx, p.held);
    }
    assert_true(n_equal > 10000);
}

/* Layers, microbatches and ranks by the thousand. */
TEST_CASE(large) {
    const shape deep = {1000, 25600, 160, 51200, 2048, 16384, 1};
    wf_prediction p =
        predict_once(&deep, "dgx-a100", 2048, "dp=32,tp=8,pp=64,zero=1,recompute=all");
    assert_int_equal(p.n_ranks, 16384);
    near(p.n_parameters, 12.0 * 1000 * 25600 * 25600, 0.01);
    assert_false(p.fits);
    near(p.short_by_bytes, p.peak_bytes - p.memory_bytes, 1e-9);
}

/* As the log of BLOOM has them: 6 layers a stage; 7, and one in the last; 5, 6, ..., 6, 5. */
TEST_CASE(divisions) {
    static const struct {
        int64_t layers;
        const char *cut;
    } cases[] = {{72, "h.6+h.12+h.18+h.24+h.30+h.36+h.42+h.48+h.54+h.60+h.66"},
                 {78, "h.7+h.14+h.21+h.28+h.35+h.42+h.49+h.56+h.63+h.70+h.77"},
                 {70, "h.5+h.11+h.17+h.23+h.29+h.35+h.41+h.47+h.53+h.59+h.65"}};
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        shape s = {cases[k].layers, 14336, 64, 250880, 2048, 2048, 2};
        char plan[300];
        snprintf(plan, sizeof plan, "dp=8,pp=12,tp=4,cut=%s", cases[k].cut);
        wf_prediction given = predict_once(&s, "jean-zay", 48, plan);
        wf_prediction own = predict_once(&s, "jean-zay", 48, "dp=8,pp=12,tp=4");
        assert_true(given.step_ms == own.step_ms && given.peak_bytes == own.peak_bytes);
    }
}

/* A block gets the whole value of the one before, also where ranks along tp compute parts of it. */
TEST_CASE(inputs) {
    static const int tp[] = {1, 2, 8};
    run r = begin(&gpt_1_7b, "dgx-a100", 1, "");
    for (size_t k = 0; k < 2 * WFI_COUNT(tp); k++) {
        wfi_work_request q = {r.cluster,          r.model, &r.recipe,      1, tp[k / 2], k % 2,
                              WFI_RECOMPUTE_NONE, WFI_F16, r.q.accounting, 1};
        wfi_model_work *w;
        TEST_OK(r.ctx, wfi_work_create(r.ctx, &q, &w));
        for (int64_t i = 1; i < wfi_work_n_blocks(w); i++)
            near(wfi_work_block(w, i)->input_elements, 2048 * 2304, 1e-12);
        wfi_work_destroy(w);
    }
    end(&r);
}

/* Ranks divide a sample's tokens, but attention reads the keys and values of all. */
TEST_CASE(contexts) {
    const shape s = {24, 2304, 24, 51200, 8192, 64, 1};
    run r = begin(&s, "dgx-a100", 8, "dp=8,tp=2,zero=1");
    wf_prediction whole = predict(&r);
    r.q.n_contexts = 4;
    wf_prediction p = predict(&r);
    assert_int_equal(p.n_ranks, 4 * whole.n_ranks);
    near(p.model_flops, whole.model_flops, 1e-9);
    near(p.activation_bytes, whole.activation_bytes / 4, 1e-9);
    near(p.parameter_bytes, whole.parameter_bytes, 1e-9);
    near(p.state_bytes, whole.state_bytes / 4, 1e-9);
    wf_choice found[2] = {WF_CHOICE_INIT, WF_CHOICE_INIT}; /* a search has no such ranks */
    for (int k = 0, n; k < 2; k++) {
        r.q.n_contexts = 4 * k;
        TEST_OK(r.ctx, wf_cluster_search(r.ctx, &r.q, 1, &found[k], &n));
    }
    near(found[1].prediction.step_ms, found[0].prediction.step_ms, 0);
    wfi_level *link = &r.cluster->levels[0];
    link->bandwidth /= 2;
    double elements = 2 * 8192 * 2304 / 2.0, us = 1e6 * elements * 3 / 4 / link->bandwidth;
    near(predict(&r).forward_ms - p.forward_ms, 8 * 24 * us / 1e3, 1e-6);
    static const struct {
        int n;
        wf_accounting accounting;
        const char *why;
    } bad[] = {
        {3, WF_ACCOUNTING_MEGATRON,
         "cp 3 does not divide the 8192 tokens of a sample; use a cp that does"},
        {2048, WF_ACCOUNTING_MEGATRON, "a transformer; there can be 1024"},
        {4, WF_ACCOUNTING_WEFT, "4 context-parallel ranks need the accounting"},
        {8, WF_ACCOUNTING_MEGATRON, "the plan has 128 ranks, but cluster dgx-a100 has 64 devices"}};
    for (size_t k = 0; k < WFI_COUNT(bad); k++) {
        r.q.n_contexts = bad[k].n, r.q.accounting = bad[k].accounting;
        TEST_REFUSED(r.ctx, wf_predict(r.ctx, &r.q, &p), WF_INVALID_ARG, bad[k].why);
    }
    end(&r);
}

TEST_CASE(refused) {
    static const struct {
        const char *plan, *why;
        wf_status status;
    } cases[] = {
        {"dp=64", "the plan has 64 ranks, but cluster dgx-a100 has 32 devices", WF_INVALID_ARG},
        {"dp=3", "a multiple of dp", WF_INVALID_ARG},
        {"pp=30", "30 stages", WF_INVALID_ARG},
        {"pp=2,cut=h.99", "cut 'h.99'", WF_INVALID_ARG},
        {"pp=3,cut=h.2+h.2", "cut 'h.2' is not block 2", WF_INVALID_ARG},
        {"pp=2,schedule=auto", "schedule=auto", WF_UNSUPPORTED},
        {"recompute=auto", "recompute=auto", WF_UNSUPPORTED},
        {"tp=16", "slices", WF_INVALID_ARG},
        {"dataparallel=2,output=1", "output=", WF_UNSUPPORTED},
    };
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        run r = begin(&gpt_1_7b, "dgx-a100", 4, cases[k].plan);
        wf_prediction p = WF_PREDICTION_INIT;
        r.q.recipe = &r.recipe;
        TEST_REFUSED(r.ctx, wf_predict(r.ctx, &r.q, &p), cases[k].status, cases[k].why);
        r.cluster->peak_flops[WFI_F16] = 0; /* as where the file does not give it */
        TEST_REFUSED(r.ctx, wf_predict(r.ctx, &r.q, &p), WF_INVALID_ARG,
                     "cluster dgx-a100 has no device.peak_flops.f16");
        end(&r);
    }
}
