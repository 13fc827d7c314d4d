/* A function of one's own as the ranks of a job. Private to src/launch. */
#pragma once

#include "base/base.h"

#include <weft/launch.h>

/* Run all ranks; the configuration is checked. *failed_rank_out is -1 unless one failed, which
 * is this function's failure, too. */
wf_status wfi_spawn_threads(wf_context *ctx, const wf_spawn_config *config, int64_t timeout_ms,
                            int *failed_rank_out);
wf_status wfi_spawn_processes(wf_context *ctx, const wf_spawn_config *config, int64_t timeout_ms,
                              int *failed_rank_out);
