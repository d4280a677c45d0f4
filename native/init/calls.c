/* See calls.h. Numbers: arch/x86/entry/syscalls/syscall_64.tbl and syscall_32.tbl of Linux 6.18. */
#include "calls.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <stddef.h>
#include <unistd.h>

#define NONE { NO_OPERAND, 0, 0, 0 }
#define ONE(dir, path, follows, effect) { dir, path, follows, effect }, NONE, 0
#define TWO(dir, path, effect, dir2, path2, effect2) { dir, path, 0, effect }, { dir2, path2, 0, effect2 }, 0
enum { WRITING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC, HOW = -1, CREAT = -2, X32 = 0x40000000 };
enum { EXIT_GROUP_64 = 231, EXIT_GROUP_32 = 252, STATUS = 0xff };

/* Three stand first, since the filter looks at their arguments. Of openat and open at the flags, so that opening for reading costs
 * nothing. Of utimensat at the path: without one it is about a descriptor (futimens). Of a file that is open for writing each commit
 * takes the times anyhow, so nobody is asked; servers such as gunicorn do this at every turn of their loop, as a sign of life.
 */
static const struct call calls_64[] = {
	{ 257 /* openat */, { 0, 1, 1, OPENS }, NONE, 2 },
	{ 2 /* open */, { AT_CWD, 0, 1, OPENS }, NONE, 1 },
	{ 280 /* utimensat */, { 0, 1, 1, CHANGES }, NONE, 3 },
	{ 437 /* openat2 */, { 0, 1, 1, OPENS }, NONE, HOW },
	{ 85 /* creat */, { AT_CWD, 0, 1, OPENS }, NONE, CREAT },
	{ 76 /* truncate */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 82 /* rename */, TWO(AT_CWD, 0, MOVES_FROM, AT_CWD, 1, MOVES_TO) },
	{ 264 /* renameat */, TWO(0, 1, MOVES_FROM, 2, 3, MOVES_TO) },
	{ 316 /* renameat2 */, { 0, 1, 0, MOVES_FROM }, { 2, 3, 0, MOVES_TO }, 4 },
	/* The file of the old name gets another change time, and is from then on changed by the new name, too. */
	{ 86 /* link */, TWO(AT_CWD, 0, CHANGES, AT_CWD, 1, CREATES) },
	{ 265 /* linkat */, TWO(0, 1, CHANGES, 2, 3, CREATES) },
	{ 88 /* symlink */, ONE(AT_CWD, 1, 0, CREATES) },
	{ 266 /* symlinkat */, ONE(1, 2, 0, CREATES) },
	{ 87 /* unlink */, ONE(AT_CWD, 0, 0, REMOVES) },
	{ 263 /* unlinkat */, ONE(0, 1, 0, REMOVES) },
	{ 84 /* rmdir */, ONE(AT_CWD, 0, 0, REMOVES) },
	{ 83 /* mkdir */, ONE(AT_CWD, 0, 0, CREATES) },
	{ 258 /* mkdirat */, ONE(0, 1, 0, CREATES) },
	{ 133 /* mknod */, ONE(AT_CWD, 0, 0, CREATES) },
	{ 259 /* mknodat */, ONE(0, 1, 0, CREATES) },
	{ 49 /* bind */, ONE(AT_ADDRESS, 1, 0, CREATES) },
	{ 90 /* chmod */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 268 /* fchmodat */, ONE(0, 1, 1, CHANGES) },
	{ 452 /* fchmodat2 */, { 0, 1, 1, CHANGES }, NONE, 3 },
	{ 91 /* fchmod */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 92 /* chown */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 94 /* lchown */, ONE(AT_CWD, 0, 0, CHANGES) },
	{ 93 /* fchown */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 260 /* fchownat */, { 0, 1, 1, CHANGES }, NONE, 4 },
	{ 132 /* utime */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 235 /* utimes */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 261 /* futimesat */, ONE(0, 1, 1, CHANGES) },
	{ 188 /* setxattr */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 189 /* lsetxattr */, ONE(AT_CWD, 0, 0, CHANGES) },
	{ 190 /* fsetxattr */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 463 /* setxattrat */, { 0, 1, 1, CHANGES }, NONE, 2 },
	{ 197 /* removexattr */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 198 /* lremovexattr */, ONE(AT_CWD, 0, 0, CHANGES) },
	{ 199 /* fremovexattr */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 466 /* removexattrat */, { 0, 1, 1, CHANGES }, NONE, 2 },
	{ 161 /* chroot */, ONE(AT_CWD, 0, 1, ENTERS) },
	{ 155 /* pivot_root */, ONE(AT_CWD, 0, 1, ENTERS) },
};

