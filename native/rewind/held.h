/* Threads of the process while they are held: stopping them before they have run, calls made by one of them, and their registers.
 *
 * From `die_with_us` on the process is killed by the kernel when this program ends: it is half of one state and half of another, and nobody
 * may take it for either. `micro/stopping.h` lets it go. */
#pragma once
#include "../micro/base.h"

enum { THREAD_ENDS_MS = 2000 };

/* Takes over all threads of a process that stands still by SIGSTOP, with their registers; it dies with us from here on. False: refused. */
bool take_over(void);

/* Takes the SIGSTOP away; all threads stand still for us alone. False: refused. */
bool take_stop_away(void);
extern bool is_stop_taken_away;

bool die_with_us(void);

/* Has the first thread make a system call; its answer, or -EIO where that went wrong. Its registers are to be set afterwards. */
long call(long number, long first, long second, long third);

/* Has a thread end. False: it did not. */
bool end_thread(const struct thread *t);

/* Gives a thread the registers and the mask of signals in its `context`. */
bool set_registers(const struct thread *t);
