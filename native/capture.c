/* relive-capture: takes the TCP packets of one port from the kernel, and hands them on as files, in the order in which the kernel saw them.
 *
 *   relive-capture NETWORK DIRECTORY PORT
 *
 * NETWORK is a file that names the network namespace (/proc/PID/ns/net). It stands beside the way: the service and its clients never wait
 * for it, whatever becomes of it. It looks at no byte.
 *
 * The kernel puts packets into a ring of blocks (packet(7), TPACKET_V3). Each block that is full, or BLOCK_MS old, is appended to
 * DIRECTORY/N.packets behind a header (struct header), and one byte is written to standard output, without waiting. A file that is larger
 * than FILE_BYTES is followed by the next. Who reads them deletes them. A block before which all was read begins its file anew, since
 * pages that are cached cost less than further ones. In DIRECTORY/progress, which is shared memory (struct progress), the
 * reader says how far it is: while more than SPOOL_BYTES wait for it, blocks stay in the ring, and when that is full the kernel drops
 * packets. How many it dropped is in the header of the first block after them; if none comes, in that of an empty one.
 *
 * A byte on standard input asks it to look at the ring now. It ends when standard input is closed: its parent has died, or wants that.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	BLOCK_MS = 20,
	LATEST_MS = 3 * BLOCK_MS, /* a block is handed over within two periods of the kernel's timer */
	BLOCK_BYTES = 1 << 20, /* the largest packet on loopback has 64 KiB */
	BLOCKS = 16,
	FILE_BYTES = 32 << 20,
	IDLE_MS = 1000,
	FULL_MS = 20,
	NICE = -10, /* it does little, and has to do it before the ring is full */
};

static const uint64_t SPOOL_BYTES = 512ull << 20;

/* Before each block's packets, whose own form is the kernel's (struct tpacket3_hdr). */
struct header {
	uint32_t magic;
	uint32_t bytes;   /* that follow */
	uint32_t packets; /* in them */
	uint32_t lost;    /* packets dropped before the first of them */
};

static const uint32_t MAGIC = 0x4b4c4250; /* "PBLK" */

struct progress {
	volatile uint64_t written; /* bytes since this process began, headers included */
	volatile uint64_t read;    /* of them, by the reader */
	volatile uint64_t until;   /* CLOCK_REALTIME [ns]: every packet before that is among those written, or was dropped */
	volatile uint64_t anew;    /* as `written`: the block that follows there is the first of its file again */
};

static const char *directory;
static struct progress *progress;
static int file = -1;
static unsigned number;
static uint64_t file_bytes;
static uint32_t unwritten; /* packets that could not be written: the disk is full */

