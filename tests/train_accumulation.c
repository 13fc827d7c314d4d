/* Microbatches accumulate where they are computed: a step reduces each gradient once, however
 * many microbatches it has. Without batch norm their number changes the rounding alone; batch norm
 * folds the statistics of each.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "program/change.h"
#include "small_models.h"
#include "test_program.h"

#include <math.h>

typedef struct traffic {
    size_t sent, received, reduced; /* bytes */
    size_t n_reductions;
} traffic;

static traffic traffic_of(wf_context *ctx, const char *plan_text, int64_t n_micro) {
    wf_recipe recipe = small_recipe();
    traffic sum = {0};
    recipe.n_micro = n_micro;
    recipe.n_lanes = 2;
    scoped_model model = test_model(ctx, "plain", plain_net, NULL, 0);
    scoped_program p = test_program(ctx, model, &recipe, plan_text);
    for (int r = 0; r < wf_program_n_ranks(p); r++) {
        sum.sent += wf_program_rank(p, r).sent_bytes;
        sum.received += wf_program_rank(p, r).received_bytes;
    }
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (!wfi_is_reduction(now) || now->rank) continue;
        sum.n_reductions++;
        for (int32_t k = 0; k < wfi_n_moved(p, now); k++) sum.reduced += now->references[k].bytes;
    }
    return sum;
}

TEST(one_reduction_a_step) {
    static const char *const plans[] = {"dp=2,allreduce=root", "dp=2,allreduce=direct",
                                        "dp=2,bucket=1KiB"};
    /* conv1, fc1 and fc2: each parameter begins a cache line. */
    const size_t parameters = (3 * 16 * 9 + 256 * 20 + 32 + 20 * 10 + 8 + 16) * sizeof(float);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        traffic once = traffic_of(ctx, plans[k], 2);
        assert_true(once.sent > 0 && once.n_reductions > 0);
        assert_int_equal(once.reduced, parameters);
        for (int64_t n_micro = 4; n_micro <= 16; n_micro *= 2) {
            traffic more = traffic_of(ctx, plans[k], n_micro);
            if (memcmp(&more, &once, sizeof once))
                fail_msg(
                    "%s, %d microbatches: %zu bytes sent in %zu reductions, with two %zu in %zu",
                    plans[k], (int)n_micro, more.sent, more.n_reductions, once.sent,
                    once.n_reductions);
        }
    }
}

#define N_UNEVEN 10

/* The loss of one step of all samples, and its gradients, one parameter after the other. */
static size_t gradients_of(wf_context *ctx, int64_t n_micro, double *loss_out, float *out) {
    wf_recipe recipe = SMALL_RECIPE(.batch = N_UNEVEN);
    static small_batch b;
    wf_step_result result;
    size_t n = 0;
    recipe.n_micro = n_micro;
    recipe.n_threads = 1;
    recipe.kernels = WF_KERNELS_REFERENCE;
    scoped_trainer t = small_trainer(ctx, plain_net, &recipe, 1);
    small_batch_fill(&b, 0);
    b.y[4] = -1; /* it does not count; label 0 does, which sample 0 has */
    wf_feed feeds[] = {{"x", b.x, N_UNEVEN * SMALL_IMAGE * sizeof *b.x},
                       {"y", b.y, N_UNEVEN * sizeof *b.y}};
    TEST_OK(ctx, wf_trainer_step(t, feeds, 2, N_UNEVEN, &result));
    *loss_out = result.loss;
    assert_int_equal(result.n_rows, N_UNEVEN - 1);
    const wf_graph *g = wfi_trainer_graph(t);
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != WFI_VALUE_PARAM) continue;
        size_t bytes = wfi_value_bytes(g, v);
        TEST_OK(ctx, wf_trainer_read_gradient(t, g->values[v].name, out + n, bytes));
        n += bytes / sizeof *out;
    }
    return n;
}

/* Each sample counts once and keeps its dropout mask, also where microbatches of a step differ in
 * size: 3, 3, 2 and 2 samples. Masks are drawn for elements of the global batch. */
TEST(uneven_microbatches) {
    static const int64_t numbers[] = {2, 3, 4, 7, 10};
    static float want[8000], got[8000];
    double want_loss, loss;
    size_t n = gradients_of(ctx, 1, &want_loss, want);
    assert_in_range(n, 5000, WFI_COUNT(want));
    for (size_t k = 0; k < WFI_COUNT(numbers); k++) {
        double error = 0, square = 0;
        assert_int_equal(gradients_of(ctx, numbers[k], &loss, got), n);
        for (size_t i = 0; i < n; i++) {
            error += pow((double)got[i] - (double)want[i], 2);
            square += pow((double)want[i], 2);
        }
        if (!(sqrt(error) <= 1e-6 * sqrt(square) && fabs(loss - want_loss) <= 1e-6))
            fail_msg("%lld microbatches: loss %.9g, of one %.9g; gradients differ by %.3g",
                     (long long)numbers[k], loss, want_loss, sqrt(error / square));
    }
}

