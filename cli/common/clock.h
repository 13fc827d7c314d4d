/* The clock of programs. */
#pragma once

/* Returns the seconds of a clock that never goes back. */
double now_seconds(void);
