/* From model, recipe and plan to a checked program. Private.
 *
 * create.c calls all passes. In code/, place.c decides where values live, segment.c
 * compiles each unit's nodes into segments with a workspace (workspace.c); lower.c follows the
 * schedule and emits blocks and instructions. Layout (layout/): depend.c derives the dependencies
 * from the reads and writes of each instruction; order.c finds the order of execution; memory.c
 * gives blocks their offsets. Proof (prove/): check.c proves the result, without using any of them
 * but order.c. short_form.c makes the short form of a step whose middle repeats.
 */
#pragma once

#include "program/program.h"

/* How the recipe has nodes of a unit computed; borrows the program. */
wfi_kernel_options wfi_program_kernel_options(const wf_program *p, int32_t unit);
/* The same code once more, for a replica that needs kernels of its own. */
wf_status wfi_program_copy_code(const wf_program *p, int32_t variant, wfi_code **code_out);

/* The steps before scheduling: the recipe is resolved, the graph is made, stages are cut, kernels
 * are described. Nothing else of the program may be used yet. `like`: a program that passes on its
 * stages, because both will work on the same state; NULL: it finds its own. */
wf_status wfi_program_begin(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wfi_backend *backend, wf_program_kind kind,
                            wfi_program_use use, const wf_program *like, wf_program **program_out);
/* The passes from lowering to the proof. Errors: BUG: the actions do not make a step. */
wf_status wfi_program_compile(wf_program *p, const wfi_action_list *lists);

/* Like wf_program_create, for a trainer, of that backend's kernels. Errors: UNSUPPORTED: it has
 * none for an op. */
wf_status wfi_program_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                             const wf_plan *plan, const wfi_backend *backend, wf_program_kind kind,
                             wfi_program_use use, const wf_program *like, wf_program **program_out);

/* A program that is ordered, but not placed and not proved: its step can be simulated, and the
 * bounds of its peaks are known. `parts`: a program that has begun, of a plan with the same graph
 * and code, which the draft borrows; NULL: there is none. Errors: those of wf_program_create. */
wf_status wfi_program_draft(const wf_program *of, const wf_plan *plan, const wf_program *parts,
                            wf_program **draft_out);
