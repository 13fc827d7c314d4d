/* The keys of a plan, in the order of its complete text. Private.
 *
 * A row: X(KEY, name, kind, member, least, value, has_effect, otherwise, alone). The kinds are
 * NUMBER (an int member from `least` on, by default `value`), SWITCH (a bool, by default `value`),
 * WORDS (a text, by default NULL) and OTHER. For WORDS and OTHER, wfi_plan_parse_MEMBER reads a
 * value; of the last, wfi_plan_MEMBER_text adds ",name=value" to a text, unless it is the default.
 * If `has_effect`, an expression of `plan`, is false, a value that is not the default is refused
 * with `otherwise`. With units that have strategies of their own it is refused with the advice
 * `alone`.
 */
#pragma once

#define WFI_DEFAULT_PREFETCH 1

#define WFI_WHOLE_PIPELINE "dp=2,pp=2 replicates all of a pipeline"
#define WFI_WHOLE_STATE    "it divides the state of the whole model over dp: leave one out"

#define WF_PLAN_FIELDS(X)                                                                          \
    X(DP, "dp", NUMBER, dp, 1, 1, true, "",                                                        \
      "dp replicates the whole model with all of its state: leave one out")                        \
    X(PP, "pp", NUMBER, pp, 1, 1, true, "", WFI_WHOLE_PIPELINE)                                    \
    X(SCHEDULE, "schedule", OTHER, schedule, 0, 0, true, "",                                       \
      "it has its own order, one round of microbatches after the other: leave schedule out")       \
    X(OUTPUT, "output", NUMBER, output, 0, 0, plan->n_rules && !plan->rules[0].unit,               \
      "chooses the rank of the loss of a model that is replicated as a whole; add "                \
      "dataparallel=N",                                                                            \
      "")                                                                                          \
    X(LANES, "lanes", OTHER, lanes, 0, 0, true, "",                                                \
      "it gives replicas of the whole model uneven shares: leave one out")                         \
    X(PS, "ps", OTHER, ps, 0, 0, !plan->serves_at_workers || plan->n_servers <= plan->dp,          \
      "puts a server on each of as many workers' ranks, and dp has fewer", "")                     \
    X(CHUNKS, "chunks", NUMBER, chunks, 1, 0, true, "", WFI_WHOLE_PIPELINE)                        \
    X(TP, "tp", NUMBER, tp, 1, 1, true, "",                                                        \
      "dp=2,tp=2 replicates what ranks divide: leave one out")                                     \
    X(SP, "sp", SWITCH, divides_rows, 0, false, plan->tp > 1,                                      \
      "divides rows over the ranks of tp, and tp has one rank; add tp=2", "")                      \
    X(CUT, "cut", WORDS, cut, 0, 0, plan->pp > 1, "needs stages to cut into; add pp=2 or more",    \
      WFI_WHOLE_PIPELINE)                                                                          \
    X(HOLD, "hold", NUMBER, hold, 1, 0, plan->schedule->search,                                    \
      "has no effect on a schedule that needs a fixed amount; schedule=auto obeys it",             \
      "schedule=auto,pp=2 obeys it")                                                               \
    X(ZERO, "zero", OTHER, zero, 0, 0, true, "", WFI_WHOLE_STATE)                                  \
    X(SHARD, "shard", NUMBER, shard, 1, 0, plan->strategy->state == WFI_SHARD,                     \
      "sets the number of ranks that divide the state, but the state is not divided; add "         \
      "zero=1, 2 or 3",                                                                            \
      WFI_WHOLE_STATE)                                                                             \
    X(OFFLOAD, "offload", OTHER, offload, 0, 0,                                                    \
      !plan->n_rules || plan->offload[WFI_OFFLOAD_PARAMS] == WFI_SPACE_DEVICE,                     \
      "is not for units that are placed one by one: their parameters stay on the device, from "    \
      "which other ranks read them; state and activations can be offloaded",                       \
      "")                                                                                          \
    X(PREFETCH, "prefetch", NUMBER, prefetch, 0, WFI_DEFAULT_PREFETCH,                             \
      plan->strategy->parameter == WFI_SHARD || wfi_plan_offloads(plan),                           \
      "sets the number of units that parameters are gathered ahead, but parameters are not "       \
      "divided; add zero=3, or offload=params",                                                    \
      "")                                                                                          \
    X(RECOMPUTE, "recompute", WORDS, recompute, 0, 0, true, "", "")                                \
    X(ALLREDUCE, "allreduce", OTHER, allreduce, 0, 0, plan->strategy->gradient != WFI_SHARD,       \
      "has no effect with zero, where each rank sums its slice of the gradients; leave it out",    \
      "")                                                                                          \
    X(SUMS, "sums", OTHER, sums, 0, 0, plan->allreduce->rotates,                                   \
      "has no effect on sums in one rank's order; it is for allreduce=ring and engine; leave it "  \
      "out",                                                                                       \
      "")                                                                                          \
    X(AXES, "axes", OTHER, axes, 0, 0, true, "", "")                                               \
    X(BUCKET, "bucket", OTHER, bucket, 0, 0, true, "", "")                                         \
    X(OVERLAP, "overlap", SWITCH, overlaps, 0, true, true, "", "")
