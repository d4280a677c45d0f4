/* Stopping all threads of the process, and letting them go. */
#pragma once
#include <stdbool.h>

/* Fills `threads`, which run on, but can be stopped from now on. False: refused; then, too, `let_go` has to follow. */
bool seize_all(void);

/* Stops them all, and reads their registers. False as above. */
bool stop_all(void);

/* Every thread runs on, whatever was done with it, and gets each signal that was sent to it meanwhile. False: one that stood still was killed.
 * It is still ours then, and its parent does not hear of its end: this program has to end, too. */
bool let_go(void);
