/* Waiting for a thread to stop (PTRACE_SEIZE), and letting it go so that it gets every signal that was sent to it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

uint64_t now_ms(void);
void nap_us(long us);

/* Waits for a stop; false when it ended or nothing came within so many ms. It is asked again at once at first, and then every 20 us: a
 * service stands still meanwhile. */
bool stopped(pid_t tid, int *status, uint64_t within_ms);

/* Whether the thread stopped as it was asked to (PTRACE_INTERRUPT), or to get a signal, which it gets when it is made to run on with it. */
bool is_asked_for(int status);
int signal_of(int status);

/* Lets a thread go, wherever it stands now and whatever was heard of it. It may be about to get a signal of which nobody here was told, and
 * PTRACE_DETACH would take that away; so it is stopped once more, and goes on with the signal. One that does not stop within so many ms is
 * let go by the kernel when this program ends. */
void let_run(pid_t tid, uint64_t within_ms);
