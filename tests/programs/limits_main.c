/* Writes past its limit of file size. */
#include "ready.h"
#include <sys/resource.h>

int main(void)
{
	struct rlimit limit = { 16, RLIM_INFINITY };
	FILE *file = tmpfile();
	char bytes[64] = { 0 };
	setrlimit(RLIMIT_FSIZE, &limit);
	ready();
	while (write(fileno(file), bytes, sizeof bytes) > 0)
		;
	say("survived");
}
