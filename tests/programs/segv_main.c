/* The main thread reads through a null pointer. */
#include "ready.h"

int main(void)
{
	ready();
	fault();
	say("survived");
}
