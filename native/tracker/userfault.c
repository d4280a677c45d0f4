/* See userfault.h.
 *
 * Of the process is borrowed: its first thread, stopped (PTRACE_SEIZE and PTRACE_INTERRUPT); a "syscall; ret" of its code; the address of
 * its rt_sigreturn, to which the call returns. It makes userfaultfd(), we take the descriptor over (pidfd_getfd), and it makes close(). */
#define _GNU_SOURCE
#include "userfault.h"

#include "frame.h"
#include "stops.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { TRIES = 100, STOPPED_MS = 200 };

#define USER_MODE_ONLY 1
#define WP_UNPOPULATED (1ULL << 13)
#define WP_ASYNC (1ULL << 15)
#define SUSPEND_SECCOMP 0x200000

bool mending, with_files;
static struct context context;
static bool held; /* the first thread stands still, and it was heard how it stopped */

/* -- what can be seen before anything is stopped ---------------------------------------------------------------- */

long status_number(pid_t pid, const char *name, long missing)
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

/* A signal is about to be delivered: it is passed on, and the thread asked to stop once more. */
static bool interrupted(pid_t tid)
{
	int status;

	for (int i = 0; i < TRIES; i++) {
		held = false;
		if (ptrace(PTRACE_INTERRUPT, tid, 0, 0) || !stopped(tid, &status, STOPPED_MS))
			return false;
		held = true;
		if (is_asked_for(status))
			return WSTOPSIG(status) == SIGTRAP; /* else it is in a group stop: it must not run */
		if (ptrace(PTRACE_CONT, tid, 0, signal_of(status)))
			return false;
	}
	held = false;
	return false;
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
		held = false;
		if (ptrace(PTRACE_SYSCALL, p->pid, 0, 0) || !stopped(p->pid, &status, STOPPED_MS))
			return -EIO;
		held = true;
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

const char *put_to_use(struct process *p)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | WP_UNPOPULATED | WP_ASYNC };

	if (ioctl(p->uffd, UFFDIO_API, &api))
		return "this kernel cannot note writes (Linux 6.7)";
	return look_at_mappings(p);
}

const char *find_what_is_borrowed(struct process *p)
{
	int unused;
	const char *reason = look_at_descriptors(p->pid, &unused);

	return reason ? reason : look_at_mappings(p);
}

static bool lay_frame_on_stack(const struct process *p)
{
	struct unused below;

	return is_unused_below(context.registers.rsp, p->stack, p->stack_end, &below) && lay_frame(p, &below, &context);
}

static const char *borrow(struct process *p, int unused)
{
	const char *reason = NULL;
	long fd = unused;

	for (int i = 0;; i++) {
		if (!interrupted(p->pid))
			return "its first thread could not be stopped";
		if (!get_context(p->pid, &context))
			return "its registers could not be read";
		/* At the call itself it may yet have to make it, for a tracker that was killed. */
		if (!in_rseq(p->pid, &context.registers) && !(mending && context.registers.rip == p->call) && lay_frame_on_stack(p))
			break;
		if (i == TRIES)
			return "its first thread is never on its main stack, and where registers can be borrowed";
		held = false;
		ptrace(PTRACE_CONT, p->pid, 0, 0);
		nap_us(mending ? 2000 : 50);
	}
	if (mending) {
		reason = look_at_descriptors(p->pid, &unused);
		if (reason || unused < 0)
			return reason ? reason : "nothing was left in it";
		fd = unused;
	}
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
		else if (!reason)
			reason = put_to_use(p);
	}
	if (!give_back(p))
		reason = "its registers could not be given back"; /* its frame does that when it is let go */
	return reason;
}

const char *make_userfaultfd(struct process *p)
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
	held = false;
	reason = borrow(p, unused);
	if (held)
		(void)ptrace(PTRACE_DETACH, p->pid, 0, 0);
	else
		let_run(p->pid, STOPPED_MS);
	return reason;
}
