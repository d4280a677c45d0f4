/* How a process is made to hand out a userfaultfd for its memory, with which writes to it are noted from outside.
 *
 * The danger is step 1: a process whose registers are borrowed while this program is killed. Hence, before anything is
 * changed, a signal frame is laid on the unused part of its stack that holds all its registers. The borrowed system call
 * is a "syscall; ret" found in the process, and the address it returns to is its own rt_sigreturn, which takes everything
 * back from that frame, without us. What may then remain is an open userfaultfd that was never put to use, with which CRIU
 * cannot dump the process; the next tracker closes it. A process is skipped that has no such code, or whose first thread is not on its main stack, where
 * memory below the stack pointer may be in use (coroutines).
 */
#ifndef RELIVE_TRACKING_H
#define RELIVE_TRACKING_H
#define _GNU_SOURCE
#include "pagemap_scan.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum {
	PAGE = 4096,
	WINDOW = 2048, /* [pages] protected and copied at a time: so long at most is the memory's lock held */
	REGIONS = 1024,
	ROUNDS = 5,
	FEW = 64, /* [pages] so many that have changed are left to the commit */
	TRIES = 100,
	STOPPED_MS = 200,
	XSTATE_ROOM = 16384,
	NO_TILES = 2696, /* [bytes] of XSAVE's standard format before the state of AMX */
	RED_ZONE = 128,
};

#define TASK_END 0x7ffffffff000ULL

#define USER_MODE_ONLY 1
#define WP_UNPOPULATED (1ULL << 13)
#define WP_ASYNC (1ULL << 15)

#define SUSPEND_SECCOMP 0x200000
#define GET_RSEQ 0x420f
#define RESTARTSYS (-512L)
#define RESTARTNOINTR (-513L)
#define RESTARTNOHAND (-514L)
#define RESTART_BLOCK (-516L)

struct rseq_place {
	uint64_t pointer;
	uint32_t size, signature, flags, pad;
};

struct process {
	pid_t pid;
	int handle, uffd, pagemap, pages, runs;
	uint64_t call;	  /* address of "syscall; ret" */
	uint64_t restore; /* address of "rt_sigreturn" */
	uint64_t stack, stack_end;
	const char *skipped;
};

/* What a stopped thread has to get back. */
struct context {
	struct user_regs_struct registers;
	uint64_t mask;
	size_t xsize;
	_Alignas(64) unsigned char xstate[XSTATE_ROOM];
	uint64_t frame; /* address of the signal frame in the process */
};

static unsigned char *buffer; /* WINDOW pages */
static struct context context;
static bool mending;	      /* nothing is to be tracked */
static bool with_files; /* private mappings of files are tracked, too, and those that are not writable now */

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void nap_us(long us)
{
	struct timespec t = { 0, us * 1000 };

	nanosleep(&t, NULL);
}

static bool peek(pid_t pid, uint64_t from, void *to, size_t size)
{
	struct iovec here = { to, size }, there = { (void *)from, size };

	return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

/* -- what can be seen before anything is stopped ---------------------------------------------------------------- */

static long status_number(pid_t pid, const char *name, long missing)
{
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return missing;
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ':') {
			missing = strtol(line + strlen(name) + 1, NULL, 10);
			break;
		}
	fclose(f);
	return missing;
}

/* A number of /proc/PID/fdinfo/FD, by the form of its line; 0 where there is none. */
static unsigned fdinfo_number(pid_t pid, const char *fd, const char *form)
{
	char path[300], line[256];
	unsigned found = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/fdinfo/%s", (int)pid, fd);
	f = fopen(path, "r");
	if (!f)
		return 0;
	while (fgets(line, sizeof line, f) && sscanf(line, form, &found) != 1)
		;
	fclose(f);
	return found;
}

/* Looks at all descriptors. A reason not to track, or NULL; *unused becomes a userfaultfd that was made and never put to
 * use, which an earlier tracker left when it was killed, or -1. */
