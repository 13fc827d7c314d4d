/* The terms of a step and the bytes of a device, by hand, for a million parameters on links of
 * 1 GB/s: a byte takes a nanosecond.
 *
 * label: serial
 */
#include "cluster/step.h"
#include "test.h"

#include <math.h>

/* A stage of two blocks, and a last one that uses 100,000 weights of the first. */
typedef struct world {
    wf_context *ctx;
    wf_cluster cluster;
    wf_recipe recipe;
    wf_model *model;
    wfi_predictor p;
    wfi_case c;
    wfi_model_work w;
    wfi_stage_work stages[2];
    wfi_case_step s;
} world;

static void begin(world *w) {
    *w = (world){.ctx = test_context(), .recipe = WF_RECIPE_INIT};
    TEST_OK(w->ctx, wf_model_find(w->ctx, "gpt2-tiny", NULL, &w->model));
    w->cluster = (wf_cluster){.n_levels = 1,
                              .levels = {{.count = 64, .bandwidth = 1e9}},
                              .memory_bytes = 1e9,
                              .memory_bandwidth = 1e9,
                              .memory_efficiency = 1,
                              .dp_efficiency = 1,
                              .reduce_passes = 2,
                              .zero3_bandwidth = 1e16,
                              .scatters = 1,
                              .activation_slack = 1,
                              .optimizer_bytes = 48,
                              .host_bytes = 8e6,
                              .bytes[WFI_F16] = {2, 4, 12}};
    w->recipe.optimizer = WF_ADAMW, w->recipe.n_lanes = 8;
    w->p = (wfi_predictor){.ctx = w->ctx, .precision = WFI_F16};
    w->p.q.cluster = &w->cluster, w->p.q.model = w->model, w->p.q.recipe = &w->recipe;
    w->p.q.accounting = WF_ACCOUNTING_MEGATRON;
    w->c = (wfi_case){.dp = 8, .pp = 1, .tp = 1, .chunks = 1, .dp_stride = 1, .pp_stride = 1};
    w->c.shard = 8, w->c.batch = w->c.n_micro = 8, w->c.schedule = &wfi_schedule_1f1b;
    w->stages[0] = (wfi_stage_work){.n_parameters = 1e6, .n_used = 1e6, .n_blocks = 2};
    w->stages[1] = (wfi_stage_work){.n_parameters = 1e6, .n_used = 1.1e6, .input_bytes = 1e6};
    w->s = (wfi_case_step){.p = &w->p, .c = &w->c, .w = &w->w, .stages = w->stages, .n_used = 1e6};
}

static void end(world *w) {
    wf_model_destroy(w->model);
    test_context_end(w->ctx);
}

static void is_near(double value, double wanted) {
    if (fabs(value - wanted) > 1e-6 * wanted) fail_msg("%.10g, expected %.10g", value, wanted);
}

/* Gradients have 4 bytes, parameters 2; zero= makes two passes of each sum. */
TEST_WITH(world, w, replicas) {
    static const struct {
        int zero, shard;
        double us;
    } cases[] = {{0, 8, 2 * 4000 * 7 / 8.0},
                 {1, 8, 2 * 4000 * 7 / 8.0 + 2000 * 7 / 8.0},
                 {2, 4, 2 * (4000 * 3 / 4.0 + 1000) + 2000 * 3 / 4.0},
                 {3, 4, 2 * 1000},
                 {3, 8, 0}};
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        w->c.zero = cases[k].zero, w->c.shard = cases[k].shard;
        is_near(wfi_step_dp_us(&w->s), cases[k].us);
    }
    w->c.zero = 0, w->cluster.overlap_dp = 0.5;
    is_near(wfi_step_dp_us(&w->s), 3500);
    w->p.q.accounting = WF_ACCOUNTING_WEFT,
    w->s.work_us = 100; /* nothing hides more than compute */
    is_near(wfi_step_dp_us(&w->s), 6900);
    w->cluster.levels[0].latency_us = 1, w->c.bucket_bytes = 1e6; /* four sums; the last waits */
    is_near(wfi_step_dp_us(&w->s), 4 * (2 + 2000 * 7 / 8.0) - 100);
    w->c.is_serial = true;
    is_near(wfi_step_dp_us(&w->s), 4 * (2 + 2000 * 7 / 8.0));
    w->c.allreduce = &wfi_allreduce_root;
    is_near(wfi_step_dp_us(&w->s), 4 * (2 + 2000 * 7));
    w->cluster.levels[0].latency_us = 0;
    w->c.has_root = true; /* parameters and gradients of 7 ranks, and their part of the outputs */
    const wf_model_config *m = wf_model_config_of(w->model);
    is_near(wfi_step_dp_us(&w->s),
            7 * 2 * 2000 + 1e-3 * 2 * 7 / 8.0 * 4 * 8 * (double)(m->n_tokens * m->n_classes));
}

