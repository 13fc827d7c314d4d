/* From instants to a timeline. Private. */
#ifndef WFI_TIMELINE_H
#define WFI_TIMELINE_H

#include "program/program.h"

#include <weft/timeline.h>

/* begin_us, end_us [n_instructions]: by instruction, from the begin of the step. The timeline
 * keeps nothing of the program. */
wf_status wfi_timeline_create(const wf_program *p, const double *begin_us, const double *end_us,
                              wf_timeline **timeline_out);

#endif
