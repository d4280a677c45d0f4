/* See descriptors.h.
 *
 * Most is in /proc/PID/fdinfo. What is not (options of a socket, bytes that wait) is asked of a duplicate (pidfd_getfd), which is ours for
 * a moment: nobody can miss the end of a connection for it, since all stand still. */
#define _GNU_SOURCE
#include "descriptors.h"

#include "base.h"
#include "connections.h"
#include "socket_options.h"
#include "text.h"
#include "timers.h"
#include "tree.h"
#include "unchanged.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

enum { LITTLE = 256 /* [bytes] */ };

static bool is_rehearsed;

static const char *of_self(int fd)
{
	static char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return path;
}

static void say_socket(int fd)
{
	struct sockaddr_storage name;
	socklen_t size = sizeof name;
	struct pollfd asked = { .fd = fd, .events = POLLIN | POLLPRI | POLLRDHUP };
	struct tcp_info info = { 0 };
	int waiting = -1, sent = -1, result;

	result = getsockname(fd, (struct sockaddr *)&name, &size);
	say_name("name", result, &name, size);
	say(" family=%d", result ? -1 : name.ss_family);
	size = sizeof name;
	result = getpeername(fd, (struct sockaddr *)&name, &size);
	say_name("peer", result, &name, size);
	ioctl(fd, SIOCINQ, &waiting);
	ioctl(fd, SIOCOUTQ, &sent);
	poll(&asked, 1, 0);
	say(" in=%d out=%d ready=%x", waiting, sent, (unsigned)asked.revents);
	size = sizeof info;
	if (!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size))
		say(" state=%d backlog=%u", info.tcpi_state, info.tcpi_state == TCP_LISTEN ? info.tcpi_sacked : 0);
	say_options(fd, false);
}

