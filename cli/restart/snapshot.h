/* Snapshots of the state in host memory: weft train --snapshot N.
 *
 * The launcher creates the memory, and the ranks inherit its descriptor. The memory outlives any
 * rank and has no name, so the last process to end frees it. Two images of the state take turns.
 * Each has the record of a checkpoint. The steps' losses are there too, so that a run without --out
 * reports all of them. */
#pragma once

#include "restart/restart.h"

#define SNAPSHOT_ENV "WEFT_SNAPSHOT_FD" /* descriptor of the snapshots' memory */

struct record;
typedef struct snapshot snapshot;

/* ---- the launcher's side ---- */

/* Creates the memory; *fd_out is the descriptor that ranks inherit. NULL: errno has the reason. */
snapshot *snapshot_create(int *fd_out);

/* ---- the ranks' side ---- */

/* Maps the memory that the ranks inherit; NULL: there is none. */
snapshot *snapshot_find(void);
/* NULL is allowed. */
void snapshot_release(snapshot *s);
/* Checks --host-memory and maps the images. Rank 0 also allocates them. Complains. */
exit_status snapshot_open(cli *c, const wf_program *program);
/* Writes the state after `n_done` steps. All ranks call it; rank 0 has the notes, the text of a
 * record. */
wf_status snapshot_write(snapshot *s, wf_trainer *trainer, const char *notes, int64_t n_done);
/* Returns the step of the newest whole snapshot, or -1; *image_out is its number, from 1 on. */
int64_t snapshot_newest(const snapshot *s, int *image_out);
const char *snapshot_record(const snapshot *s, int image);
wf_status snapshot_read(snapshot *s, wf_trainer *trainer, int image);
/* Drops a snapshot: the state in it is not to be trusted. */
void snapshot_forget(snapshot *s, int image);

/* Keeps the numbers of step `n_done` for the report. NULL is allowed. */
void snapshot_add_step(const snapshot *s, int64_t n_done, double loss, double ms, double items,
                       int64_t n_skipped);
/* Adds those after `first`, up to `last`, to the record. Returns false without memory. */
bool snapshot_read_steps(const snapshot *s, int64_t first, int64_t last, struct record *r);

/* Bytes of host memory that snapshots of the program take, for all ranks together. */
size_t snapshot_bytes(const wf_program *program);
/* Checks --host-memory: each rank has an equal share. Errors: DOES_NOT_FIT. */
wf_status snapshot_check_room(const cli *c, const wf_program *program);
