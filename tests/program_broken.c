/* Schedules broken by hand: each is refused with the reason. They meet two walls: the check of
 * their actions, and, when that is left out, lowering, order and proof.
 *
 * label: serial
 */
#include "broken_program.h"
#include "compile/compile.h"
#include "lower/schedule.h"
#include "prove/actions.h"

#define N_STAGES     3
#define N_UNITS      4
#define N_MICRO      4
#define MOST_ACTIONS (3 * N_MICRO + 1)

static const char *const grids[] = {"", "pp=2,", "pp=3,"};

typedef struct schedule {
    wfi_action_list list[N_STAGES];
    wfi_action room[N_STAGES][MOST_ACTIONS];
} schedule;

static wf_program *begin(wf_context *ctx, const char *plan_text) {
    wf_program *p;
    wf_recipe recipe = mixed_recipe(1);
    scoped_plan plan = test_plan(ctx, plan_text);
    bool is_deep = wfi_plan_n_stages(plan, 1) > 3;
    scoped_model model = test_model(ctx, "mixed", mixed, &is_deep, is_deep);
    TEST_OK(ctx, wfi_program_begin(ctx, model, &recipe, plan, &wfi_backend_cpu, WF_PROGRAM_TRAIN,
                                   WFI_USE_RUN, NULL, &p));
    return p;
}

static void copy_schedule(const wf_program *p, const wfi_action_list *lists, schedule *out) {
    for (int s = 0; s < p->n_stages; s++) {
        out->list[s] = (wfi_action_list){out->room[s], lists[s].n};
        memcpy(out->room[s], lists[s].actions, (size_t)lists[s].n * sizeof(wfi_action));
    }
}

static int find(const wfi_action_list *list, wfi_action_kind kind, int micro) {
    for (int k = 0; k < list->n; k++)
        if (list->actions[k].kind == kind && list->actions[k].micro == micro) return k;
    return -1;
}

static void take_away(wfi_action_list *list, int at) {
    memmove(list->actions + at, list->actions + at + 1,
            (size_t)(--list->n - at) * sizeof *list->actions);
}

static void put_in(wfi_action_list *list, int at, wfi_action action) {
    memmove(list->actions + at + 1, list->actions + at,
            (size_t)(list->n++ - at) * sizeof *list->actions);
    list->actions[at] = action;
}

/* Moves what stands at `from` to before what stands at `to` < from. */
static void move_up(wfi_action_list *list, int from, int to) {
    wfi_action action = list->actions[from];
    take_away(list, from);
    put_in(list, to, action);
}

static void swap(wfi_action_list *list, int a, int b) {
    wfi_action kept = list->actions[a];
    list->actions[a] = list->actions[b];
    list->actions[b] = kept;
}

/* How a schedule is broken: at action k of the stage. False: it cannot be, there. */
typedef bool (*breaking)(wfi_action_list *list, int k);

static bool miss(wfi_action_list *list, int k) {
    take_away(list, k);
    return true;
}

static bool repeat(wfi_action_list *list, int k) {
    wfi_action again = list->actions[k];
    put_in(list, list->n, again);
    return true;
}

static bool before(wfi_action_list *list, int k, wfi_action_kind kind, wfi_action_kind earlier) {
    if (list->actions[k].kind != kind) return false;
    move_up(list, k, find(list, earlier, list->actions[k].micro));
    return true;
}

static bool weight_before_backward(wfi_action_list *list, int k) {
    return before(list, k, WFI_ACTION_W, WFI_ACTION_B);
}

static bool backward_before_forward(wfi_action_list *list, int k) {
    return before(list, k, WFI_ACTION_B, WFI_ACTION_F) ||
           before(list, k, WFI_ACTION_BW, WFI_ACTION_F);
}

/* Both gradients are there; only the order of the sum is another. */
static bool later_gradient_first(wfi_action_list *list, int k) {
    wfi_action_kind kind = list->actions[k].kind;
    if (kind != WFI_ACTION_W && kind != WFI_ACTION_BW) return false;
    int next = find(list, kind, list->actions[k].micro + 1);
    if (next < 0 || find(list, WFI_ACTION_F, list->actions[next].micro) > k) return false;
    if (kind == WFI_ACTION_W && find(list, WFI_ACTION_B, list->actions[next].micro) > k)
        return false;
    swap(list, k, next);
    return true;
}

static bool swapped(wfi_action_list *list, int k, wfi_action_kind kind) {
    if (list->actions[k].kind != kind) return false;
    int micro = list->actions[k].micro, next = find(list, kind, micro + 1);
    if (next < 0) return false;
    /* Only where the stage by itself stays legal. */
    if (kind == WFI_ACTION_B && find(list, WFI_ACTION_F, micro + 1) > k) return false;
    for (int a = k + 1; a < next; a++)
        if (list->actions[a].micro == micro) return false;
    swap(list, k, next);
    return true;
}

static bool forwards_swapped(wfi_action_list *list, int k) {
    return swapped(list, k, WFI_ACTION_F);
}

