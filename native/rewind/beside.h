/* A second thread of the rewinder, which works while the first one does something else: the process stands still for less where a
 * processor is idle. Where none is, the first one does all by itself. Before they sleep both wait for some 300 us for each other, and yield.
 *
 * Work may `refuse`. It must not use what the first one uses meanwhile: `buffer`, `text`, ptrace(2). */
#pragma once
#include <stdbool.h>

/* Once, after the last fork(2) without exec, and before this program's children live in another PID namespace. False: refused. */
bool start_beside(void);

/* Each begun piece has to be ended before the next one. */
void begin_beside(bool (*work)(void));

/* Waits until it is done, or does it where the second thread has not come to it; that not where it does not `count`. False: it was refused; the
 * reason is the caller's where it counts. */
bool end_beside(bool counts);
