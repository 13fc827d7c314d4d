/* A trainer among the processes of a job. */
#include "comm/job/compare.h"
#include "plan/recipe_fields.h"
#include "run/trainer.h"

#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

wf_status wfi_trainer_check_job(const wf_trainer *t) {
    int n_ranks = wf_plan_n_ranks(t->plan);
    if (wf_job_n_ranks(t->job) != n_ranks && n_ranks == 1)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "the plan %s has 1 rank, but %d processes have come; each takes one: give "
                        "--plan dp=%d for a replica on each",
                        wf_plan_text(t->plan), wf_job_n_ranks(t->job), wf_job_n_ranks(t->job));
    if (wf_job_n_ranks(t->job) != n_ranks)
        return wfi_fail(t->ctx, WF_INVALID_ARG,
                        "the plan %s has %d rank%s, but %d processes have come; each takes one",
                        wf_plan_text(t->plan), n_ranks, n_ranks == 1 ? "" : "s",
                        wf_job_n_ranks(t->job));
    if (t->traces && wf_job_n_local_ranks(t->job) < n_ranks)
        return wfi_fail(t->ctx, WF_UNSUPPORTED,
                        "ranks of several machines are not traced: their clocks are not one");
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

/* How calls of the trainer meet, and what they move. */
static void add_configuration(wfi_text *statement, const wf_trainer *t) {
    const struct {
        const char *name;
        bool is_set;
    } flags[] = {{"own_batch", t->own_batch},
                 {"forward_only", t->forward_only},
                 {"keep_gradients", t->keep_gradients},
                 {"trace", t->traces}};
    for (size_t k = 0; k < WFI_COUNT(flags); k++)
        wfi_setting_add(statement, flags[k].name, "%d", flags[k].is_set);
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
        wfi_setting_add(statement, name, "%zu", p->ranks[r].peak_bytes);
    }
}

static wf_status compare(const wf_trainer *t, wfi_text *statement) {
    wf_status status = wfi_control_compare(t->job, statement);
    wfi_free(t->ctx, statement->data);
    return status;
}

wf_status wfi_trainer_compare_recipe(const wf_trainer *t) {
    wfi_text statement;
    wfi_text_init(&statement, t->ctx);
    wfi_setting_add(&statement, "the library", "%s", wfi_backend_of(WFI_DEFAULT_DEVICE)->library());
    wfi_setting_add(&statement, "plan", "%s", wf_plan_text(t->plan));
    add_recipe(&statement, &t->recipe);
    wfi_setting_add(&statement, "model", "%s", wf_model_name(t->model));
    add_configuration(&statement, t);
    return compare(t, &statement);
}

wf_status wfi_trainer_compare_program(const wf_trainer *t) {
    wfi_text statement;
    wfi_text_init(&statement, t->ctx);
    add_program(&statement, t->ready[0]->program);
    return compare(t, &statement);
}

/* Whether ranks' memory has to be carried to whoever reads it. */
static bool is_carried(const wf_trainer *t) {
    return t->job && wfi_control_transport(t->job);
}

/* The state that files are made of, on rank 0's process. */
static wf_status collect(const wf_trainer *t) {
    const wf_program *p = t->ready[0]->program;
    for (int32_t b = 0; b < p->n_blocks && is_carried(t); b++) {
        const wfi_block *block = &p->blocks[b];
        if (!block->is_state || wfi_state_home(p, block->kind, block->id) != block) continue;
        char *data = t->workers[block->rank].base + block->offset;
        WF_TRY(wfi_control_move(t->job, block->rank, 0, data, data, block->bytes));
    }
    return is_carried(t) ? wfi_control_moved(t->job) : WF_OK;
}

/* From where rank 0's process has it, in its own memory or in a mirror, to all ranks. */
static wf_status spread(const wf_trainer *t) {
    const wf_program *p = t->ready[0]->program;
    int rank = t->job ? wf_job_rank(t->job) : 0;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        const wfi_block *home = block;
        if (block->is_state) home = wfi_state_home(p, block->kind, block->id);
        char *to = t->workers[block->rank].base + block->offset;
        const char *from = t->workers[home->rank].base + home->offset;
        if (is_carried(t) && block->is_state && block->rank != 0)
            WF_TRY(wfi_control_move(t->job, 0, block->rank, from, to, block->bytes));
        else if (home != block && rank == 0)
            memcpy(to, from, block->bytes);
    }
    return is_carried(t) ? wfi_control_moved(t->job) : WF_OK;
}

wf_status wfi_trainer_show(const wf_trainer *t, int rank, const void *data, size_t bytes) {
    if (!is_carried(t)) return WF_OK;
    for (int r = 0; r < t->n_workers; r++)
        WF_TRY(wfi_control_move(t->job, rank, r, data, (void *)(uintptr_t)data, bytes));
    return wfi_control_moved(t->job);
}

size_t wfi_trainer_shadow_bytes(const wf_trainer *t) {
    size_t bytes = 0;
    for (int r = 0; r < t->n_workers; r++) bytes += wfi_worker_shadow_bytes(&t->workers[r]);
    return bytes;
}

void wfi_trainer_forget(const wf_trainer *t) {
    for (int r = 0; r < t->n_workers; r++) wfi_worker_empty_shadow(&t->workers[r]);
}

static wf_status act_alone(wf_trainer *t, int access, wf_status (*act)(void *self), void *self) {
    bool is_first = !t->job || wf_job_rank(t->job) == 0;
    if (access & WFI_STATE_READ) WF_TRY(collect(t));
    if (is_first) WF_TRY(act(self));
    if (!(access & WFI_STATE_WRITE)) return WF_OK;
    /* The others are about to be sent something, or to hear that there is nothing. */
    return is_first || is_carried(t) ? spread(t) : WF_OK;
}

wf_status wfi_trainer_alone(wf_trainer *t, const char *what, int access,
                            wf_status (*act)(void *self), void *self) {
    char after[WFI_CONTROL_DOING];
    if (!t->job) return act_alone(t, access, act, self);
    WF_TRY(wfi_control_barrier(t->job, what));
    wf_status status = act_alone(t, access, act, self);
    if (status != WF_OK) {
        wfi_failure_set(wfi_control_failure(t->job), status, wf_context_error(t->ctx));
        return status;
    }
    snprintf(after, sizeof after, "go on after '%s'", what);
    WF_TRY(wfi_control_barrier(t->job, after));
    wfi_trainer_forget(t);
    return WF_OK;
}
