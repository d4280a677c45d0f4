/* The recorded wall clock of a branch (`relive.sandbox.clock`): a shift that is written into its vDSO, in six constants. Since the reference
 * time has passed, by which it is made smaller, so that the clock begins anew. */
#pragma once
#include <stdbool.h>

/* Finds the constants; `shift_ns` is what was written there. False: refused, they are not there. */
bool find_wall_clock(long long shift_ns);

/* Has it tell again what it told at the reference. False: refused. */
bool put_wall_clock_back(void);
