/* Runs in which each process feeds only the samples that its own ranks load.
 *
 * Before the first instruction, all processes need two totals: the samples of the step, and its
 * rows that count, because these divide the loss of each sample. So the processes exchange their
 * numbers at a barrier. A process with the wrong feeds reports that here, and then no process runs.
 */
#include "api/trainer.h"
#include "program/stage.h"

#include <stdio.h>

typedef wfi_control_numbers told; /* how many samples, and rows that count; or REFUSED, status */

#define REFUSED (-1)

static bool loads(const wf_program *p, int32_t rank, int32_t input) {
    for (int32_t i = 0; i < p->n_instructions; i++)
        if (p->instructions[i].kind == WFI_LOAD && p->instructions[i].rank == rank &&
            p->instructions[i].id == input)
            return true;
    return false;
}

bool wfi_trainer_loads(const wf_trainer *t, const wf_program *p, int32_t input) {
    if (!wfi_trainer_is_part(t)) return true;
    return loads(p, wf_job_rank(t->job), input);
}

/* Which replica the rank belongs to: of the first of its stages that has as many replicas as any.
 */
static int32_t replica_on(const wf_program *p, int32_t rank, int32_t *stage_out) {
    for (int32_t s = 0; s < p->n_stages; s++) {
        int32_t replica = wfi_stage_replica_on(p, s, rank);
        *stage_out = s;
        if (replica >= 0 && p->stages[s].n_replicas == p->n_replicas) return replica;
    }
    return 0;
}

static int32_t replica_of(const wf_program *p, int32_t rank) {
    int32_t ignored;
    return replica_on(p, rank, &ignored);
}

void wf_trainer_part(const wf_trainer *t, int64_t n_samples, int64_t *first_out, int64_t *n_out) {
    const wf_program *p = t->ready[0]->program;
    *first_out = 0;
    *n_out = n_samples;
    if (!wfi_trainer_is_part(t) || t->forward_only) return;
    wf_recipe_part(&t->recipe, n_samples, p->n_replicas, replica_of(p, wf_job_rank(t->job)),
                   first_out, n_out);
}

void wfi_trainer_own_part(const wf_trainer *t, const wf_program *p, int64_t *first_out,
                          int64_t *n_out) {
    *first_out = 0;
    *n_out = p->recipe.batch;
    if (wfi_differentiates(p)) wf_trainer_part(t, p->recipe.batch, first_out, n_out);
}

/* Only one rank of a replica counts the rows: the first that loads the labels. */
static bool counts(const wf_trainer *t, const wf_program *p) {
    int32_t labels = p->graph->labels;
    int32_t rank = wf_job_rank(t->job);
    if (labels < 0 || !wfi_mesh_reports(&p->mesh, rank) || !wfi_trainer_loads(t, p, labels))
        return false;
    int32_t stage, replica = replica_on(p, rank, &stage);
    for (int32_t s = 0; s < stage; s++)
        if (loads(p, wfi_program_rank_of(p, replica, s, 0), labels)) return false;
    return true;
}

wf_status wfi_trainer_refuse_run(wf_trainer *t, wf_status given) {
    char refused[WFI_SENTENCE_BYTES];
    int ignored;
    if (!t->job) return given;
    snprintf(refused, sizeof refused, "%s", wf_context_error(t->ctx));
    (void)wfi_control_begin_run(t->job, 0, "a run that its feeds do not allow");
    (void)wfi_control_end_run(t->job, &ignored); /* the others hear of it, if it fails */
    return wfi_fail(t->ctx, given, "%s", refused);
}

/* Exchanges the numbers of all processes; all come to the same result. A process with refused feeds
 * already has its sentence. */
static wf_status tell(wf_trainer *t, wf_status given, const told own, const told **all_out) {
    char refused[WFI_SENTENCE_BYTES];
    if (given != WF_OK) snprintf(refused, sizeof refused, "%s", wf_context_error(t->ctx));
    WF_TRY(wfi_control_all_gather(t->job, "share a step's samples", own, all_out));
    if (given != WF_OK) return wfi_fail(t->ctx, given, "%s", refused);
    for (int k = 0; k < wf_job_n_ranks(t->job); k++)
        if ((*all_out)[k][0] == REFUSED)
            return wfi_fail(t->ctx, (wf_status)(*all_out)[k][1],
                            "the feeds of rank %d were refused; no rank ran", k);
    return WF_OK;
}

