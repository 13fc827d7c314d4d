/* The key `lanes`: how many of the recipe's lanes each replica computes. */
#include "plan/parse.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

static wf_status refuse(const wfi_pair *pair) {
    return wfi_pair_refuse(
        pair, "one number of lanes a replica, such as 5+3, each from 1 to %d, or measured",
        WFI_MAX_AXIS);
}

static int count_shares(const char *text) {
    int n = 1;
    for (; *text; text++) n += *text == '+';
    return n;
}

wf_status wfi_plan_parse_lanes(wf_plan *plan, const wfi_pair *pair) {
    int n = count_shares(pair->value);
    if (n > WFI_MAX_AXIS) return refuse(pair);
    wfi_plan_drop_lanes(plan);
    plan->measures_lanes = !strcasecmp(pair->value, "measured");
    if (plan->measures_lanes) return WF_OK;
    plan->lanes = wfi_alloc(plan->ctx, (size_t)n, sizeof *plan->lanes, "a plan");
    if (!plan->lanes) return WF_NO_MEMORY;
    plan->n_shares = n;
    const char *at = pair->value;
    for (int k = 0; k < n; k++) {
        char *end;
        long lanes = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : 0;
        if (lanes < 1 || lanes > WFI_MAX_AXIS || *end != (k + 1 < n ? '+' : 0)) return refuse(pair);
        plan->lanes[k] = (int)lanes;
        at = end + 1;
    }
    return WF_OK;
}

/* Whether replicas move parameters between each other for every use, so that all need as many uses.
 */
bool wfi_plan_moves_parameters(const wf_plan *plan) {
    bool gathers_once = plan->schedule == wfi_schedule_find("breadth") && plan->pp == 1;
    bool is_fetched = plan->offload[WFI_OFFLOAD_PARAMS] != WFI_SPACE_DEVICE;
    return (plan->strategy->parameter == WFI_SHARD && !gathers_once) ||
           (plan->strategy->state == WFI_SHARD && is_fetched);
}

static bool has_equal_groups(const wf_plan *plan) {
    int n_each = plan->shard ? plan->shard : plan->dp;
    for (int k = 0; k < plan->n_shares; k++)
        if (plan->lanes[k] != plan->lanes[k - k % n_each]) return false;
    return true;
}

wf_status wfi_plan_check_lanes(const wf_plan *plan) {
    bool is_unequal = plan->measures_lanes ? plan->dp > 1 : !has_equal_groups(plan);
    bool has_shares = plan->measures_lanes || plan->n_shares == plan->dp;
    if (!plan->lanes && !plan->measures_lanes) return WF_OK;
    if (has_shares && wfi_plan_moves_parameters(plan) && is_unequal)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: replicas that divide parameters (zero=3), or state with parameters "
                        "elsewhere (zero= with offload=params), move them together for each "
                        "microbatch, so they need equal lanes; take zero=2 without offload=params, "
                        "or zero=3 with schedule=breadth and without pp");
    if (has_shares) return WF_OK;
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: lanes= has %d share%s, and dp=%d has %d replica%s: write one number of "
                    "lanes a replica, joined by +",
                    plan->n_shares, plan->n_shares == 1 ? "" : "s", plan->dp, plan->dp,
                    plan->dp == 1 ? "" : "s");
}

void wfi_plan_lanes_text(const wf_plan *plan, wfi_text *text) {
    if (plan->measures_lanes) wfi_text_add(text, ",lanes=measured");
    for (int k = 0; plan->lanes && k < plan->n_shares; k++)
        wfi_text_add(text, "%s%d", k ? "+" : ",lanes=", plan->lanes[k]);
}

int64_t wfi_plan_n_lanes(const wf_plan *plan) {
    int64_t n = 0;
    for (int k = 0; plan->lanes && k < plan->n_shares; k++) n += plan->lanes[k];
    return n;
}

void wfi_plan_drop_lanes(wf_plan *plan) {
    wfi_free(plan->ctx, plan->lanes);
    plan->lanes = NULL;
    plan->n_shares = 0;
    plan->measures_lanes = false;
}

/* Each lane in turn goes to the replica that would end first with it. */
wf_status wfi_plan_share_lanes(wf_plan *plan, int64_t n_lanes, const double *times) {
    if (n_lanes < plan->dp)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: dp=%d has more replicas than this recipe has lanes, %lld", plan->dp,
                        (long long)n_lanes);
    wfi_plan_drop_lanes(plan);
    plan->lanes = wfi_alloc(plan->ctx, (size_t)plan->dp, sizeof *plan->lanes, "a plan");
    if (!plan->lanes) return WF_NO_MEMORY;
    plan->n_shares = plan->dp;
    for (int k = 0; k < plan->dp; k++) plan->lanes[k] = 1;
    for (int64_t left = n_lanes - plan->dp; left > 0; left--) {
        int best = 0;
        for (int k = 1; k < plan->dp; k++)
            if ((plan->lanes[k] + 1) * times[k] < (plan->lanes[best] + 1) * times[best]) best = k;
        plan->lanes[best]++;
    }
    return wfi_plan_complete(plan);
}
