/* The number that the next process or thread of the branch gets, from which on the kernel looks for a free one (ns_last_pid, proc(5)). */
#pragma once
#include <stdbool.h>

/* To be called while the process stands still, by any thread. Each false: refused. */
bool keep_next_number(void);
bool put_next_number_back(void);

/* Whether it is so already, as the kernel's own object tells, which told the right number each time before (`note_next_number`). */
bool is_next_number_right(void);

/* It was put back: whether the kernel's object tells it. Not beside. */
void note_next_number(void);
