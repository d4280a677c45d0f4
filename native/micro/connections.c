/* See connections.h. The lines are read by `relive.checkpoint.micro_record`. */
#define _GNU_SOURCE
#include "connections.h"

#include "base.h"
#include "socket_options.h"
#include "text.h"
#include "unchanged.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CONNECTIONS_MOST = 4096,
	TRIES = 16, /* to see one as it is, while the other end goes on */
	REPAIR_OFF = -1, /* without a probe, which would be answered */
	REPAIR_ON = 1,
};
enum queue { NO_QUEUE, RECEIVED, SENT };

struct stream {
	int received, sent, unsent; /* [bytes] */
	uint32_t received_next, sent_next, segment, timestamp;
	uint32_t window[5];
	struct tcp_info info;
};

static struct connection {
	int number;
	ino_t inode;
} connections[CONNECTIONS_MOST];
int connection_count;
static bool is_one_asked;
struct waiting_bytes waiting;

void forget_connections(void)
{
	connection_count = 0;
	is_one_asked = false;
	waiting.size = 0;
}

bool note_connection(int number, ino_t inode)
{
	if (connection_count == CONNECTIONS_MOST)
		return false;
	connections[connection_count++] = (struct connection){ number, inode };
	return true;
}

void take_back_connection(void)
{
	connection_count--;
}

bool is_any_asked(void)
{
	return is_one_asked;
}

static int duplicate(int number)
{
	return (int)syscall(SYS_pidfd_getfd, process.handle, number, 0);
}

static int number_of(int fd, int level, int option)
{
	int value = -1;
	socklen_t size = sizeof value;

	return getsockopt(fd, level, option, &value, &size) ? -1 : value;
}

static void say_facts(int fd, const struct connection *one, unsigned flags, const struct sockaddr_storage *peer, socklen_t size)
{
	struct pollfd asked = { .fd = fd, .events = POLLIN | POLLPRI | POLLRDHUP };
	struct sockaddr_storage name;
	struct f_owner_ex owner = { 0 };
	struct tcp_info info = { 0 };
	socklen_t room = sizeof name;
	const int named = getsockname(fd, (struct sockaddr *)&name, &room);

	poll(&asked, 1, 0);
	fcntl(fd, F_GETOWN_EX, &owner);
	say("=connection %d %llu flags=%o ready=%x sndbuf=%d rcvbuf=%d peek=%d", one->number, (unsigned long long)one->inode, flags,
	    (unsigned)asked.revents, number_of(fd, SOL_SOCKET, SO_SNDBUF), number_of(fd, SOL_SOCKET, SO_RCVBUF),
	    number_of(fd, SOL_SOCKET, SO_PEEK_OFF));
	say_name("name", named, &name, room);
	say_name("peer", 0, peer, size);
	room = sizeof info;
	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &room);
	say(" state=%d like family=%d owner=%d signal=%d", info.tcpi_state, peer->ss_family, owner.pid, fcntl(fd, F_GETSIG));
	say_options(fd, true);
	say("\n");
}

bool say_connection(int number, ino_t inode, unsigned flags)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof peer;
	const int fd = duplicate(number);
	bool is_one;

	if (fd < 0)
		return false;
	is_one = number_of(fd, SOL_SOCKET, SO_PROTOCOL) == IPPROTO_TCP && !getpeername(fd, (struct sockaddr *)&peer, &size) &&
		 note_connection(number, inode);
	if (is_one) {
		is_one_asked = true;
		say_facts(fd, &connections[connection_count - 1], flags, &peer, size);
	}
	close(fd);
	return is_one;
}

static bool ask(int fd, int option, void *to, socklen_t size)
{
	return !getsockopt(fd, IPPROTO_TCP, option, to, &size);
}

static bool choose(int fd, enum queue which)
{
	const int number = which;

	return !setsockopt(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, &number, sizeof number);
}

/* Up to where a queue goes, and its `size` bytes. No queue stays chosen, as tcp_dump_shim.c says why. */
static bool read_queue(int fd, enum queue which, int size, uint32_t *next, unsigned char *to)
{
	const bool well = choose(fd, which) && ask(fd, TCP_QUEUE_SEQ, next, sizeof *next) &&
			  (!size || recv(fd, to, (size_t)size + 1, MSG_PEEK | MSG_DONTWAIT) == size);

	return choose(fd, NO_QUEUE) && well;
}

