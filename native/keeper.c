/* relive-keeper: holds the connections that the recorder at a capsule's border carries, so that they outlive it.
 *
 *   relive-keeper LISTENER_FD PIDFD
 *
 * A recorder connects to the listener (a unix socket, SOCK_SEQPACKET). It is first given all that is kept, one message each, then an empty
 * word. From then on it tells what to keep and what to let go. While one is connected no other is served: so there is one recorder at a
 * time, and a kill of it costs no connection, since a socket ends when its last descriptor does. No byte of any connection is read here.
 *
 * It ends with PIDFD's process, the capsule's first, or when the recorder says so.
 *
 * A message is a letter, a number (8 bytes) and up to TEXT_MOST bytes that mean something to the recorder:
 *
 *   k  keep: with two descriptors (SCM_RIGHTS). Fewer come where the limit of descriptors is reached: then nothing is kept.
 *   d  let go what has this number
 *   e  all have been given (to the recorder)
 *   q  end
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { TEXT_MOST = 1024, DESCRIPTORS = 2, BUCKETS = 4096, GIVEN_WITHIN_S = 5 };

struct message {
	char letter;
	uint64_t number;
	char text[TEXT_MOST];
} __attribute__((packed));

struct kept {
	struct kept *next;
	uint64_t number;
	int fd[DESCRIPTORS];
	size_t size;
	char text[];
};

enum { HEADER = sizeof(struct message) - TEXT_MOST };

static struct kept *all[BUCKETS];

static struct kept **bucket(uint64_t number)
{
	return &all[number % BUCKETS];
}

static void let_go(uint64_t number)
{
	for (struct kept **at = bucket(number); *at; at = &(*at)->next) {
		struct kept *one = *at;

		if (one->number != number)
			continue;
		for (int i = 0; i < DESCRIPTORS; i++)
			close(one->fd[i]);
		*at = one->next;
		free(one);
		return;
	}
}

static void keep(const struct message *message, size_t size, const int *fd, int count)
{
	struct kept *one;

	let_go(message->number);
	one = malloc(sizeof *one + size);
	if (!one || count != DESCRIPTORS) {
		for (int i = 0; i < count; i++)
			close(fd[i]);
		free(one);
		return;
	}
	one->number = message->number, one->size = size;
	memcpy(one->fd, fd, sizeof one->fd);
	memcpy(one->text, message->text, size);
	one->next = *bucket(one->number);
	*bucket(one->number) = one;
}

/* Act on one message; false: the recorder has gone. */
static bool hear(int line)
{
	struct message said;
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	struct iovec text = { &said, sizeof said };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	ssize_t size = recvmsg(line, &message, MSG_CMSG_CLOEXEC);
	int fd[DESCRIPTORS], count = 0;

	if (size < HEADER)
		return size < 0 && errno == EINTR;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part))
		if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
			count = (int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fd, CMSG_DATA(part), (size_t)count * sizeof(int));
		}
	if (said.letter == 'k')
		keep(&said, (size_t)size - HEADER, fd, count);
	else if (said.letter == 'd')
		let_go(said.number);
	else if (said.letter == 'q')
		exit(0);
	return true;
}

static bool give(int line, char letter, const struct kept *one)
{
	struct message said = { .letter = letter, .number = one ? one->number : 0 };
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(DESCRIPTORS * sizeof(int))] = { 0 };
	struct iovec text = { &said, HEADER + (one ? one->size : 0) };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1 };

	if (one) {
		struct cmsghdr *part;

		memcpy(said.text, one->text, one->size);
		message.msg_control = room, message.msg_controllen = sizeof room;
		part = CMSG_FIRSTHDR(&message);
		part->cmsg_level = SOL_SOCKET, part->cmsg_type = SCM_RIGHTS, part->cmsg_len = CMSG_LEN(sizeof one->fd);
		memcpy(CMSG_DATA(part), one->fd, sizeof one->fd);
	}
	return sendmsg(line, &message, MSG_NOSIGNAL) >= 0;
}

static bool give_all(int line)
{
	struct timeval limit = { GIVEN_WITHIN_S, 0 };

	setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	for (int i = 0; i < BUCKETS; i++)
		for (const struct kept *one = all[i]; one; one = one->next)
			if (!give(line, 'k', one))
				return false;
	return give(line, 'e', NULL);
}

int main(int argc, char **argv)
{
	struct pollfd watched[2];
	struct rlimit files;
	int line = -1;

	if (argc != 3) {
		fprintf(stderr, "usage: relive-keeper LISTENER_FD PIDFD\n");
		return 2;
	}
	prctl(PR_SET_DUMPABLE, 0); /* it has the service's connections */
	listen(atoi(argv[1]), 1); /* again: from now on a peer's credentials (SO_PEERCRED) are this process's */
	signal(SIGHUP, SIG_IGN), signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	for (;;) {
		watched[0] = (struct pollfd){ atoi(argv[2]), POLLIN, 0 };
		watched[1] = (struct pollfd){ line < 0 ? atoi(argv[1]) : line, POLLIN, 0 };
		if (poll(watched, 2, -1) < 0 && errno != EINTR)
			return 1;
		if (watched[0].revents)
			return 0;
		if (!watched[1].revents)
			continue;
		if (line < 0) {
			line = accept4(atoi(argv[1]), NULL, NULL, SOCK_CLOEXEC);
			if (line < 0 || give_all(line))
				continue;
		} else if (hear(line)) {
			continue;
		}
		close(line);
		line = -1;
	}
}
