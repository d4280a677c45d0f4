/* See digest.h. */
#define _GNU_SOURCE
#include "digest.h"

#include "pages.h"

#include "../micro/memory.h"

#include <string.h>
#include <sys/ptrace.h>

uint64_t digest;
static uint64_t kept_digest;

/* struct rseq: cpu_id_start and cpu_id, rseq_cs, flags, node_id and mm_cid */
enum { RSEQ_NUMBERS = 8, RSEQ_SECTION_END = 16, RSEQ_SIZE = 32 };

uint64_t mixed(uint64_t hash, const void *from, size_t size)
{
	const unsigned char *at = from;
	uint64_t word;

	for (; size >= sizeof word; at += sizeof word, size -= sizeof word) {
		memcpy(&word, at, sizeof word);
		hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	for (; size; at++, size--)
		hash = (hash ^ *at) * 0x9e3779b97f4a7c15ULL;
	return hash;
}

static uint64_t digest_of_threads(const struct thread *all, int count)
{
	uint64_t hash = 0;

	for (int i = 0; i < count; i++) {
		hash = mixed(hash, &all[i].inside, sizeof all[i].inside);
		hash = mixed(hash, &all[i].context.registers, sizeof all[i].context.registers);
		hash = mixed(hash, &all[i].context.mask, sizeof all[i].context.mask);
		hash = mixed(hash, all[i].context.xstate, all[i].context.xsize);
	}
	return hash;
}

/* Makes zero what the kernel writes into a page whenever a thread runs. */
static void leave_out(uint64_t start, unsigned char *page)
{
	for (int i = 0; i < thread_count; i++) {
		struct rseq_place place = { 0 };

		if (ptrace(GET_RSEQ, threads[i].tid, sizeof place, &place) < 0 || !place.pointer || place.pointer < start ||
		    place.pointer + RSEQ_SIZE > start + PAGE)
			continue;
		memset(page + (place.pointer - start), 0, RSEQ_NUMBERS);
		memset(page + (place.pointer - start) + RSEQ_SECTION_END, 0, RSEQ_SIZE - RSEQ_SECTION_END);
	}
}

/* Adds pages; they are changed. */
static void add_pages(uint64_t *hash, uint64_t start, unsigned char *pages, size_t size)
{
	static const unsigned char zeros[PAGE];

	for (size_t at = 0; at < size; at += PAGE) {
		const uint64_t address = start + at;

		if (!memcmp(pages + at, zeros, PAGE))
			continue;
		leave_out(address, pages + at);
		*hash = mixed(mixed(*hash, &address, sizeof address), pages + at, PAGE);
	}
}

static void digest_reference(void)
{
	kept_digest = digest_of_threads(threads, thread_count);
	for (size_t i = 0; i < kept_runs_count(); i++) {
		uint64_t start, end;
		const unsigned char *content = kept_run(i, &start, &end);

		for (; start < end; start += PAGE, content += PAGE) {
			memcpy(buffer, content, PAGE);
			add_pages(&kept_digest, start, buffer, PAGE);
		}
	}
}

static bool read_contexts(struct thread *to)
{
	for (int i = 0; i < thread_count; i++) {
		to[i].inside = threads[i].inside;
		if (!get_context(threads[i].tid, &to[i].context))
			return refuse("the registers of thread %d cannot be read", (int)threads[i].tid);
	}
	return true;
}

static bool refuse_as_different(uint64_t of_threads)
{
	unsigned char wanted[PAGE], found[PAGE];

	if (of_threads != digest_of_threads(threads, thread_count))
		return refuse("the registers are not what was kept");
	for (size_t i = 0; i < kept_runs_count(); i++) {
		uint64_t start, end;
		const unsigned char *content = kept_run(i, &start, &end);

		for (; start < end; start += PAGE, content += PAGE) {
			memcpy(wanted, content, PAGE);
			leave_out(start, wanted);
			if (!peek(process.pid, start, found, PAGE))
				return refuse("the page at %llx cannot be read", (unsigned long long)start);
			leave_out(start, found);
			for (int at = 0; at < PAGE; at++)
				if (wanted[at] != found[at])
					return refuse("the byte at %llx is not what was kept", (unsigned long long)start + (unsigned)at);
		}
	}
	return refuse("there is memory that was not kept");
}

/* What the reference has is in memory, and not swapped out. */
static bool read_all_kept(void)
{
	for (size_t i = 0; i < kept_runs_count(); i++) {
		uint64_t at, end;

		for (kept_run(i, &at, &end); at < end; at += PAGE)
			if (!peek(process.pid, at, buffer, PAGE))
				return refuse("its memory at %llx cannot be read", (unsigned long long)at);
	}
	return true;
}

bool compare_digests(void)
{
	static struct thread now[THREADS_MOST];
	uint64_t of_threads;

	digest_reference();

	if (!read_contexts(now) || !read_all_kept() || !find_all(IS_SWAPPED))
		return false;
	digest = of_threads = digest_of_threads(now, thread_count);
	for (size_t i = 0; i < present.count; i++) {
		if (present.at[i].categories & IS_SWAPPED)
			continue; /* not what the reference has, which was read just now: a mark in the place of a page of a file */
		for (uint64_t at = present.at[i].start, end = present.at[i].end; at < end;) {
			const uint64_t most = (uint64_t)WINDOW * PAGE, size = end - at < most ? end - at : most;

			if (!peek(process.pid, at, buffer, size))
				return refuse("its memory at %llx cannot be read", (unsigned long long)at);
			add_pages(&digest, at, buffer, size);
			at += size;
		}
	}
	return digest == kept_digest ? true : refuse_as_different(of_threads);
}
