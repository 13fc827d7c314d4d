/* From actions to blocks and instructions. Private. */
#pragma once

#include "lower/sequence.h"

wf_status wfi_program_lower(wf_program *p, const wfi_action_list *lists,
                            const wfi_sequence *sequence);
