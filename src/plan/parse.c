/* Plan strings: "dp=2,pp=2,schedule=1f1b,cut=layer3". Input may be hostile: bounded,
 * every word is checked, every error says where. */
#include "plan/parse.h"
#include "plan/lanes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <weft/schedule.h>

#define MAX_TEXT 4096

wf_status wfi_plan_parse_number(const wf_plan *plan, const wfi_plan_field *f, int low, int *out) {
    char *end = "x";
    long n = isdigit((unsigned char)*f->value) ? strtol(f->value, &end, 10) : -1;
    if (n < low || n > WFI_MAX_AXIS || *end)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: %s='%s' at position %d; it takes a whole number from %d to %d%s",
                        f->key, f->value, f->position, low, WFI_MAX_AXIS,
                        strchr(f->value, ' ') ? "; a comma separates two keys" : "");
    *out = (int)n;
    return WF_OK;
}

static wf_status parse_axis(wf_plan *plan, const wfi_plan_field *f, int *axis_out) {
    return wfi_plan_parse_number(plan, f, 1, axis_out);
}

static wf_status parse_dp(wf_plan *plan, const wfi_plan_field *f) {
    return parse_axis(plan, f, &plan->dp);
}

static wf_status parse_pp(wf_plan *plan, const wfi_plan_field *f) {
    return parse_axis(plan, f, &plan->pp);
}

static wf_status parse_tp(wf_plan *plan, const wfi_plan_field *f) {
    return parse_axis(plan, f, &plan->tp);
}

static wf_status parse_sp(wf_plan *plan, const wfi_plan_field *f) {
    return wfi_plan_parse_switch(plan, f, &plan->divides_rows);
}

static wf_status parse_schedule(wf_plan *plan, const wfi_plan_field *f) {
    plan->schedule = wfi_schedule_find(f->value);
    if (plan->schedule) return WF_OK;
    return wfi_fail_unknown(plan->ctx, WF_INVALID_ARG, wf_schedule_name, f->value,
                            "plan: there is no schedule '%s' (position %d)", f->value, f->position);
}

static wf_status parse_chunks(wf_plan *plan, const wfi_plan_field *f) {
    return parse_axis(plan, f, &plan->chunks);
}

static wf_status parse_cut(wf_plan *plan, const wfi_plan_field *f) {
    if (!*f->value)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: cut= at position %d names no unit; write cut=A or cut=A+B",
                        f->position);
    plan->cut = wfi_strdup(plan->ctx, f->value);
    return plan->cut ? WF_OK : WF_NO_MEMORY;
}

static wf_status parse_hold(wf_plan *plan, const wfi_plan_field *f) {
    return parse_axis(plan, f, &plan->hold);
}

static wf_status parse_zero(wf_plan *plan, const wfi_plan_field *f) {
    bool is_one = f->value[0] >= '1' && f->value[0] <= '0' + WFI_N_ZERO && !f->value[1];
    if (!is_one)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: zero='%s' at position %d; it takes 1 (optimizer state is divided), "
                        "2 (gradients, too) or 3 (parameters, too)",
                        f->value, f->position);
    plan->strategy = wfi_zero_strategies[f->value[0] - '1'];
    return WF_OK;
}

static wf_status parse_shard(wf_plan *plan, const wfi_plan_field *f) {
    return parse_axis(plan, f, &plan->shard);
}

static wf_status parse_prefetch(wf_plan *plan, const wfi_plan_field *f) {
    return wfi_plan_parse_number(plan, f, 0, &plan->prefetch);
}

#define AT_WORKERS "@workers"

static wf_status parse_ps(wf_plan *plan, const wfi_plan_field *f) {
    char digits[16];
    size_t n = strcspn(f->value, "@");
    plan->serves_at_workers = !strcasecmp(f->value + n, AT_WORKERS);
    snprintf(digits, sizeof digits, "%.*s", (int)wfi_min_i64((int64_t)n, 15), f->value);
    const wfi_plan_field number = {f->key, digits, f->position};
    if (plan->serves_at_workers || !f->value[n]) return parse_axis(plan, &number, &plan->n_servers);
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: ps='%.60s' at position %d; it takes a number of parameter servers, such "
                    "as 2 (on ranks of their own) or 2" AT_WORKERS,
                    f->value, f->position);
}

