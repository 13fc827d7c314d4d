/* Checkpoints of a run: the files in --out's folder besides the log. The state is the commit:
 * weights for others to read (model.safetensors) follow it, and are written again when a run goes
 * on. */
#pragma once

#include "common/made_by.h"
#include "common/scores.h"
#include "job/job.h"

/* Where in the data a batch begins. */
typedef struct position {
    int64_t epoch, sample;
} position;

/* The metadata of the run in a checkpoint, besides tensors and recipe. */
typedef struct resumed {
    position next;
    scores tests;
    int64_t n_steps;
    char data_hash[WF_DATA_HASH_BYTES];
    char made_by[MADE_BY_BYTES]; /* weft and the library under it, with their versions */
} resumed;

/* ---- folder.c ---- */

#define FOLDER_ENV "WEFT_FOLDER_FD" /* descriptor of the launcher's lock on --out */

typedef struct held_folder {
    int lock;     /* -1: none */
    size_t n_old; /* length of the part of its path that existed before */
} held_folder;

/* Makes --out and the folders above it. */
exit_status checkpoint_folder(const cli *c);
/* Makes --out this process's until it ends, however it ends; *lock_out < 0: there is no such
 * folder yet, or it cannot be locked. Refuses one that another process writes to, unless that is
 * the launcher of this one. */
exit_status checkpoint_lock(const cli *c, int *lock_out);
void checkpoint_unlock(int lock);
/* By the launcher: makes --out and locks it for all attempts; the ranks inherit the lock. */
exit_status checkpoint_hold(const cli *c, held_folder *held_out);
/* Removes files of killed ranks after all attempts, and a folder that stayed empty. */
void checkpoint_release(const cli *c, const held_folder *held);

/* ---- checkpoint.c ---- */

/* Returns whether --out has a checkpoint. */
bool checkpoint_exists(const cli *c);
/* Refuses --out if a run is there already. */
exit_status checkpoint_refuse_old(const cli *c);
/* run.json: the model, the data and the options, for people and for --resume. */
exit_status checkpoint_describe(const job *j);
/* Where "state", "model" or "model_ema" is in --out: a file, or the index of its shards. */
const char *checkpoint_path(const cli *c, const char *name, char path[4096]);
wf_status checkpoint_save(const job *j, wf_trainer *trainer, position next, const scores *tests);
/* The recipe as JSON text; free it. NULL: no memory. */
char *checkpoint_recipe(const options *o);
/* The same metadata as a JSON text, for a snapshot after `n_steps` steps; free it. NULL: no
 * memory. */
char *checkpoint_record(const job *j, position next, const scores *tests, int64_t n_steps);
/* model.safetensors, and with --ema model_ema.safetensors: their average. */
wf_status checkpoint_save_weights(const job *j, wf_trainer *trainer);
/* ---- huggingface.c ---- */

/* Of a GPT-2: config.json and the tokenizer's files, as Hugging Face has them, so that --out is a
 * folder for from_pretrained and for --init. Other models have none. */
exit_status checkpoint_describe_model(const job *j);

/* ---- keep.c ---- */

/* Removes stale temporaries of a killed run from --out; no other run uses that folder. */
void checkpoint_remove_leftovers(const cli *c);

/* Links the current files of --out into the folder best there; replaces an older one. */
exit_status checkpoint_keep_best(const cli *c);
/* The same as step-N, and removes those before the last --keep. */
exit_status checkpoint_keep_last(const cli *c, int64_t step);
/* After a restart: renames the checkpoint in --out, which is damaged, and lets the launcher restart
 * the ranks. One of the ranks that found the damage does it. */
void checkpoint_set_aside(const cli *c);
/* Puts the last checkpoint of --keep into --out if the one there was damaged. */
void checkpoint_restore_kept(const cli *c);

/* ---- resume.c ---- */

/* Returns the step of the checkpoint in --out; -1: there is none that can be read. */
int64_t checkpoint_step(const cli *c);
/* After a restart: sets --resume if rank 0 finds a snapshot or a checkpoint in --out, and chooses
 * the newer. Without one the run begins anew. */
exit_status checkpoint_resume_after_restart(cli *c);
/* Rank 0 reads the checkpoint's metadata, and all ranks receive it: c->o takes the recipe over, and
 * contradictions are refused. `bad`: an earlier failure on rank 0. */
exit_status checkpoint_read(cli *c, exit_status bad, resumed *resumed_out);
/* Compares data, place and versions, then reads the tensors and writes the weights again. */
exit_status checkpoint_load(job *j, wf_trainer *trainer, const resumed *from);
