/* A schedule as text: a row a stage, time from left to right. */
#pragma once

#include "common/cli.h"

/* As wide as the terminal, or 80 columns; in colour on a terminal. The first `n_rows` stages. */
void say_schedule(const cli *c, const wf_schedule_result *result, int n_rows);
