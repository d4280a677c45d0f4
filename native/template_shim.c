/* template_shim: makes CRIU a template of itself, from which processes are forked that restore one commit many times.
 *
 * Loaded into CRIU with LD_PRELOAD for that alone, with RELIVE_TEMPLATE=ORDERS:TABLE (numbers of descriptors). When all libraries are
 * loaded, before CRIU's own main():
 *
 * 1. The private memory of the commit's processes is mapped and filled as TABLE says, from page files that were checked, and "r" is said
 *    on ORDERS (a socket, SOCK_SEQPACKET). TABLE is text, a line each:
 *      region PAGES FD PROT FLAGS BYTES FILE OFFSET
 *                                             what one mapping of a process shall be; FD reads pages-PAGES.img, FILE is what is mapped
 *                                             from OFFSET on (-1: nothing), as the lowest overlay of a branch would see it
 *      run FILE_OFFSET BYTES OFFSET           pages of the region above: from there in the file, to there in the region
 * 2. Each order makes one CRIU. It is numbers as text, "LIMIT CHANNEL KEPT...", and behind a null byte each the directories of its control
 *    groups, with these descriptors: a socket for the answer, a handle of process 1 of the namespaces it shall live in (pidfd_open(2)), its
 *    root directory there, and one for each of the numbers behind LIMIT, which it has under that number. It is a child of the template, a
 *    process of that PID namespace, and goes on with main(), to converse on CHANNEL. It is born in the groups, or joins them by itself, as
 *    far as nobody has to wait for that (native/init/starter.c); whoever orders has to see whether it is in all. The answer is its pid, or
 *    -errno: -ETIMEDOUT where it is not through with its groups after LIMIT ms (one that is frozen stops whoever joins it), and is killed.
 *    Later, on the same socket, follows "e STATUS" (wait(2)) when it has ended; until the socket is closed it is not reaped, so its number
 *    is not another's. Closing it before that kills it.
 * 3. When ORDERS hangs up the template ends, and so does every CRIU that has not.
 *
 * In those CRIUs preadv() from pages-PAGES.img, with which CRIU fills a mapping that it has made in advance (PAGES in a mapping with a
 * parent are always filled so, see criu_template.py), puts the region of the template in the place of that mapping, by mremap(2). So
 * memory is what it always is, private and anonymous, and those who write to it get pages of their own; until then it is shared by all.
 * What is in no region is read from the file. A file of pages is known by its name: all that a template restores is one commit, checked.
 *
 * A region of a file takes the place only of a mapping of the same file: what CRIU gives to mmap(2) has its number, size and times in the
 * branch, too. Overlayfs keeps the number of a file that it copied for who writes to it, and its time of modification, but not that of its
 * change, which is of now. So a mapping shows the bytes that CRIU's own would show, where no page of the commit is over them.
 *
 * CRIU makes processes that it restores by clone3(2), or by clone(2) where there is no such call. It makes two processes of its own, too:
 * one to try something, by clone(2) with CLONE_UNTRACED, and one to move threads to control groups, by fork(2), where the images name
 * such. These get no regions, as copying and freeing their page tables is what costs most there.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CHILDREN = 128, MOST_RIGHTS = 250, MOST_GROUPS = 16, TEXT = 8192, ARGUMENT = 16, LEFT_OUT_FROM = 1 << 16 };
enum { ANSWER, FIRST, ROOT, KEPT }; /* the rights of an order */
enum { NOBODY = -1 };

struct region {
	unsigned pages;
	char *memory;
	size_t bytes;
	char *moved_to; /* NULL: it is still the template's */
	bool is_of_file;
	off_t offset; /* and the next two: of a file */
	struct stat facts;
	char *same_at; /* where CRIU has mapped the same; NULL: nowhere, or not yet */
};

struct run {
	uint64_t file_offset, bytes, offset;
	struct region *region;
};

struct child {
	pid_t pid;
	int line; /* NOBODY: it was killed, and is reaped when it has ended, which takes one that is frozen until it is thawed */
	bool has_ended;
};

