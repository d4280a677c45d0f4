/* Counts rounds in many kinds of state at once and prints "round N" when all agree, "broken WHAT" and ends when not.
 *
 * A token goes round through pipes: main, two threads, a child process, main. Each holder counts by itself (a thread in
 * its own stack, the child in its memory); besides there are a SysV segment, a semaphore, a message queue that always
 * holds one message, anonymous shared memory, and a file that is open but has no name any more.
 *
 *   many_kinds DIRECTORY [plain]      "plain": without what is System V's
 */
#include "ready.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>

enum { STAGES = 4, THREADS = 2 };

static int pipes[STAGES][2];
static volatile uint64_t *anonymous;

static uint64_t take(int stage)
{
	uint64_t token;

	if (read(pipes[stage][0], &token, sizeof token) != sizeof token)
		_exit(3);
	return token;
}

static void hand_on(int stage, uint64_t token)
{
	if (write(pipes[stage][1], &token, sizeof token) != sizeof token)
		_exit(3);
}

static void broken(const char *what, uint64_t is, uint64_t should)
{
	say("broken %s: %lu instead of %lu", what, (unsigned long)is, (unsigned long)should);
	_exit(1);
}

static void *relay(void *number)
{
	int stage = (int)(intptr_t)number;
	uint64_t own = 0;

	for (;;) {
		uint64_t token = take(stage);

		if (token != ++own)
			broken("thread", own, token);
		hand_on(stage + 1, token);
	}
	return NULL;
}

static void child(void)
{
	uint64_t own = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		uint64_t token = take(THREADS);

		if (token != ++own)
			broken("child", own, token);
		anonymous[0] = token;
		hand_on(THREADS + 1, token);
	}
}

static int segment, semaphore, queue;
static volatile uint64_t *shared;
static struct { long kind; uint64_t round; } message = { 1, 0 };

static void count_sysv(uint64_t round)
{
	struct sembuf up = { 0, 1, 0 };

	if (++shared[1000] != round)
		broken("segment", shared[1000], round);
	/* A semaphore ends at 32767: after a minute of rounds the program ends by itself. */
	if (semop(semaphore, &up, 1) < 0 || semctl(semaphore, 0, GETVAL) != (int)round)
		broken("semaphore", (uint64_t)semctl(semaphore, 0, GETVAL), round);
	if (msgrcv(queue, &message, sizeof message.round, 0, 0) < 0 || message.round != round - 1)
		broken("queue", message.round, round - 1);
	message.round = round;
	msgsnd(queue, &message, sizeof message.round, 0);
}

int main(int argc, char **argv)
{
	struct timespec pace = { 0, 2000000 };
	char name[4096];
	uint64_t round;

	snprintf(name, sizeof name, "%s/nameless", argc > 1 ? argv[1] : "/tmp");
	int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	int sysv = argc < 3;

	segment = sysv ? shmget(IPC_PRIVATE, 1 << 20, 0600) : 0;
	semaphore = sysv ? semget(IPC_PRIVATE, 1, 0600) : 0;
	queue = sysv ? msgget(IPC_PRIVATE, 0600) : 0;
	shared = sysv ? shmat(segment, NULL, 0) : NULL;

	anonymous = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (file < 0 || segment < 0 || semaphore < 0 || queue < 0 || shared == (void *)-1 || unlink(name) < 0)
		return 2;
	for (int stage = 0; stage < STAGES; stage++)
		if (pipe(pipes[stage]) < 0)
			return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* in a branch its first parent is CRIU, which ends */
	if (fork() == 0)
		child();
	for (intptr_t number = 0; number < THREADS; number++) {
		pthread_t thread;
		pthread_create(&thread, NULL, relay, (void *)number);
	}
	if (sysv) {
		shmctl(segment, IPC_RMID, NULL); /* it lives as long as it is attached */
		msgsnd(queue, &message, sizeof message.round, 0);
	}
	for (round = 1;; round++) {
		uint64_t stored = 0;

		hand_on(0, round);
		if (take(STAGES - 1) != round)
			broken("pipes", 0, round);
		if (anonymous[0] != round)
			broken("anonymous memory", anonymous[0], round);
		if (sysv)
			count_sysv(round);
		if (pread(file, &stored, sizeof stored, 0) < 0 || stored != round - 1)
			broken("file", stored, round - 1);
		pwrite(file, &round, sizeof round, 0);
		say("round %lu", (unsigned long)round);
		nanosleep(&pace, NULL);
	}
	return 0;
}
