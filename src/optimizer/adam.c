/* Adam (Kingma and Ba, 2015), and AdamW, whose weight decay is decoupled (Loshchilov and Hutter,
 * 2019); PyTorch's formulas. */
#include "optimizer/optimizer.h"

#include <math.h>

typedef struct adam {
    const wfi_update *u;
    wfi_adam_numbers numbers;
} adam;

WFI_LOOP void step(const adam *a) {
    float *restrict param = a->u->param;
    float *restrict first = a->u->state[0], *restrict second = a->u->state[1];
    const float *restrict gradient = a->u->gradient;
    const wfi_adam_numbers r = a->numbers; /* what is stored below may not change it */
    float scale = a->u->scale;
    for (size_t i = 0, n = a->u->n; i < n; i++) {
        float p = param[i] * r.keep;
        float g = gradient[i] * scale + r.decay * p;
        first[i] = r.beta1 * first[i] + r.weight1 * g;
        second[i] = r.beta2 * second[i] + r.weight2 * g * g;
        param[i] = p - r.rate * first[i] / (sqrtf(second[i]) / r.root + r.epsilon);
    }
}

WFI_VARIANTS(run, adam, step)

static int n_states(const wf_recipe *recipe) {
    (void)recipe;
    return 2;
}

wfi_adam_numbers wfi_adam_numbers_of(const wfi_update *u) {
    const wf_recipe *r = u->recipe;
    bool decoupled = r->optimizer == WF_ADAMW;
    double correction1 = 1 - pow(r->beta1, (double)(u->step + 1));
    double correction2 = 1 - pow(r->beta2, (double)(u->step + 1));
    return (wfi_adam_numbers){.keep = decoupled ? (float)(1 - u->lr * r->weight_decay) : 1.0f,
                              .decay = decoupled ? 0.0f : (float)r->weight_decay,
                              .beta1 = (float)r->beta1,
                              .weight1 = (float)(1 - r->beta1),
                              .beta2 = (float)r->beta2,
                              .weight2 = (float)(1 - r->beta2),
                              .rate = (float)(u->lr / correction1),
                              .root = (float)sqrt(correction2),
                              .epsilon = (float)r->epsilon};
}

static void update(wfi_variant variant, const wfi_update *u) {
    run(variant, &(adam){u, wfi_adam_numbers_of(u)});
}

const wfi_optimizer wfi_optimizer_adam = {
    .states = {"first_moment", "second_moment"},
    .n_states = n_states,
    .update = update,
};
