/* mapped_shim: lets CRIU find the files that processes of a branch have mapped.
 *
 * Loaded into CRIU with LD_PRELOAD for dumps of branches. A branch's root is an overlay over an overlay where the commit's files and the
 * host's are on one file system (relive.sandbox.rootfs). Of a mapped file the kernel keeps the innermost one open, as it is seen by the
 * lower overlay (backing_file_open() in fs/backing-file.c). That is mounted nowhere by now, so CRIU, which opens /proc/PID/map_files, says
 * "Can't lookup mount". The name that the kernel has for it is that in the branch, though. So where a mapped file is one of an overlay,
 * the file of that name is opened in its place, if it is the same one seen by another overlay: of the same number, size and time.
 *
 * CRIU is in the mount namespace of the branch then, whose processes stand still. What is not the same is left as it is, and CRIU refuses.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OVERLAY = 0x794c7630, LONGEST = 4096 };

/* As the entries of /proc/PID/map_files are called: two numbers. */
static bool is_range(const char *name)
{
	size_t first = strspn(name, "0123456789abcdef");
	size_t second = name[first] == '-' ? strspn(name + first + 1, "0123456789abcdef") : 0;

	return first && second && !name[first + 1 + second];
}

static bool is_of_overlay(int file)
{
	struct statfs system;

	return fstatfs(file, &system) == 0 && system.f_type == OVERLAY;
}

static bool is_same_elsewhere(int one, int other)
{
	struct stat a, b;

	return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev != b.st_dev && a.st_ino == b.st_ino &&
	       a.st_size == b.st_size && a.st_mode == b.st_mode && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
	       a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

/* Put the file that is seen under the mapped one's name in its place. */
static void look_from_above(int mapped, int flags)
{
	char link[32], name[LONGEST];
	ssize_t length;
	int seen;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", mapped);
	length = readlink(link, name, sizeof(name) - 1);
	if (length <= 0)
		return;
	name[length] = '\0';
	seen = (int)syscall(SYS_openat, AT_FDCWD, name, flags | O_NOFOLLOW | O_CLOEXEC, 0);
	if (seen < 0)
		return;
	if (is_of_overlay(seen) && is_same_elsewhere(mapped, seen))
		dup3(seen, mapped, flags & O_CLOEXEC);
	close(seen);
}

static int opened(int directory, const char *name, int flags, mode_t mode)
{
	int file = (int)syscall(SYS_openat, directory, name, flags, mode);
	int error = errno;

	if (file >= 0 && is_range(name) && is_of_overlay(file))
		look_from_above(file, flags);
	errno = error;
	return file;
}

int openat(int directory, const char *name, int flags, ...)
{
	mode_t mode;
	va_list arguments;

	va_start(arguments, flags);
	mode = va_arg(arguments, mode_t);
	va_end(arguments);
	return opened(directory, name, flags, mode);
}

int openat64(int directory, const char *name, int flags, ...)
{
	mode_t mode;
	va_list arguments;

	va_start(arguments, flags);
	mode = va_arg(arguments, mode_t);
	va_end(arguments);
	return opened(directory, name, flags, mode);
}

/* As programs call them that were compiled with _FORTIFY_SOURCE. */
int __openat_2(int directory, const char *name, int flags)
{
	return opened(directory, name, flags, 0);
}

int __openat64_2(int directory, const char *name, int flags)
{
	return opened(directory, name, flags, 0);
}
