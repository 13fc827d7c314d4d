/* Descriptors of the launcher. Processes that it starts do not inherit them. They are never 0, 1 or
 * 2: these may be free, and the launcher assigns them to ranks. Private to src/launch. */
#pragma once

#include "base/base.h"

/* Moves `fd`, which `made_by` returned, above 2. Takes -1 too. Errors: DEVICE. */
wf_status wfi_descriptor_high(wf_context *ctx, int fd, const char *made_by, int *fd_out);
/* [0] to read from, [1] to write to. Errors: DEVICE. */
wf_status wfi_descriptor_pipe(wf_context *ctx, int ends[2]);
/* Closes *fd unless it is -1, which it becomes. */
void wfi_descriptor_close(int *fd);