static const struct {
    const char *key;
    wf_status (*parse)(wf_plan *plan, const wfi_plan_field *f);
} keys[WFI_N_PLAN_KEYS] = {[WFI_PLAN_DP] = {"dp", parse_dp},
                           [WFI_PLAN_PP] = {"pp", parse_pp},
                           [WFI_PLAN_TP] = {"tp", parse_tp},
                           [WFI_PLAN_SP] = {"sp", parse_sp},
                           [WFI_PLAN_SCHEDULE] = {"schedule", parse_schedule},
                           [WFI_PLAN_CHUNKS] = {"chunks", parse_chunks},
                           [WFI_PLAN_CUT] = {"cut", parse_cut},
                           [WFI_PLAN_HOLD] = {"hold", parse_hold},
                           [WFI_PLAN_ALLREDUCE] = {"allreduce", wfi_plan_parse_allreduce},
                           [WFI_PLAN_ORDER] = {"order", wfi_plan_parse_order},
                           [WFI_PLAN_BUCKET] = {"bucket", wfi_plan_parse_bucket},
                           [WFI_PLAN_OVERLAP] = {"overlap", wfi_plan_parse_overlap},
                           [WFI_PLAN_ZERO] = {"zero", parse_zero},
                           [WFI_PLAN_SHARD] = {"shard", parse_shard},
                           [WFI_PLAN_PREFETCH] = {"prefetch", parse_prefetch},
                           [WFI_PLAN_OFFLOAD] = {"offload", wfi_plan_parse_offload},
                           [WFI_PLAN_RECOMPUTE] = {"recompute", wfi_plan_parse_recompute},
                           [WFI_PLAN_OUTPUT] = {"output", wfi_plan_parse_output},
                           [WFI_PLAN_LANES] = {"lanes", wfi_plan_parse_lanes},
                           [WFI_PLAN_PS] = {"ps", parse_ps}};

const char *wf_plan_key(int i) {
    return i >= 0 && i < WFI_N_PLAN_KEYS ? keys[i].key : NULL;
}

static wf_status unknown_key(const wf_plan *plan, const wfi_plan_field *f) {
    wfi_text names;
    wfi_text_init(&names, plan->ctx);
    for (int k = 0; k < WFI_N_PLAN_KEYS; k++) wfi_text_add(&names, "%s, ", keys[k].key);
    for (int k = 0; wfi_strategies[k]; k++) {
        const char *name = wfi_strategies[k]->name;
        bool is_axis = wfi_strategies[k] == &wfi_strategy_dp;
        wfi_text_add(&names, "%s%s%sUNIT:%s", k ? ", " : "", is_axis ? "" : name,
                     is_axis ? "" : ", ", name);
    }
    wf_status status = wfi_text_status(&names);
    const char *near = wfi_nearest_name(wf_plan_key, f->key);
    if (status == WF_OK)
        status = wfi_fail(plan->ctx, WF_INVALID_ARG,
                          "plan: unknown key '%s' at position %d%s%s%s keys are %s", f->key,
                          f->position, near ? "; did you mean " : "", near ? near : "",
                          near ? "? The" : "; the", names.data);
    wfi_free(plan->ctx, names.data);
    return status;
}

static wf_status parse_field(wf_plan *plan, const wfi_plan_field *f) {
    bool is_rule;
    for (int k = 0; k < WFI_N_PLAN_KEYS; k++) {
        if (strcasecmp(keys[k].key, f->key)) continue;
        if (plan->position[k])
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: %s is given twice, again at position %d", f->key, f->position);
        plan->position[k] = f->position;
        return keys[k].parse(plan, f);
    }
    WF_TRY(wfi_plan_parse_rule(plan, f, &is_rule));
    return is_rule ? WF_OK : unknown_key(plan, f);
}

