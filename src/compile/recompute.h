/* recompute=auto. Private. */
#pragma once

#include "program/program.h"

/* recompute.c: replaces a program that recomputes nothing, of a plan with recompute=auto, by one
 * that fits into the plan's memory, if there is any. */
wf_status wfi_program_choose_recompute(wf_program **program);