_Noreturn static void die(const char *what)
{
	fprintf(stderr, "relive-capture: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* TCP of the port, on loopback as it comes in (it is there twice), elsewhere what this host sends or gets; nothing that carries neither data
 * nor SYN, FIN or RST, for such a packet only acknowledges. Not behind extension headers of IPv6, and not in fragments after the first. */
static void filter(int sock, unsigned short port)
{
	enum { DROP = 43, TAKE = 44 };
#define TO(label, at) ((label) - (at) - 1)
	struct sock_filter code[] = {
		/* 0 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE),
		/* 1 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_HOST, TO(5, 1), 0),
		/* 2 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, TO(DROP, 2)),
		/* 3 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_HATYPE),
		/* 4 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARPHRD_LOOPBACK, TO(DROP, 4), 0),
		/* 5 */ BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PROTOCOL),
		/* 6 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 0, TO(27, 6)),
		/* 7 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 9),
		/* 8 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 6, 0, TO(DROP, 8)),
		/* 9 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 6),
		/* 10 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, TO(DROP, 10), 0),
		/* 11 */ BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
		/* 12 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 0),
		/* 13 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, TO(16, 13), 0),
		/* 14 */ BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
		/* 15 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, TO(DROP, 15)),
		/* 16 */ BPF_STMT(BPF_LD | BPF_B | BPF_IND, 13),
		/* 17 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x07, TO(TAKE, 17), 0),
		/* 18 */ BPF_STMT(BPF_LD | BPF_B | BPF_IND, 12),
		/* 19 */ BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
		/* 20 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x3c),
		/* 21 */ BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0),
		/* 22 */ BPF_STMT(BPF_MISC | BPF_TAX, 0),
		/* 23 */ BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		/* 24 */ BPF_JUMP(BPF_JMP | BPF_JGT | BPF_X, 0, 0, TO(DROP, 24)),
		/* 25 */ BPF_STMT(BPF_RET | BPF_K, 0x40000),
		/* 26 */ BPF_STMT(BPF_RET | BPF_K, 0),
		/* 27 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, 0, TO(DROP, 27)),
		/* 28 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 6),
		/* 29 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 6, 0, TO(DROP, 29)),
		/* 30 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 40),
		/* 31 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, TO(34, 31), 0),
		/* 32 */ BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 42),
		/* 33 */ BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, port, 0, TO(DROP, 33)),
		/* 34 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 53),
		/* 35 */ BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x07, TO(TAKE, 35), 0),
		/* 36 */ BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 52),
		/* 37 */ BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 2),
		/* 38 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x3c),
		/* 39 */ BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 40),
		/* 40 */ BPF_STMT(BPF_MISC | BPF_TAX, 0),
		/* 41 */ BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
		/* 42 */ BPF_JUMP(BPF_JMP | BPF_JGT | BPF_X, 0, TO(TAKE, 42), TO(DROP, 42)),
		/* 43 */ BPF_STMT(BPF_RET | BPF_K, 0),
		/* 44 */ BPF_STMT(BPF_RET | BPF_K, 0x40000),
	};
	struct sock_fprog program = {sizeof code / sizeof code[0], code};

	if (setsockopt(sock, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) < 0)
		die("SO_ATTACH_FILTER");
}

static int open_ring(const char *network, unsigned short port, uint8_t **ring)
{
	struct tpacket_req3 request = {
		.tp_block_size = BLOCK_BYTES,
		.tp_block_nr = BLOCKS,
		.tp_frame_size = 2048,
		.tp_frame_nr = BLOCKS * (BLOCK_BYTES / 2048),
		.tp_retire_blk_tov = BLOCK_MS,
	};
	struct sockaddr_ll all = {.sll_family = AF_PACKET, .sll_protocol = htobe16(ETH_P_ALL)};
	int version = TPACKET_V3, place = open(network, O_RDONLY | O_CLOEXEC), sock;

	if (place < 0 || setns(place, CLONE_NEWNET) < 0)
		die(network);
	close(place);
	sock = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* nothing comes before it is bound */
	if (sock < 0)
		die("AF_PACKET");
	if (setsockopt(sock, SOL_PACKET, PACKET_VERSION, &version, sizeof version) < 0)
		die("PACKET_VERSION");
	filter(sock, port);
	if (setsockopt(sock, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) < 0)
		die("PACKET_RX_RING");
	*ring = mmap(NULL, (size_t)BLOCK_BYTES * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, sock, 0);
	if (*ring == MAP_FAILED)
		die("mmap of the ring");
	if (bind(sock, (struct sockaddr *)&all, sizeof all) < 0)
		die("bind");
	return sock;
}

static void open_progress(void)
{
	char name[4096];
	int descriptor;

	snprintf(name, sizeof name, "%s/progress", directory);
	descriptor = open(name, O_RDWR | O_CLOEXEC);
	if (descriptor < 0)
		die(name);
	progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
	if (progress == MAP_FAILED)
		die(name);
	close(descriptor);
}

static bool open_file(void)
{
	char name[4096];

	if (file >= 0 && file_bytes < FILE_BYTES)
		return true;
	snprintf(name, sizeof name, "%s/%u.packets", directory, number + 1);
	if (file >= 0)
		close(file);
	file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (file < 0)
		return false;
	number++;
	file_bytes = 0;
	return true;
}

