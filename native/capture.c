/* relive-capture: takes the TCP packets of one port from the kernel, in the order in which the kernel saw them, for a reader.
 *
 *   relive-capture NETWORK DIRECTORY PORT [PROGRAM]
 *
 * NETWORK is a file that names the network namespace (/proc/PID/ns/net), PROGRAM the descriptor of a filter that takes what `filter` does,
 * or of some packets only the heads (src/relive/kernel/portprogram.py); where the kernel refuses it, `filter` is used. It stands beside
 * the way: the service and its clients never wait for it, whatever becomes of it. It looks at no byte.
 *
 * The kernel puts packets into a ring of blocks (packet(7), TPACKET_V3). Its socket is sent to the reader over standard input, a unix
 * socket; the reader maps the ring and reads blocks where they are. A block that is full, or BLOCK_MS old, is *ready*, and one byte is
 * written to standard output, without waiting. A block that was read is *released* to the kernel.
 *
 * Where SPOOL_AT blocks are in the ring, the oldest is copied to DIRECTORY/N.packets behind a header (struct header) and then released,
 * read or not, so that a reader that has no processor costs no packets. The reader sees that in `released`, by which it also knows whether
 * what it has copied from the ring was still that block. A file that is larger than FILE_BYTES is followed by the next; the reader
 * deletes them. While more than SPOOL_BYTES wait, or the disk is full, blocks stay in the ring, and when that is full the kernel drops
 * packets. How many it dropped is said with the first block after them; if none comes, in `lost_since`.
 *
 * Blocks are numbered from 0; DIRECTORY/progress is shared memory (struct progress). A byte on standard input asks it to look at the
 * ring now. It ends when standard input is closed: its parent has died, or wants that.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	BLOCK_MS = 20,
	LATEST_MS = BLOCK_MS, /* from a packet's time until it is in a block */
	BLOCK_BYTES = 1 << 20, /* the largest packet on loopback has 64 KiB */
	BLOCKS = 16,
	SPOOL_AT = 6,
	FILE_BYTES = 32 << 20,
	IDLE_MS = 1000,
	FULL_MS = 20,
	NICE = -10,
};

static const uint64_t SPOOL_BYTES = 512ull << 20;

/* Before each block's packets, whose own form is the kernel's (struct tpacket3_hdr). */
struct header {
	uint32_t magic;
	uint32_t bytes;   /* that follow */
	uint32_t packets; /* in them */
	uint32_t lost;    /* packets dropped before the first of them */
	uint64_t number;  /* of the block */
};

static const uint32_t MAGIC = 0x4b4c4250; /* "PBLK" */

/* `read` and `read_bytes` are the reader's, all else is written here. */
struct progress {
	uint64_t ready;       /* blocks that may be read */
	uint64_t ready_bytes; /* of packets in them */
	uint64_t released;    /* blocks that are not in the ring any more; of these, what was not read is in a file */
	uint64_t until;       /* CLOCK_REALTIME [ns]: every packet before that is in a block that is ready, or was dropped */
	uint64_t anew;        /* the block with which the file was begun anew */
	uint64_t lost_since;  /* packets dropped in all that no block tells of */
	uint64_t read;        /* blocks */
	uint64_t read_bytes;
	uint64_t lost[BLOCKS]; /* before the block at that place of the ring */
};

static const char *directory;
static struct progress *progress;
static uint8_t *ring;
static int file = -1;
static unsigned number;
static uint64_t file_bytes;
static uint64_t spooled; /* blocks up to the last one in the file */

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

/* Returns false where the kernel refuses the program, or a security module does. Nothing is lost then, all is taken. */
static bool filter_by(int sock, int program)
{
	bool is_taken = setsockopt(sock, SOL_SOCKET, SO_ATTACH_BPF, &program, sizeof program) == 0;

	if (!is_taken)
		fprintf(stderr, "relive-capture: long answers are recorded as a whole: SO_ATTACH_BPF: %s\n", strerror(errno));
	close(program); /* the socket has it */
	return is_taken;
}

