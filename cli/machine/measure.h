/* weft info --measure: this machine as a cluster file. */
#pragma once

#include "common/cli.h"

/* Measures the machine and writes the file of --measure, of which the caller has checked that it
 * can be written. `memory_bytes`: of the machine. Complains. */
exit_status measure_machine(const cli *c, double memory_bytes);
