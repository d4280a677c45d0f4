/* memory_moves: changes its memory in every way that a program has, without end, from several threads. Used by tests that compare
 * what was kept of it with what it is.
 *
 *   memory_moves SEED REGIONS PAGES [alone [rests]]     (says "ready" on standard output once each region was written)
 *
 * Each thread has regions of its own. It writes bytes here and there, fills pages, gives them back (MADV_DONTNEED, MADV_FREE), maps
 * anew at the same address, unmaps, moves (mremap), changes rights, moves its break, changes a file's private mapping, and now and
 * then has a child that does so, too; not with "alone". With "rests" all threads rest together after each few hundred of changes: what
 * is read of mappings after a pause is then mostly still there. It ends with whoever started it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, THREADS = 3, MOST = 64, BETWEEN_RESTS = 500, HEAP_MOST = 256 /* [pages] */ };

static int regions, pages, is_alone, rests;
static pthread_barrier_t filled;

struct mover {
	uint64_t random;
	char *at[MOST];
	size_t size[MOST];
	char *file; /* a private mapping of one, of which some pages are changed */
	int zero, has_children, heap; /* [pages] by which it moved the break */
};

static uint64_t next(struct mover *m)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return m->random;
}

static char *map(void *hint, size_t size, int flags)
{
	char *found = mmap(hint, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (found == MAP_FAILED)
		abort();
	return found;
}

static void fill(struct mover *m, int i)
{
	for (size_t n = 0; n < m->size[i]; n += PAGE)
		memset(m->at[i] + n, (int)next(m) | 1, 64);
}

static void step(struct mover *m, int has_children)
{
	int i = (int)(next(m) % (uint64_t)regions);
	size_t count = m->size[i] / PAGE, first = next(m) % count, some = 1 + next(m) % (count - first);
	char *page = m->at[i] + first * PAGE, *moved;

	switch (next(m) % 16) {
	case 0:
		madvise(page, some * PAGE, MADV_DONTNEED);
		break;
	case 1:
		madvise(page, some * PAGE, MADV_FREE);
		break;
	case 2:
		map(page, some * PAGE, MAP_FIXED);
		break;
	case 3: /* larger, mostly somewhere else; refused where it is in pieces, as it may be while tracked (docs/limits.md) */
		moved = mremap(m->at[i], m->size[i], m->size[i] + PAGE, MREMAP_MAYMOVE);
		if (moved != MAP_FAILED) {
			m->at[i] = moved;
			m->size[i] += PAGE;
		}
		break;
	case 4: /* another region's place */
		munmap(m->at[i], m->size[i]);
		m->size[i] = (size_t)pages * PAGE;
		m->at[i] = map(NULL, m->size[i], 0);
		break;
	case 5:
		mprotect(page, some * PAGE, PROT_READ);
		mprotect(page, some * PAGE, PROT_READ | PROT_WRITE);
		break;
	case 6: /* the kernel writes: zeros */
		if (read(m->zero, page, 100) != 100)
			abort();
		break;
	case 7:
		if (has_children && !is_alone && next(m) % 64 == 0) {
			pid_t child = fork();

			if (child == 0) {
				for (int n = 0; n < 2000; n++)
					step(m, 0);
				_exit(0);
			}
			waitpid(child, NULL, 0);
		}
		break;
	case 8: /* a file's content, changed, given back, and so the file's again */
		memset(m->file + first % 4 * PAGE, (int)next(m) | 1, 64);
		if (next(m) % 2)
			madvise(m->file, 4 * PAGE, MADV_DONTNEED);
		break;
	case 10:
		madvise(m->at[i], m->size[i], next(m) % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		break;
	case 9:
		if (has_children) { /* one thread's only: the break belongs to the process */
			char *end = sbrk(PAGE);

			if (end == (void *)-1)
				break;
			*(volatile char *)end = (char)next(m);
			m->heap++;
			if (m->heap == HEAP_MOST || next(m) % 4 == 0) {
				const int back = m->heap == HEAP_MOST ? m->heap : 1;

				sbrk(-(intptr_t)back * PAGE);
				m->heap -= back;
			}
		}
		break;
	default:
		for (int n = 0; n < 8; n++)
			m->at[i][next(m) % m->size[i]] = (char)next(m);
	}
}

static void *move(void *argument)
{
	struct mover *m = argument;
	struct timespec nap = { 0, 1000000 }, rest = { 0, 50000000 };
	int own;

	m->zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	m->file = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, own, 0);
	for (int i = 0; i < regions; i++) {
		m->size[i] = (size_t)pages * PAGE;
		m->at[i] = map(NULL, m->size[i], 0);
		fill(m, i);
	}
	if (pthread_barrier_wait(&filled) == PTHREAD_BARRIER_SERIAL_THREAD) {
		puts("ready");
		fflush(stdout);
	}
	for (long n = 0;; n++) {
		step(m, m->has_children);
		if (n % 50 == 0)
			nanosleep(&nap, NULL);
		if (rests && n % BETWEEN_RESTS == 0) {
			pthread_barrier_wait(&filled);
			nanosleep(&rest, NULL);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static struct mover movers[THREADS];
	pthread_t thread;
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;

	regions = argc > 2 ? atoi(argv[2]) : 8;
	pages = argc > 3 ? atoi(argv[3]) : 64;
	is_alone = argc > 4;
	rests = argc > 5;
	if (regions > MOST || prctl(PR_SET_PDEATHSIG, SIGKILL))
		return 2;
	pthread_barrier_init(&filled, NULL, THREADS);
	for (int i = THREADS - 1; i >= 0; i--) {
		movers[i].random = seed * 7919 + (uint64_t)i * 104729 + 1;
		movers[i].has_children = i == 0;
		if (i)
			pthread_create(&thread, NULL, move, &movers[i]);
	}
	move(&movers[0]);
}