static struct region *regions;
static struct run *runs; /* by file, and in that by offset */
static size_t region_count, run_count;
static struct child children[MOST_CHILDREN];
static size_t child_count;
static pid_t (*real_fork)(void);
static int (*real_clone)(int (*)(void *), void *, int, void *, ...);
static bool is_criu; /* no more the template */

static __attribute__((noreturn)) void give_up(const char *why)
{
	fprintf(stderr, "template: %s: %s\n", why, strerror(errno));
	_exit(70);
}

static void *raw_mmap(void *place, size_t bytes, int protection, int flags, int file, off_t offset)
{
	return (void *)syscall(SYS_mmap, place, bytes, protection, flags, file, offset);
}

static void fill(int file, const struct run *run)
{
	for (uint64_t done = 0; done < run->bytes;) {
		ssize_t got = pread(file, run->region->memory + run->offset + done, run->bytes - done, (off_t)(run->file_offset + done));

		if (got <= 0)
			give_up("a page file is too short");
		done += (uint64_t)got;
	}
}

static void add_region(const char *line, int *file, int *protection)
{
	unsigned flags;
	int mapped;
	struct region *made = &regions[region_count];

	if (sscanf(line, "region %u %d %d %u %zu %d %ld", &made->pages, file, protection, &flags, &made->bytes, &mapped, &made->offset) != 7)
		give_up("no region");
	made->is_of_file = mapped >= 0;
	if (made->is_of_file && fstat(mapped, &made->facts))
		give_up("no file");
	made->memory = raw_mmap(NULL, made->bytes, PROT_READ | PROT_WRITE, (int)flags, mapped, made->offset);
	if (made->memory == MAP_FAILED)
		give_up("no memory");
	region_count++;
}

static void add_run(const char *line, int file)
{
	struct run *made = &runs[run_count];

	if (!region_count || sscanf(line, "run %lu %lu %lu", &made->file_offset, &made->bytes, &made->offset) != 3)
		give_up("no run");
	made->region = &regions[region_count - 1];
	if (run_count && (made[-1].region->pages > made->region->pages ||
			  (made[-1].region->pages == made->region->pages && made[-1].file_offset + made[-1].bytes > made->file_offset)))
		give_up("runs are not in order");
	if (made->offset > made->region->bytes || made->bytes > made->region->bytes - made->offset)
		give_up("a run is outside of its region");
	fill(file, made);
	run_count++;
}

static void protect(int protection)
{
	struct region *last = &regions[region_count - 1];

	/* As CRIU maps in advance: it takes the right to write away when all is in place. */
	if (region_count && mprotect(last->memory, last->bytes, protection | PROT_WRITE))
		give_up("memory cannot be protected");
}

static size_t count_lines(FILE *table)
{
	size_t lines = 0;

	for (int read; (read = getc(table)) != EOF;)
		lines += read == '\n';
	rewind(table);
	return lines;
}

static void read_table(int number)
{
	FILE *table = fdopen(number, "r");
	char line[TEXT];
	int file = -1, protection = 0;
	size_t lines;

	if (!table)
		give_up("no table");
	lines = count_lines(table);
	regions = calloc(lines + 1, sizeof *regions);
	runs = calloc(lines + 1, sizeof *runs);
	if (!regions || !runs)
		give_up("no memory");
	/* Pages are moved to addresses of another alignment, where a huge one would be split; and a restore makes none either. */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	while (fgets(line, sizeof line, table)) {
		if (!strncmp(line, "region ", 7)) {
			protect(protection);
			add_region(line, &file, &protection);
		} else {
			add_run(line, file);
		}
	}
	protect(protection);
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	fclose(table);
}

/* -- what the CRIUs ask ------------------------------------------------------------------------------------------------- */

