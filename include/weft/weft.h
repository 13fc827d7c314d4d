/* All public headers of weft.
 *
 * Write the model once, and choose in one line how to distribute it. Know time and memory before it
 * runs, and get the same results as on one device.
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

/* The version of these headers; wf_version() is that of the library at run time. */
#define WEFT_VERSION       "0.1.0"
#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#include <weft/array.h>
#include <weft/checkpoint.h>
#include <weft/cluster.h>
#include <weft/context.h>
#include <weft/costs.h>
#include <weft/data.h>
#include <weft/dlpack.h>
#include <weft/file.h>
#include <weft/graph.h>
#include <weft/group.h>
#include <weft/info.h>
#include <weft/job.h>
#include <weft/launch.h>
#include <weft/model.h>
#include <weft/module.h>
#include <weft/nn.h>
#include <weft/plan.h>
#include <weft/program.h>
#include <weft/recipe.h>
#include <weft/schedule.h>
#include <weft/simulation.h>
#include <weft/status.h>
#include <weft/store.h>
#include <weft/timeline.h>
#include <weft/tokenizer.h>
#include <weft/trace.h>
#include <weft/trainer.h>
#include <weft/tune.h>
#include <weft/types.h>
#include <weft/workers.h>

#endif
