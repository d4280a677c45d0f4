/* abort() in the main thread. */
#include "ready.h"

int main(void)
{
	ready();
	abort();
}
