/* The clock of programs. */
#ifndef CLI_CLOCK_H
#define CLI_CLOCK_H

/* Returns the seconds of a clock that never goes back. */
double now_seconds(void);

#endif
