/* The optimizers against PyTorch's, step by step (golden/README.md has the cases).
 *
 * label: serial
 */
#include "golden/formula.h"
#include "kernel/update.h"
#include "optimizer/optimizer.h"
#include "test.h"

#include <math.h>

#ifndef GOLDEN_FOLDER
#define GOLDEN_FOLDER "tests/golden"
#endif

static wf_recipe make_recipe(wf_optimizer optimizer, double lr, double momentum, double decay,
                             int nesterov) {
    wf_recipe r = TEST_RECIPE(.optimizer = optimizer, .lr = lr, .momentum = momentum,
                              .nesterov = nesterov, .weight_decay = decay);
    return r;
}

/* As in golden/make_golden.py; what is 0 there is 1, or absent. */
typedef struct golden_case {
    const char *name;
    wf_recipe recipe;
    float weight, gradient; /* scales */
    double clip;            /* the norm that gradients are clipped to */
    double rates[5];        /* factors of the steps' rates */
} golden_case;

static float clip_scale(const golden_case *c, const float *gradient) {
    double sum;
    wfi_gradient_squares(wfi_best_variant(), gradient, 7, &sum);
    return c->clip > 0 ? wfi_clip_scale(c->clip, sum) : 1;
}

static void run_case(const golden_case *c, double want[5][7]) {
    float param[7], state[14] = {0}, weight = c->weight > 0 ? c->weight : 1;
    golden_fill("optimizer.weight", weight, 0, param, 7);
    for (int step = 0; step < 5; step++) {
        char key[64];
        float gradient[7];
        double lr = c->recipe.lr * (c->rates[step] > 0 ? c->rates[step] : 1);
        snprintf(key, sizeof key, "optimizer.grad.%d", step);
        golden_fill(key, c->gradient > 0 ? c->gradient : 1, 0, gradient, 7);
        wfi_optimizer_update(&c->recipe, lr, step, c->clip > 0 ? clip_scale(c, gradient) : 1, param,
                             gradient, (float *[]){state, state + 7}, 7);
        for (int k = 0; k < 7; k++)
            if (!(fabs(param[k] - want[step][k]) <= 3e-7 * (weight + fabs(want[step][k]))))
                fail_msg("%s, step %d, element %d: %.9g, PyTorch has %.9g", c->name, step, k,
                         (double)param[k], want[step][k]);
    }
}

TEST(cases) {
    const golden_case all[] = {
        {.name = "sgd_momentum", .recipe = make_recipe(WF_SGD, 0.1, 0.9, 0.01, 0)},
        {.name = "sgd_nesterov", .recipe = make_recipe(WF_SGD, 0.1, 0.9, 0, 1)},
        {.name = "adam", .recipe = make_recipe(WF_ADAM, 0.01, 0, 0, 0)},
        {.name = "adam_decay", .recipe = make_recipe(WF_ADAM, 0.01, 0, 0.01, 0)},
        {.name = "adamw", .recipe = make_recipe(WF_ADAMW, 0.01, 0, 0.01, 0)},
        {.name = "sgd_decay", .recipe = make_recipe(WF_SGD, 0.1, 0, 0.5, 0)},
        {.name = "sgd_nesterov_decay", .recipe = make_recipe(WF_SGD, 0.1, 0.9, 0.5, 1)},
        {.name = "sgd_clipped",
         .recipe = make_recipe(WF_SGD, 0.5, 0, 0, 0),
         .weight = 0x1p-20f,
         .gradient = 0x1p-16f,
         .clip = 0x1p-20},
        {.name = "adam_clipped",
         .recipe = make_recipe(WF_ADAM, 0.01, 0, 0, 0),
         .weight = 0x1p-7f,
         .clip = 1.25},
        {.name = "adam_tiny",
         .recipe = make_recipe(WF_ADAM, 0.01, 0, 0, 0),
         .weight = 0x1p-7f,
         .gradient = 0x1p-26f},
        {.name = "adamw_rates",
         .recipe = make_recipe(WF_ADAMW, 0.01, 0, 4, 0),
         .weight = 0x1p-5f,
         .rates = {0.25, 0.5, 1, 0.5, 0.125}},
    };
    scoped_safetensors file;
    TEST_OK(ctx, wf_safetensors_open(ctx, GOLDEN_FOLDER "/optimizers.safetensors", &file));
    for (size_t c = 0; c < sizeof all / sizeof *all; c++) {
        char key[64];
        double want[5][7];
        snprintf(key, sizeof key, "%s.f64", all[c].name);
        int i = wf_safetensors_find(file, key);
        assert_true(i >= 0);
        TEST_OK(ctx, wf_safetensors_read(file, i, want, sizeof want));
        run_case(&all[c], want);
    }
}

/* The weights' average beside each of them. */
TEST_CASE(averages) {
    static const struct {
        const char *name;
        wf_optimizer optimizer;
        double lr, momentum, decay, ema;
    } all[] = {{"sgd", WF_SGD, 0.1, 0.9, 0.01, 0.9},
               {"adamw", WF_ADAMW, 0.01, 0, 0.01, 0.999},
               {"short", WF_SGD, 0.1, 0, 0, 0.25}};
    FILE *golden = fopen(GOLDEN_FOLDER "/average.txt", "r");
    assert_non_null(golden);
    for (size_t c = 0; c < sizeof all / sizeof *all; c++) {
        wf_recipe recipe =
            make_recipe(all[c].optimizer, all[c].lr, all[c].momentum, all[c].decay, 0);
        recipe.ema = all[c].ema;
        float param[7], kept[WFI_MAX_STATES][7] = {{0}};
        float *average = kept[wfi_recipe_average(&recipe)];
        golden_fill("optimizer.weight", 1, 0, param, 7);
        for (int step = 0; step < 20; step++) {
            char key[64], name[16];
            float gradient[7];
            int number;
            snprintf(key, sizeof key, "optimizer.grad.%d", step);
            golden_fill(key, 1, 0, gradient, 7);
            wfi_optimizer_update(&recipe, recipe.lr, step, 1, param, gradient,
                                 (float *[]){kept[0], kept[1], kept[2]}, 7);
            assert_int_equal(fscanf(golden, "%15s %d", name, &number), 2);
            assert_true(number == step && !strcmp(name, all[c].name));
            for (int k = 0; k < 7; k++) {
                double want;
                assert_int_equal(fscanf(golden, "%lf", &want), 1);
                if (!(fabs(average[k] - want) <= 3e-7 * (1 + fabs(want))))
                    fail_msg("%s, step %d, element %d: the average is %.9g, PyTorch has %.9g", name,
                             step, k, (double)average[k], want);
            }
        }
    }
    fclose(golden);
}

/* Squares of blocks add up to the square of the whole; a tree of any length. */
TEST_CASE(norms) {
    static float gradient[5000];
    double squares[5], want = 0;
    golden_fill("gradient", 1, 0, gradient, 5000);
    wfi_gradient_squares(wfi_best_variant(), gradient, 5000, squares);
    for (int i = 0; i < 5000; i++) want += (double)gradient[i] * gradient[i];
    assert_true(fabs(wfi_tree_sum(squares, 5) - want) < 1e-9 * want);
    assert_true(wfi_tree_sum(squares, 0) == 0);
}