static const char *look_at_descriptors(pid_t pid, int *unused)
{
	char path[300], target[128];
	const char *reason = NULL;
	struct dirent *entry;
	ssize_t length;
	DIR *all;

	*unused = -1;
	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	all = opendir(path);
	if (!all)
		return "gone";
	while (!reason && (entry = readdir(all))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/%d/fd/%s", (int)pid, entry->d_name);
		length = readlink(path, target, sizeof target - 1);
		if (length < 0)
			continue;
		target[length] = 0;
		/* "API: code:features:...", features being 0 until UFFDIO_API (fs/userfaultfd.c) */
		if (!strcmp(target, "anon_inode:[userfaultfd]")) {
			if (!fdinfo_number(pid, entry->d_name, "API: %*x:%x"))
				*unused = atoi(entry->d_name);
			else
				reason = "it uses userfaultfd";
		} else if (!strcmp(target, "anon_inode:[io_uring]")) {
			reason = "it uses io_uring";
		} else if (fdinfo_number(pid, entry->d_name, "flags: %o") & O_DIRECT) {
			reason = "it has a file open with O_DIRECT";
		}
	}
	closedir(all);
	return reason;
}

static void find_code(struct process *p, uint64_t start, uint64_t end)
{
	static const unsigned char call[] = { 0x0f, 0x05, 0xc3 };
	static const unsigned char restore[][9] = { { 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05 },
						    { 0xb8, 15, 0, 0, 0, 0x0f, 0x05 } };
	static const size_t lengths[] = { 9, 7 };
	const size_t room = (size_t)WINDOW * PAGE;
	unsigned char *found;

	for (; start < end && !(p->call && p->restore); start += room - PAGE) {
		size_t size = end - start < room ? end - start : room;

		if (!peek(p->pid, start, buffer, size))
			return;
		found = p->call ? NULL : memmem(buffer, size, call, sizeof call);
		if (found)
			p->call = start + (uint64_t)(found - buffer);
		for (int i = 0; i < 2 && !p->restore; i++) {
			found = memmem(buffer, size, restore[i], lengths[i]);
			if (found)
				p->restore = start + (uint64_t)(found - buffer);
		}
		if (size < room)
			return;
	}
}

/* Goes through the mappings once: where the code is that a call needs (uffd < 0), or registers what is to be tracked. The
 * latter while the first thread stands still: a mapping that is replaced meanwhile would be registered in part, and the
 * kernel does not move (mremap) what is in parts. */
static const char *look_at_mappings(struct process *p)
{
	char path[64], line[512], rights[8];
	unsigned long long start, end, inode;
	const char *reason = NULL;
	bool is_there = false;
	int at;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/maps", (int)p->pid);
	f = fopen(path, "r");
	if (!f)
		return "gone";
	while (!reason && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%llx-%llx %7s %*x %*s %llu %n", &start, &end, rights, &inode, &at) < 4)
			continue;
		is_there = true;
		if (p->uffd < 0) {
			if (!strncmp(line + at, "[stack]", 7)) {
				p->stack = start;
				p->stack_end = end;
			} else if (!strncmp(line + at, "/[aio]", 6)) {
				reason = "it uses Linux AIO";
			} else if (!strncmp(rights, "r-xp", 4)) {
				find_code(p, start, end);
			}
		} else if (rights[3] == 'p' && (with_files ? strncmp(line + at, "[v", 2) : rights[1] == 'w' && !inode)) {
			struct uffdio_register asked = { .range = { start, end - start },
							 .mode = UFFDIO_REGISTER_MODE_WP };

			/* What is refused (huge pages of a pool, a mapping that has gone) is not tracked, and dumped whole. */
			(void)ioctl(p->uffd, UFFDIO_REGISTER, &asked);
		}
	}
	fclose(f);
	if (!is_there)
		return "gone"; /* a zombie */
	if (!reason && p->uffd < 0 && !(p->call && p->restore && p->stack))
		reason = "no code in it makes a system call that returns";
	return reason;
}

/* -- the borrowed system call ------------------------------------------------------------------------------------- */

