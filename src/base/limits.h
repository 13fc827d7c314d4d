/* Resources of this process: the machine's cores and memory within the limits of its control
 * groups, such as a container's. Private. */
#pragma once

#include <weft/info.h>

/* `root` stands before the system's paths: "", but in tests. */
wf_limits wfi_limits_under(const char *root);
