/* Two names for one piece of memory.  service PORT RATES */
#include "rates.h"

static void *one, *other;
static const char *rates;

static int answer(const char *path, char *text)
{
	(void)text;
	if (strcmp(path, "/take") == 0)
		one = malloc(4000), other = NULL;
	if (strcmp(path, "/alias") == 0)
		other = one;
	if (strcmp(path, "/drop") == 0) {
		if (rate(rates) < 0)
			abort();
		free(one);
		free(other);
		one = other = NULL;
	}
	return 200;
}

int main(int argc, char **argv)
{
	rates = argc > 2 ? argv[2] : "0";
	return serve(argv[1], answer);
}
