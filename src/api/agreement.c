/* The consistency check of a job: settings that all processes must share to run one trainer. */
#include "api/trainer.h"
#include "comm/job/compare.h"
#include "recipe/fields.h"

#include <stdio.h>
#include <weft/weft.h>

wf_status wfi_trainer_check_job(const wf_trainer *t) {
    int n_ranks = wf_plan_n_ranks(t->plan);
    char replicas[64] = "";
    if (n_ranks == 1)
        snprintf(replicas, sizeof replicas, ": give --plan dp=%d for a replica on each",
                 wf_job_n_ranks(t->job));
    if (wf_job_n_ranks(t->job) != n_ranks)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "the plan %s has %d rank%s, but %d processes have joined; each takes one%s",
                        wf_plan_text(t->plan), n_ranks, n_ranks == 1 ? "" : "s",
                        wf_job_n_ranks(t->job), replicas);
    if (t->traces && wf_job_n_local_ranks(t->job) < n_ranks)
        return wfi_fail(t->ctx, WF_UNSUPPORTED,
                        "ranks on several machines cannot be traced: their clocks differ");
    if (t->recipe.n_micro > WFI_CONTROL_RECORDS)
        return wfi_fail(t->ctx, WF_UNSUPPORTED, "%lld microbatches; processes take at most %d",
                        (long long)t->recipe.n_micro, WFI_CONTROL_RECORDS);
    return WF_OK;
}

static void add_recipe(wfi_text *statement, const wf_recipe *recipe) {
    char name[64], text[WFI_RECIPE_TEXT];
    for (int k = 0; k < wfi_recipe_n_fields; k++) {
        snprintf(name, sizeof name, "recipe %s", wfi_recipe_fields[k].name);
        wfi_setting_add(statement, name, "%s",
                        wfi_recipe_text(recipe, &wfi_recipe_fields[k], text));
    }
}

/* Settings that decide which calls of the trainer are collective, and which bytes they move. */
static void add_configuration(wfi_text *statement, const wf_trainer *t) {
    const struct {
        const char *name;
        bool is_set;
    } flags[] = {{"own_batch", t->own_batch},
                 {"forward_only", t->forward_only},
                 {"keep_gradients", t->keep_gradients},
                 {"keep_undo", t->keeps_undo},
                 {"save_async", t->save_async},
                 {"trace", t->traces},
                 {"--wire nccl", wfi_control_wires_devices(t->job)}};
    for (size_t k = 0; k < WFI_COUNT(flags); k++)
        wfi_setting_add(statement, flags[k].name, "%d", flags[k].is_set);
    wfi_setting_add(statement, "shard_bytes", "%zu", t->shard_bytes);
}

/* Models of one name may have other configurations, and a library on another processor may choose
 * other kernels, which need other memory. */
static void add_program(wfi_text *statement, const wf_program *p) {
    char name[64];
    wfi_setting_add(statement, "a model whose hash is", "%016llx",
                    (unsigned long long)wfi_graph_hash(p->graph));
    wfi_setting_add(statement, "a program whose instructions are", "%d", (int)p->n_instructions);
    for (int32_t r = 0; r < p->n_ranks; r++) {
        snprintf(name, sizeof name, "a program whose bytes on rank %d are", (int)r);
        wfi_setting_add(statement, name, "%zu", p->ranks[r].arenas[WFI_SPACE_DEVICE].peak_bytes);
    }
}

static wf_status compare(const wf_trainer *t, wfi_text *statement) {
    wf_status status = wfi_control_compare(t->job, statement);
    wfi_free(t->ctx, statement->data);
    return status;
}

wf_status wfi_trainer_compare_recipe(const wf_trainer *t) {
    wfi_text statement = {.ctx = t->ctx};
    wfi_setting_add(&statement, "the library", "%s", wf_info_library(0));
    wfi_setting_add(&statement, "plan", "%s", wf_plan_text(t->plan));
    add_recipe(&statement, &t->recipe);
    if (t->recipe.dtype == WF_BF16) /* of one library on two processors */
        wfi_setting_add(&statement, "a processor on which bf16 is multiplied as", "%s",
                        wf_info_bf16());
    wfi_setting_add(&statement, "model", "%s", wf_model_name(t->model));
    add_configuration(&statement, t);
    return compare(t, &statement);
}

wf_status wfi_trainer_compare_program(const wf_trainer *t) {
    wfi_text statement = {.ctx = t->ctx};
    add_program(&statement, t->ready[0]->program);
    return compare(t, &statement);
}