/* The number of runs that begin at or before this byte, in this file or one before it. */
static size_t runs_until(unsigned pages, uint64_t offset)
{
	size_t low = 0, high = run_count;

	while (low < high) {
		size_t middle = (low + high) / 2;
		unsigned at = runs[middle].region->pages;

		if (at < pages || (at == pages && runs[middle].file_offset <= offset))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The run that this byte is in; NULL, and in `end` where the next one begins, if that is before. */
static const struct run *run_at(unsigned pages, uint64_t offset, uint64_t *end)
{
	size_t next = runs_until(pages, offset);
	const struct run *found = next ? &runs[next - 1] : NULL;

	if (found && found->region->pages == pages && offset - found->file_offset < found->bytes)
		return found;
	if (next < run_count && runs[next].region->pages == pages && runs[next].file_offset < *end)
		*end = runs[next].file_offset;
	return NULL;
}

static bool is_same(const struct stat *one, const struct stat *other)
{
	return one->st_ino == other->st_ino && one->st_mode == other->st_mode && one->st_size == other->st_size &&
	       !memcmp(&one->st_mtim, &other->st_mtim, sizeof one->st_mtim) &&
	       !memcmp(&one->st_ctim, &other->st_ctim, sizeof one->st_ctim);
}

/* Something else is there now. */
static void forget_files(const char *place, size_t bytes)
{
	for (size_t i = 0; i < region_count; i++)
		if (regions[i].same_at >= place && regions[i].same_at < place + bytes)
			regions[i].same_at = NULL;
}

/* CRIU has mapped a part of a file. */
static void note_file(char *place, size_t bytes, int file, off_t offset)
{
	struct stat facts = { 0 };
	bool is_known = false;

	for (size_t i = 0; i < region_count; i++) {
		struct region *region = &regions[i];

		if (!region->is_of_file || region->bytes != bytes || region->offset != offset)
			continue;
		if (!is_known && fstat(file, &facts))
			return;
		is_known = true;
		if (is_same(&facts, &region->facts))
			region->same_at = place;
	}
}

void *mmap64(void *place, size_t bytes, int protection, int flags, int file, off_t offset)
{
	void *made = raw_mmap(place, bytes, protection, flags, file, offset);

	if (!is_criu || made == MAP_FAILED)
		return made;
	forget_files(made, bytes);
	if (file >= 0 && flags & MAP_PRIVATE)
		note_file(made, bytes, file, offset);
	return made;
}

/* Puts a region where CRIU has made its mapping. */
static bool place(struct region *region, char *wanted)
{
	if (!region->moved_to) {
		void *moved = mremap(region->memory, region->bytes, region->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, wanted);

		if (moved == MAP_FAILED)
			return false;
		region->moved_to = moved;
	}
	if (region->moved_to != wanted)
		errno = EINVAL;
	return region->moved_to == wanted;
}

static bool read_all(int file, char *target, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t got = pread(file, target, bytes, (off_t)offset);

		if (got <= 0)
			return false;
		target += got, bytes -= (uint64_t)got, offset += (uint64_t)got;
	}
	return true;
}

static bool bring_in(int file, unsigned pages, char *target, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		uint64_t end = offset + bytes, part;
		char *wanted;
		const struct run *run = run_at(pages, offset, &end);

		if (run && run->file_offset + run->bytes < end)
			end = run->file_offset + run->bytes;
		part = end - offset;
		wanted = run ? target - (run->offset + offset - run->file_offset) : NULL;
		if (run && run->region->is_of_file && run->region->same_at != wanted)
			run = NULL;
		if (run ? !place(run->region, wanted) : !read_all(file, target, part, offset))
			return false;
		target += part, bytes -= part, offset += part;
	}
	return true;
}

/* The N of pages-N.img; -1 where it is another file. */
static long pages_of(int file)
{
	char path[64], target[PATH_MAX], *name;
	long pages;
	int end = 0;
	ssize_t length;

	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	length = readlink(path, target, sizeof target - 1);
	if (length <= 0)
		return -1;
	target[length] = '\0';
	name = strrchr(target, '/');
	return name && sscanf(name, "/pages-%ld.img%n", &pages, &end) == 1 && end && !name[end] ? pages : -1;
}

static ssize_t bring_all_in(int file, unsigned pages, const struct iovec *parts, int count, uint64_t offset)
{
	ssize_t sum = 0;

	for (int i = 0; i < count; i++) {
		if (!bring_in(file, pages, parts[i].iov_base, parts[i].iov_len, offset + (uint64_t)sum))
			return -1;
		sum += (ssize_t)parts[i].iov_len;
	}
	return sum;
}

