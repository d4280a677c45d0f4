/* Takes memory until it is killed: hungry FIRST_MIB FILE. FIRST_MIB at once, and then, as soon as FILE is there, more and more. With a third
 * argument a child does so, and this process says "killed STATUS" (raw, wait(2)) and goes on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void take(size_t mib)
{
	volatile char *memory = malloc(mib << 20); /* volatile: else nothing is ever written */

	for (size_t at = 0; memory && at < mib << 20; at += 4096)
		memory[at] = 1;
}

static void wait_a_little(void)
{
	nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
}

int main(int argc, char **argv)
{
	int status;

	if (argc < 3)
		return 2;
	if (argc > 3 && fork() > 0) {
		wait(&status);
		printf("killed %d\n", status);
		fflush(stdout);
		for (;;)
			pause();
	}
	take((size_t)atoi(argv[1]));
	printf("ready\n");
	fflush(stdout);
	while (access(argv[2], F_OK) < 0)
		wait_a_little();
	for (;;) {
		take(1);
		wait_a_little();
	}
}
