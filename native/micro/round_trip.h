/* A round trip through each thread, for what only the process itself can tell (its actions for signals, its break, its timers).
 *
 * Frames for rt_sigreturn lie one behind the other where the thread keeps nothing. Each makes one system call, by "syscall; ret" of the
 * process's own code, whose answer some other code of it ("mov %rax,(%rdx); ret") keeps where the call does not; the next frame follows. The
 * last call but one sends the thread a signal that it does not catch and that has no effect, at which it stops for us; where it catches all
 * such signals, as programs in Go do, that call sleeps, and we take the thread out of it. Without us it goes on to the last frame, which takes
 * everything back.
 *
 * Nothing is kept below the stack pointer on the main stack, and on the stack that a thread's library made for it: from the start of a mapping
 * to the account of the thread in the same mapping. A thread that stands elsewhere, as goroutines do, and whoever has stacks of his own making,
 * makes the trip on its alternate stack (sigaltstack(2)), if the kernel's objects tell where that is (unchanged.h), nobody stands on it, and no
 * other thread has it, too. The kernel may write there at any moment, for a signal; what was there is put back nevertheless before the
 * thread runs on, unless we are killed. Else the thread is left alone, and the commit refused. */
#pragma once
#include <stdbool.h>

/* Looks for "mov %rax,(%rdx); ret" in the process's code; once. */
bool find_gadget(void);

/* After `look`: whether each thread has room for its frames, if trips will have to be made. One that is in a handler may have none for that
 * long. */
bool have_all_room(void);

/* Has all threads, which stand still, make the trip, and says what they told. They stand still again, but those that somebody else has
 * sent a signal. False: refused. */
bool make_round_trips(void);
bool were_trips_made(void); /* as of the last `make_round_trips`: what it told was not all known */
