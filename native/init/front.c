/* See front.h. Bytes are copied, never looked at. What cannot be done for one connection ends that one. */
#define _GNU_SOURCE
#include "front.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	KEEPERS = 4,		/* proxies that may be connected at one time: one, and one that is about to end */
	CARRIED = 512,		/* connections; more wait in the listener's queue */
	ROOM = 16384,		/* [bytes] on their way in one direction */
	ABSENCE_MS = 700,	/* a proxy that was killed has another within this */
	START_MS = 10000,	/* and the first one comes within this */
	NONE = -1,
};

struct carried {
	int end[2];		/* the client's, the service's */
	size_t begun[2], held[2];	/* of what came from an end: where it begins in `bytes`, and how much there is */
	bool ended[2];		/* nothing more comes from it */
	bool connecting;
	char bytes[2][ROOM];
};

static struct front front;
static int keepers[KEEPERS] = { NONE, NONE, NONE, NONE };
static struct carried *all[CARRIED];
static int count;
static struct pollfd watched[2 + KEEPERS + 2 * CARRIED];

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int read_upstream(struct front *asked, const char *address, const char *port)
{
	struct sockaddr_in *four = (struct sockaddr_in *)&asked->upstream;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&asked->upstream;

	memset(&asked->upstream, 0, sizeof asked->upstream);
	if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
		four->sin_family = AF_INET, four->sin_port = htons((uint16_t)atoi(port));
		asked->size = sizeof *four;
		return 0;
	}
	if (inet_pton(AF_INET6, address, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6, six->sin6_port = htons((uint16_t)atoi(port));
		asked->size = sizeof *six;
		return 0;
	}
	return EINVAL;
}

/* A thread that a service may take over (as root, by ptrace) must not be able to do anything: see give_up_capabilities in init.c. */
static void give_up_all(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];

	memset(none, 0, sizeof none);
	if (syscall(SYS_capset, &header, none) < 0)
		return; /* it had none */
}

static bool is_kept(void)
{
	for (int i = 0; i < KEEPERS; i++)
		if (keepers[i] != NONE)
			return true;
	return false;
}

/* Give the listener to a proxy that has connected. */
static void take_keeper(void)
{
	int keeper = accept4(front.control, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), place = 0;
	char word = 'l', rights[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec text = { &word, sizeof word };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights };
	struct cmsghdr *part = CMSG_FIRSTHDR(&message);

	if (keeper < 0)
		return;
	while (place < KEEPERS && keepers[place] != NONE)
		place++;
	part->cmsg_level = SOL_SOCKET, part->cmsg_type = SCM_RIGHTS, part->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(part), &front.listener, sizeof(int));
	if (place < KEEPERS && sendmsg(keeper, &message, MSG_NOSIGNAL) == 1)
		keepers[place] = keeper;
	else
		close(keeper);
}

static void end(int number, bool reset)
{
	struct carried *one = all[number];
	struct linger at_once = { 1, 0 };

	if (reset)
		setsockopt(one->end[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(one->end[0]);
	close(one->end[1]);
	free(one);
	all[number] = all[--count];
}

static void take_client(void)
{
	int client = accept4(front.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct carried *one;

	if (client < 0)
		return;
	one = calloc(1, sizeof *one);
	if (one)
		one->end[1] = socket(front.upstream.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (!one || one->end[1] < 0) {
		close(client);
		free(one);
		return;
	}
	one->end[0] = client;
	all[count++] = one;
	if (connect(one->end[1], (struct sockaddr *)&front.upstream, front.size) < 0) {
		one->connecting = errno == EINPROGRESS;
		if (!one->connecting)
			end(count - 1, true); /* as the service would have refused it */
	}
}

/* Move what can be moved; false: the connection broke. */
static bool carry(struct carried *one, int from)
{
	int to = 1 - from;
	ssize_t moved;

	if (!one->held[from] && !one->ended[from]) {
		moved = recv(one->end[from], one->bytes[from], ROOM, 0);
		if (moved < 0)
			return errno == EAGAIN || errno == EINTR;
		one->begun[from] = 0, one->held[from] = (size_t)moved, one->ended[from] = !moved;
		if (!moved)
			shutdown(one->end[to], SHUT_WR);
	}
	if (!one->held[from])
		return true;
	moved = send(one->end[to], one->bytes[from] + one->begun[from], one->held[from], MSG_NOSIGNAL);
	if (moved < 0)
		return errno == EAGAIN || errno == EINTR;
	one->begun[from] += (size_t)moved, one->held[from] -= (size_t)moved;
	return true;
}

static void look_after(int number)
{
	struct carried *one = all[number];
	int failure = 0;
	socklen_t size = sizeof failure;

	if (one->connecting) {
		getsockopt(one->end[1], SOL_SOCKET, SO_ERROR, &failure, &size);
		if (failure) {
			end(number, true);
			return;
		}
		one->connecting = false;
	}
	if (!carry(one, 0) || !carry(one, 1))
		end(number, true);
	else if (one->ended[0] && one->ended[1] && !one->held[0] && !one->held[1])
		end(number, false);
}

static short wanted(const struct carried *one, int side)
{
	short events = 0;

	if (one->connecting)
		return side ? POLLOUT : 0;
	if (!one->held[side] && !one->ended[side])
		events |= POLLIN;
	if (one->held[1 - side])
		events |= POLLOUT;
	return events;
}

static void *stand(void *unused)
{
	long from = now_ms() + START_MS; /* when connections are carried, if nobody is there by then */
	int was;

	give_up_all();
	for (;;) {
		bool kept = is_kept();
		long wait = kept ? -1 : from - now_ms();

		watched[0] = (struct pollfd){ front.control, POLLIN, 0 };
		watched[1] = (struct pollfd){ !kept && wait <= 0 && count < CARRIED ? front.listener : NONE, POLLIN, 0 };
		for (int i = 0; i < KEEPERS; i++)
			watched[2 + i] = (struct pollfd){ keepers[i], POLLIN, 0 };
		for (int i = 0; i < count; i++)
			for (int side = 0; side < 2; side++) {
				short events = wanted(all[i], side);

				/* With nothing to be done, POLLHUP would come again and again. */
				watched[2 + KEEPERS + 2 * i + side] = (struct pollfd){ events ? all[i]->end[side] : NONE, events, 0 };
			}
		was = count;
		if (poll(watched, (nfds_t)(2 + KEEPERS + 2 * was), wait <= 0 ? -1 : (int)wait) <= 0)
			continue;
		for (int i = was - 1; i >= 0; i--) /* downwards: the last one takes the place of one that ends */
			if (watched[2 + KEEPERS + 2 * i].revents || watched[2 + KEEPERS + 2 * i + 1].revents)
				look_after(i);
		for (int i = 0; i < KEEPERS; i++)
			if (watched[2 + i].revents) { /* nothing is ever said on it */
				close(keepers[i]);
				keepers[i] = NONE;
				from = now_ms() + ABSENCE_MS;
			}
		if (watched[0].revents)
			take_keeper();
		if (watched[1].revents && !is_kept())
			take_client();
	}
	return unused;
}

int start_front(const struct front *asked)
{
	pthread_t thread;
	pthread_attr_t small;
	struct rlimit files;

	/* Two descriptors for each connection: more than most are given at first. */
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	front = *asked;
	fcntl(front.listener, F_SETFL, O_NONBLOCK);
	fcntl(front.control, F_SETFL, O_NONBLOCK);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 262144);
	return pthread_create(&thread, &small, stand, NULL);
}
