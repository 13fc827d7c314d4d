/* The loops of plain C, by the formulas of rules.cl. */
#include "optimizer/optimizer.h"

#include <math.h>

typedef struct ruled {
    const wfi_update *u;
    wfi_update_rule rule;
} ruled;

#define NUMBER(k) (rule.numbers[k])
#define ROOT(x)   sqrtf(x)

#define RULE(name, n_states, formula)                                                              \
    WFI_LOOP void name##_loop(const ruled *r) {                                                    \
        const wfi_update_rule rule = r->rule; /* a copy, which the stores below cannot alias */    \
        float *restrict param = r->u->param;                                                       \
        float *restrict state0 = r->u->state[0], *restrict state1 = r->u->state[1];                \
        const float *restrict gradient = r->u->gradient;                                           \
        for (size_t i = 0, n = r->u->n; i < n; i++) {                                              \
            float p = param[i], given = gradient[i];                                               \
            float first = n_states > 0 ? state0[i] : 0, second = n_states > 1 ? state1[i] : 0;     \
            formula;                                                                               \
            param[i] = p;                                                                          \
            if (n_states > 0) state0[i] = first;                                                   \
            if (n_states > 1) state1[i] = second;                                                  \
        }                                                                                          \
    }                                                                                              \
    WFI_VARIANTS(run_##name, ruled, name##_loop)

#include "optimizer/rules.cl"

void wfi_update_run(wfi_variant variant, const wfi_update *u) {
    static void (*const rules[])(wfi_variant, const ruled *) = {
        [WFI_RULE_SGD] = run_sgd,
        [WFI_RULE_MOMENTUM] = run_momentum,
        [WFI_RULE_NESTEROV] = run_nesterov,
        [WFI_RULE_ADAM] = run_adam,
    };
    const ruled r = {u, wfi_optimizer_of(u->recipe)->rule(u)};
    rules[r.rule.kind](variant, &r);
}
