/* The descriptors of the process: of each its file, its flags, and the state of what it leads to as far as it can be seen. */
#pragma once
#include <stdbool.h>

/* To be called while all threads stand still. False: refused. */
bool say_descriptors(void);

/* Looks at what can be looked at while they run, for nothing (look.h). */
void rehearse_descriptors(void);
