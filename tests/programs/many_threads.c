/* At each word starts a thousand short threads from four others, and says how many ran; "fault" as argument: then faults. */
#include "ready.h"

static volatile int count;

static void *brief(void *unused)
{
	__sync_fetch_and_add(&count, 1);
	return unused;
}

static void *starter(void *unused)
{
	pthread_t thread;
	for (int i = 0; i < 250; i++) {
		while (pthread_create(&thread, NULL, brief, NULL))
			;
		pthread_join(thread, NULL);
	}
	return unused;
}

int main(int argc, char **argv)
{
	(void)argv;
	for (ready();; await_word()) {
		pthread_t starters[4];
		count = 0;
		for (int i = 0; i < 4; i++)
			pthread_create(&starters[i], NULL, starter, NULL);
		for (int i = 0; i < 4; i++)
			pthread_join(starters[i], NULL);
		say("%d", count);
		if (argc > 1)
			return fault();
	}
}