static bool backwards_swapped(wfi_action_list *list, int k) {
    return swapped(list, k, WFI_ACTION_B);
}

static bool strange_micro(wfi_action_list *list, int k) {
    list->actions[k].micro = k % 2 ? N_MICRO : -1;
    return true;
}

static bool strange_stage(wfi_action_list *list, int k) {
    list->actions[k].stage++;
    return true;
}

static bool strange_kind(wfi_action_list *list, int k) {
    wfi_action_kind kind = list->actions[k].kind;
    if (kind == WFI_ACTION_F) return false;
    list->actions[k].kind = kind == WFI_ACTION_BW ? WFI_ACTION_W : WFI_ACTION_BW;
    return true;
}

static const struct {
    const char *name;
    breaking apply;
    const char *words;        /* of the first wall; NULL: only the second can see it */
    const char *deeper_words; /* of the second wall; NULL: it is not asked */
    int first_stages;         /* on fewer stages it is no break */
} breaks[] = {
    {"an action is missing", miss, "is missing", "", 1},
    {"an action stands there twice", repeat, "is listed twice", "", 1},
    {"W before its B", weight_before_backward, "comes before its B", "", 1},
    {"B before its F", backward_before_forward, "comes before its F", "", 1},
    {"a later gradient first", later_gradient_first, "ascending order", "", 1},
    {"two F swapped on one stage", forwards_swapped, NULL, "deadlocks", 2},
    {"two B swapped on one stage", backwards_swapped, NULL, "deadlocks", 2},
    {"a strange microbatch", strange_micro, "that the step does not have", NULL, 1},
    {"another stage's action", strange_stage, "belongs to a stage of another rank", NULL, 1},
    {"an action of another kind", strange_kind, "is not an action of this schedule", NULL, 1},
};
#define N_BREAKS (sizeof breaks / sizeof *breaks)

/* One break of one schedule. */
static void refuse_schedule(wf_context *ctx, const char *plan, const wfi_action_list *lists,
                            size_t which, int stage, int k, int *n_refused) {
    wf_program *p = begin(ctx, plan);
    schedule broken;
    copy_schedule(p, lists, &broken);
    if (!breaks[which].apply(&broken.list[stage], k)) {
        wf_program_destroy(p);
        return;
    }
    const char *words = breaks[which].words, *deeper = breaks[which].deeper_words;
    wf_status status = wfi_program_check_actions(p, broken.list);
    if (words ? status != WF_BUG || !strstr(wf_context_error(ctx), words) : status != WF_OK)
        fail_msg("plan '%s', stage %d, action %d, %s: '%s' instead of '%s'", plan, stage, k,
                 breaks[which].name, wf_context_error(ctx), words ? words : "");
    if (deeper) {
        status = wfi_program_compile(p, broken.list);
        bool told = status == WF_BUG && strstr(wf_context_error(ctx), deeper) &&
                    (strstr(wf_context_error(ctx), "check: ") ||
                     strstr(wf_context_error(ctx), "deadlocks"));
        /* What is done twice may give the same twice: work is wasted, the result is right. And a
         * stage may take microbatches in another order than its neighbour where neither waits for
         * the other: values go from rank to rank in the order in which they are made. */
        bool may_be_right = breaks[which].apply == repeat || !words;
        if (!told && (status != WF_OK || !may_be_right))
            fail_msg("plan '%s', stage %d, action %d, %s: the proof says '%s'", plan, stage, k,
                     breaks[which].name, status ? wf_context_error(ctx) : "it is right");
    }
    ++*n_refused;
    wf_program_destroy(p);
}

TEST(broken_schedules) {
    int n_refused[N_BREAKS] = {0};
    for (int s = 0; wfi_schedules[s]; s++)
        for (int g = 0; g < N_STAGES; g++) {
            char plan[64];
            if ((g + 1) * wfi_schedule_n_chunks(wfi_schedules[s], 0) > N_UNITS) continue;
            snprintf(plan, sizeof plan, "%sschedule=%s", grids[g], wfi_schedules[s]->name);
            scoped_program p = begin(ctx, plan);
            wfi_action_list *lists;
            TEST_OK(ctx, wfi_program_schedule(p, &lists));
            TEST_OK(ctx, wfi_program_check_actions(p, lists));
            /* Breaks are of lists that are one stage's. */
            for (size_t which = 0; which < N_BREAKS && p->n_stages == p->n_ranks; which++)
                for (int stage = 0; stage < p->n_stages; stage++)
                    for (int k = 0; k < lists[stage].n; k++)
                        if (p->n_stages >= breaks[which].first_stages)
                            refuse_schedule(ctx, plan, lists, which, stage, k, &n_refused[which]);
            TEST_OK(ctx, wfi_program_compile(p, lists));
            wfi_schedule_free(ctx, lists, p->n_ranks);
        }
    for (size_t which = 0; which < N_BREAKS; which++)
        if (n_refused[which] < 5)
            fail_msg("%s: tried %d times only", breaks[which].name, n_refused[which]);
}
