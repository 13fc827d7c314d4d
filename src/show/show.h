/* Bytes of a program, for reports. Private. */
#pragma once

#include "program/program.h"

/* summary.c: counts the bytes of each lowered rank for reports. */
void wfi_program_sum_blocks(wf_program *p);
/* Bytes that each rank sends and receives. */
wf_status wfi_program_count_traffic(wf_program *p);
/* Which of the program and its tests needs most on the rank. */
const wf_program *wfi_program_largest(const wf_program *p, wfi_space space, int32_t rank);