/* A block of 500,000 parameters is gathered by four replicas: forward once, backward twice. */
TEST_WITH(world, w, gathers) {
    w->c.zero = 3, w->c.shard = 4;
    w->c.n_micro = w->c.batch = 32;
    wfi_step_add_gathers(&w->s, w->stages);
    is_near(w->stages[0].gathered_us[WFI_F], 1500);
    is_near(w->stages[0].gathered_us[WFI_B], 3000);
    w->cluster.overlap_dp = 0.5, w->stages[0].us[WFI_F] = 1000;
    wfi_step_add_gathers(&w->s, w->stages);
    is_near(w->stages[0].gathered_us[WFI_F], 500 + 500);
    w->p.q.accounting = WF_ACCOUNTING_WEFT; /* prefetch=0 hides nothing */
    wfi_step_add_gathers(&w->s, w->stages);
    is_near(w->stages[0].gathered_us[WFI_F], 1500);
    w->c.prefetch = 1;
    wfi_step_add_gathers(&w->s, w->stages);
    is_near(w->stages[0].gathered_us[WFI_F], 500 + 500);
    w->c.schedule = &wfi_schedule_breadth; /* once for four microbatches */
    wfi_step_add_gathers(&w->s, w->stages);
    is_near(w->stages[0].gathered_us[WFI_B], 3000 / 4.0);
}

/* The limits of zero=3 are those of gathers between nodes. */
TEST_WITH(world, w, gathers_inside_a_node) {
    w->c.zero = 3, w->c.shard = 4, w->cluster.zero3_bandwidth = 5e8;
    w->stages[0].us[WFI_F] = 3000, w->cluster.overlap_dp = 0.2, w->cluster.overlap_zero3 = 0.5;
    wfi_step_add_gathers(&w->s, w->stages);
    is_near(w->stages[0].gathered_us[WFI_F], 0.8 * 1500);
    w->cluster.n_levels = 2, w->cluster.levels[1] = w->cluster.levels[0];
    w->cluster.levels[0].count = 2;
    wfi_step_add_gathers(&w->s, w->stages);
    is_near(w->stages[0].gathered_us[WFI_F], 0.5 * 3000);
    w->cluster.levels[0].count = 4, w->c.dp_stride = 2; /* of eight devices, every second one */
    wfi_step_add_gathers(&w->s, w->stages);
    is_near(w->stages[0].gathered_us[WFI_F], 0.5 * 3000);
}

TEST_WITH(world, w, transfers) {
    w->c.pp = 2, w->c.tp = w->c.pp_stride = w->c.dp_stride = 4;
    is_near(wfi_step_tied_us(&w->s), 400);
    is_near(wfi_step_transfer_us(&w->s), 250 + 750); /* each sends a quarter; a gather follows */
    w->c.divides_rows = true;                        /* of a model that has none */
    is_near(wfi_step_transfer_us(&w->s), 250 + 750);
    w->w.has_rows = true;
    is_near(wfi_step_transfer_us(&w->s), 250);
    w->c.divides_rows = false, w->cluster.scatters = 0;
    is_near(wfi_step_transfer_us(&w->s), 1000);
}

/* weft's update reads a gradient, and reads and writes a parameter of 6 and a state of 8 bytes. */
TEST_WITH(world, w, updates) {
    is_near(wfi_step_optimizer_us(&w->s), 48000);
    w->c.zero = 1;
    is_near(wfi_step_optimizer_us(&w->s), 6000);
    w->c.offload[WFI_OFFLOAD_STATE] = WFI_SPACE_HOST, w->cluster.host_bandwidth = 1e9;
    is_near(wfi_step_offload_us(&w->s), 2 * 12000); /* there and back; eight share the host */
    w->p.q.accounting = WF_ACCOUNTING_WEFT, w->c.zero = 0;
    is_near(wfi_step_optimizer_us(&w->s), 4000 + 2 * (6000 + 8000));
}

