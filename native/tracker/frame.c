/* See frame.h. */
#define _GNU_SOURCE
#include "frame.h"

#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum {
	NO_TILES = 2696, /* [bytes] of XSAVE's standard format before the state of AMX */
	RED_ZONE = 128,
};

#define RESTARTSYS (-512L)
#define RESTARTNOINTR (-513L)
#define RESTARTNOHAND (-514L)
#define RESTART_BLOCK (-516L)

bool in_rseq(pid_t tid, const struct user_regs_struct *r)
{
	struct rseq_place place = { 0 };
	uint64_t section = 0;

	if ((long)r->orig_rax >= 0)
		return false; /* no system call is made inside one */
	if (ptrace(GET_RSEQ, tid, sizeof place, &place) < 0 || !place.pointer)
		return false;
	return !peek(tid, place.pointer + 8, &section, sizeof section) || section;
}

/* Once other calls were made in between, the kernel no longer starts an interrupted one anew; arch/x86/kernel/signal.c. */
void start_call_anew(struct user_regs_struct *r, bool in_kernel_still)
{
	long result = (long)r->rax;

	if ((long)r->orig_rax < 0)
		return;
	if (result == RESTARTSYS || result == RESTARTNOINTR || result == RESTARTNOHAND) {
		r->rax = r->orig_rax;
		r->rip -= 2;
	} else if (result == RESTART_BLOCK && in_kernel_still) {
		r->rax = SYS_restart_syscall;
		r->rip -= 2;
	} else if (result == RESTART_BLOCK) {
		r->rax = (unsigned long)-EINTR;
	}
	r->orig_rax = (unsigned long)-1;
}

bool get_context(pid_t tid, struct context *c)
{
	struct iovec x = { c->xstate, sizeof c->xstate };

	if (ptrace(PTRACE_GETREGS, tid, 0, &c->registers) || ptrace(PTRACE_GETSIGMASK, tid, sizeof c->mask, &c->mask) ||
	    ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &x))
		return false;
	c->xsize = x.iov_len;
	return c->registers.cs == 0x33 && c->xsize >= 576 && c->xsize <= sizeof c->xstate;
}

bool is_unused_below(uint64_t stack_pointer, uint64_t start, uint64_t end, struct unused *found)
{
	*found = (struct unused){ start + PAGE, stack_pointer - RED_ZONE };
	return stack_pointer > start && stack_pointer <= end;
}

bool lay_frame(const struct process *p, const struct unused *where, struct context *c)
{
	static unsigned char image[8 + sizeof(ucontext_t) + 64 + XSTATE_ROOM + 64];
	struct user_regs_struct r = c->registers;
	uint64_t features, fpu, frame;
	size_t xsize = c->xsize;
	uint32_t word;
	ucontext_t *u = (ucontext_t *)(image + 8);
	greg_t *g = u->uc_mcontext.gregs;
	struct iovec here, there;

	memcpy(&features, c->xstate + 464, sizeof features);
	if (xsize > 4096) {
		features &= ~(3ULL << 17);
		xsize = NO_TILES;
	}
	fpu = (where->top - xsize - 4) & ~63ULL;
	frame = (fpu - 8 - sizeof(ucontext_t)) & ~63ULL;
	if (frame >= where->top || frame < where->lowest)
		return false;
	memset(image, 0, sizeof image);
	start_call_anew(&r, false);
	memcpy(image, &p->restore, 8);
	u->uc_flags = 7;		     /* extended state, and ss as it was */
	u->uc_stack.ss_flags = 0x7fffffff; /* refused without a word: the alternate stack stays as it is */
	g[REG_R8] = (greg_t)r.r8, g[REG_R9] = (greg_t)r.r9, g[REG_R10] = (greg_t)r.r10, g[REG_R11] = (greg_t)r.r11;
	g[REG_R12] = (greg_t)r.r12, g[REG_R13] = (greg_t)r.r13, g[REG_R14] = (greg_t)r.r14, g[REG_R15] = (greg_t)r.r15;
	g[REG_RDI] = (greg_t)r.rdi, g[REG_RSI] = (greg_t)r.rsi, g[REG_RBP] = (greg_t)r.rbp, g[REG_RBX] = (greg_t)r.rbx;
	g[REG_RDX] = (greg_t)r.rdx, g[REG_RAX] = (greg_t)r.rax, g[REG_RCX] = (greg_t)r.rcx, g[REG_RSP] = (greg_t)r.rsp;
	g[REG_RIP] = (greg_t)r.rip, g[REG_EFL] = (greg_t)r.eflags;
	g[REG_CSGSFS] = (greg_t)((r.cs & 0xffff) | (r.gs & 0xffff) << 16 | (r.fs & 0xffff) << 32 | (r.ss & 0xffff) << 48);
	u->uc_mcontext.fpregs = (fpregset_t)fpu;
	memcpy(&u->uc_sigmask, &c->mask, sizeof c->mask);
	memcpy(image + (fpu - frame), c->xstate, xsize);
	memset(image + (fpu - frame) + 464, 0, 48);
	word = 0x46505853; /* FP_XSTATE_MAGIC1 */
	memcpy(image + (fpu - frame) + 464, &word, 4);
	word = (uint32_t)xsize + 4;
	memcpy(image + (fpu - frame) + 468, &word, 4);
	memcpy(image + (fpu - frame) + 472, &features, 8);
	word = (uint32_t)xsize;
	memcpy(image + (fpu - frame) + 480, &word, 4);
	word = 0x46505845; /* FP_XSTATE_MAGIC2 */
	memcpy(image + (fpu - frame) + xsize, &word, 4);
	c->frame = frame;
	here = (struct iovec){ image, fpu - frame + xsize + 4 };
	there = (struct iovec){ (void *)frame, here.iov_len };
	return process_vm_writev(p->pid, &here, 1, &there, 1, 0) == (ssize_t)here.iov_len;
}