static void begin_anew(void)
{
	if (file < 0 || !file_bytes || progress->read != progress->written || lseek(file, 0, SEEK_SET) < 0)
		return;
	file_bytes = 0;
	progress->anew = progress->written;
}

static void tell(void)
{
	(void)!write(STDOUT_FILENO, "", 1);
}

/* Append a block, as a whole or not at all. A block that cannot be written is counted as lost. */
static void append(const void *data, uint32_t bytes, uint32_t packets, uint32_t lost)
{
	struct header header = {MAGIC, bytes, packets, lost + unwritten};
	struct iovec parts[] = {{&header, sizeof header}, {(void *)data, bytes}};
	ssize_t whole = (ssize_t)(sizeof header + bytes), done;

	begin_anew();
	if (!open_file() || (done = writev(file, parts, 2)) != whole) {
		if (file >= 0 && ftruncate(file, (off_t)file_bytes) == 0)
			lseek(file, (off_t)file_bytes, SEEK_SET);
		unwritten += lost + packets;
		return;
	}
	unwritten = 0;
	file_bytes += (uint64_t)whole;
	progress->written += (uint64_t)whole;
	tell();
}

/* How many packets the kernel has dropped since the last call. */
static uint32_t dropped(int sock)
{
	struct tpacket_stats_v3 stats = {0};
	socklen_t size = sizeof stats;

	return getsockopt(sock, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0 ? stats.tp_drops : 0;
}

static bool has_room(void)
{
	return progress->written - progress->read < SPOOL_BYTES;
}

static void run(int sock, uint8_t *ring)
{
	struct pollfd waits[] = {{.fd = sock, .events = POLLIN | POLLERR}, {.fd = STDIN_FILENO, .events = POLLIN}};
	unsigned next = 0;
	bool is_asked = false;
	char asked[64];

	for (;;) {
		uint64_t looked = now(); /* before the look: what comes after it is not looked for */
		struct tpacket_block_desc *block = (void *)(ring + (size_t)next * BLOCK_BYTES);
		struct tpacket_hdr_v1 *head = &block->hdr.bh1;
		bool is_ready = __atomic_load_n(&head->block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER;

		if (is_ready && has_room()) {
			/* A block is marked where it was begun after packets were dropped, those that had come before are not. */
			uint32_t lost = head->block_status & TP_STATUS_LOSING ? dropped(sock) : 0;

			append((uint8_t *)block + head->offset_to_first_pkt, head->blk_len - head->offset_to_first_pkt,
			       head->num_pkts, lost);
			__atomic_store_n(&head->block_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
			next = (next + 1) % BLOCKS;
			continue;
		}
		if (!is_ready)
			progress->until = looked - LATEST_MS * 1000000ull;
		if (is_asked) {
			is_asked = false;
			tell();
		}
		waits[0].fd = is_ready ? -1 : sock; /* a block is there for which there is no room: the ring says so all the time */
		if (poll(waits, 2, is_ready ? FULL_MS : IDLE_MS) == 0 && !is_ready) {
			uint32_t lost = dropped(sock);

			if (lost || unwritten)
				append(NULL, 0, 0, lost);
		}
		if (waits[1].revents && !(is_asked = read(STDIN_FILENO, asked, sizeof asked) > 0))
			return;
	}
}

int main(int count, char **words)
{
	uint8_t *ring;
	int sock;

	if (count != 4 || atoi(words[3]) <= 0 || atoi(words[3]) > 65535) {
		fprintf(stderr, "usage: relive-capture NETWORK DIRECTORY PORT\n");
		return 2;
	}
	directory = words[2];
	prctl(PR_SET_NAME, "relive-capture");
	setpriority(PRIO_PROCESS, 0, NICE); /* where it may not, packets are lost earlier */
	fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
	open_progress();
	sock = open_ring(words[1], (unsigned short)atoi(words[3]), &ring);
	append(NULL, 0, 0, 0); /* it takes packets from now on */
	run(sock, ring);
	return 0;
}