static bool is_key(const char *text, size_t n) {
    int k = 0;
    while (k < WFI_N_PLAN_KEYS && (strlen(keys[k].key) != n || strncasecmp(keys[k].key, text, n)))
        k++;
    return k < WFI_N_PLAN_KEYS;
}

/* Where the field ends that begins here. */
static char *end_of_field(char *at) {
    char *end = at + strcspn(at, ",");
    bool is_list = !strncmp(at, "order=", 6);
    while (is_list && *end) {
        size_t n = strcspn(end + 1, ",=");
        is_list = n && end[1 + n] != '=' && (wfi_plan_is_axis(end + 1, n) || !is_key(end + 1, n));
        if (is_list) end += 1 + n;
    }
    return end;
}

static wf_status parse_text(wf_plan *plan, char *scratch) {
    for (char *at = scratch; *at;) {
        char *end = end_of_field(at);
        bool more = *end == ',';
        *end = 0;
        char *equals = strchr(at, '='), *on = strcasecmp(at, "sp") ? NULL : "on"; /* sp is sp=on */
        wfi_plan_field f = {at, equals ? equals + 1 : on ? on : "", (int)(at - scratch) + 1};
        if (equals) *equals = 0;
        bool is_field = (equals || on) && *f.key;
        if (!is_field || (more && !end[1]))
            return wfi_fail(
                plan->ctx, WF_INVALID_ARG, "plan: expected key=value at position %d, found '%s'",
                more && is_field ? (int)(end - scratch) + 2 : f.position, is_field ? "" : at);
        WF_TRY(parse_field(plan, &f));
        at = more ? end + 1 : end;
    }
    return WF_OK;
}

/* Whether runs of so many replicas can sum gradients alone, and then with each other, in the order
 * of one rank. */
static bool may_shard(const wf_plan *plan, int n) {
    return plan->dp % n == 0 && wfi_lanes_allow(plan->dp, plan->dp / n);
}

static wf_status check_shard(const wf_plan *plan) {
    wfi_text numbers;
    if (!plan->shard) return WF_OK;
    if (plan->strategy->state != WFI_SHARD)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: shard=%d sets the number of ranks that divide the state, but the "
                        "state is not divided; add zero=1, 2 or 3",
                        plan->shard);
    if (may_shard(plan, plan->shard)) return WF_OK;
    wfi_text_init(&numbers, plan->ctx);
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

static wf_status check(wf_plan *plan) {
    WF_TRY(wfi_plan_check_rules(plan));
    WF_TRY(check_chunks(plan));
    if (plan->divides_rows && plan->tp == 1)
        return wfi_fail(
            plan->ctx, WF_INVALID_ARG,
            "plan: sp divides rows over the ranks of tp, and tp has one rank; add tp=2");
    if (plan->cut && plan->pp == 1)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: cut=%s needs stages to cut into; add pp=2 or more", plan->cut);
    if (plan->hold && !plan->schedule->search)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: hold=%d has no effect on schedule=%s, which needs a fixed amount; "
                        "schedule=auto obeys it",
                        plan->hold, plan->schedule->name);
    if (plan->prefetch != WFI_DEFAULT_PREFETCH && plan->strategy->parameter != WFI_SHARD &&
        !wfi_plan_offloads(plan))
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: prefetch=%d sets the number of units that parameters are gathered "
                        "ahead, but parameters are not divided; add zero=3, or offload=params",
                        plan->prefetch);
    if (plan->serves_at_workers && plan->n_servers > plan->dp)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: ps=%d" AT_WORKERS
                        " puts a server on each of as many workers' ranks, "
                        "and dp=%d has %d",
                        plan->n_servers, plan->dp, plan->dp);
    WF_TRY(wfi_plan_check_lanes(plan));
    WF_TRY(wfi_plan_check_offload(plan));
    WF_TRY(check_shard(plan));
    return wfi_plan_check_reduction(plan);
}

