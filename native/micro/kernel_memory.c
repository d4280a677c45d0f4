/* See kernel_memory.h.
 *
 * Program and reader share one value of a map, which is mapped here: how many pieces are asked for, the list of them, and behind it what was
 * read. The program reads a part of the list at a time, since the kernel checks each turn of its loop when it is loaded. */
#define _GNU_SOURCE
#include "kernel_memory.h"

#include <linux/bpf.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	TURNS = 256,
	FETCHED = ALL_PIECES, /* what `fetch` reads lies behind all else */
	HELPER_CLOCK = 5,
	HELPER_CURRENT_TASK = 35,
	HELPER_READ_KERNEL = 113,
};

struct piece {
	uint64_t address;
	uint32_t size, at;
};

static struct shared {
	uint64_t task; /* of whoever runs the program */
	uint64_t clock; /* [ns] */
	uint32_t count, first; /* of the list */
	uint64_t has_failed;
	struct piece list[PIECES_MOST];
	unsigned char read[ALL_PIECES + 2 * PIECE_MOST];
} *shared;

static int program = -1;
static uint32_t piece_count, used; /* `used`: [bytes] */
static uint64_t clock_read;

#define STEP(code, to, from, offset, value) ((struct bpf_insn){ code, to, from, offset, value })

static int load(int map)
{
	const struct bpf_insn steps[] = {
		STEP(0x18, 6, BPF_PSEUDO_MAP_VALUE, 0, map), /* r6: the shared value */
		STEP(0, 0, 0, 0, 0),
		STEP(0x85, 0, 0, 0, HELPER_CURRENT_TASK),
		STEP(0x7b, 6, 0, offsetof(struct shared, task), 0),
		STEP(0x85, 0, 0, 0, HELPER_CLOCK),
		STEP(0x7b, 6, 0, offsetof(struct shared, clock), 0),
		STEP(0x61, 7, 6, offsetof(struct shared, count), 0),
		STEP(0xb7, 8, 0, 0, 0), /* r8: the turn */
		/* loop: */
		STEP(0x35, 8, 0, 17, TURNS), /* to end */
		STEP(0x3d, 8, 7, 16, 0),
		STEP(0x61, 9, 6, offsetof(struct shared, first), 0),
		STEP(0x0f, 9, 8, 0, 0),
		STEP(0x25, 9, 0, 12, PIECES_MOST - 1), /* to failed */
		STEP(0x67, 9, 0, 0, 4), /* r9: the piece */
		STEP(0x0f, 9, 6, 0, 0),
		STEP(0x79, 3, 9, offsetof(struct shared, list) + offsetof(struct piece, address), 0),
		STEP(0x61, 2, 9, offsetof(struct shared, list) + offsetof(struct piece, size), 0),
		STEP(0x61, 1, 9, offsetof(struct shared, list) + offsetof(struct piece, at), 0),
		STEP(0x25, 2, 0, 6, PIECE_MOST),
		STEP(0x25, 1, 0, 5, ALL_PIECES + PIECE_MOST),
		STEP(0x0f, 1, 6, 0, 0),
		STEP(0x07, 1, 0, 0, offsetof(struct shared, read)),
		STEP(0x85, 0, 0, 0, HELPER_READ_KERNEL),
		STEP(0x07, 8, 0, 0, 1),
		STEP(0x15, 0, 0, -17, 0), /* to loop */
		/* failed: */
		STEP(0x7a, 6, 0, offsetof(struct shared, has_failed), 1),
		/* end: */
		STEP(0xb7, 0, 0, 0, 0),
		STEP(0x95, 0, 0, 0, 0),
	};
	union bpf_attr asked = {
		.prog_type = BPF_PROG_TYPE_SYSCALL,
		.insns = (uint64_t)steps,
		.insn_cnt = sizeof steps / sizeof *steps,
		/* Only a program whose licence goes with the GPL may read the kernel's memory. This one, these instructions, may be used under
		 * the MIT licence or the GPL, as well as under that of the project. */
		.license = (uint64_t) "Dual MIT/GPL",
		.prog_flags = BPF_F_SLEEPABLE, /* those of this kind have to be */
		.prog_name = "relive_micro",
	};

	return (int)syscall(SYS_bpf, BPF_PROG_LOAD, &asked, sizeof asked);
}

bool open_kernel_memory(void)
{
	const size_t size = (sizeof *shared + 4095) & ~(size_t)4095;
	union bpf_attr asked = {
		.map_type = BPF_MAP_TYPE_ARRAY,
		.key_size = 4,
		.value_size = sizeof *shared,
		.max_entries = 1,
		.map_flags = BPF_F_MMAPABLE,
	};
	const int map = (int)syscall(SYS_bpf, BPF_MAP_CREATE, &asked, sizeof asked);

	if (map < 0)
		return false;
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
	program = shared == MAP_FAILED ? -1 : load(map);
	close(map);
	return program >= 0 && read_pieces();
}

static bool run(uint32_t first, uint32_t count)
{
	union bpf_attr asked = { .test.prog_fd = (uint32_t)program };

	shared->first = first;
	shared->count = count;
	shared->has_failed = 0;
	return !syscall(SYS_bpf, BPF_PROG_TEST_RUN, &asked, sizeof asked) && !shared->has_failed;
}

uint64_t own_task(void)
{
	return shared->task;
}

void forget_pieces(void)
{
	piece_count = used = 0;
}

int add_piece(uint64_t address, uint32_t size)
{
	const uint32_t at = used;

	if (piece_count == PIECES_MOST - 1 || size > PIECE_MOST || size > ALL_PIECES - used)
		return -1;
	shared->list[piece_count++] = (struct piece){ address, size, at };
	used += (size + 7) & ~7U;
	return (int)at;
}

struct pieces_end pieces_end(void)
{
	return (struct pieces_end){ piece_count, used };
}

void cut_pieces(struct pieces_end end)
{
	piece_count = end.count;
	used = end.size;
}

bool read_pieces(void)
{
	uint32_t first = 0;

	do {
		const uint32_t count = piece_count - first < TURNS ? piece_count - first : TURNS;

		if (!run(first, count))
			return false;
		first += count;
	} while (first < piece_count);
	clock_read = shared->clock;
	return true;
}

uint64_t read_at_ns(void)
{
	return clock_read;
}

const unsigned char *pieces(void)
{
	return shared->read;
}

const unsigned char *fetch(uint64_t address, uint32_t size)
{
	if (size > PIECE_MOST)
		return NULL;
	shared->list[PIECES_MOST - 1] = (struct piece){ address, size, FETCHED };
	return run(PIECES_MOST - 1, 1) ? shared->read + FETCHED : NULL;
}
