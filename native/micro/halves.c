/* See halves.h.
 *
 * Each part is claimed by one of the two. A part that the helper has claimed and not done when all else is done is looked at a second time; so
 * nothing ever waits for the helper, which may have lost its processor. Until it is heard to have gone back to sleep it takes no part in the next look. */
#define _GNU_SOURCE
#include "halves.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

enum {
	PARTS = 16,
	FOUND_MOST = 512, /* in each part */
	READY_NS = 2000000,
};

enum state { ASLEEP, READY, BUSY };

static struct part {
	uint64_t start, end;
	_Atomic bool is_claimed, is_done;
	long count; /* below zero: it cannot be looked at */
	struct region found[FOUND_MOST];
} parts[PARTS];
static int part_count;
static struct scan_arg question;
static _Atomic uint32_t state = ASLEEP;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long scan(const struct part *part, struct region *found)
{
	struct scan_arg scan = question;
	long count;

	scan.size = sizeof scan;
	scan.start = part->start;
	scan.end = part->end;
	scan.vec = (uint64_t)found;
	scan.vec_len = FOUND_MOST;
	count = ioctl(process.pagemap, SCAN, &scan);
	return count == FOUND_MOST ? -1 : count;
}

static void take(struct part *part)
{
	if (atomic_exchange(&part->is_claimed, true))
		return;
	part->count = scan(part, part->found);
	atomic_store(&part->is_done, true);
}

static void *help(void *nothing)
{
	for (;;) {
		int64_t until;

		while (atomic_load(&state) == ASLEEP)
			syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, ASLEEP, NULL, NULL, 0);
		until = now_ns() + READY_NS;
		while (atomic_load(&state) == READY && now_ns() < until)
			sched_yield(); /* a thread that is to stop may wait for this processor */
		for (int i = part_count - 1; i >= 0 && atomic_load(&state) == BUSY; i--)
			take(&parts[i]);
		atomic_store(&state, ASLEEP);
	}
	return nothing;
}

static bool has_priority(void)
{
	const int policy = sched_getscheduler(0);
	cpu_set_t permitted;

	return (policy == SCHED_FIFO || policy == SCHED_RR) && !sched_getaffinity(0, sizeof permitted, &permitted) &&
	       CPU_COUNT(&permitted) > 1;
}

static bool find_helper(void)
{
	static pthread_t helper;
	static bool was_tried, is_there;

	if (!was_tried)
		is_there = has_priority() && !pthread_create(&helper, NULL, help, NULL);
	was_tried = true;
	return is_there;
}

/* Equal shares of the pages that are there. */
void plan_halves(const struct run_list *there, uint64_t start, uint64_t end, struct scan_arg asked)
{
	uint64_t size = 0, taken = 0, share;

	part_count = 0;
	if (!find_helper() || atomic_load(&state) != ASLEEP)
		return; /* it is not done with the last one */
	for (size_t i = 0; i < there->count; i++)
		size += there->at[i].end - there->at[i].start;
	share = (size / PARTS / PAGE + 1) * PAGE;
	parts[part_count++].start = start;
	for (size_t i = 0; i < there->count; i++) {
		const struct region *one = &there->at[i];

		while (taken + (one->end - one->start) > share * (uint64_t)part_count && part_count < PARTS) {
			const uint64_t cut = one->start + (share * (uint64_t)part_count - taken);

			parts[part_count - 1].end = cut;
			parts[part_count++].start = cut;
		}
		taken += one->end - one->start;
	}
	parts[part_count - 1].end = end;
	question = asked;
	for (int i = 0; i < part_count; i++)
		parts[i].is_claimed = parts[i].is_done = false;
}

void ready_halves(void)
{
	if (part_count && atomic_compare_exchange_strong(&state, &(uint32_t){ ASLEEP }, READY))
		syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void begin_halves(void)
{
	(void)atomic_compare_exchange_strong(&state, &(uint32_t){ READY }, BUSY);
}

bool finish_halves(struct run_list *list)
{
	static struct region spare[FOUND_MOST];

	if (!part_count)
		return false;
	for (int i = 0; i < part_count; i++)
		take(&parts[i]);
	list->count = 0;
	for (int i = 0; i < part_count; i++) {
		const bool is_done = atomic_load(&parts[i].is_done);
		const struct region *found = is_done ? parts[i].found : spare;
		const long count = is_done ? parts[i].count : scan(&parts[i], spare);

		if (count < 0)
			return false;
		for (long k = 0; k < count; k++)
			push(list, found[k]);
	}
	part_count = 0;
	return has_room();
}

void forget_halves(void)
{
	part_count = 0;
}
