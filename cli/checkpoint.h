/* What a run leaves in --out so that it can go on: state.safetensors. */
#ifndef CLI_CHECKPOINT_H
#define CLI_CHECKPOINT_H

#include "job.h"

/* Where the next batch begins. */
typedef struct position {
    int64_t epoch, sample;
} position;

/* Makes the folder and those above it. */
exit_status checkpoint_folder(const cli *c);

/* A new run: complains if the folder holds one already. */
exit_status checkpoint_refuse_old(const cli *c);

/* DIR/state.safetensors, then DIR/model.safetensors; an error leaves the old files. */
wf_status checkpoint_save(const job *j, wf_trainer *trainer, position next);

/* --resume: takes over the recipe in DIR/state.safetensors. An option that was given and
 * says something else is refused. */
exit_status checkpoint_read_recipe(cli *c);
/* Then, once there is a trainer: its state, and where its data goes on. */
exit_status checkpoint_load(const job *j, wf_trainer *trainer, position *next_out);

#endif