static ssize_t raw_preadv(int file, const struct iovec *parts, int count, off64_t offset)
{
	return syscall(SYS_preadv, file, parts, count, offset, 0);
}

ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t offset)
{
	long pages = run_count ? pages_of(file) : -1;

	if (pages < 0)
		return raw_preadv(file, parts, count, offset);
	return bring_all_in(file, (unsigned)pages, parts, count, (uint64_t)offset);
}

static void pass_on_regions(int advice)
{
	/* What cannot be left out is passed on, and one that was left out for good would be missed by place(). */
	for (size_t i = 0; i < region_count; i++)
		if (!regions[i].moved_to && regions[i].bytes >= LEFT_OUT_FROM)
			madvise(regions[i].memory, regions[i].bytes, advice);
}

struct counts {
	size_t regions, runs;
};

/* A process that is made now knows of no regions: whatever it reads comes from the files. */
static struct counts leave_out_regions(void)
{
	struct counts all = { region_count, run_count };

	pass_on_regions(MADV_DONTFORK);
	region_count = run_count = 0;
	return all;
}

static void bring_back_regions(struct counts all)
{
	region_count = all.regions, run_count = all.runs;
	pass_on_regions(MADV_DOFORK);
}

pid_t fork(void)
{
	struct counts all;
	pid_t pid;

	if (!is_criu)
		return real_fork();
	all = leave_out_regions();
	pid = real_fork();
	if (pid)
		bring_back_regions(all);
	return pid;
}

/* Its frame has to stay small: CRIU's stack for the new process begins a kilobyte below its own (clone_noasan()). */
int clone(int (*begin)(void *), void *stack, int flags, void *argument, ...)
{
	const int of_its_own = CLONE_UNTRACED | SIGCHLD;
	struct counts all;
	void *places[3]; /* passed on, whether they are given or not */
	va_list rest;
	pid_t pid;

	if (is_criu && flags == of_its_own) {
		all = leave_out_regions();
		pid = real_clone(begin, stack, flags, argument);
		bring_back_regions(all);
		return pid;
	}
	va_start(rest, argument);
	for (size_t i = 0; i < 3; i++)
		places[i] = va_arg(rest, void *);
	va_end(rest);
	return real_clone(begin, stack, flags, argument, places[0], places[1], places[2]);
}

/* -- the template ------------------------------------------------------------------------------------------------------- */

struct order {
	char text[TEXT];
	const char *groups[MOST_GROUPS];
	int limit_ms, numbers[MOST_RIGHTS], rights[MOST_RIGHTS];
	size_t count, rights_count, group_count;
};

