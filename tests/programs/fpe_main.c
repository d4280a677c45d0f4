/* Divides an integer by zero. */
#include "ready.h"

int main(void)
{
	volatile int zero = 0, many = 7;
	ready();
	return many / zero;
}