/* A trainer of another seed has other weights. With the same ones it masks other elements. */
TEST(masks_follow_the_seed) {
    char sha[3][65];
    wf_trainer *t[3];
    double loss[3][2];
    for (int k = 0; k < 3; k++) {
        wf_recipe recipe = SMALL_RECIPE(.kernels = WF_KERNELS_REFERENCE, .seed = k == 2 ? 6 : 5,
                                        .lr = 0, .momentum = 0);
        t[k] = small_trainer(ctx, plain_net, &recipe, 0);
        TEST_OK(ctx, wf_trainer_weights_sha256(t[k], sha[k]));
        if (k) TEST_OK(ctx, wf_trainer_copy_weights(t[k], t[0], NULL));
        for (int i = 0; i < 2; i++) loss[k][i] = small_step(ctx, t[k], 0);
    }
    assert_string_not_equal(sha[2], sha[0]);
    assert_memory_equal(loss[1], loss[0], sizeof loss[0]);
    for (int i = 0; i < 2; i++) assert_true(loss[2][i] != loss[0][i]);
    assert_true(loss[0][0] != loss[0][1]); /* each step has its own masks */
    for (int k = 0; k < 3; k++) wf_trainer_destroy(t[k]);
}

static void norm_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    x = wf_reshape(wf_batch_norm(x, "bn"), WF_SHAPE(-1, SMALL_IMAGE));
    wf_loss(wf_cross_entropy(wf_linear(x, "fc", 10), y));
}

/* PyTorch's running statistics of channel `c` after a step: each microbatch moves them by a tenth,
 * to its mean and to its unbiased variance. */
static void running_statistics(const small_batch *b, const int64_t *sizes, int n_sizes, int c,
                               double *mean_out, double *var_out) {
    *mean_out = 0;
    *var_out = 1;
    for (int m = 0, first = 0; m < n_sizes; first += (int)sizes[m++]) {
        double sum = 0, squares = 0, n = (double)(sizes[m] * 64);
        for (int pass = 0; pass < 2; pass++)
            for (int i = first; i < first + sizes[m]; i++)
                for (int k = 0; k < 64; k++) {
                    double x = b->x[i * SMALL_IMAGE + c * 64 + k];
                    if (pass == 0) sum += x;
                    if (pass == 1) squares += pow(x - sum / n, 2);
                }
        *mean_out = 0.9 * *mean_out + 0.1 * sum / n;
        *var_out = 0.9 * *var_out + 0.1 * squares / (n - 1);
    }
}

TEST(running_statistics_of_microbatches) {
    static const int64_t sizes[] = {3, 3, 2, 2};
    wf_recipe recipe = SMALL_RECIPE(.batch = N_UNEVEN, .n_micro = WFI_COUNT(sizes),
                                    .kernels = WF_KERNELS_REFERENCE);
    static small_batch b;
    float mean[3], var[3];
    int64_t n_batches;
    wf_step_result result;
    scoped_trainer t = small_trainer(ctx, norm_net, &recipe, 0);
    small_batch_fill(&b, 0);
    wf_feed feeds[] = {{"x", b.x, N_UNEVEN * SMALL_IMAGE * sizeof *b.x},
                       {"y", b.y, N_UNEVEN * sizeof *b.y}};
    TEST_OK(ctx, wf_trainer_step(t, feeds, 2, N_UNEVEN, &result));
    TEST_OK(ctx, wf_trainer_read(t, "bn.running_mean", mean, sizeof mean));
    TEST_OK(ctx, wf_trainer_read(t, "bn.running_var", var, sizeof var));
    TEST_OK(ctx, wf_trainer_read(t, "bn.num_batches_tracked", &n_batches, sizeof n_batches));
    assert_int_equal(n_batches, WFI_COUNT(sizes));
    for (int c = 0; c < 3; c++) {
        double want_mean, want_var;
        running_statistics(&b, sizes, WFI_COUNT(sizes), c, &want_mean, &want_var);
        if (!(fabs(mean[c] - want_mean) <= 1e-6 && fabs(var[c] - want_var) <= 1e-6 * want_var))
            fail_msg("channel %d: mean %.9g, variance %.9g; expected %.9g, %.9g", c,
                     (double)mean[c], (double)var[c], want_mean, want_var);
    }
}