TEST_WITH(world, w, bytes) {
    wf_prediction x = {.n_ranks = 4};
    const wfi_model_block head = {.phase[WFI_F].flops = 1};
    const double held = 2;
    const wf_model_config *m = wf_model_config_of(w->model);
    w->stages[0].saved_bytes = 1000, w->stages[0].layer_bytes = 50, w->stages[0].end_bytes = 30;
    wfi_predict_bytes(&w->p, &w->c, &w->w, w->stages, &held, &x);
    is_near(x.peak_bytes, 18e6 + 2 * 1000 + 80);
    is_near(wfi_block_transient_bytes(&w->p, &w->c, &head),
            10.0 * (double)(m->n_tokens * m->n_classes));
    /* Of weft, a replica of two lanes has both sums of the block at hand, and the first lane's of
     * the block before it; what is complete has been updated. */
    wfi_model_block blocks[2];
    for (int k = 0; k < 2; k++)
        blocks[k] = (wfi_model_block){.n_parameters = 5e5,
                                      .n_used = 5e5,
                                      .unit_own = 5e5,
                                      .n_units = 1,
                                      .saved_bytes = 500,
                                      .unit_saved_bytes = 500,
                                      .pass[1] = {.transient = 50, .alive = 50}};
    w->w = (wfi_model_work){.kinds = blocks, .n_kinds = 2, .layer = -1}, w->stages[0].end = 2;
    x = (wf_prediction){.n_ranks = 4};
    w->p.q.accounting = WF_ACCOUNTING_WEFT, w->c.dp = 2, w->c.n_micro = w->c.batch = 4;
    w->c.offload[WFI_OFFLOAD_STATE] = WFI_SPACE_HOST;
    w->c.offload[WFI_OFFLOAD_ACTIVATIONS] = WFI_SPACE_HOST;
    wfi_predict_bytes(&w->p, &w->c, &w->w, w->stages, &held, &x);
    is_near(x.gradient_bytes, 4 * (2 * 5e5 + 5e5));
    is_near(x.buffer_bytes, 50 + 2 * 500);
    is_near(x.host_bytes, 8e6 + 2 * 500);
    is_near(x.short_by_bytes, x.host_bytes - 8e6 / 2); /* two ranks share the host */
}

/* From forward to backward a layer keeps, in widths a token: its output, two normalized inputs,
 * three of attention, its result and the sum with it, and twice four of the MLP; and mean and
 * deviation of two norms, and a number for each head. The head uses the embedding's weights. */
TEST_WITH(world, w, saves) {
    wfi_model_work *work;
    const wf_model_config *m = wf_model_config_of(w->model);
    double h = (double)m->hidden, rows = 2 * (double)m->n_tokens;
    const wfi_work_request q = {
        .cluster = &w->cluster, .model = w->model, .recipe = &w->recipe, .n_samples = 2, .tp = 1};
    TEST_OK(w->ctx, wfi_work_create(w->ctx, &q, &work));
    assert_int_equal(work->n_kinds, m->n_layers + 2);
    is_near(work->kinds[1].saved_bytes, 4 * rows * (16 * h + 4 + (double)m->n_heads));
    is_near(work->kinds[work->n_kinds - 1].n_parameters, 2 * h);
    is_near(work->kinds[work->n_kinds - 1].n_used, 2 * h + h * (double)m->n_classes);
    wfi_work_destroy(work);
}

/* Breadth-first, one stage keeps all microbatches. */
TEST_WITH(world, w, holds) {
    wfi_pipeline to;
    wfi_stage_times times = {1, 2, 0};
    for (int k = 0; k < 2; k++) {
        w->c.schedule = k ? &wfi_schedule_breadth : &wfi_schedule_1f1b, w->c.n_micro = 56;
        TEST_OK(w->ctx, wfi_pipeline_run(w->ctx, &w->c, &times, 0, 0, &to));
        is_near(to.held[0], k ? 7 : 1);
        is_near(to.makespan_us, 21);
        wfi_free(w->ctx, to.held);
    }
}

/* Neighbours are replicas in the papers' runs, stages in weft's. */
TEST_WITH(world, w, strides) {
    scoped_plan plan = test_plan(w->ctx, "dp=2,pp=2,tp=4");
    w->recipe.batch = 8;
    TEST_OK(w->ctx, wfi_case_of_plan(&w->p, plan, &w->c));
    assert_true(w->c.dp_stride == 4 && w->c.pp_stride == 8);
    w->p.q.accounting = WF_ACCOUNTING_WEFT;
    TEST_OK(w->ctx, wfi_case_of_plan(&w->p, plan, &w->c));
    assert_true(w->c.dp_stride == 8 && w->c.pp_stride == 4);
    w->recipe.n_micro = 16;
    TEST_REFUSED(w->ctx, wfi_case_of_plan(&w->p, plan, &w->c), WF_INVALID_ARG, "at most the batch");
}
