/* A trainer that computes the gradients of a part of a batch, for others. Private. */
#ifndef WFI_RUN_SHARE_H
#define WFI_RUN_SHARE_H

#include "run/trainer.h"

/* Of the runs that follow: the step that random numbers are of, the part's first sample in the
 * batch, and the rows by which the loss is divided; 0: those of the part. */
void wfi_trainer_share(wf_trainer *t, const wfi_share *share);
/* Steps that others have made count as the trainer's. */
void wfi_trainer_count_to(wf_trainer *t, int64_t n_steps);
/* What the microbatches of the latest run reported: [n_micro][2]. */
void wfi_trainer_records(const wf_trainer *t, double *records_out);

#endif