static bool measure(int fd, struct stream *s)
{
	return !ioctl(fd, SIOCINQ, &s->received) && !ioctl(fd, SIOCOUTQ, &s->sent) && !ioctl(fd, SIOCOUTQNSD, &s->unsent);
}

/* False where it changed meanwhile, by what the other end or the kernel does. */
static bool try_stream(int fd, struct stream *s, unsigned char *to)
{
	struct stream after;

	return measure(fd, s) && !s->unsent && (size_t)s->received + (size_t)s->sent + 2 <= WAITING_MOST - waiting.size &&
	       ask(fd, TCP_MAXSEG, &s->segment, sizeof s->segment) && ask(fd, TCP_TIMESTAMP, &s->timestamp, sizeof s->timestamp) &&
	       ask(fd, TCP_REPAIR_WINDOW, s->window, sizeof s->window) &&
	       read_queue(fd, RECEIVED, s->received, &s->received_next, to) &&
	       read_queue(fd, SENT, s->sent, &s->sent_next, to + s->received) && measure(fd, &after) && after.received == s->received &&
	       after.sent == s->sent && read_queue(fd, RECEIVED, 0, &after.received_next, NULL) &&
	       after.received_next == s->received_next && ask(fd, TCP_INFO, &s->info, sizeof s->info);
}

void say_numbers(const struct stream_numbers *n)
{
	say("=stream %" PRIu64 " %u %u %u %u %u %u %u %u %u %u %u %u %u %u %u %d\n", n->inode, n->state, n->received, n->received_next, n->sent,
	    n->sent_next, n->options, n->send_scale, n->receive_scale, n->segment, n->timestamp, n->window[0], n->window[1], n->window[2],
	    n->window[3], n->window[4], n->reuse);
}

static bool read_stream(const struct connection *one, int fd)
{
	static const int on = REPAIR_ON, off = REPAIR_OFF;
	/* Repair mode takes this option away. */
	const int reuse = number_of(fd, SOL_SOCKET, SO_REUSEADDR);
	struct stream_numbers numbers;
	struct stream s = { 0 };
	bool well = false;

	/* Peeking would move it on. */
	if (number_of(fd, SOL_SOCKET, SO_PEEK_OFF) != -1)
		return refuse("descriptor %d has an offset for peeking", one->number);
	if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on))
		return refuse("descriptor %d cannot be looked into", one->number);
	for (int i = 0; i < TRIES && !well; i++)
		well = try_stream(fd, &s, waiting.at + waiting.size);
	if (setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof off) || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse))
		return refuse("descriptor %d cannot be put back", one->number);
	if (!well)
		return refuse(s.unsent ? "descriptor %d has bytes to send" : "descriptor %d is never still", one->number);
	waiting.size += (size_t)s.received + (size_t)s.sent;
	numbers = (struct stream_numbers){
		.inode = one->inode,
		.state = s.info.tcpi_state,
		.received = (uint32_t)s.received,
		.received_next = s.received_next,
		.sent = (uint32_t)s.sent,
		.sent_next = s.sent_next,
		.options = s.info.tcpi_options,
		.send_scale = s.info.tcpi_snd_wscale,
		.receive_scale = s.info.tcpi_rcv_wscale,
		.segment = s.segment,
		.timestamp = s.timestamp,
		.reuse = reuse,
	};
	memcpy(numbers.window, s.window, sizeof s.window);
	say_numbers(&numbers);
	note_told_stream(one->number, &numbers);
	return true;
}

static bool is_known(int which)
{
	for (int i = 0; i < which; i++)
		if (connections[i].inode == connections[which].inode)
			return true;
	return false;
}

bool read_streams(void)
{
	bool well = true;

	for (int i = 0; well && i < connection_count; i++) {
		int fd;

		if (is_known(i))
			continue;
		fd = duplicate(connections[i].number);
		well = fd >= 0 ? read_stream(&connections[i], fd) : refuse("descriptor %d cannot be looked into", connections[i].number);
		if (fd >= 0)
			close(fd);
	}
	return well;
}
