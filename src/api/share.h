/* A trainer that computes the gradients of a part of a batch, for other trainers. Private. */
#pragma once

#include "api/trainer.h"

/* Sets, for the next runs, the step of the random numbers, the part's first sample in the batch,
 * and the number of rows that divides the loss (0: the part's rows). */
void wfi_trainer_share(wf_trainer *t, const wfi_share *share);
/* Sets the trainer's number of steps, after other trainers have made them. */
void wfi_trainer_count_to(wf_trainer *t, int64_t n_steps);
/* Copies the reports of the latest run's microbatches, [n_micro][2]. */
void wfi_trainer_records(const wf_trainer *t, double *records_out);
