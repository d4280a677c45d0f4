/* Memory that knows its own content, for branches whose memory comes in while they run.
 *
 *   lazy_memory PORT MEGABYTES FILE
 *
 * Every page holds one word of its own, never zero, 512 times. The program notices that it has become a branch: the wall clock,
 * asked by system call, has run on while the monotonic clock has not. At that moment, before anything else, it notes how
 * many of its pages are there (mincore(2)); then it does what FILE says, which the test writes before it restores:
 *   stress   threads and forked children check pages at random, for ever
 *   touch    only threads do
 *   change   frees, moves and unmaps parts of the memory, and checks what it is then
 * A wrong page is told on standard output ("WRONG ...") before anything else is done.
 * Whoever connects says one word and is answered with one line:
 *   there    pages that were there at that moment, and how many there are
 *   check    "ok" when all pages are right, "forked" when they are so in a child too
 *   threads  "ok" when eight threads have found all pages right
 *   changed  "ok" when the changes have come out right
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = 512, THREADS = 8, PARTS = 16, MOST_PAGES = 1 << 18 };

static uint64_t *memory;
static long pages, there = -1;
static const char *file, *changed = "not changed";
static unsigned char is_there[MOST_PAGES];

static uint64_t word_of(long page)
{
	return ((uint64_t)page + 1) * 0x9E3779B97F4A7C15u | 1;
}

static int is_right(const uint64_t *at, long page)
{
	for (int i = 0; i < WORDS; i++)
		if (at[i] != word_of(page)) {
			char line[80];
			int length = snprintf(line, sizeof line, "WRONG page %ld word %d\n", page, i);

			if (write(1, line, (size_t)length) < 0)
				abort();
			return 0;
		}
	return 1;
}

static int are_right(long first, long end)
{
	int good = 1;

	for (long page = first; page < end; page++)
		good &= is_right(memory + page * WORDS, page);
	return good;
}

static int in_child(long first, long end)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0)
		_exit(are_right(first, end) ? 0 : 1);
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void *check_part(void *number)
{
	long part = (long)number;

	return (void *)(long)are_right(pages * part / THREADS, pages * (part + 1) / THREADS);
}

static int in_threads(void)
{
	pthread_t threads[THREADS];
	void *good;
	int all = 1;

	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, check_part, (void *)i);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &good);
		all &= good != NULL;
	}
	return all;
}

static void *stress(void *number)
{
	unsigned seed = (unsigned)(long)number;

	for (;;) {
		long page = (long)rand_r(&seed) % (pages - 64);

		if (number)
			are_right(page, page + 1);
		else
			in_child(page, page + 64);
	}
	return NULL;
}

/* Part 1 reads as zeros afterwards, 2 lies elsewhere, 3 is gone but for its ends, 4 has become larger. */
static const char *change(void)
{
	long part = pages / PARTS;
	uint64_t *of[PARTS];
	int good = 1;

	for (int i = 0; i < PARTS; i++)
		of[i] = memory + i * part * WORDS;
	if (madvise(of[1], (size_t)part * PAGE, MADV_DONTNEED) < 0)
		return "madvise";
	uint64_t *moved = mremap(of[2], (size_t)part * PAGE, (size_t)part * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				 mmap(NULL, (size_t)part * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	if (moved == MAP_FAILED || munmap(of[3] + 7 * WORDS, (size_t)(part - 14) * PAGE) < 0)
		return "mremap or munmap";
	uint64_t *larger = mremap(of[4], (size_t)part * PAGE, (size_t)part * 2 * PAGE, MREMAP_MAYMOVE);
	if (larger == MAP_FAILED)
		return "mremap to a larger one";
	for (long i = 0; i < part; i++) {
		for (int k = 0; k < WORDS; k++)
			good &= of[1][i * WORDS + k] == 0 && larger[(part + i) * WORDS + k] == 0;
		good &= is_right(moved + i * WORDS, 2 * part + i) & is_right(larger + i * WORDS, 4 * part + i);
	}
	good &= are_right(3 * part, 3 * part + 7) & are_right(4 * part - 7, 4 * part);
	good &= are_right(0, part) & are_right(5 * part, pages) & in_child(5 * part, pages);
	return good ? "ok" : "wrong";
}

static int64_t drift(void)
{
	struct timespec wall, monotonic;

	syscall(SYS_clock_gettime, CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_MONOTONIC, &monotonic);
	return (wall.tv_sec - monotonic.tv_sec) * 1000 + (wall.tv_nsec - monotonic.tv_nsec) / 1000000;
}

static void come_back(void)
{
	char mode[16] = "";
	pthread_t thread;
	int params;

	mincore(memory, (size_t)pages * PAGE, is_there);
	there = 0;
	for (long i = 0; i < pages; i++)
		there += is_there[i] & 1;
	params = open(file, O_RDONLY);
	if (params < 0 || read(params, mode, sizeof mode - 1) < 0)
		return;
	close(params);
	if (strcmp(mode, "stress") == 0 || strcmp(mode, "touch") == 0)
		for (long i = mode[0] == 't'; i < 4; i++)
			pthread_create(&thread, NULL, stress, (void *)i);
	if (strcmp(mode, "change") == 0)
		changed = change();
}

static void answer(int client)
{
	char word[32] = "", line[64];
	const char *text = line;

	if (read(client, word, sizeof word - 1) < 0)
		return;
	if (strcmp(word, "there") == 0)
		snprintf(line, sizeof line, "%ld %ld", there, pages);
	else if (strcmp(word, "check") == 0)
		text = !are_right(0, pages) ? "wrong" : "ok";
	else if (strcmp(word, "forked") == 0)
		text = in_child(0, pages) ? "ok" : "wrong";
	else if (strcmp(word, "threads") == 0)
		text = in_threads() ? "ok" : "wrong";
	else
		text = changed;
	if (write(client, text, strlen(text)) < 0)
		return;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1])),
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	struct pollfd heard = { socket(AF_INET, SOCK_STREAM, 0), POLLIN, 0 };
	int64_t usual;

	pages = atol(argv[2]) * (1 << 20) / PAGE;
	file = argv[argc - 1];
	memory = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || pages > MOST_PAGES || bind(heard.fd, (void *)&address, sizeof address) < 0)
		return 1;
	for (long page = 0; page < pages; page++)
		for (int i = 0; i < WORDS; i++)
			memory[page * WORDS + i] = word_of(page);
	memset(is_there, 1, sizeof is_there);
	listen(heard.fd, 8);
	usual = drift();
	puts("ready");
	fflush(stdout);
	for (;;) {
		if (poll(&heard, 1, 1) > 0) {
			int client = accept(heard.fd, NULL, NULL);

			answer(client);
			close(client);
		}
		if (there < 0 && llabs(drift() - usual) > 20)
			come_back();
	}
}
