/* Predicted bytes against the exact ones of lowered programs: models with tensors much larger than
 * the alignment, under plans of all kinds.
 *
 * label: serial
 */
#include "cluster/predict.h"
#include "cluster/work.h"
#include "test.h"

#include <math.h>

typedef struct shape {
    const char *name;
    int64_t layers, hidden, heads, tokens, classes, image, batch, micro;
    double dropout;
} shape;

static const shape shapes[] = {
    {"gpt", 4, 256, 4, 128, 1024, 0, 16, 8, 0},  {"gpt", 6, 384, 6, 256, 512, 0, 32, 16, 0.1},
    {"gpt", 2, 256, 4, 128, 16384, 0, 16, 4, 0}, {"mlp", 0, 0, 0, 0, 10, 64, 256, 8, 0},
    {"lstm", 2, 512, 0, 32, 4096, 0, 64, 8, 0},  {"resnet18", 0, 0, 0, 0, 10, 64, 64, 8, 0},
};

/* The recipe as it is resolved, in 16 bits, and as a search proposes it. */
enum { OF_MODEL, NARROW, OF_SEARCH, N_RECIPES };

/* `dp` and `tp`: lanes and slices that a search proposes. */
typedef struct planned {
    const char *plan;
    int dp, tp;
} planned;

static const planned plans[] = {
    {"dp=1", 1, 1},
    {"dp=4", 4, 1},
    {"dp=8", 8, 1},
    {"dp=4,zero=1", 4, 1},
    {"dp=8,zero=2", 8, 1},
    {"dp=4,zero=3", 4, 1},
    {"dp=8,zero=3,shard=4", 8, 1},
    {"dp=4,zero=3,prefetch=3", 4, 1},
    {"dp=4,zero=3,schedule=breadth", 4, 1},
    {"dp=1,schedule=breadth", 1, 1},
    {"dp=1,recompute=all", 1, 1},
    {"dp=1,recompute=selective", 1, 1},
    {"dp=4,zero=3,recompute=all", 4, 1},
    {"tp=2", 1, 2},
    {"tp=2,sp", 1, 2},
    {"tp=2,dp=2,zero=1,sp", 2, 2},
    {"tp=2,sp,recompute=all", 1, 2},
    {"dp=1,offload=state", 1, 1},
    {"dp=1,offload=state+params", 1, 1},
    {"dp=1,offload=activations", 1, 1},
    {"dp=4,zero=3,offload=state+params", 4, 1},
    {"dataparallel=4", 4, 1},
    {"pp=2", 1, 1},
    {"pp=2,schedule=gpipe", 1, 1},
    {"pp=2,schedule=zb1", 1, 1},
    {"pp=2,recompute=all", 1, 1},
    {"dp=2,pp=2,zero=1", 2, 1},
    {"tp=2,pp=2,sp", 1, 2},
};

/* Errors of some plans, as shares of the planned bytes. */
typedef struct errors {
    double sum, least, most;
    int n;
} errors;

static void add(errors *e, double error) {
    e->sum += fabs(error);
    e->least = fmin(e->least, error);
    e->most = fmax(e->most, error);
    e->n++;
}

static wf_model *find_model(wf_context *ctx, const shape *s) {
    wf_model_config config =
        TEST_MODEL(.n_layers = s->layers, .hidden = s->hidden, .n_heads = s->heads,
                   .n_tokens = s->tokens, .n_classes = s->classes, .dropout = s->dropout);
    if (s->image) config.height = config.width = s->image;
    wf_model *model = test_find_model(ctx, s->name, &config);
    return model;
}

static wf_recipe recipe_of(const shape *s, const planned *p, int kind) {
    wf_recipe r = TEST_RECIPE(.batch = s->batch, .n_micro = s->micro, .n_threads = 1,
                              .optimizer = kind == NARROW ? WF_SGD : WF_ADAMW,
                              .dtype = kind == NARROW ? WF_BF16 : WF_F32);
    if (kind == OF_SEARCH) r.n_lanes = p->dp, r.n_slices = p->tp;
    return r;
}

/* False: the plan does not suit the model. */
static bool compare(wf_context *ctx, wf_cluster *cluster, const shape *s, const planned *p,
                    int kind, double *error_out, double *host_error_out) {
    wf_prediction_request q = WF_PREDICTION_REQUEST_INIT;
    wf_recipe recipe = recipe_of(s, p, kind);
    wf_model *model = find_model(ctx, s);
    wf_program *program;
    wf_prediction x = WF_PREDICTION_INIT;
    double peak = 0, host = 0;
    wf_plan *plan = test_plan(ctx, p->plan);
    bool suits = wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &program) == WF_OK;
    if (suits) {
        q.cluster = cluster, q.model = model, q.plan = plan, q.recipe = wf_program_recipe(program);
        TEST_OK(ctx, wf_predict(ctx, &q, &x));
        for (int r = 0; r < wf_program_n_ranks(program); r++) {
            peak = fmax(peak, (double)wf_program_rank(program, r).peak_bytes);
            host = fmax(host, (double)wf_program_rank(program, r).host_peak_bytes);
        }
        *error_out = x.peak_bytes / peak - 1;
        *host_error_out = host > 0 ? x.host_bytes / host - 1 : 0;
        if (getenv("WEFT_TEST_FULL"))
            printf("%+6.1f %% %+6.1f %% %s, recipe %d, %s\n", 100 * *error_out,
                   100 * *host_error_out, s->name, kind, p->plan);
        wf_program_destroy(program);
    }
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    return suits;
}