/* Of programs of 32 bits. A unix socket that is bound by socketcall(2) is not seen: its arguments lie behind a pointer. */
static const struct call calls_32[] = {
	{ 295 /* openat */, { 0, 1, 1, OPENS }, NONE, 2 },
	{ 5 /* open */, { AT_CWD, 0, 1, OPENS }, NONE, 1 },
	{ 320 /* utimensat */, { 0, 1, 1, CHANGES }, NONE, 3 },
	{ 437 /* openat2 */, { 0, 1, 1, OPENS }, NONE, HOW },
	{ 8 /* creat */, { AT_CWD, 0, 1, OPENS }, NONE, CREAT },
	{ 92 /* truncate */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 193 /* truncate64 */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 38 /* rename */, TWO(AT_CWD, 0, MOVES_FROM, AT_CWD, 1, MOVES_TO) },
	{ 302 /* renameat */, TWO(0, 1, MOVES_FROM, 2, 3, MOVES_TO) },
	{ 353 /* renameat2 */, { 0, 1, 0, MOVES_FROM }, { 2, 3, 0, MOVES_TO }, 4 },
	{ 9 /* link */, TWO(AT_CWD, 0, CHANGES, AT_CWD, 1, CREATES) },
	{ 303 /* linkat */, TWO(0, 1, CHANGES, 2, 3, CREATES) },
	{ 83 /* symlink */, ONE(AT_CWD, 1, 0, CREATES) },
	{ 304 /* symlinkat */, ONE(1, 2, 0, CREATES) },
	{ 10 /* unlink */, ONE(AT_CWD, 0, 0, REMOVES) },
	{ 301 /* unlinkat */, ONE(0, 1, 0, REMOVES) },
	{ 40 /* rmdir */, ONE(AT_CWD, 0, 0, REMOVES) },
	{ 39 /* mkdir */, ONE(AT_CWD, 0, 0, CREATES) },
	{ 296 /* mkdirat */, ONE(0, 1, 0, CREATES) },
	{ 14 /* mknod */, ONE(AT_CWD, 0, 0, CREATES) },
	{ 297 /* mknodat */, ONE(0, 1, 0, CREATES) },
	{ 361 /* bind */, ONE(AT_ADDRESS, 1, 0, CREATES) },
	{ 15 /* chmod */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 306 /* fchmodat */, ONE(0, 1, 1, CHANGES) },
	{ 452 /* fchmodat2 */, { 0, 1, 1, CHANGES }, NONE, 3 },
	{ 94 /* fchmod */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 182 /* chown16 */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 212 /* chown */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 16 /* lchown16 */, ONE(AT_CWD, 0, 0, CHANGES) },
	{ 198 /* lchown */, ONE(AT_CWD, 0, 0, CHANGES) },
	{ 95 /* fchown16 */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 207 /* fchown */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 298 /* fchownat */, { 0, 1, 1, CHANGES }, NONE, 4 },
	{ 30 /* utime */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 271 /* utimes */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 299 /* futimesat */, ONE(0, 1, 1, CHANGES) },
	{ 412 /* utimensat_time64 */, { 0, 1, 1, CHANGES }, NONE, 3 },
	{ 226 /* setxattr */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 227 /* lsetxattr */, ONE(AT_CWD, 0, 0, CHANGES) },
	{ 228 /* fsetxattr */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 463 /* setxattrat */, { 0, 1, 1, CHANGES }, NONE, 2 },
	{ 235 /* removexattr */, ONE(AT_CWD, 0, 1, CHANGES) },
	{ 236 /* lremovexattr */, ONE(AT_CWD, 0, 0, CHANGES) },
	{ 237 /* fremovexattr */, ONE(AT_DESCRIPTOR, 0, 0, CHANGES) },
	{ 466 /* removexattrat */, { 0, 1, 1, CHANGES }, NONE, 2 },
	{ 61 /* chroot */, ONE(AT_CWD, 0, 1, ENTERS) },
	{ 217 /* pivot_root */, ONE(AT_CWD, 0, 1, ENTERS) },
};

