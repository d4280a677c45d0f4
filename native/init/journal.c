/* See journal.h. */
#define _GNU_SOURCE
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { CONTROL_SIZE = 4096, HEAD_MOST = 200, SUM_SIZE = 9 };

struct control *control;
static int directory, file = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* CRC-32 as zlib's, a bit at a time: records are short, and few for what a service does. */
static uint32_t sum_of(const char *data, size_t size)
{
	uint32_t sum = ~0u;

	for (size_t i = 0; i < size; i++) {
		sum ^= (unsigned char)data[i];
		for (int bit = 0; bit < 8; bit++)
			sum = sum & 1 ? sum >> 1 ^ 0xEDB88320u : sum >> 1;
	}
	return ~sum;
}

static int open_file(uint32_t epoch)
{
	char name[32];

	snprintf(name, sizeof name, "journal.%u", epoch);
	return openat(directory, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

int open_journal(int place)
{
	int fd = openat(place, "control", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *at;

	directory = place;
	if (fd < 0 || ftruncate(fd, CONTROL_SIZE) < 0)
		return errno;
	at = mmap(NULL, CONTROL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (at == MAP_FAILED)
		return errno;
	control = at;
	atomic_store(&control->version, JOURNAL_VERSION);
	file = open_file(atomic_load(&control->epoch));
	atomic_store(&control->reached, atomic_load(&control->epoch));
	return file < 0 ? errno : 0;
}

uint64_t next_serial(void)
{
	return atomic_fetch_add(&control->serial, 1) + 1;
}

/* All or nothing: behind half a record nothing could be read any more. */
static bool append(const char *line, size_t length)
{
	struct stat facts;
	ssize_t written = write(file, line, length);

	if (written > 0 && written < (ssize_t)length && fstat(file, &facts) == 0 && ftruncate(file, facts.st_size - written) < 0)
		return false; /* it is counted as lost all the same */
	return written == (ssize_t)length;
}

bool record(uint64_t serial, enum kind kind, const struct stat *facts, const char *path, const char *second)
{
	char line[HEAD_MOST + 2 * PATH_MAX], sum[SUM_SIZE + 1];
	static const struct stat nothing;
	struct timespec now;
	int length;
	bool is_written;

	if (!facts)
		facts = &nothing;
	if (strlen(path) >= PATH_MAX || strlen(second) >= PATH_MAX)
		return atomic_fetch_add(&control->lost, 1), false;
	pthread_mutex_lock(&lock);
	/* Within the lock: records stand in the order of their times. */
	clock_gettime(CLOCK_MONOTONIC, &now);
	length = snprintf(line, sizeof line, "00000000 %llu %lld %c %o %u %u %lld %lld %s%c%s", (unsigned long long)serial,
			  now.tv_sec * 1000000000LL + now.tv_nsec, (char)kind, facts->st_mode, facts->st_uid, facts->st_gid,
			  (long long)facts->st_size, facts->st_mtim.tv_sec * 1000000000LL + facts->st_mtim.tv_nsec, path, 0, second) + 1;
	snprintf(sum, sizeof sum, "%08x ", sum_of(line + SUM_SIZE, (size_t)length - SUM_SIZE));
	memcpy(line, sum, SUM_SIZE);
	/* A full disk is never the service's: its call goes on, and the next commit says that something is not known. */
	is_written = append(line, (size_t)length);
	pthread_mutex_unlock(&lock);
	if (!is_written)
		atomic_fetch_add(&control->lost, 1);
	return is_written;
}

void follow_epoch(void)
{
	uint32_t epoch = atomic_load(&control->epoch);
	int fresh;

	if (epoch == atomic_load(&control->reached))
		return;
	fresh = open_file(epoch);
	if (fresh < 0)
		return; /* the file before goes on to be read as well */
	pthread_mutex_lock(&lock);
	close(file);
	file = fresh;
	pthread_mutex_unlock(&lock);
	atomic_store(&control->reached, epoch);
}