/* Waits for a stop; false when it ended or nothing came. */
static bool stopped(pid_t tid, int *status)
{
	uint64_t until = now_ms() + STOPPED_MS;

	for (;;) {
		pid_t found = waitpid(tid, status, __WALL | WNOHANG);

		if (found < 0)
			return false;
		if (found == tid)
			return WIFSTOPPED(*status);
		if (now_ms() > until)
			return false;
		nap_us(20);
	}
}

/* A signal is about to be delivered: it is passed on, and the thread asked to stop once more. */
static bool interrupted(pid_t tid)
{
	int status;

	for (int i = 0; i < TRIES; i++) {
		if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) || !stopped(tid, &status))
			return false;
		if (status >> 16 == PTRACE_EVENT_STOP)
			return WSTOPSIG(status) == SIGTRAP; /* else it is in a group stop: it must not run */
		if (ptrace(PTRACE_CONT, tid, 0, WSTOPSIG(status)))
			return false;
	}
	return false;
}

/* Inside a restartable sequence registers must not be borrowed: the kernel would forget that it has to start anew. */
static bool in_rseq(pid_t tid, const struct user_regs_struct *r)
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
static void start_call_anew(struct user_regs_struct *r, bool in_kernel_still)
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

static bool get_context(pid_t tid, struct context *c)
{
	struct iovec x = { c->xstate, sizeof c->xstate };

	if (ptrace(PTRACE_GETREGS, tid, 0, &c->registers) || ptrace(PTRACE_GETSIGMASK, tid, sizeof c->mask, &c->mask) ||
	    ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &x))
		return false;
	c->xsize = x.iov_len;
	return c->registers.cs == 0x33 && c->xsize >= 576 && c->xsize <= sizeof c->xstate;
}

/* Lays the frame from which rt_sigreturn takes everything back; arch/x86/kernel/signal_64.c and fpu/signal.c. */
static bool lay_frame(struct process *p, struct context *c)
{
	static unsigned char image[8 + sizeof(ucontext_t) + 64 + XSTATE_ROOM + 64];
	struct user_regs_struct r = c->registers;
	uint64_t features, top, fpu, frame;
	uint32_t word;
	ucontext_t *u = (ucontext_t *)(image + 8);
	greg_t *g = u->uc_mcontext.gregs;
	struct iovec here, there;

	memcpy(&features, c->xstate + 464, sizeof features);
	if (c->xsize > 4096) {
		features &= ~(3ULL << 17);
		c->xsize = NO_TILES;
	}
	if (r.rsp <= p->stack || r.rsp > p->stack_end)
		return false;
	top = r.rsp - RED_ZONE;
	fpu = (top - c->xsize - 4) & ~63ULL;
	frame = (fpu - 8 - sizeof(ucontext_t)) & ~63ULL;
	if (frame >= r.rsp || frame < p->stack + PAGE)
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
	memcpy(image + (fpu - frame), c->xstate, c->xsize);
	memset(image + (fpu - frame) + 464, 0, 48);
	word = 0x46505853; /* FP_XSTATE_MAGIC1 */
	memcpy(image + (fpu - frame) + 464, &word, 4);
	word = (uint32_t)c->xsize + 4;
	memcpy(image + (fpu - frame) + 468, &word, 4);
	memcpy(image + (fpu - frame) + 472, &features, 8);
	word = (uint32_t)c->xsize;
	memcpy(image + (fpu - frame) + 480, &word, 4);
	word = 0x46505845; /* FP_XSTATE_MAGIC2 */
	memcpy(image + (fpu - frame) + c->xsize, &word, 4);
	c->frame = frame;
	here = (struct iovec){ image, fpu - frame + c->xsize + 4 };
	there = (struct iovec){ (void *)frame, here.iov_len };
	return process_vm_writev(p->pid, &here, 1, &there, 1, 0) == (ssize_t)here.iov_len;
}

