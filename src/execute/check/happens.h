/* The happens-before checker: proves, while a step is issued, that a stream touches memory only
 * when an event says that it may. Private. On with WEFT_CHECK_EVENTS=1.
 *
 * The program check proves that a program's dependencies are enough. This proves that the events
 * which were really issued are: it knows nothing of the program's lists of dependencies, and
 * nothing of timing. Every stream has a vector clock: how many tasks of each other stream are known
 * to be done. A task advances its own stream's, a wait takes in the clock of the event. A task that
 * touches bytes must come after their latest writer; if it writes them, also after all readers
 * since.
 *
 * The checker works on bytes of the arenas, not on blocks. So it also covers reused memory, and
 * slices that ranks read of each other's memory. Streams are idle when a step ends; that the host
 * waited for all of them is checked, and so steps follow each other.
 */
#pragma once

#include "execute/worker.h"

typedef struct wfi_happens wfi_happens;

wf_status wfi_happens_create(const wf_program *p, const wfi_worker *workers,
                             wfi_happens **happens_out);
void wfi_happens_destroy(wfi_happens *happens); /* NULL is allowed */

/* A step begins; all streams are idle. */
void wfi_happens_begin(wfi_happens *happens);
/* The stream of instruction i is about to be given a task of it. */
wf_status wfi_happens_task(wfi_happens *happens, int32_t i);
/* That task touches `bytes` bytes, `offset` after the begin of the reference. Errors: BUG: no
 * event orders this after an earlier task; the sentence names both and the bytes. */
wf_status wfi_happens_touch(wfi_happens *happens, const wfi_reference *reference, size_t offset,
                            size_t bytes, int access);
/* The stream of instruction i waits for the event. */
void wfi_happens_wait(wfi_happens *happens, int32_t i, wfi_event event);
void wfi_happens_host_wait(wfi_happens *happens, wfi_event event);
/* The step is over. Errors: BUG: a stream was not waited for, or was given a task that
 * the checker did not see. */
wf_status wfi_happens_end(wfi_happens *happens);
