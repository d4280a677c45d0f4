/* The number that the next process or thread of the branch gets, from which on the kernel looks for a free one (ns_last_pid, proc(5)). */
#pragma once
#include <stdbool.h>

/* To be called while the process stands still, by any thread. Each false: refused. */
bool keep_next_number(void);
bool put_next_number_back(void);