static void is_within(const errors *e, double mean, double least, double most, const char *of) {
    printf("%s: mean error %.1f %%, from %.1f to %.1f %%, %d programs\n", of, 100 * e->sum / e->n,
           100 * e->least, 100 * e->most, e->n);
    assert_true(e->n > 0 && e->sum / e->n <= mean && e->least >= least && e->most <= most);
}

/* Stages are balanced by whole layers in a prediction, and by parts of them in a program, so of
 * few layers the bytes of pipelines differ more. */
TEST(planned_bytes) {
    scoped_cluster cluster = NULL;
    errors all[2] = {{0}}, host = {0};
    TEST_OK(ctx, wf_cluster_load(ctx, "dgx-a100", &cluster));
    cluster->library_bytes = 0;
    int step = test_is_full() ? 1 : 3 * TEST_SAMPLE, at = 0;
    for (size_t s = 0; s < WFI_COUNT(shapes); s++)
        for (int kind = 0; kind < N_RECIPES; kind++)
            for (size_t k = 0; k < WFI_COUNT(plans); k++) {
                double error, host_error;
                if (at++ % step ||
                    !compare(ctx, cluster, &shapes[s], &plans[k], kind, &error, &host_error))
                    continue;
                add(&all[strstr(plans[k].plan, "pp=") != NULL], error);
                if (host_error != 0) add(&host, host_error);
            }
    is_within(&all[0], 0.035, -0.17, 0.22, "one stage");
    is_within(&all[1], 0.08, -0.45, 0.3, "pipelines");
    is_within(&host, 0.05, -0.06, 0.3, "host memory");
}

/* The stage of the head has the tied table and its gradient, but not its state. */
TEST(tied_state) {
    scoped_cluster cluster;
    const planned head = {"pp=2,schedule=gpipe,cut=head", 1, 1};
    double error, host_error;
    TEST_OK(ctx, wf_cluster_load(ctx, "dgx-a100", &cluster));
    cluster->library_bytes = 0;
    assert_true(compare(ctx, cluster, &shapes[2], &head, OF_SEARCH, &error, &host_error));
    if (fabs(error) > 0.05) fail_msg("%.1f %%", 100 * error);
}

static void expect_sums(const double *sums, double first, double second, double third) {
    assert_true(sums[0] == first && sums[1] == first + second);
    assert_true(sums[2] == first + second + third && sums[3] == sums[2]);
}

/* Parameters of a unit and of those that follow it, forward or backward. */
TEST(windows) {
    const shape mlp = {"mlp", .classes = 10, .image = 8};
    scoped_model model = find_model(ctx, &mlp);
    wf_recipe recipe = WF_RECIPE_INIT;
    scoped_cluster cluster;
    wfi_model_work *w;
    const wfi_model_block *net[4] = {NULL};
    int n = 1;
    TEST_OK(ctx, wf_cluster_load(ctx, "dgx-a100", &cluster));
    TEST_OK(ctx,
            wfi_work_create(
                ctx,
                &(wfi_work_request){
                    .cluster = cluster, .model = model, .recipe = &recipe, .n_samples = 1, .tp = 1},
                &w));
    for (int32_t k = 0; k < w->n_kinds; k++)
        if (w->kinds[k].n_parameters > 0 && n < 4) net[n++] = &w->kinds[k];
    assert_int_equal(n, 4);
    double n1 = net[1]->n_parameters, n2 = net[2]->n_parameters, n3 = net[3]->n_parameters;
    assert_true(n1 != n2 && n2 > n3 && n1 > n3);
    expect_sums(net[1]->pass[0].gathered, n1, n2, n3);
    expect_sums(net[2]->pass[0].gathered, n2, n3, 0);
    expect_sums(net[3]->pass[1].gathered, n3, n2, 0); /* no gradient of the input needs net1 */
    expect_sums(net[2]->pass[1].gathered, n2, 0, 0);
    expect_sums(net[3]->updated, n3, n2, n1);
    expect_sums(net[2]->updated, n2, n1, 0);
    expect_sums(w->updated, fmax(n1, n2), fmin(n1, n2), n3);
    wfi_work_destroy(w);
}
