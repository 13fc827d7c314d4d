/* Steps of collectives: the proof accepts those of every algorithm and strategy, staged or not, and
 * refuses what is bent: whose bytes are moved, from which member, by which staging.
 *
 * label: serial
 */
#include "broken_program.h"
#include "compile/compile.h"
#include "program/change.h"
#include "program/clock.h"
#include "prove/check.h"

/* Each member of a change, and reference k of one. */
typedef struct attempt {
    wf_program *p;
    const int32_t *members;
    int32_t n, which, k;
} attempt;

static wfi_instruction *member(const attempt *a, int32_t m) {
    return &a->p->instructions[a->members[m]];
}

static wfi_reference *piece_of(const attempt *a) {
    return &member(a, a->which)->references[a->k];
}

static bool half_of_the_staging(const attempt *a) {
    bool is_staging = a->p->blocks[piece_of(a)->block].name.kind == WFI_BLOCK_STAGING;
    if (!is_staging || !piece_of(a)->bytes) return false;
    piece_of(a)->bytes /= 2;
    return true;
}

/* The staging has room for a piece after the other. */
static bool all_staged_at_once(const attempt *a) {
    bool is_staging = a->p->blocks[piece_of(a)->block].name.kind == WFI_BLOCK_STAGING;
    bool sums_several = member(a, 0)->to == WFI_REPLICATE && a->k > 1 && piece_of(a)->bytes;
    if (!is_staging || !sums_several || a->p->plan->stages_at_once) return false;
    a->p->plan->stages_at_once = true;
    return true;
}

static bool from_the_first_member(const attempt *a) {
    bool is_copy = member(a, 0)->from == WFI_SHARD && !(member(a, 0)->references[a->k].access & 1);
    for (int32_t m = 0; m < a->n && is_copy; m++) member(a, m)->from = WFI_AT;
    return is_copy;
}

/* Whether several members have a part in the piece. */
static bool is_moved(const attempt *a) {
    int n = 0;
    for (int32_t m = 0; m < a->n; m++) n += member(a, m)->references[a->k].access != 0;
    return a->k < wfi_n_moved(a->p, member(a, 0)) && n > 1;
}

static bool other_bytes(const attempt *a) {
    if (!is_moved(a) || !piece_of(a)->access) return false;
    piece_of(a)->offset += 64;
    return true;
}

static bool half_an_element(const attempt *a) {
    if (a->k >= wfi_n_moved(a->p, member(a, 0))) return false;
    for (int32_t m = 0; m < a->n; m++) member(a, m)->references[a->k].bytes += 2;
    return true;
}

static bool without_its_owner(const attempt *a) {
    bool is_copy = member(a, 0)->from != WFI_PARTIAL;
    bool is_owner = is_copy && is_moved(a) && piece_of(a)->access == WFI_READ;
    if (is_owner) piece_of(a)->access = 0;
    return is_owner;
}

static const struct {
    const char *name;
    bool (*apply)(const attempt *a);
    const char *words;
} attempts[] = {
    {"half of the staging", half_of_the_staging, "than its staging has room for"},
    {"all is staged at once", all_staged_at_once, "than its staging has room for"},
    {"copies come from the first member", from_the_first_member, "has steps that do not copy"},
    {"a member moves other bytes", other_bytes, "moves other bytes"},
    {"half an element more", half_an_element, "4-byte elements"},
    {"nobody has a piece", without_its_owner, "that no member has"},
};
#define N_ATTEMPTS (sizeof attempts / sizeof *attempts)

