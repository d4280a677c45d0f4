/* pages_shim: has CRIU read the memory of what it restores with several threads, into pages that the kernel has made many at a time.
 *
 * Loaded into CRIU with LD_PRELOAD for restores. Most of the time of a restore goes into one preadv() for each process, of all its pages.
 * The kernel takes an exception for each page on the way, and one processor does it all. Here a large preadv64() is cut into parts, one for
 * each processor up to MOST_THREADS. Each thread has the kernel make the pages of a piece (MADV_POPULATE_WRITE, Linux 5.14), and reads it
 * while it is in the processor's cache. CRIU calls this function where it fills memory before its restorer runs (empty_parents.py); the
 * restorer itself makes system calls only.
 *
 * Threads take numbers in the PID namespace of what is restored: those behind CRIU's own, of which the caller has kept some free
 * (relive.sandbox.builder). So all processes of one restore make MOST_MADE at most. Where a number is wanted of the kernel beforehand
 * (clone3(2), Linux 5.5), a thread elsewhere is in nobody's way; kernels that cannot do that cannot populate either. All threads have ended,
 * but for what the kernel does on its own, when the call returns. What fails in part is done again by one preadv(), whose answer counts.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { MOST_THREADS = 4, MOST_MADE = 16, PAGE = 4096, PIECE = 1 << 18, FOR_ONE = 4 << 20, STACK = 1 << 16 };

struct share {
	int file;
	const struct iovec *parts;
	int count;
	uint64_t offset;      /* in the file, of the first byte of the first part */
	uint64_t begin, end;  /* bytes of all parts that are this thread's */
	bool is_done;
};

static int *made; /* threads, of all processes that CRIU forks; NULL: none may be made */

__attribute__((constructor)) static void begin(void)
{
	void *shared = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	made = shared == MAP_FAILED ? NULL : shared;
}

static ssize_t raw_preadv(int file, const struct iovec *parts, int count, off64_t offset)
{
	return syscall(SYS_preadv, file, parts, count, offset, 0);
}

static bool read_piece(int file, char *target, size_t bytes, uint64_t offset)
{
	if (madvise(target, bytes, MADV_POPULATE_WRITE))
		return false;
	while (bytes) {
		ssize_t got = syscall(SYS_pread64, file, target, bytes, offset);

		if (got <= 0)
			return false;
		target += got, bytes -= (size_t)got, offset += (uint64_t)got;
	}
	return true;
}

/* Of one part, what lies between these bytes of it. */
static bool read_part(int file, char *target, uint64_t from, uint64_t to, uint64_t offset)
{
	for (uint64_t at = from, bytes; at < to; at += bytes) {
		bytes = to - at < PIECE ? to - at : PIECE;
		if (!read_piece(file, target + at, bytes, offset + at))
			return false;
	}
	return true;
}

static void *read_share(void *argument)
{
	struct share *share = argument;
	uint64_t before = 0; /* bytes of the parts before */

	for (int i = 0; i < share->count && before < share->end; i++) {
		uint64_t bytes = share->parts[i].iov_len, from = 0, to = bytes;

		if (before < share->begin)
			from = share->begin - before < bytes ? share->begin - before : bytes;
		if (share->end - before < bytes)
			to = share->end - before;
		if (from < to && !read_part(share->file, share->parts[i].iov_base, from, to, share->offset + before))
			return NULL;
		before += bytes;
	}
	share->is_done = true;
	return NULL;
}

static int threads_for(uint64_t bytes)
{
	uint64_t wanted = bytes / FOR_ONE;
	cpu_set_t usable;
	int others = 0;

	if (wanted > MOST_THREADS)
		wanted = MOST_THREADS;
	if (!sched_getaffinity(0, sizeof usable, &usable) && wanted > (uint64_t)CPU_COUNT(&usable))
		wanted = (uint64_t)CPU_COUNT(&usable);
	while (made && (uint64_t)others + 1 < wanted && __atomic_add_fetch(made, 1, __ATOMIC_RELAXED) <= MOST_MADE)
		others++;
	return others + 1;
}

/* In its own frame, as CRIU's signals are for its own thread. */
static bool start(pthread_t *thread, struct share *share)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	bool is_started;

	if (pthread_attr_init(&attributes))
		return false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	is_started = !pthread_attr_setstacksize(&attributes, STACK) && !pthread_create(thread, &attributes, read_share, share);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return is_started;
}

static bool read_all(int file, const struct iovec *parts, int count, uint64_t offset, uint64_t bytes)
{
	struct share shares[MOST_THREADS];
	pthread_t threads[MOST_THREADS];
	bool is_started[MOST_THREADS] = { false }, is_done = true;
	int many = threads_for(bytes);
	uint64_t each = bytes / (uint64_t)many & ~(uint64_t)(PAGE - 1); /* parts are whole pages; what is populated begins with one */

	for (int i = many - 1; i >= 0; i--) {
		shares[i] = (struct share){ file, parts, count, offset, each * (uint64_t)i,
					    i == many - 1 ? bytes : each * (uint64_t)(i + 1), false };
		is_started[i] = i && start(&threads[i], &shares[i]);
		if (!is_started[i])
			read_share(&shares[i]);
	}
	for (int i = 0; i < many; i++) {
		if (is_started[i])
			pthread_join(threads[i], NULL);
		is_done &= shares[i].is_done;
	}
	return is_done;
}

ssize_t preadv64(int file, const struct iovec *parts, int count, off64_t offset)
{
	uint64_t bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += parts[i].iov_len;
	if (bytes >= PIECE && bytes <= PTRDIFF_MAX && offset >= 0 && read_all(file, parts, count, (uint64_t)offset, bytes))
		return (ssize_t)bytes;
	return raw_preadv(file, parts, count, offset);
}
