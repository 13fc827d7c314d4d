/* Larger models. Private to src/sim. */
#pragma once

#include "sim/search.h"

/* How many layers the model may have by the proposal: the answer has been lowered. */
wf_status wfi_search_layers(const wfi_search *s, const wf_proposal *by, int64_t *n_layers_out);