enum { CALLS_64 = sizeof calls_64 / sizeof *calls_64, CALLS_32 = sizeof calls_32 / sizeof *calls_32 };

const struct call *call_of(const struct seccomp_data *data)
{
	bool is_64 = data->arch == AUDIT_ARCH_X86_64;
	const struct call *calls = is_64 ? calls_64 : calls_32;

	for (int i = 0; i < (is_64 ? CALLS_64 : CALLS_32); i++)
		if (calls[i].number == data->nr)
			return &calls[i];
	return NULL;
}

bool is_end(const struct seccomp_data *data)
{
	return data->nr == (data->arch == AUDIT_ARCH_X86_64 ? EXIT_GROUP_64 : EXIT_GROUP_32);
}

/* One architecture's part, which begins with the number of the call in the accumulator: RET instructions end it.
 *
 *   openat? -> flags of openat      open? -> flags of open      utimensat? -> path      any other covered call? -> notify
 *   exit_group? -> status
 *   allow
 *   flags of openat: load argument 2, test      flags of open: load argument 1, test      status: load argument 0, test
 *   path: load both halves of argument 1, test
 *   allow
 *   notify
 */
static int table(struct sock_filter *code, const struct call *calls, int count, unsigned exit_group)
{
	int n = 0, openat_ = count + 2, open_ = count + 4, status = count + 6, path = count + 8, allow = count + 12, notify = count + 13;

#define STEP(c, v, t, f) code[n] = (struct sock_filter)BPF_JUMP(c, v, t, f), n++
#define LOAD(field) STEP(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field), 0, 0)
#define LOAD_HIGH(field) STEP(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field) + sizeof(__u32), 0, 0)
	STEP(BPF_JMP | BPF_JEQ, (unsigned)calls[0].number, openat_ - n - 1, 0);
	STEP(BPF_JMP | BPF_JEQ, (unsigned)calls[1].number, open_ - n - 1, 0);
	STEP(BPF_JMP | BPF_JEQ, (unsigned)calls[2].number, path - n - 1, 0);
	for (int i = 3; i < count; i++)
		STEP(BPF_JMP | BPF_JEQ, (unsigned)calls[i].number, notify - n - 1, 0);
	STEP(BPF_JMP | BPF_JEQ, exit_group, status - n - 1, 0);
	STEP(BPF_RET, SECCOMP_RET_ALLOW, 0, 0);
	LOAD(args[2]);
	STEP(BPF_JMP | BPF_JSET, WRITING, notify - n - 1, allow - n - 1);
	LOAD(args[1]);
	STEP(BPF_JMP | BPF_JSET, WRITING, notify - n - 1, allow - n - 1);
	LOAD(args[0]);
	STEP(BPF_JMP | BPF_JSET, STATUS, notify - n - 1, allow - n - 1);
	LOAD(args[1]);
	STEP(BPF_JMP | BPF_JEQ, 0, 0, notify - n - 1);
	LOAD_HIGH(args[1]);
	STEP(BPF_JMP | BPF_JEQ, 0, allow - n - 1, notify - n - 1);
	STEP(BPF_RET, SECCOMP_RET_ALLOW, 0, 0);
	STEP(BPF_RET, SECCOMP_RET_USER_NOTIF, 0, 0);
	return n;
}

int write_filter(int fd)
{
	enum { HEAD = 5, PART = 14 };	/* steps beside the tests of calls */
	struct sock_filter code[HEAD + CALLS_64 + PART + 1 + CALLS_32 + PART];
	int n = 0;
	size_t size;

	LOAD(arch);
	STEP(BPF_JMP | BPF_JEQ, AUDIT_ARCH_X86_64, 0, HEAD + CALLS_64 + PART - n - 1);
	LOAD(nr);
	STEP(BPF_JMP | BPF_JGE, X32, 0, 1);
	STEP(BPF_RET, SECCOMP_RET_ERRNO | ENOSYS, 0, 0);	/* the x32 interface: hardly a kernel of today has it */
	n += table(code + n, calls_64, CALLS_64, EXIT_GROUP_64);
	LOAD(nr);
	n += table(code + n, calls_32, CALLS_32, EXIT_GROUP_32);
	size = (size_t)n * sizeof *code;
	return write(fd, code, size) == (ssize_t)size ? 0 : errno;
}