/* Has the stopped thread make a call; -EIO when that went wrong. Afterwards it stands behind the call. */
static long borrowed_call(struct process *p, long number, long first)
{
	struct user_regs_struct r = context.registers;
	uint64_t all = ~0ULL;
	int status;

	r.rip = p->call;
	r.rsp = context.frame;
	r.rax = (unsigned long)number;
	r.rdi = (unsigned long)first;
	r.orig_rax = (unsigned long)-1;
	r.eflags &= ~0x100UL;
	/* In this order: from here on the frame gives everything back, the mask of signals too. */
	if (ptrace(PTRACE_SETREGS, p->pid, 0, &r) || ptrace(PTRACE_SETSIGMASK, p->pid, sizeof all, &all))
		return -EIO;
	for (int i = 0; i < 2;) {
		if (ptrace(PTRACE_SYSCALL, p->pid, 0, 0) || !stopped(p->pid, &status))
			return -EIO;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80))
			i++;
	}
	return ptrace(PTRACE_GETREGS, p->pid, 0, &r) ? -EIO : (long)r.rax;
}

static bool give_back(struct process *p)
{
	struct user_regs_struct r = context.registers;

	start_call_anew(&r, true);
	return !ptrace(PTRACE_SETSIGMASK, p->pid, sizeof context.mask, &context.mask) &&
	       !ptrace(PTRACE_SETREGS, p->pid, 0, &r);
}

static const char *borrow(struct process *p, int unused)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | WP_UNPOPULATED | WP_ASYNC };
	const char *reason = NULL;
	long fd = unused;

	for (int i = 0;; i++) {
		if (!interrupted(p->pid))
			return "its first thread could not be stopped";
		if (!get_context(p->pid, &context))
			return "its registers could not be read";
		/* At the call itself it may yet have to make it, for a tracker that was killed. */
		if (!in_rseq(p->pid, &context.registers) && !(mending && context.registers.rip == p->call))
			break;
		if (i == TRIES)
			return "its first thread is never where registers can be borrowed";
		ptrace(PTRACE_CONT, p->pid, 0, 0);
		nap_us(mending ? 2000 : 50);
	}
	if (mending) {
		reason = look_at_descriptors(p->pid, &unused);
		if (reason || unused < 0)
			return reason ? reason : "nothing was left in it";
		fd = unused;
	}
	if (!lay_frame(p, &context))
		return "its first thread is not on its main stack";
	if (fd < 0)
		fd = borrowed_call(p, SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
	if (fd < 0) {
		reason = "it may not make a userfaultfd";
	} else {
		p->uffd = (int)syscall(SYS_pidfd_getfd, p->handle, (int)fd, 0);
		if (p->uffd < 0)
			reason = "its userfaultfd could not be taken over";
		if (borrowed_call(p, SYS_close, fd) != 0)
			reason = "its userfaultfd could not be closed in it";
		else if (!reason && ioctl(p->uffd, UFFDIO_API, &api))
			reason = "this kernel cannot note writes (Linux 6.7)";
		else if (!reason)
			reason = look_at_mappings(p);
	}
	if (!give_back(p))
		reason = "its registers could not be given back"; /* its frame does that when it is let go */
	return reason;
}

static const char *make_userfaultfd(struct process *p)
{
	const char *reason;
	int unused;

	reason = look_at_descriptors(p->pid, &unused);
	if (!reason)
		reason = look_at_mappings(p);
	if (reason)
		return reason;
	if (ptrace(PTRACE_SEIZE, p->pid, 0, PTRACE_O_TRACESYSGOOD | SUSPEND_SECCOMP) &&
	    ptrace(PTRACE_SEIZE, p->pid, 0, PTRACE_O_TRACESYSGOOD))
		return "it is traced already";
	reason = borrow(p, unused);
	/* When it is not stopped now, it is let go when this program ends. */
	(void)ptrace(PTRACE_DETACH, p->pid, 0, 0);
	return reason;
}

static bool write_all(int fd, const void *from, size_t size)
{
	const char *at = from;

	while (size) {
		ssize_t done = write(fd, at, size);

		if (done <= 0)
			return false;
		at += done;
		size -= (size_t)done;
	}
	return true;
}

#endif
