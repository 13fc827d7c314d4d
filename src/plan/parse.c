/* Plans as text: "dp=2,pp=2,schedule=1f1b,cut=layer3". */
#include "plan/parse.h"
#include "plan/lanes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <weft/schedule.h>

#define MAX_TEXT 4096

wf_status wfi_plan_parse_number(const wfi_pair *pair, int low, int *out) {
    char *end = "x";
    long n = isdigit((unsigned char)*pair->value) ? strtol(pair->value, &end, 10) : -1;
    if (n < low || n > WFI_MAX_AXIS || *end)
        return wfi_pair_refuse(pair, "a whole number from %d to %d", low, WFI_MAX_AXIS);
    *out = (int)n;
    return WF_OK;
}

static wf_status parse_switch(const wfi_pair *pair, bool *is_on_out) {
    int place = wfi_word_find("off|on", pair->value, strlen(pair->value));
    if (place < 0) return wfi_pair_refuse(pair, "off or on");
    *is_on_out = place;
    return WF_OK;
}

wf_status wfi_plan_parse_schedule(wf_plan *plan, const wfi_pair *pair) {
    plan->schedule = wfi_schedule_find(pair->value);
    if (plan->schedule) return WF_OK;
    return wfi_fail_unknown(plan->ctx, WF_INVALID_ARG, wf_schedule_name, pair->value,
                            "plan: there is no schedule '%s' (position %d)", pair->value,
                            pair->position);
}

void wfi_plan_schedule_text(const wf_plan *plan, wfi_text *text) {
    wfi_text_add(text, ",schedule=%s", plan->schedule->name);
}

wf_status wfi_plan_parse_cut(wf_plan *plan, const wfi_pair *pair) {
    const char *value = pair->value;
    size_t n = strlen(value);
    if (!n || value[0] == '+' || value[n - 1] == '+' || strstr(value, "++"))
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: cut=%s at position %d names no unit; write cut=A or cut=A+B", value,
                        pair->position);
    plan->cut = wfi_strdup(plan->ctx, pair->value);
    return plan->cut ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_plan_parse_zero(wf_plan *plan, const wfi_pair *pair) {
    int place = wfi_word_find("1|2|3", pair->value, strlen(pair->value));
    if (place < 0)
        return wfi_pair_refuse(pair, "1 (optimizer state is divided), 2 (gradients, too) or 3 "
                                     "(parameters, too)");
    plan->strategy = wfi_zero_strategies[place];
    return WF_OK;
}

void wfi_plan_zero_text(const wf_plan *plan, wfi_text *text) {
    if (plan->strategy != &wfi_strategy_dp) wfi_text_add(text, ",%s", plan->strategy->name);
}

#define AT_WORKERS "@workers"

wf_status wfi_plan_parse_ps(wf_plan *plan, const wfi_pair *pair) {
    char digits[16];
    size_t n = strcspn(pair->value, "@");
    plan->serves_at_workers = !strcasecmp(pair->value + n, AT_WORKERS);
    if (pair->value[n] && !plan->serves_at_workers)
        return wfi_pair_refuse(pair, "a number of parameter servers, such as 2 (on ranks of their "
                                     "own) or 2" AT_WORKERS);
    snprintf(digits, sizeof digits, "%.*s", (int)n, pair->value);
    wfi_pair number = *pair;
    number.value = digits;
    return wfi_plan_parse_number(&number, 1, &plan->n_servers);
}

void wfi_plan_ps_text(const wf_plan *plan, wfi_text *text) {
    if (plan->n_servers)
        wfi_text_add(text, ",ps=%d%s", plan->n_servers, plan->serves_at_workers ? AT_WORKERS : "");
}

/* ---- the table ---- */

typedef struct row {
    const char *name;
    enum { NUMBER, SWITCH, WORDS, OTHER } kind;
    size_t offset; /* of the member; OTHER: 0 */
    wf_status (*parse)(wf_plan *plan, const wfi_pair *pair);
    void (*text)(const wf_plan *plan, wfi_text *text);
    int least, value;
    const char *otherwise, *alone;
} row;