/* With what lies in it, where that is little: some keep a byte in a pipe for good, as a lock. It stays there (tee(2)). */
static void say_pipe(int fd, ino_t inode, int waiting)
{
	unsigned char found[LITTLE];
	ssize_t size = 0;
	int reading, copy[2];

	say(" in=%d size=%d", waiting, fcntl(fd, F_GETPIPE_SZ));
	if (waiting <= 0 || waiting > LITTLE || pipe2(copy, O_CLOEXEC | O_NONBLOCK))
		return;
	reading = open(of_self(fd), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (reading >= 0 && tee(reading, copy[1], LITTLE, SPLICE_F_NONBLOCK) == waiting)
		size = read(copy[0], found, sizeof found);
	if (size == waiting) {
		say(" data=%llu:", (unsigned long long)inode);
		say_bytes(found, (size_t)size);
	}
	if (reading >= 0)
		close(reading);
	close(copy[0]);
	close(copy[1]);
}

/* Of descriptors for the same file: whether they are one open file, with one position. */
static int first_of_same(const int *fds, const struct stat *facts, int which)
{
	for (int i = 0; i < which; i++)
		if (facts[i].st_dev == facts[which].st_dev && facts[i].st_ino == facts[which].st_ino &&
		    !syscall(SYS_kcmp, process.pid, process.pid, 0 /* KCMP_FILE */, fds[i], fds[which]))
			return fds[i];
	return -1;
}

/* A regular file without a name, whose times a program may use to say that it lives. */
static void say_ghost(int number, const struct stat *facts)
{
	say("=ghost %d %u %u %lld %ld %lld %ld\n", number, facts->st_uid, facts->st_gid, (long long)facts->st_atim.tv_sec,
	    facts->st_atim.tv_nsec, (long long)facts->st_mtim.tv_sec, facts->st_mtim.tv_nsec);
}

/* False: it cannot be noted for the other processes of a tree. */
static bool say_descriptor(int number, const struct stat *facts, int same)
{
	static char info[1 << 16];
	unsigned long long position = 0;
	unsigned flags = 0;
	char target[4096];

	read_link(of_process("fd/%d", number), target);
	if (slurp_again(of_process("fdinfo/%d", number), info, sizeof info) < 0)
		info[0] = 0;
	sscanf(info, "pos: %llu flags: %o", &position, &flags);
	if (!is_rehearsed && S_ISSOCK(facts->st_mode) && say_connection(number, facts->st_ino, flags))
		return note_held(number, facts->st_dev, facts->st_ino, -1, true);
	say("fd %d mode %o device %llx inode %llu links %lu special %x:%x flags %o same %d goal %s\n", number, facts->st_mode,
	    (unsigned long long)facts->st_dev, (unsigned long long)facts->st_ino,
	    S_ISDIR(facts->st_mode) ? 0UL : (unsigned long)facts->st_nlink, major(facts->st_rdev), minor(facts->st_rdev), flags, same,
	    target);
	if (S_ISREG(facts->st_mode)) {
		char *locks = strstr(info, "lock:");

		say("=position %d %llu %lld\n", number, position, (long long)facts->st_size);
		for (char *at = locks; at && *at; at++)
			if (*at == '\n')
				*at = '|';
		if (locks)
			say("fd %d %s\n", number, locks);
		if (!facts->st_nlink)
			say_ghost(number, facts);
		return note_held(number, facts->st_dev, facts->st_ino, same, false);
	}
	if (!strcmp(target, "anon_inode:[timerfd]"))
		say_timer(number, info);
	say("fd %d info ", number);
	for (char *at = info; *at; at++)
		append(*at == '\n' ? "|" : at, 1);
	/* A duplicate would keep a connection open that is closed meanwhile. */
	if (is_rehearsed) {
		say("\n");
		return true;
	}
	if (S_ISSOCK(facts->st_mode) || S_ISFIFO(facts->st_mode) || !(facts->st_mode & S_IFMT)) {
		int mine = (int)syscall(SYS_pidfd_getfd, process.handle, number, 0), waiting = -1;

		if (mine < 0) {
			say(" hidden=%d", errno);
		} else {
			struct f_owner_ex owner = { 0 };

			fcntl(mine, F_GETOWN_EX, &owner);
			say(" owner=%d signal=%d", owner.pid, fcntl(mine, F_GETSIG));
			if (S_ISSOCK(facts->st_mode))
				say_socket(mine);
			else if (S_ISFIFO(facts->st_mode) && !ioctl(mine, FIONREAD, &waiting))
				say_pipe(mine, facts->st_ino, waiting);
			else if (!ioctl(mine, FIONREAD, &waiting))
				say(" in=%d", waiting);
			close(mine);
		}
	}
	say("\n");
	return note_held(number, facts->st_dev, facts->st_ino, same, false);
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int list_descriptors(int *numbers)
{
	struct dirent *entry;
	DIR *all = list_again("fd");
	int count = 0;

	while (all && (entry = readdir(all)) && count < DESCRIPTORS_MOST)
		if (entry->d_name[0] != '.')
			numbers[count++] = atoi(entry->d_name);
	qsort(numbers, (size_t)count, sizeof *numbers, by_number);
	return all ? count : -1;
}

static bool say_all(const int *numbers, int count)
{
	static struct stat facts[DESCRIPTORS_MOST];

	for (int i = 0; i < count; i++)
		if (stat(of_process("fd/%d", numbers[i]), &facts[i]))
			return refuse("descriptor %d cannot be seen", numbers[i]);
	for (int i = 0; i < count; i++)
		if (!say_descriptor(numbers[i], &facts[i], first_of_same(numbers, facts, i)))
			return false;
	return true;
}

/* Those of which what was told before need not hold any longer. */
static bool say_unknown(const int *numbers, int count)
{
	struct stat facts;

	for (int i = 0; i < count; i++) {
		const int same = same_file_read(numbers, i);
		size_t from;

		if (say_known_descriptor(numbers[i], same))
			continue;
		from = text.size;
		if (stat(of_process("fd/%d", numbers[i]), &facts))
			return refuse("descriptor %d cannot be seen", numbers[i]);
		if (!say_descriptor(numbers[i], &facts, same))
			return false;
		note_told(numbers[i], from);
		note_told_held(numbers[i], facts.st_dev, facts.st_ino, same);
	}
	return true;
}

bool say_descriptors(void)
{
	static int numbers[DESCRIPTORS_MOST];
	const bool is_read = !is_rehearsed && are_facts_read();
	const int count = is_read ? descriptors_read(numbers) : list_descriptors(numbers);

	forget_connections();
	forget_held();
	if (count < 0)
		return refuse("its descriptors cannot be seen");
	if (count == DESCRIPTORS_MOST)
		return refuse("it has too many descriptors");
	return is_read ? say_unknown(numbers, count) : say_all(numbers, count);
}

void rehearse_descriptors(void)
{
	static int own = -1;

	if (own < 0)
		own = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	is_rehearsed = true;
	(void)say_descriptors();
	is_rehearsed = false;
	say_socket(own);
}
