/* A value behind a pointer that a request makes wild.  service PORT RATES */
#include "rates.h"

static int two = 2;
static volatile int *value = &two;
static const char *rates;

static __attribute__((noinline)) int give_up(void)
{
	return *(volatile int *)8;
}

static __attribute__((noinline)) int look_up(void)
{
	return *value;
}

static int answer(const char *path, char *text)
{
	if (strcmp(path, "/free") == 0)
		value = (int *)0x5000;
	if (strcmp(path, "/read") == 0)
		sprintf(text, "%d", rate(rates) < 0 ? give_up() : look_up());
	return 200;
}

int main(int argc, char **argv)
{
	rates = argc > 2 ? argv[2] : "0";
	return serve(argv[1], answer);
}
