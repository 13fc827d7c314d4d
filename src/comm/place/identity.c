#include "comm/place/identity.h"

#include "comm/job/compare.h"
#include "comm/place/claim.h"

#include <stdlib.h>
#include <sys/stat.h>

static const char *const variables[] = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                        "SLURM_JOB_ID",        "SLURM_STEP_ID",
                                        "SLURM_RESTART_COUNT", "PMIX_NAMESPACE",
                                        "PMI_JOBID",           "OMPI_MCA_ess_base_jobid"};

/* The segment that weft run hands to its ranks is one file, whoever has it open. */
static unsigned long long launched_by(void) {
    struct stat about;
    const char *fd = wfi_claim_text(WFI_CONTROL_ENV);
    bool is_segment = fd && wfi_control_room(atoi(fd)) && fstat(atoi(fd), &about) == 0;
    return is_segment ? (unsigned long long)about.st_ino : 0;
}

void wfi_identity_add(wfi_text *statement) {
    for (size_t k = 0; k < WFI_COUNT(variables); k++) {
        const char *value = wfi_claim_text(variables[k]);
        wfi_setting_add(statement, variables[k], "%s", value ? value : "");
    }
    if (launched_by()) wfi_setting_add(statement, "weft run, launch", "%llu", launched_by());
}
