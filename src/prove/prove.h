/* The proof of a program that is being made. Private. */
#pragma once

#include "program/program.h"

/* wf_program_check of a program that has just been ordered (order.c), and not changed since. */
wf_status wfi_program_check_ordered(wf_program *p);
