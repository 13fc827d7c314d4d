/* What this process may use of the machine: its cores, and what its control groups allow, as those
 * of a container do. Private. */
#ifndef WFI_LIMITS_H
#define WFI_LIMITS_H

#include <weft/info.h>

/* `root` stands before the system's paths: "", but in tests. */
wf_limits wfi_limits_under(const char *root);

#endif
