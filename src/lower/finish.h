/* The end of a step. Private to src/lower. */
#pragma once

#include "lower/emit.h"

/* The instructions after the microbatches. */
wf_status wfi_lower_finish(wfi_lowering *l);
/* Loss and hits to the host, if the rank has them. */
wf_status wfi_lower_report(wfi_lowering *l);
