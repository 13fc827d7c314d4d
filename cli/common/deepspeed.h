/* DeepSpeed's configuration as options of ours.
 * https://www.deepspeed.ai/docs/config-json */
#pragma once

#include "common/options.h"

/* Converts `root` to an object in the form of --config. The number of ranks comes from typed
 * options or a launcher's variables. NULL after a sentence in o->error: a member has no
 * counterpart. The caller releases it. */
json_t *deepspeed_options(options *o, const json_t *root, const options *typed);
