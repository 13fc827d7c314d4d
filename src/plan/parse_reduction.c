/* The keys of a plan that say how gradients are summed over its replicas. */
#include "plan/parse.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* A larger bucket is a slip of the pen. */
#define MOST_BUCKET_BYTES ((size_t)1 << 40)

static const struct {
    const char *name;
    size_t bytes;
} units[] = {{"TiB", (size_t)1 << 40}, /* the first that divides is how a size is written */
             {"GiB", (size_t)1 << 30},
             {"MiB", (size_t)1 << 20},
             {"KiB", (size_t)1 << 10},
             {"", 1},
             {"B", 1},
             {"KB", 1000},
             {"MB", 1000000},
             {"GB", 1000000000},
             {"TB", 1000000000000}};

void wfi_plan_default_reduction(wf_plan *plan) {
    plan->allreduce = wfi_allreduce_find("auto");
    plan->bucket_bytes = WFI_DEFAULT_BUCKET_BYTES;
}

static const char *allreduce_name(int i) {
    return wfi_allreduce_at(i) ? wfi_allreduce_at(i)->name : NULL;
}

wf_status wfi_plan_parse_allreduce(wf_plan *plan, const wfi_pair *pair) {
    plan->allreduce = wfi_allreduce_find(pair->value);
    if (plan->allreduce) return WF_OK;
    return wfi_fail_unknown(plan->ctx, WF_INVALID_ARG, allreduce_name, pair->value,
                            "plan: there is no allreduce '%s' (position %d)", pair->value,
                            pair->position);
}

void wfi_plan_allreduce_text(const wf_plan *plan, wfi_text *text) {
    if (plan->allreduce != wfi_allreduce_find("auto"))
        wfi_text_add(text, ",allreduce=%s", plan->allreduce->name);
}

static const char sums[] = "fixed|free";

bool wfi_plan_is_sums(const char *value) {
    return wfi_word_find(sums, value, strlen(value)) >= 0;
}

wf_status wfi_plan_parse_sums(wf_plan *plan, const wfi_pair *pair) {
    if (!wfi_plan_is_sums(pair->value)) return wfi_pair_refuse(pair, "fixed or free");
    plan->is_order_free = wfi_word_find(sums, pair->value, strlen(pair->value));
    return WF_OK;
}

void wfi_plan_sums_text(const wf_plan *plan, wfi_text *text) {
    if (plan->is_order_free) wfi_text_add(text, ",sums=free");
}

/* A whole number and a unit; 0 if it is none or too large. */
static size_t read_size(const char *text) {
    size_t n = 0;
    for (; isdigit((unsigned char)*text); text++) {
        n = 10 * n + (size_t)(*text - '0');
        if (n > MOST_BUCKET_BYTES) return 0;
    }
    for (size_t u = 0; u < WFI_COUNT(units); u++)
        if (!strcasecmp(units[u].name, text))
            return n <= MOST_BUCKET_BYTES / units[u].bytes ? n * units[u].bytes : 0;
    return 0;
}

wf_status wfi_plan_parse_bucket(wf_plan *plan, const wfi_pair *pair) {
    plan->bucket_bytes = read_size(pair->value);
    if (plan->bucket_bytes) return WF_OK;
    return wfi_pair_refuse(pair, "a size from 1 to 1TiB such as 25MiB, 100MB or 4096 (bytes)");
}

void wfi_plan_bucket_text(const wf_plan *plan, wfi_text *text) {
    int u = 0;
    if (plan->bucket_bytes == WFI_DEFAULT_BUCKET_BYTES) return;
    while (plan->bucket_bytes % units[u].bytes) u++;
    wfi_text_add(text, ",bucket=%zu%s", plan->bucket_bytes / units[u].bytes, units[u].name);
}

wf_status wfi_plan_check_reduction(const wf_plan *plan) {
    int most = plan->n_rules ? 1 : plan->dp;
    for (int k = 0; k < plan->n_rules; k++)
        if (plan->rules[k].strategy->gradient == WFI_REPLICATE && plan->rules[k].n > most)
            most = plan->rules[k].n;
    if (plan->allreduce == &wfi_allreduce_engine && (plan->tp > 1 || plan->n_rules))
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: allreduce=engine is the wire's own all-reduce over replicas of a "
                        "whole model; with %s choose allreduce=pairwise, which moves as many bytes",
                        plan->tp > 1 ? "tp" : "units that have replicas of their own");
    if (plan->allreduce->rotates && plan->tp > 2)
        return wfi_fail(
            plan->ctx, WF_INVALID_ARG,
            "plan: allreduce=%s sums in an order that rotates, but tp=%d sums slices over one "
            "tree, with any sums=; choose allreduce=pairwise, which moves as many bytes",
            plan->allreduce->name, plan->tp);
    if (!plan->allreduce->rotates || plan->is_order_free || most <= 2) return WF_OK;
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: allreduce=%s sums in an order that rotates, so dp=%d would not give one "
                    "rank's bits; add sums=free to allow that, or choose allreduce=pairwise, "
                    "which moves as many bytes",
                    plan->allreduce->name, most);
}
