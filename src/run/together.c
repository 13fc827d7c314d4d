/* A trainer among the processes of a job. */
#include "run/trainer.h"

#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

wf_status wfi_trainer_check_job(const wf_trainer *t) {
    int n_ranks = wf_plan_n_ranks(t->plan);
    if (wf_job_n_ranks(t->job) != n_ranks)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "the plan %s has %d rank%s, but %d processes have come; each takes one",
                        wf_plan_text(t->plan), n_ranks, n_ranks == 1 ? "" : "s",
                        wf_job_n_ranks(t->job));
    if (t->recipe.n_micro > WFI_CONTROL_RECORDS)
        return wfi_fail(t->ctx, WF_UNSUPPORTED, "%lld microbatches; processes take at most %d",
                        (long long)t->recipe.n_micro, WFI_CONTROL_RECORDS);
    return WF_OK;
}

uint64_t wfi_trainer_fingerprint(const wf_trainer *t) {
    const wf_program *p = t->ready[0]->program;
    const void *parts[] = {WEFT_VERSION, wfi_kernel_library(), wf_plan_text(t->plan),
                           wf_model_name(t->model)};
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (size_t k = 0; k < WFI_COUNT(parts); k++)
        for (const char *c = parts[k]; *c; c++)
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001B3);
    const uint64_t numbers[] = {(uint64_t)t->recipe.batch,     (uint64_t)t->recipe.n_micro,
                                (uint64_t)t->recipe.n_lanes,   t->recipe.seed,
                                (uint64_t)t->recipe.conv,      (uint64_t)t->recipe.optimizer,
                                (uint64_t)t->recipe.n_threads, (uint64_t)p->n_instructions,
                                (uint64_t)t->own_batch};
    for (size_t k = 0; k < WFI_COUNT(numbers); k++)
        hash = (hash ^ numbers[k]) * UINT64_C(0x100000001B3);
    for (int32_t r = 0; r < p->n_ranks; r++)
        hash = (hash ^ p->ranks[r].peak_bytes) * UINT64_C(0x100000001B3);
    double rates[] = {t->recipe.lr,        t->recipe.momentum, t->recipe.weight_decay,
                      t->recipe.beta1,     t->recipe.beta2,    t->recipe.epsilon,
                      t->recipe.clip_norm, t->recipe.lr_gamma};
    for (size_t k = 0; k < WFI_COUNT(rates); k++) {
        uint64_t bits;
        memcpy(&bits, &rates[k], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001B3);
    }
    return hash;
}

wf_status wfi_trainer_alone(wf_trainer *t, const char *what, wf_status (*act)(void *self),
                            void *self) {
    char after[WFI_CONTROL_DOING];
    if (!t->job) return act(self);
    WF_TRY(wfi_control_meet(t->job, what));
    if (wf_job_rank(t->job) == 0) {
        wf_status status = act(self);
        if (status != WF_OK) {
            wfi_failure_set(wfi_control_failure(t->job), status, wf_context_error(t->ctx));
            return status;
        }
    }
    snprintf(after, sizeof after, "go on after '%s'", what);
    return wfi_control_meet(t->job, after);
}
