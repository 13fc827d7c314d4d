/* The rule that ZB-H1 and ZB-H2 share (Qi et al., 2023, arXiv 2401.10241). Private. */
#pragma once

#include "plan/schedule/schedule.h"

/* `n_warm` forwards, then B, W and F in turn; W lags `n_late` microbatches behind B, so that
 * B is not kept waiting, and fills the end. The stage holds n_warm + n_late microbatches. */
void wfi_zero_bubble(int stage, int n_micro, int n_warm, int n_late, wfi_action_list *list);