#define ROW_NUMBER(member) NUMBER, offsetof(wf_plan, member), NULL, NULL
#define ROW_SWITCH(member) SWITCH, offsetof(wf_plan, member), NULL, NULL
#define ROW_WORDS(member)  WORDS, offsetof(wf_plan, member), wfi_plan_parse_##member, NULL
#define ROW_OTHER(member)  OTHER, 0, wfi_plan_parse_##member, wfi_plan_##member##_text

static const row rows[WFI_N_PLAN_KEYS] = {
#define ROW(key, name, kind, member, least, value, has_effect, otherwise, alone)                   \
    {name, ROW_##kind(member), least, value, otherwise, alone},
    WF_PLAN_FIELDS(ROW)
#undef ROW
};

static bool has_effect(const wf_plan *plan, int key) {
    switch ((wfi_plan_key)key) {
#define ROW(key, name, kind, member, least, value, has_effect, otherwise, alone)                   \
    case WFI_PLAN_##key:                                                                           \
        return has_effect;
        WF_PLAN_FIELDS(ROW)
#undef ROW
    case WFI_N_PLAN_KEYS:
        break;
    }
    return true;
}

static void set_defaults(wf_plan *plan) {
    for (int k = 0; k < WFI_N_PLAN_KEYS; k++) {
        char *member = (char *)plan + rows[k].offset;
        if (rows[k].kind == NUMBER) *(int *)member = rows[k].value;
        if (rows[k].kind == SWITCH) *(bool *)member = rows[k].value;
    }
    plan->schedule = &wfi_schedule_1f1b;
    plan->strategy = &wfi_strategy_dp;
    wfi_plan_default_axes(plan);
    wfi_plan_default_reduction(plan);
}

static wf_status parse_value(wf_plan *plan, const row *r, const wfi_pair *pair) {
    char *member = (char *)plan + r->offset;
    switch (r->kind) {
    case NUMBER:
        return wfi_plan_parse_number(pair, r->least, (int *)member);
    case SWITCH:
        return parse_switch(pair, (bool *)member);
    case WORDS:
    case OTHER:
        break;
    }
    return r->parse(plan, pair);
}

/* Adds ",key=value" if the value is not the default. */
static void add_field(const wf_plan *plan, const row *r, wfi_text *text) {
    const char *member = (const char *)plan + r->offset;
    switch (r->kind) {
    case NUMBER:
        if (*(const int *)member != r->value)
            wfi_text_add(text, ",%s=%d", r->name, *(const int *)member);
        break;
    case SWITCH:
        if (*(const bool *)member != r->value)
            wfi_text_add(text, ",%s%s", r->name, r->value ? "=off" : "");
        break;
    case WORDS:
        if (*(char *const *)member) wfi_text_add(text, ",%s=%s", r->name, *(char *const *)member);
        break;
    case OTHER:
        r->text(plan, text);
        break;
    }
}

/* ---- the text ---- */

const char *wf_plan_key(int i) {
    return i >= 0 && i < WFI_N_PLAN_KEYS ? rows[i].name : NULL;
}

/* Also those of strategies. */
static const char *any_key(int i) {
    static const char *const strategies[] = {"UNIT:dp", "dataparallel", "UNIT:dataparallel"};
    int k = i - WFI_N_PLAN_KEYS;
    return k < 0 ? wf_plan_key(i) : k < (int)WFI_COUNT(strategies) ? strategies[k] : NULL;
}

typedef struct reading {
    wf_plan *plan;
    bool in_order; /* the previous word belongs to order= */
} reading;

static int find_key(const char *name) {
    int k = 0;
    while (k < WFI_N_PLAN_KEYS && strcasecmp(rows[k].name, name)) k++;
    return k;
}

static wf_status take_field(wf_plan *plan, const wfi_pair *pair, int key) {
    if (plan->position[key]) return wfi_pair_is_second(pair);
    plan->position[key] = pair->position;
    return parse_value(plan, &rows[key], pair);
}

/* A word of order=, which older texts have for sums= and axes=: "order=free,dp,pp". */
static wf_status take_order(wf_plan *plan, wfi_pair pair) {
    bool is_sums = wfi_plan_is_sums(pair.value), is_first = pair.key != pair.value;
    plan->has_order = true;
    pair.key = is_sums ? "sums" : "axes";
    if (is_sums) return take_field(plan, &pair, WFI_PLAN_SUMS);
    if (is_first && plan->position[WFI_PLAN_AXES]) return wfi_pair_is_second(&pair);
    if (!plan->position[WFI_PLAN_AXES]) wfi_plan_default_axes(plan);
    plan->position[WFI_PLAN_AXES] = pair.position;
    return wfi_plan_name_axis(plan, &pair, pair.value, strlen(pair.value));
}

static wf_status take_pair(void *self, const wfi_pair *pair) {
    reading *r = self;
    wfi_pair p = *pair;
    int key = find_key(pair->key);
    bool is_found, is_switch = key < WFI_N_PLAN_KEYS && rows[key].kind == SWITCH;
    if (!p.value) p.value = is_switch ? "on" : p.key;
    if (pair->value) r->in_order = !strcasecmp(p.key, "order");
    if (r->in_order && !is_switch) return take_order(r->plan, p);
    if (!pair->value && !is_switch) return wfi_pair_has_no_value(pair);
    if (key < WFI_N_PLAN_KEYS) return take_field(r->plan, &p, key);
    WF_TRY(wfi_plan_parse_rule(r->plan, &p, &is_found));
    return is_found ? WF_OK : wfi_pair_is_unknown(&p, any_key);
}

/* Whether runs of so many replicas can sum gradients alone, and then with each other, in the order
 * of one rank. */
static bool may_shard(const wf_plan *plan, int n) {
    return plan->dp % n == 0 && wfi_lanes_allow(plan->dp, plan->dp / n);
}

static wf_status check_shard(const wf_plan *plan) {
    wfi_text numbers = {.ctx = plan->ctx};
    if (!plan->shard || may_shard(plan, plan->shard)) return WF_OK;
    for (int n = 1; n < plan->dp; n++)
        if (may_shard(plan, n)) wfi_text_add(&numbers, "%s%d", n > 1 ? ", " : "", n);
    wfi_text_add(&numbers, "%s%d", plan->dp > 1 ? " or " : "", plan->dp);
    wf_status status = wfi_text_status(&numbers);
    if (status == WF_OK)
        status = wfi_fail(plan->ctx, WF_INVALID_ARG,
                          "plan: shard=%d at position %d: groups of that many of the dp=%d "
                          "replicas cannot sum in one rank's order; it takes %s",
                          plan->shard, plan->position[WFI_PLAN_SHARD], plan->dp, numbers.data);
    wfi_free(plan->ctx, numbers.data);
    return status;
}

static wf_status check_chunks(const wf_plan *plan) {
    const char *refuses =
        plan->chunks ? wfi_schedule_refuses_chunks(plan->schedule, plan->chunks) : NULL;
    if (!refuses) return WF_OK;
    return wfi_fail(
        plan->ctx, WF_INVALID_ARG,
        "plan: chunks=%d does not go with schedule=%s: %s; interleaved and auto take any number",
        plan->chunks, plan->schedule->name, refuses);
}

/* The text of a key with a value other than the default, without a comma; else "". The caller frees
 * it.
 */
static wf_status field_text(const wf_plan *plan, int key, char **text_out) {
    wfi_text text = {.ctx = plan->ctx};
    add_field(plan, &rows[key], &text);
    *text_out = text.data;
    return wfi_text_status(&text);
}

static wf_status check_field(const wf_plan *plan, int key) {
    char *text;
    bool is_refused = plan->n_rules && plan->position[key] && *rows[key].alone;
    if (!is_refused && has_effect(plan, key)) return WF_OK;
    WF_TRY(field_text(plan, key, &text));
    wf_status status =
        !text ? WF_OK
        : is_refused
            ? wfi_plan_refuse_with_rules(plan, (wfi_plan_key)key, rows[key].alone)
            : wfi_fail(plan->ctx, WF_INVALID_ARG, "plan: %s %s", text + 1, rows[key].otherwise);
    wfi_free(plan->ctx, text);
    return status;
}

static wf_status check(wf_plan *plan) {
    for (int k = 0; k < WFI_N_PLAN_KEYS; k++) WF_TRY(check_field(plan, k));
    WF_TRY(wfi_plan_check_rules(plan));
    WF_TRY(check_chunks(plan));
    WF_TRY(wfi_plan_check_lanes(plan));
    WF_TRY(check_shard(plan));
    if (plan->shard == plan->dp) plan->shard = 0;
    return wfi_plan_check_reduction(plan);
}

static wf_status complete_text(wf_plan *plan) {
    wfi_text text = {.ctx = plan->ctx};
    if (plan->n_rules)
        wfi_plan_rules_text(plan, &text);
    else
        wfi_text_add(&text, "dp=%d,pp=%d,schedule=%s", plan->dp, plan->pp, plan->schedule->name);
    for (int k = WFI_PLAN_SCHEDULE + 1; k < WFI_N_PLAN_KEYS; k++) add_field(plan, &rows[k], &text);
    wfi_free(plan->ctx, plan->text);
    plan->text = text.data;
    return wfi_text_status(&text);
}

wf_status wfi_plan_complete(wf_plan *plan) {
    double n_ranks = 1;
    for (int a = 0; a < WFI_N_AXES; a++) n_ranks *= plan->size[a];
    if (n_ranks > WFI_MOST_RANKS)
        return wfi_fail(plan->ctx, WF_INVALID_ARG, "plan: %.0f ranks; a plan has at most %d",
                        n_ranks, WFI_MOST_RANKS);
    WF_TRY(check(plan));
    return complete_text(plan);
}

wf_status wfi_plan_set(wf_plan *plan, const char *text) {
    reading r = {.plan = plan};
    memset(plan->position, 0, sizeof plan->position);
    WF_TRY(wfi_each_pair(plan->ctx, "plan", text, MAX_TEXT, take_pair, &r));
    /* A schedule that is named without chunks has its own. */
    if (plan->position[WFI_PLAN_SCHEDULE] && !plan->position[WFI_PLAN_CHUNKS]) plan->chunks = 0;
    return wfi_plan_complete(plan);
}

wf_status wf_plan_parse(wf_context *ctx, const char *text, wf_plan **plan_out) {
    wf_plan *plan = wfi_alloc(ctx, 1, sizeof *plan, "a plan");
    if (!plan) return WF_NO_MEMORY;
    plan->ctx = ctx;
    set_defaults(plan);
    wf_status status = wfi_plan_set(plan, text);
    if (status == WF_OK && plan->has_order) status = wfi_plan_warn_order(plan);
    if (status == WF_OK)
        *plan_out = plan;
    else
        wf_plan_destroy(plan);
    return status;
}

/* NULL is copied as NULL; *status becomes NO_MEMORY if there is none. */
static char *copy_text(wf_context *ctx, const char *text, wf_status *status) {
    char *copy = text && *status == WF_OK ? wfi_strdup(ctx, text) : NULL;
    if (text && !copy) *status = WF_NO_MEMORY;
    return copy;
}

wf_status wfi_plan_copy(const wf_plan *plan, wf_plan **plan_out) {
    wf_context *ctx = plan->ctx;
    wf_status status = WF_OK;
    wf_plan *copy = wfi_alloc(ctx, 1, sizeof *copy, "a plan");
    if (!copy) return WF_NO_MEMORY;
    *copy = *plan;
    copy->costs = NULL;
    copy->devices = plan->n_devices
                        ? wfi_alloc(ctx, (size_t)plan->n_devices, sizeof *copy->devices, "a plan")
                        : NULL;
    if (plan->n_devices && !copy->devices) copy->n_devices = 0, status = WF_NO_MEMORY;
    if (copy->devices)
        memcpy(copy->devices, plan->devices, (size_t)plan->n_devices * sizeof *copy->devices);
    copy->lanes =
        plan->lanes ? wfi_alloc(ctx, (size_t)plan->n_shares, sizeof *copy->lanes, "a plan") : NULL;
    if (plan->lanes && !copy->lanes) copy->n_shares = 0, status = WF_NO_MEMORY;
    if (copy->lanes) memcpy(copy->lanes, plan->lanes, (size_t)plan->n_shares * sizeof *copy->lanes);
    copy->cut = copy_text(ctx, plan->cut, &status);
    copy->recompute = copy_text(ctx, plan->recompute, &status);
    copy->text = copy_text(ctx, plan->text, &status);
    copy->rules = plan->rules ? wfi_alloc(ctx, WFI_MAX_RULES, sizeof *copy->rules, "a plan") : NULL;
    if (plan->rules && !copy->rules) copy->n_rules = 0, status = WF_NO_MEMORY;
    for (int k = 0; k < copy->n_rules; k++) {
        copy->rules[k] = plan->rules[k];
        copy->rules[k].unit = copy_text(ctx, plan->rules[k].unit, &status);
    }
    if (status == WF_OK && plan->costs) status = wf_plan_use_costs(copy, plan->costs);
    if (status == WF_OK)
        *plan_out = copy;
    else
        wf_plan_destroy(copy);
    return status;
}

void wfi_plan_drop_rules(wf_plan *plan) {
    for (int k = 0; k < plan->n_rules; k++) wfi_free(plan->ctx, plan->rules[k].unit);
    wfi_free(plan->ctx, plan->rules);
    plan->rules = NULL;
    plan->n_rules = plan->output = 0;
    plan->position[WFI_PLAN_OUTPUT] = 0;
}

void wfi_plan_drop_cut(wf_plan *plan) {
    wfi_free(plan->ctx, plan->cut);
    plan->cut = NULL;
}

wf_status wf_plan_use_costs(wf_plan *plan, const wf_costs *costs) {
    wf_costs *copy;
    WF_TRY(wfi_costs_copy(plan->ctx, costs, &copy));
    wf_costs_destroy(plan->costs);
    plan->costs = copy;
    return WF_OK;
}

void wf_plan_destroy(wf_plan *plan) {
    if (!plan) return;
    wfi_plan_drop_rules(plan);
    wfi_plan_drop_cut(plan);
    wfi_plan_drop_lanes(plan);
    wfi_free(plan->ctx, plan->recompute);
    wfi_free(plan->ctx, plan->text);
    wf_costs_destroy(plan->costs);
    wfi_free(plan->ctx, plan->devices);
    wfi_free(plan->ctx, plan);
}

const char *wf_plan_text(const wf_plan *plan) {
    return plan->text;
}
int wf_plan_dp(const wf_plan *plan) {
    return plan->dp;
}
int wf_plan_pp(const wf_plan *plan) {
    return plan->pp;
}
int wf_plan_tp(const wf_plan *plan) {
    return plan->tp;
}
int wf_plan_has_equal_parts(const wf_plan *plan) {
    return !plan->lanes;
}
int wf_plan_loads_at_root(const wf_plan *plan) {
    return plan->n_rules > 0;
}
int wf_plan_n_ranks(const wf_plan *plan) {
    const wfi_mesh mesh = wfi_plan_mesh(plan);
    return wfi_mesh_n_groups(&mesh, 0) + (plan->serves_at_workers ? 0 : plan->n_servers);
}
