/* prlimit_shim: lets CRIU read the resource limits of processes that are not root's, where CAP_SYS_RESOURCE is missing.
 *
 * Loaded into CRIU with LD_PRELOAD. CRIU asks for the limits of every process it dumps (prlimit64, reading only). The
 * kernel allows that to a caller with CAP_SYS_RESOURCE, or to one whose *real* uid and gid equal all three of the
 * target's (prlimit(2), check_prlimit_permission() in kernel/sys.c). Containers and small VMs often lack the
 * capability even for root, and CRIU then refuses every process of another user. So, after the kernel said EPERM and
 * never before, this thread takes the target's uid and gid as its real ones, asks once more, and takes its own back.
 *
 * On a host where the call succeeds nothing else happens here: one compare more per call. Everything but a refused
 * *read* of *another* process's limits is passed on untouched; limits are never written for anybody.
 *
 * The danger, for as long as the ids are borrowed (three system calls):
 *   - The target's user may send signals to CRIU (kill(2) goes by the real uid of the receiver too). That user could
 *     stop or end a dump, nothing more: the effective and saved uid stay 0, so neither capabilities nor the dumpable
 *     flag change, and he can neither trace CRIU nor read its memory.
 *   - If the own ids could not be taken back, CRIU would go on under a wrong identity. Then it is aborted, Relive
 *     reports a failed commit and the watchdog sees to it that the target runs on.
 * Ids are changed with raw system calls, which change this thread only; glibc's setresuid() would change all threads.
 *
 * CRIU 3 and 4 call syscall(__NR_prlimit64, ...) for this, so that is the symbol which stands in here, and prlimit64(),
 * in case a CRIU was built to use that. CRIU's parasite and restorer make system calls of their own and are not touched.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { KEEP = -1 }; /* setresuid(2): leave this id as it is */

typedef long raw_call(long number, ...);

/* glibc's syscall(), the one that this library hides. */
static raw_call *raw(void)
{
	static raw_call *found;

	if (!found) {
		found = (raw_call *)dlsym(RTLD_NEXT, "syscall");
		if (!found)
			abort();
	}
	return found;
}

/* Finds "\nNAME:\treal\teffective\tsaved" in /proc/PID/status; false unless the three are equal, since only then can
 * borrowing help (a set-uid program's limits stay unreadable). */
static bool single_id(const char *status, const char *name, unsigned *id)
{
	const char *line = strstr(status, name);
	unsigned effective, saved;

	return line && sscanf(line + strlen(name), "%u %u %u", id, &effective, &saved) == 3 && *id == effective &&
	       *id == saved;
}

static bool ids_of(long pid, unsigned *uid, unsigned *gid)
{
	char path[64], status[4096]; /* both lines lie within the first 300 bytes or so */
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%ld/status", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, status, sizeof(status) - 1);
	close(fd);
	if (length <= 0)
		return false;
	status[length] = '\0';
	/* A process cannot forge these lines with its name: the kernel escapes newlines in it. */
	return single_id(status, "\nUid:", uid) && single_id(status, "\nGid:", gid);
}

/* Asks again as the target's own user. Returns like prlimit64: 0, or -1 with errno. */
static long read_limits_as_owner(long pid, long resource, void *old)
{
	uid_t own_uid = getuid();
	gid_t own_gid = getgid();
	unsigned uid, gid;
	long result = -1;
	int error = EPERM;

	if (!ids_of(pid, &uid, &gid) || (uid == own_uid && gid == own_gid)) {
		errno = EPERM;
		return -1;
	}
	if (raw()(SYS_setresgid, gid, KEEP, KEEP) == 0 && raw()(SYS_setresuid, uid, KEEP, KEEP) == 0) {
		result = raw()(SYS_prlimit64, pid, resource, NULL, old);
		error = errno;
	}
	/* Unconditionally: also when only the first of the two worked. */
	if (raw()(SYS_setresuid, own_uid, KEEP, KEEP) != 0 || raw()(SYS_setresgid, own_gid, KEEP, KEEP) != 0)
		abort();
	errno = error;
	return result;
}

static bool is_refused_read(long result, long pid, const void *new)
{
	return result == -1 && errno == EPERM && pid != 0 && !new;
}

long syscall(long number, ...)
{
	long a, b, c, d, e, f, result;
	va_list arguments;

	/* Six are always taken, however many the caller gave, as glibc's own does: the rest is never looked at. */
	va_start(arguments, number);
	a = va_arg(arguments, long);
	b = va_arg(arguments, long);
	c = va_arg(arguments, long);
	d = va_arg(arguments, long);
	e = va_arg(arguments, long);
	f = va_arg(arguments, long);
	va_end(arguments);

	result = raw()(number, a, b, c, d, e, f);
	if (number == SYS_prlimit64 && is_refused_read(result, a, (void *)c))
		return read_limits_as_owner(a, b, (void *)d);
	return result;
}

int prlimit64(pid_t pid, enum __rlimit_resource resource, const struct rlimit64 *new, struct rlimit64 *old)
{
	long result = raw()(SYS_prlimit64, (long)pid, (long)resource, new, old);

	if (is_refused_read(result, pid, new))
		result = read_limits_as_owner(pid, resource, old);
	return (int)result;
}
