/* What the files that read plan strings share. Private to src/plan. */
#ifndef WFI_PARSE_H
#define WFI_PARSE_H

#include "plan/plan.h"

typedef struct wfi_plan_field {
    const char *key, *value; /* into a scratch copy of the text */
    int position;            /* of the key, counted from 1 */
} wfi_plan_field;

/* parse_rules.c: strategies of the model or of units. The key may be "UNIT:dp". *found_out: whether
 * it is one of these at all. */
wf_status wfi_plan_parse_rule(wf_plan *plan, const wfi_plan_field *f, bool *found_out);
wf_status wfi_plan_parse_output(wf_plan *plan, const wfi_plan_field *f);
/* Whether rules go together, and with the other keys. */
wf_status wfi_plan_check_rules(wf_plan *plan);
void wfi_plan_rules_text(const wf_plan *plan, wfi_text *text);
/* A whole number from `low` on. */
wf_status wfi_plan_parse_number(const wf_plan *plan, const wfi_plan_field *f, int low, int *out);
/* on or off */
wf_status wfi_plan_parse_switch(const wf_plan *plan, const wfi_plan_field *f, bool *is_on_out);

/* axes.c. As the words of `order` are joined by commas, its value goes on over words that have no
 * value and are no other keys. */
wf_status wfi_plan_parse_order(wf_plan *plan, const wfi_plan_field *f);
bool wfi_plan_is_axis(const char *text, size_t n);
void wfi_plan_default_axes(wf_plan *plan);
void wfi_plan_order_text(const wf_plan *plan, wfi_text *text);

/* parse_lanes.c: uneven shares of the recipe's lanes. */
wf_status wfi_plan_parse_lanes(wf_plan *plan, const wfi_plan_field *f);
/* Whether there is a share for each replica, and they go with the other keys. */
wf_status wfi_plan_check_lanes(const wf_plan *plan);
void wfi_plan_lanes_text(const wf_plan *plan, wfi_text *text);

/* parse_offload.c */
wf_status wfi_plan_parse_offload(wf_plan *plan, const wfi_plan_field *f);
/* Whether it goes with the rules. */
wf_status wfi_plan_check_offload(const wf_plan *plan);
void wfi_plan_offload_text(const wf_plan *plan, wfi_text *text);
wf_status wfi_plan_parse_recompute(wf_plan *plan, const wfi_plan_field *f);

/* parse_reduction.c: how gradients are summed over replicas. */
void wfi_plan_default_reduction(wf_plan *plan);
wf_status wfi_plan_parse_allreduce(wf_plan *plan, const wfi_plan_field *f);
wf_status wfi_plan_parse_bucket(wf_plan *plan, const wfi_plan_field *f);
wf_status wfi_plan_parse_overlap(wf_plan *plan, const wfi_plan_field *f);
/* Whether they go together. */
wf_status wfi_plan_check_reduction(const wf_plan *plan);
/* Adds what is not by default: ",allreduce=tree,bucket=25MiB". */
void wfi_plan_reduction_text(const wf_plan *plan, wfi_text *text);

#endif
