/* Placement: where a thing lives along an axis of the mesh. Private.
 *
 * A collective is a change from one placement to another:
 *   ROOT -> REPLICATE     broadcast     PARTIAL -> REPLICATE   all-reduce
 *   ROOT -> SHARD         scatter       PARTIAL -> ROOT        reduce
 *   SHARD -> ROOT         gather        PARTIAL -> SHARD       reduce-scatter
 *   SHARD -> REPLICATE    all-gather
 */
#ifndef WFI_PLACEMENT_H
#define WFI_PLACEMENT_H

typedef enum wfi_placement {
    WFI_ROOT,      /* the first replica has it, the others have nothing */
    WFI_REPLICATE, /* each replica has the whole */
    WFI_SHARD,     /* each replica has its part */
    WFI_PARTIAL    /* each replica has a summand */
} wfi_placement;

#endif
