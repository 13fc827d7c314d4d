/* The plan: where and when each part of the work is done.
 *
 * A plan does not change results, except with sums=free. The text form is a comma-separated list
 * of key=value, such as "dp=2,pp=2,schedule=1f1b,cut=layer3".
 *
 *   dp=N         data-parallel replicas
 *   pp=N         pipeline stages
 *   cut=A+B      units that begin the second, third, ... stage; "balanced": by costs. Default: the
 *                stages that the model marks (wf_next_stage), else balanced
 *   schedule=S   naive, gpipe, 1f1b (the default), interleaved, zb1, zb2, zbv, vhalf, vmin, breadth
 *                or auto
 *   chunks=V     interleaved, auto: stages per rank
 *   hold=N       auto: maximum of microbatches in flight per rank
 *   allreduce=A  algorithm that sums gradients over replicas: root, ring, tree, pairwise, direct,
 *                engine (NCCL's own sum, with --wire nccl) or auto (the default)
 *   sums=S       fixed (the default): sums over replicas use one tree, so the bits equal those of
 *                one rank. free: ring and engine may use another order, the only case in which a
 *                plan changes results
 *   axes=A+B     axes of the ranks, the innermost first: ranks along the first are neighbours.
 *                Missing axes follow in the default order tp, pp, dp
 *   bucket=SIZE  gradients that are summed together, such as 25MiB (4MiB by default)
 *   overlap=on   sum gradients during backward (the default); off: after backward
 *   recompute=R  activations to recompute before backward instead of keeping them: none (the
 *                default), all, selective (activations that are cheap to compute), A+B (those of
 *                these units), A+B:selective (of B the cheap ones), auto (see wf_plan_use_memory)
 *   zero=1|2|3   replicas divide optimizer state (1), also gradients (2), also parameters (3)
 *   shard=N      zero: divide over runs of N neighbouring replicas (default: all)
 *   offload=L    tensors kept in host memory, or with :disk in a file: state, params, activations,
 *                joined by +
 *   lanes=A+B    dp: lanes of each replica, or "measured" (equal shares by default)
 *   ps=K         with update=async: K parameter servers, on ranks of their own after the others;
 *                K@workers: on the first ranks of the workers
 *   prefetch=N   zero=3, offload: units gathered or fetched ahead of use (1 by default)
 *   tp=N         tensor parallelism: ranks that divide the recipe's slices of pairs of layers
 *   sp           tp: the ranks also divide the rows of the ops between pairs
 *   dataparallel=N  rank 0 has the model and the loss; in each step N ranks receive a copy of the
 *                parameters and a share of the batch, and return outputs and gradients
 *   output=R     dataparallel: the rank that gathers outputs for the loss (0 by default)
 *   UNIT:dp=N, UNIT:dataparallel=N  that unit (or UNIT.0, UNIT.1, ...) runs on N ranks, and all
 *                others on rank 0; with dp each of the N ranks keeps its own parameters and state
 */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include <weft/context.h>

typedef struct wf_plan wf_plan;

#ifdef __cplusplus
extern "C" {
#endif

/* Parses a plan; "" is one rank. Errors: INVALID_ARG (the sentence names the key or value, its
 * position and the legal ones), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_plan_parse(wf_context *ctx, const char *text, wf_plan **plan_out);
WF_API void wf_plan_destroy(wf_plan *plan);

/* Sets the memory of a device for recompute=auto, which then chooses the least extra time that
 * fits, or the least memory if nothing fits. 0, the default, makes recompute=auto choose none. */
WF_API void wf_plan_use_memory(wf_plan *plan, size_t device_bytes);
/* Sets the devices of the ranks, by a list such as "opencl:2". Programs then use kernels of these
 * kinds and stage data that a kernel reads from other devices. NULL, the default, means CPU
 * devices. A trainer uses its own configuration instead. Errors: INVALID_ARG (an unknown kind, or
 * one without memory). */
WF_API WF_NODISCARD wf_status wf_plan_use_devices(wf_plan *plan, const char *devices);
/* Sets the wire between the ranks, as in wf_job_config. Over "mpi" a rank copies bytes of other
 * ranks into memory of its own before it reads them; over "nccl", all bytes of one phase of a
 * collective. NULL, the
 * default, means shared memory. A trainer uses the wire of its job instead. Errors: INVALID_ARG
 * (there is no such wire). */
WF_API WF_NODISCARD wf_status wf_plan_use_wire(wf_plan *plan, const char *wire);

/* The complete text of the plan; parsing it gives the same plan. Borrowed. */
WF_API const char *wf_plan_text(const wf_plan *plan);
/* The number of ranks that the plan needs. */
WF_API int wf_plan_n_ranks(const wf_plan *plan);
/* Name i of the keys above that do not belong to a unit, such as "dp"; NULL past the last. Static.
 */
WF_API const char *wf_plan_key(int i);
/* Axis i of the ranks, innermost first: its name, "tp", "pp" or "dp", and its size. NULL past the
 * last. Static. */
WF_API const char *wf_plan_axis(const wf_plan *plan, int i, int *size_out);
/* The coordinate of the rank along the axis, from 0; -1 if the axis or rank does not exist. */
WF_API int wf_plan_coordinate(const wf_plan *plan, const char *axis, int rank);
/* The number of replicas (the largest, if units differ), of stages, and of tensor-parallel ranks.
 */
WF_API int wf_plan_dp(const wf_plan *plan);
WF_API int wf_plan_pp(const wf_plan *plan);
WF_API int wf_plan_tp(const wf_plan *plan);
/* 1 if rank 0 loads the inputs of all replicas (dataparallel=N, UNIT:dp=N, UNIT:dataparallel=N); 0
 * if each replica loads its own. */
WF_API int wf_plan_loads_at_root(const wf_plan *plan);
/* 1 if each replica computes an equal part of every batch, as wf_recipe_part divides it; 0 with
 * `lanes=`. */
WF_API int wf_plan_has_equal_parts(const wf_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
