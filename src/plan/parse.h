/* Shared functions of the files that read plans. Private to src/plan. */
#pragma once

#include "base/pairs.h"
#include "plan/plan.h"

/* Readers and texts of the table's rows. */
#define WFI_DECLARE_NUMBER(member)
#define WFI_DECLARE_SWITCH(member)
#define WFI_DECLARE_WORDS(member)                                                                  \
    wf_status wfi_plan_parse_##member(wf_plan *plan, const wfi_pair *pair);
#define WFI_DECLARE_OTHER(member)                                                                  \
    WFI_DECLARE_WORDS(member)                                                                      \
    void wfi_plan_##member##_text(const wf_plan *plan, wfi_text *text);
#define ROW(key, name, kind, member, ...) WFI_DECLARE_##kind(member)
WF_PLAN_FIELDS(ROW)
#undef ROW

/* A whole number from `low` on. */
wf_status wfi_plan_parse_number(const wfi_pair *pair, int low, int *out);

/* parse_rules.c: strategies of the model or of units. The key may be "UNIT:dp". *found_out: whether
 * it is one of these at all. */
wf_status wfi_plan_parse_rule(wf_plan *plan, const wfi_pair *pair, bool *found_out);
/* Whether rules go together; then dp is the largest of theirs. */
wf_status wfi_plan_check_rules(wf_plan *plan);
wf_status wfi_plan_refuse_with_rules(const wf_plan *plan, wfi_plan_key key, const char *advice);
void wfi_plan_rules_text(const wf_plan *plan, wfi_text *text);

/* axes.c */
void wfi_plan_default_axes(wf_plan *plan);
/* Puts the axis behind those that are named already; *plan->n_named counts them. */
wf_status wfi_plan_name_axis(wf_plan *plan, const wfi_pair *pair, const char *name, size_t n);
/* parse_reduction.c: how gradients are summed over replicas. */
void wfi_plan_default_reduction(wf_plan *plan);
bool wfi_plan_is_sums(const char *value);
/* Logs the replacement of order=. */
wf_status wfi_plan_warn_order(const wf_plan *plan);

/* Whether these go together with the other keys. */
wf_status wfi_plan_check_reduction(const wf_plan *plan);
wf_status wfi_plan_check_lanes(const wf_plan *plan);