static wf_status canonical_text(wf_plan *plan) {
    wfi_text text;
    wfi_text_init(&text, plan->ctx);
    if (plan->n_rules)
        wfi_plan_rules_text(plan, &text);
    else
        wfi_text_add(&text, "dp=%d,pp=%d,schedule=%s", plan->dp, plan->pp, plan->schedule->name);
    wfi_plan_lanes_text(plan, &text);
    if (plan->n_servers)
        wfi_text_add(&text, ",ps=%d%s", plan->n_servers, plan->serves_at_workers ? AT_WORKERS : "");
    if (plan->chunks) wfi_text_add(&text, ",chunks=%d", plan->chunks);
    if (plan->tp > 1) wfi_text_add(&text, ",tp=%d", plan->tp);
    if (plan->divides_rows) wfi_text_add(&text, ",sp");
    if (plan->cut) wfi_text_add(&text, ",cut=%s", plan->cut);
    if (plan->hold) wfi_text_add(&text, ",hold=%d", plan->hold);
    if (plan->strategy != &wfi_strategy_dp) wfi_text_add(&text, ",%s", plan->strategy->name);
    if (plan->shard && plan->shard != plan->dp) wfi_text_add(&text, ",shard=%d", plan->shard);
    wfi_plan_offload_text(plan, &text);
    if (plan->prefetch != WFI_DEFAULT_PREFETCH) wfi_text_add(&text, ",prefetch=%d", plan->prefetch);
    if (plan->recompute) wfi_text_add(&text, ",recompute=%s", plan->recompute);
    wfi_plan_reduction_text(plan, &text);
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
    return canonical_text(plan);
}

wf_status wfi_plan_set(wf_plan *plan, const char *text) {
    char *scratch = wfi_strdup(plan->ctx, text);
    if (!scratch) return WF_NO_MEMORY;
    memset(plan->position, 0, sizeof plan->position);
    wf_status status = parse_text(plan, scratch);
    /* A schedule that is named without chunks has its own. */
    if (plan->position[WFI_PLAN_SCHEDULE] && !plan->position[WFI_PLAN_CHUNKS]) plan->chunks = 0;
    wfi_free(plan->ctx, scratch);
    return status == WF_OK ? wfi_plan_complete(plan) : status;
}

wf_status wf_plan_parse(wf_context *ctx, const char *text, wf_plan **plan_out) {
    if (!text) text = "";
    size_t n = strnlen(text, MAX_TEXT + 1);
    if (n > MAX_TEXT)
        return wfi_fail(ctx, WF_INVALID_ARG, "plan: longer than %d characters", MAX_TEXT);
    for (size_t i = 0; i < n; i++)
        if (!isprint((unsigned char)text[i]))
            return wfi_fail(ctx, WF_INVALID_ARG, "plan: byte 0x%02x at position %zu is not text",
                            (unsigned char)text[i], i + 1);
    wf_plan *plan = wfi_alloc(ctx, 1, sizeof *plan, "a plan");
    char *scratch = plan ? wfi_strdup(ctx, text) : NULL;
    wf_status status = scratch ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        plan->ctx = ctx;
        for (int a = 0; a < WFI_N_AXES; a++) plan->size[a] = 1;
        plan->schedule = &wfi_schedule_1f1b;
        plan->strategy = &wfi_strategy_dp;
        plan->prefetch = WFI_DEFAULT_PREFETCH;
        wfi_plan_default_axes(plan);
        wfi_plan_default_reduction(plan);
        status = parse_text(plan, scratch);
    }
    if (status == WF_OK) status = wfi_plan_complete(plan);
    wfi_free(ctx, scratch);
    if (status != WF_OK) {
        if (plan) plan->ctx = ctx;
        wf_plan_destroy(plan);
        return status;
    }
    *plan_out = plan;
    return WF_OK;
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
