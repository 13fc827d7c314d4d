/* What the files that read plan strings share. Private to src/plan. */
#ifndef WFI_PARSE_H
#define WFI_PARSE_H

#include "plan/plan.h"

typedef struct wfi_plan_field {
    const char *key, *value; /* into a scratch copy of the text */
    int position;            /* of the key, counted from 1 */
} wfi_plan_field;

/* parse_reduction.c: how gradients are summed over replicas. */
void wfi_plan_default_reduction(wf_plan *plan);
wf_status wfi_plan_parse_allreduce(wf_plan *plan, const wfi_plan_field *f);
wf_status wfi_plan_parse_order(wf_plan *plan, const wfi_plan_field *f);
wf_status wfi_plan_parse_bucket(wf_plan *plan, const wfi_plan_field *f);
wf_status wfi_plan_parse_overlap(wf_plan *plan, const wfi_plan_field *f);
/* Whether they go together. */
wf_status wfi_plan_check_reduction(const wf_plan *plan);

#endif
