/* Threads on stacks of their own making, as those of Go: they stand on stacks that lie beside other memory in one mapping, and so do their
 * alternate stacks, where only a handler may be. Of every signal that can be caught it catches all.
 *
 * Words: "leave" and "return": the first thread goes to such a stack, and back; "handle" and "go on": the last thread stays in a handler, and
 * leaves it; "small", "shared": the alternate stack of the last is too small from now on, or another thread's, too; "work": each thread works
 * once, and the sum is said; "intact": says whether all memory of alternate stacks is as it was filled, and that beside the stacks. Else it
 * says the word. */
#include "ready.h"

#include <semaphore.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { THREADS = 3, SIZE = 64 << 10, SMALL = 4096, FILLED = 0xa5 };

struct place {
	unsigned char beside[SIZE], stack[SIZE], alternate[SIZE];
};

static struct place *places; /* one for each thread, the first thread's first */
static ucontext_t homes[THREADS + 1], aside[THREADS + 1];
static sem_t begins[THREADS], ends, handled, leaves;
static pthread_t threads[THREADS];
static volatile uint64_t sums[THREADS];
static volatile int is_small, is_shared;

static void stay(int number)
{
	(void)number;
	sem_post(&handled);
	while (sem_wait(&leaves))
		;
}

static void have_alternate(int number, size_t size)
{
	sigaltstack(&(stack_t){ .ss_sp = places[number].alternate, .ss_size = size }, NULL);
}

static void go_aside(int number, void (*to)(void))
{
	getcontext(&aside[number]);
	aside[number].uc_stack.ss_sp = places[number].stack;
	aside[number].uc_stack.ss_size = SIZE;
	aside[number].uc_link = &homes[number];
	makecontext(&aside[number], to, 0);
	swapcontext(&homes[number], &aside[number]);
}

static void work(void)
{
	int own = 0;

	while (!pthread_equal(threads[own], pthread_self()))
		own++;
	for (uint64_t state = (uint64_t)own + 1;; sem_post(&ends)) {
		while (sem_wait(&begins[own]))
			;
		if (is_small && own == THREADS - 1)
			have_alternate(own + 1, SMALL);
		if (is_shared && own == THREADS - 1)
			have_alternate(own, SIZE);
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		sums[own] += state;
	}
}

static void *begin(void *number)
{
	have_alternate((int)(intptr_t)number, SIZE);
	go_aside((int)(intptr_t)number, work);
	return NULL;
}

static uint64_t have_all_work(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < THREADS; i++)
		sem_post(&begins[i]);
	for (int i = 0; i < THREADS; i++)
		while (sem_wait(&ends))
			;
	for (int i = 0; i < THREADS; i++)
		sum += sums[i];
	return sum;
}

static int is_intact(void)
{
	for (int i = 0; i <= THREADS; i++)
		for (int k = 0; k < SIZE; k++)
			if (places[i].beside[k] != FILLED || places[i].alternate[k] != FILLED)
				return 0;
	return 1;
}

static void obey(void)
{
	char word[32];

	while (fgets(word, sizeof word, stdin)) {
		word[strcspn(word, "\n")] = 0;
		if (!strcmp(word, "leave")) {
			say("leave");
			go_aside(0, obey);
		} else if (!strcmp(word, "handle")) {
			pthread_kill(threads[THREADS - 1], SIGUSR1);
			sem_wait(&handled);
		} else if (!strcmp(word, "go on")) {
			sem_post(&leaves);
			have_all_work();
			memset(places[THREADS].alternate, FILLED, SIZE);
		} else if (!strcmp(word, "small")) {
			is_small = 1;
			have_all_work();
		} else if (!strcmp(word, "shared")) {
			is_shared = 1;
			have_all_work();
		}
		if (!strcmp(word, "work"))
			say("%llu", (unsigned long long)have_all_work());
		else if (!strcmp(word, "intact"))
			say("%s", is_intact() ? "intact" : "touched");
		else if (strcmp(word, "leave"))
			say("%s", word);
		if (!strcmp(word, "return"))
			return;
	}
	_exit(0);
}

int main(void)
{
	static char buffers[2][4096];

	/* Without the heap: nothing but the stacks is new when a thread goes aside. */
	setvbuf(stdin, buffers[0], _IOFBF, sizeof buffers[0]);
	setvbuf(stdout, buffers[1], _IOFBF, sizeof buffers[1]);
	places = mmap(NULL, (THREADS + 1) * sizeof *places, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(places, FILLED, (THREADS + 1) * sizeof *places);
	for (int signal = 1; signal <= SIGRTMAX; signal++)
		sigaction(signal, &(struct sigaction){ .sa_handler = stay, .sa_flags = SA_ONSTACK | SA_RESTART }, NULL);
	sem_init(&ends, 0, 0);
	have_alternate(0, SIZE);
	for (int i = 0; i < THREADS; i++) {
		sem_init(&begins[i], 0, 0);
		pthread_create(&threads[i], NULL, begin, (void *)(intptr_t)(i + 1));
	}
	have_all_work();
	say("ready");
	for (;;)
		obey();
}
