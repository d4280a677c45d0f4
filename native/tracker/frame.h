/* A signal frame in memory of which a thread has no use, as below its stack pointer, which holds all its registers: whoever borrows these may be killed at any moment,
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

/* Where nothing is kept. */
struct unused {
	uint64_t lowest, top;
};

/* What a thread has not used yet of a stack on which it stands; false: it does not stand on that. */
bool is_unused_below(uint64_t stack_pointer, uint64_t start, uint64_t end, struct unused *found);

/* Lays the frame from which rt_sigreturn takes everything back but for the tiles of AMX, at the top of what is unused; its address is in
 * c->frame. False: there is too little room. */
bool lay_frame(const struct process *p, const struct unused *where, struct context *c);