static int open_ring(const char *network, unsigned short port, int program)
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
	if (program < 0 || !filter_by(sock, program))
		filter(sock, port);
	if (setsockopt(sock, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) < 0)
		die("PACKET_RX_RING");
	ring = mmap(NULL, (size_t)BLOCK_BYTES * BLOCKS, PROT_READ | PROT_WRITE, MAP_SHARED, sock, 0);
	if (ring == MAP_FAILED)
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

static void tell(void)
{
	(void)!write(STDOUT_FILENO, "", 1);
}

/* Blocks */

static struct tpacket_block_desc *block(uint64_t which)
{
	return (void *)(ring + (size_t)(which % BLOCKS) * BLOCK_BYTES);
}

/* How many packets the kernel has dropped since the last call. */
static uint32_t dropped(int sock)
{
	struct tpacket_stats_v3 stats = {0};
	socklen_t size = sizeof stats;

	return getsockopt(sock, SOL_PACKET, PACKET_STATISTICS, &stats, &size) == 0 ? stats.tp_drops : 0;
}

static uint32_t bytes_of(const struct tpacket_hdr_v1 *head)
{
	return head->blk_len - head->offset_to_first_pkt;
}

/* Let the reader have the next block; false: it is not full yet, or the ring is, of blocks that are ready. */
static bool has_next(int sock)
{
	uint64_t next = progress->ready;
	struct tpacket_hdr_v1 *head = &block(next)->hdr.bh1;

	if (next - progress->released == BLOCKS || !(__atomic_load_n(&head->block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
		return false;
	/* A block is marked where it was begun after packets were dropped, those that had come before are not. */
	progress->lost[next % BLOCKS] = head->block_status & TP_STATUS_LOSING ? dropped(sock) : 0;
	progress->ready_bytes += bytes_of(head);
	__atomic_store_n(&progress->ready, next + 1, __ATOMIC_RELEASE);
	tell();
	return true;
}

/* The oldest block to the kernel. Who reads it must see that before the kernel writes to it. */
static void release(void)
{
	uint64_t oldest = progress->released;

	__atomic_store_n(&progress->released, oldest + 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&block(oldest)->hdr.bh1.block_status, TP_STATUS_KERNEL, __ATOMIC_SEQ_CST);
}

/* Blocks to files */

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

/* A file of which all was read is begun anew: pages that are cached cost less than further ones. */
static void begin_anew(uint64_t first)
{
	if (file < 0 || !file_bytes || spooled > __atomic_load_n(&progress->read, __ATOMIC_ACQUIRE) || lseek(file, 0, SEEK_SET) < 0)
		return;
	file_bytes = 0;
	progress->anew = first;
}

/* Append the oldest block to a file, as a whole or not at all; false: there is no room. */
static bool spool(void)
{
	uint64_t oldest = progress->released;
	struct tpacket_hdr_v1 *head = &block(oldest)->hdr.bh1;
	struct header header = {MAGIC, bytes_of(head), head->num_pkts, (uint32_t)progress->lost[oldest % BLOCKS], oldest};
	struct iovec parts[] = {{&header, sizeof header}, {(uint8_t *)block(oldest) + head->offset_to_first_pkt, header.bytes}};
	ssize_t whole = (ssize_t)(sizeof header + header.bytes);

	begin_anew(oldest);
	if (progress->ready_bytes - __atomic_load_n(&progress->read_bytes, __ATOMIC_RELAXED) > SPOOL_BYTES || !open_file())
		return false;
	if (writev(file, parts, 2) != whole) {
		if (ftruncate(file, (off_t)file_bytes) == 0)
			lseek(file, (off_t)file_bytes, SEEK_SET);
		return false;
	}
	file_bytes += (uint64_t)whole;
	spooled = oldest + 1;
	return true;
}

/* Leave the kernel room. Returns whether it has enough. */
static bool make_room(void)
{
	while (progress->released < __atomic_load_n(&progress->read, __ATOMIC_ACQUIRE))
		release();
	while (progress->ready - progress->released >= SPOOL_AT) {
		if (!spool())
			return false;
		release();
	}
	return true;
}

/* Whether there is more of a parent; what it has said asks for a look at the ring. */
static bool hear(void)
{
	char asked[64];

	return read(STDIN_FILENO, asked, sizeof asked) > 0;
}

/* After a look at `looked` (CLOCK_REALTIME [ns]) found no block: since when packets may have come that are in none that is ready.
 *
 * The kernel counts packets in the header of the block that it fills, and notes there when it began that block (net/packet/af_packet.c:
 * prb_fill_curr_block, prb_open_block). Its timer hands a block over BLOCK_MS later, or later still where nobody lets it run: a host whose
 * processors are busy, or belong to others. So the time alone says nothing. A packet has its time a little before it is in the block, and so
 * before the block that begins with it. Where the clock was set back, what was known before is forgotten. */
static uint64_t until_when(uint64_t looked)
{
	static uint64_t latest;
	struct tpacket_hdr_v1 *head = &block(progress->ready)->hdr.bh1;
	uint64_t until = looked, begun, known = looked < latest ? 0 : progress->until;

	latest = looked;
	if (progress->ready - progress->released < BLOCKS && __atomic_load_n(&head->num_pkts, __ATOMIC_ACQUIRE) > 0) {
		begun = head->ts_first_pkt.ts_sec * 1000000000ull + head->ts_first_pkt.ts_nsec;
		until = begun < until ? begun : until;
	}
	until -= LATEST_MS * 1000000ull;
	return until > known ? until : known;
}

static void run(int sock)
{
	/* Of the ring only by its edge: it is readable all the time while a block is in it that was not released. */
	struct epoll_event ring_event = {.events = EPOLLIN | EPOLLERR | EPOLLET, .data.fd = sock}, found;
	struct epoll_event parent_event = {.events = EPOLLIN, .data.fd = STDIN_FILENO};
	int waits = epoll_create1(EPOLL_CLOEXEC);

	if (waits < 0 || epoll_ctl(waits, EPOLL_CTL_ADD, sock, &ring_event) < 0 || epoll_ctl(waits, EPOLL_CTL_ADD, STDIN_FILENO, &parent_event) < 0)
		die("epoll");
	for (bool is_asked = true;;) {
		uint64_t looked = now(); /* before the look: what comes after it is not looked for */
		bool has_room = make_room(), is_quiet = true;

		while (has_next(sock)) {
			is_quiet = false;
			has_room = make_room();
			looked = now();
		}
		progress->until = until_when(looked);
		if (is_asked)
			tell();
		is_asked = false;
		int count = epoll_wait(waits, &found, 1, has_room ? IDLE_MS : FULL_MS);
		if (count == 0 && is_quiet) {
			uint32_t lost = dropped(sock);

			progress->lost_since += lost;
			if (lost)
				tell();
		}
		if (count > 0 && found.data.fd == STDIN_FILENO && !(is_asked = hear()))
			return;
	}
}

/* The reader has the ring, too: it ends with the last of those who have its socket or have mapped it. */
static void hand_over(int sock)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
	struct iovec byte = {"", 1};
	struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};

	memcpy(CMSG_DATA(&control.head), &sock, sizeof sock);
	if (sendmsg(STDIN_FILENO, &message, MSG_NOSIGNAL) != 1)
		die("standard input");
}

/* It does little, and has to do it before the ring is full. Where the kernel groups by sessions (sched_autogroup) a priority counts among
 * those of a session only, so this is one of its own, whose priority is raised as well. Where it may not, packets are lost earlier. */
static void hurry(void)
{
	char value[8];
	int group, size = snprintf(value, sizeof value, "%d", NICE);

	setpriority(PRIO_PROCESS, 0, NICE);
	if (setsid() < 0 || (group = open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC)) < 0)
		return;
	(void)!write(group, value, (size_t)size);
	close(group);
}

int main(int count, char **words)
{
	int sock;

	if (count < 4 || count > 5 || atoi(words[3]) <= 0 || atoi(words[3]) > 65535) {
		fprintf(stderr, "usage: relive-capture NETWORK DIRECTORY PORT [PROGRAM]\n");
		return 2;
	}
	directory = words[2];
	prctl(PR_SET_NAME, "relive-capture");
	hurry();
	fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
	open_progress();
	sock = open_ring(words[1], (unsigned short)atoi(words[3]), count == 5 ? atoi(words[4]) : -1);
	hand_over(sock);
	run(sock);
	return 0;
}
