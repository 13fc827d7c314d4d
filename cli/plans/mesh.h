/* How a plan's axes lie on its ranks. */
#pragma once

#include "common/cli.h"

/* The ranks as a grid, if they are few, and the groups along each axis; of many the first. */
void mesh_say(const cli *c, const wf_plan *plan);
/* The axes, the innermost first: {axis, size, stride, groups}. */
json_t *mesh_json(const wf_plan *plan);