static bool receive(int orders, struct order *order)
{
	char control[CMSG_SPACE(sizeof order->rights)], *text = order->text, *at;
	struct iovec part = { text, sizeof order->text - 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	ssize_t length = recvmsg(orders, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *head;

	if (length <= 0)
		return false;
	text[length] = '\0';
	order->count = order->rights_count = order->group_count = 0;
	for (char *name = text + strlen(text) + 1; name < text + length && order->group_count < MOST_GROUPS; name += strlen(name) + 1)
		order->groups[order->group_count++] = name;
	order->limit_ms = (int)strtol(text, &at, 10);
	for (char *end; order->count < MOST_RIGHTS; at = end) {
		order->numbers[order->count] = (int)strtol(at, &end, 10);
		if (end == at)
			break;
		order->count++;
	}
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
		order->rights_count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(order->rights, CMSG_DATA(head), order->rights_count * sizeof(int));
	}
	return true;
}

static void say(int line, const char *kind, long value)
{
	char text[32];
	int length = snprintf(text, sizeof text, "%s%ld", kind, value);

	(void)!send(line, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Gives each descriptor of the order its number, and closes all others but 0, 1 and 2. */
static void take_numbers(struct order *order)
{
	int above = 3;

	for (size_t i = 0; i < order->count; i++)
		if (order->numbers[i] >= above)
			above = order->numbers[i] + 1;
	for (size_t i = 0; i < order->count; i++) {
		order->rights[i + KEPT] = fcntl(order->rights[i + KEPT], F_DUPFD, above);
		if (order->rights[i + KEPT] < 0)
			give_up("no descriptor");
	}
	for (size_t i = 0; i < order->count; i++)
		if (dup2(order->rights[i + KEPT], order->numbers[i]) < 0)
			give_up("no descriptor");
	for (int number = 3; number < above; number++) {
		bool is_kept = false;

		for (size_t i = 0; i < order->count; i++)
			is_kept |= order->numbers[i] == number;
		if (!is_kept)
			close(number);
	}
	syscall(SYS_close_range, above, ~0u, 0);
}

static void become(struct order *order, char **arguments)
{
	const int shared = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setns(order->rights[FIRST], shared) || fchdir(order->rights[ROOT]) || chroot(".") || setsid() < 0)
		give_up("the namespaces cannot be entered");
	take_numbers(order);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(arguments[2], ARGUMENT, "%d", order->numbers[0]);
	is_criu = true;
}

/* The group of version 2 of an order; -1: none. Only version 1 has a file `tasks`. */
static int unified_group(const struct order *order)
{
	for (size_t i = 0; i < order->group_count; i++) {
		int place = open(order->groups[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (place >= 0 && faccessat(place, "tasks", F_OK, 0) && errno == ENOENT)
			return place;
		if (place >= 0)
			close(place);
	}
	return -1;
}

/* Of the calling process, which has one thread. What is refused, whoever ordered sees. */
static void join_groups(const struct order *order)
{
	for (size_t i = 0; i < order->group_count; i++) {
		int place = open(order->groups[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		int tasks = place >= 0 ? openat(place, "tasks", O_WRONLY | O_CLOEXEC) : -1;

		if (tasks >= 0) {
			(void)!write(tasks, "0", 1);
			close(tasks);
		}
		if (place >= 0)
			close(place);
	}
}

/* As fork(2), of a process that has one thread, and born in a control group of version 2. The C library knows the thread's number, which
 * the kernel writes where it does so for fork(2) (PR_GET_TID_ADDRESS). */
static pid_t fork_into(int group)
{
	struct clone_args wanted = { .flags = CLONE_INTO_CGROUP | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
				     .exit_signal = SIGCHLD, .cgroup = (uint64_t)group };
	uint64_t number = 0;
	pid_t pid = -1;

	if (group >= 0 && !prctl(PR_GET_TID_ADDRESS, &number, 0, 0, 0) && number && *(pid_t *)(uintptr_t)number == getpid()) {
		wanted.child_tid = number;
		pid = (pid_t)syscall(SYS_clone3, &wanted, sizeof wanted);
	}
	return pid < 0 ? fork() : pid;
}

/* Of one that was killed; false: it has not ended. The last takes its place. */
static bool reap(size_t i)
{
	if (waitpid(children[i].pid, NULL, WNOHANG) != children[i].pid)
		return false;
	children[i] = children[--child_count];
	return true;
}

static void let_go(size_t i)
{
	kill(children[i].pid, SIGKILL);
	close(children[i].line);
	children[i].line = NOBODY;
	reap(i);
}

static void tell_ends(void)
{
	for (size_t i = child_count; i-- > 0;) {
		siginfo_t info = { 0 };

		if (children[i].line == NOBODY) {
			reap(i);
			continue;
		}
		if (children[i].has_ended || waitid(P_PID, (id_t)children[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
			continue;
		children[i].has_ended = true;
		say(children[i].line, "e ", info.si_code == CLD_EXITED ? info.si_status : -info.si_status);
	}
}

/* Waits until a new process is through with its groups, or has ended: it closes its end of the pipe then. */
static bool is_through(int joined, int limit_ms)
{
	struct pollfd polled = { joined, 0, 0 };
	int found;

	do
		found = poll(&polled, 1, limit_ms);
	while (found < 0 && errno == EINTR);
	return found > 0;
}

/* Returns true in the new process. Whoever ordered learns its pid once it is in its groups: else he would move it there. */
static bool fork_one(struct order *order, char **arguments)
{
	pid_t pid = -1;
	int joined[2];
	bool is_late = false;

	if (order->rights_count != order->count + KEPT || !order->count) {
		errno = EINVAL;
	} else if (child_count == MOST_CHILDREN) {
		errno = EAGAIN;
	} else if (!setns(order->rights[FIRST], CLONE_NEWPID) && !pipe2(joined, O_CLOEXEC)) {
		int group = unified_group(order), failure;

		pid = fork_into(group);
		failure = errno;
		if (pid)
			close(joined[1]);
		is_late = pid > 0 && !is_through(joined[0], order->limit_ms);
		if (pid)
			close(joined[0]);
		if (group >= 0)
			close(group);
		errno = failure;
	}
	if (!pid) {
		join_groups(order);
		close(joined[1]);
		become(order, arguments);
		return true;
	}
	say(order->rights[ANSWER], "", is_late ? -ETIMEDOUT : pid < 0 ? -errno : pid);
	if (pid > 0) {
		children[child_count++] = (struct child){ pid, order->rights[ANSWER], false };
		if (is_late)
			let_go(child_count - 1);
	} else if (order->rights_count) {
		close(order->rights[ANSWER]);
	}
	for (size_t i = FIRST; i < order->rights_count; i++)
		close(order->rights[i]);
	return false;
}

/* Serves orders; returns in each process that was forked. */
static void serve(int orders, char **arguments)
{
	struct pollfd polled[MOST_CHILDREN + 2];
	struct order order;
	sigset_t ends;
	int signals;

	sigemptyset(&ends);
	sigaddset(&ends, SIGCHLD);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	signals = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0 || send(orders, "r", 1, MSG_NOSIGNAL) != 1)
		give_up("no orders");
	for (;;) {
		size_t count = child_count;

		polled[0] = (struct pollfd){ orders, POLLIN, 0 };
		polled[1] = (struct pollfd){ signals, POLLIN, 0 };
		for (size_t i = 0; i < count; i++)
			polled[i + 2] = (struct pollfd){ children[i].line, POLLIN, 0 };
		if (poll(polled, count + 2, -1) < 0 && errno != EINTR)
			give_up("poll");
		for (size_t i = count; i-- > 0;)
			if (polled[i + 2].revents)
				let_go(i);
		if (polled[1].revents) {
			struct signalfd_siginfo info;

			while (read(signals, &info, sizeof info) > 0)
				;
			tell_ends();
		}
		if (polled[0].revents) {
			if (!receive(orders, &order))
				break;
			if (fork_one(&order, arguments))
				return;
		}
	}
	for (size_t i = 0; i < child_count; i++)
		kill(children[i].pid, SIGKILL);
	while (wait(NULL) > 0)
		;
	_exit(0);
}

/* CRIU's plugins, once: when a CRIU loads one by the same path, it is there already. What cannot be loaded here it tries itself. */
static void load_plugins(void)
{
	const char *place = getenv("CRIU_LIBS_DIR");
	DIR *directory = place ? opendir(place) : NULL;
	char path[PATH_MAX];

	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		const char *end = strrchr(entry->d_name, '.');

		if (end && !strcmp(end, ".so") && (size_t)snprintf(path, sizeof path, "%s/%s", place, entry->d_name) < sizeof path)
			dlopen(path, RTLD_LAZY);
	}
	if (directory)
		closedir(directory);
}

static int (*real_main)(int, char **, char **);

static int template_main(int count, char **arguments, char **environment)
{
	static char channel[ARGUMENT];
	const char *numbers = getenv("RELIVE_TEMPLATE");
	int orders, table;

	real_fork = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
	real_clone = (int (*)(int (*)(void *), void *, int, void *, ...))dlsym(RTLD_NEXT, "clone");
	if (!real_fork || !real_clone)
		give_up("no fork");
	if (numbers && count > 2 && sscanf(numbers, "%d:%d", &orders, &table) == 2) {
		/* Programs that CRIU starts (tar, for files in memory) have this library, too. */
		unsetenv("RELIVE_TEMPLATE");
		unsetenv("LD_BIND_NOW");
		arguments[2] = channel;
		load_plugins();
		read_table(table);
		serve(orders, arguments);
	}
	return real_main(count, arguments, environment);
}

int __libc_start_main(int (*wanted)(int, char **, char **), int count, char **arguments, void (*begin)(void), void (*end)(void),
		      void (*unload)(void), void *stack)
{
	int (*start)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *) =
		dlsym(RTLD_NEXT, "__libc_start_main");

	real_main = wanted;
	return start(template_main, count, arguments, begin, end, unload, stack);
}
