/* The plan: where and when the work is done. It changes no number (unless order=free says
 * that it may).
 *
 * Text form: comma-separated key=value, e.g. "dp=2,pp=2,schedule=1f1b,cut=layer3".
 *   dp=N         data-parallel replicas
 *   pp=N         pipeline stages
 *   cut=A+B      units that begin the second, third, ... stage; "balanced": by costs. If
 *                absent, the stages that the model marks (wf_next_stage), else balanced
 *   schedule=S   naive, gpipe, 1f1b (the default), interleaved, zb1, zb2, zbv, vhalf, vmin, breadth
 *                or auto
 *   chunks=V     interleaved, auto: stages that each rank has
 *   hold=N       auto: most microbatches that a rank may hold
 *   allreduce=A  how gradients are summed over replicas: root, ring, tree, pairwise, direct,
 *                engine (NCCL's own sum, with --wire nccl) or auto (the default)
 *   order=O      of sums over replicas: fixed (the default): over one tree, so that the bits are
 *                one rank's; free: ring and engine may have another order, the one way in which a
 *                plan changes numbers. Of axes on ranks: "dp,tp,pp", the first has neighbouring
 *                ranks; what is left out follows in the order tp, pp, dp, which is the default
 *   bucket=SIZE  gradients that are summed together, such as 25MiB (4MiB by default)
 *   overlap=on   sum while backward still runs (the default); off: after it
 *   recompute=R  which activations are computed again before backward instead of kept: none
 *                (the default), all, selective (what is cheap to compute), A+B (all of these
 *                units), A+B:selective (of B what is cheap), auto (wf_plan_use_memory)
 *   tp=N         ranks that divide the recipe's slices of pairs of layers
 *   sp           tp: they also divide the rows of what stands between pairs
 *   dataparallel=N  rank 0 holds the model and the loss; in each step N ranks get a copy of the
 *                parameters and a share of the batch, and give back outputs and gradients
 *   output=R     dataparallel: the rank on which outputs are gathered for the loss (0 by default)
 *   UNIT:dp=N, UNIT:dataparallel=N  that unit (or UNIT.0, UNIT.1, ...) on N ranks, all else on
 *                rank 0; with dp each of them keeps parameters and state of its own
 */
#ifndef WEFT_PLAN_H
#define WEFT_PLAN_H

#include <weft/context.h>

typedef struct wf_plan wf_plan;

#ifdef __cplusplus
extern "C" {
#endif

/* "" is one rank. Errors: INVALID_ARG; the sentence names the key or value, its
 * position and the legal ones. */
WF_API WF_NODISCARD wf_status wf_plan_parse(wf_context *ctx, const char *text, wf_plan **plan_out);
WF_API void wf_plan_destroy(wf_plan *plan);

/* What a device has: recompute=auto chooses the least extra time that fits into it, or the least
 * memory if nothing does. 0, as if this is never called: it chooses none. */
WF_API void wf_plan_use_memory(wf_plan *plan, size_t device_bytes);
/* Which devices its ranks are on, by a list of devices such as "opencl:2": programs are made of the
 * kernels of their kinds, and stage what a kernel reads of other devices. NULL, as if this is never
 * called: the CPU. A trainer goes by its own configuration. Errors: INVALID_ARG: there is no such
 * kind, or one without memory. */
WF_API WF_NODISCARD wf_status wf_plan_use_devices(wf_plan *plan, const char *devices);

/* The whole plan with nothing left out; parsing it gives the same plan. Borrowed. */
WF_API const char *wf_plan_text(const wf_plan *plan);
WF_API int wf_plan_n_ranks(const wf_plan *plan);
/* Name i of the keys above that belong to no unit, such as "dp"; NULL past the last. Static. */
WF_API const char *wf_plan_key(int i);
/* Axis i of the ranks, the innermost first: its name, "tp", "pp" or "dp", and its size. NULL past
 * the last. Static. */
WF_API const char *wf_plan_axis(const wf_plan *plan, int i, int *size_out);
/* Where along the axis the rank is, from 0 on; -1: there is no such axis or rank. */
WF_API int wf_plan_coordinate(const wf_plan *plan, const char *axis, int rank);
/* The number of replicas; of units that have several, the largest. */
WF_API int wf_plan_dp(const wf_plan *plan);
WF_API int wf_plan_pp(const wf_plan *plan);
WF_API int wf_plan_tp(const wf_plan *plan);
/* 1 if rank 0 loads the inputs of all replicas (dataparallel=N, UNIT:dp=N, UNIT:dataparallel=N);
 * 0: each replica loads its own. */
WF_API int wf_plan_loads_at_root(const wf_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