static void try_change(wf_context *ctx, const char *plan, const attempt *a, int *n_refused) {
    wfi_instruction kept[8];
    wfi_reference references[8][64];
    bool at_once = a->p->plan->stages_at_once;
    assert_true(a->n <= 8 && member(a, 0)->n_references <= 64);
    for (int32_t m = 0; m < a->n; m++) {
        kept[m] = *member(a, m);
        memcpy(references[m], kept[m].references,
               (size_t)kept[m].n_references * sizeof **references);
    }
    for (size_t which = 0; which < N_ATTEMPTS; which++) {
        bool is_tried = attempts[which].apply(a);
        wf_status status = is_tried ? wfi_check_steps(a->p, a->members, a->n) : WF_OK;
        if (is_tried && (status != WF_BUG || !strstr(wf_context_error(ctx), attempts[which].words)))
            fail_msg("plan '%s', %s, piece %d: '%s' instead of '%s'", plan, attempts[which].name,
                     a->k, status ? wf_context_error(ctx) : "it is right", attempts[which].words);
        n_refused[which] += is_tried;
        a->p->plan->stages_at_once = at_once;
        for (int32_t m = 0; m < a->n; m++) {
            *member(a, m) = kept[m];
            memcpy(kept[m].references, references[m],
                   (size_t)kept[m].n_references * sizeof **references);
        }
    }
}

/* far: no kernel reaches another rank's memory. */
static wf_program *make_far_program(wf_context *ctx, const char *text, bool far, bool at_once) {
    wf_program *p;
    wf_recipe recipe = mixed_recipe(4);
    scoped_plan plan = test_plan(ctx, text);
    recipe.n_slices = plan->tp;
    plan->stages_at_once = at_once;
    plan->is_apart = far;
    scoped_model model = test_model(ctx, "mixed", mixed, NULL, 0);
    TEST_OK(ctx, wfi_program_create(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                    WFI_USE_RUN, NULL, &p));
    return p;
}

TEST(broken_steps) {
    static const char *const plans[] = {"dp=4,allreduce=root",
                                        "dp=4,allreduce=pairwise,bucket=4000",
                                        "dp=4,allreduce=tree,bucket=4000",
                                        "dp=4,allreduce=direct",
                                        "dp=4,allreduce=ring,sums=free",
                                        "dp=4,allreduce=engine,sums=free",
                                        "dp=4,zero=2,bucket=4000",
                                        "dp=4,zero=3,shard=2",
                                        "dp=2,tp=2,zero=1",
                                        "dataparallel=4"};
    int n_refused[N_ATTEMPTS] = {0};
    for (size_t k = 0; k < 4 * WFI_COUNT(plans); k++) {
        scoped_program p = make_far_program(ctx, plans[k / 4], k & 1, k & 2);
        for (int32_t at = 0, n; at < p->n_instructions; at += n) {
            attempt a = {.p = p, .members = p->order + at, .n = n = wfi_n_together(p, at)};
            const wfi_instruction *now = &p->instructions[p->order[at]];
            for (a.which = 0; a.which < n && now->kind == WFI_CHANGE; a.which++)
                for (a.k = 0; a.k < now->n_references; a.k++)
                    try_change(ctx, plans[k / 4], &a, n_refused);
        }
        TEST_OK(ctx, wf_program_check(p));
    }
    for (size_t which = 0; which < N_ATTEMPTS; which++)
        if (n_refused[which] < 20)
            fail_msg("%s: tried %d times only", attempts[which].name, n_refused[which]);
}

/* Staging in place of state that nothing else uses at that time: only its meaning tells. */
TEST(staging_over_state) {
    scoped_program p = make_far_program(ctx, "dp=4,allreduce=pairwise,bucket=4000", false, false);
    int n_lost = 0;
    for (int32_t s = 0; s < p->n_blocks; s++)
        for (int32_t b = 0; b < p->n_blocks && p->blocks[s].name.kind == WFI_BLOCK_STAGING; b++) {
            wfi_block *staging = &p->blocks[s];
            const wfi_block *state = &p->blocks[b];
            size_t kept = staging->offset;
            if (staging->rank != state->rank || !state->is_state || !state->bytes) continue;
            staging->offset = state->offset;
            assert_int_equal(wf_program_check(p), WF_BUG);
            n_lost += strstr(wf_context_error(ctx), "overwritten") != NULL ||
                      strstr(wf_context_error(ctx), "ends with another") != NULL;
            staging->offset = kept;
        }
    assert_true(n_lost > 20);
    TEST_OK(ctx, wf_program_check(p));
}