/* With the rows that count, of feeds that have been bound with status `given`. */
static wf_status tell_rows(wf_trainer *t, const wfi_ready *r, wf_status given, int64_t n_samples,
                           const told **all_out) {
    told own = {given == WF_OK ? n_samples : REFUSED, given};
    if (given == WF_OK && counts(t, r->program)) own[1] = wfi_count_rows(r, n_samples);
    return tell(t, given, own, all_out);
}

static int64_t sum_rows(const wf_trainer *t, const wf_program *p, int64_t n_samples,
                        const told *all) {
    int64_t n = 0;
    if (p->graph->labels < 0) return p->graph->n_rows / p->graph->batch * n_samples;
    for (int k = 0; k < wf_job_n_ranks(t->job); k++) n += all[k][1];
    return n;
}

/* All ranks of a replica say the same, and replicas have the parts of their sum. */
static wf_status add_parts(const wf_trainer *t, const wf_program *p, const told *all,
                           int64_t *n_samples_out) {
    int64_t n = 0;
    for (int32_t d = 0; d < p->n_replicas; d++) n += all[wfi_program_rank_of(p, d, 0, 0)][0];
    if (n < t->recipe.n_micro || n > t->recipe.batch)
        return wfi_fail(t->ctx, WF_SHAPE,
                        "a step of %lld samples over all ranks; the recipe's batch is %lld, in "
                        "%lld microbatches",
                        (long long)n, (long long)t->recipe.batch, (long long)t->recipe.n_micro);
    for (int32_t k = 0; k < p->n_ranks; k++) {
        int64_t first, part;
        wf_recipe_part(&t->recipe, n, p->n_replicas, replica_of(p, k), &first, &part);
        if (all[k][0] != part)
            return wfi_fail(t->ctx, WF_SHAPE,
                            "rank %d brings %lld samples to a step of %lld, of which its part is "
                            "%lld (%lld microbatches over %d replicas)",
                            k, (long long)all[k][0], (long long)n, (long long)part,
                            (long long)t->recipe.n_micro, p->n_replicas);
    }
    *n_samples_out = n;
    return WF_OK;
}

wf_status wfi_trainer_join_step(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_own,
                                int64_t *n_samples_out, int64_t *n_rows_out) {
    const told *all;
    wfi_ready *r = t->ready[0];
    wf_status given = wfi_bind_feeds(t, r, feeds, n_feeds, n_own, -1);
    WF_TRY(tell_rows(t, r, given, n_own, &all));
    WF_TRY(add_parts(t, r->program, all, n_samples_out));
    *n_rows_out = sum_rows(t, r->program, *n_samples_out, all);
    return WF_OK;
}

wf_status wfi_trainer_join_forward(wf_trainer *t, int64_t n_samples) {
    const told own = {n_samples, 0}, *all;
    WF_TRY(tell(t, WF_OK, own, &all));
    for (int k = 1; k < wf_job_n_ranks(t->job); k++)
        if (all[k][0] != all[0][0])
            return wfi_fail(t->ctx, WF_SHAPE,
                            "a forward run of %lld samples on rank 0 and of %lld on rank %d; all "
                            "ranks are given the same number",
                            (long long)all[0][0], (long long)all[k][0], k);
    return WF_OK;
}

wf_status wfi_trainer_join_rows(wf_trainer *t, const wfi_ready *r, wf_status given,
                                int64_t *n_rows_out) {
    const told *all;
    WF_TRY(tell_rows(t, r, given, r->n_samples, &all));
    *n_rows_out = sum_rows(t, r->program, r->n_samples, all);
    return WF_OK;
}

/* Where a rank passes on others' samples, a process's part would be no range of them. */
wf_status wfi_trainer_check_parts(const wf_trainer *t) {
    if (!wfi_trainer_is_part(t) || t->forward_only) return WF_OK;
    if (t->plan->lanes)
        return wfi_fail(
            t->ctx, WF_UNSUPPORTED,
            "own_batch: the plan %s gives replicas uneven shares; give each process the "
            "whole batch",
            wf_plan_text(t->plan));
    if (!wf_plan_loads_at_root(t->plan)) return WF_OK;
    return wfi_fail(t->ctx, WF_UNSUPPORTED,
                    "own_batch: under the plan %s ranks load samples of other ranks; give each "
                    "process the whole batch",
                    wf_plan_text(t->plan));
}
