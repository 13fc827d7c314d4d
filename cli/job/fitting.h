/* The plans of a search that may fit, in the order in which they are lowered. */
#pragma once

#include "job/job.h"

/* The simpler plan of ties, as in a search. */
#define TIE 1e-3

struct job_list {
    const job *j;
    struct job_item *items;
    int n, next, place;
    double listed_ms, most_ms; /* plans between these times are listed */
    bool takes_all;            /* also plans that are not likely to fit */
    int64_t work;              /* of plans that were lowered */
    wf_choice least;           /* the plan that needs the least; "": none was lowered */
    double least_needs;        /* as a share of the limits */
    bool is_limited, is_by_bytes, has_ended;
};

/* Lists the plans that are faster than the first choice, which needs this share of the limits; or
 * all plans if it does not fit. False: no memory left. */
bool fitting_list(job *j, double needs);
/* Returns the plan to lower next: first of those that are likely to fit, then of the others, then
 * of slower ones; in the end, the one that needs the least. NULL: that is the plan already. */
const wf_choice *fitting_next(job *j);
/* Notes the needs of the current plan as a share of the limits. */
void fitting_remember(job *j, double needs);
/* Returns whether a plan that fits is the fastest. If faster ones may fit, they are next. */
bool fitting_is_fastest(struct job_list *list);
