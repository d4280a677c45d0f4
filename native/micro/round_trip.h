/* A round trip through each thread, for what only the process itself can tell (its actions for signals, its break, its timers).
 *
 * Frames for rt_sigreturn lie one behind the other on the unused part of the thread's stack. Each makes one
 * system call, by "syscall; ret" of the process's own code, whose answer "mov %rax,(%rdx); ret" keeps where the call does not; the
 * next frame follows. The last call but one sends the thread a signal that it does not catch and that has no effect, at which
 * it stops for us; without us it goes on to the last frame, which takes everything back. A thread is left alone, and the commit
 * refused, where the memory below its stack pointer may be in use: not on its main stack, nor between the start of a mapping and
 * its thread control block in the same mapping. */
#pragma once
#include <stdbool.h>

/* Looks for "mov %rax,(%rdx); ret" in the process's code; once. */
bool find_gadget(void);

/* Has all threads, which stand still, make the trip, and says what they told. They stand still again, but those that somebody else has
 * sent a signal. False: refused. */
bool make_round_trips(void);
bool were_trips_made(void); /* as of the last `make_round_trips`: what it told was not all known */
