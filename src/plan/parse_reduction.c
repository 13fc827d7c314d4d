/* The keys of a plan that say how gradients are summed over its replicas. */
#include "plan/parse.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Large enough that a reduction takes longer than its streams take to wake up, small enough
 * that the first ones are done early. */
#define DEFAULT_BUCKET_BYTES ((size_t)4 << 20)
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
    plan->bucket_bytes = DEFAULT_BUCKET_BYTES;
    plan->overlaps = true;
}

static const char *allreduce_name(int i) {
    return wfi_allreduce_at(i) ? wfi_allreduce_at(i)->name : NULL;
}

wf_status wfi_plan_parse_allreduce(wf_plan *plan, const wfi_plan_field *f) {
    plan->allreduce = wfi_allreduce_find(f->value);
    if (plan->allreduce) return WF_OK;
    return wfi_fail_unknown(plan->ctx, WF_INVALID_ARG, allreduce_name, f->value,
                            "plan: there is no allreduce '%s' (position %d)", f->value,
                            f->position);
}

wf_status wfi_plan_parse_switch(const wf_plan *plan, const wfi_plan_field *f, bool *is_on_out) {
    *is_on_out = !strcasecmp(f->value, "on");
    if (*is_on_out || !strcasecmp(f->value, "off")) return WF_OK;
    return wfi_fail(plan->ctx, WF_INVALID_ARG, "plan: %s='%s' at position %d; it takes off or on",
                    f->key, f->value, f->position);
}

wf_status wfi_plan_parse_overlap(wf_plan *plan, const wfi_plan_field *f) {
    return wfi_plan_parse_switch(plan, f, &plan->overlaps);
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

wf_status wfi_plan_parse_bucket(wf_plan *plan, const wfi_plan_field *f) {
    plan->bucket_bytes = read_size(f->value);
    if (plan->bucket_bytes) return WF_OK;
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: bucket='%s' at position %d; it takes a size from 1 to 1TiB such as "
                    "25MiB, 100MB or 4096 (bytes)",
                    f->value, f->position);
}

wf_status wfi_plan_check_reduction(const wf_plan *plan) {
    int most = plan->n_rules ? 1 : plan->dp;
    for (int k = 0; k < plan->n_rules; k++)
        if (plan->rules[k].strategy->gradient == WFI_REPLICATE && plan->rules[k].n > most)
            most = plan->rules[k].n;
    if (plan->strategy->gradient == WFI_SHARD && plan->allreduce != wfi_allreduce_find("auto"))
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: allreduce=%s has no effect with %s, where each rank sums its slice "
                        "of the gradients; leave it out",
                        plan->allreduce->name, plan->strategy->name);
    if (plan->is_order_free && !plan->allreduce->rotates)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: order=free has no effect with %s%s, which sums in one rank's order; "
                        "it is for allreduce=ring and engine; leave it out",
                        plan->strategy->gradient == WFI_SHARD ? "" : "allreduce=",
                        plan->strategy->gradient == WFI_SHARD ? plan->strategy->name
                                                              : plan->allreduce->name);
    if (plan->allreduce == &wfi_allreduce_engine && (plan->tp > 1 || plan->n_rules))
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: allreduce=engine is the wire's own all-reduce over replicas of a "
                        "whole model; with %s choose allreduce=pairwise, which moves as many bytes",
                        plan->tp > 1 ? "tp" : "units that have replicas of their own");
    if (plan->allreduce->rotates && plan->tp > 2)
        return wfi_fail(
            plan->ctx, WF_INVALID_ARG,
            "plan: allreduce=%s sums in an order that rotates, but tp=%d sums slices over one "
            "tree, with any order=; choose allreduce=pairwise, which moves as many bytes",
            plan->allreduce->name, plan->tp);
    if (!plan->allreduce->rotates || plan->is_order_free || most <= 2) return WF_OK;
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: allreduce=%s sums in an order that rotates, so dp=%d would not give one "
                    "rank's bits; add order=free to allow that, or choose allreduce=pairwise, "
                    "which moves as many bytes",
                    plan->allreduce->name, most);
}

void wfi_plan_reduction_text(const wf_plan *plan, wfi_text *text) {
    if (plan->allreduce != wfi_allreduce_find("auto"))
        wfi_text_add(text, ",allreduce=%s", plan->allreduce->name);
    wfi_plan_order_text(plan, text);
    if (plan->bucket_bytes != DEFAULT_BUCKET_BYTES) {
        int u = 0;
        while (plan->bucket_bytes % units[u].bytes) u++;
        wfi_text_add(text, ",bucket=%zu%s", plan->bucket_bytes / units[u].bytes, units[u].name);
    }
    if (!plan->overlaps) wfi_text_add(text, ",overlap=off");
}
