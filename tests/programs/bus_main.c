/* Reads a mapped page behind the end of its file. */
#include "ready.h"
#include <sys/mman.h>

int main(void)
{
	FILE *file = tmpfile();
	volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(file), 0);
	ready();
	return *page;
}
