/* A signal frame on the unused part of a thread's stack, which holds all its registers: whoever borrows these may be killed at any moment,
 * since the address to which the borrowed system call returns is the process's own rt_sigreturn(2), and that takes everything back.
 *
 * What the kernel takes from such a frame: arch/x86/kernel/signal_64.c and fpu/signal.c. */
#pragma once
#include "process.h"

#include <sys/user.h>

enum { XSTATE_ROOM = 16384 };

struct rseq_place {
	uint64_t pointer;
	uint32_t size, signature, flags, pad;
};
#define GET_RSEQ 0x420f /* a request of ptrace(2) */

/* What a stopped thread has to get back. */
struct context {
	struct user_regs_struct registers;
	uint64_t mask;
	size_t xsize;
	_Alignas(64) unsigned char xstate[XSTATE_ROOM];
	uint64_t frame; /* address of the signal frame in the process */
};

/* False where it cannot be read, or is not that of a 64-bit program. */
bool get_context(pid_t tid, struct context *c);

/* Whether it stands inside a restartable sequence: there registers must not be borrowed, as the kernel would forget that it has to start
 * anew. */
bool in_rseq(pid_t tid, const struct user_regs_struct *r);

/* Once other calls were made in between, the kernel no longer starts an interrupted one anew: it is done here; arch/x86/kernel/signal.c. */
void start_call_anew(struct user_regs_struct *r, bool in_kernel_still);

/* Lays the frame from which rt_sigreturn takes everything back but for the tiles of AMX; its address is in c->frame. False: the thread is
 * not on p's stack, or too little of that is left. */
bool lay_frame(const struct process *p, struct context *c);
