/* Stopping all threads of the process, and letting them go. */
#pragma once
#include <stdbool.h>

/* Fills `threads` with their registers. False: refused; then, too, `let_go` has to follow. */
bool stop_all(void);

/* Every thread runs on, whatever was done with it, and gets each signal that was sent to it meanwhile. */
void let_go(void);
